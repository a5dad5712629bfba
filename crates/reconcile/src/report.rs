//! Result of a reconciliation.

use std::collections::{BTreeMap, BTreeSet};

use crate::amount::Femtousd;
use crate::day::Day;
use crate::statement::Measure;

/// Cause of a difference between a statement's line and the journal, by the rules of [`reconcile`].
///
/// [`reconcile`]: crate::reconcile
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DifferenceClass {
    /// The quantities agree, and the amount does not.
    Price,
    /// Equal in total, but split differently between units.
    Unit,
    /// Upstream work after the end of what the gateway saw.
    Tail,
    /// Tries abandoned in favour of a retry.
    Retry,
    /// Use of the account outside the gateway.
    Elsewhere,
    /// Counted on another day.
    Lag,
    /// None of these explains it.
    Unknown,
}

impl DifferenceClass {
    /// All classes, in the order of reports.
    pub const ALL: [Self; 7] = [
        Self::Price,
        Self::Unit,
        Self::Tail,
        Self::Retry,
        Self::Elsewhere,
        Self::Lag,
        Self::Unknown,
    ];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Price => "price",
            Self::Unit => "unit",
            Self::Tail => "tail",
            Self::Retry => "retry",
            Self::Elsewhere => "elsewhere",
            Self::Lag => "lag",
            Self::Unknown => "unknown",
        }
    }
}

/// Key of a comparison.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StatementKey {
    /// The day in UTC.
    pub day: Day,
    /// Model by our name, if there is one; `None` if the statement has no models.
    pub model: Option<String>,
    /// The credential by our name if we have one; `None` where credentials are not compared.
    pub credential: Option<String>,
}

/// A quantity that differs between both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantityLine {
    /// Day, model and credential.
    pub key: StatementKey,
    /// Measure that the quantity counts.
    pub measure: Measure,
    /// Count in the provider's statement.
    pub theirs: i128,
    /// Count in the journal's records.
    pub ours: i128,
    /// Class of the difference.
    pub class: DifferenceClass,
}

/// An amount that differs between both sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoneyLine {
    /// Day, model and credential.
    pub key: StatementKey,
    /// Amount billed by the provider.
    pub theirs: Femtousd,
    /// Provider's descriptions and amounts, if itemized.
    pub items: BTreeMap<String, Femtousd>,
    /// Amount in the journal.
    pub ours: Femtousd,
    /// Largest further cost of estimated answers, from the journal.
    pub losses: Femtousd,
    /// Class of the difference.
    pub class: DifferenceClass,
    /// The classes of the quantities behind it.
    pub because: BTreeSet<DifferenceClass>,
}

/// The differences of one class together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassTotal {
    /// Number of differing lines.
    pub lines: u64,
    /// Amount billed beyond ours, over the amount lines.
    pub amount: Femtousd,
}

/// Lines of either side without a counterpart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnmatchedLines {
    /// Number of lines in the class.
    pub lines: u64,
    /// Their amount, as far as known.
    pub amount: Femtousd,
}

/// Result of reconciling a statement with the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconciliation {
    /// Quantities that differ, by day, model, credential and unit.
    pub quantities: Vec<QuantityLine>,
    /// Amounts that differ, by day, model and credential.
    pub amounts: Vec<MoneyLine>,
    /// Number of agreeing lines.
    pub agreeing: u64,
    /// The most by which an amount that agrees is off.
    pub rest_max: Femtousd,
    /// Items that were not compared, by description.
    pub skipped: BTreeMap<String, UnmatchedLines>,
    /// Remarks on the comparison.
    pub notes: BTreeSet<String>,
}

impl Reconciliation {
    /// True if any line differs.
    #[must_use]
    pub const fn is_different(&self) -> bool {
        !self.quantities.is_empty() || !self.amounts.is_empty()
    }

    /// The differences by class.
    #[must_use]
    pub fn totals(&self) -> BTreeMap<DifferenceClass, ClassTotal> {
        let mut totals: BTreeMap<DifferenceClass, ClassTotal> = BTreeMap::new();
        for line in &self.quantities {
            let total = totals.entry(line.class).or_default();
            total.lines = total.lines.saturating_add(1);
        }
        for line in &self.amounts {
            let total = totals.entry(line.class).or_default();
            total.lines = total.lines.saturating_add(1);
            total.amount = total.amount.plus(line.theirs.minus(line.ours));
        }
        totals
    }

    pub(crate) fn skip(&mut self, what: impl Into<String>, amount: Femtousd) {
        self.skip_lines(what, 1, amount);
    }

    pub(crate) fn skip_lines(&mut self, what: impl Into<String>, lines: u64, amount: Femtousd) {
        let skipped = self.skipped.entry(what.into()).or_default();
        skipped.lines = skipped.lines.saturating_add(lines);
        skipped.amount = skipped.amount.plus(amount);
    }
}
