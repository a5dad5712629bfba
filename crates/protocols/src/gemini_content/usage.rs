//! `usageMetadata`: what Google counts, in disjoint kinds.

use serde::Deserialize;

use crate::metering::{self, UsageReport};
use tollgate_money::price::{ServiceTier, Traits, Usage};

/// The `usageMetadata` object. `promptTokenCount` has what a cache has read in it, and
/// `candidatesTokenCount` leaves out what was thought.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct WireContentUsage {
    prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    /// What tools that the upstream has run have put into the prompt, beside `promptTokenCount`.
    tool_use_prompt_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
    total_token_count: Option<u64>,
    prompt_tokens_details: Option<Vec<WireModality>>,
    cache_tokens_details: Option<Vec<WireModality>>,
    tool_use_prompt_tokens_details: Option<Vec<WireModality>>,
    candidates_tokens_details: Option<Vec<WireModality>>,
    /// How the request was served.
    #[serde(deserialize_with = "metering::if_readable")]
    traffic_type: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireModality {
    modality: String,
    token_count: u64,
}

/// The tokens of one modality.
fn of_modality(details: Option<&Vec<WireModality>>, modality: &str) -> u64 {
    let all = details.into_iter().flatten().filter(|one| one.modality == modality);
    all.fold(0, |sum, one| sum.saturating_add(one.token_count))
}

impl WireContentUsage {
    pub(super) fn report(usage: &[u8]) -> Option<UsageReport> {
        metering::read_wire(usage).map(|usage: Self| usage.to_report())
    }

    fn to_report(&self) -> UsageReport {
        let prompt = self.prompt_token_count.unwrap_or(0);
        let read = self.cached_content_token_count.unwrap_or(0).min(prompt);
        let ran = self.tool_use_prompt_token_count.unwrap_or(0);
        let rest = prompt.saturating_sub(read).saturating_add(ran);
        let heard = self.input_of("AUDIO").min(rest);
        let seen = self.input_of("IMAGE").min(rest.saturating_sub(heard));
        let watched = self.input_of("VIDEO");
        let watched = watched.min(rest.saturating_sub(heard).saturating_sub(seen));
        let output = self.output_tokens();
        let spoken = of_modality(self.candidates_tokens_details.as_ref(), "AUDIO").min(output);
        let usage = Usage {
            input_tokens: rest.saturating_sub(heard).saturating_sub(seen).saturating_sub(watched),
            audio_input_tokens: heard,
            image_input_tokens: seen,
            video_input_tokens: watched,
            cache_read_tokens: read,
            output_tokens: output.saturating_sub(spoken),
            audio_output_tokens: spoken,
            ..Usage::ZERO
        };
        let thinking = self.thoughts_token_count.map(|tokens| tokens > 0);
        UsageReport {
            usage,
            has_details: self.cached_content_token_count.is_some(),
            rounds: 1,
            served: Traits { thinking, service_tier: self.tier(), ..Traits::default() },
            cost: None,
        }
    }

    /// The tier that has served the request: one that was asked for can be busy.
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
        let prompt = of_modality(self.prompt_tokens_details.as_ref(), modality);
        let cached = of_modality(self.cache_tokens_details.as_ref(), modality);
        let ran = of_modality(self.tool_use_prompt_tokens_details.as_ref(), modality);
        prompt.saturating_sub(cached).saturating_add(ran)
    }

    /// All output, thoughts included: no less than what the total has beside the input.
    fn output_tokens(&self) -> u64 {
        let said = self.candidates_token_count.unwrap_or(0);
        let thought = self.thoughts_token_count.unwrap_or(0);
        let prompt = self.prompt_token_count.unwrap_or(0);
        let input = prompt.saturating_add(self.tool_use_prompt_token_count.unwrap_or(0));
        let beyond = self.total_token_count.unwrap_or(0).saturating_sub(input);
        said.saturating_add(thought).max(beyond)
    }
}
