//! Prices under conditions, of models and of what targets cost: what each condition says, and whether a
//! request can meet it.

use super::price_fields::{field, listed, prices, typed};
use crate::document::{Document, Fault};
use crate::raw;
use crate::spans::DocumentPath;
use tollgate_money::price::{Condition, Prices, ServiceTier, Traits, Unit};
use tollgate_protocols::Operation;

/// Compiles `prices_when` beside its `base`; reports conditions that no request can meet, and prices without
/// a base.
pub(super) fn compile(
    document: &mut Document,
    at: &DocumentPath,
    when: &[raw::PricesWhenEntry],
    base: &raw::PricesSection,
    operations: &[Operation],
) -> Vec<(Condition, Prices)> {
    let mut compiled: Vec<(Condition, Prices)> = Vec::with_capacity(when.len());
    for (index, one) in when.iter().enumerate() {
        let at = at.index(index);
        check(document, &at, one, operations);
        for unit in typed(&one.prices).iter().filter(|unit| base.rate(**unit).is_none()) {
            let message = format!("`{}` has no price without conditions", field(*unit));
            let help = "a price for requests that meet no condition is needed too";
            document.note(Fault::at_key(&at.key("prices").key(field(*unit)), message).help(help));
        }
        left_out(document, &at.key("prices"), when, one, base);
        let own = condition(&one.when);
        let mut earlier = compiled.iter().map(|(earlier, _)| earlier);
        if when.iter().take(index).any(|earlier| earlier.when == one.when) {
            let message = "these conditions are here twice: only the first counts";
            document.note(Fault::at_key(&at.key("when"), message));
        // An entry that cannot be reached is a price that is never charged: an error, not a warning.
        } else if earlier.any(|one| *one != Condition::default() && own.implies(one)) {
            let message = "whatever meets these conditions meets those of an entry above: that one \
                           has its price";
            let help = "the first entry counts whose conditions all hold: put this one above it";
            document.note(Fault::at_key(&at.key("when"), message).help(help));
        }
        // Over the base, so that a lookup needs one list.
        compiled.push((own, prices(&one.prices.over(base))));
    }
    compiled
}

/// Notes what is wrong with one entry, whatever stands above it.
fn check(
    document: &mut Document,
    at: &DocumentPath,
    one: &raw::PricesWhenEntry,
    operations: &[Operation],
) {
    let conditions = conditions(&one.when);
    if conditions.is_empty() {
        document.note(Fault::at_key(&at.key("when"), "there is no condition"));
    }
    for field in conditions {
        if !operations.iter().any(|operation| operation.info().conditions.contains(&field)) {
            let message = format!("`{field}` is nothing that {} can ask for", listed(operations));
            document.note(Fault::at_key(&at.key("when").key(field), message));
        }
    }
    // Prices follow the tier of the answer.
    if one.when.service_tier.is_some_and(|name| name.0 == ServiceTier::Auto) {
        let message = "`auto` is what a request asks for, and no answer's tier";
        let help = "a price for each tier that it can come to";
        let at = at.key("when").key("service_tier");
        document.note(Fault::at_value(&at, message).help(help));
    }
    if typed(&one.prices).is_empty() {
        document.note(Fault::at_key(&at.key("prices"), "there is no price"));
    }
}

/// Warns of units that keep their base price in an entry although a unit whose price they would follow
/// changes there, or a longer or shorter length of prompts has another price for them: cached tokens of
/// long prompts at the price of short ones are half of the bill.
fn left_out(
    document: &mut Document,
    at: &DocumentPath,
    when: &[raw::PricesWhenEntry],
    one: &raw::PricesWhenEntry,
    base: &raw::PricesSection,
) {
    let changes = |entry: &raw::PricesWhenEntry, unit: Unit| {
        entry.prices.rate(unit).is_some_and(|rate| Some(rate) != base.rate(unit))
    };
    let is_left_out = |unit: Unit| {
        if one.prices.rate(unit).is_some() || base.rate(unit).is_none() {
            return false;
        }
        let mut followed =
            std::iter::successors(unit.info().priced_as, |like| like.info().priced_as);
        let is_length = |entry: &&raw::PricesWhenEntry| entry.when.input_tokens_above.is_some();
        let mut lengths = when.iter().filter(is_length);
        followed.any(|like| changes(one, like))
            || is_length(&one) && lengths.any(|entry| changes(entry, unit))
    };
    for unit in Unit::ALL.iter().copied().filter(|unit| is_left_out(*unit)) {
        let changed = typed(&one.prices).into_iter().find(|changed| changes(one, *changed));
        let Some(changed) = changed else { continue };
        let name = field(unit);
        let message =
            format!("`{name}` keeps its base price here, while `{}` changes", field(changed));
        let help = format!("type `{name}` here too, also where it stays as it is");
        document.note(Fault::at_key(at, message).help(help).warning());
    }
}

/// Conditions as they are compiled.
pub(super) fn condition(when: &raw::WhenSection) -> Condition {
    Condition {
        traits: Traits {
            resolution: when.resolution.map(|name| name.0),
            size: when.size.map(|size| size.0),
            quality: when.quality.map(|name| name.0),
            audio: when.audio,
            draft: when.draft,
            video_input: when.video_input,
            service_tier: when.service_tier.map(|name| name.0),
            speed: when.speed.map(|name| name.0),
            inference_geo: when.inference_geo.map(|name| name.0),
            thinking: when.thinking,
        },
        input_tokens_above: when.input_tokens_above,
        time_utc: when.time_utc.map(|window| window.0),
    }
}

/// The conditions of an entry.
fn conditions(when: &raw::WhenSection) -> Vec<&'static str> {
    let all = [
        ("input_tokens_above", when.input_tokens_above.is_some()),
        ("service_tier", when.service_tier.is_some()),
        ("speed", when.speed.is_some()),
        ("inference_geo", when.inference_geo.is_some()),
        ("thinking", when.thinking.is_some()),
        ("time_utc", when.time_utc.is_some()),
        ("resolution", when.resolution.is_some()),
        ("size", when.size.is_some()),
        ("quality", when.quality.is_some()),
        ("audio", when.audio.is_some()),
        ("draft", when.draft.is_some()),
        ("video_input", when.video_input.is_some()),
    ];
    all.into_iter().filter_map(|(field, is_set)| is_set.then_some(field)).collect()
}
