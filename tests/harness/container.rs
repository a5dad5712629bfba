//! A control group with little memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::eventually;

/// A control group whose processes the kernel kills when they pass its limit; removed on drop.
pub(crate) struct Container {
    /// Its directory.
    pub(crate) path: PathBuf,
}

impl Container {
    /// True where this process may make control groups that limit memory.
    pub(crate) fn can_be_made() -> bool {
        let first = Path::new("/sys/fs/cgroup/memory");
        let mount = if first.exists() { first } else { Path::new("/sys/fs/cgroup") };
        let path = mount.join(format!("tollgate-probe-{}", std::process::id()));
        let limit = if first.exists() { "memory.limit_in_bytes" } else { "memory.max" };
        let is_made = fs::create_dir(&path).is_ok() && path.join(limit).exists();
        drop(fs::remove_dir(&path));
        is_made
    }

    /// A new one with so much memory.
    pub(crate) fn with_memory(bytes: usize) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let first = Path::new("/sys/fs/cgroup/memory");
        let (mount, file) = match first.exists() {
            true => (first, "memory.limit_in_bytes"),
            false => (Path::new("/sys/fs/cgroup"), "memory.max"),
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = mount.join(format!("tollgate-test-{}-{number}", std::process::id()));
        fs::create_dir(&path).expect("a control group");
        fs::write(path.join(file), bytes.to_string()).expect("a limit of memory");
        Self { path }
    }
}

impl Container {
    /// Memory of its processes that the kernel cannot take back: all but the pages of files.
    pub(crate) fn anonymous_bytes(&self) -> usize {
        let lines = fs::read_to_string(self.path.join("memory.stat")).unwrap_or_default();
        // Named so in versions 1 and 2.
        let value = lines
            .lines()
            .find_map(|line| line.strip_prefix("rss ").or_else(|| line.strip_prefix("anon ")));
        value.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // A process that was killed leaves it in a moment.
        eventually("the group is empty", || fs::remove_dir(&self.path).is_ok());
    }
}
