//! Prices of models for an account, their versions, and their form for customers.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use tollgate_config::snapshot::{Model, Pricing};
use tollgate_ledger::{AccountId, Ledger, PriceNote};
use tollgate_money::money::Rate;
use tollgate_money::price::{Condition, PriceList, PriceVersion, Prices, UNITS, Unit, UnitInfo};
use tollgate_types::clock::UnixMs;

/// The prices that an account pays at this moment for a model that it calls `name`.
pub fn prices_for(
    ledger: &Ledger,
    account: AccountId,
    (model, name): (&Model, &str),
    now: UnixMs,
) -> Arc<Pricing> {
    match ledger.price_rule(account, name, now) {
        None => Arc::clone(&model.prices),
        Some(found) => {
            let sold = &model.limits.priced.units;
            model.own_prices.by_terms(found.source(), found.terms(), &model.prices.list, sold)
        }
    }
}

/// Version of a model's prices: equal for equal prices. It contains nothing that customers do not know; the
/// source of a price could otherwise be guessed from it.
pub fn version(model: &Model, pricing: &Pricing) -> PriceVersion {
    pricing.version(|| exactly(&model.id, &pricing.list))
}

/// Everything that the prices of a model say, also what goes without saying. Units that came later say
/// nothing where they have no price, or each of them would name all prices anew.
fn exactly(model: &str, list: &PriceList) -> String {
    let rates = |prices: &Prices| {
        let is_priced =
            // The units that there were when versions began: these stand in every version, priced or
            // not.
            |info: &&UnitInfo| info.unit <= Unit::Requests || prices[info.unit] > Rate::default();
        let rate = |info: &UnitInfo| format!(" {} {}", info.price, prices[info.unit].femtousd());
        UNITS.iter().filter(is_priced).map(rate).collect::<String>()
    };
    let mut text = format!("{model}\n{}", rates(&list.base));
    for (condition, prices) in &list.when {
        text.push_str(&format!("\n{}{}", Value::Object(conditions(condition)), rates(prices)));
    }
    text
}

/// Version of the prices that an account is about to be charged at. It is recorded in the journal with the
/// prices before the first hold that names it.
pub fn noted_version(
    ledger: &Ledger,
    account: AccountId,
    model: &Model,
    pricing: &Pricing,
) -> PriceVersion {
    let version = version(model, pricing);
    // Two calls at one time may both note it: a second note of the same version says the same.
    if !pricing.is_noted() {
        ledger.note_price(PriceNote {
            account,
            version,
            model: Arc::clone(&model.id),
            source: pricing.source.clone(),
            pricing: prices(&pricing.list).to_string(),
            at: UnixMs::now(),
        });
        // After the note is queued: set before, another call's hold could name a version that the
        // journal lacks.
        pricing.set_noted();
    }
    version
}

/// The prices of a model with their version.
pub fn pricing(model: &Model, pricing: &Pricing) -> Value {
    let mut document = prices(&pricing.list);
    document["version"] = json!(version(model, pricing));
    document
}

/// The prices of a list by the names of `models.yaml`, in exact dollars, and those under conditions.
fn prices(list: &PriceList) -> Value {
    let mut document = priced(list.base.explicit());
    document.insert("currency".to_owned(), json!("USD"));
    let when = list.when.iter().map(|(condition, prices)| {
        json!({"when": conditions(condition), "prices": priced(prices.explicit_beside(&list.base))})
    });
    let when: Vec<Value> = when.collect();
    if !when.is_empty() {
        document.insert("prices_when".to_owned(), Value::Array(when));
    }
    Value::Object(document)
}

/// Prices by their names.
fn priced(prices: impl Iterator<Item = (&'static UnitInfo, Rate)>) -> Map<String, Value> {
    prices.map(|(info, rate)| (info.price.to_owned(), json!(rate.dollars(info.per)))).collect()
}

fn conditions(condition: &Condition) -> Map<String, Value> {
    let traits = &condition.traits;
    let word = |word: Option<&str>| word.map(|word| json!(word));
    let size = traits.size.map(|size| json!(format!("{}x{}", size.width, size.height)));
    let all = [
        ("input_tokens_above", condition.input_tokens_above.map(|tokens| json!(tokens))),
        ("service_tier", word(traits.service_tier.map(|one| one.as_str()))),
        ("speed", word(traits.speed.map(|one| one.as_str()))),
        ("inference_geo", word(traits.inference_geo.map(|one| one.as_str()))),
        ("thinking", traits.thinking.map(|thinks| json!(thinks))),
        ("time_utc", condition.time_utc.map(|window| json!(window.to_string()))),
        ("resolution", word(traits.resolution.map(|one| one.as_str()))),
        ("size", size),
        ("quality", word(traits.quality.map(|one| one.as_str()))),
        ("audio", traits.audio.map(|audio| json!(audio))),
        ("draft", traits.draft.map(|draft| json!(draft))),
        ("video_input", traits.video_input.map(|input| json!(input))),
    ];
    let rates = all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    rates.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_money::price::{ServiceTier, Traits};

    #[test]
    fn customers_read_what_differs_and_no_defaults() {
        let rate = |milli: i64| Rate::from_femtousd(milli * 1_000_000);
        let base = Prices::of_each(|unit, before| match unit.price {
            "input_per_1m_tokens" => rate(2500),
            "output_per_1m_tokens" => rate(15_000),
            "cached_input_per_1m_tokens" => rate(250),
            _ => unit.priced_as.map_or(Rate::default(), |other| before[other]),
        });
        let traits = Traits { service_tier: Some(ServiceTier::Priority), ..Traits::default() };
        let condition = Condition { traits, input_tokens_above: Some(7), time_utc: None };
        let list = PriceList {
            base,
            when: vec![(
                condition,
                Prices {
                    output: rate(30_000),
                    audio_output: rate(30_000),
                    image_output: rate(30_000),
                    ..base
                },
            )],
        };
        assert_eq!(
            prices(&list),
            json!({
                "currency": "USD",
                "input_per_1m_tokens": "2.50",
                "cached_input_per_1m_tokens": "0.25",
                "output_per_1m_tokens": "15.00",
                "prices_when": [{
                    "when": {"input_tokens_above": 7, "service_tier": "priority"},
                    "prices": {"output_per_1m_tokens": "30.00"},
                }],
            })
        );
        assert_eq!(prices(&PriceList::default()), json!({"currency": "USD"}), "it costs nothing");
    }

    /// Prices that stand in journals keep their names when a unit comes that they say nothing of.
    #[test]
    fn a_later_unit_is_named_where_it_has_a_price() {
        let list = |rerank_unit: Rate| {
            let base = Prices { rerank_unit, ..Prices::default() };
            exactly("m", &PriceList { base, when: Vec::new() })
        };
        let plain = list(Rate::default());
        assert!(plain.ends_with(" per_request 0"), "{plain}");
        let priced = list(Rate::from_femtousd(2));
        assert_eq!(priced, format!("{plain} per_1k_rerank_units 2"));
    }

    /// Prices that read differently have different versions.
    #[test]
    fn a_price_of_nothing_and_one_that_follows_are_two_prices() {
        let rate = |milli: i64| Rate::from_femtousd(milli * 1_000_000);
        let list = |base: (i64, i64), branch: (i64, i64)| {
            let prices = |(input, cached)| Prices {
                input: rate(input),
                cache_read: rate(cached),
                cache_write: rate(input),
                cache_write_1h: rate(input),
                cache_write_12h: rate(input),
                audio_input: rate(input),
                image_input: rate(input),
                video_input: rate(input),
                ..Prices::default()
            };
            let condition = Condition { input_tokens_above: Some(7), ..Condition::default() };
            PriceList { base: prices(base), when: vec![(condition, prices(branch))] }
        };
        let all = [
            list((10, 10), (20, 20)),
            list((10, 0), (20, 20)),
            list((10, 0), (20, 0)),
            list((10, 10), (20, 10)),
            list((10, 5), (20, 5)),
        ];
        for (at, one) in all.iter().enumerate() {
            for other in all.iter().skip(at + 1) {
                assert_ne!(prices(one), prices(other));
                assert_ne!(exactly("m", one), exactly("m", other));
            }
        }
        assert_eq!(prices(&all[1])["cached_input_per_1m_tokens"], "0.00");
    }
}
