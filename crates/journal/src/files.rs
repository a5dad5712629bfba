//! Files that are named by a number: 16 hexadecimal digits and an extension.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// File extension of segments.
pub(crate) const SEGMENT: &str = "seg";
/// File extension of seals.
pub(crate) const SEAL: &str = "seal";

/// The path of the file of this number.
pub(crate) fn path(dir: &Path, number: u64, extension: &str) -> PathBuf {
    dir.join(format!("{number:016x}.{extension}"))
}

/// The numbers of the files in `dir` that have one of these extensions, ascending and each once.
///
/// # Errors
/// When the directory cannot be read.
pub(crate) fn numbers(dir: &Path, extensions: &[&str]) -> io::Result<Vec<u64>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let parts = name.to_str().and_then(|name| name.split_once('.'));
        let Some((number, extension)) = parts else { continue };
        if number.len() == 16 && extensions.contains(&extension) {
            found.extend(u64::from_str_radix(number, 16));
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Makes durable which names a directory has.
///
/// # Errors
/// The operating system's.
pub fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
