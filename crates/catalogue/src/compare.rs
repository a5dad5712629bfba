//! Comparison of price lists with each other and with our models.

mod fitting;
mod matching;

use std::collections::BTreeSet;

use tollgate_money::money::Rate;
use tollgate_money::price::{Condition, Unit};

use self::fitting::{fits, has_listed_limits};
use self::matching::{ListingIndex, Witness};
use crate::condition::{of_any_length, rank};
use crate::listing::Catalogue;
use crate::own::OwnModel;
use crate::proposal;
use crate::report::{
    Difference, Disagreement, LimitDifference, ListedPrice, MalformedEntry, PriceReport, Proposal,
    UnknownPrice,
};

/// A price list with its source.
#[derive(Clone, Debug)]
pub struct NamedCatalogue {
    /// The file or URL, as it was named.
    pub name: String,
    /// Content of the price list.
    pub catalogue: Catalogue,
}

/// Holds our models against lists.
///
/// A price is proposed only if every list that has it says the same. A price of zero is taken at its word
/// for the tokens of prompts and answers; elsewhere lists write it for what they do not know. An entry with
/// a word that is not known here can contradict others, and proposes nothing by itself. Models that are
/// free here are left alone.
#[must_use]
pub fn compare(models: &[OwnModel], lists: &[NamedCatalogue]) -> PriceReport {
    let index = ListingIndex::new(lists);
    let mut report = PriceReport { sources: index.summaries(), ..PriceReport::default() };
    for own in models.iter().filter(|own| !own.free) {
        let witnesses = index.witnesses(own, models);
        if witnesses.is_empty() {
            report.not_found.push(own.id.clone());
            continue;
        }
        refusals(&mut report, own, &witnesses);
        prices(&mut report, own, &witnesses);
        limits(&mut report, own, &witnesses);
    }
    report
}

/// Report entries that are malformed or have no equivalent here.
fn refusals(report: &mut PriceReport, own: &OwnModel, witnesses: &[Witness<'_>]) {
    for Witness { source, listing } in witnesses {
        let (model, source) = (own.id.clone(), (*source).to_owned());
        if let Some(why) = &listing.malformed {
            let (entry, why) = (listing.listed_as.clone(), why.clone());
            report.malformed.push(MalformedEntry { model, source, entry, why });
            continue;
        }
        report.unknown.extend(listing.unsayable.iter().map(|unsayable| UnknownPrice {
            model: model.clone(),
            source: source.clone(),
            key: unsayable.key.clone(),
            figure: unsayable.figure.clone(),
            why: unsayable.why.clone(),
        }));
    }
}

/// Figures of the lists for one price.
struct PriceRow {
    unit: Unit,
    when: Condition,
    figures: Vec<ListedPrice>,
    /// True if a fully understood entry has it.
    is_sayable: bool,
}

impl PriceRow {
    /// The price, if the lists agree on it.
    fn agreed(&self) -> Option<Rate> {
        let first = self.figures.first()?.rate;
        self.figures.iter().all(|figure| figure.rate == first).then_some(first)
    }

    /// The labels of the lists, each once.
    fn sources(&self) -> Vec<String> {
        let mut sources: Vec<String> = Vec::new();
        for figure in &self.figures {
            if !sources.contains(&figure.source) {
                sources.push(figure.source.clone());
            }
        }
        sources
    }
}

fn prices(report: &mut PriceReport, own: &OwnModel, witnesses: &[Witness<'_>]) {
    let disputed = disputed_lengths(own, witnesses);
    let mut proposed = Vec::new();
    let mut is_different = false;
    for row in rows(own, witnesses) {
        let (unit, when) = (row.unit, row.when);
        let ours = own.charged(unit, &when);
        let is_disputed =
            // Lists that disagree about where long prompts begin agree on no price of one.
            when.input_tokens_above.is_some() && disputed.contains(&of_any_length(&when));
        let theirs = match row.agreed() {
            // One list's word against another's proposes nothing: an operator decides.
            Some(theirs) if !is_disputed => theirs,
            _ => {
                let (model, figures) = (own.id.clone(), row.figures);
                report.disagree.push(Disagreement { model, unit, when, ours, figures });
                continue;
            }
        };
        if row.is_sayable {
            proposed.push((unit, when, theirs));
        }
        if theirs == ours {
            continue;
        }
        is_different |= row.is_sayable;
        let group = match own.typed(unit, &when) {
            None => &mut report.missing,
            Some(_) if theirs < ours => &mut report.cheaper,
            Some(_) => &mut report.dearer,
        };
        let (model, sources) = (own.id.clone(), row.sources());
        group.push(Difference { model, unit, when, ours, theirs, sources });
    }
    if is_different {
        let yaml = proposal::yaml(&changed(own, &proposed));
        report.proposed.push(Proposal { model: own.id.clone(), yaml });
    }
}

/// Listed prices that apply to the model, base prices first.
fn rows(own: &OwnModel, witnesses: &[Witness<'_>]) -> Vec<PriceRow> {
    let mut rows: Vec<PriceRow> = Vec::new();
    for Witness { source, listing } in witnesses {
        for listed in &listing.rates {
            let (unit, when, rate) = (listed.unit, listed.when, listed.rate);
            // Zeros fill the fields that a list has no figure for; for plain tokens they mean a free model.
            let has_price =
                rate != Rate::default() || matches!(unit, Unit::InputTokens | Unit::OutputTokens);
            if !has_price || !fits(own, unit, &when) {
                continue;
            }
            let figure = ListedPrice { source: (*source).to_owned(), rate };
            // Beside a price that our units cannot express, a proposal of the others would undercharge.
            let is_sayable = listing.unsayable.is_empty();
            match rows.iter_mut().find(|row| row.unit == unit && row.when == when) {
                Some(row) => {
                    row.is_sayable |= is_sayable;
                    // A list can have a model under several names.
                    if !row.figures.contains(&figure) {
                        row.figures.push(figure);
                    }
                }
                None => rows.push(PriceRow { unit, when, figures: vec![figure], is_sayable }),
            }
        }
    }
    rows.sort_by_key(|row| (std::cmp::Reverse(rank(&row.when)), row.unit));
    rows
}

/// The conditions for which lists have different lengths of prompts at which other prices begin: which
/// of the lengths is right decides the price, so the prices themselves say nothing.
fn disputed_lengths(own: &OwnModel, witnesses: &[Witness<'_>]) -> Vec<Condition> {
    let mut lengths: Vec<(Condition, Vec<BTreeSet<u64>>)> = Vec::new();
    for Witness { listing, .. } in witnesses {
        let mut of_listing: Vec<(Condition, BTreeSet<u64>)> = Vec::new();
        for listed in listing.rates.iter().filter(|listed| fits(own, listed.unit, &listed.when)) {
            let Some(above) = listed.when.input_tokens_above else { continue };
            let any = of_any_length(&listed.when);
            match of_listing.iter_mut().find(|(condition, _)| *condition == any) {
                Some((_, lengths)) => {
                    lengths.insert(above);
                }
                None => of_listing.push((any, BTreeSet::from([above]))),
            }
        }
        for (condition, of_one) in of_listing {
            match lengths.iter_mut().find(|(existing, _)| *existing == condition) {
                Some((_, of_all)) => of_all.push(of_one),
                None => lengths.push((condition, vec![of_one])),
            }
        }
    }
    let is_disputed =
        |of_all: &[BTreeSet<u64>]| of_all.windows(2).any(|pair| pair.first() != pair.last());
    let disputed = lengths.into_iter().filter(|(_, of_all)| is_disputed(of_all));
    disputed.map(|(condition, _)| condition).collect()
}

/// The model with the prices that lists agree on: base prices first, and special conditions before
/// general ones.
fn changed(own: &OwnModel, agreed: &[(Unit, Condition, Rate)]) -> OwnModel {
    let mut changed = own.clone();
    let (base, mut conditional): (Vec<_>, Vec<_>) =
        agreed.iter().copied().partition(|(_, when, _)| *when == Condition::default());
    // General conditions first: `set` puts each special one before the general one that it implies.
    conditional.sort_by_key(|(unit, when, _)| (rank(when), *unit));
    // The base first, since a condition without a price falls back to it.
    for (unit, when, rate) in base.into_iter().chain(conditional) {
        if changed.charged(unit, &when) != rate {
            changed.set(unit, &when, rate);
        }
    }
    changed
}

fn limits(report: &mut PriceReport, own: &OwnModel, witnesses: &[Witness<'_>]) {
    if !has_listed_limits(own) {
        return;
    }
    // Limits of an entry whose prices cannot be read are not to be trusted either.
    let sound = || witnesses.iter().filter(|witness| witness.listing.malformed.is_none());
    let of_each = |limit: &dyn Fn(&Witness<'_>) -> Option<u64>| -> Vec<(String, u64)> {
        let each = sound().filter_map(|one| Some((one.source.to_owned(), limit(one)?)));
        let mut figures: Vec<_> = each.collect();
        figures.dedup();
        figures
    };
    let context = of_each(&|one| one.listing.context_tokens_max);
    let output = of_each(&|one| one.listing.output_tokens_max);
    for (field, ours, figures) in [
        ("context_tokens_max", own.context_tokens_max, context),
        ("output_tokens_max", own.output_tokens_max, output),
    ] {
        let Some(ours) = ours else { continue };
        // Lists differ among themselves here, so one that confirms ours is enough.
        if !figures.is_empty() && figures.iter().all(|(_, theirs)| *theirs != ours) {
            report.limits.push(LimitDifference { model: own.id.clone(), field, ours, figures });
        }
    }
}

#[cfg(test)]
mod tests;
