//! What models cost: which prices an account pays, what names them, and how customers read them.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::clock::UnixMs;
use crate::config::snapshot::{Model, Pricing};
use crate::ledger::{AccountId, Ledger, PriceNote};
use crate::money::Rate;
use crate::price::{Condition, PriceList, PriceVersion, UnitInfo};

/// The prices that an account pays at this moment for a model that it calls `name`.
pub(crate) fn prices_for(
    ledger: &Ledger,
    account: AccountId,
    (model, name): (&Model, &str),
    now: UnixMs,
) -> Arc<Pricing> {
    match ledger.price_rule(account, name, now) {
        None => Arc::clone(&model.prices),
        Some(found) => {
            let source = found.source();
            model.own_prices.by_terms(source, found.terms(), &model.prices.list)
        }
    }
}

/// The version of the prices of a model: the same wherever they say the same.
pub(crate) fn version(model: &Model, pricing: &Pricing) -> PriceVersion {
    let prices = |list| prices(list).to_string();
    pricing.version(|| format!("{}\n{}\n{}", model.id, pricing.source, prices(&pricing.list)))
}

/// The version of prices by which an account is about to be charged. It stands in the journal with
/// what it says before the first hold that names it.
pub(crate) fn noted_version(
    ledger: &Ledger,
    account: AccountId,
    model: &Model,
    pricing: &Pricing,
) -> PriceVersion {
    let version = version(model, pricing);
    if !pricing.is_noted() {
        ledger.note_price(PriceNote {
            account,
            version,
            model: Arc::clone(&model.id),
            source: pricing.source.clone(),
            pricing: prices(&pricing.list).to_string(),
            at: UnixMs::now(),
        });
        pricing.set_noted();
    }
    version
}

/// The prices of a model with their version.
pub(crate) fn pricing(model: &Model, pricing: &Pricing) -> Value {
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
    let told = all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    told.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::price::{Prices, ServiceTier, Traits};

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
                Prices { output: rate(30_000), audio_output: rate(30_000), ..base },
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
}
