//! Families of series, and their text in Prometheus' format.
//!
//! A scrape writes each line straight into one text, from labels that are sorted already, and builds no tree of
//! all samples first.

mod cells;
mod histogram;
mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;

pub(super) use cells::{FloatCounter, FloatGauge, IntCounter, IntGauge};
pub(super) use histogram::{Histogram, HistogramBuckets};
pub(super) use text::Series;
use text::{push_help, push_label};

/// Separates the values of a series' labels in their key. No name of a configuration has control characters,
/// and it sorts before everything else: keys are in the order of their values.
const SEPARATOR: char = '\0';

/// A metric with labels: one series for each combination of values that was seen.
pub(super) struct MetricFamily<S: Series>(Arc<MetricFamilyInner<S>>);

struct MetricFamilyInner<S: Series> {
    name: &'static str,
    help: &'static str,
    /// Names of the labels, sorted, each with its place among the values that callers give.
    labels: Vec<(&'static str, usize)>,
    shape: S::Shape,
    /// Series by the values of their labels, in the order of `labels`.
    series: RwLock<BTreeMap<Box<str>, S>>,
}

/// Values of a series' labels.
#[derive(Clone, Copy)]
pub(super) struct LabelValues<'a> {
    labels: &'a [(&'static str, usize)],
    key: &'a str,
}

impl<'a> LabelValues<'a> {
    /// Value of the label with this name; empty without it.
    pub(super) fn get(&self, name: &str) -> &'a str {
        let mut values = self.key.split(SEPARATOR);
        let place = self.labels.iter().position(|(label, _)| *label == name);
        place.and_then(|place| values.nth(place)).unwrap_or_default()
    }
}

impl<S: Series> Clone for MetricFamily<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: Series> MetricFamily<S> {
    /// A family without series.
    pub(super) fn new(
        name: &'static str,
        help: &'static str,
        labels: &[&'static str],
        shape: S::Shape,
    ) -> Self {
        let places = labels.iter().enumerate();
        let mut labels: Vec<_> = places.map(|(place, label)| (*label, place)).collect();
        labels.sort_unstable();
        Self(Arc::new(MetricFamilyInner { name, help, labels, shape, series: RwLock::default() }))
    }

    /// The series with these values, in the order in which the labels were declared; made at zero if there is
    /// none.
    pub(super) fn with_label_values<V: AsRef<str>>(&self, values: &[V]) -> S {
        let key = self.0.key(values);
        if let Some(series) = self.0.series.read().get(key.as_str()) {
            return series.clone();
        }
        let mut all = self.0.series.write();
        // Between the two locks another thread may have made it.
        all.entry(key.into()).or_insert_with(|| S::new(&self.0.shape)).clone()
    }

    /// Drops all series.
    pub(super) fn reset(&self) {
        self.0.series.write().clear();
    }

    /// Looks at every series.
    pub(super) fn for_each(&self, mut look: impl FnMut(LabelValues<'_>, &S)) {
        for (key, series) in &*self.0.series.read() {
            look(LabelValues { labels: &self.0.labels, key }, series);
        }
    }
}

impl<S: Series> MetricFamilyInner<S> {
    fn key<V: AsRef<str>>(&self, values: &[V]) -> String {
        debug_assert_eq!(values.len(), self.labels.len(), "{}", self.name);
        let value = |place: &usize| values.get(*place).map_or("", AsRef::as_ref);
        let bytes: usize = values.iter().map(|value| value.as_ref().len() + 1).sum();
        let mut key = String::with_capacity(bytes);
        for (at, (_, place)) in self.labels.iter().enumerate() {
            if at > 0 {
                key.push(SEPARATOR);
            }
            key.push_str(value(place));
        }
        key
    }
}

/// A family of any kind, for the registry.
trait AnyFamily: Send + Sync {
    /// Appends the family, unless it has no series.
    fn push(&self, labels: &mut String, out: &mut String);
}

impl<S: Series> AnyFamily for MetricFamily<S> {
    fn push(&self, labels: &mut String, out: &mut String) {
        let MetricFamilyInner { name, help, shape, .. } = &*self.0;
        let series = self.0.series.read();
        if series.is_empty() {
            return;
        }
        for (word, rest) in [("# HELP ", *help), ("# TYPE ", S::KIND)] {
            out.push_str(word);
            out.push_str(name);
            out.push(' ');
            push_help(out, rest);
            out.push('\n');
        }
        for (key, series) in &*series {
            labels.clear();
            let mut values = key.split(SEPARATOR);
            for (label, _) in &self.0.labels {
                if !labels.is_empty() {
                    labels.push(',');
                }
                labels.push_str(label);
                labels.push_str("=\"");
                push_label(labels, values.next().unwrap_or_default());
                labels.push('"');
            }
            series.push(name, labels, shape, out);
        }
    }
}

/// All families of a process, by name.
#[derive(Default)]
pub(super) struct Registry {
    families: RwLock<BTreeMap<&'static str, Box<dyn AnyFamily>>>,
    /// Length of the last text: the next one is about as long, and grows in no steps.
    last_bytes: AtomicUsize,
}

impl Registry {
    /// Adds a family. Names are constants, so a name that is used twice fails in every test or never.
    pub(super) fn add<S: Series>(&self, family: &MetricFamily<S>) {
        let before = self.families.write().insert(family.0.name, Box::new(family.clone()));
        assert!(before.is_none(), "the metric {} was registered before", family.0.name);
    }

    /// Everything in the text format.
    pub(super) fn encode(&self) -> String {
        let last = self.last_bytes.load(Ordering::Relaxed);
        let (mut out, mut labels) = (String::with_capacity(last + last / 16), String::new());
        self.families.read().values().for_each(|family| family.push(&mut labels, &mut out));
        self.last_bytes.store(out.len(), Ordering::Relaxed);
        out
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Registry")
    }
}

#[cfg(test)]
mod tests;
