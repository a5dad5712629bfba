//! Answers that are read on although nobody waits for them any more: what they cost is known at their
//! end only, and must be paid.

use std::sync::Arc;

use tokio::time::Instant;

use crate::balance::{Candidate, OrphanGuard};
use crate::metrics::Metrics;

/// An answer that is read after its client disconnected.
pub(crate) struct Orphan {
    /// Time at which reading stops.
    pub(crate) until: Instant,
    bytes_left: u64,
    /// Its part of the upstream's count of such responses.
    _at_upstream: OrphanGuard,
    metrics: Arc<Metrics>,
}

impl Orphan {
    pub(crate) fn new(
        candidate: &Candidate,
        until: Instant,
        bytes: u64,
        metrics: Arc<Metrics>,
    ) -> Self {
        metrics.orphan_begin();
        Self { until, bytes_left: bytes, _at_upstream: candidate.orphan(), metrics }
    }

    /// Counts bytes that are thrown away; false when there are more than may be.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        match self.bytes_left.checked_sub(bytes as u64) {
            Some(left) => self.bytes_left = left,
            None => return false,
        }
        true
    }
}

impl Drop for Orphan {
    fn drop(&mut self) {
        self.metrics.orphan_end();
    }
}
