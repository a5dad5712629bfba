//! Limits of accounts and keys, as they are typed: a figure, or `none`.

use clap::Args;
use serde_json::{Map, Value};

use super::exit::{Failure, USAGE};

/// How much may be used.
#[derive(Args, Debug)]
pub(super) struct RateOptions {
    /// Requests a minute, or `none` for the configuration's limit.
    #[arg(long, value_name = "COUNT", value_parser = count)]
    requests_per_minute: Option<Value>,
    /// Tokens a minute, or `none` for the configuration's limit.
    #[arg(long, value_name = "COUNT", value_parser = count)]
    tokens_per_minute: Option<Value>,
    /// Requests at one time, or `none` for the configuration's limit.
    #[arg(long, value_name = "COUNT", value_parser = count)]
    concurrent_requests: Option<Value>,
}

/// How much a key may be used, and spend.
#[derive(Args, Debug)]
pub(super) struct KeyLimits {
    #[command(flatten)]
    rates: RateOptions,
    /// US dollars a day, such as `5.00`, or `none`.
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    spend_per_day: Option<Value>,
    /// US dollars a month, such as `100.00`, or `none`.
    #[arg(long, value_name = "AMOUNT", value_parser = amount)]
    spend_per_month: Option<Value>,
}

/// Rules for requests that do not fit the money of their account.
#[derive(Args, Debug)]
pub(super) struct HoldOptions {
    /// The means in their order, such as `credit,count,clamp,rolling`; `none` for no means, `default`
    /// for the configuration's.
    #[arg(long, value_name = "MEANS", value_parser = means)]
    means: Option<Value>,
    /// The lowest output limit of a clamped request, in tokens, or `default`.
    #[arg(long, value_name = "TOKENS", value_parser = figure)]
    output_floor: Option<Value>,
    /// The first slice of a rolling hold, in tokens, or `default`.
    #[arg(long, value_name = "TOKENS", value_parser = figure)]
    slice: Option<Value>,
    /// The longest wait for money of the calls before, in milliseconds, or `default`.
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

/// A field of the admin API, and what was typed for it.
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

impl KeyLimits {
    pub(super) fn fields(self) -> Vec<JsonField> {
        let mut fields = self.rates.fields();
        fields.push(("spend_per_day", self.spend_per_day));
        fields.push(("spend_per_month", self.spend_per_month));
        fields
    }
}

/// Those of the fields that were typed.
pub(super) fn typed(fields: Vec<JsonField>) -> Map<String, Value> {
    let typed = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    typed.collect()
}

/// The fields that were typed, of which there must be one at least.
///
/// # Errors
/// When nothing was typed.
pub(super) fn given(fields: Vec<JsonField>) -> anyhow::Result<Map<String, Value>> {
    let typed = typed(fields);
    if typed.is_empty() {
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

/// The gateway says which words it does not know.
#[expect(clippy::unnecessary_wraps, reason = "clap wants a parser")]
fn means(text: &str) -> Result<Value, String> {
    Ok(match text {
        "default" => Value::Null,
        "none" => Value::Array(Vec::new()),
        words => words.split(',').map(|word| Value::from(word.trim())).collect(),
    })
}

/// Dollars stay the text that was typed: the gateway reads them, and says what is wrong with them.
#[expect(clippy::unnecessary_wraps, reason = "clap wants a parser")]
pub(super) fn amount(text: &str) -> Result<Value, String> {
    Ok(if text == "none" { Value::Null } else { Value::from(text) })
}
