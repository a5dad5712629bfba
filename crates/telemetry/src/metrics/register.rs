//! Making a metric and registering it, in one expression.

use prometheus::core::Collector;
use prometheus::{
    Counter, CounterVec, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter,
    IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

/// Registers a metric. Names and labels are constants, so this fails in every test or never.
#[expect(clippy::expect_used, reason = "a wrong constant, which the first test finds")]
pub(super) fn add<C: Collector + Clone + 'static>(
    registry: &Registry,
    made: prometheus::Result<C>,
) -> C {
    let metric = made.expect("a metric's name and labels are valid");
    registry.register(Box::new(metric.clone())).expect("a metric's name is used once");
    metric
}

pub(super) fn counter(registry: &Registry, name: &str, help: &str) -> Counter {
    add(registry, Counter::new(name, help))
}

pub(super) fn int_counter(registry: &Registry, name: &str, help: &str) -> IntCounter {
    add(registry, IntCounter::new(name, help))
}

pub(super) fn gauge(registry: &Registry, name: &str, help: &str) -> Gauge {
    add(registry, Gauge::new(name, help))
}

pub(super) fn int_gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    add(registry, IntGauge::new(name, help))
}

pub(super) fn int_gauges(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> IntGaugeVec {
    add(registry, IntGaugeVec::new(Opts::new(name, help), labels))
}

pub(super) fn histogram(registry: &Registry, name: &str, help: &str, buckets: &[f64]) -> Histogram {
    let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    add(registry, Histogram::with_opts(opts))
}

pub(super) fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> CounterVec {
    add(registry, CounterVec::new(Opts::new(name, help), labels))
}

pub(super) fn gauges(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> GaugeVec {
    add(registry, GaugeVec::new(Opts::new(name, help), labels))
}

pub(super) fn int_counters(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
) -> IntCounterVec {
    add(registry, IntCounterVec::new(Opts::new(name, help), labels))
}

pub(super) fn histograms(
    registry: &Registry,
    name: &str,
    help: &str,
    labels: &[&str],
    buckets: &[f64],
) -> HistogramVec {
    let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    add(registry, HistogramVec::new(opts, labels))
}
