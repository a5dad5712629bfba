//! The `usage` of chat completions, as OpenAI and its imitators write it.

use serde::Deserialize;
use tollgate_money::price::{Traits, Unit, Usage};

use crate::counts::{CountsObject, read_counts};
use crate::disjoint::{CacheWritten, InclusiveCounts, LIFETIMES, NamedCount, WireLifetimes, count};
use crate::metering::{self, UsageReport, WireCostDetails};

/// The `usage` object, as OpenAI and its imitators write it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireChatUsage {
    #[serde(deserialize_with = "count")]
    prompt_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    completion_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    total_tokens: Option<u64>,
    prompt_tokens_details: Option<WirePromptDetails>,
    completion_tokens_details: Option<WireCompletionDetails>,
    /// DeepSeek's name for cached input.
    #[serde(deserialize_with = "count")]
    prompt_cache_hit_tokens: Option<u64>,
    /// Cached input tokens at the place where Moonshot and Together count them.
    #[serde(deserialize_with = "count")]
    cached_tokens: Option<u64>,
    /// Anthropic's names, which LiteLLM has beside the details.
    #[serde(deserialize_with = "count")]
    cache_read_input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    cache_creation_input_tokens: Option<u64>,
    cache_creation: Option<WireLifetimes>,
    cache_creation_token_details: Option<WireLifetimes>,
    /// Reasoning tokens at the place where SGLang counts them; they are among the completion.
    #[serde(deserialize_with = "count")]
    reasoning_tokens: Option<u64>,
    /// Sources that xAI's search has used, each of which it bills.
    #[serde(deserialize_with = "count")]
    num_sources_used: Option<u64>,
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
    /// Searches that Qwen's models ran.
    plugins: Option<WirePlugins>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WirePlugins {
    search: Option<WireSearchPlugin>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireSearchPlugin {
    #[serde(deserialize_with = "count")]
    count: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WirePromptDetails {
    #[serde(deserialize_with = "count")]
    cached_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    audio_tokens: Option<u64>,
    /// Tokens of videos, as reported by Qwen.
    #[serde(deserialize_with = "count")]
    video_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    cache_write_tokens: Option<u64>,
    /// Qwen's name for cache writes.
    #[serde(deserialize_with = "count")]
    cache_creation_input_tokens: Option<u64>,
    /// LiteLLM's name for them.
    #[serde(deserialize_with = "count")]
    cache_creation_tokens: Option<u64>,
    /// This gateway's name for their lifetimes, and LiteLLM's.
    cache_creation: Option<WireLifetimes>,
    cache_creation_token_details: Option<WireLifetimes>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireCompletionDetails {
    #[serde(deserialize_with = "count")]
    audio_tokens: Option<u64>,
    /// Tokens of pictures, as reported by OpenRouter.
    #[serde(deserialize_with = "count")]
    image_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    reasoning_tokens: Option<u64>,
}

/// Objects with the counts of a [`WireChatUsage`].
const COUNTS: [CountsObject; 5] = [
    (
        "",
        &[
            "prompt_tokens",
            "completion_tokens",
            "total_tokens",
            "prompt_cache_hit_tokens",
            "cached_tokens",
            "cache_creation_input_tokens",
            "cache_read_input_tokens",
            "reasoning_tokens",
            "num_sources_used",
            "cost_in_usd_ticks",
            "cost",
        ],
    ),
    (
        "prompt_tokens_details",
        &[
            "cached_tokens",
            "audio_tokens",
            "cache_write_tokens",
            "cache_creation_input_tokens",
            "cache_creation_tokens",
            "video_tokens",
        ],
    ),
    ("completion_tokens_details", &["reasoning_tokens", "audio_tokens", "image_tokens"]),
    ("cache_creation", &LIFETIMES),
    ("cache_creation_token_details", &LIFETIMES),
];

impl WireChatUsage {
    pub(super) fn report(usage: &[u8], unsplit: Unit) -> Option<UsageReport> {
        if let Some(plain) = Self::plain(usage) {
            return Some(plain.to_report(unsplit));
        }
        // The slow way, for what the fast reader leaves: fractions, texts, counts that are there
        // twice.
        let read: Self = metering::read_wire(usage)?;
        Some(read.to_report(unsplit).with_no_counts_noted(usage))
    }

    /// Reads one that is written as OpenAI writes it; `None` for others.
    pub(super) fn plain(usage: &[u8]) -> Option<Self> {
        let [
            prompt_tokens,
            completion_tokens,
            total_tokens,
            prompt_cache_hit_tokens,
            cached_at_top,
            written_at_top,
            read_at_top,
            reasoning_at_top,
            num_sources_used,
            cost_in_usd_ticks,
            cost,
            cached_tokens,
            audio_input,
            cache_write_tokens,
            cache_creation_input_tokens,
            cache_creation_tokens,
            video_tokens,
            reasoning_tokens,
            audio_output,
            image_output,
            short,
            hour,
            short_again,
            hour_again,
        ] = read_counts(usage, &COUNTS)?;
        Some(Self {
            prompt_tokens,
            completion_tokens,
            total_tokens,
            prompt_tokens_details: Some(WirePromptDetails {
                cached_tokens,
                audio_tokens: audio_input,
                video_tokens,
                cache_write_tokens,
                cache_creation_input_tokens,
                cache_creation_tokens,
                ..WirePromptDetails::default()
            }),
            completion_tokens_details: Some(WireCompletionDetails {
                audio_tokens: audio_output,
                image_tokens: image_output,
                reasoning_tokens,
            }),
            prompt_cache_hit_tokens,
            cached_tokens: cached_at_top,
            cache_read_input_tokens: read_at_top,
            cache_creation_input_tokens: written_at_top,
            cache_creation: WireLifetimes::plain(short, hour),
            cache_creation_token_details: WireLifetimes::plain(short_again, hour_again),
            reasoning_tokens: reasoning_at_top,
            num_sources_used,
            cost: cost.map(serde_json::Number::from),
            cost_in_usd_ticks,
            ..Self::default()
        })
    }

    /// The usage in disjoint kinds. `unsplit` is the unit of cache writes without a lifetime.
    pub(super) fn to_report(&self, unsplit: Unit) -> UsageReport {
        let totals = self.totals(unsplit);
        let has_details = totals.read.is_there() || totals.written.is_there();
        let (usage, contradictions) = totals.disjoint();
        let search = self.plugins.as_ref().and_then(|plugins| plugins.search.as_ref());
        // xAI and Qwen report searches in two places, and no upstream is both.
        let searches = self.num_sources_used.or(search.and_then(|search| search.count));
        let usage = Usage { web_searches: searches.unwrap_or(0), ..usage };
        let served = Traits { thinking: self.thinks(), ..Traits::default() };
        // Only then is the provider's bill beside OpenRouter's own cost; otherwise it is contained
        // in it.
        let byok = self.cost_details.as_ref().filter(|_| self.is_byok == Some(true));
        let cost = metering::cost(self.cost.as_ref(), self.cost_in_usd_ticks, byok);
        UsageReport { usage, has_details, rounds: 1, served, cost, contradictions }
    }

    /// The counts of prompt and completion. xAI counts reasoning beside `completion_tokens`, and Gemini its
    /// reasoning nowhere but in the total.
    fn totals(&self, unsplit: Unit) -> InclusiveCounts {
        let nothing = (WirePromptDetails::default(), WireCompletionDetails::default());
        let prompt = self.prompt_tokens_details.as_ref().unwrap_or(&nothing.0);
        let completion = self.completion_tokens_details.as_ref().unwrap_or(&nothing.1);
        let written = NamedCount::from_values(&[
            prompt.cache_write_tokens,
            prompt.cache_creation_input_tokens,
            prompt.cache_creation_tokens,
            self.cache_creation_input_tokens,
        ]);
        let lifetimes = [
            prompt.cache_creation,
            prompt.cache_creation_token_details,
            self.cache_creation,
            self.cache_creation_token_details,
        ];
        InclusiveCounts {
            prompt: self.prompt_tokens,
            read: NamedCount::from_values(&[
                prompt.cached_tokens,
                self.prompt_cache_hit_tokens,
                self.cached_tokens,
                self.cache_read_input_tokens,
            ]),
            written: CacheWritten::new(written, &lifetimes),
            audio_input: prompt.audio_tokens.unwrap_or(0),
            video_input: prompt.video_tokens.unwrap_or(0),
            output: self.completion_tokens.unwrap_or(0),
            reasoning: completion.reasoning_tokens.max(self.reasoning_tokens).unwrap_or(0),
            audio_output: completion.audio_tokens.unwrap_or(0),
            image_output: completion.image_tokens.unwrap_or(0),
            total: self.total_tokens,
            ..InclusiveCounts::new(unsplit)
        }
    }

    /// True if the usage shows that the model has reasoned; `None` without a count.
    fn thinks(&self) -> Option<bool> {
        let details = self.completion_tokens_details.as_ref();
        let tokens = details.and_then(|details| details.reasoning_tokens);
        tokens.or(self.reasoning_tokens).map(|tokens| tokens > 0)
    }
}
