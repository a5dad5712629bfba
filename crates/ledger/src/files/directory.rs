//! Directories whose names outlive a crash.

use std::io;
use std::path::Path;

pub(crate) use tollgate_journal::sync_directory;

/// Creates a directory and its parents, and makes their names durable, so that files created in it survive a
/// power failure.
pub(crate) fn make_directory(dir: &Path) -> io::Result<()> {
    let missing: Vec<_> = dir.ancestors().take_while(|dir| !dir.exists()).collect();
    std::fs::create_dir_all(dir)?;
    let parents = missing.iter().filter_map(|dir| dir.parent());
    let is_named = |parent: &&Path| !parent.as_os_str().is_empty();
    parents.filter(is_named).try_for_each(sync_directory)
}
