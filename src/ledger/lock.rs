//! One process at a time has a data directory.

use std::fs::{self, File};
use std::path::Path;

use super::error::OpenError;
use super::sync_directory;

/// The lock of a data directory, held until it is dropped.
pub(super) struct DirectoryLock(File);

impl DirectoryLock {
    /// Locks `dir`, which is made if it does not exist.
    pub(super) fn take(dir: &Path) -> Result<Self, OpenError> {
        if !dir.exists() {
            fs::create_dir_all(dir).map_err(OpenError::io(dir))?;
            let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = parent.unwrap_or(Path::new("."));
            sync_directory(parent).map_err(OpenError::io(parent))?;
        }
        let path = dir.join("lock");
        let file = File::create(&path).map_err(OpenError::io(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(fs::TryLockError::WouldBlock) => Err(OpenError::InUse(dir.to_owned())),
            Err(fs::TryLockError::Error(error)) => Err(OpenError::io(&path)(error)),
        }
    }
}

impl Drop for DirectoryLock {
    /// Closing the file is not enough: a child process that is just being started has a copy of it,
    /// and the lock with it, until it runs its own program.
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            log::warn!("the data directory stays locked until the process ends: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_ends_although_a_child_has_a_copy_of_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let lock = DirectoryLock::take(dir.path()).expect("free");
        assert!(matches!(DirectoryLock::take(dir.path()), Err(OpenError::InUse(_))), "it is held");
        let copy = lock.0.try_clone().expect("a copy");
        drop(lock);
        DirectoryLock::take(dir.path()).expect("free again");
        drop(copy);
    }
}
