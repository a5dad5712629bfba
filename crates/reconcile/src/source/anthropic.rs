//! Anthropic: pages of `/v1/organizations/usage_report/messages` and of `/v1/organizations/cost_report`.
//!
//! Usage has quantities by model, key and workspace, as far as it was grouped by them. Costs are decimal
//! strings of cents by workspace and, grouped by description, by model and type of token.

use tollgate_money::price::Unit;
use tollgate_types::clock::UnixMs;

use super::{Pages, list_unknown};
use crate::amount::Currency;
use crate::day::Day;
use crate::json::{JsonFields, JsonPlace};
use crate::statement::{BilledKey, BilledStatement, Measure, StatementError};

pub(super) fn read_bucket(
    bucket: &JsonPlace<'_>,
    pages: &mut Pages,
    statement: &mut BilledStatement,
) -> Result<Day, StatementError> {
    let mut fields = bucket.fields()?;
    let (from, to) = (fields.require("starting_at")?, fields.require("ending_at")?);
    let (from, to) = (moment(&from)?, moment(&to)?);
    let day = Day::around(from.seconds(), to.seconds())
        .ok_or_else(|| bucket.refuse("is not within one day in UTC: ask for days or hours"))?;
    for result in fields.require("results")?.items()? {
        pages.refuse_again(&from.0.to_string(), &result)?;
        let mut fields = result.fields()?;
        let ids = [fields.take_string("api_key_id")?, fields.take_string("workspace_id")?];
        let mut key =
            BilledKey { day, models: Vec::new(), ids: ids.into_iter().flatten().collect() };
        key.models.extend(fields.take_string("model")?);
        if fields.has("amount") {
            read_cost(&key, &mut fields, statement)?;
        } else {
            read_usage(&key, &mut fields, statement)?;
        }
    }
    Ok(day)
}

fn moment(value: &JsonPlace<'_>) -> Result<UnixMs, StatementError> {
    let moment = UnixMs::parse_rfc3339(&value.string()?);
    moment.ok_or_else(|| value.refuse("is not a time as RFC 3339 has it"))
}

fn read_usage(
    key: &BilledKey,
    fields: &mut JsonFields<'_>,
    statement: &mut BilledStatement,
) -> Result<(), StatementError> {
    let plain = fields.require("uncached_input_tokens")?.whole()?;
    let mut counts = vec![
        (Unit::InputTokens, plain),
        (Unit::CacheReadTokens, fields.take_count("cache_read_input_tokens")?),
        (Unit::OutputTokens, fields.require("output_tokens")?.whole()?),
    ];
    if let Some(written) = fields.take("cache_creation") {
        let mut written = written.fields()?;
        let short = written.take_count("ephemeral_5m_input_tokens")?;
        let long = written.take_count("ephemeral_1h_input_tokens")?;
        counts.extend([(Unit::CacheWriteTokens, short), (Unit::CacheWrite1hTokens, long)]);
        list_unknown(&written, statement);
    }
    if let Some(tools) = fields.take("server_tool_use") {
        let mut tools = tools.fields()?;
        counts.push((Unit::WebSearches, tools.take_count("web_search_requests")?));
        list_unknown(&tools, statement);
    }
    for (unit, count) in counts {
        statement.add_quantity(key, Measure::Of(unit), count);
    }
    list_unknown(fields, statement);
    Ok(())
}

fn read_cost(
    key: &BilledKey,
    fields: &mut JsonFields<'_>,
    statement: &mut BilledStatement,
) -> Result<(), StatementError> {
    let amount = fields.require("amount")?.amount(Currency::Cents)?;
    if let Some(currency) = fields.take("currency")
        && !currency.string()?.eq_ignore_ascii_case("usd")
    {
        return Err(currency.refuse("is not `USD`"));
    }
    let description = fields.take_string("description")?;
    let token_type = fields.take_string("token_type")?;
    match description {
        // What is no token belongs to no model.
        Some(description) if key.models.is_empty() => {
            statement.add_fee(key.day, format!("the cost {description}"), amount);
        }
        description => statement.add_amount(key, token_type.or(description), amount),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{StatementFile, read};
    use crate::statement::Provider;

    const USAGE: &str = include_str!("../../fixtures/anthropic_usage.json");
    const COSTS: &str = include_str!("../../fixtures/anthropic_cost.json");

    fn statement(text: &str) -> Result<BilledStatement, StatementError> {
        read(Provider::Anthropic, &[StatementFile { name: "f", bytes: text.as_bytes() }])
    }

    #[test]
    fn usage_tells_caches_apart() {
        let statement = statement(USAGE).expect("a statement");
        let counts: Vec<_> =
            statement.quantities.iter().map(|line| (line.measure.name(), line.count)).collect();
        assert_eq!(
            counts,
            [
                ("input_tokens", 1500),
                ("cache_read_tokens", 200),
                ("output_tokens", 500),
                ("cache_write_tokens", 500),
                ("cache_write_1h_tokens", 1000),
                ("web_searches", 10),
            ]
        );
        let key = &statement.quantities[0].key;
        assert_eq!(
            (key.day.to_string().as_str(), &key.ids[..]),
            ("2026-01-01", &["apikey_1".to_owned(), "wrkspc_1".to_owned()][..])
        );
        assert_eq!(statement.unused[0].what, "the field web_fetch_requests");
    }

    #[test]
    fn costs_are_cents() {
        let statement = statement(COSTS).expect("a statement");
        let amounts: Vec<_> = statement
            .amounts
            .iter()
            .map(|line| (line.item.as_deref(), line.amount.to_string()))
            .collect();
        assert_eq!(
            amounts,
            [
                (Some("uncached_input_tokens"), "1.2378912".to_owned()),
                (Some("output_tokens"), "0.0075".to_owned()),
            ]
        );
        assert_eq!(statement.fees[0].what, "the cost Web Search Usage");
        assert_eq!(statement.fees[0].amount.to_string(), "0.10");
    }

    #[test]
    fn what_is_garbled_is_refused_with_its_place() {
        for (from, to, place) in [
            ("2026-01-02T00:00:00Z", "2026-02-01T00:00:00Z", "f.data[0] is not within"),
            ("2026-01-01T00:00:00Z", "yesterday", "f.data[0].starting_at "),
            (
                "\"output_tokens\": 500",
                "\"output_tokens\": -1",
                "f.data[0].results[0].output_tokens ",
            ),
            ("\"uncached_input_tokens\"", "\"tokens\"", "f.data[0].results[0] has no "),
            ("\"data\"", "\"date\"", "f has no `data`"),
        ] {
            let error = statement(&USAGE.replacen(from, to, 1)).expect_err(to).to_string();
            assert!(error.starts_with(place), "{to}: {error}");
        }
        let error = statement(&COSTS.replacen("123.78912", "1,2", 1)).expect_err("a comma");
        assert_eq!(error.to_string(), "f.data[0].results[0].amount is not a decimal number");
    }
}
