//! Owner-only file permissions: the ledger contains addresses, password hashes and balances.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::Mode;

/// Mode of directories.
const DIRECTORY: u32 = 0o700;
/// Mode of files.
const FILE: u32 = 0o600;

/// Set the umask so that new files are private to the process's user.
pub fn only_for_owner() {
    // For the whole process, since sled and others create files of their own.
    rustix::process::umask(Mode::RWXG | Mode::RWXO);
}

/// Remove group and world permissions from a data directory and its content: an older build, or a shell,
/// may have created them. Failures are logged only.
pub fn guard(dir: &Path) {
    if let Err(error) = close(dir) {
        log::warn!(
            "others on this machine may be able to read {}: {error}. Have it belong to the user that \
             serves",
            dir.display()
        );
    }
}

fn close(dir: &Path) -> io::Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        take_from_others(&dir, DIRECTORY)?;
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            // Of the entry itself: what a link leads to is not ours.
            match entry.file_type()? {
                kind if kind.is_dir() => left.push(entry.path()),
                kind if kind.is_file() => take_from_others(&entry.path(), FILE)?,
                _ => {}
            }
        }
    }
    Ok(())
}

fn take_from_others(path: &Path, mode: u32) -> io::Result<()> {
    let found = match fs::metadata(path) {
        Ok(metadata) => metadata.permissions().mode(),
        // Whoever served before this process may still be at work.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    // Files that are private already are left alone: changing them would need their ownership.
    if found & 0o077 == 0 {
        return Ok(());
    }
    match fs::set_permissions(path, fs::Permissions::from_mode(mode)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_closed_and_links_lead_nowhere() {
        let directory = tempfile::tempdir().expect("a directory");
        let (data, outside) = (directory.path().join("data"), directory.path().join("outside"));
        fs::create_dir_all(data.join("journal")).expect("made");
        for file in [data.join("journal/0"), data.join("lock"), outside.clone()] {
            fs::write(&file, "x").expect("written");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("opened");
        }
        fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).expect("opened");
        std::os::unix::fs::symlink(&outside, data.join("link")).expect("linked");
        guard(&data);
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        for (path, expected) in
            [("", 0o700), ("journal", 0o700), ("journal/0", 0o600), ("lock", 0o600)]
        {
            assert_eq!(mode(&data.join(path)), expected, "{path}");
        }
        assert_eq!(mode(&outside), 0o644, "what a link leads to");
        guard(&directory.path().join("nothing"));
    }
}
