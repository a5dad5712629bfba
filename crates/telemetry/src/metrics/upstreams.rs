//! Metrics of attempts, and of the health of targets.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Registry};

use super::register::{counter, histograms, int_counters, int_gauges};
use super::{ByName, LATENCY_BUCKETS, Metrics};

/// Faults of the operator in an attempt: the credential, the account, or the account's permissions.
const OPERATOR_FAULTS: [&str; 3] = ["credential", "account", "model"];

/// The metrics of upstreams.
pub(super) struct UpstreamMetrics {
    requests: IntCounterVec,
    duration: HistogramVec,
    retries: IntCounterVec,
    denied: prometheus::Counter,
    reconnects: IntCounterVec,
    operator_faults: IntCounterVec,
    withheld: IntCounterVec,
    in_flight: IntGaugeVec,
    healthy: IntGaugeVec,
    circuits: IntGaugeVec,
    quotas: IntGaugeVec,
    /// By upstream, so that a try looks one name up.
    series: RwLock<ByName<Arc<TrySeries>>>,
}

/// The resolved metrics of tries of one upstream.
struct TrySeries {
    ok: IntCounter,
    duration: Histogram,
}

/// Health of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamFigures {
    /// The name of the upstream.
    pub upstream: String,
    /// True unless its health check, if it has one, fails.
    pub healthy: bool,
    /// Number of calls in flight.
    pub in_flight: u32,
}

/// Health of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CircuitFigures {
    /// The id of the configured model.
    pub model: String,
    /// The name of the upstream.
    pub upstream: String,
    /// The upstream's name for the model.
    pub target: String,
    /// Name of the credential; empty for an unnamed one.
    pub credential: String,
    /// 0 for closed, 1 for half open (one call probes), 2 for open.
    pub state: i64,
    /// Remaining quotas of the operator at the provider, by unit.
    pub quotas: Vec<(&'static str, u64)>,
}

impl UpstreamMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        Self {
            requests: int_counters(
                r,
                "tollgate_upstream_requests_total",
                "Tries of upstreams, by what came of them.",
                &["upstream", "outcome"],
            ),
            duration: histograms(
                r,
                "tollgate_upstream_duration_seconds",
                "From the beginning of a try to the upstream's word on it.",
                &["upstream"],
                &LATENCY_BUCKETS,
            ),
            retries: int_counters(
                r,
                "tollgate_retries_total",
                "Tries that followed another one, by where they went.",
                &["model", "upstream"],
            ),
            denied: counter(
                r,
                "tollgate_retry_budget_exhausted_total",
                "Retries that were not made because there were too many.",
            ),
            reconnects: int_counters(
                r,
                "tollgate_upstream_reconnects_total",
                "Requests sent again over a new connection because the upstream had closed the kept one.",
                &["upstream"],
            ),
            operator_faults: int_counters(
                r,
                "tollgate_upstream_operator_faults_total",
                "Tries that an upstream refused for a fault of the operator's credential or account.",
                &["upstream", "credential", "fault"],
            ),
            withheld: int_counters(
                r,
                "tollgate_upstream_answers_withheld_total",
                "Answers that were not passed on because they held the operator's credential.",
                &["upstream"],
            ),
            in_flight: int_gauges(
                r,
                "tollgate_upstream_in_flight",
                "Calls to an upstream that are under way.",
                &["upstream"],
            ),
            healthy: int_gauges(
                r,
                "tollgate_upstream_healthy",
                "1 unless the upstream's health check fails.",
                &["upstream"],
            ),
            circuits: int_gauges(
                r,
                "tollgate_circuit_state",
                "0 when a target gets calls, 1 when one call finds out, 2 when it gets none.",
                &["model", "upstream", "target", "credential"],
            ),
            quotas: int_gauges(
                r,
                "tollgate_upstream_quota_remaining",
                "What an upstream says is left of your quota for a target, until its reset.",
                &["model", "upstream", "target", "credential", "kind"],
            ),
            series: RwLock::default(),
        }
    }

    fn series(&self, upstream: &str) -> Arc<TrySeries> {
        if let Some(existing) = self.series.read().get(upstream) {
            return Arc::clone(existing);
        }
        // Two threads may make it at one time. Their counters are the same ones of the registry, so either copy
        // counts.
        let made = Arc::new(TrySeries {
            ok: self.requests.with_label_values(&[upstream, "ok"]),
            duration: self.duration.with_label_values(&[upstream]),
        });
        // An increase of a series that begins with its first event is seen by no alert.
        drop(self.reconnects.with_label_values(&[upstream]));
        self.series.write().insert(upstream.to_owned(), Arc::clone(&made));
        made
    }

    /// The counters of tries at zero, for each of these outcomes.
    pub(super) fn begin(&self, upstream: &str, outcomes: &[&str]) {
        for outcome in outcomes {
            self.requests.with_label_values(&[upstream, outcome]).inc_by(0);
        }
        self.reconnects.with_label_values(&[upstream]).inc_by(0);
        self.withheld.with_label_values(&[upstream]).inc_by(0);
        for fault in OPERATOR_FAULTS {
            self.operator_faults.with_label_values(&[upstream, "", fault]).inc_by(0);
        }
    }

    /// The counter of retries that go to a target at zero.
    pub(super) fn begin_retries(&self, model: &str, upstream: &str) {
        self.retries.with_label_values(&[model, upstream]).inc_by(0);
    }

    /// Update the gauges; those that a reload has removed disappear.
    pub(super) fn update(&self, upstreams: &[UpstreamFigures], circuits: &[CircuitFigures]) {
        // Else a target that a reload has removed would be shown for ever.
        self.in_flight.reset();
        self.healthy.reset();
        self.circuits.reset();
        self.quotas.reset();
        for figures in upstreams {
            let labels = [figures.upstream.as_str()];
            self.in_flight.with_label_values(&labels).set(figures.in_flight.into());
            self.healthy.with_label_values(&labels).set(figures.healthy.into());
        }
        for figures in circuits {
            let CircuitFigures { model, upstream, target, credential, state, quotas } = figures;
            let labels = [model.as_str(), upstream, target, credential];
            self.circuits.with_label_values(&labels).set(*state);
            for (kind, remaining) in quotas {
                let labels = [model.as_str(), upstream, target, credential, kind];
                let remaining = i64::try_from(*remaining).unwrap_or(i64::MAX);
                self.quotas.with_label_values(&labels).set(remaining);
            }
            // An increase is seen of a series only that was there before.
            for fault in OPERATOR_FAULTS {
                self.operator_faults.with_label_values(&[upstream.as_str(), credential, fault]);
            }
        }
    }
}

impl Metrics {
    /// Counts a try and what came of it.
    pub fn upstream_answered(&self, upstream: &str, outcome: &'static str, took: Duration) {
        let series = self.upstreams.series(upstream);
        if outcome == "ok" {
            series.ok.inc();
        } else {
            self.upstreams.requests.with_label_values(&[upstream, outcome]).inc();
        }
        series.duration.observe(took.as_secs_f64());
    }

    /// Counts a try that was refused for a fault of the operator's: `credential`, `account` or `model`.
    pub fn operator_at_fault(&self, upstream: &str, credential: &str, fault: &'static str) {
        self.upstreams.operator_faults.with_label_values(&[upstream, credential, fault]).inc();
    }

    /// Counts and logs an answer that is not passed on, or no further, because it holds the operator's
    /// credential.
    pub fn answer_withheld(&self, upstream: &str) {
        self.upstreams.withheld.with_label_values(&[upstream]).inc();
        log::error!(
            "{upstream} has put the credential that it is asked with into an answer, which is not passed \
             on: replace the credential, and ask the provider why"
        );
    }

    /// Counts a try that follows another one.
    pub fn retried(&self, model: &str, upstream: &str) {
        self.upstreams.retries.with_label_values(&[model, upstream]).inc();
    }

    /// Counts a request that is sent again because its connection had been closed.
    pub fn reconnected(&self, upstream: &str) {
        self.upstreams.reconnects.with_label_values(&[upstream]).inc();
    }

    /// Counts a try that was not made because there were too many.
    pub fn retry_denied(&self) {
        self.upstreams.denied.inc();
    }
}
