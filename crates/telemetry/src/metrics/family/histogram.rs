//! Histograms with fixed buckets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::cells::FloatCell;
use super::text::{Series, push_count, push_float};

/// Buckets of a family of histograms.
#[derive(Clone, Debug)]
pub(in crate::metrics) struct HistogramBuckets {
    /// Upper bounds, each within its bucket, in rising order.
    bounds: &'static [f64],
    /// The bounds as their label shows them, with the one that takes everything.
    labels: Arc<[String]>,
}

/// A histogram.
#[derive(Clone, Debug)]
pub(in crate::metrics) struct Histogram(Arc<HistogramCell>);

#[derive(Debug)]
struct HistogramCell {
    bounds: &'static [f64],
    /// Observations by bucket, those beyond the last bound at the end. Their sum is the number of all, so that
    /// a scrape in the middle of an observation still adds up.
    counts: Box<[AtomicU64]>,
    sum: FloatCell,
}

impl HistogramBuckets {
    /// Buckets with these upper bounds.
    pub(in crate::metrics) fn new(bounds: &'static [f64]) -> Self {
        let finite = bounds.iter().map(|bound| format!("le=\"{bound}\"}} "));
        Self { bounds, labels: finite.chain(["le=\"+Inf\"} ".to_owned()]).collect() }
    }
}

impl Histogram {
    /// Counts an observation.
    pub(in crate::metrics) fn observe(&self, value: f64) {
        let HistogramCell { bounds, counts, sum } = &*self.0;
        let place = bounds.iter().position(|bound| value <= *bound).unwrap_or(bounds.len());
        if let Some(count) = counts.get(place) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        sum.add(value);
    }

    /// Observations by bucket, those beyond the last bound at the end.
    pub(in crate::metrics) fn counts(&self) -> impl Iterator<Item = u64> {
        self.0.counts.iter().map(|count| count.load(Ordering::Relaxed))
    }
}

impl Series for Histogram {
    const KIND: &'static str = "histogram";
    type Shape = HistogramBuckets;

    fn new(shape: &HistogramBuckets) -> Self {
        let counts = shape.labels.iter().map(|_| AtomicU64::new(0)).collect();
        Self(Arc::new(HistogramCell { bounds: shape.bounds, counts, sum: FloatCell::default() }))
    }

    fn push(&self, name: &str, labels: &str, shape: &HistogramBuckets, out: &mut String) {
        let mut total: u64 = 0;
        for (count, label) in self.counts().zip(shape.labels.iter()) {
            // Buckets of the format have all that is below their bound.
            total = total.saturating_add(count);
            out.push_str(name);
            out.push_str("_bucket{");
            out.push_str(labels);
            if !labels.is_empty() {
                out.push(',');
            }
            out.push_str(label);
            push_count(out, total);
            out.push('\n');
        }
        let (open, close) = if labels.is_empty() { ("", " ") } else { ("{", "} ") };
        for (suffix, is_sum) in [("_sum", true), ("_count", false)] {
            [name, suffix, open, labels, close].into_iter().for_each(|part| out.push_str(part));
            if is_sum {
                push_float(out, self.0.sum.get())
            } else {
                push_count(out, total)
            }
            out.push('\n');
        }
    }
}
