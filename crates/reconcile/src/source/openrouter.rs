//! OpenRouter: `/api/v1/activity`, a line for each day, model and endpoint.
//!
//! Prompts and completions are whole: tokens from a cache are not told apart, and reasoning is a part of
//! the completion. What was billed to a key of one's own (`byok_usage_inference`) is listed apart.

use super::{Pages, list_unknown};
use crate::Femtousd;
use crate::amount::Currency;
use crate::day::Day;
use crate::json::JsonPlace;
use crate::statement::{BilledKey, BilledStatement, Measure, StatementError};

pub(super) fn read_item(
    item: &JsonPlace<'_>,
    pages: &mut Pages,
    statement: &mut BilledStatement,
) -> Result<(), StatementError> {
    pages.refuse_again("", item)?;
    let mut fields = item.fields()?;
    let date = fields.require("date")?;
    let text = date.string()?;
    let text = text.split_once([' ', 'T']).map_or(text.as_str(), |(date, _)| date);
    let day = Day::parse(text).ok_or_else(|| date.refuse("is not a date"))?;
    // Both names: the journal may have either, depending on what the configuration calls the model.
    let names = [fields.take_string("model")?, fields.take_string("model_permaslug")?];
    let key = BilledKey { day, models: names.into_iter().flatten().collect(), ids: Vec::new() };
    let prompt = fields.require("prompt_tokens")?.whole()?;
    statement.add_quantity(&key, Measure::AllInput, prompt);
    let completion = fields.require("completion_tokens")?.whole()?;
    statement.add_quantity(&key, Measure::AllOutput, completion);
    statement.add_calls(&key, fields.require("requests")?.whole()?);
    statement.add_amount(&key, None, fields.require("usage")?.amount(Currency::Dollars)?);
    if let Some(own) = fields.take("byok_usage_inference") {
        let own = own.amount(Currency::Dollars)?;
        // What our own keys at other providers paid (BYOK): OpenRouter does not bill it.
        if own != Femtousd::ZERO {
            statement.add_unused("byok_usage_inference", own);
        }
    }
    // A part of the completion.
    fields.take("reasoning_tokens");
    list_unknown(&fields, statement);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{StatementFile, read};
    use crate::statement::Provider;

    const ACTIVITY: &str = include_str!("../../fixtures/openrouter_activity.json");

    fn statement(text: &str) -> Result<BilledStatement, StatementError> {
        read(Provider::OpenRouter, &[StatementFile { name: "f", bytes: text.as_bytes() }])
    }

    #[test]
    fn activity_has_both_sides_and_the_amount() {
        let statement = statement(ACTIVITY).expect("a statement");
        let counts: Vec<_> =
            statement.quantities.iter().map(|line| (line.measure.name(), line.count)).collect();
        assert_eq!(
            counts,
            [
                ("all_input_tokens", 50),
                ("all_output_tokens", 125),
                ("all_input_tokens", 10),
                ("all_output_tokens", 20),
            ]
        );
        assert_eq!(statement.amounts[0].amount.to_string(), "0.015");
        assert_eq!(
            statement.amounts[0].key.models,
            ["openai/gpt-4.1", "openai/gpt-4.1-2025-04-14"]
        );
        assert_eq!(statement.unused[0].what, "byok_usage_inference");
        assert_eq!(statement.amount_days.len(), 3, "the day between the lines counts");
    }

    #[test]
    fn what_is_garbled_is_refused_with_its_place() {
        for (from, to, place) in [
            ("2025-08-24", "24.8.2025", "f.data[0].date "),
            ("\"requests\": 5", "\"requests\": \"5\"", "f.data[0].requests "),
            ("0.015", "1e12", "f.data[0].usage is beyond"),
        ] {
            let error = statement(&ACTIVITY.replacen(from, to, 1)).expect_err(to).to_string();
            assert!(error.starts_with(place), "{to}: {error}");
        }
    }
}
