//! The log of what operators and customers wrote, where several ledgers follow the same.

use async_trait::async_trait;
use tokio::sync::MutexGuard;

use crate::records::error::LedgerError;
use crate::records::record::Record;
use tollgate_types::ids::Seq;

/// Guard that serialises writes and the application of others' writes within a node.
pub struct WriteTurn<'a>(pub MutexGuard<'a, ()>);

/// A write of the directory that this version understands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteGroup {
    /// Its place.
    pub seq: Seq,
    /// Records of the write.
    pub records: Vec<Record>,
}

/// A page of the directory, as far as it was pulled and this version understands it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritePage {
    /// In order and without a gap.
    pub groups: Vec<WriteGroup>,
    /// True if nothing follows.
    pub is_last: bool,
}

/// Result of an append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AppendOutcome {
    /// It stands at this place.
    Appended(Seq),
    /// Others have written meanwhile; nothing has changed.
    Behind,
    /// The money does not allow it; nothing has changed.
    Refused(LedgerError),
}

/// The log, as one of those sees it who follow it.
#[async_trait]
pub trait WriteLog: Send + Sync {
    /// Waits until this ledger's next writer, or follower, may begin.
    async fn turn(&self) -> WriteTurn<'_>;

    /// Appends records after position `after`. `write_id` distinguishes the write from any other at that
    /// position.
    async fn append(
        &self,
        turn: &WriteTurn<'_>,
        after: Seq,
        write_id: &str,
        records: &[Record],
    ) -> Result<AppendOutcome, LedgerError>;

    /// Reads the writes after `after`.
    async fn pull(&self, turn: &WriteTurn<'_>, after: Seq) -> Result<WritePage, LedgerError>;

    /// Follows no further, for good, for this reason.
    fn stop(&self, why: String) -> LedgerError;
}
