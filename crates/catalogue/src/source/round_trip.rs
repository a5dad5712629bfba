//! Lists in each format that are written and read again have the same exact rates.

use proptest::prelude::*;
use tollgate_money::money::Rate;
use tollgate_money::price::{Condition, ServiceTier, Unit};

use super::{litellm, models_dev, openrouter, read};
use crate::condition::in_tier;
use crate::listing::{ListedRate, Listing};

/// Units that every format supports.
const EVERYWHERE: [Unit; 5] = [
    Unit::InputTokens,
    Unit::OutputTokens,
    Unit::CacheReadTokens,
    Unit::CacheWriteTokens,
    Unit::AudioInputTokens,
];
/// Further units that LiteLLM and OpenRouter support.
const BESIDE: [Unit; 3] = [Unit::CacheWrite1hTokens, Unit::WebSearches, Unit::Requests];

fn base() -> Vec<Condition> {
    vec![Condition::default()]
}

fn lengths() -> Vec<Condition> {
    let above = |tokens| Condition { input_tokens_above: Some(tokens), ..Condition::default() };
    vec![Condition::default(), above(128_000), above(200_000), above(272_000)]
}

fn tiers() -> Vec<Condition> {
    let tiers = [ServiceTier::Priority, ServiceTier::Flex, ServiceTier::Batch].map(in_tier);
    let long = tiers.map(|when| Condition { input_tokens_above: Some(200_000), ..when });
    [lengths(), tiers.to_vec(), long.to_vec()].concat()
}

/// Strategy for all configurable prices.
fn rate() -> impl Strategy<Value = Rate> {
    prop_oneof![
        Just(0),
        1..1_000_i64,
        (1..100_000_i64).prop_map(|cents| cents * 10_000_000),
        1..=i64::MAX,
    ]
    .prop_map(Rate::from_femtousd)
}

/// Models with a price for some units, each under some of the conditions.
fn models(units: Vec<Unit>, conditions: Vec<Condition>) -> impl Strategy<Value = Vec<Listing>> {
    let places: Vec<_> = units
        .iter()
        .flat_map(|unit| conditions.iter().map(move |when| (*unit, *when)))
        // What is done once has one price in every list.
        .filter(|(unit, when)| *unit != Unit::WebSearches || *when == Condition::default())
        .collect();
    let count = places.len();
    let one =
        proptest::collection::vec(proptest::option::of(rate()), count).prop_map(move |rates| {
            let listed = places.iter().zip(rates).filter_map(|((unit, when), rate)| {
                Some(ListedRate { unit: *unit, when: *when, rate: rate? })
            });
            listed.collect::<Vec<_>>()
        });
    proptest::collection::vec(one, 1..4).prop_map(|models| {
        let numbered = models.into_iter().enumerate();
        numbered.map(|(number, rates)| listing(&format!("model-{number}"), rates)).collect()
    })
}

fn listing(model: &str, rates: Vec<ListedRate>) -> Listing {
    Listing {
        provider: "openai".to_owned(),
        model: model.to_owned(),
        listed_as: model.to_owned(),
        rates,
        unsayable: Vec::new(),
        malformed: None,
        context_tokens_max: None,
        output_tokens_max: None,
    }
}

/// The rates of each model in an order that does not depend on the format.
fn sorted(listings: Vec<Listing>) -> Vec<(String, Vec<ListedRate>)> {
    let ordered = listings.into_iter().map(|mut listing| {
        assert_eq!((listing.unsayable.len(), listing.malformed), (0, None), "all can be said");
        listing.rates.sort_by_key(|listed| (listed.unit, format!("{:?}", listed.when)));
        (listing.model, listing.rates)
    });
    ordered.collect()
}

proptest! {
    #[test]
    fn models_dev_keeps_every_rate(written in models(EVERYWHERE.to_vec(), lengths())) {
        let text = models_dev::write(&written);
        let read = read(text.as_bytes()).expect(&text);
        prop_assert_eq!(sorted(read.listings), sorted(written));
    }

    #[test]
    fn litellm_keeps_every_rate(
        written in models([&EVERYWHERE[..], &BESIDE[..]].concat(), tiers())
    ) {
        let text = litellm::write(&written);
        let read = read(text.as_bytes()).expect(&text);
        prop_assert_eq!(sorted(read.listings), sorted(written));
    }

    #[test]
    fn openrouter_keeps_every_rate(
        written in models([&EVERYWHERE[..], &BESIDE[..]].concat(), base())
    ) {
        let mut written = written;
        for listing in &mut written {
            listing.listed_as = format!("openai/{}", listing.model);
        }
        let text = openrouter::write(&written);
        let read = read(text.as_bytes()).expect(&text);
        prop_assert_eq!(sorted(read.listings), sorted(written));
    }
}
