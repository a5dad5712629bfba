//! Making a metric and registering it, in one expression.

use super::family::{
    FloatCounter, FloatGauge, Histogram, HistogramBuckets, IntCounter, IntGauge, MetricFamily,
    Registry, Series,
};

/// Counters of whole things by labels.
pub(super) type IntCounterVec = MetricFamily<IntCounter>;
/// Counters by labels.
pub(super) type CounterVec = MetricFamily<FloatCounter>;
/// Gauges of whole things by labels.
pub(super) type IntGaugeVec = MetricFamily<IntGauge>;
/// Gauges by labels.
pub(super) type GaugeVec = MetricFamily<FloatGauge>;
/// Histograms by labels.
pub(super) type HistogramVec = MetricFamily<Histogram>;

fn add<S: Series>(registry: &Registry, family: MetricFamily<S>) -> MetricFamily<S> {
    registry.add(&family);
    family
}

/// The only series of a metric without labels.
fn single<S: Series<Shape = ()>>(registry: &Registry, name: &'static str, help: &'static str) -> S {
    add(registry, MetricFamily::<S>::new(name, help, &[], ())).with_label_values::<&str>(&[])
}

pub(super) fn counter(registry: &Registry, name: &'static str, help: &'static str) -> FloatCounter {
    single(registry, name, help)
}

pub(super) fn int_counter(
    registry: &Registry,
    name: &'static str,
    help: &'static str,
) -> IntCounter {
    single(registry, name, help)
}

pub(super) fn gauge(registry: &Registry, name: &'static str, help: &'static str) -> FloatGauge {
    single(registry, name, help)
}

pub(super) fn int_gauge(registry: &Registry, name: &'static str, help: &'static str) -> IntGauge {
    single(registry, name, help)
}

pub(super) fn int_gauges(
    registry: &Registry,
    name: &'static str,
    help: &'static str,
    labels: &[&'static str],
) -> IntGaugeVec {
    add(registry, MetricFamily::new(name, help, labels, ()))
}

pub(super) fn histogram(
    registry: &Registry,
    name: &'static str,
    help: &'static str,
    buckets: &'static [f64],
) -> Histogram {
    histograms(registry, name, help, &[], buckets).with_label_values::<&str>(&[])
}

pub(super) fn counters(
    registry: &Registry,
    name: &'static str,
    help: &'static str,
    labels: &[&'static str],
) -> CounterVec {
    add(registry, MetricFamily::new(name, help, labels, ()))
}

pub(super) fn gauges(
    registry: &Registry,
    name: &'static str,
    help: &'static str,
    labels: &[&'static str],
) -> GaugeVec {
    add(registry, MetricFamily::new(name, help, labels, ()))
}

pub(super) fn int_counters(
    registry: &Registry,
    name: &'static str,
    help: &'static str,
    labels: &[&'static str],
) -> IntCounterVec {
    add(registry, MetricFamily::new(name, help, labels, ()))
}

pub(super) fn histograms(
    registry: &Registry,
    name: &'static str,
    help: &'static str,
    labels: &[&'static str],
    buckets: &'static [f64],
) -> HistogramVec {
    add(registry, MetricFamily::new(name, help, labels, HistogramBuckets::new(buckets)))
}
