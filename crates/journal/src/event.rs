//! Events of a journal's disk.

use std::io;
use std::path::Path;

/// Events to log or to alert on.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Fewer bytes are free than there should be.
    LittleRoom {
        /// Directory of the journal.
        dir: &'a Path,
        /// Minimum free space, in bytes.
        free_bytes_min: u64,
    },
    /// There is room again after [`Event::LittleRoom`].
    RoomAgain {
        /// Directory of the journal.
        dir: &'a Path,
    },
    /// The free disk space cannot be determined.
    SpaceUnknown {
        /// Directory of the journal.
        dir: &'a Path,
        /// The error of the operating system.
        error: &'a io::Error,
    },
    /// The ballast could not be allocated.
    NoBallast {
        /// The file of the ballast.
        path: &'a Path,
        /// The error of the operating system.
        error: &'a io::Error,
    },
    /// The disk is full, and the ballast was given up.
    BallastGivenUp,
    /// The disk is full, and the journal waits for room. Said every 10 s.
    WaitsForRoom,
    /// No file can be opened; the journal waits for a descriptor. Reported every 10 s.
    WaitsForDescriptor {
        /// The error of the last try.
        error: &'a io::Error,
    },
    /// The process was to end on a full disk: these records were not written, as after a crash.
    GivenUp {
        /// Number of lost records.
        records: usize,
    },
    /// The rest of an abandoned write could not be cut; the next start does it.
    NotCut {
        /// The error of the operating system.
        error: &'a io::Error,
    },
}
