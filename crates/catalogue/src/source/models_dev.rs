//! The `api.json` of models.dev: providers with their models, whose `cost` is in US dollars for a million
//! tokens.
//!
//! Source: <https://models.dev>, its README and `packages/core/src/schema.ts` of its repository. Longer
//! prompts are in `tiers`, or in the older `context_over_200k`; a mode of `experimental.modes` says with
//! which field of a request its prices are asked for.

use tollgate_money::price::{Condition, ServiceTier, Speed, Traits, Unit};

use super::{begin, tokens};
use crate::figure::UnitScale;
use crate::listing::{EntryReading, Listing, Meaning};
use crate::tree::Tree;

/// Meaning of the fields of `cost`.
const COSTS: &[(&str, Meaning)] = &[
    ("input", Meaning::Price(Unit::InputTokens, UnitScale::Million)),
    ("output", Meaning::Price(Unit::OutputTokens, UnitScale::Million)),
    ("cache_read", Meaning::Price(Unit::CacheReadTokens, UnitScale::Million)),
    ("cache_write", Meaning::Price(Unit::CacheWriteTokens, UnitScale::Million)),
    ("input_audio", Meaning::Price(Unit::AudioInputTokens, UnitScale::Million)),
    ("output_audio", Meaning::Price(Unit::AudioOutputTokens, UnitScale::Million)),
    ("reasoning", Meaning::PartOf(Unit::OutputTokens, UnitScale::Million)),
];

/// The length of prompts that `context_over_200k` is about, in tokens.
const OVER_200K: u64 = 200_000;

/// True if the format has a price of the unit.
#[cfg(test)]
pub(super) fn knows(unit: Unit) -> bool {
    COSTS.iter().any(|(_, meaning)| meaning.is_of(unit))
}

/// The models of all providers.
pub(super) fn listings(tree: &Tree<'_>) -> Vec<Listing> {
    let mut listings = Vec::new();
    for (provider, entry) in tree.fields() {
        for (model, entry) in entry.get("models").map(Tree::fields).unwrap_or_default() {
            listings.push(listing(provider, model, entry));
        }
    }
    listings
}

fn listing(provider: &str, model: &str, entry: &Tree<'_>) -> Listing {
    let mut reading = begin(entry);
    if let Some(cost) = entry.get("cost") {
        costs(&mut reading, "", cost, Condition::default());
        longer_prompts(&mut reading, cost);
    }
    let modes = entry.get("experimental").and_then(|experimental| experimental.get("modes"));
    for (name, mode) in modes.map(Tree::fields).unwrap_or_default() {
        mode_costs(&mut reading, name, mode);
    }
    let mut listing = reading.finish(provider, model, model);
    let limit = |name| tokens(entry.get("limit").and_then(|limit| limit.get(name)));
    (listing.context_tokens_max, listing.output_tokens_max) = (limit("context"), limit("output"));
    listing
}

/// The prices of one object; `above` is where it stands below `cost`.
fn costs(reading: &mut EntryReading, above: &str, cost: &Tree<'_>, when: Condition) {
    if !cost.is_object() {
        return reading.refuse(&format!("{above}cost"), "is not an object");
    }
    if let Some(field) = cost.twice() {
        return reading.refuse(field, "is there twice");
    }
    for (key, value) in cost.fields() {
        if matches!(key.as_str(), "tiers" | "tier" | "context_over_200k") {
            continue;
        }
        let entry = COSTS.iter().find(|(name, _)| name == key);
        let meaning = entry.map_or(Meaning::Unknown, |(_, meaning)| *meaning);
        reading.price(&format!("{above}{key}"), value, meaning, when);
    }
}

fn longer_prompts(reading: &mut EntryReading, cost: &Tree<'_>) {
    let tiers = cost.get("tiers").map(Tree::items).unwrap_or_default();
    for tier in tiers {
        let (kind, size) = match tier.get("tier") {
            Some(bound) => (bound.get("type").and_then(Tree::text), tokens(bound.get("size"))),
            None => (None, None),
        };
        match (kind.unwrap_or("context"), size) {
            ("context", Some(size)) => {
                let when = Condition { input_tokens_above: Some(size), ..Condition::default() };
                costs(reading, "tiers.", tier, when);
            }
            ("context", None) => reading.refuse("tiers", "has a tier without a size"),
            (kind, _) => reading.unsayable("tiers", "", &format!("a tier by {kind}")),
        }
    }
    // It says the same as the tiers, less exactly: its name has the only length that there once was.
    if let (true, Some(cost)) = (tiers.is_empty(), cost.get("context_over_200k")) {
        let when = Condition { input_tokens_above: Some(OVER_200K), ..Condition::default() };
        costs(reading, "context_over_200k.", cost, when);
    }
}

/// Prices of a mode that a request selects with one of its fields.
fn mode_costs(reading: &mut EntryReading, name: &str, mode: &Tree<'_>) {
    let Some(cost) = mode.get("cost") else { return };
    let body = mode.get("provider").and_then(|provider| provider.get("body"));
    let text_of = |field| body.and_then(|body| body.get(field)).and_then(Tree::text);
    let service_tier = text_of("service_tier").and_then(ServiceTier::of);
    let speed = text_of("speed").and_then(Speed::of);
    let above = format!("experimental.modes.{name}.");
    if service_tier.is_none() && speed.is_none() {
        return reading.unsayable(&above, "", "what it is asked for with has no condition here");
    }
    let traits = Traits { service_tier, speed, ..Traits::default() };
    costs(reading, &above, cost, Condition { traits, ..Condition::default() });
}

/// Writes what [`listings`] reads.
#[cfg(test)]
pub(super) fn write(listings: &[Listing]) -> String {
    use std::fmt::Write as _;

    let cost = |listing: &Listing, when: Condition| {
        let rates = listing.rates.iter().filter(|listed| listed.when == when);
        let fields = rates.map(|listed| {
            let is_named =
                |meaning: &Meaning| *meaning == Meaning::Price(listed.unit, UnitScale::Million);
            let (name, _) = COSTS.iter().find(|(_, meaning)| is_named(meaning)).expect("a name");
            format!("\"{name}\": {}", listed.rate.dollars(1_000_000))
        });
        fields.collect::<Vec<_>>().join(", ")
    };
    let mut text = "{\"openai\": {\"models\": {".to_owned();
    for (index, listing) in listings.iter().enumerate() {
        let comma = if index == 0 { "" } else { ", " };
        let base = cost(listing, Condition::default());
        write!(text, "{comma}\"{}\": {{\"cost\": {{{base}", listing.model).expect("text");
        let lengths: std::collections::BTreeSet<_> =
            listing.rates.iter().filter_map(|listed| listed.when.input_tokens_above).collect();
        let tiers = lengths.into_iter().map(|size| {
            let when = Condition { input_tokens_above: Some(size), ..Condition::default() };
            format!("{{\"tier\": {{\"size\": {size}}}, {}}}", cost(listing, when))
        });
        let tiers = tiers.collect::<Vec<_>>().join(", ");
        let comma = if base.is_empty() { "" } else { ", " };
        write!(text, "{comma}\"tiers\": [{tiers}]}}}}").expect("text");
    }
    text + "}}}"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::in_tier;
    use tollgate_money::money::Rate;

    fn found(model: &str) -> Listing {
        let text = include_str!("../../fixtures/models_dev.json");
        let listings = listings(&Tree::parse(text).expect("JSON"));
        listings.into_iter().find(|listing| listing.model == model).expect("a listing")
    }

    fn per_million(listing: &Listing, unit: Unit, when: Condition) -> Option<String> {
        let mut rates = listing.rates.iter();
        let listed = rates.find(|listed| listed.unit == unit && listed.when == when)?;
        Some(listed.rate.dollars(1_000_000))
    }

    fn above(tokens: u64) -> Condition {
        Condition { input_tokens_above: Some(tokens), ..Condition::default() }
    }

    #[test]
    fn prices_and_limits_are_read() {
        let sonnet = found("claude-sonnet-4-5");
        assert_eq!(sonnet.provider, "anthropic");
        for (unit, dollars) in [
            (Unit::InputTokens, "3.00"),
            (Unit::OutputTokens, "15.00"),
            (Unit::CacheReadTokens, "0.30"),
            (Unit::CacheWriteTokens, "3.75"),
        ] {
            let read = per_million(&sonnet, unit, Condition::default());
            assert_eq!(read.as_deref(), Some(dollars), "{unit:?}");
        }
        assert_eq!(sonnet.context_tokens_max, Some(200_000));
        assert_eq!(sonnet.output_tokens_max, Some(64_000));
        assert!(sonnet.unsayable.is_empty());
    }

    #[test]
    fn longer_prompts_are_conditions() {
        let pro = found("gemini-2.5-pro");
        assert_eq!(per_million(&pro, Unit::InputTokens, above(200_000)).as_deref(), Some("2.50"));
        let old = found("gpt-5.4");
        assert_eq!(per_million(&old, Unit::OutputTokens, above(200_000)).as_deref(), Some("22.50"));
        let new = found("gpt-5.6");
        assert_eq!(
            per_million(&new, Unit::CacheWriteTokens, above(272_000)).as_deref(),
            Some("5.00")
        );
        assert_eq!(per_million(&new, Unit::CacheWriteTokens, above(200_000)), None);
    }

    #[test]
    fn a_mode_that_is_a_service_tier_is_one() {
        let listing = found("gpt-5.6");
        let when = in_tier(ServiceTier::Priority);
        assert_eq!(per_million(&listing, Unit::OutputTokens, when).as_deref(), Some("20.00"));
        assert!(listing.unsayable.is_empty(), "a mode without a price is none");
    }

    #[test]
    fn thinking_at_another_price_has_no_equivalent() {
        let keys: Vec<_> =
            found("qwen-plus").unsayable.into_iter().map(|unsayable| unsayable.key).collect();
        assert_eq!(keys, ["reasoning", "tiers.reasoning"]);
    }

    #[test]
    fn a_model_without_prices_is_listed_and_a_wrong_price_is_reported() {
        let image = found("gpt-image-1");
        assert!(image.rates.is_empty() && image.malformed.is_none());
        assert_eq!((image.context_tokens_max, image.output_tokens_max), (None, None));
        let wrong = found("codestral-latest");
        assert_eq!(wrong.malformed.as_deref(), Some("`input` is not a number: \"0.30 USD\""));
        assert!(wrong.rates.is_empty(), "nothing of it counts");
        let free = found("text-embedding-ada-002").rates;
        assert!(free.iter().any(|listed| listed.rate == Rate::default()), "a price of zero");
    }
}
