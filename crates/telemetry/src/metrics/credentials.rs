//! Metrics of the tokens with which the gateway signs in to upstreams.

use prometheus::{IntCounterVec, IntGaugeVec, Registry};

use super::Metrics;
use super::register::{int_counters, int_gauges};
use tollgate_credentials::RefreshOutcome;

/// Calls to those that issue tokens, and how long what they have issued lasts.
pub(super) struct CredentialMetrics {
    refreshes: IntCounterVec,
    left: IntGaugeVec,
}

/// Remaining lifetime of a credential's token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialFigures {
    /// The name of the upstream.
    pub upstream: String,
    /// Name of the credential; empty for an unnamed one.
    pub credential: String,
    /// The seconds for which what was issued last is still used; 0 when there is nothing.
    pub left_seconds: i64,
}

impl CredentialMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        Self {
            refreshes: int_counters(
                r,
                "tollgate_credential_refreshes_total",
                "Calls to those that issue tokens for an upstream, by what came of them.",
                &["upstream", "outcome"],
            ),
            left: int_gauges(
                r,
                "tollgate_credential_expires_in_seconds",
                "How long the token that was issued last is still used; 0 when there is none.",
                &["upstream", "credential"],
            ),
        }
    }

    /// The counter of one outcome at zero.
    pub(super) fn begin(&self, upstream: &str, outcome: RefreshOutcome) {
        self.refreshes.with_label_values(&[upstream, outcome.as_str()]).inc_by(0);
    }
}

impl Metrics {
    /// Counts a call to those that issue tokens for an upstream.
    pub fn credential_refreshed(&self, upstream: &str, outcome: RefreshOutcome) {
        if let RefreshOutcome::Exhausted(resource) = outcome {
            self.resource_exhausted(resource, &format_args!("a token for {upstream}"));
        }
        self.credentials.refreshes.with_label_values(&[upstream, outcome.as_str()]).inc();
    }

    /// Shows how long tokens last. Those that a reload has taken away are not shown any more.
    pub fn show_credentials(&self, figures: &[CredentialFigures]) {
        self.credentials.left.reset();
        for CredentialFigures { upstream, credential, left_seconds } in figures {
            let labels = [upstream.as_str(), credential];
            self.credentials.left.with_label_values(&labels).set(*left_seconds);
        }
    }
}
