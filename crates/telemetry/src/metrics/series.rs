//! Counters of a request, resolved once, so that a request only adds to atomics.

use std::sync::OnceLock;

use prometheus::{Counter, Histogram, IntCounter};

use super::{Metrics, dollars};
use crate::finished::{FinishedRequest, RequestSettlement};
use tollgate_money::money::Nanousd;
use tollgate_money::price::{UNITS, Unit, UsageSource};

/// The resolved metrics of one route, model and upstream: a request only adds to atomics.
pub(super) struct RequestSeries {
    pub(super) route: String,
    pub(super) upstream: String,
    succeeded: IntCounter,
    duration: Histogram,
    ttfb: Histogram,
    /// Made when something is billed, so that refusals make no empty series.
    billed: OnceLock<BillingMetrics>,
}

impl RequestSeries {
    pub(super) fn new(metrics: &Metrics, route: &str, model: &str, upstream: &str) -> Self {
        let labels = [route, model, upstream];
        Self {
            route: route.to_owned(),
            upstream: upstream.to_owned(),
            succeeded: metrics.requests.with_label_values(&[route, model, upstream, "2xx", ""]),
            duration: metrics.duration.with_label_values(&labels),
            ttfb: metrics.ttfb.with_label_values(&labels),
            billed: OnceLock::new(),
        }
    }

    pub(super) fn record(&self, metrics: &Metrics, finished: &FinishedRequest<'_>) {
        let class = status_class(finished.status);
        if class == "2xx" && finished.error_code.is_empty() {
            self.succeeded.inc();
        } else {
            let labels =
                // Failures are rare and their codes are many: they are looked up each time.
                [finished.route, finished.model, finished.upstream, class, finished.error_code];
            metrics.requests.with_label_values(&labels).inc();
        }
        self.duration.observe(finished.duration.as_secs_f64());
        if let Some(ttfb) = finished.ttfb {
            self.ttfb.observe(ttfb.as_secs_f64());
        }
        if let Some(settled) = &finished.settled {
            self.billed
                .get_or_init(|| BillingMetrics::new(metrics, finished.model))
                .record(settled, finished.held);
        }
    }
}

/// The resolved metrics of what one model was billed.
pub(super) struct BillingMetrics {
    /// Of each unit the counter of its tokens, if it is one.
    tokens: [Option<IntCounter>; Unit::COUNT],
    spend: Counter,
    held: Counter,
    by_upstream: IntCounter,
    estimated: IntCounter,
    unused: IntCounter,
}

impl BillingMetrics {
    pub(super) fn new(metrics: &Metrics, model: &str) -> Self {
        let tokens = |kind| metrics.tokens.with_label_values(&[model, kind]);
        let source = |it: UsageSource| metrics.settlements.with_label_values(&[model, it.as_str()]);
        Self {
            tokens: UNITS.each_ref().map(|unit| unit.metric.map(tokens)),
            spend: metrics.spend.with_label_values(&[model]),
            held: metrics.held.with_label_values(&[model]),
            by_upstream: source(UsageSource::Upstream),
            estimated: source(UsageSource::Estimated),
            unused: source(UsageSource::None),
        }
    }

    pub(super) fn record(&self, settled: &RequestSettlement, held: Nanousd) {
        for (counter, count) in self.tokens.iter().zip(settled.usage.counts()) {
            if count > 0
                && let Some(counter) = counter
            {
                counter.inc_by(count);
            }
        }
        // A counter may not fall; the ledger has the exact sums.
        self.spend.inc_by(dollars(settled.cost).max(0.0));
        self.held.inc_by(dollars(held).max(0.0));
        match settled.source {
            UsageSource::Upstream => self.by_upstream.inc(),
            UsageSource::Estimated => self.estimated.inc(),
            UsageSource::None => self.unused.inc(),
        }
    }
}

fn status_class(status: u16) -> &'static str {
    match status {
        100..=199 => "1xx",
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        500..=599 => "5xx",
        _ => "none",
    }
}
