//! Counters and gauges: handles to atomics that a family shows.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::text::{Series, push_count, push_float, push_signed};

/// A counter of whole things.
#[derive(Clone, Debug, Default)]
pub(in crate::metrics) struct IntCounter(Arc<AtomicU64>);

/// A counter of anything that does not fall, such as dollars.
#[derive(Clone, Debug, Default)]
pub(in crate::metrics) struct FloatCounter(Arc<FloatCell>);

/// A gauge of whole things.
#[derive(Clone, Debug, Default)]
pub(in crate::metrics) struct IntGauge(Arc<AtomicI64>);

/// A gauge of anything.
#[derive(Clone, Debug, Default)]
pub(in crate::metrics) struct FloatGauge(Arc<FloatCell>);

/// A float that many threads add to.
#[derive(Debug, Default)]
pub(super) struct FloatCell(AtomicU64);

impl FloatCell {
    pub(super) fn get(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    pub(super) fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }

    pub(super) fn add(&self, value: f64) {
        let mut before = self.0.load(Ordering::Relaxed);
        loop {
            let after = (f64::from_bits(before) + value).to_bits();
            let relaxed = Ordering::Relaxed;
            match self.0.compare_exchange_weak(before, after, relaxed, relaxed) {
                Ok(_) => return,
                Err(current) => before = current,
            }
        }
    }
}

impl IntCounter {
    pub(in crate::metrics) fn inc(&self) {
        self.inc_by(1);
    }

    pub(in crate::metrics) fn inc_by(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(in crate::metrics) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl FloatCounter {
    pub(in crate::metrics) fn inc(&self) {
        self.inc_by(1.0);
    }

    pub(in crate::metrics) fn inc_by(&self, amount: f64) {
        self.0.add(amount);
    }

    pub(in crate::metrics) fn get(&self) -> f64 {
        self.0.get()
    }
}

impl IntGauge {
    pub(in crate::metrics) fn inc(&self) {
        self.add(1);
    }

    pub(in crate::metrics) fn dec(&self) {
        self.sub(1);
    }

    pub(in crate::metrics) fn add(&self, count: i64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(in crate::metrics) fn sub(&self, count: i64) {
        self.0.fetch_sub(count, Ordering::Relaxed);
    }

    pub(in crate::metrics) fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(in crate::metrics) fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl FloatGauge {
    pub(in crate::metrics) fn set(&self, value: f64) {
        self.0.set(value);
    }
}

/// Writes the one line of a series.
fn push_line(out: &mut String, name: &str, labels: &str, value: impl FnOnce(&mut String)) {
    out.push_str(name);
    if !labels.is_empty() {
        out.push('{');
        out.push_str(labels);
        out.push('}');
    }
    out.push(' ');
    value(out);
    out.push('\n');
}

impl Series for IntCounter {
    const KIND: &'static str = "counter";
    type Shape = ();

    fn new((): &()) -> Self {
        Self::default()
    }

    fn push(&self, name: &str, labels: &str, (): &(), out: &mut String) {
        push_line(out, name, labels, |out| push_count(out, self.get()));
    }
}

impl Series for FloatCounter {
    const KIND: &'static str = "counter";
    type Shape = ();

    fn new((): &()) -> Self {
        Self::default()
    }

    fn push(&self, name: &str, labels: &str, (): &(), out: &mut String) {
        push_line(out, name, labels, |out| push_float(out, self.get()));
    }
}

impl Series for IntGauge {
    const KIND: &'static str = "gauge";
    type Shape = ();

    fn new((): &()) -> Self {
        Self::default()
    }

    fn push(&self, name: &str, labels: &str, (): &(), out: &mut String) {
        push_line(out, name, labels, |out| push_signed(out, self.get()));
    }
}

impl Series for FloatGauge {
    const KIND: &'static str = "gauge";
    type Shape = ();

    fn new((): &()) -> Self {
        Self::default()
    }

    fn push(&self, name: &str, labels: &str, (): &(), out: &mut String) {
        push_line(out, name, labels, |out| push_float(out, self.0.get()));
    }
}
