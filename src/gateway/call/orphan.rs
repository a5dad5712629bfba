//! Answers that are read on although nobody waits for them any more: what they cost is known at their
//! end only, and must be paid.

use std::sync::Arc;

use tokio::time::Instant;

use crate::balance::{Candidate, OrphanGuard};
use crate::gateway::call::sending::Progress;
use crate::gateway::exchange::{Exchange, RequestStage};
use crate::metrics::Metrics;
use crate::protocols::Framing;

/// An answer that is read on.
pub(crate) struct Orphan {
    /// When it is given up.
    pub(crate) until: Instant,
    bytes_left: u64,
    /// What it counts in at its upstream.
    _at_upstream: OrphanGuard,
    metrics: Arc<Metrics>,
}

impl Orphan {
    fn new(candidate: &Candidate, until: Instant, bytes: u64, metrics: Arc<Metrics>) -> Self {
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

impl Exchange {
    /// Nobody waits for the answer any more. Whether the upstream is read on all the same: where it
    /// has the request, what it does costs money, and may cost what nobody has seen.
    pub(crate) fn read_on(&mut self) -> bool {
        if self.orphan.is_some() {
            return true;
        }
        let candidate = match &self.stage {
            RequestStage::Sending(sending) => {
                let admitted = &sending.admitted;
                let is_cut = admitted.call.is_all_shown() && admitted.call.streams();
                let attempt = sending.attempt.as_ref();
                let is_asked = |progress| matches!(progress, Progress::Sent | Progress::Silent);
                let attempt = attempt.filter(|attempt| is_asked(attempt.progress));
                attempt.filter(|_| !is_cut && admitted.payment.is_held()).map(|one| &one.candidate)
            }
            RequestStage::Relaying(response) => {
                let relaying = &response.relaying;
                let is_cut = relaying.is_all_shown() && response.framing == Framing::Sse;
                let reads_on = relaying.is_paid() && !is_cut && !relaying.is_complete();
                reads_on.then_some(&response.candidate)
            }
            RequestStage::Unpaid | RequestStage::Settled(_) => None,
        };
        let Some((candidate, model)) = candidate.zip(self.tried_model()) else { return false };
        let rules = model.on_disconnect;
        let total = candidate.target.upstream.timeouts.total;
        let until = (Instant::now() + rules.time).min(Instant::from_std(self.started) + total);
        if let Some(permit) = &mut self.permit {
            permit.orphan();
        }
        self.orphan = Some(Orphan::new(candidate, until, rules.bytes, Arc::clone(&self.metrics)));
        true
    }
}
