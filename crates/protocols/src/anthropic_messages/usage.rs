//! The `usage` of messages, whole or in the pieces in which a stream reports it.

use serde::Deserialize;
use tollgate_money::price::{InferenceGeo, Speed, Traits, Unit, Usage};

use crate::disjoint::{CacheWritten, Contradictions, NamedCount, WireLifetimes, count};
use crate::metering::{self, UsageReport};

/// The `usage` object. `input_tokens` leaves out what the cache has read or written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireMessagesUsage {
    #[serde(deserialize_with = "count")]
    input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    cache_read_input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    cache_creation_input_tokens: Option<u64>,
    cache_creation: Option<WireLifetimes>,
    #[serde(deserialize_with = "count")]
    pub(super) output_tokens: Option<u64>,
    server_tool_use: Option<WireServerToolUse>,
    service_tier: Option<String>,
    speed: Option<String>,
    inference_geo: Option<String>,
    /// The rounds of a request that compacts its context; the figures above are the last one's.
    iterations: Option<Vec<WireMessagesUsage>>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct WireServerToolUse {
    #[serde(deserialize_with = "count")]
    web_search_requests: Option<u64>,
}

impl WireMessagesUsage {
    pub(super) fn report(usage: &[u8], unsplit: Unit) -> Option<UsageReport> {
        let read: Self = metering::read_wire(usage)?;
        Some(read.to_report(unsplit).with_no_counts_noted(usage))
    }

    /// Merges a later report. Reports are cumulative, and later ones omit unchanged counts.
    pub(super) fn update(&mut self, later: Self) {
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.cache_read_input_tokens =
            later.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.cache_creation_input_tokens =
            later.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
        self.cache_creation = later.cache_creation.or(self.cache_creation.take());
        self.output_tokens = later.output_tokens.or(self.output_tokens);
        self.server_tool_use = later.server_tool_use.or(self.server_tool_use);
        self.service_tier = later.service_tier.or(self.service_tier.take());
        self.speed = later.speed.or(self.speed.take());
        self.inference_geo = later.inference_geo.or(self.inference_geo.take());
        self.iterations = later.iterations.or(self.iterations.take());
    }

    /// The usage in disjoint kinds. `unsplit` is the unit of cache writes without a lifetime.
    pub(super) fn to_report(&self, unsplit: Unit) -> UsageReport {
        let mut found = Contradictions::default();
        let iterations = self.iterations.as_deref().unwrap_or_default();
        let sum = iterations
            .iter()
            .map(|round| round.flat(unsplit, &mut found))
            .fold(Usage::ZERO, |sum, round| combine(sum, round, u64::saturating_add));
        // Whether the top-level figures are the last round's or the sum of all, the larger one is
        // charged.
        let usage = combine(self.flat(unsplit, &mut found), sum, u64::max);
        let rounds = iterations.len().max(1) as u64;
        UsageReport {
            usage,
            has_details: true,
            rounds,
            served: self.served(),
            cost: None,
            contradictions: found,
        }
    }

    fn served(&self) -> Traits {
        let tier = self.service_tier.as_deref().map(str::as_bytes);
        Traits {
            service_tier: tier.and_then(metering::service_tier),
            speed: self.speed.as_deref().and_then(Speed::of),
            inference_geo: self.inference_geo.as_deref().and_then(InferenceGeo::of),
            ..Traits::default()
        }
    }

    fn flat(&self, unsplit: Unit, found: &mut Contradictions) -> Usage {
        let searches = self.server_tool_use.unwrap_or_default().web_search_requests;
        let mut usage = Usage {
            input_tokens: self.input_tokens.unwrap_or(0),
            cache_read_tokens: self.cache_read_input_tokens.unwrap_or(0),
            output_tokens: self.output_tokens.unwrap_or(0),
            web_searches: searches.unwrap_or(0),
            ..Usage::ZERO
        };
        let total = NamedCount::from_values(&[self.cache_creation_input_tokens]);
        CacheWritten::new(total, &[self.cache_creation]).add_to(&mut usage, unsplit, found);
        usage
    }
}

fn combine(a: Usage, b: Usage, with: fn(u64, u64) -> u64) -> Usage {
    Usage {
        input_tokens: with(a.input_tokens, b.input_tokens),
        cache_read_tokens: with(a.cache_read_tokens, b.cache_read_tokens),
        cache_write_tokens: with(a.cache_write_tokens, b.cache_write_tokens),
        cache_write_1h_tokens: with(a.cache_write_1h_tokens, b.cache_write_1h_tokens),
        output_tokens: with(a.output_tokens, b.output_tokens),
        web_searches: with(a.web_searches, b.web_searches),
        ..Usage::ZERO
    }
}
