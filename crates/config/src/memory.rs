//! The memory that this process may use: what the machine has, or what its control group leaves it.
//!
//! Nothing is said by the kernel when a group's limit is passed: the process is killed. So the
//! budgets that are not set follow the limit.

use std::fs;
use std::path::{Path, PathBuf};

/// A limit of this size is none: version 1 of control groups writes the largest number of pages.
const NO_LIMIT: u64 = 1 << 60;

/// The memory that this process may use, in bytes; `None` where nothing says so.
pub(super) fn limit() -> Option<u64> {
    limit_below(Path::new("/"))
}

/// The memory that this process may use, in bytes, by the kernel's files below `root`; `None` where
/// none of them says so.
fn limit_below(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let of_groups = groups.lines().flat_map(|line| of_group(root, line));
    of_groups.chain(physical(root)).min()
}

/// The limits of a line such as `0::/system.slice/x` (version 2) or `4:memory:/docker/x`
/// (version 1), and of all groups above it.
fn of_group(root: &Path, line: &str) -> Vec<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
    let (mount, files): (_, &[&str]) = match controllers {
        "" => ("sys/fs/cgroup", &["memory.max", "memory.high"]),
        _ if controllers.split(',').any(|one| one == "memory") => {
            ("sys/fs/cgroup/memory", &["memory.limit_in_bytes"])
        }
        _ => return Vec::new(),
    };
    let mount = root.join(mount);
    // In a container the path may be the host's, and the group that of the mount itself.
    let group: PathBuf = mount.join(path.trim_start_matches('/'));
    let groups = group.ancestors().take_while(|group| group.starts_with(&mount));
    let files = groups.flat_map(|group| files.iter().map(move |file| group.join(file)));
    let limits = files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok());
    limits.filter(|limit| *limit < NO_LIMIT).collect()
}

/// Physical memory of the machine, in bytes.
fn physical(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Memory limit found where these files are below the root.
    fn found(files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a directory")).expect("made");
            fs::write(path, text).expect("written");
        }
        limit_below(root.path())
    }

    #[test]
    fn the_least_of_machine_and_groups_counts() {
        let machine = ("proc/meminfo", "MemTotal:       2097152 kB\nMemFree: 1 kB\n");
        assert_eq!(found(&[machine]), Some(2048 * MIB), "the machine alone");
        assert_eq!(found(&[]), None, "nothing says so");
        let second = ("proc/self/cgroup", "0::/a/b\n");
        let at = |path, text| (path, text);
        let max = at("sys/fs/cgroup/a/b/memory.max", "157286400\n");
        assert_eq!(found(&[machine, second, max]), Some(150 * MIB), "version 2");
        let none = at("sys/fs/cgroup/a/b/memory.max", "max\n");
        assert_eq!(found(&[machine, second, none]), Some(2048 * MIB), "no limit");
        let above = at("sys/fs/cgroup/a/memory.max", "104857600\n");
        assert_eq!(found(&[machine, second, max, above]), Some(100 * MIB), "of the one above");
        let high = at("sys/fs/cgroup/a/b/memory.high", "52428800\n");
        assert_eq!(found(&[machine, second, max, high]), Some(50 * MIB), "where it is throttled");
        // A container without a name space of its own sees the host's path, and its own files.
        let own = at("sys/fs/cgroup/memory.max", "157286400\n");
        assert_eq!(found(&[machine, second, own]), Some(150 * MIB), "in a container");
        let first = ("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/x\n0::/\n");
        let limit = at("sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "157286400\n");
        assert_eq!(found(&[machine, first, limit]), Some(150 * MIB), "version 1");
        let own = at("sys/fs/cgroup/memory/memory.limit_in_bytes", "157286400\n");
        assert_eq!(found(&[machine, first, own]), Some(150 * MIB), "version 1 in a container");
        let none = at("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(found(&[machine, first, none]), Some(2048 * MIB), "version 1 without a limit");
    }
}
