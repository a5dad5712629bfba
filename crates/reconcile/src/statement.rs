//! A provider's statement, independent of its format.

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;
use tollgate_money::price::{Side, Unit};

use crate::amount::Femtousd;
use crate::day::Day;

/// Provider or format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// OpenAI's usage and costs exports.
    OpenAi,
    /// Anthropic's usage and cost reports.
    Anthropic,
    /// OpenRouter's activity, one line a day, model and endpoint.
    OpenRouter,
    /// A CSV file with the columns of this program.
    Csv,
}

/// Reason why a provider's file is unusable.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{place} {why}")]
pub struct StatementError {
    place: String,
    why: String,
}

impl StatementError {
    pub(crate) fn new(place: &str, why: impl Into<String>) -> Self {
        Self { place: place.to_owned(), why: why.into() }
    }
}

/// Measure of a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Unit of the gateway.
    Of(Unit),
    /// All input tokens, from a cache or not: some exports do not tell them apart.
    AllInput,
    /// All output tokens, spoken or not.
    AllOutput,
    /// The number of requests, which is compared where all else agrees.
    Calls,
}

impl Measure {
    /// The word for it in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Of(unit) => unit.info().name,
            Self::AllInput => "all_input_tokens",
            Self::AllOutput => "all_output_tokens",
            Self::Calls => "calls",
        }
    }

    /// Side that it belongs to.
    #[must_use]
    pub fn side(self) -> Side {
        match self {
            Self::Of(unit) => unit.info().side,
            Self::AllInput => Side::Input,
            Self::AllOutput => Side::Output,
            Self::Calls => Side::Made,
        }
    }

    /// True if it counts a unit.
    #[must_use]
    pub fn counts(self, unit: Unit) -> bool {
        match self {
            Self::Of(own) => own == unit,
            Self::AllInput | Self::AllOutput => self.side() == unit.info().side,
            Self::Calls => false,
        }
    }
}

/// Key of a statement's line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BilledKey {
    /// The day of the line.
    pub(crate) day: Day,
    /// The provider's names for the model, the usual one first; none where it does not say.
    pub(crate) models: Vec<String>,
    /// The provider's ids of the credential, the finest first; none where it does not say.
    pub(crate) ids: Vec<String>,
}

/// A line with a quantity used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BilledQuantity {
    pub(crate) key: BilledKey,
    pub(crate) measure: Measure,
    pub(crate) count: u64,
}

/// A line with a number of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BilledCalls {
    pub(crate) key: BilledKey,
    pub(crate) count: u64,
}

/// A line with an amount billed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BilledAmount {
    pub(crate) key: BilledKey,
    /// Provider's description of the item; `None` for the total.
    pub(crate) item: Option<String>,
    pub(crate) amount: Femtousd,
}

/// A fee that is neither for tokens nor for a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BilledFee {
    pub(crate) day: Day,
    /// Description in the provider's words.
    pub(crate) what: String,
    pub(crate) amount: Femtousd,
}

/// A statement line without a counterpart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnusedLine {
    /// Description in the provider's words.
    pub(crate) what: String,
    pub(crate) amount: Femtousd,
}

/// Statement of a provider, as parsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BilledStatement {
    pub(crate) quantities: Vec<BilledQuantity>,
    pub(crate) calls: Vec<BilledCalls>,
    pub(crate) amounts: Vec<BilledAmount>,
    pub(crate) fees: Vec<BilledFee>,
    pub(crate) unused: Vec<UnusedLine>,
    /// Measures that its quantities can have, by the names of the model: a measure that is not listed is
    /// zero. Pages of completions and of images have other measures.
    pub(crate) measures: BTreeMap<Vec<String>, BTreeSet<Measure>>,
    /// Days covered by its quantities.
    pub(crate) quantity_days: BTreeSet<Day>,
    /// Days covered by its amounts.
    pub(crate) amount_days: BTreeSet<Day>,
    /// True if its quantities cover only some kinds of models.
    pub(crate) is_partial: bool,
    /// Remarks for the report.
    pub(crate) notes: BTreeSet<String>,
}

impl BilledStatement {
    /// True if nothing in it can be compared.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.quantity_days.is_empty() && self.amount_days.is_empty()
    }

    pub(crate) fn add_quantity(&mut self, key: &BilledKey, measure: Measure, count: u64) {
        self.add_measures(key, [measure]);
        self.quantity_days.insert(key.day);
        // A zero covers the day, which is why its line counts, but makes no group.
        if count > 0 {
            self.quantities.push(BilledQuantity { key: key.clone(), measure, count });
        }
    }

    /// Add measures that the quantities of a line's model can have.
    pub(crate) fn add_measures(
        &mut self,
        key: &BilledKey,
        measures: impl IntoIterator<Item = Measure>,
    ) {
        match self.measures.get_mut(&key.models) {
            Some(existing) => existing.extend(measures),
            None => {
                self.measures.insert(key.models.clone(), measures.into_iter().collect());
            }
        }
    }

    pub(crate) fn add_calls(&mut self, key: &BilledKey, count: u64) {
        self.quantity_days.insert(key.day);
        self.calls.push(BilledCalls { key: key.clone(), count });
    }

    pub(crate) fn add_amount(&mut self, key: &BilledKey, item: Option<String>, amount: Femtousd) {
        self.amount_days.insert(key.day);
        self.amounts.push(BilledAmount { key: key.clone(), item, amount });
    }

    pub(crate) fn add_fee(&mut self, day: Day, what: String, amount: Femtousd) {
        self.amount_days.insert(day);
        self.fees.push(BilledFee { day, what, amount });
    }

    pub(crate) fn add_unused(&mut self, what: impl Into<String>, amount: Femtousd) {
        self.unused.push(UnusedLine { what: what.into(), amount });
    }

    /// Mark all days between the first and the last as covered: the format has no line for an idle day.
    pub(crate) fn fill_days(&mut self) {
        for days in [&mut self.quantity_days, &mut self.amount_days] {
            let (Some(first), Some(last)) = (days.first().copied(), days.last().copied()) else {
                continue;
            };
            let mut day = first;
            while day < last {
                days.insert(day);
                day = day.next();
            }
        }
    }
}
