//! Prices: what must be there, what has no effect, and what was left out.

use super::price_fields::{field, joined, listed, prices, typed};
use super::prices_when;
use crate::document::{Document, Fault};
use crate::raw;
use crate::snapshot::Target;
use crate::spans::DocumentPath;
use tollgate_money::money::Rate;
use tollgate_money::price::{Condition, PriceList, Prices, ServiceTier, Unit};
use tollgate_protocols::limits::PricedFeatures;
use tollgate_protocols::{Dialect, Operation};

/// Units that a price of tokens or characters is for.
const MILLION: u64 = 1_000_000;
/// Nobody sells a token or a character for less: a tenth of a cent for a million.
const LEAST_RATE: Rate = Rate::from_femtousd(1_000_000);

/// Compiles a model's prices and notes what is missing, superfluous or contradictory.
pub(super) fn compile(
    document: &mut Document,
    at: &DocumentPath,
    raw: &raw::ModelEntry,
) -> PriceList {
    let operations: Vec<Operation> = raw.operations.iter().map(|name| name.0).collect();
    let typed = typed(&raw.prices);
    let prices_at = at.key("prices");
    if raw.free {
        if let Some(first) = typed.first() {
            let message = "a model is either `free` or has prices";
            document.note(Fault::at_key(&prices_at.key(field(*first)), message));
        }
        return PriceList::default();
    }
    for operation in &operations {
        let ways = operation.info().billed_by;
        if ways.iter().any(|way| way.iter().all(|unit| typed.contains(unit))) {
            continue;
        }
        let way =
            |way: &&[Unit]| joined(way.iter().map(|unit| format!("`{}`", field(*unit))), " and ");
        let needed = joined(ways.iter().map(way), ", or ");
        let message = format!("no price for `{operation}`: it needs {needed}");
        let help = "add it below `prices`, or say `free: true`";
        document.note(Fault::at_key(&prices_at, message).help(help));
        break;
    }
    without_effect(document, &prices_at, &typed, &operations);
    suspicious(document, at, raw, &operations);
    let at = at.key("prices_when");
    let when = prices_when::compile(document, &at, &raw.prices_when, &raw.prices, &operations);
    PriceList { base: prices(&raw.prices), when }
}

/// Words and units that requests may use because they have prices of their own.
pub(super) fn priced(list: &PriceList, raw: &raw::ModelEntry) -> PricedFeatures {
    let mut words = Vec::new();
    let mut thinking = false;
    for (Condition { traits, .. }, _) in &list.when {
        if let Some(tier) = traits.service_tier {
            words.push(("service_tier", tier.as_str()));
            if tier == ServiceTier::Priority {
                // Whichever tier that comes to, it has a price; the other is OpenAI's newer word for it.
                words.push(("service_tier", ServiceTier::Auto.as_str()));
                words.push(("service_tier", "fast"));
            }
        }
        words.extend(traits.speed.map(|speed| ("speed", speed.as_str())));
        words.extend(traits.inference_geo.map(|geo| ("inference_geo", geo.as_str())));
        thinking |= traits.thinking.is_some();
    }
    PricedFeatures { words, thinking, units: typed(&raw.prices) }
}

/// Notes a video that would be billed by tokens over an upstream that reports none: it would be free.
pub(super) fn check_reported(
    document: &mut Document,
    at: &DocumentPath,
    prices: &Prices,
    targets: &[Target],
    operations: &[Operation],
) {
    // Ark alone reports tokens of videos.
    let reports_seconds = |target: &Target| target.upstream.dialect != Dialect::Ark;
    let by_tokens = prices.output > Rate::default() && prices.second == Rate::default();
    if operations.contains(&Operation::Video) && by_tokens && targets.iter().any(reports_seconds) {
        let message = "this upstream reports the seconds of a video, and no tokens";
        document.note(Fault::at_key(at, message).help("price it by `per_second`"));
    }
}

/// Notes prices of units that the model's operations do not use.
fn without_effect(
    document: &mut Document,
    at: &DocumentPath,
    typed: &[Unit],
    operations: &[Operation],
) {
    for unit in typed.iter().filter(|unit| !has_effect(**unit, operations)) {
        let message = format!("`{}` has no effect on {}", field(*unit), listed(operations));
        document.note(Fault::at_key(&at.key(field(*unit)), message).warning());
    }
}

/// True if one of the operations can be billed by the unit.
pub(crate) fn has_effect(unit: Unit, operations: &[Operation]) -> bool {
    let billed = |unit: Unit| {
        let mut ways = operations.iter().flat_map(|operation| operation.info().billed_by);
        ways.any(|way| way.contains(&unit))
    };
    if operations.iter().any(|operation| operation.info().billed_beside.contains(&unit)) {
        return true;
    }
    // Whoever uses a unit may use those that have its price by default.
    let mut like = std::iter::successors(Some(unit), |unit| unit.info().priced_as);
    like.any(billed)
}

/// The units without which an operation cannot be billed, where those that are `typed` are not enough.
pub(crate) fn lacking(typed: &[Unit], operations: &[Operation]) -> Vec<Unit> {
    let mut lacking = Vec::new();
    for operation in operations {
        let ways = operation.info().billed_by;
        let is_whole = |way: &&[Unit]| way.iter().all(|unit| typed.contains(unit));
        if ways.iter().any(is_whole) {
            continue;
        }
        // The first alternative is the usual one: it is what a migrated file is asked for.
        for unit in ways.first().copied().unwrap_or_default() {
            if !typed.contains(unit) && !lacking.contains(unit) {
                lacking.push(*unit);
            }
        }
    }
    lacking
}

/// Warns about prices that look like a different figure, also under conditions.
fn suspicious(
    document: &mut Document,
    at: &DocumentPath,
    raw: &raw::ModelEntry,
    operations: &[Operation],
) {
    let is_text = operations.iter().any(|operation| operation.info().is_prompt);
    let prices_at = at.key("prices");
    suspicious_prices(document, &prices_at, &raw.prices, &raw.prices, is_text);
    for (index, one) in raw.prices_when.iter().enumerate() {
        let at = at.key("prices_when").index(index).key("prices");
        suspicious_prices(document, &at, &one.prices, &one.prices.over(&raw.prices), is_text);
    }
}

/// Warns about prices that were typed at one place (`typed_here`), where `whole` are the resulting prices.
fn suspicious_prices(
    document: &mut Document,
    at: &DocumentPath,
    typed_here: &raw::PricesSection,
    whole: &raw::PricesSection,
    is_text: bool,
) {
    // The slip costs most where it goes unseen: a price per token in the place of one per million.
    let is_small = |unit: &Unit| {
        let rate = typed_here.rate(*unit).filter(|rate| *rate > Rate::default());
        unit.info().per == MILLION && rate.is_some_and(|rate| rate < LEAST_RATE)
    };
    for unit in Unit::ALL.iter().copied().filter(is_small) {
        let [_, units] = unit.info().words;
        let counted = if unit == Unit::Characters { units } else { "tokens" };
        let message = format!("a million {counted} for less than a tenth of a cent");
        let help = "is this the price of a single one? It is asked for a million";
        document.note(Fault::at_key(&at.key(field(unit)), message).help(help).warning());
    }
    let rate = |unit: Unit| whole.rate(unit).filter(|rate| *rate > Rate::default());
    // In an entry of `prices_when` the other of the two comes from the base, and the fault is the typed one.
    let is_typed = |unit: Unit| typed_here.rate(unit).is_some();
    if let Some((input, output)) = rate(Unit::InputTokens).zip(rate(Unit::OutputTokens))
        && is_text
        && output < input
        && let Some(unit) =
            [Unit::OutputTokens, Unit::InputTokens].into_iter().find(|unit| is_typed(*unit))
    {
        let message = "output costs less than input, which no provider asks";
        let fault = Fault::at_key(&at.key(field(unit)), message);
        document.note(fault.help("are the two swapped?").warning());
    }
}
