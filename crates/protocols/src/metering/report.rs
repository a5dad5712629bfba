//! What an upstream reports: a `usage`, what it says that an answer costs, and the tier that served it.

use std::cmp::Reverse;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};
use tollgate_money::money::Nanousd;
use tollgate_money::price::{ServiceTier, Side, Traits, UNITS, Usage};

use crate::disjoint::{Contradiction, Contradictions, count};
use crate::json_scan::UsageScan;
use crate::meter::ReportedSides;

/// xAI's unit of money in a nano-dollar.
const TICKS_PER_NANOUSD: u64 = 10;

/// Parses a `usage`. Unreadable members count as missing; the others are used.
pub(crate) fn read_wire<T: DeserializeOwned>(usage: &[u8]) -> Option<T> {
    serde_json::from_slice(usage).ok().or_else(|| {
        let Value::Object(mut members) = serde_json::from_slice(usage).ok()? else { return None };
        let is_readable = |key: &str, value: &Value| {
            let alone = Map::from_iter([(key.to_owned(), value.clone())]);
            serde_json::from_value::<T>(Value::Object(alone)).is_ok()
        };
        members.retain(|key, value| {
            if let Some(number) = value.as_str().and_then(|text| text.parse::<u64>().ok()) {
                *value = number.into();
            }
            is_readable(key, value)
        });
        serde_json::from_value(Value::Object(members)).ok()
    })
}

/// True if a count in a `usage` is negative, a fraction or too large. Called only for a `usage` that the fast
/// reader could not read.
pub(crate) fn has_no_count(usage: &[u8]) -> bool {
    // Few have a sign or a point at all.
    memchr::memchr2(b'-', b'.', usage).is_some_and(|_| {
        let value = serde_json::from_slice(usage).unwrap_or_default();
        has_no_count_in(&value)
    })
}

fn has_no_count_in(value: &Value) -> bool {
    let Value::Object(members) = value else { return false };
    members.iter().any(|(key, value)| match value {
        Value::Number(number) => {
            let is_complete = number.as_u64().is_some()
                || number.as_f64().is_some_and(|it| it >= 0.0 && it.fract() == 0.0);
            !is_complete && ["tokens", "Count"].iter().any(|end| key.ends_with(end))
        }
        other => has_no_count_in(other),
    })
}

/// The `usage` of an answer to what is only read: embeddings and moderations.
#[derive(Deserialize)]
struct WireInputUsage {
    #[serde(default, deserialize_with = "count")]
    prompt_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    total_tokens: Option<u64>,
}

/// The tokens that an answer without output reports; of several reports the dearest. There is no input
/// without tokens.
pub(crate) fn input_tokens(scan: &UsageScan) -> Option<u64> {
    let tokens = |usage| {
        let usage: WireInputUsage = read_wire(usage)?;
        usage.prompt_tokens.max(usage.total_tokens)
    };
    scan.usages().filter_map(tokens).max().filter(|tokens| *tokens > 0)
}

/// Dollars as an upstream writes them, rounded up to a nano-dollar; `None` for what is no amount.
pub(crate) fn dollars(number: &Number) -> Option<Nanousd> {
    let text = number.to_string();
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((&text, "0"));
    let (whole, decimals) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{decimals}").parse::<u128>().ok()?;
    let shift = exponent.parse::<i32>().ok()?.checked_add(9)?;
    let shift = shift.checked_sub(i32::try_from(decimals.len()).ok()?)?;
    let ten = 10_u128.checked_pow(shift.unsigned_abs())?;
    let nano = if shift < 0 { digits.div_ceil(ten) } else { digits.checked_mul(ten)? };
    i64::try_from(nano).ok().map(Nanousd::new)
}

/// The operator's cost of an answer as the upstream reports it: in dollars (OpenRouter), or in ten-billionths
/// of a dollar (xAI). `None` without a valid amount. For a call paid with the operator's own key (`byok`),
/// the provider's bill is added.
pub(crate) fn cost(
    dollars_reported: Option<&Number>,
    ticks: Option<u64>,
    byok: Option<&WireCostDetails>,
) -> Option<Nanousd> {
    let ticks = ticks.map(|ticks| ticks.div_ceil(TICKS_PER_NANOUSD));
    let ticks = ticks.and_then(|nano| i64::try_from(nano).ok()).map(Nanousd::new);
    let dollars_reported = dollars_reported.and_then(dollars).or(ticks);
    let Some(provider) = byok.and_then(WireCostDetails::by_provider) else {
        return dollars_reported;
    };
    Some(dollars_reported.unwrap_or(Nanousd::ZERO).saturating_add(provider))
}

/// Costs of the provider behind OpenRouter, as OpenRouter reports them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireCostDetails {
    #[serde(deserialize_with = "if_readable")]
    upstream_inference_cost: Option<Number>,
    #[serde(deserialize_with = "if_readable")]
    upstream_inference_prompt_cost: Option<Number>,
    #[serde(deserialize_with = "if_readable")]
    upstream_inference_completions_cost: Option<Number>,
    /// Name of the cost in the Responses API.
    #[serde(deserialize_with = "if_readable")]
    upstream_inference_input_cost: Option<Number>,
    #[serde(deserialize_with = "if_readable")]
    upstream_inference_output_cost: Option<Number>,
}

impl WireCostDetails {
    fn by_provider(&self) -> Option<Nanousd> {
        let amount = |cost: &Option<Number>| cost.as_ref().and_then(dollars);
        let parts = [
            amount(&self.upstream_inference_prompt_cost)
                .or(amount(&self.upstream_inference_input_cost)),
            amount(&self.upstream_inference_completions_cost)
                .or(amount(&self.upstream_inference_output_cost)),
        ];
        let sum = parts.into_iter().flatten();
        let sum = sum.reduce(|sum, part| sum.saturating_add(part));
        amount(&self.upstream_inference_cost).or(sum)
    }
}

/// Deserializes a value that no charge depends on: an unreadable one counts as missing, and the rest of the
/// usage is used.
pub(crate) fn if_readable<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}

/// A usage report of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsageReport {
    pub(crate) usage: Usage,
    /// The report says which part of the input was read from or written to a cache.
    pub(crate) has_details: bool,
    /// Number of model runs that it covers: the model's limits hold for each.
    pub(crate) rounds: u64,
    /// Reported traits of service, such as the tier.
    pub(crate) served: Traits,
    /// Reported cost to the operator.
    pub(crate) cost: Option<Nanousd>,
    /// Contradictions within the report.
    pub(crate) contradictions: Contradictions,
}

impl UsageReport {
    /// True for an empty report.
    pub(super) fn is_empty(&self) -> bool {
        self.usage == Usage::ZERO
    }

    /// Combines two reports about one answer into the more expensive one: the larger output, the larger
    /// input, and the maximum of all other units. If the inputs are equal, the report with cache details is
    /// used, and of two such reports the smaller cached part.
    pub(super) fn dearer(self, other: Self) -> Self {
        let rank = |report: &Self| {
            let Usage {
                cache_read_tokens,
                cache_write_tokens,
                cache_write_1h_tokens,
                cache_write_12h_tokens,
                ..
            } = report.usage;
            let longer = cache_write_1h_tokens.saturating_add(cache_write_12h_tokens);
            let writes =
                (cache_write_tokens.saturating_add(longer), longer, cache_write_12h_tokens);
            (
                report.usage.input_tokens_total(),
                report.has_details,
                Reverse(cache_read_tokens),
                writes,
            )
        };
        let input = if rank(&self) > rank(&other) { self } else { other };
        let put_out = |report: &Self| report.usage.total(Side::Output);
        let output = if put_out(&self) > put_out(&other) { self.usage } else { other.usage };
        let made = self.usage.dearer(&other.usage);
        let mut usage = input.usage;
        for info in UNITS {
            match info.side {
                Side::Input => {}
                Side::Output => usage[info.unit] = output[info.unit],
                Side::Made => usage[info.unit] = made[info.unit],
            }
        }
        let rounds = self.rounds.max(other.rounds);
        let served = self.served.as_served(&other.served);
        let cost = self.cost.max(other.cost);
        let contradictions = self.contradictions.and(other.contradictions);
        Self { usage, rounds, served, cost, contradictions, ..input }
    }

    /// Adds the contradictions that the text of the `usage` shows, such as counts that are no numbers.
    pub(crate) fn with_no_counts_noted(mut self, usage: &[u8]) -> Self {
        self.contradictions.note(Contradiction::NoCount, has_no_count(usage));
        self
    }

    /// Sides of the report (input, output) with any count.
    pub(super) fn sides(&self) -> ReportedSides {
        let (input, output) = (self.usage.input_tokens_total(), self.usage.total(Side::Output));
        ReportedSides { input: input > 0, output: output > 0 }
    }

    /// Adds the report to a total.
    pub(crate) fn add_to(self, total: &mut Option<Self>) {
        *total = Some(total.map_or(self, |total| total.dearer(self)));
    }
}

/// The tier that a word stands for, with its quotes or without.
pub(crate) fn service_tier(word: &[u8]) -> Option<ServiceTier> {
    let text = word.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(word);
    std::str::from_utf8(text).ok().and_then(ServiceTier::named)
}
