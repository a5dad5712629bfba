//! The answer of OpenRouter's `/api/v1/models`: models by the names of their authors, with prices as
//! strings of US dollars for one unit.
//!
//! Source: <https://openrouter.ai/docs/api/api-reference/models/get-models>. A `-1` is a price that
//! depends on where a request goes. Each of `overrides` has the prices that change for longer prompts,
//! and says from which length on with `min_prompt_tokens`.

use tollgate_money::price::{Condition, Unit};

use super::{begin, tokens};
use crate::figure::UnitScale;
use crate::listing::{EntryReading, Listing, Meaning};
use crate::tree::Tree;

/// Meaning of the fields of `pricing`. `image` is an image in the input, of which authors count tokens;
/// where it costs what text does, it is charged as text.
const COSTS: &[(&str, Meaning)] = &[
    ("prompt", Meaning::Price(Unit::InputTokens, UnitScale::One)),
    ("completion", Meaning::Price(Unit::OutputTokens, UnitScale::One)),
    ("input_cache_read", Meaning::Price(Unit::CacheReadTokens, UnitScale::One)),
    ("input_cache_write", Meaning::Price(Unit::CacheWriteTokens, UnitScale::One)),
    ("input_cache_write_1h", Meaning::Price(Unit::CacheWrite1hTokens, UnitScale::One)),
    ("audio", Meaning::Price(Unit::AudioInputTokens, UnitScale::One)),
    ("audio_output", Meaning::Price(Unit::AudioOutputTokens, UnitScale::One)),
    ("image_token", Meaning::Price(Unit::ImageInputTokens, UnitScale::One)),
    ("image_output", Meaning::Price(Unit::ImageOutputTokens, UnitScale::One)),
    ("web_search", Meaning::Price(Unit::WebSearches, UnitScale::One)),
    ("request", Meaning::Price(Unit::Requests, UnitScale::One)),
    ("image", Meaning::PartOf(Unit::InputTokens, UnitScale::One)),
    ("internal_reasoning", Meaning::PartOf(Unit::OutputTokens, UnitScale::One)),
    ("input_audio_cache", Meaning::PartOf(Unit::CacheReadTokens, UnitScale::One)),
];

/// The field of `pricing` with prices that hold for some requests.
const OVERRIDES: &str = "overrides";
/// The field of an override that says from how many tokens of a prompt on it holds.
const LENGTH: &str = "min_prompt_tokens";

/// The models of all authors.
pub(super) fn listings(tree: &Tree<'_>) -> Vec<Listing> {
    tree.get("data").map(Tree::items).unwrap_or_default().iter().filter_map(listing).collect()
}

/// Parse an entry; `None` without a name.
fn listing(entry: &Tree<'_>) -> Option<Listing> {
    let id = entry.get("id").and_then(Tree::text)?;
    let mut reading = begin(entry);
    match entry.get("pricing") {
        Some(pricing) if pricing.is_object() => {
            if let Some(field) = pricing.twice() {
                reading.refuse(field, "is there twice");
            }
            for (key, value) in pricing.fields() {
                match key.as_str() {
                    OVERRIDES => overrides(&mut reading, value),
                    _ => reading.price(key, value, meaning(key), Condition::default()),
                }
            }
        }
        _ => reading.refuse("pricing", "is not an object"),
    }
    // Ids have the author in front, whatever provider serves the model.
    let (author, model) = id.split_once('/').unwrap_or(("openrouter", id));
    let mut listing = reading.finish(author, model, id);
    listing.context_tokens_max = tokens(entry.get("context_length"));
    let provider = entry.get("top_provider");
    listing.output_tokens_max =
        tokens(provider.and_then(|provider| provider.get("max_completion_tokens")));
    Some(listing)
}

fn meaning(key: &str) -> Meaning {
    let entry = COSTS.iter().find(|(name, _)| *name == key);
    entry.map_or(Meaning::Unknown, |(_, meaning)| *meaning)
}

/// Prices that hold for some requests, each beside what such a request is like.
fn overrides(reading: &mut EntryReading, all: &Tree<'_>) {
    for one in all.items() {
        if let Some(field) = one.twice() {
            return reading.refuse(field, "is there twice");
        }
        let (prices, conditions): (Vec<_>, Vec<_>) =
            one.fields().iter().partition(|(key, _)| meaning(key) != Meaning::Unknown);
        // With a second condition the price would apply to fewer requests than our condition says.
        let above = match conditions.as_slice() {
            [(key, length)] if key == LENGTH => tokens(Some(length)),
            _ => None,
        };
        if above.is_none() {
            let words: Vec<&str> = conditions.iter().map(|(key, _)| key.as_str()).collect();
            let why = format!("there is no condition for `{}`", words.join("` and `"));
            reading.unsayable(OVERRIDES, "", &why);
            continue;
        }
        let when = Condition { input_tokens_above: above, ..Condition::default() };
        for (key, value) in prices {
            reading.price(&format!("{OVERRIDES}.{key}"), value, meaning(key), when);
        }
    }
}

/// True if the format has a price of the unit.
#[cfg(test)]
pub(super) fn knows(unit: Unit) -> bool {
    COSTS.iter().any(|(_, meaning)| meaning.is_of(unit))
}

/// Writes what [`listings`] reads.
#[cfg(test)]
pub(super) fn write(listings: &[Listing]) -> String {
    let entries = listings.iter().map(|listing| {
        let fields = listing.rates.iter().map(|listed| {
            let is_named =
                |meaning: &Meaning| *meaning == Meaning::Price(listed.unit, UnitScale::One);
            let (name, _) = COSTS.iter().find(|(_, meaning)| is_named(meaning)).expect("a name");
            format!("\"{name}\": \"{}\"", listed.rate.dollars(1))
        });
        let fields = fields.collect::<Vec<_>>().join(", ");
        format!("{{\"id\": \"{}\", \"pricing\": {{{fields}}}}}", listing.listed_as)
    });
    format!("{{\"data\": [{}]}}", entries.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(id: &str) -> Listing {
        let text = include_str!("../../fixtures/openrouter.json");
        let listings = listings(&Tree::parse(text).expect("JSON"));
        listings.into_iter().find(|listing| listing.listed_as == id).expect("a listing")
    }

    fn dollars(listing: &Listing, unit: Unit) -> Option<String> {
        let listed = listing.rates.iter().find(|listed| listed.unit == unit)?;
        Some(listed.rate.dollars(unit.info().per))
    }

    #[test]
    fn overrides_are_prices_of_longer_prompts() {
        let text = r#"{"data": [{"id": "x-ai/grok-4.5", "pricing": {"prompt": "0.000002",
            "completion": "0.000006", "input_cache_read": "0.0000005", "overrides": [
            {"min_prompt_tokens": 200000, "prompt": "0.000004", "input_cache_read": "0.000001"},
            {"region": "eu", "prompt": "0.000005"}]}}]}"#;
        let listing = listings(&Tree::parse(text).expect("JSON")).remove(0);
        let long = Condition { input_tokens_above: Some(200_000), ..Condition::default() };
        for (unit, price) in [(Unit::InputTokens, "4.00"), (Unit::CacheReadTokens, "1.00")] {
            let mut rates = listing.rates.iter();
            let listed = rates.find(|listed| listed.unit == unit && listed.when == long);
            let dollars = listed.map(|listed| listed.rate.dollars(1_000_000));
            assert_eq!(dollars.as_deref(), Some(price), "{unit:?}");
        }
        assert_eq!(dollars(&listing, Unit::InputTokens).as_deref(), Some("2.00"), "the base");
        let [unsayable] = listing.unsayable.as_slice() else { panic!("{listing:?}") };
        assert_eq!(unsayable.why, "there is no condition for `region`");
    }

    #[test]
    fn prices_are_strings_for_one_unit() {
        let sonnet = found("anthropic/claude-sonnet-4.6");
        assert_eq!(
            (sonnet.provider.as_str(), sonnet.model.as_str()),
            ("anthropic", "claude-sonnet-4.6")
        );
        for (unit, price) in [
            (Unit::InputTokens, "3.00"),
            (Unit::OutputTokens, "15.00"),
            (Unit::CacheReadTokens, "0.30"),
            (Unit::CacheWriteTokens, "3.75"),
            (Unit::WebSearches, "10.00"),
        ] {
            assert_eq!(dollars(&sonnet, unit).as_deref(), Some(price), "{unit:?}");
        }
        assert_eq!(sonnet.context_tokens_max, Some(1_000_000));
        assert_eq!(sonnet.output_tokens_max, Some(128_000));
        assert_eq!(found("x-ai/grok-4").output_tokens_max, None, "which is null there");
    }

    #[test]
    fn parts_at_the_price_of_the_whole_are_no_matter() {
        let pro = found("google/gemini-2.5-pro");
        assert!(pro.unsayable.is_empty(), "pictures as text, thinking as output");
        assert_eq!(dollars(&pro, Unit::AudioInputTokens).as_deref(), Some("1.25"));
    }

    #[test]
    fn what_cannot_be_billed_exactly_is_named() {
        let flash = found("google/gemini-2.5-flash").unsayable;
        let [write] = flash.as_slice() else { panic!("{flash:?}") };
        assert_eq!(write.key, "input_cache_write");
        assert_eq!(write.why, "it has more decimals than can be billed exactly");
        let auto = found("openrouter/auto").unsayable;
        assert_eq!(auto.len(), 2, "{auto:?}");
        assert!(auto.iter().all(|unsayable| unsayable.why == "it is negative"));
        assert!(found("qwen/qwen3-vl-235b-a22b-thinking").unsayable.is_empty(), "zeros");
        let words = found("openai/o4-mini").malformed;
        assert_eq!(words.as_deref(), Some("`pricing` is not an object"));
    }
}
