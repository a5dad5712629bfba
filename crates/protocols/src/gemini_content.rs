//! `…:generateContent`, `…:streamGenerateContent` and `…:countTokens` over upstreams of Google's: the
//! Gemini API and Vertex AI.
//!
//! Bodies and answers: the Gemini API's reference, "Generating content". The model stands in the path,
//! and so does whether the answer comes in pieces, which are events here whatever the customer wants.

pub(super) mod config;
mod count;
mod usage;

use std::borrow::Cow;

use super::allowed_keys::AllowedKey;
use super::counter::Counter;
use super::estimate::TextSize;
use super::fields;
use super::json::Object;
use super::json_cursor::Cursor;
use super::limits::{MissingUsage, ModelLimits};
use super::metering::{JsonMeter, MeterContext, StreamMeter, StreamState, Tally, VisibleOutput};
use super::request_bounds::BillingFacts;
use super::server_tools::{QueryScan, count_queries};
use super::sse::EventAction;
use super::{
    Call, Codec, Dialect, Framing, Meter, ModelInPath, Operation, PathVariables, Request,
    RequestBounds, path_segment, request_policy,
};
use crate::codec::bounds_in_field;
use config::GenerationConfig;
pub use count::GeminiCountTokens;
pub(super) use count::check_counted;
use tollgate_money::price::{Traits, Unit, Usage};
use tollgate_types::error::{ErrorKind, GatewayError};
use usage::WireContentUsage;

/// The upstreams that speak it.
const DIALECTS: &[Dialect] = &[Dialect::Gemini, Dialect::Vertex];

/// Codec of Google's `generateContent`.
#[derive(Debug)]
pub struct GeminiContent;

impl Codec for GeminiContent {
    fn operation(&self) -> Operation {
        Operation::GenerateContent
    }

    fn dialects(&self) -> &'static [Dialect] {
        DIALECTS
    }

    fn path(&self) -> &'static str {
        "/models/{model}:generateContent"
    }

    fn counter(&self) -> Option<Counter> {
        Some(Counter::Content)
    }

    fn path_to(&self, request: &PathVariables<'_>) -> Option<Cow<'static, str>> {
        let method =
            if request.streams { "streamGenerateContent?alt=sse" } else { "generateContent" };
        path_of(request.model, method)
    }

    fn allowed_keys(&self) -> Vec<AllowedKey> {
        let settings = config::FIELDS.map(|name| format!("generationConfig.{name}"));
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let mut keys = AllowedKey::of_allowlist(&request_policy::GEMINI);
        keys.extend(AllowedKey::of_names(&settings));
        keys
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        let named = named(request)?;
        // Before any field is read: Google takes either spelling, and a bound must not depend on
        // which.
        check_spelling(body)?;
        check_lists(body)?;
        let prompt = request_policy::read(body, &request_policy::GEMINI, limits)?;
        let config = GenerationConfig::read(body, limits)?;
        let requested = config.output_tokens_max.unwrap_or(limits.output_tokens_max);
        let output = requested.saturating_mul(config.candidates);
        let hides_thoughts = config.thinks.unwrap_or(limits.reasoning);
        let bounds = RequestBounds::from_prompt(body, &prompt, limits, output)?
            .with_output_limit(
                config.output_tokens_max,
                limits.output_tokens_max,
                config.candidates,
            )
            .with_model_in_path(named)
            .with_billing(BillingFacts {
                is_all_shown: prompt.is_plain() && !hides_thoughts,
                estimates_unreported: limits.missing_usage == MissingUsage::Estimate
                    && prompt.is_plain()
                    && config.thinks != Some(true)
                    && !config.has_stops,
                traits: Traits {
                    thinking: config.thinks,
                    service_tier: fields::service_tier(body),
                    ..Traits::default()
                },
                input_ways: prompt.input_ways(),
                ..BillingFacts::default()
            });
        Ok(Box::new(ContentCall {
            searches: prompt.server_calls_max[Unit::WebSearches] > 0 || prompt.has_passed,
            candidates: config.candidates,
            bounds,
            model_limits: Usage {
                input_tokens: limits.input_tokens_max.saturating_mul(prompt.rounds),
                output_tokens: limits
                    .output_tokens_max
                    .saturating_mul(config.candidates)
                    .saturating_mul(prompt.rounds),
                ..Usage::ZERO
            },
        }))
    }
}

/// Path of a model's method; `None` if the name is not a valid path segment.
fn path_of(model: &str, method: &str) -> Option<Cow<'static, str>> {
    let model = path_segment::encode(model)?;
    Some(format!("/models/{model}:{method}").into())
}

/// Model and streaming flag from the path of a request.
///
/// # Errors
/// Nothing has read the path, which is the gateway's fault.
fn named<'a>(request: &Request<'a>) -> Result<ModelInPath<'a>, GatewayError> {
    let missing = "The request's path was not read.";
    request.model_in_path().ok_or_else(|| GatewayError::new(ErrorKind::Internal, missing))
}

/// Refuses a field that is there in both of its spellings: which one counts, nobody knows.
fn check_spelling(object: &Object<'_>) -> Result<(), GatewayError> {
    let twice = object.keys().find(|key| key.contains('_') && object.get(&camel(key)).is_some());
    match twice {
        None => Ok(()),
        Some(key) => {
            let message = format!("`{}` is there in two spellings", camel(key));
            Err(GatewayError::invalid(camel(key), message))
        }
    }
}

/// A name such as `system_instruction` as `systemInstruction`.
fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |mut joined, word| {
        let mut letters = word.chars();
        joined.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        joined.push_str(letters.as_str());
        joined
    })
}

/// Requires `contents`, and `tools` to be an array, since both are examined.
fn check_lists(body: &Object<'_>) -> Result<(), GatewayError> {
    let contents = body.get_non_null("contents");
    if !contents.is_some_and(|contents| matches!(contents.text().first(), Some(b'[' | b'{'))) {
        return Err(GatewayError::invalid("contents", "`contents` must be an array of contents"));
    }
    match body.get_non_null("tools") {
        Some(tools) if !tools.is_array() => {
            Err(GatewayError::invalid("tools", "`tools` must be an array"))
        }
        _ => Ok(()),
    }
}

#[derive(Debug)]
struct ContentCall {
    bounds: RequestBounds,
    /// True if the upstream may search, which it bills in addition to tokens.
    searches: bool,
    candidates: u64,
    /// The model's limits: a report above them shows that they are out of date.
    model_limits: Usage,
}

impl Call for ContentCall {
    bounds_in_field!();

    /// Classifies a refusal: Google reports an unknown credential, which is the operator's, with status 400.
    fn refusal(&self, status: u16, _name: Option<&str>, body: &[u8]) -> Option<GatewayError> {
        // A customer must not read that the operator's key is wrong, and another target may have a
        // right one.
        let is_of_key = memchr::memmem::find(body, b"API_KEY_INVALID").is_some();
        (status == 400 && is_of_key).then(|| {
            let message = "No upstream could serve the request. Try again shortly.";
            let error = GatewayError::new(ErrorKind::BadGateway, message);
            error.cause("the upstream does not know the credential")
        })
    }

    fn meter(&self, framing: Framing) -> Box<dyn Meter> {
        let frame = MeterContext::new(&self.bounds, self.model_limits);
        match framing {
            Framing::Json | Framing::EventStream | Framing::Binary => {
                let meter = JsonMeter::new(frame, Box::new(WireContentUsage::report));
                Box::new(meter.counting_queries(self.searches.then(QueryScan::default)))
            }
            Framing::Sse => {
                let (state, candidates) = (StreamState::new(frame), self.candidates);
                let tally = ContentTally { state, candidates, ..ContentTally::default() };
                Box::new(StreamMeter::for_images(tally))
            }
        }
    }
}

/// The members of a stream event that count.
#[derive(Default)]
struct ContentEvent<'a> {
    shown: VisibleOutput,
    /// The usage objects; more than one only if the key is repeated.
    usages: Vec<&'a [u8]>,
    /// Number of searches reported so far.
    queries: u64,
    /// Number of candidates with a finish reason.
    finished: u64,
    /// A candidate ended at the requested output limit.
    ends_at_limit: bool,
    /// The prompt was blocked.
    is_blocked: bool,
    has_error: bool,
}

impl<'a> ContentEvent<'a> {
    /// Reads the data of an event; `None` for what no event looks like.
    fn read(data: &'a [u8]) -> Option<Self> {
        let mut event = Self::default();
        Cursor::new(data).object(|key, value| {
            match key {
                b"candidates" => value.array(|value| event.candidate(value))?,
                b"usageMetadata" => event.usages.extend(value.non_null()?),
                b"error" => event.has_error |= value.non_null()?.is_some(),
                b"promptFeedback" => value.object(|key, value| {
                    match key {
                        b"blockReason" => event.is_blocked |= value.non_null()?.is_some(),
                        _ => value.skip()?,
                    }
                    Some(())
                })?,
                _ => value.skip()?,
            }
            Some(())
        })?;
        Some(event)
    }

    fn candidate(&mut self, value: &mut Cursor<'a>) -> Option<()> {
        value.object(|key, value| {
            match key {
                b"content" => value.object(|key, value| {
                    match key {
                        b"parts" => value.array(|value| self.part(value))?,
                        _ => value.skip()?,
                    }
                    Some(())
                })?,
                b"finishReason" => {
                    let reason = value.non_null()?;
                    self.finished += u64::from(reason.is_some());
                    self.ends_at_limit |= reason == Some(b"\"MAX_TOKENS\"");
                }
                b"groundingMetadata" => self.queries += count_queries(value.raw()?),
                _ => value.skip()?,
            }
            Some(())
        })
    }

    /// A text, or a call, which comes whole.
    fn part(&mut self, value: &mut Cursor<'a>) -> Option<()> {
        value.object(|key, value| {
            match key {
                b"text" => self.shown.add(value.text_size()?),
                b"functionCall" | b"executableCode" | b"codeExecutionResult" => {
                    self.shown.add(TextSize::measure(value.raw()?));
                }
                _ => value.skip()?,
            }
            Some(())
        })
    }
}

/// Meters a stream of generated content. Each event reports the usage so far; the last event is the one by
/// which each candidate has a finish reason and the usage is present.
#[derive(Default)]
struct ContentTally {
    state: StreamState,
    /// Number of searches; later events repeat them.
    queries: u64,
    /// Finished candidates, and their expected number.
    finished: u64,
    candidates: u64,
    ended: bool,
    /// All candidates have finished and the usage was reported; later events are relayed but not counted.
    stopped: bool,
}

impl Tally for ContentTally {
    type Totals = StreamState;

    fn judge(&mut self, data: &[u8]) -> EventAction {
        if self.stopped {
            return EventAction::Keep;
        }
        let Some(event) = ContentEvent::read(data) else { return EventAction::Keep };
        self.state.show(event.shown);
        // Each event repeats all searches so far: they are no sum.
        self.queries = self.queries.max(event.queries);
        self.state.made.web_searches = self.queries;
        for report in event.usages.iter().filter_map(|usage| WireContentUsage::report(usage)) {
            self.state.report(report);
        }
        self.state.failed |= event.has_error;
        self.state.ended_at_limit |= event.ends_at_limit;
        self.finished += event.finished;
        self.ended |= event.is_blocked || event.has_error || self.finished >= self.candidates;
        // Usage comes in every event; the first one with all reasons to finish is the last that
        // counts.
        self.stopped = self.ended && !event.usages.is_empty();
        EventAction::Keep
    }

    fn is_complete(&self) -> bool {
        self.ended
    }

    fn totals(&self) -> &StreamState {
        &self.state
    }
}

#[cfg(test)]
mod tests;
