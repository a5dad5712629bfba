//! Status of a node that shares its money, from its own point of view.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::sync::Arc;
use std::time::Duration;

use tollgate_types::ids::{NodeId, Seq};

/// Progress of this ledger.
#[derive(Clone, Copy, Debug)]
pub struct JournalProgress {
    /// The last record of its journal.
    pub last: Seq,
    /// Position in the log of writes up to which it has followed.
    pub followed: Seq,
}

/// Status of this node.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// Id of the node.
    pub node: NodeId,
    /// Name given by operators.
    pub name: String,
    /// Its life: raised with each join.
    pub epoch: u64,
    /// Time for which leased money may be spent after the last contact with the treasury.
    pub term: Duration,
    /// Rest of the term. At zero the node is cut off and makes no holds.
    pub term_left: Duration,
    /// Records of the node's journal that have not been reported to the treasury.
    pub unreported: u64,
    /// Maximum age of the oldest of them.
    pub report_lag: Duration,
    /// Position of the last applied directory entry.
    pub followed: Seq,
    /// The last place that it has seen there.
    pub head: Seq,
    /// Reason why it stopped following the directory.
    pub stopped: Option<Arc<str>>,
}

impl NodeStatus {
    /// True if the term has ended: the node makes no holds.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        self.term_left.is_zero()
    }

    /// Number of directory entries that are known but not applied.
    #[must_use]
    pub fn directory_lag(&self) -> u64 {
        self.head.saturating_sub(self.followed)
    }

    /// Reason for failing the readiness probe, as a word: requests would all be refused, or would
    /// be served by stale data such as revoked keys.
    #[must_use]
    pub fn reason_against(&self) -> Option<&'static str> {
        if self.is_cut_off() {
            Some("cut_off")
        } else {
            self.stopped.as_ref().map(|_| "directory_stopped")
        }
    }
}
