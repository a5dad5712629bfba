//! `usageMetadata`: what Google counts, in disjoint kinds.

use serde::Deserialize;

use crate::disjoint::{InclusiveCounts, NamedCount, count};
use crate::metering::{self, UsageReport};
use tollgate_money::price::{ServiceTier, Traits, Unit};

/// The `usageMetadata` object. `promptTokenCount` has what a cache has read in it, and
/// `candidatesTokenCount` leaves out what was thought.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireContentUsage {
    #[serde(deserialize_with = "count")]
    prompt_token_count: Option<u64>,
    #[serde(deserialize_with = "count")]
    cached_content_token_count: Option<u64>,
    /// Prompt tokens from tools that the upstream ran, beside `promptTokenCount`.
    #[serde(deserialize_with = "count")]
    tool_use_prompt_token_count: Option<u64>,
    #[serde(deserialize_with = "count")]
    candidates_token_count: Option<u64>,
    #[serde(deserialize_with = "count")]
    thoughts_token_count: Option<u64>,
    #[serde(deserialize_with = "count")]
    total_token_count: Option<u64>,
    prompt_tokens_details: Option<Vec<WireModality>>,
    cache_tokens_details: Option<Vec<WireModality>>,
    tool_use_prompt_tokens_details: Option<Vec<WireModality>>,
    candidates_tokens_details: Option<Vec<WireModality>>,
    /// Traffic class that served the request.
    #[serde(deserialize_with = "metering::if_readable")]
    traffic_type: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireModality {
    modality: String,
    #[serde(deserialize_with = "count")]
    token_count: Option<u64>,
}

/// The tokens of one modality.
fn modality_tokens(details: Option<&Vec<WireModality>>, modality: &str) -> u64 {
    let all = details.into_iter().flatten().filter(|one| one.modality == modality);
    all.filter_map(|one| one.token_count).fold(0, u64::saturating_add)
}

impl WireContentUsage {
    pub(super) fn report(usage: &[u8]) -> Option<UsageReport> {
        let read: Self = metering::read_wire(usage)?;
        Some(read.to_report().with_no_counts_noted(usage))
    }

    fn to_report(&self) -> UsageReport {
        let content = self.candidates_token_count.unwrap_or(0);
        let thought = self.thoughts_token_count.unwrap_or(0);
        let totals = InclusiveCounts {
            prompt: self.prompt_token_count,
            beside_prompt: self.tool_use_prompt_token_count.unwrap_or(0),
            read: NamedCount::from_values(&[self.cached_content_token_count]),
            audio_input: self.input_of("AUDIO"),
            image_input: self.input_of("IMAGE"),
            video_input: self.input_of("VIDEO"),
            output: content.saturating_add(thought),
            audio_output: modality_tokens(self.candidates_tokens_details.as_ref(), "AUDIO"),
            total: self.total_token_count,
            ..InclusiveCounts::new(Unit::CacheWriteTokens)
        };
        let has_details = totals.read.is_there();
        let (usage, contradictions) = totals.disjoint();
        let thinking = self.thoughts_token_count.map(|tokens| tokens > 0);
        let served = Traits { thinking, service_tier: self.tier(), ..Traits::default() };
        UsageReport { usage, has_details, rounds: 1, served, cost: None, contradictions }
    }

    /// Tier that served the request, which can differ from the requested one.
    fn tier(&self) -> Option<ServiceTier> {
        match self.traffic_type.as_deref()? {
            "ON_DEMAND" => Some(ServiceTier::Default),
            "ON_DEMAND_PRIORITY" => Some(ServiceTier::Priority),
            "ON_DEMAND_FLEX" => Some(ServiceTier::Flex),
            _ => None,
        }
    }

    /// The input of one modality that no cache has read.
    fn input_of(&self, modality: &str) -> u64 {
        let prompt = modality_tokens(self.prompt_tokens_details.as_ref(), modality);
        let cached = modality_tokens(self.cache_tokens_details.as_ref(), modality);
        let server_calls = modality_tokens(self.tool_use_prompt_tokens_details.as_ref(), modality);
        prompt.saturating_sub(cached).saturating_add(server_calls)
    }
}
