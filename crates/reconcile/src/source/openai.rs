//! OpenAI: pages of `/v1/organization/usage/…` and of `/v1/organization/costs`, by day or finer.
//!
//! Usage has quantities and requests by model, key and project, as far as it was grouped by them. Input
//! counts include what came from a cache. Costs have amounts by project and by line item, such as
//! `gpt-5-2025-08-07, cached input`, of which the model is taken; their quantities are not used.

use tollgate_money::price::Unit;

use super::{Pages, list_unknown};
use crate::amount::{Currency, Femtousd};
use crate::day::Day;
use crate::json::{JsonFields, JsonPlace};
use crate::statement::{BilledKey, BilledStatement, Measure, StatementError};

/// Fields that repeat others, or are irrelevant for billing.
const IGNORED_FIELDS: [&str; 8] = [
    "input_uncached_tokens",
    "output_text_tokens",
    "input_cached_tokens",
    "input_tokens",
    "output_tokens",
    "quantity",
    "num_images",
    "num_model_requests",
];

pub(super) fn read_bucket(
    bucket: &JsonPlace<'_>,
    pages: &mut Pages,
    statement: &mut BilledStatement,
) -> Result<Day, StatementError> {
    let mut fields = bucket.fields()?;
    let (start, end) = (fields.require("start_time")?, fields.require("end_time")?);
    let (from, to) = (start.whole()?, end.whole()?);
    let day = Day::around(from, to)
        .ok_or_else(|| bucket.refuse("is not within one day in UTC: export days or hours"))?;
    let results = match fields.take("results") {
        Some(results) => results,
        None => fields.require("result")?,
    };
    for result in results.items()? {
        pages.refuse_again(&from.to_string(), &result)?;
        read_result(day, &result, statement)?;
    }
    Ok(day)
}

fn read_result(
    day: Day,
    result: &JsonPlace<'_>,
    statement: &mut BilledStatement,
) -> Result<(), StatementError> {
    let mut fields = result.fields()?;
    let object = fields.require("object")?.string()?;
    let ids = [fields.take_string("api_key_id")?, fields.take_string("project_id")?];
    let mut key = BilledKey { day, models: Vec::new(), ids: ids.into_iter().flatten().collect() };
    if object == "organization.costs.result" {
        return read_cost(key, &mut fields, statement);
    }
    key.models.extend(fields.take_string("model")?);
    let kind = object.strip_prefix("organization.usage.").and_then(|o| o.strip_suffix(".result"));
    match kind {
        Some("completions") => read_completions(&key, &mut fields, statement)?,
        Some("embeddings") => {
            let count = fields.require("input_tokens")?.whole()?;
            statement.add_quantity(&key, Measure::Of(Unit::InputTokens), count);
        }
        Some("images") => {
            let count = fields.require("images")?.whole()?;
            statement.add_quantity(&key, Measure::Of(Unit::Images), count);
        }
        Some("audio_speeches") => {
            let count = fields.require("characters")?.whole()?;
            statement.add_quantity(&key, Measure::Of(Unit::Characters), count);
        }
        // Exports such as vector stores: named in the report, so that nobody takes them for compared.
        Some(_) => {
            statement.add_unused(object, Femtousd::ZERO);
            return Ok(());
        }
        None => return Err(result.refuse("has an `object` that no export of OpenAI has")),
    }
    // A page has the models of one endpoint only.
    statement.is_partial = true;
    if let Some(count) = fields.take_optional_count("num_model_requests")? {
        statement.add_calls(&key, count);
    }
    IGNORED_FIELDS.iter().for_each(|name| drop(fields.take(name)));
    list_unknown(&fields, statement);
    Ok(())
}

fn read_completions(
    key: &BilledKey,
    fields: &mut JsonFields<'_>,
    statement: &mut BilledStatement,
) -> Result<(), StatementError> {
    let input = fields.require("input_tokens")?.whole()?;
    // Without the parts, all input is text.
    let text = fields.take_optional_count("input_text_tokens")?.unwrap_or(input);
    let cached = fields.take_count("input_cached_tokens")?;
    let cached_text = fields.take_optional_count("input_cached_text_tokens")?.unwrap_or(cached);
    let audio = fields.take_count("input_audio_tokens")?;
    let cached_audio = fields.take_count("input_cached_audio_tokens")?;
    let image = fields.take_count("input_image_tokens")?;
    let cached_image = fields.take_count("input_cached_image_tokens")?;
    let output = fields.require("output_tokens")?.whole()?;
    let output = fields.take_optional_count("output_text_tokens")?.unwrap_or(output);
    let cut = |whole: u64, part: u64| {
        let rest = whole.checked_sub(part);
        rest.ok_or_else(|| fields.refuse("has more cached tokens than input tokens"))
    };
    let plain = [cut(text, cached_text)?, cut(audio, cached_audio)?, cut(image, cached_image)?];
    let [text, audio, image] = plain;
    let read = cached_text.checked_add(cached_audio).and_then(|sum| sum.checked_add(cached_image));
    let read = read.ok_or_else(|| fields.refuse("has counts beyond the range"))?;
    let spoken = fields.take_count("output_audio_tokens")?;
    let drawn = fields.take_count("output_image_tokens")?;
    for (unit, count) in [
        (Unit::InputTokens, text),
        (Unit::CacheReadTokens, read),
        (Unit::AudioInputTokens, audio),
        (Unit::ImageInputTokens, image),
        (Unit::OutputTokens, output),
        (Unit::AudioOutputTokens, spoken),
        (Unit::ImageOutputTokens, drawn),
    ] {
        statement.add_quantity(key, Measure::Of(unit), count);
    }
    Ok(())
}

fn read_cost(
    mut key: BilledKey,
    fields: &mut JsonFields<'_>,
    statement: &mut BilledStatement,
) -> Result<(), StatementError> {
    let mut amount = fields.require("amount")?.fields()?;
    let value = amount.require("value")?.amount(Currency::Dollars)?;
    let currency = amount.require("currency")?;
    if !currency.string()?.eq_ignore_ascii_case("usd") {
        return Err(currency.refuse("is not `usd`"));
    }
    let Some(item) = fields.take_string("line_item")? else {
        statement.add_amount(&key, None, value);
        return Ok(());
    };
    let Some(model) = line_item_model(&item) else {
        statement.add_fee(key.day, format!("the line item {item}"), value);
        return Ok(());
    };
    key.models.push(model.to_owned());
    let words = item.split_once(", ").map(|(_, words)| words.to_owned());
    statement.add_amount(&key, words, value);
    Ok(())
}

/// The model of a line item: the word in front of the comma, behind a tier and `|`.
fn line_item_model(item: &str) -> Option<&str> {
    let named = item.split_once(" | ").map_or(item, |(_, named)| named);
    let (model, _) = named.split_once(", ")?;
    match model.split_once(' ') {
        None => Some(model),
        // The modality of a line item stands behind the name of its model.
        Some((model, "audio" | "text" | "image")) => Some(model),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{StatementFile, read};
    use crate::statement::Provider;

    const USAGE: &str = include_str!("../../fixtures/openai_usage.json");
    const COSTS: &str = include_str!("../../fixtures/openai_costs.json");

    fn statement(text: &str) -> Result<BilledStatement, StatementError> {
        read(Provider::OpenAi, &[StatementFile { name: "f", bytes: text.as_bytes() }])
    }

    #[test]
    fn usage_has_quantities_by_key_and_model() {
        let statement = statement(USAGE).expect("a statement");
        let counts: Vec<_> = statement
            .quantities
            .iter()
            .map(|line| (line.key.day.to_string(), line.measure.name(), line.count))
            .collect();
        let day = || "2026-01-01".to_owned();
        assert_eq!(
            counts,
            [
                (day(), "input_tokens", 1000),
                (day(), "cache_read_tokens", 4000),
                (day(), "audio_input_tokens", 300),
                (day(), "output_tokens", 1000),
                (day(), "audio_output_tokens", 200),
                (day(), "input_tokens", 600),
                (day(), "cache_read_tokens", 130),
                (day(), "audio_input_tokens", 70),
                (day(), "output_tokens", 50),
            ]
        );
        assert_eq!(statement.quantities[0].key.ids, ["key_abc", "proj_abc"]);
        assert_eq!(statement.calls.iter().map(|calls| calls.count).sum::<u64>(), 7);
        assert_eq!(statement.quantity_days.len(), 2, "a day without results counts");
        let unused: Vec<_> = statement.unused.iter().map(|line| line.what.as_str()).collect();
        assert_eq!(unused, ["the field output_video_tokens"]);
    }

    #[test]
    fn costs_have_amounts_by_model() {
        let statement = statement(COSTS).expect("a statement");
        let amounts: Vec<_> = statement
            .amounts
            .iter()
            .map(|line| (line.key.models[0].as_str(), line.amount.to_string()))
            .collect();
        assert_eq!(
            amounts,
            [
                ("gpt-5-2025-08-07", "0.56177125".to_owned()),
                ("gpt-5-2025-08-07", "0.0012".to_owned()),
                ("gpt-audio-mini", "0.06".to_owned()),
            ]
        );
        assert_eq!(statement.fees[0].what, "the line item web search tool calls");
        assert!(statement.quantities.is_empty(), "costs have no quantities");
    }

    #[test]
    fn line_items_name_models() {
        for (item, model) in [
            ("gpt-4o-mini-2024-07-18, cached input", Some("gpt-4o-mini-2024-07-18")),
            ("priority | gpt-5.6, output, long context", Some("gpt-5.6")),
            ("gpt-audio-mini audio, input", Some("gpt-audio-mini")),
            ("web search tool calls", None),
            ("assistants api | file search", None),
            ("Image models of all kinds, other", None),
        ] {
            assert_eq!(line_item_model(item), model, "{item}");
        }
    }

    #[test]
    fn what_is_garbled_is_refused_with_its_place() {
        for (from, to, place) in [
            (
                "\"input_cached_tokens\": 4000",
                "\"input_cached_tokens\": 5001",
                "f.data[0].results[0] ",
            ),
            ("1767225600", "1767225599", "f.data[0] "),
            (
                "\"input_tokens\": 5000",
                "\"input_tokens\": 1e99",
                "f.data[0].results[0].input_tokens ",
            ),
            ("usage.completions.", "usage.", "f.data[0].results[0] "),
        ] {
            let error = statement(&USAGE.replacen(from, to, 1)).expect_err(to).to_string();
            assert!(error.starts_with(place), "{to}: {error}");
        }
        let error = statement(&COSTS.replacen("usd", "eur", 1)).expect_err("euros").to_string();
        assert_eq!(error, "f.data[0].results[0].amount.currency is not `usd`");
        let twice = format!("[{COSTS}, {COSTS}]");
        let error = statement(&twice).expect_err("twice").to_string();
        assert!(error.starts_with("f[1].data[0].results[0] is there twice"), "{error}");
    }
}
