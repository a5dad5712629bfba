//! `POST /v1/chat/completions` over upstreams that speak OpenAI's protocol.
//!
//! Spec sections 2.1 and 8. Stream chunks and usage figures: OpenAI's API reference, "Chat
//! completions", and the differences of its imitators that are named where they are read.

use std::ops::{Range, RangeInclusive};

use super::allowed_keys::AllowedKey;
use super::disjoint::{CACHE_CONTROL, RequestedLifetime};
use super::fields;
use super::json::{Object, Value};
use super::limits::{MissingUsage, ModelLimits};
use super::metering::{JsonMeter, MeterContext, StreamMeter, StreamState, Tally, ThoughtScan};
use super::request_bounds::BillingFacts;
use super::splice::Splice;
use super::sse::EventAction;
use super::{
    Call, Codec, Dialect, Framing, Meter, Operation, Request, RequestBounds, request_policy,
};
use crate::codec::bounds_in_field;
use tollgate_money::price::{Traits, Unit, Usage};
use tollgate_types::error::GatewayError;

mod chunk;
mod usage;

use chunk::ChatChunk;
use usage::WireChatUsage;

/// Ranges of spec section 8.
const RANGES: [(&str, RangeInclusive<f64>); 4] = [
    ("temperature", 0.0..=2.0),
    ("top_p", 0.0..=1.0),
    ("presence_penalty", -2.0..=2.0),
    ("frequency_penalty", -2.0..=2.0),
];
/// Maximum number of stop sequences (spec section 8).
const STOP_MAX: usize = 4;
/// Choices at most: OpenAI's own limit for `n`.
const CHOICES_MAX: u64 = 128;

/// Codec of OpenAI's chat completions.
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
        // Which of the two names an upstream reads differs between copies: the hold covers the
        // larger one.
        let requested = fields::output_tokens(body, "max_tokens", 1, limits)?
            .max(fields::output_tokens(body, "max_completion_tokens", 1, limits)?);
        // Some models make them unasked.
        let makes_pictures = limits.priced.has_unit(Unit::ImageOutputTokens);
        let hidden = hidden_tokens(body, limits);
        let asks_for_hidden = hidden > 0 || asks_for_reasoning(body);
        // Hidden tokens are billed as output, and no limit that the customer has set covers them.
        let output = requested.unwrap_or(limits.output_tokens_max).saturating_add(hidden);
        let billing = BillingFacts {
            is_all_shown: prompt.is_plain()
                && !limits.reasoning
                && !makes_pictures
                && !asks_for_hidden,
            estimates_unreported: limits.missing_usage == MissingUsage::Estimate
                && prompt.is_plain()
                && !makes_pictures
                && !asks_for_hidden
                // Text that a stop sequence cuts off is billed and never seen (ADR 16).
                && body.get_non_null("stop").is_none(),
            input_ways: prompt.input_ways(),
            sounds: body.get_non_null("audio").is_some(),
            makes_pictures,
            traits: Traits {
                service_tier: fields::service_tier(body),
                thinking: thinking(body),
                ..Traits::default()
            },
        };
        let bounds =
            // Each choice is an answer of its own, over one reading of the prompt.
            RequestBounds::from_prompt(body, &prompt, limits, output.saturating_mul(choices))?
                .with_output_limit(requested, limits.output_tokens_max, choices)
                .with_billing(billing);
        Ok(Box::new(ChatCall {
            usage_options: if bounds.stream {
                UsageOptions::read(body)?
            } else {
                UsageOptions::Requested
            },
            unsplit: prompt
                .written_as
                .unwrap_or_else(|| RequestedLifetime::in_body(body, &CACHE_CONTROL).unsplit()),
            is_thinking_priced: limits.priced.thinking,
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
        // No more are read than are allowed: elements are found one by one, and an array can be as
        // long as the body.
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

/// True if the request asks for reasoning; even a model without thinking may then think.
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
        // A server that folds case would take another spelling for ours, and could report no usage
        // at all.
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
    /// The unit of cache writes of which a report does not say how long they are kept.
    unsplit: Unit,
    /// True if a model that thinks has other prices than one that does not.
    is_thinking_priced: bool,
    /// The model's limits: a report above them shows that they are out of date.
    model_limits: Usage,
}

impl Call for ChatCall {
    bounds_in_field!();

    fn splice(&self, upstream_model: &str) -> Splice {
        let mut splice = self.bounds.model.rename(upstream_model);
        self.usage_options.splice(&mut splice);
        splice
    }

    fn meter(&self, framing: Framing) -> Box<dyn Meter> {
        let frame = MeterContext::new(&self.bounds, self.model_limits);
        match framing {
            Framing::Json | Framing::EventStream | Framing::Binary => {
                // A scan of the whole answer, which only the models pay that have two prices.
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

/// Meters a stream of chunks.
struct ChatTally {
    /// The usage chunk was requested by us, not by the customer.
    usage_is_ours: bool,
    state: StreamState,
    /// The unit of cache writes of which a report does not say how long they are kept.
    unsplit: Unit,
    /// A choice has finished, or the upstream reported a failure.
    ended: bool,
    done: bool,
}

impl Tally for ChatTally {
    type Totals = StreamState;

    fn judge(&mut self, data: &[u8]) -> EventAction {
        if self.done {
            // Nothing belongs behind `[DONE]`: a second one, or a usage that nobody should believe.
            return EventAction::Drop;
        }
        if data == b"[DONE]" {
            self.done = true;
            return EventAction::Keep;
        }
        let Some(chunk) = ChatChunk::read(data) else { return EventAction::Keep };
        self.state.failed |= chunk.has_error;
        self.state.ended_at_limit |= chunk.ends_at_limit;
        self.state.has_thoughts |= chunk.has_thoughts;
        self.state.service_tier = chunk.service_tier.or(self.state.service_tier);
        // Some upstreams leave `[DONE]` out: a reason to finish ends the answer as well.
        self.ended |= chunk.finishes || chunk.has_error;
        self.state.show(chunk.shown);
        if chunk.usages.is_empty() {
            return EventAction::Keep;
        }
        let read = |usage: &&[u8]| WireChatUsage::report(usage, self.unsplit);
        for report in chunk.usages.iter().filter_map(read) {
            self.state.report(report);
        }
        // Only the chunk that we have asked for goes; usage beside choices is the customer's own
        // chunk.
        if !chunk.has_choices && self.usage_is_ours { EventAction::Drop } else { EventAction::Keep }
    }

    fn is_complete(&self) -> bool {
        self.done || self.ended
    }

    fn totals(&self) -> &StreamState {
        &self.state
    }
}

#[cfg(test)]
mod tests;
