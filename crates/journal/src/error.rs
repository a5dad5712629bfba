//! Errors of reading or writing a journal.

use std::io;
use std::path::PathBuf;

use crate::Seq;

/// Failure to read or write a journal. Its contents are unchanged.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or directory cannot be used.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The operating system's reason, or [`CorruptFile`](crate::checked::Changed).
        source: io::Error,
    },
    /// The journal has bytes that were not written like this.
    #[error("{}: damaged at byte {offset}: {what}", .path.display())]
    Damaged {
        /// The file of the segment.
        path: PathBuf,
        /// Offset in the file, in bytes.
        offset: u64,
        /// Description of the damage.
        what: String,
    },
    /// The journal ends before a record that was on disk once.
    #[error("the journal ends at record {end}, and had record {expected} once")]
    Behind {
        /// The last record found.
        end: Seq,
        /// Last expected record.
        expected: Seq,
    },
    /// The directory is a copy of another one, or has the journal of another one: history would go two
    /// ways from here.
    #[error("{}: {what}", .dir.display())]
    Forked {
        /// The opened directory.
        dir: PathBuf,
        /// Description of the contents, for people.
        what: String,
    },
    /// A place that somebody has noted is none of this journal: the hash chain there is another one.
    #[error("{}: no frame of this hash chain ends at byte {offset}, behind record {seq}", .path.display())]
    OtherJournal {
        /// The file of the segment.
        path: PathBuf,
        /// Recorded position, in bytes from the segment's beginning.
        offset: u64,
        /// The last record before it.
        seq: Seq,
    },
}

impl Error {
    /// Makes an error of the operating system's one about `path`.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}
