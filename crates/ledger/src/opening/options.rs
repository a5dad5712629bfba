//! Options for opening a ledger.

use std::path::PathBuf;
use std::sync::Arc;

use crate::maintenance::worker::MaintenanceOptions;
use crate::ports::funds::SharedFunds;
use crate::projection::projector::Pruning;
use crate::{OnCommit, journal};
use tollgate_options::ledger::RecoveryPolicy;

/// Options for opening a ledger.
pub struct Options {
    /// The data directory; made if it does not exist. One process at a time.
    pub dir: PathBuf,
    /// Settlement of holds that a crash left open.
    pub recovery: RecoveryPolicy,
    /// Callback for each group commit.
    pub on_commit: Option<OnCommit>,
    /// New holds are refused while fewer bytes than this are free.
    pub disk_free_bytes_min: u64,
    /// A file of the journal that has reached this length is followed by a new one.
    pub segment_bytes_max: u64,
    /// Fleet that the ledger joins as a node. An existing journal must belong to this node.
    pub fleet: Option<Arc<dyn SharedFunds>>,
    /// Accept a copied directory: it continues under a new name.
    pub accept_fork: bool,
    /// Settings for the journal's closed segments.
    pub maintenance: MaintenanceOptions,
    /// Retention of statement lines in sled.
    pub pruning: Pruning,
}

impl Options {
    /// The usual options for the ledger in `dir`.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            recovery: RecoveryPolicy::default(),
            on_commit: None,
            disk_free_bytes_min: journal::FREE_BYTES_MIN,
            segment_bytes_max: journal::segment::SEGMENT_BYTES_MAX,
            fleet: None,
            accept_fork: false,
            maintenance: MaintenanceOptions::default(),
            pruning: Pruning::default(),
        }
    }

    /// The usual options for the ledger in `dir` that shares its money with others.
    #[must_use]
    pub fn with_funds(dir: impl Into<PathBuf>, funds: Arc<impl SharedFunds>) -> Self {
        Self { fleet: Some(funds), ..Self::new(dir) }
    }
}
