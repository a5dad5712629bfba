//! The records of a ledger that no process has open, for commands.

use std::path::Path;

use crate::files::lock::DirectoryLock;
use crate::journal::records::Records;
use crate::journal::segment;
use crate::records::error::OpenError;
use crate::records::record::Record;
use tollgate_types::ids::Seq;

/// Iterator over the records of a ledger that is locked meanwhile. At most one segment (64 MiB) is in memory.
pub struct OfflineRecords {
    records: Records,
    _lock: DirectoryLock,
}

impl OfflineRecords {
    /// The records of the ledger in `dir` from `from` on. An unfinished write at the journal's end is
    /// not among them.
    ///
    /// # Errors
    /// [`OpenError`] when there is no ledger, when a process has it open, or when it cannot be read.
    pub fn open(dir: &Path, from: Seq) -> Result<Self, OpenError> {
        // Taking the lock would make the directory.
        segment::list(&dir.join("journal"))?;
        let lock = DirectoryLock::take(dir)?;
        Ok(Self { records: Records::open(dir, from, None)?, _lock: lock })
    }
}

impl Iterator for OfflineRecords {
    type Item = Result<(Seq, Record), OpenError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.records.next()
    }
}
