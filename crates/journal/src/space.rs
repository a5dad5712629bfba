//! Room on the disk: how much there is, and a file that is given up when there is none.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fs4::FileExt as _;

use crate::event::Event;

/// Below this many free bytes a disk is taken for full, unless the caller says otherwise. At 200 bytes a
/// record it is room for some hundred thousand records that follow from those that are there, and for
/// what else is written beside the journal.
pub const FREE_BYTES_MIN: u64 = 64 << 20;
/// Preallocated space that is freed when the disk is full anyway, because of other files.
const BALLAST_BYTES: u64 = 16 << 20;
/// The file that has it, in the watched directory.
pub const BALLAST: &str = "ballast";
/// Interval of the check of free space.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of the event that the journal waits for space.
const WAITING_INTERVAL: Duration = Duration::from_secs(10);

/// Watches the free space of a disk and keeps the ballast.
#[derive(Debug)]
pub struct Space {
    dir: PathBuf,
    free_bytes_min: u64,
    checked_at: Option<Instant>,
    /// Time of the last such event.
    waiting_reported_at: Option<Instant>,
    is_full: bool,
}

impl Space {
    /// Watches the disk under `dir`, which counts as full while fewer than `free_bytes_min` are free.
    #[must_use]
    pub fn new(dir: PathBuf, free_bytes_min: u64) -> Self {
        Self { dir, free_bytes_min, checked_at: None, waiting_reported_at: None, is_full: false }
    }

    /// True if less than the minimum is free, according to the check of the last second.
    pub(crate) fn check(&mut self, on_event: &mut impl FnMut(Event<'_>)) -> bool {
        if self.checked_at.is_some_and(|at| at.elapsed() < CHECK_INTERVAL) {
            return self.is_full;
        }
        self.checked_at = Some(Instant::now());
        let was_full = self.is_full;
        let dir = self.dir.as_path();
        match fs4::available_space(dir) {
            Ok(free_bytes) => {
                self.is_full = free_bytes < self.free_bytes_min;
                if !self.is_full {
                    // Only with room to spare: taking the ballast back at once would fill the disk
                    // again.
                    keep_ballast(dir, on_event);
                }
            }
            Err(error) => on_event(Event::SpaceUnknown { dir, error: &error }),
        }
        if self.is_full && !was_full {
            on_event(Event::LittleRoom { dir, free_bytes_min: self.free_bytes_min });
        } else if was_full && !self.is_full {
            on_event(Event::RoomAgain { dir });
        }
        self.is_full
    }

    /// True if the event is due again; it counts as sent then.
    pub(crate) fn should_say_waiting(&mut self) -> bool {
        let is_due = self.waiting_reported_at.is_none_or(|at| at.elapsed() >= WAITING_INTERVAL);
        if is_due {
            self.waiting_reported_at = Some(Instant::now());
        }
        is_due
    }

    /// Frees the preallocated space; false if that was done before.
    pub(crate) fn give_up_ballast(&mut self) -> bool {
        self.is_full = true;
        self.checked_at = Some(Instant::now());
        // No flush of the directory: if a crash brings the file back, the next check finds it in its
        // place.
        fs::remove_file(self.dir.join(BALLAST)).is_ok()
    }
}

fn keep_ballast(dir: &Path, on_event: &mut impl FnMut(Event<'_>)) {
    let path = dir.join(BALLAST);
    if path.exists() {
        return;
    }
    // Allocated, not written or truncated to length: a sparse file would free nothing when it is
    // removed.
    let allocated = File::create(&path).and_then(|file| file.allocate(BALLAST_BYTES));
    if let Err(error) = allocated {
        on_event(Event::NoBallast { path: &path, error: &error });
    }
}

/// True for a full disk, or a full quota of the process's user.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// True if the process or the machine has reached its limit of open files. Descriptors become free
/// when others are closed.
pub(crate) fn lacks_descriptors(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| errno == Errno::MFILE || errno == Errno::NFILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passing_failures_are_distinguished_from_lasting_ones() {
        use rustix::io::Errno;
        for (errno, full, descriptors) in [
            (Errno::NOSPC, true, false),
            (Errno::DQUOT, true, false),
            (Errno::MFILE, false, true),
            (Errno::NFILE, false, true),
            (Errno::IO, false, false),
            (Errno::ROFS, false, false),
        ] {
            let error = io::Error::from(errno);
            assert_eq!(
                (is_full(&error), lacks_descriptors(&error)),
                (full, descriptors),
                "{error}"
            );
        }
    }
}
