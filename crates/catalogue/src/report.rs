//! What a comparison has found.

use tollgate_money::money::Rate;
use tollgate_money::price::{Condition, Unit};

use crate::listing::ListFormat;

/// Where price lists say something else than `models.yaml`, in groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriceReport {
    /// The lists that were compared.
    pub sources: Vec<ListSummary>,
    /// Prices that are lower in the lists.
    pub cheaper: Vec<Difference>,
    /// Prices that are higher in the lists.
    pub dearer: Vec<Difference>,
    /// Prices that the lists have and `models.yaml` has not.
    pub missing: Vec<Difference>,
    /// Limits of models for which no list has ours.
    pub limits: Vec<LimitDifference>,
    /// Prices of which the lists say different things.
    pub disagree: Vec<Disagreement>,
    /// Prices that cannot be said here. What their entries alone have is not proposed.
    pub unknown: Vec<UnknownPrice>,
    /// Entries for our models that cannot be read.
    pub malformed: Vec<MalformedEntry>,
    /// Our models that no list has.
    pub not_found: Vec<String>,
    /// The changes, as entries of `models.yaml`.
    pub proposed: Vec<Proposal>,
}

/// One of the lists that were compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListSummary {
    /// The word that stands for it in the groups.
    pub label: String,
    /// Where it came from.
    pub name: String,
    /// How it is written.
    pub format: ListFormat,
    /// How many models it has.
    pub models: usize,
}

/// A price that all lists that have it agree on, and that is not ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The id of our model.
    pub model: String,
    /// What it is the price of.
    pub unit: Unit,
    /// What a request must be like.
    pub when: Condition,
    /// What we charge for one unit; of what is missing, by default.
    pub ours: Rate,
    /// What the lists say that one unit costs.
    pub theirs: Rate,
    /// The labels of the lists.
    pub sources: Vec<String>,
}

/// What one list says of a price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// The label of the list.
    pub source: String,
    /// The price of one unit.
    pub rate: Rate,
}

/// A price of which lists say different things. It is nothing that could be proposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// The id of our model.
    pub model: String,
    /// What it is the price of.
    pub unit: Unit,
    /// What a request must be like.
    pub when: Condition,
    /// What we charge for one unit.
    pub ours: Rate,
    /// What each list says.
    pub figures: Vec<Figure>,
}

impl Disagreement {
    /// Whether one of the lists has our price.
    #[must_use]
    pub fn has_ours(&self) -> bool {
        self.figures.iter().any(|figure| figure.rate == self.ours)
    }
}

/// A limit for which no list has ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitDifference {
    /// The id of our model.
    pub model: String,
    /// The field below `limits`.
    pub field: &'static str,
    /// Our limit, in tokens.
    pub ours: u64,
    /// The label of each list that has one, and what it says.
    pub figures: Vec<(String, u64)>,
}

/// A price that cannot be said here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPrice {
    /// The id of our model.
    pub model: String,
    /// The label of the list.
    pub source: String,
    /// The list's name for the price.
    pub key: String,
    /// The price as it was typed; empty for one in parts.
    pub figure: String,
    /// Why it cannot be said here.
    pub why: String,
}

/// An entry that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedEntry {
    /// The id of our model.
    pub model: String,
    /// The label of the list.
    pub source: String,
    /// The key or id of the entry.
    pub entry: String,
    /// What is wrong with it.
    pub why: String,
}

/// The prices of a model as they could be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The id of our model.
    pub model: String,
    /// Its `prices` and `prices_when`, indented as in `models.yaml`.
    pub yaml: String,
}

impl PriceReport {
    /// Whether `models.yaml` says something that no list says, or lacks what lists have. What lists say
    /// of what cannot be compared does not count.
    #[must_use]
    pub fn is_different(&self) -> bool {
        let prices = [&self.cheaper, &self.dearer, &self.missing];
        prices.iter().any(|group| !group.is_empty())
            || !self.limits.is_empty()
            || self.disagree.iter().any(|disagreement| !disagreement.has_ours())
    }
}
