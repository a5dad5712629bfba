//! Metrics of the journal's files.

use prometheus::{Gauge, IntCounter, IntGauge, Registry};

use super::Metrics;
use super::register::{gauge, int_counter, int_gauge};
use tollgate_ledger::MaintenanceEvent;

/// The metrics of the journal's files.
pub(super) struct KeepingMetrics {
    bytes: IntGauge,
    checkpoint: Gauge,
    archived: IntCounter,
    failures: IntCounter,
}

impl KeepingMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        Self {
            bytes: int_gauge(
                r,
                "tollgate_journal_bytes",
                "Bytes of the journal in the data directory, as of when a file was closed or moved.",
            ),
            checkpoint: gauge(
                r,
                "tollgate_checkpoint_timestamp_seconds",
                "When this process wrote the last checkpoint; 0 before the first.",
            ),
            archived: int_counter(
                r,
                "tollgate_journal_archived_bytes_total",
                "Bytes of the journal that were moved to the archive, uncompressed.",
            ),
            failures: int_counter(
                r,
                "tollgate_journal_keeping_failures_total",
                "Times that a file of the journal could not be sealed or moved, or a checkpoint not \
                 be written; it is tried again.",
            ),
        }
    }
}

impl Metrics {
    /// Counts what was done with the journal's files.
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are far below 2^53")]
    pub fn journal_kept(&self, kept: &MaintenanceEvent) {
        let keeping = &self.keeping;
        match kept {
            MaintenanceEvent::Journal { bytes } => {
                keeping.bytes.set(i64::try_from(*bytes).unwrap_or(i64::MAX))
            }
            MaintenanceEvent::Checkpoint { at } => keeping.checkpoint.set(at.0 as f64 / 1e3),
            MaintenanceEvent::Archived { bytes } => keeping.archived.inc_by(*bytes),
            MaintenanceEvent::Failed => keeping.failures.inc(),
        }
    }
}
