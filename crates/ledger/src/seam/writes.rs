//! The log of what operators and customers wrote, where several ledgers follow the same.

use async_trait::async_trait;
use tokio::sync::MutexGuard;

use crate::records::error::LedgerError;
use crate::records::record::Record;
use tollgate_types::ids::Seq;

/// Whoever has it writes, or takes over what others wrote: one after the other in each node.
pub struct Turn<'a>(pub MutexGuard<'a, ()>);

/// A write of the directory that this version understands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its place.
    pub seq: Seq,
    /// What it came to.
    pub records: Vec<Record>,
}

/// How far the directory goes, as far as it was pulled and is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// In order and without a gap.
    pub groups: Vec<Group>,
    /// Whether nothing stood behind them.
    pub is_last: bool,
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Logged {
    /// It stands at this place.
    At(Seq),
    /// Others have written meanwhile; nothing has changed.
    Behind,
    /// The money does not allow it; nothing has changed.
    Refused(LedgerError),
}

/// The log, as one of those sees it who follow it.
#[async_trait]
pub trait WriteLog: Send + Sync {
    /// Waits until this ledger's next writer, or follower, may begin.
    async fn turn(&self) -> Turn<'_>;

    /// Writes records behind `after`. `write_id` tells a write from any other that could stand there.
    async fn append(
        &self,
        turn: &Turn<'_>,
        after: Seq,
        write_id: &str,
        records: &[Record],
    ) -> Result<Logged, LedgerError>;

    /// What stands behind `after`.
    async fn pull(&self, turn: &Turn<'_>, after: Seq) -> Result<Page, LedgerError>;

    /// Follows no further, for good, for this reason.
    fn stop(&self, why: String) -> LedgerError;
}
