//! The `usage` of responses, as OpenAI and its imitators write it.

use serde::Deserialize;
use tollgate_money::price::{Traits, Unit};

use crate::counts::{CountsObject, read_counts};
use crate::disjoint::{CacheWritten, InclusiveCounts, LIFETIMES, NamedCount, WireLifetimes, count};
use crate::metering::{self, UsageReport, WireCostDetails};

/// Reads the `usage` object of a response. `unsplit` is the unit of cache writes without a reported lifetime.
pub(crate) fn report(usage: &[u8], unsplit: Unit) -> Option<UsageReport> {
    if let Some(plain) = WireResponsesUsage::plain(usage) {
        return Some(plain.to_report(unsplit));
    }
    let read: WireResponsesUsage = metering::read_wire(usage)?;
    Some(read.to_report(unsplit).with_no_counts_noted(usage))
}

/// The `usage` object. `input_tokens` holds what the cache has read or written, `output_tokens` the
/// reasoning.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireResponsesUsage {
    #[serde(deserialize_with = "count")]
    input_tokens: Option<u64>,
    input_tokens_details: Option<WireInputDetails>,
    #[serde(deserialize_with = "count")]
    output_tokens: Option<u64>,
    output_tokens_details: Option<WireOutputDetails>,
    #[serde(deserialize_with = "count")]
    total_tokens: Option<u64>,
    /// Anthropic's names, which LiteLLM has beside the details.
    #[serde(deserialize_with = "count")]
    cache_read_input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    cache_creation_input_tokens: Option<u64>,
    cache_creation: Option<WireLifetimes>,
    cache_creation_token_details: Option<WireLifetimes>,
    /// OpenRouter's charge to the operator, in dollars.
    #[serde(deserialize_with = "metering::if_readable")]
    cost: Option<serde_json::Number>,
    /// True if a key of the operator's own has paid OpenRouter's provider; [`WireCostDetails`] has the
    /// amount.
    #[serde(deserialize_with = "metering::if_readable")]
    is_byok: Option<bool>,
    #[serde(deserialize_with = "metering::if_readable")]
    cost_details: Option<WireCostDetails>,
    /// xAI's charge to the operator, in ten-billionths of a dollar.
    #[serde(deserialize_with = "metering::if_readable")]
    cost_in_usd_ticks: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireInputDetails {
    #[serde(deserialize_with = "count")]
    cached_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    cache_write_tokens: Option<u64>,
    cache_write_tokens_details: Option<WireWriteDetails>,
    #[serde(deserialize_with = "count")]
    audio_tokens: Option<u64>,
    /// Names of cache writes at Qwen, and at LiteLLM.
    #[serde(deserialize_with = "count")]
    cache_creation_input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    cache_creation_tokens: Option<u64>,
    /// This gateway's name for their lifetimes, and LiteLLM's.
    cache_creation: Option<WireLifetimes>,
    cache_creation_token_details: Option<WireLifetimes>,
}

/// Tokens written to the cache, by lifetime.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct WireWriteDetails {
    #[serde(deserialize_with = "count")]
    ttl_30m_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    ttl_12h_tokens: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireOutputDetails {
    #[serde(deserialize_with = "count")]
    reasoning_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    audio_tokens: Option<u64>,
}

/// Objects with the counts of a [`WireResponsesUsage`].
const COUNTS: [CountsObject; 5] = [
    (
        "",
        &[
            "input_tokens",
            "output_tokens",
            "total_tokens",
            "cache_creation_input_tokens",
            "cache_read_input_tokens",
            "cost_in_usd_ticks",
            "cost",
        ],
    ),
    (
        "input_tokens_details",
        &[
            "cached_tokens",
            "cache_write_tokens",
            "audio_tokens",
            "cache_creation_input_tokens",
            "cache_creation_tokens",
        ],
    ),
    ("output_tokens_details", &["reasoning_tokens", "audio_tokens"]),
    ("cache_creation", &LIFETIMES),
    ("cache_creation_token_details", &LIFETIMES),
];

impl WireResponsesUsage {
    /// Reads one that is written as OpenAI writes it; `None` for others.
    pub(super) fn plain(usage: &[u8]) -> Option<Self> {
        let [
            input_tokens,
            output_tokens,
            total_tokens,
            written_at_top,
            read_at_top,
            cost_in_usd_ticks,
            cost,
            cached_tokens,
            cache_write_tokens,
            audio_input,
            cache_creation_input_tokens,
            cache_creation_tokens,
            reasoning_tokens,
            audio_output,
            short,
            hour,
            short_again,
            hour_again,
        ] = read_counts(usage, &COUNTS)?;
        Some(Self {
            input_tokens,
            input_tokens_details: Some(WireInputDetails {
                cached_tokens,
                cache_write_tokens,
                audio_tokens: audio_input,
                cache_creation_input_tokens,
                cache_creation_tokens,
                ..WireInputDetails::default()
            }),
            output_tokens,
            output_tokens_details: Some(WireOutputDetails {
                reasoning_tokens,
                audio_tokens: audio_output,
            }),
            total_tokens,
            cache_read_input_tokens: read_at_top,
            cache_creation_input_tokens: written_at_top,
            cache_creation: WireLifetimes::plain(short, hour),
            cache_creation_token_details: WireLifetimes::plain(short_again, hour_again),
            cost: cost.map(serde_json::Number::from),
            cost_in_usd_ticks,
            ..Self::default()
        })
    }

    /// The usage in disjoint kinds.
    fn to_report(&self, unsplit: Unit) -> UsageReport {
        let totals = self.totals(unsplit);
        let has_details = totals.read.is_there() || totals.written.is_there();
        let (usage, contradictions) = totals.disjoint();
        let reasoning =
            self.output_tokens_details.as_ref().and_then(|details| details.reasoning_tokens);
        let thinking = reasoning.map(|tokens| tokens > 0);
        let served = Traits { thinking, ..Traits::default() };
        // Only then is the provider's bill beside OpenRouter's own cost; otherwise it is contained
        // in it.
        let byok = self.cost_details.as_ref().filter(|_| self.is_byok == Some(true));
        let cost = metering::cost(self.cost.as_ref(), self.cost_in_usd_ticks, byok);
        UsageReport { usage, has_details, rounds: 1, served, cost, contradictions }
    }

    /// Cache writes: for the usual time and twelve hours by OpenAI's words, for other times by Anthropic's.
    fn written(&self, total: NamedCount, lifetimes: &[Option<WireLifetimes>]) -> CacheWritten {
        let written = CacheWritten::new(total, lifetimes);
        let details = self.input_tokens_details.as_ref();
        let split = details.and_then(|details| details.cache_write_tokens_details);
        let split = split.unwrap_or_default();
        CacheWritten {
            // One of both shapes is reported; where an imitator writes both, the dearer reading
            // counts (ADR 16).
            short: written.short.max(split.ttl_30m_tokens.unwrap_or(0)),
            twelve_hours: split.ttl_12h_tokens.unwrap_or(0),
            ..written
        }
    }

    /// The counts of input and output. Some imitators count reasoning beside the output, as some do for chat.
    fn totals(&self, unsplit: Unit) -> InclusiveCounts {
        let nothing = (WireInputDetails::default(), WireOutputDetails::default());
        let input = self.input_tokens_details.as_ref().unwrap_or(&nothing.0);
        let output = self.output_tokens_details.as_ref().unwrap_or(&nothing.1);
        let written = NamedCount::from_values(&[
            input.cache_write_tokens,
            input.cache_creation_input_tokens,
            input.cache_creation_tokens,
            self.cache_creation_input_tokens,
        ]);
        let lifetimes = [
            input.cache_creation,
            input.cache_creation_token_details,
            self.cache_creation,
            self.cache_creation_token_details,
        ];
        InclusiveCounts {
            prompt: self.input_tokens,
            read: NamedCount::from_values(&[input.cached_tokens, self.cache_read_input_tokens]),
            written: self.written(written, &lifetimes),
            audio_input: input.audio_tokens.unwrap_or(0),
            output: self.output_tokens.unwrap_or(0),
            reasoning: output.reasoning_tokens.unwrap_or(0),
            audio_output: output.audio_tokens.unwrap_or(0),
            total: self.total_tokens,
            ..InclusiveCounts::new(unsplit)
        }
    }
}
