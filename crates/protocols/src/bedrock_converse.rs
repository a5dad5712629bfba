//! `POST /model/{modelId}/converse` and `/converse-stream` of Amazon Bedrock, for which requests of other
//! dialects are translated: no customer speaks it.
//!
//! Fields, events and usage figures: Amazon Bedrock API Reference, "Converse" and "ConverseStream". An
//! answer is JSON; events come in the frames of [`event_stream`](super::event_stream).

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem;
use serde::Deserialize;
use tollgate_money::price::{InputWays, Traits, Unit, Usage};
use tollgate_translation::Converse;
use tollgate_types::error::GatewayError;

use super::disjoint::{CacheWritten, NamedCount, RequestedLifetime, count};
use super::estimate::TextSize;
use super::event_stream::EventFrame;
use super::fields;
use super::json::Object;
use super::json_cursor::Cursor;
use super::limits::{MissingUsage, ModelLimits};
use super::metering::{
    self, JsonMeter, MeterContext, StreamMeter, StreamState, Tally, UsageReport, VisibleOutput,
};
use super::request_bounds::BillingFacts;
use super::splice::{Splice, json_string};
use super::sse::EventAction;
use super::{
    Call, Codec, Contradictions, Dialect, Framing, Meter, Operation, PathVariables, Request,
    RequestBounds, path_segment, request_policy,
};
use crate::codec::bounds_in_field;

/// The codec of Amazon Bedrock's Converse API.
#[derive(Debug)]
pub struct BedrockConverse;

impl Codec for BedrockConverse {
    fn operation(&self) -> Operation {
        // It has none of its own: what a model behind it is for is what its customers ask.
        Operation::Chat
    }

    fn dialects(&self) -> &'static [Dialect] {
        &[Dialect::Bedrock]
    }

    fn path(&self) -> &'static str {
        "/model"
    }

    fn path_to(&self, request: &PathVariables<'_>) -> Option<Cow<'static, str>> {
        // Names of models have colons, and those of profiles slashes too.
        let model = path_segment::encode(request.model)?;
        let way = if request.streams { "converse-stream" } else { "converse" };
        Some(format!("{}/{model}/{way}", self.path()).into())
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        let mut prompt = request_policy::read(body, &request_policy::CONVERSE, limits)?;
        fields::check_messages(body)?;
        if body.get_non_null("toolConfig").is_some() {
            let added = prompt.added_tokens_max;
            prompt.added_tokens_max =
                // The instructions that a provider renders for tools stand in no byte of the
                // request.
                added.map(|most| most.saturating_add(request_policy::TOOLS_TOKENS_MAX));
        }
        let config = body.get_non_null("inferenceConfig").and_then(|value| value.as_object().ok());
        let requested = match &config {
            Some(config) => fields::output_tokens(config, "maxTokens", 1, limits)?,
            None => None,
        };
        let output_tokens_max = requested.unwrap_or(limits.output_tokens_max);
        let bounds = RequestBounds::from_prompt(body, &prompt, limits, output_tokens_max)?
            .with_output_limit(requested, limits.output_tokens_max, 1);
        let thinks = thinks(body);
        let has_stops = config.is_some_and(|it| it.get_non_null("stopSequences").is_some());
        let lifetime = RequestedLifetime::in_body(body, &CACHE_POINT);
        let cache_writes = lifetime.cache_writes(false);
        let bounds = bounds.with_billing(BillingFacts {
            is_all_shown: prompt.is_plain() && !thinks.unwrap_or(limits.reasoning),
            estimates_unreported: limits.missing_usage == MissingUsage::Estimate
                && prompt.is_plain()
                && thinks != Some(true)
                && !has_stops,
            input_ways: InputWays { cache_writes, ..prompt.input_ways() },
            traits: Traits { thinking: thinks, ..Traits::default() },
            ..BillingFacts::default()
        });
        Ok(Box::new(ConverseCall {
            unsplit: lifetime.unsplit(),
            model: body.member_range("model"),
            bounds,
            model_limits: Usage {
                input_tokens: limits.input_tokens_max,
                output_tokens: limits.output_tokens_max,
                ..Usage::ZERO
            },
        }))
    }
}

/// True or false if a request for a model of Anthropic's switches thinking on or off, in Anthropic's fields.
fn thinks(body: &Object<'_>) -> Option<bool> {
    let fields = body.get_non_null("additionalModelRequestFields")?.as_object().ok()?;
    let thinking = fields.get_non_null("thinking")?.as_object().ok()?;
    Some(thinking.get("type").and_then(|kind| kind.as_str()).as_deref() != Some("disabled"))
}

/// Finds the marks of what is written to a cache.
static CACHE_POINT: LazyLock<memmem::Finder<'static>> =
    LazyLock::new(|| memmem::Finder::new(b"\"cachePoint\""));

#[derive(Debug)]
struct ConverseCall {
    bounds: RequestBounds,
    /// The unit of cache writes of which a report does not say how long they are kept.
    unsplit: Unit,
    /// Position of the model's name in the body; it moves into the path.
    model: Option<Range<usize>>,
    /// The model's limits: a report above them shows that they are out of date.
    model_limits: Usage,
}

impl Call for ConverseCall {
    bounds_in_field!();

    fn splice(&self, _upstream_model: &str) -> Splice {
        let mut splice = Splice::default();
        if let Some(model) = &self.model {
            splice.replace(model.clone(), "");
        }
        splice
    }

    fn comes_in_frames(&self) -> bool {
        true
    }

    fn meter(&self, framing: Framing) -> Box<dyn Meter> {
        let frame = MeterContext::new(&self.bounds, self.model_limits);
        match framing {
            Framing::Json | Framing::Binary => {
                let unsplit = self.unsplit;
                let report = move |usage: &[u8]| WireConverseUsage::report(usage, unsplit);
                Box::new(JsonMeter::new(frame, Box::new(report)))
            }
            // Whoever translates has taken the frames apart.
            Framing::Sse | Framing::EventStream => Box::new(StreamMeter::new(ConverseTally {
                state: StreamState::new(frame),
                unsplit: self.unsplit,
                has_ended: false,
                has_closed: false,
            })),
        }
    }
}

/// The `usage` object. `inputTokens` leaves out what the cache has read or written.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireConverseUsage {
    #[serde(deserialize_with = "count")]
    input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    output_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    cache_read_input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    cache_write_input_tokens: Option<u64>,
    cache_details: Option<Vec<WireCacheDetail>>,
}

/// Tokens written to the cache with one lifetime.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireCacheDetail {
    ttl: String,
    #[serde(deserialize_with = "count")]
    input_tokens: Option<u64>,
}

impl WireConverseUsage {
    fn report(usage: &[u8], unsplit: Unit) -> Option<UsageReport> {
        let read: Self = metering::read_wire(usage)?;
        Some(read.to_report(unsplit).with_no_counts_noted(usage))
    }

    /// The usage in disjoint kinds. `unsplit` is the unit of cache writes without a lifetime.
    fn to_report(&self, unsplit: Unit) -> UsageReport {
        let details = || self.cache_details.iter().flatten();
        let sum = |is_counted: &dyn Fn(&str) -> bool| {
            let counts = details().filter(|one| is_counted(&one.ttl));
            counts.filter_map(|one| one.input_tokens).fold(0, u64::saturating_add)
        };
        // Where the total is missing, its parts may be there.
        let total = self.cache_write_input_tokens.unwrap_or_else(|| sum(&|_| true));
        let written = CacheWritten {
            total: NamedCount::from_values(&[Some(total)]),
            short: sum(&|ttl| ttl == "5m"),
            // A time that nobody knows here is no shorter than an hour.
            hour: sum(&|ttl| !matches!(ttl, "" | "5m")),
            twelve_hours: 0,
        };
        let (mut usage, mut contradictions) = (Usage::ZERO, Contradictions::default());
        written.add_to(&mut usage, unsplit, &mut contradictions);
        let usage = Usage {
            input_tokens: self.input_tokens.unwrap_or(0),
            cache_read_tokens: self.cache_read_input_tokens.unwrap_or(0),
            output_tokens: self.output_tokens.unwrap_or(0),
            ..usage
        };
        let served = Traits::default();
        UsageReport { usage, has_details: true, rounds: 1, served, cost: None, contradictions }
    }
}

/// A message of a stream as [`Converse::stream_event`] writes it, which is the data of an event for all
/// who read it.
pub(super) fn event_data(message: &EventFrame<'_>) -> Vec<u8> {
    let mut data = Vec::with_capacity(message.payload.len() + 64);
    let kind = message.header(":message-type").unwrap_or_default();
    let name = |header: &str| message.header(header).unwrap_or_default();
    match kind {
        "event" => Converse::stream_event(kind, name(":event-type"), message.payload, &mut data),
        "exception" => {
            Converse::stream_event(kind, name(":exception-type"), message.payload, &mut data);
        }
        // An error has headers only.
        _ => {
            let payload = format!("{{\"message\":{}}}", json_string(name(":error-message")));
            Converse::stream_event("error", name(":error-code"), payload.as_bytes(), &mut data);
        }
    }
    data
}

/// Meters a stream of Converse events.
struct ConverseTally {
    state: StreamState,
    /// The unit of cache writes of which a report does not say how long they are kept.
    unsplit: Unit,
    /// The text has ended, or its failure was reported.
    has_ended: bool,
    /// The usage was received after the end; later events are neither counted nor relayed.
    has_closed: bool,
}

impl Tally for ConverseTally {
    type Totals = StreamState;

    fn judge(&mut self, data: &[u8]) -> EventAction {
        if self.has_closed {
            return EventAction::Drop;
        }
        let (mut kind, mut name, mut payload) = (&b""[..], &b""[..], &b""[..]);
        Cursor::new(data).object(|key, value| {
            match key {
                b"kind" => kind = value.raw()?,
                b"name" => name = value.raw()?,
                b"payload" => payload = value.raw()?,
                _ => value.skip()?,
            }
            Some(())
        });
        if kind == b"\"event\"" {
            self.count(name, payload);
        } else {
            // An exception or an error is the last message: nothing is metered behind it.
            self.state.failed = true;
            (self.has_ended, self.has_closed) = (true, true);
        }
        EventAction::Keep
    }

    fn is_complete(&self) -> bool {
        self.has_ended
    }

    fn totals(&self) -> &StreamState {
        &self.state
    }
}

impl ConverseTally {
    fn count(&mut self, name: &[u8], payload: &[u8]) {
        match name {
            b"\"contentBlockStart\"" | b"\"contentBlockDelta\"" => {
                let mut text = TextSize::default();
                add_text(&mut Cursor::new(payload), &mut text);
                self.state.show(VisibleOutput::from_text(text));
            }
            b"\"messageStop\"" => {
                self.has_ended = true;
                Cursor::new(payload).object(|key, value| {
                    match key {
                        b"stopReason" => {
                            self.state.ended_at_limit = matches!(
                                value.raw()?,
                                b"\"max_tokens\"" | b"\"model_context_window_exceeded\""
                            );
                        }
                        _ => value.skip()?,
                    }
                    Some(())
                });
            }
            b"\"metadata\"" => {
                let mut usages = Vec::new();
                Cursor::new(payload).object(|key, value| {
                    match key {
                        b"usage" => usages.extend(value.non_null()?),
                        _ => value.skip()?,
                    }
                    Some(())
                });
                let read = |usage| WireConverseUsage::report(usage, self.unsplit);
                for report in usages.into_iter().filter_map(read) {
                    self.state.report(report);
                }
                // `metadata` comes once, behind `messageStop`. One that comes earlier closes
                // nothing.
                self.has_closed = self.has_ended;
            }
            _ => {}
        }
    }
}

/// Adds the text of a delta, or of the beginning of a block.
fn add_text(value: &mut Cursor<'_>, text: &mut TextSize) -> Option<()> {
    value.object(|key, value| match key {
        b"text" | b"input" | b"name" => {
            text.add(value.text_size()?);
            Some(())
        }
        b"delta" | b"start" | b"toolUse" | b"reasoningContent" => add_text(value, text),
        _ => value.skip(),
    })
}

#[cfg(test)]
mod tests;
