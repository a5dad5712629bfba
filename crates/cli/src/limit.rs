//! Command-line options for limits of accounts and keys: a number, or `none`.

use clap::Args;
use serde_json::{Map, Value};

use super::exit::{Failure, USAGE};

/// Options for rate limits.
#[derive(Args, Debug)]
pub(super) struct RateOptions {
    /// Requests a minute, or `none` for the configuration's limit.
    #[arg(long, value_name = "COUNT", value_parser = count)]
    requests_per_minute: Option<Value>,
    /// Tokens a minute, or `none` for the configuration's limit.
    #[arg(long, value_name = "COUNT", value_parser = count)]
    tokens_per_minute: Option<Value>,
    /// Concurrent requests, or `none` for the configuration's limit.
    #[arg(long, value_name = "COUNT", value_parser = count)]
    concurrent_requests: Option<Value>,
}

/// Options for a key's rate and spend limits.
#[derive(Args, Debug)]
pub(super) struct KeyLimitOptions {
    #[command(flatten)]
    rates: RateOptions,
    /// US dollars a day, such as `5.00`, or `none`.
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    spend_per_day: Option<Value>,
    /// US dollars a month, such as `100.00`, or `none`.
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    spend_per_month: Option<Value>,
}

/// Options for requests that exceed their account's balance.
#[derive(Args, Debug)]
pub(super) struct HoldOptions {
    /// Means in order, such as `credit,count,clamp,rolling`; `none` for no means, `default` for the
    /// configuration's.
    #[arg(long, value_name = "MEANS", value_parser = means)]
    means: Option<Value>,
    /// Lowest output limit of a clamped request, in tokens, or `default`.
    #[arg(long, value_name = "TOKENS", value_parser = figure)]
    output_floor: Option<Value>,
    /// First slice of a rolling hold, in tokens, or `default`.
    #[arg(long, value_name = "TOKENS", value_parser = figure)]
    slice: Option<Value>,
    /// Longest wait for money of earlier calls, in milliseconds, or `default`.
    #[arg(long, value_name = "MS", value_parser = figure)]
    wait_ms: Option<Value>,
}

impl HoldOptions {
    pub(super) fn fields(self) -> Vec<JsonField> {
        vec![
            ("means", self.means),
            ("output_floor", self.output_floor),
            ("slice", self.slice),
            ("wait_ms", self.wait_ms),
        ]
    }
}

/// An admin API field and its argument.
pub(super) type JsonField = (&'static str, Option<Value>);

impl RateOptions {
    pub(super) fn fields(self) -> Vec<JsonField> {
        vec![
            ("requests_per_minute", self.requests_per_minute),
            ("tokens_per_minute", self.tokens_per_minute),
            ("concurrent_requests", self.concurrent_requests),
        ]
    }
}

impl KeyLimitOptions {
    pub(super) fn fields(self) -> Vec<JsonField> {
        let mut fields = self.rates.fields();
        fields.push(("spend_per_day", self.spend_per_day));
        fields.push(("spend_per_month", self.spend_per_month));
        fields
    }
}

/// Fields with an argument.
pub(super) fn typed(fields: Vec<JsonField>) -> Map<String, Value> {
    let typed = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    typed.collect()
}

/// Fields with an argument, at least one.
///
/// # Errors
/// No field has an argument.
pub(super) fn given(fields: Vec<JsonField>) -> anyhow::Result<Map<String, Value>> {
    let typed = typed(fields);
    if typed.is_empty() {
        // A change of nothing would succeed and hide a misspelt option.
        let message = "nothing is to be changed: name a field".to_owned();
        let help = Some("`--help` lists the fields".to_owned());
        return Err(Failure { code: USAGE, message, help }.into());
    }
    Ok(typed)
}

fn count(text: &str) -> Result<Value, String> {
    match text {
        "none" => Ok(Value::Null),
        text => text.parse::<u32>().map(Value::from).map_err(|error| error.to_string()),
    }
}

fn figure(text: &str) -> Result<Value, String> {
    match text {
        "default" => Ok(Value::Null),
        text => text.parse::<u64>().map(Value::from).map_err(|error| error.to_string()),
    }
}

/// Parse means; unknown words are left to the gateway to report.
#[expect(clippy::unnecessary_wraps, reason = "clap wants a parser")]
fn means(text: &str) -> Result<Value, String> {
    Ok(match text {
        "default" => Value::Null,
        "none" => Value::Array(Vec::new()),
        words => words.split(',').map(|word| Value::from(word.trim())).collect(),
    })
}

/// Parse an amount; dollars stay text for the gateway to validate.
#[expect(clippy::unnecessary_wraps, reason = "clap wants a parser")]
pub(super) fn amount(text: &str) -> Result<Value, String> {
    // The gateway parses amounts: two parsers could round differently.
    Ok(if text == "none" { Value::Null } else { Value::from(text) })
}
