//! How a ledger is doing that shares its money with others, as it knows itself.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::sync::Arc;
use std::time::Duration;

use tollgate_types::ids::{NodeId, Seq};

/// How far a ledger is by itself.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The last record of its journal.
    pub last: Seq,
    /// The last place of the log of what people wrote that it has taken over.
    pub followed: Seq,
}

/// How this node is doing.
#[derive(Clone, Debug)]
pub struct Standing {
    /// Which node it is.
    pub node: NodeId,
    /// What operators call it.
    pub name: String,
    /// Its life: raised with each join.
    pub epoch: u64,
    /// How long it may spend what it was lent after it has last heard of the treasury.
    pub term: Duration,
    /// How much of that is left. Without any it is cut off: it makes no holds.
    pub term_left: Duration,
    /// Records of its journal that the treasury does not have yet.
    pub unreported: u64,
    /// How old the oldest of them can be.
    pub report_lag: Duration,
    /// The last place of the directory that it has taken over.
    pub followed: Seq,
    /// The last place that it has seen there.
    pub head: Seq,
    /// Why it follows the directory no further.
    pub stopped: Option<Arc<str>>,
}

impl Standing {
    /// Whether it has not heard of the treasury for so long that it makes no holds.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        self.term_left.is_zero()
    }

    /// Writes of the directory that it has seen and not taken over.
    #[must_use]
    pub fn directory_lag(&self) -> u64 {
        self.head.saturating_sub(self.followed)
    }

    /// Why it wants no requests, in a word: they would all be refused, or by what is not known here any
    /// more, such as keys that were revoked.
    #[must_use]
    pub fn reason_against(&self) -> Option<&'static str> {
        if self.is_cut_off() {
            Some("cut_off")
        } else {
            self.stopped.as_ref().map(|_| "directory_stopped")
        }
    }
}
