//! LiteLLM's `model_prices_and_context_window.json`: models by name, with prices in US dollars for one
//! unit.
//!
//! Source: <https://github.com/BerriAI/litellm/blob/main/model_prices_and_context_window.json> and its
//! first entry, `sample_spec`. The end of a price's name says when it holds: `_priority`, `_flex`,
//! `_ultrafast`, `_batches`, `_above_200k_tokens`, `_720p`.

use tollgate_money::price::{Condition, Resolution, ServiceTier, Unit};

use super::{begin, tokens};
use crate::figure::UnitScale;
use crate::listing::{EntryReading, Listing, Meaning};
use crate::provider::without_prefix;
use crate::tree::Tree;

/// Entry that documents the others.
const DESCRIPTION: &str = "sample_spec";

/// Meaning of each price by its base name, without conditions.
const COSTS: &[(&str, Meaning)] = &[
    ("input_cost_per_token", Meaning::Price(Unit::InputTokens, UnitScale::One)),
    ("output_cost_per_token", Meaning::Price(Unit::OutputTokens, UnitScale::One)),
    ("cache_read_input_token_cost", Meaning::Price(Unit::CacheReadTokens, UnitScale::One)),
    ("cache_creation_input_token_cost", Meaning::Price(Unit::CacheWriteTokens, UnitScale::One)),
    (
        "cache_creation_input_token_cost_above_1hr",
        Meaning::Price(Unit::CacheWrite1hTokens, UnitScale::One),
    ),
    (
        "cache_creation_input_token_cost_above_12hr",
        Meaning::Price(Unit::CacheWrite12hTokens, UnitScale::One),
    ),
    ("input_cost_per_audio_token", Meaning::Price(Unit::AudioInputTokens, UnitScale::One)),
    ("input_cost_per_image_token", Meaning::Price(Unit::ImageInputTokens, UnitScale::One)),
    ("input_cost_per_video_token", Meaning::Price(Unit::VideoInputTokens, UnitScale::One)),
    ("output_cost_per_audio_token", Meaning::Price(Unit::AudioOutputTokens, UnitScale::One)),
    ("output_cost_per_image", Meaning::Price(Unit::Images, UnitScale::One)),
    ("output_cost_per_second", Meaning::Price(Unit::Seconds, UnitScale::One)),
    ("output_cost_per_video_per_second", Meaning::Price(Unit::Seconds, UnitScale::One)),
    ("input_cost_per_character", Meaning::Price(Unit::Characters, UnitScale::One)),
    ("input_cost_per_request", Meaning::Price(Unit::Requests, UnitScale::One)),
    ("input_cost_per_second", Meaning::Price(Unit::AudioSeconds, UnitScale::One)),
    ("input_cost_per_query", Meaning::Price(Unit::RerankUnits, UnitScale::One)),
    ("code_interpreter_cost_per_session", Meaning::Price(Unit::ContainerSessions, UnitScale::One)),
    ("file_search_cost_per_1k_calls", Meaning::Price(Unit::FileSearches, UnitScale::Thousand)),
    ("input_cost_per_token_cache_hit", Meaning::PartOf(Unit::CacheReadTokens, UnitScale::One)),
    ("cache_read_input_audio_token_cost", Meaning::PartOf(Unit::CacheReadTokens, UnitScale::One)),
    ("cache_read_input_image_token_cost", Meaning::PartOf(Unit::CacheReadTokens, UnitScale::One)),
    (
        "cache_creation_input_audio_token_cost",
        Meaning::PartOf(Unit::CacheWriteTokens, UnitScale::One),
    ),
    ("output_cost_per_reasoning_token", Meaning::PartOf(Unit::OutputTokens, UnitScale::One)),
    // Some models put out nothing else.
    (
        "output_cost_per_image_token",
        Meaning::InPlaceOf(Unit::OutputTokens, Unit::ImageOutputTokens, UnitScale::One),
    ),
];

/// Ends of names, and the tier whose price it is.
const TIERS: [(&str, ServiceTier); 4] = [
    ("_priority", ServiceTier::Priority),
    ("_flex", ServiceTier::Flex),
    ("_ultrafast", ServiceTier::Ultrafast),
    ("_batches", ServiceTier::Batch),
];

/// Ends of names, and the resolution of the video whose price it is.
const RESOLUTIONS: [(&str, Resolution); 3] =
    [("_480p", Resolution::P480), ("_720p", Resolution::P720), ("_1080p", Resolution::P1080)];

/// Words in price names that denote conditions.
const PRICE_WORDS: [&str; 3] = ["cost", "pricing", "price"];

/// True if the format has a price of the unit.
#[cfg(test)]
pub(super) fn knows(unit: Unit) -> bool {
    COSTS.iter().any(|(_, meaning)| meaning.is_of(unit)) || unit == Unit::WebSearches
}

/// The models of all providers.
pub(super) fn listings(tree: &Tree<'_>) -> Vec<Listing> {
    let entries = tree.fields().iter().filter(|(name, _)| name != DESCRIPTION);
    entries.map(|(name, entry)| listing(name, entry)).collect()
}

fn listing(name: &str, entry: &Tree<'_>) -> Listing {
    let mut reading = begin(entry);
    for (key, value) in entry.fields() {
        match key.as_str() {
            "search_context_cost_per_query" => searches(&mut reading, key, value),
            "tiered_pricing" => longer_prompts(&mut reading, key, value),
            _ => price(&mut reading, key, key, value, Condition::default()),
        }
    }
    let prefix = name.split_once('/').map(|(prefix, _)| prefix);
    // The field wins: a name can begin with a size, such as `1024-x-1024/dall-e-2`.
    let stated = entry.get("litellm_provider").and_then(Tree::text);
    let provider = stated.or(prefix).unwrap_or_default();
    let mut listing = reading.finish(provider, without_prefix(name, provider), name);
    listing.context_tokens_max = tokens(entry.get("max_input_tokens"));
    listing.output_tokens_max = tokens(entry.get("max_output_tokens"));
    listing
}

/// Parse one field of an entry; `key` is its path for people.
fn price(reading: &mut EntryReading, key: &str, name: &str, value: &Tree<'_>, when: Condition) {
    // Conditions stack up at the end of a name, in any order.
    let (base, when) = condition(name, when);
    if let Some((_, meaning)) = COSTS.iter().find(|(entry, _)| *entry == base) {
        reading.price(key, value, *meaning, when);
    // A price of an unknown kind is reported, never dropped: it may be charged for.
    } else if PRICE_WORDS.iter().any(|word| name.contains(word)) {
        reading.price(key, value, Meaning::Unknown, when);
    }
}

/// Strip the condition from the end of a price's name.
fn condition(name: &str, mut when: Condition) -> (&str, Condition) {
    let mut base = name;
    loop {
        let is_end = |end: &str| base.strip_suffix(end);
        if let Some((rest, tier)) = TIERS.iter().find_map(|(end, tier)| Some((is_end(end)?, *tier)))
        {
            (base, when.traits.service_tier) = (rest, Some(tier));
        } else if let Some((rest, resolution)) =
            RESOLUTIONS.iter().find_map(|(end, resolution)| Some((is_end(end)?, *resolution)))
        {
            (base, when.traits.resolution) = (rest, Some(resolution));
        } else if let Some((rest, tokens)) = above(base) {
            (base, when.input_tokens_above) = (rest, Some(tokens));
        } else {
            return (base, when);
        }
    }
}

/// Strip `_above_200k_tokens` from the end of a name.
fn above(name: &str) -> Option<(&str, u64)> {
    const THOUSAND: u64 = 1000;
    let (rest, thousands) = name.strip_suffix("k_tokens")?.rsplit_once("_above_")?;
    Some((rest, thousands.parse::<u64>().ok()?.checked_mul(THOUSAND)?))
}

/// Price of a web search by context size; only a uniform one can be represented here.
fn searches(reading: &mut EntryReading, key: &str, sizes: &Tree<'_>) {
    let mut prices = sizes.fields().iter().map(|(_, value)| value);
    let Some(first) = prices.next() else { return };
    if prices.all(|price| price == first) {
        reading.price(
            key,
            first,
            Meaning::Price(Unit::WebSearches, UnitScale::One),
            Condition::default(),
        );
    } else {
        reading.unsayable(key, "", "it depends on how much a search finds");
    }
}

/// Prices by the length of prompts, each of a range of tokens.
fn longer_prompts(reading: &mut EntryReading, key: &str, ranges: &Tree<'_>) {
    for range in ranges.items() {
        let from = range.get("range").map(Tree::items).and_then(<[_]>::first);
        let Some(from) = from.and_then(Tree::text) else {
            return reading.refuse(key, "has a range without bounds");
        };
        // The first begins at zero, which is no length.
        let when =
            Condition { input_tokens_above: crate::figure::tokens(from), ..Condition::default() };
        for (name, value) in range.fields() {
            price(reading, &format!("{key}.{name}"), name, value, when);
        }
    }
}

/// Writes what [`listings`] reads.
#[cfg(test)]
pub(super) fn write(listings: &[Listing]) -> String {
    let entries = listings.iter().map(|listing| {
        let fields = listing.rates.iter().map(|listed| {
            let per = |per| move |meaning: &Meaning| *meaning == Meaning::Price(listed.unit, per);
            let named = COSTS.iter().find(|(_, meaning)| per(UnitScale::One)(meaning));
            let of_thousand = COSTS.iter().find(|(_, meaning)| per(UnitScale::Thousand)(meaning));
            let (units, name) = match (named, of_thousand) {
                (Some((name, _)), _) => (1, *name),
                (None, Some((name, _))) => (1_000, *name),
                (None, None) => return searches_of(listed.rate),
            };
            let above = listed.when.input_tokens_above;
            let above = above.map(|above| format!("_above_{}k_tokens", above / 1000));
            let is_tier =
                |(_, tier): &&(&str, ServiceTier)| Some(*tier) == listed.when.traits.service_tier;
            let tier = TIERS.iter().find(is_tier).map_or("", |(end, _)| end);
            format!(
                "\"{name}{}{tier}\": {}",
                above.unwrap_or_default(),
                scientific(listed.rate, units)
            )
        });
        let fields: String = fields.map(|field| format!(", {field}")).collect();
        format!("\"{}\": {{\"litellm_provider\": \"openai\"{fields}}}", listing.listed_as)
    });
    format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
fn searches_of(rate: tollgate_money::money::Rate) -> String {
    let price = scientific(rate, 1);
    let sizes = ["low", "medium", "high"];
    let sizes = sizes.map(|size| format!("\"search_context_size_{size}\": {price}")).join(", ");
    format!("\"search_context_cost_per_query\": {{{sizes}}}")
}

/// A price as Python writes small ones: `1.5e-07`.
#[cfg(test)]
fn scientific(rate: tollgate_money::money::Rate, units: u64) -> String {
    let exponent = if units == 1 { 15 } else { 12 };
    let digits = rate.femtousd().to_string();
    let (first, rest) = digits.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    format!("{first}{point}{rest}e{:+03}", i32::try_from(rest.len()).expect("short") - exponent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::in_tier;

    fn read() -> Vec<Listing> {
        let text = include_str!("../../fixtures/litellm.json");
        listings(&Tree::parse(text).expect("JSON"))
    }

    fn found(name: &str) -> Listing {
        read().into_iter().find(|listing| listing.listed_as == name).expect("a listing")
    }

    fn dollars(listing: &Listing, unit: Unit, when: Condition) -> Option<String> {
        let mut rates = listing.rates.iter();
        let listed = rates.find(|listed| listed.unit == unit && listed.when == when)?;
        Some(listed.rate.dollars(unit.info().per))
    }

    fn above(tokens: u64) -> Condition {
        Condition { input_tokens_above: Some(tokens), ..Condition::default() }
    }

    #[test]
    fn prices_for_one_token_are_exact() {
        let mini = found("gpt-4o-mini");
        let text = include_str!("../../fixtures/litellm.json");
        assert!(text.contains("\"input_cost_per_token\": 1.5e-07"), "as it was typed");
        for (unit, price) in [
            (Unit::InputTokens, "0.15"),
            (Unit::CacheReadTokens, "0.075"),
            (Unit::OutputTokens, "0.60"),
            (Unit::WebSearches, "25.00"),
        ] {
            assert_eq!(dollars(&mini, unit, Condition::default()).as_deref(), Some(price));
        }
        assert_eq!(mini.context_tokens_max, Some(128_000));
        assert_eq!(mini.output_tokens_max, Some(16_384));
        let speech = found("tts-1");
        let characters = dollars(&speech, Unit::Characters, Condition::default());
        assert_eq!(characters.as_deref(), Some("15.00"));
    }

    #[test]
    fn the_end_of_a_name_is_a_condition() {
        let listing = found("gpt-5.4");
        let priority = in_tier(ServiceTier::Priority);
        let flex = in_tier(ServiceTier::Flex);
        let long_flex = Condition { input_tokens_above: Some(272_000), ..flex };
        for (unit, when, price) in [
            (Unit::InputTokens, priority, "5.00"),
            (Unit::InputTokens, above(272_000), "5.00"),
            (Unit::OutputTokens, above(272_000), "22.50"),
            (Unit::OutputTokens, long_flex, "11.25"),
            (Unit::CacheReadTokens, in_tier(ServiceTier::Batch), "0.13"),
        ] {
            assert_eq!(dollars(&listing, unit, when).as_deref(), Some(price), "{unit:?} {when:?}");
        }
        let sonnet = found("claude-sonnet-4-5-20250929");
        let hour = dollars(&sonnet, Unit::CacheWrite1hTokens, Condition::default());
        assert_eq!(hour.as_deref(), Some("6.00"));
        let both =
            condition("cache_creation_input_token_cost_above_1hr_above_200k_tokens", above(1));
        assert_eq!(both, ("cache_creation_input_token_cost_above_1hr", above(200_000)));
    }

    #[test]
    fn a_cache_of_twelve_hours_and_the_fastest_tier_are_supported() {
        let text = r#"{"m": {"litellm_provider": "openai", "input_cost_per_token": 1e-05,
            "cache_creation_input_token_cost_above_12hr": 2.5e-05,
            "cache_creation_input_token_cost_above_12hr_above_272k_tokens_ultrafast": 0.0003}}"#;
        let listing = listings(&Tree::parse(text).expect("JSON")).remove(0);
        let price = |when| dollars(&listing, Unit::CacheWrite12hTokens, when);
        assert_eq!(price(Condition::default()).as_deref(), Some("25.00"));
        let fastest = in_tier(ServiceTier::Ultrafast);
        let long = Condition { input_tokens_above: Some(272_000), ..fastest };
        assert_eq!(price(long).as_deref(), Some("300.00"));
        assert!(listing.unsayable.is_empty(), "{:?}", listing.unsayable);
    }

    #[test]
    fn seconds_of_audio_and_queries_are_supported() {
        let text = r#"{"hears": {"litellm_provider": "openai", "input_cost_per_second": 0.0001},
            "ranks": {"litellm_provider": "cohere", "input_cost_per_query": 0.002}}"#;
        let [hears, ranks] = <[Listing; 2]>::try_from(listings(&Tree::parse(text).expect("JSON")))
            .expect("two models");
        let base = Condition::default();
        assert_eq!(dollars(&hears, Unit::AudioSeconds, base).as_deref(), Some("0.0001"));
        assert_eq!(dollars(&ranks, Unit::RerankUnits, base).as_deref(), Some("2.00"));
        assert!(hears.unsayable.is_empty() && ranks.unsayable.is_empty());
    }

    #[test]
    fn prices_by_ranges_are_conditions() {
        let listing = found("dashscope/qwen-flash");
        assert_eq!(
            (listing.provider.as_str(), listing.model.as_str()),
            ("dashscope", "qwen-flash")
        );
        let base = dollars(&listing, Unit::InputTokens, Condition::default());
        assert_eq!(base.as_deref(), Some("0.05"));
        assert_eq!(dollars(&listing, Unit::InputTokens, above(256_000)).as_deref(), Some("0.25"));
    }

    #[test]
    fn what_has_no_unit_is_named() {
        let keys = |name: &str| {
            let unsayable = found(name).unsayable.into_iter();
            unsayable.map(|unsayable| (unsayable.key, unsayable.figure)).collect::<Vec<_>>()
        };
        let maps = ("google_maps_grounding_cost_per_query".to_owned(), "0.025".to_owned());
        assert_eq!(keys("gemini/gemini-2.5-pro"), [maps]);
        assert!(keys("gemini/gemini-2.5-flash").iter().any(|(key, figure)| {
            (key.as_str(), figure.as_str()) == ("cache_read_input_audio_token_cost", "1e-07")
        }));
        assert!(keys("deepseek/deepseek-chat").is_empty(), "the price of a hit is that of a read");
        assert!(keys("gpt-5").is_empty());
    }

    #[test]
    fn images_alone_are_the_output() {
        let listing = found("gpt-image-1");
        let output = dollars(&listing, Unit::OutputTokens, Condition::default());
        assert_eq!(output.as_deref(), Some("40.00"));
        let pictures = dollars(&listing, Unit::ImageInputTokens, Condition::default());
        assert_eq!(pictures.as_deref(), Some("10.00"));
    }

    #[test]
    fn images_beside_text_have_a_price_of_their_own() {
        let text = r#"{"draws": {"litellm_provider": "gemini", "input_cost_per_token": 3e-07,
            "output_cost_per_token": 2.5e-06, "output_cost_per_image_token": 3e-05}}"#;
        let listing = listings(&Tree::parse(text).expect("JSON")).remove(0);
        let price = |unit| dollars(&listing, unit, Condition::default());
        assert_eq!(price(Unit::OutputTokens).as_deref(), Some("2.50"));
        assert_eq!(price(Unit::ImageOutputTokens).as_deref(), Some("30.00"));
        assert!(listing.unsayable.is_empty(), "{:?}", listing.unsayable);
    }

    #[test]
    fn entries_that_cannot_be_read_say_why() {
        let why = |name: &str| found(name).malformed;
        let expected = "`input_cost_per_token` is not a number: \"two dollars\"";
        assert_eq!(why("gpt-4.1").as_deref(), Some(expected));
        assert_eq!(why("o4-mini").as_deref(), Some("`the entry` is not an object"));
        assert!(read().iter().all(|listing| listing.listed_as != DESCRIPTION));
    }
}
