//! What came of holding a statement against the journal.

use std::collections::{BTreeMap, BTreeSet};

use crate::amount::Femtousd;
use crate::day::Day;
use crate::statement::Measure;

/// Why a line of a statement differs from the journal. The rules are those of [`reconcile`].
///
/// [`reconcile`]: crate::reconcile
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DifferenceClass {
    /// The quantities agree, and the amount does not.
    Price,
    /// As much in total, but split differently between units.
    Unit,
    /// Work that went on behind the end of what the gateway saw.
    Tail,
    /// Tries that were followed by others.
    Retry,
    /// Somebody used the account without the gateway.
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

/// What is compared with each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StatementKey {
    /// The day in UTC.
    pub day: Day,
    /// The model by our name if we have one; `None` where the statement does not tell models apart.
    pub model: Option<String>,
    /// The credential by our name if we have one; `None` where credentials are not compared.
    pub credential: Option<String>,
}

/// A quantity that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantityLine {
    /// Of which day, model and credential.
    pub key: StatementKey,
    /// What is counted there.
    pub measure: Measure,
    /// How much the provider says.
    pub theirs: i128,
    /// How much the journal has.
    pub ours: i128,
    /// Why both sides differ.
    pub class: DifferenceClass,
}

/// An amount that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoneyLine {
    /// Of which day, model and credential.
    pub key: StatementKey,
    /// What the provider has billed.
    pub theirs: Femtousd,
    /// What the provider says that this is for, in its words, as far as it says.
    pub items: BTreeMap<String, Femtousd>,
    /// What the journal has.
    pub ours: Femtousd,
    /// The most that estimated answers can have cost beyond ours, as far as the journal says it.
    pub losses: Femtousd,
    /// Why both sides differ.
    pub class: DifferenceClass,
    /// The classes of the quantities behind it.
    pub because: BTreeSet<DifferenceClass>,
}

/// The differences of one class together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassTotal {
    /// How many lines differ.
    pub lines: u64,
    /// What was billed beyond ours, by the lines that are amounts.
    pub amount: Femtousd,
}

/// Lines of either side that have nothing to be held against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// How many there are.
    pub lines: u64,
    /// What they come to, as far as that is known.
    pub amount: Femtousd,
}

/// A statement held against the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reconciliation {
    /// Quantities that differ, by day, model, credential and unit.
    pub quantities: Vec<QuantityLine>,
    /// Amounts that differ, by day, model and credential.
    pub amounts: Vec<MoneyLine>,
    /// How many lines agree.
    pub agreeing: u64,
    /// The most by which an amount that agrees is off.
    pub rest_max: Femtousd,
    /// What was not compared, by what it is.
    pub skipped: BTreeMap<String, Skipped>,
    /// What a reader should know of how it was compared.
    pub notes: BTreeSet<String>,
}

impl Reconciliation {
    /// Whether any line differs.
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
