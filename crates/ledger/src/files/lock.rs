//! One process at a time has a data directory.

use std::fs::{self, File};
use std::path::Path;

use crate::files::directory::sync_directory;
use crate::records::error::OpenError;

/// The lock of a data directory, held until it is dropped.
///
/// The directory itself is locked, which stays for as long as there is a journal in it; and the file
/// `lock` beside it, which earlier versions look at. Who removes that file lets nobody in.
pub(crate) struct DirectoryLock([Option<File>; 2]);

impl DirectoryLock {
    /// Locks `dir`, which is made if it does not exist.
    pub(crate) fn take(dir: &Path) -> Result<Self, OpenError> {
        if !dir.exists() {
            fs::create_dir_all(dir).map_err(OpenError::io(dir))?;
            let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
            let parent = parent.unwrap_or(Path::new("."));
            sync_directory(parent).map_err(OpenError::io(parent))?;
        }
        let own = File::open(dir).map_err(OpenError::io(dir))?;
        let mut taken = Self([None, None]);
        match own.try_lock() {
            Ok(()) => taken.0[0] = Some(own),
            Err(fs::TryLockError::WouldBlock) => return Err(OpenError::InUse(dir.to_owned())),
            // Some network file systems lock no directories.
            Err(fs::TryLockError::Error(error)) => {
                log::warn!("{} cannot be locked, the file `lock` is: {error}", dir.display());
            }
        }
        let path = dir.join("lock");
        let file = File::create(&path).map_err(OpenError::io(&path))?;
        match file.try_lock() {
            Ok(()) => taken.0[1] = Some(file),
            Err(fs::TryLockError::WouldBlock) => return Err(OpenError::InUse(dir.to_owned())),
            Err(fs::TryLockError::Error(error)) => return Err(OpenError::io(&path)(error)),
        }
        Ok(taken)
    }
}

impl Drop for DirectoryLock {
    /// Closing the files is not enough: a child process that is just being started has a copy of them,
    /// and the locks with them, until it runs its own program.
    fn drop(&mut self) {
        for file in self.0.iter().flatten() {
            if let Err(error) = file.unlock() {
                log::warn!("the data directory stays locked until the process ends: {error}");
            }
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
        let copies: Vec<_> =
            lock.0.iter().flatten().map(|file| file.try_clone().expect("a copy")).collect();
        drop(lock);
        DirectoryLock::take(dir.path()).expect("free again");
        drop(copies);
    }

    #[test]
    fn who_removes_the_file_lets_nobody_in() {
        let dir = tempfile::tempdir().expect("a directory");
        let lock = DirectoryLock::take(dir.path()).expect("free");
        fs::remove_file(dir.path().join("lock")).expect("removed");
        assert!(matches!(DirectoryLock::take(dir.path()), Err(OpenError::InUse(_))), "it is held");
        drop(lock);
        DirectoryLock::take(dir.path()).expect("free again");
    }
}
