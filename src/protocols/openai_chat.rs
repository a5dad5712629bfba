//! `POST /v1/chat/completions` over upstreams that speak OpenAI's protocol.
//!
//! Spec sections 2.1 and 8. Stream chunks and usage figures: OpenAI's API reference, "Chat
//! completions", and the differences of its imitators that are named where they are read.

use std::ops::{Range, RangeInclusive};

use serde::Deserialize;

use super::estimate::TextSize;
use super::json::{Object, Value};
use super::json_cursor::Cursor;
use super::limits::ModelLimits;
use super::metering::{JsonMeter, Known, Shown, StreamMeter, Tally};
use super::splice::Splice;
use super::sse::Verdict;
use super::{Call, Codec, Dialect, Framing, Meter, Operation, Prompt, Request, Terms};
use crate::error::GatewayError;
use crate::price::{Usage, UsageSource};

/// Fields that decide what a call costs: a spelling that only some parsers take for them is refused.
const BILLING_FIELDS: [&str; 10] = [
    "model",
    "stream",
    "stream_options",
    "n",
    "max_tokens",
    "max_completion_tokens",
    "messages",
    "service_tier",
    "web_search_options",
    "audio",
];
/// Fields that ask for what no price in `models.yaml` covers: a fee for each search, and audio output,
/// which is counted among the tokens of the text and costs several times as much.
const UNPRICED_FIELDS: [&str; 2] = ["web_search_options", "audio"];
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
/// Whether a body has a text that occurs wherever there is input whose tokens its bytes do not bound:
/// media by reference. Finding one in a prompt's text only makes the hold larger.
fn has_media_mark(body: &[u8]) -> bool {
    super::has_quote_where(body, |before, behind| {
        before.ends_with(b"_url")
            || before.ends_with(b"audio")
            || behind.starts_with(b"file")
            || behind.starts_with(b"video")
    })
}

/// The codec.
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

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        super::refuse_case_variants(body, &BILLING_FIELDS)?;
        super::check_messages(body)?;
        for (field, range) in RANGES {
            check_range(body, field, &range)?;
        }
        check_stop(body)?;
        check_priced(body)?;
        let choices = super::integer(body, "n", 1..=CHOICES_MAX)?.unwrap_or(1);
        let asked = super::integer(body, "max_tokens", 1..=u64::MAX)?.max(super::integer(
            body,
            "max_completion_tokens",
            1..=u64::MAX,
        )?);
        let output_tokens_max =
            asked.unwrap_or(limits.output_tokens_max).min(limits.output_tokens_max);
        let has_media = has_media_mark(body.text());
        let prompt = Prompt { has_media, added_tokens_max: Some(0) };
        let terms =
            Terms::of_prompt(body, &prompt, limits, output_tokens_max.saturating_mul(choices))?;
        Ok(Box::new(ChatCall {
            usage_options: if terms.stream {
                UsageOptions::read(body)?
            } else {
                UsageOptions::Asked
            },
            terms,
            possible: Usage {
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
    let valid = is_text(&stop)
        || stop.as_array().is_some_and(|all| all.len() <= STOP_MAX && all.iter().all(is_text));
    if valid {
        return Ok(());
    }
    let message = format!("`stop` must be a string or an array of at most {STOP_MAX} strings");
    Err(GatewayError::invalid("stop", message))
}

fn check_priced(body: &Object<'_>) -> Result<(), GatewayError> {
    super::check_service_tier(body)?;
    match UNPRICED_FIELDS.into_iter().find(|field| body.get_non_null(field).is_some()) {
        Some(field) => Err(GatewayError::invalid(field, format!("`{field}` is not offered here"))),
        None => Ok(()),
    }
}

/// What must change so that the upstream reports usage at the end of a stream.
#[derive(Debug)]
enum UsageOptions {
    /// The customer asked for it: the chunk is the customer's too.
    Asked,
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
            .map_err(|error| invalid(super::no_object(FIELD, &options, &error)))?;
        super::refuse_case_variants(&object, &["include_usage"])?;
        let offset = options.range.start;
        let Some(value) = object.get("include_usage") else {
            let (at, comma) = object.insertion_point();
            return Ok(Self::InsertInside { at: offset + at, comma });
        };
        match value.as_bool() {
            Some(true) => Ok(Self::Asked),
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
            Self::Asked => {}
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
    terms: Terms,
    usage_options: UsageOptions,
    /// What the model could use at all: a report above it is not believed.
    possible: Usage,
}

impl Call for ChatCall {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn splice(&self, upstream_model: &str) -> Splice {
        let mut splice = self.terms.model.rename(upstream_model);
        self.usage_options.splice(&mut splice);
        splice
    }

    fn meter(&self, framing: Framing) -> Box<dyn Meter> {
        let (floor, possible) = (self.terms.floor, self.possible);
        match framing {
            Framing::Json | Framing::Binary => {
                let read = move |usage: &[u8]| WireUsage::read(usage)?.to_usage(&possible);
                Box::new(JsonMeter::new(floor, possible.output_tokens, Box::new(read)))
            }
            Framing::Sse => Box::new(StreamMeter::new(ChatTally {
                usage_is_ours: !matches!(self.usage_options, UsageOptions::Asked),
                known: Known { floor, ..Known::default() },
                possible,
                ..ChatTally::default()
            })),
        }
    }
}

/// The `usage` object, as OpenAI and its imitators write it.
#[derive(Debug, Default, Deserialize)]
struct WireUsage {
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
    #[serde(default)]
    total_tokens: Option<u64>,
    #[serde(default)]
    prompt_tokens_details: Option<WirePromptDetails>,
    #[serde(default)]
    completion_tokens_details: Option<WireCompletionDetails>,
    /// DeepSeek's name for cached input.
    #[serde(default)]
    prompt_cache_hit_tokens: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
struct WirePromptDetails {
    #[serde(default)]
    cached_tokens: Option<u64>,
    #[serde(default)]
    cache_write_tokens: Option<u64>,
    /// Qwen's name for cache writes.
    #[serde(default)]
    cache_creation_input_tokens: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
struct WireCompletionDetails {
    #[serde(default)]
    reasoning_tokens: Option<u64>,
}

impl WireUsage {
    fn read(usage: &[u8]) -> Option<Self> {
        serde_json::from_slice(usage).ok()
    }

    /// The usage in disjoint kinds, unless it is more than the model can use.
    fn to_usage(&self, possible: &Usage) -> Option<Usage> {
        let prompt = self.prompt_tokens_details.as_ref();
        let cached = prompt.and_then(|details| details.cached_tokens);
        let read = cached.or(self.prompt_cache_hit_tokens).unwrap_or(0).min(self.prompt_tokens);
        let written = prompt
            .and_then(|details| details.cache_write_tokens.or(details.cache_creation_input_tokens));
        let written = written.unwrap_or(0).min(self.prompt_tokens.saturating_sub(read));
        let reasoning = self
            .completion_tokens_details
            .as_ref()
            .and_then(|details| details.reasoning_tokens)
            .unwrap_or(0);
        // xAI counts reasoning beside `completion_tokens`; only the total gives it away.
        let counted = self.prompt_tokens.saturating_add(self.completion_tokens);
        let reasoning_outside = reasoning > 0
            && self.total_tokens.is_some_and(|total| total == counted.saturating_add(reasoning));
        let output = if reasoning_outside {
            self.completion_tokens.saturating_add(reasoning)
        } else {
            self.completion_tokens
        };
        let believable =
            self.prompt_tokens <= possible.input_tokens && output <= possible.output_tokens;
        believable.then(|| Usage {
            input_tokens: self.prompt_tokens.saturating_sub(read).saturating_sub(written),
            cache_read_tokens: read,
            cache_write_tokens: written,
            output_tokens: output,
            ..Usage::default()
        })
    }
}

/// What a chunk of a stream says.
#[derive(Default)]
struct Chunk<'a> {
    /// Text in it, of all kinds that are output: content, refusal, reasoning, tool calls.
    shown: Shown,
    has_choices: bool,
    /// A choice has a reason to finish.
    finishes: bool,
    has_error: bool,
    usage: Option<&'a [u8]>,
}

impl<'a> Chunk<'a> {
    /// Reads the data of an event; `None` for what no chunk looks like.
    fn read(data: &'a [u8]) -> Option<Self> {
        let mut chunk = Self::default();
        Cursor::new(data).object(|key, value| {
            match key {
                b"choices" => value.array(|choice| chunk.read_choice(choice))?,
                b"usage" => chunk.usage = value.non_null()?,
                b"error" => chunk.has_error |= value.non_null()?.is_some(),
                _ => value.skip()?,
            }
            Some(())
        })?;
        Some(chunk)
    }

    fn read_choice(&mut self, choice: &mut Cursor<'a>) -> Option<()> {
        self.has_choices = true;
        let mut text = TextSize::default();
        choice.object(|key, value| {
            match key {
                b"delta" => read_delta(value, &mut text)?,
                b"finish_reason" => self.finishes |= value.non_null()?.is_some(),
                _ => value.skip()?,
            }
            Some(())
        })?;
        self.shown.add(text);
        Some(())
    }
}

fn read_delta(delta: &mut Cursor<'_>, text: &mut TextSize) -> Option<()> {
    delta.object(|key, value| match key {
        // Providers have two names for reasoning text.
        b"content" | b"refusal" | b"reasoning_content" | b"reasoning" => {
            text.add(value.text_size()?);
            Some(())
        }
        b"tool_calls" => value.array(|call| read_tool_call(call, text)),
        _ => value.skip(),
    })
}

fn read_tool_call(call: &mut Cursor<'_>, text: &mut TextSize) -> Option<()> {
    call.object(|key, value| match key {
        b"function" => value.object(|key, value| {
            match key {
                b"name" | b"arguments" => text.add(value.text_size()?),
                _ => value.skip()?,
            }
            Some(())
        }),
        _ => value.skip(),
    })
}

/// What a stream has shown so far.
#[derive(Default)]
struct ChatTally {
    /// The usage chunk was asked for by us, not by the customer.
    usage_is_ours: bool,
    known: Known,
    possible: Usage,
    /// A choice has finished, or the upstream has said that it failed.
    ended: bool,
    done: bool,
}

impl Tally for ChatTally {
    fn judge(&mut self, data: &[u8]) -> Verdict {
        if self.done {
            // Nothing belongs behind `[DONE]`: a second one, or a usage that nobody should believe.
            return Verdict::Drop;
        }
        if data == b"[DONE]" {
            self.done = true;
            return Verdict::Keep;
        }
        let Some(chunk) = Chunk::read(data) else { return Verdict::Keep };
        self.known.failed |= chunk.has_error;
        self.ended |= chunk.finishes || chunk.has_error;
        self.known.shown.add_all(chunk.shown);
        let Some(usage) = chunk.usage else { return Verdict::Keep };
        let read = WireUsage::read(usage).and_then(|usage| usage.to_usage(&self.possible));
        self.known.usage = read.or(self.known.usage);
        if !chunk.has_choices && self.usage_is_ours { Verdict::Drop } else { Verdict::Keep }
    }

    fn is_complete(&self) -> bool {
        self.done || self.ended
    }

    fn has_failed(&self) -> bool {
        self.known.has_failed()
    }

    fn relayed(&self) -> Usage {
        self.known.relayed()
    }

    fn measure(&self) -> (Usage, UsageSource) {
        self.known.measure()
    }
}

#[cfg(test)]
mod tests;
