//! `POST /v1/chat/completions` over upstreams that speak OpenAI's protocol.
//!
//! Spec sections 2.1 and 8. Stream chunks and usage figures: OpenAI's API reference, "Chat
//! completions", and the differences of its imitators that are named where they are read.

use std::ops::{Range, RangeInclusive};

use serde::Deserialize;

use super::allowed_keys::AllowedKey;
use super::counts::{CountsObject, read_counts};
use super::disjoint::{
    CACHE_CONTROL, CacheWritten, InclusiveCounts, LIFETIMES, NamedCount, RequestedLifetime,
    WireLifetimes, count,
};
use super::fields;
use super::json::{Object, Value};
use super::limits::{MissingUsage, ModelLimits};
use super::metering::{
    self, JsonMeter, MeterContext, StreamMeter, StreamState, TextTally, ThoughtScan, UsageReport,
    WireCostDetails,
};
use super::splice::Splice;
use super::sse::EventAction;
use super::{
    Call, Codec, Dialect, Framing, Meter, Operation, Request, RequestBounds, request_policy,
};
use tollgate_money::price::{InputWays, Traits, Unit, Usage};
use tollgate_types::error::GatewayError;

mod chunk;

use chunk::Chunk;

/// Ranges of spec section 8.
const RANGES: [(&str, RangeInclusive<f64>); 4] = [
    ("temperature", 0.0..=2.0),
    ("top_p", 0.0..=1.0),
    ("presence_penalty", -2.0..=2.0),
    ("frequency_penalty", -2.0..=2.0),
];
/// Stop sequences at most (spec section 8).
const STOP_MAX: usize = 4;
/// Choices at most: OpenAI's own limit for `n`.
const CHOICES_MAX: u64 = 128;

/// The codec of OpenAI's chat completions.
#[derive(Debug)]
pub struct OpenaiChat;

impl Codec for OpenaiChat {
    fn operation(&self) -> Operation {
        Operation::Chat
    }

    fn dialects(&self) -> &'static [Dialect] {
        &[Dialect::Openai]
    }

    fn path(&self) -> &'static str {
        "/chat/completions"
    }

    fn allowed_keys(&self) -> Vec<AllowedKey> {
        AllowedKey::of_allowlist(&request_policy::CHAT)
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        let prompt = request_policy::read(body, &request_policy::CHAT, limits)?;
        fields::check_messages(body)?;
        for (field, range) in RANGES {
            check_range(body, field, &range)?;
        }
        check_stop(body)?;
        let choices = fields::integer(body, "n", 1..=CHOICES_MAX)?.unwrap_or(1);
        let requested = fields::output_tokens(body, "max_tokens", 1, limits)?
            .max(fields::output_tokens(body, "max_completion_tokens", 1, limits)?);
        // Some models make them unasked.
        let makes_pictures = limits.priced.has_unit(Unit::ImageOutputTokens);
        let hidden = hidden_tokens(body, limits);
        let asks_for_hidden = hidden > 0 || asks_for_reasoning(body);
        let output = requested.unwrap_or(limits.output_tokens_max).saturating_add(hidden);
        let bounds =
            RequestBounds::from_prompt(body, &prompt, limits, output.saturating_mul(choices))?
                .with_output_limit(requested, limits.output_tokens_max, choices);
        Ok(Box::new(ChatCall {
            usage_options: if bounds.stream {
                UsageOptions::read(body)?
            } else {
                UsageOptions::Requested
            },
            is_all_shown: prompt.is_plain()
                && !limits.reasoning
                && !makes_pictures
                && !asks_for_hidden,
            estimates_unreported: limits.missing_usage == MissingUsage::Estimate
                && prompt.is_plain()
                && !makes_pictures
                && !asks_for_hidden
                && body.get_non_null("stop").is_none(),
            unsplit: prompt
                .written_as
                .unwrap_or_else(|| RequestedLifetime::in_body(body, &CACHE_CONTROL).unsplit()),
            input_ways: prompt.input_ways(),
            sounds: body.get_non_null("audio").is_some(),
            makes_pictures,
            is_thinking_priced: limits.priced.thinking,
            traits: Traits {
                service_tier: fields::service_tier(body),
                thinking: thinking(body),
                ..Traits::default()
            },
            bounds,
            model_limits: Usage {
                input_tokens: limits.input_tokens_max,
                output_tokens: limits.output_tokens_max.saturating_mul(choices),
                ..Usage::default()
            },
        }))
    }
}

fn check_range(
    body: &Object<'_>,
    field: &'static str,
    range: &RangeInclusive<f64>,
) -> Result<(), GatewayError> {
    match body.get_non_null(field).map(|value| value.as_f64()) {
        None => Ok(()),
        Some(Some(number)) if range.contains(&number) => Ok(()),
        Some(_) => Err(GatewayError::invalid(
            field,
            format!("`{field}` must be a number from {} to {}", range.start(), range.end()),
        )),
    }
}

fn check_stop(body: &Object<'_>) -> Result<(), GatewayError> {
    let Some(stop) = body.get_non_null("stop") else { return Ok(()) };
    let is_text = |value: &Value<'_>| value.text().starts_with(b"\"");
    let are_few_texts = || {
        let mut all = stop.elements()?;
        let are_texts = all.by_ref().take(STOP_MAX).all(|one| is_text(&one));
        Some(are_texts && all.next().is_none())
    };
    if is_text(&stop) || are_few_texts() == Some(true) {
        return Ok(());
    }
    let message = format!("`stop` must be a string or an array of at most {STOP_MAX} strings");
    Err(GatewayError::invalid("stop", message))
}

/// Output that `max_tokens` does not bound: the tokens of a prediction that come to nothing, and what
/// Qwen's models think where an operator lets them.
fn hidden_tokens(body: &Object<'_>, limits: &ModelLimits) -> u64 {
    let prediction =
        body.get_non_null("prediction").map_or(0, |value| value.decoded_bytes() as u64);
    let budget = body.get_non_null("thinking_budget").map(|value| value.as_u64());
    let is_on = |field| body.get_non_null(field).is_some_and(|value| value.text() != b"false");
    let thought = match budget {
        Some(Some(tokens)) => tokens,
        Some(None) => limits.output_tokens_max,
        None if is_on("enable_thinking") => limits.output_tokens_max,
        None => 0,
    };
    prediction.saturating_add(thought)
}

/// True or false if the request switches the thinking of Qwen's models on or off.
fn thinking(body: &Object<'_>) -> Option<bool> {
    body.get_non_null("enable_thinking").and_then(|value| value.as_bool())
}

/// A model that is said not to think may still do so when asked to.
fn asks_for_reasoning(body: &Object<'_>) -> bool {
    let effort = body.get_non_null("reasoning_effort");
    effort.is_some_and(|effort| effort.as_str().as_deref() != Some("none"))
}

/// Edit that makes the upstream report usage at the end of a stream.
#[derive(Debug)]
enum UsageOptions {
    /// The customer requested it: the chunk is the customer's too.
    Requested,
    /// There is no `stream_options`: insert one at this position.
    Insert { at: usize, comma: bool },
    /// `stream_options` has no `include_usage`: insert it at this position.
    InsertInside { at: usize, comma: bool },
    /// Overwrite this value with what turns usage on.
    Replace(Range<usize>, &'static str),
}

impl UsageOptions {
    fn read(body: &Object<'_>) -> Result<Self, GatewayError> {
        const FIELD: &str = "stream_options";
        let invalid = |message: String| GatewayError::invalid(FIELD, message);
        let Some(options) = body.get(FIELD) else {
            let (at, comma) = body.insertion_point();
            return Ok(Self::Insert { at, comma });
        };
        if options.is_null() {
            return Ok(Self::Replace(options.range, r#"{"include_usage":true}"#));
        }
        let object = options
            .as_object()
            .map_err(|error| invalid(fields::no_object(FIELD, &options, &error)))?;
        fields::refuse_case_variants(&object, &["include_usage"])?;
        let offset = options.range.start;
        let Some(value) = object.get("include_usage") else {
            let (at, comma) = object.insertion_point();
            return Ok(Self::InsertInside { at: offset + at, comma });
        };
        match value.as_bool() {
            Some(true) => Ok(Self::Requested),
            None if !value.is_null() => {
                Err(invalid("`stream_options.include_usage` must be a boolean".to_owned()))
            }
            _ => Ok(Self::Replace(offset + value.range.start..offset + value.range.end, "true")),
        }
    }

    fn splice(&self, splice: &mut Splice) {
        let with_comma = |comma: bool, member: &str| {
            if comma { format!(",{member}") } else { member.to_owned() }
        };
        match self {
            Self::Requested => {}
            Self::Insert { at, comma } => splice.replace(
                *at..*at,
                with_comma(*comma, r#""stream_options":{"include_usage":true}"#),
            ),
            Self::InsertInside { at, comma } => {
                splice.replace(*at..*at, with_comma(*comma, r#""include_usage":true"#));
            }
            Self::Replace(range, json) => splice.replace(range.clone(), *json),
        }
    }
}

#[derive(Debug)]
struct ChatCall {
    bounds: RequestBounds,
    usage_options: UsageOptions,
    is_all_shown: bool,
    estimates_unreported: bool,
    /// The unit of cache writes of which a report does not say how long they are kept.
    unsplit: Unit,
    traits: Traits,
    input_ways: InputWays,
    sounds: bool,
    makes_pictures: bool,
    /// True if a model that thinks has other prices than one that does not.
    is_thinking_priced: bool,
    /// The model's limits: a report above them shows that they are out of date.
    model_limits: Usage,
}

impl Call for ChatCall {
    fn bounds(&self) -> &RequestBounds {
        &self.bounds
    }

    fn bounds_mut(&mut self) -> &mut RequestBounds {
        &mut self.bounds
    }

    fn is_all_shown(&self) -> bool {
        self.is_all_shown
    }

    fn estimates_unreported(&self) -> bool {
        self.estimates_unreported
    }

    fn input_ways(&self) -> InputWays {
        self.input_ways
    }

    fn sounds(&self) -> bool {
        self.sounds
    }

    fn makes_pictures(&self) -> bool {
        self.makes_pictures
    }

    fn traits(&self) -> Traits {
        self.traits
    }

    fn splice(&self, upstream_model: &str) -> Splice {
        let mut splice = self.bounds.model.rename(upstream_model);
        self.usage_options.splice(&mut splice);
        splice
    }

    fn meter(&self, framing: Framing) -> Box<dyn Meter> {
        let frame = MeterContext::new(&self.bounds, self.model_limits);
        match framing {
            Framing::Json | Framing::EventStream | Framing::Binary => {
                let thoughts = self.is_thinking_priced.then(ThoughtScan::default);
                let unsplit = self.unsplit;
                let report = move |usage: &[u8]| WireChatUsage::report(usage, unsplit);
                let meter = JsonMeter::new(frame, Box::new(report));
                Box::new(meter.finding(thoughts))
            }
            Framing::Sse => Box::new(StreamMeter::new(ChatTally {
                usage_is_ours: !matches!(self.usage_options, UsageOptions::Requested),
                state: StreamState::new(frame),
                unsplit: self.unsplit,
                ended: false,
                done: false,
            })),
        }
    }
}

/// The `usage` object, as OpenAI and its imitators write it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireChatUsage {
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
    /// Of videos, as Qwen tells them.
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
    /// Of pictures, as OpenRouter tells them.
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
    fn report(usage: &[u8], unsplit: Unit) -> Option<UsageReport> {
        if let Some(plain) = Self::plain(usage) {
            return Some(plain.to_report(unsplit));
        }
        let read: Self = metering::read_wire(usage)?;
        Some(read.to_report(unsplit).with_no_counts_noted(usage))
    }

    /// Reads one that is written as OpenAI writes it; `None` for others.
    fn plain(usage: &[u8]) -> Option<Self> {
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
    fn to_report(&self, unsplit: Unit) -> UsageReport {
        let totals = self.totals(unsplit);
        let has_details = totals.read.is_there() || totals.written.is_there();
        let (usage, contradictions) = totals.disjoint();
        let search = self.plugins.as_ref().and_then(|plugins| plugins.search.as_ref());
        let searches = self.num_sources_used.or(search.and_then(|search| search.count));
        let usage = Usage { web_searches: searches.unwrap_or(0), ..usage };
        let served = Traits { thinking: self.thinks(), ..Traits::default() };
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

/// Meters a stream of chunks.
struct ChatTally {
    /// The usage chunk was requested by us, not by the customer.
    usage_is_ours: bool,
    state: StreamState,
    /// The unit of cache writes of which a report does not say how long they are kept.
    unsplit: Unit,
    /// A choice has finished, or the upstream has said that it failed.
    ended: bool,
    done: bool,
}

impl TextTally for ChatTally {
    fn judge(&mut self, data: &[u8]) -> EventAction {
        if self.done {
            // Nothing belongs behind `[DONE]`: a second one, or a usage that nobody should believe.
            return EventAction::Drop;
        }
        if data == b"[DONE]" {
            self.done = true;
            return EventAction::Keep;
        }
        let Some(chunk) = Chunk::read(data) else { return EventAction::Keep };
        self.state.failed |= chunk.has_error;
        self.state.ended_at_limit |= chunk.ends_at_limit;
        self.state.has_thoughts |= chunk.has_thoughts;
        self.state.service_tier = chunk.service_tier.or(self.state.service_tier);
        self.ended |= chunk.finishes || chunk.has_error;
        self.state.show(chunk.shown);
        if chunk.usages.is_empty() {
            return EventAction::Keep;
        }
        let read = |usage: &&[u8]| WireChatUsage::report(usage, self.unsplit);
        for report in chunk.usages.iter().filter_map(read) {
            self.state.report(report);
        }
        if !chunk.has_choices && self.usage_is_ours { EventAction::Drop } else { EventAction::Keep }
    }

    fn is_complete(&self) -> bool {
        self.done || self.ended
    }

    fn state(&self) -> &StreamState {
        &self.state
    }
}

#[cfg(test)]
mod tests;
