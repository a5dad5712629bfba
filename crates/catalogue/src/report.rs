//! Report of a comparison.

use tollgate_money::money::Rate;
use tollgate_money::price::{Condition, Unit};

use crate::listing::ListFormat;

/// Differences between price lists and `models.yaml`, in groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriceReport {
    /// Compared price lists.
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
    /// Prices that `models.yaml` cannot express. Models that only have such prices are not proposed.
    pub unknown: Vec<UnknownPrice>,
    /// Entries for our models that cannot be read.
    pub malformed: Vec<MalformedEntry>,
    /// Our models that no list has.
    pub not_found: Vec<String>,
    /// The changes, as entries of `models.yaml`.
    pub proposed: Vec<Proposal>,
}

/// A compared price list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListSummary {
    /// Short name of the list in the groups.
    pub label: String,
    /// File or URL of the list.
    pub name: String,
    /// Format of the price list.
    pub format: ListFormat,
    /// Number of models in the list.
    pub models: usize,
}

/// A price on which all lists with it agree, and which differs from ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The id of our model.
    pub model: String,
    /// Unit of the price.
    pub unit: Unit,
    /// Condition on the request.
    pub when: Condition,
    /// Our rate; the default one if none is configured.
    pub ours: Rate,
    /// Rate in the lists.
    pub theirs: Rate,
    /// The labels of the lists.
    pub sources: Vec<String>,
}

/// One list's figure for a price.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedPrice {
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
    /// Unit of the price.
    pub unit: Unit,
    /// Condition on the request.
    pub when: Condition,
    /// Rate that `models.yaml` charges.
    pub ours: Rate,
    /// Figure of each list.
    pub figures: Vec<ListedPrice>,
}

impl Disagreement {
    /// True if one of the lists has our rate.
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
    /// Label and value of each list that has one.
    pub figures: Vec<(String, u64)>,
}

/// A price without an equivalent here.
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
    /// Reason why it has no equivalent here.
    pub why: String,
}

/// An entry that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedEntry {
    /// The id of our model.
    pub model: String,
    /// The label of the list.
    pub source: String,
    /// The key or id of the entry.
    pub entry: String,
    /// Error found in the entry.
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
    /// True if `models.yaml` has a value that no list has, or lacks values of the lists. Values that
    /// cannot be compared do not count.
    #[must_use]
    pub fn is_different(&self) -> bool {
        let prices = [&self.cheaper, &self.dearer, &self.missing];
        prices.iter().any(|group| !group.is_empty())
            || !self.limits.is_empty()
            || self.disagree.iter().any(|disagreement| !disagreement.has_ours())
    }
}
