//! Compiles costs of targets, and compares them with the prices that customers pay.

use super::price_fields::{field, prices, typed};
use super::prices_when;
use crate::document::{Document, Fault};
use crate::raw;
use crate::snapshot::{Target, TargetCost};
use crate::spans::DocumentPath;
use tollgate_money::money::{Factor, Nanousd, Rate};
use tollgate_money::price::{PriceList, Unit, Usage};
use tollgate_protocols::Operation;

/// Typical usage by which costs of targets are compared: some text, an image, a second of video with its
/// sound, a thousand rankings, and an hour of audio.
const TYPICAL: Usage = Usage {
    input_tokens: 750_000,
    output_tokens: 250_000,
    images: 1,
    seconds: 1,
    characters: 1_000_000,
    rerank_units: 1_000,
    audio_seconds: 3_600,
    ..Usage::ZERO
};

/// Assigns targets, which are sorted by priority, new priorities by cost within each. Targets without a cost
/// come last.
pub(super) fn rank(targets: &mut [Target]) {
    let typical = |target: &Target| match &target.cost {
        Some(TargetCost::Prices(list)) => list.base.cost(&TYPICAL),
        // Unknown before the call: behind all targets with a known cost.
        Some(TargetCost::Reported) | None => Nanousd::MAX,
    };
    targets.sort_by_key(|target| (target.priority, typical(target)));
    // Equal costs get an equal rank, so weights still divide the requests between them.
    let mut last = None;
    let mut rank = 0;
    for target in targets {
        let key = (target.priority, typical(target));
        rank += u32::from(last.is_some_and(|last| last != key));
        last = Some(key);
        target.priority = rank;
    }
}

/// Compiles the cost of a target of a model with these prices and operations, and notes what is missing
/// or contradictory.
pub(super) fn compile(
    document: &mut Document,
    at: &DocumentPath,
    raw: &raw::CostSection,
    (sold, operations): (&PriceList, &[Operation]),
) -> Option<TargetCost> {
    let own = raw.prices();
    let typed = typed(&own);
    let first = typed.first().map(|unit| field(*unit));
    let first = first.or((!raw.prices_when.is_empty()).then_some("prices_when"));
    if let (Some(_), Some(first)) = (raw.of, first) {
        let message = "a cost comes from elsewhere with `of`, or is made of prices";
        document.note(Fault::at_key(&at.key(first), message));
        return None;
    }
    if raw.times.is_some() && raw.of != Some(raw::CostOf::List) {
        let message = "`times` multiplies the model's own prices";
        document.note(Fault::at_key(&at.key("times"), message).help("`of: list` beside it"));
        return None;
    }
    match raw.of {
        Some(raw::CostOf::Reported) => Some(TargetCost::Reported),
        Some(raw::CostOf::List) => {
            let one = Factor::parse("1");
            let factor = raw.times.map(|times| times.0).or(one)?;
            Some(TargetCost::Prices(sold.times(factor)))
        }
        None if typed.is_empty() => {
            let help = "`{ of: list, times: 0.8 }`, `{ of: reported }`, or prices";
            document.note(Fault::at_key(at, "there is no cost").help(help));
            None
        }
        None => {
            let base = prices(&own);
            let lacks = |unit: &&Unit| {
                sold.base[**unit] > Rate::default() && base[**unit] == Rate::default()
            };
            if let Some(unit) = Unit::ALL.iter().find(lacks) {
                let message = format!("`{}` is sold, and has no cost here", field(*unit));
                let help = "without it, calls would seem to earn more than they do";
                document.note(Fault::at_key(at, message).help(help));
            }
            let dearer = |unit: &&Unit| base[**unit] > sold.base[**unit];
            if let Some(unit) = Unit::ALL.iter().find(dearer) {
                let message = format!("`{}` costs more here than it is sold for", field(*unit));
                document.note(Fault::at_key(at, message).warning());
            }
            // A finished task reports usage, and none of the conditions under which it ran.
            if operations.iter().any(|one| one.info().is_task) && !raw.prices_when.is_empty() {
                let message = "a video costs the same there under all conditions";
                let help = "a target of a model of its own for each cost";
                document.note(Fault::at_key(&at.key("prices_when"), message).help(help));
            }
            let at = at.key("prices_when");
            let when = prices_when::compile(document, &at, &raw.prices_when, &own, operations);
            Some(TargetCost::Prices(PriceList { base, when }))
        }
    }
}
