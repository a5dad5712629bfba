//! Matching of list entries to our models.

use super::NamedCatalogue;
use crate::listing::{ListFormat, Listing};
use crate::own::{OwnModel, OwnTarget};
use crate::provider::{comparable, family, undated};
use crate::report::ListSummary;

/// An entry of a list, by the names that are compared.
struct IndexedListing<'a> {
    family: String,
    model: String,
    /// Its name at OpenRouter, which serves it as well.
    resold_as: Option<String>,
    listing: &'a Listing,
}

/// The entries of all lists, with the label of each list.
pub(super) struct ListingIndex<'a> {
    lists: Vec<(ListSummary, Vec<IndexedListing<'a>>)>,
}

/// A list entry for one of our models.
#[derive(Clone, Copy, Debug)]
pub(super) struct Witness<'a> {
    /// The label of its list.
    pub(super) source: &'a str,
    /// Listing of the model.
    pub(super) listing: &'a Listing,
}

impl<'a> ListingIndex<'a> {
    /// The index of these lists. One that is the only one of its format is labelled by that, and others
    /// with a number as well.
    pub(super) fn new(lists: &'a [NamedCatalogue]) -> Self {
        let labelled = lists.iter().enumerate().map(|(index, list)| {
            let format = list.catalogue.format;
            let is_alike = |other: &&NamedCatalogue| other.catalogue.format == format;
            let count = lists.iter().filter(is_alike).count();
            let earlier = lists.iter().take(index).filter(is_alike).count();
            let label = match count {
                1 => format.as_str().to_owned(),
                _ => format!("{} {}", format.as_str(), earlier.saturating_add(1)),
            };
            let models = list.catalogue.listings.len();
            let summary = ListSummary { label, name: list.name.clone(), format, models };
            let indexed = |listing: &'a Listing| IndexedListing {
                family: family(&listing.provider),
                model: comparable(&listing.model),
                resold_as: (format == ListFormat::OpenRouter)
                    .then(|| comparable(&listing.listed_as)),
                listing,
            };
            (summary, list.catalogue.listings.iter().map(indexed).collect())
        });
        Self { lists: labelled.collect() }
    }

    /// Summaries of the lists for the report.
    pub(super) fn summaries(&self) -> Vec<ListSummary> {
        self.lists.iter().map(|(summary, _)| summary.clone()).collect()
    }

    /// The entries about a model, of which `all` are the others.
    pub(super) fn witnesses(&'a self, own: &OwnModel, all: &[OwnModel]) -> Vec<Witness<'a>> {
        let mut found: Vec<Witness<'a>> = Vec::new();
        for (summary, indexed) in &self.lists {
            for target in &own.targets {
                for listing in entries(indexed, own, target, all) {
                    // Several targets of one provider lead to the same entry, which is one witness.
                    if !found.iter().any(|witness| std::ptr::eq(witness.listing, listing)) {
                        found.push(Witness { source: &summary.label, listing });
                    }
                }
            }
        }
        found
    }
}

/// The entries of one list about one target of a model.
fn entries<'a>(
    indexed: &[IndexedListing<'a>],
    own: &OwnModel,
    target: &OwnTarget,
    all: &[OwnModel],
) -> Vec<&'a Listing> {
    let provider = family(&target.upstream);
    let named = |is_name_of: &dyn Fn(&str) -> bool| -> Vec<&'a Listing> {
        let is_this = |indexed: &&IndexedListing<'_>| {
            let resold = indexed.resold_as.as_deref().filter(|_| provider == "openrouter");
            (indexed.family == provider && is_name_of(&indexed.model))
                || resold.is_some_and(is_name_of)
        };
        indexed.iter().filter(is_this).map(|indexed| indexed.listing).collect()
    };
    let name = match (&target.model, own.pattern()) {
        (Some(model), _) => model,
        (None, None) => &own.id,
        (None, Some(beginning)) => {
            let beginning = comparable(beginning);
            return named(&|model| {
                // A model with an entry of its own, or of a longer pattern, is not charged by this one.
                model.starts_with(&beginning) && !is_another(model, &beginning, all)
            });
        }
    };
    // Lists date some models and not others: the exact name first, since a dated release can cost otherwise.
    let exact = named(&|model| model == comparable(name));
    match undated(&target.upstream, name) {
        Some(undated) if exact.is_empty() => named(&|model| model == comparable(undated)),
        _ => exact,
    }
}

/// True if a name that matches a pattern belongs to another model: an id, or a longer pattern's.
fn is_another(model: &str, beginning: &str, all: &[OwnModel]) -> bool {
    all.iter().any(|other| match other.pattern() {
        None => comparable(&other.id) == model,
        Some(longer) => {
            let longer = comparable(longer);
            longer.len() > beginning.len() && model.starts_with(&longer)
        }
    })
}
