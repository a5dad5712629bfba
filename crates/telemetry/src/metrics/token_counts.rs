//! Questions to providers' counters of tokens, by what came of them.

use prometheus::{IntCounterVec, Registry};
use tollgate_types::words::words;

use super::Metrics;
use super::register::int_counters;

words! {
    /// Outcome of a token count.
    CountOutcome {
        /// The provider has counted the prompt.
        Counted = "counted",
        /// A count of such a prompt is there from lately, or from a request at the same time.
        Cached = "cached",
        /// No provider of the model counts this request, or the one that does has failed recently.
        Unsupported = "unsupported",
        /// The upstream, or the account there, has the maximum number of counts in progress.
        Busy = "busy",
        /// The provider has refused to count it.
        Refused = "refused",
        /// No answer, or none that is a count.
        Failed = "failed",
        /// The answer did not come in time.
        TimedOut = "timed_out",
    }
}

pub(super) struct CountMetrics(IntCounterVec);

impl CountMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        Self(int_counters(
            r,
            "tollgate_token_counts_total",
            "Questions to providers' counters of tokens, by what came of them.",
            &["outcome"],
        ))
    }

    /// Creates every counter at zero.
    pub(super) fn begin(&self) {
        for outcome in CountOutcome::ALL {
            self.0.with_label_values(&[outcome.as_str()]).inc_by(0);
        }
    }
}

impl Metrics {
    /// Counts a question to a provider's counter.
    pub fn token_count_finished(&self, outcome: CountOutcome) {
        self.token_counts.0.with_label_values(&[outcome.as_str()]).inc();
    }
}
