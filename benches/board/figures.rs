//! The figures of all rounds, by row and subject.

use std::collections::BTreeMap;

use crate::rig::median::median;
use crate::rows::Row;
use crate::subjects::Subject;

/// The figures of all rounds.
#[derive(Default)]
pub(crate) struct Figures(BTreeMap<(&'static str, Subject), Vec<f64>>);

impl Figures {
    pub(crate) fn add(&mut self, row: &Row, subject: Subject, figure: f64) {
        self.0.entry((row.name, subject)).or_default().push(figure);
    }

    /// All rounds' figures, in the order of the rounds.
    pub(crate) fn all(&self, row: &Row, subject: Subject) -> &[f64] {
        self.0.get(&(row.name, subject)).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn median(&self, row: &Row, subject: Subject) -> Option<f64> {
        median(self.all(row, subject).to_vec())
    }

    /// Tollgate's figure over that of `base`: the median of the rounds' ratios, since figures of one round were
    /// taken side by side.
    pub(crate) fn ratio(&self, row: &Row, base: Subject) -> Option<f64> {
        let of = |subject| self.all(row, subject).iter();
        let ratios = of(Subject::Tollgate).zip(of(base)).map(|(it, base)| it / base);
        median(ratios.filter(|ratio| ratio.is_finite()).collect())
    }
}
