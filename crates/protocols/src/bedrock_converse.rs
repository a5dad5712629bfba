//! `POST /model/{modelId}/converse` and `/converse-stream` of Amazon Bedrock, for which requests of other
//! dialects are translated: no customer speaks it.
//!
//! Fields, events and usage figures: Amazon Bedrock API Reference, "Converse" and "ConverseStream". An
//! answer is JSON; events come in the frames of [`event_stream`](super::event_stream).

use std::borrow::Cow;
use std::ops::Range;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tollgate_money::error::GatewayError;
use tollgate_money::price::{CacheWrites, InputWays, Traits, Usage, UsageSource};
use tollgate_translation::Converse;

use super::estimate::TextSize;
use super::event_stream::EventFrame;
use super::json::Object;
use super::json_cursor::Cursor;
use super::limits::ModelLimits;
use super::metering::{
    self, Frame, JsonMeter, Shown, StreamMeter, StreamState, Tally, UsageReport,
};
use super::splice::{Splice, json_string};
use super::sse::EventAction;
use super::{Call, Codec, Dialect, Framing, Meter, Operation, PathAsked, Request, Terms, offer};

/// What stays as it is in a segment of a path (RFC 3986, section 2.3).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

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

    fn path_to(&self, asked: &PathAsked<'_>) -> Cow<'static, str> {
        // Names of models have colons, and those of profiles slashes too.
        let model = utf8_percent_encode(asked.model, SEGMENT);
        let way = if asked.streams { "converse-stream" } else { "converse" };
        format!("{}/{model}/{way}", self.path()).into()
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        let mut prompt = offer::read(body, &offer::CONVERSE, limits)?;
        super::check_messages(body)?;
        if body.get_non_null("toolConfig").is_some() {
            let added = prompt.added_tokens_max;
            prompt.added_tokens_max =
                added.map(|most| most.saturating_add(offer::TOOLS_TOKENS_MAX));
        }
        let config = body.get_non_null("inferenceConfig").and_then(|value| value.as_object().ok());
        let asked = match &config {
            Some(config) => super::output_tokens(config, "maxTokens", 1, limits)?,
            None => None,
        };
        let output_tokens_max = asked.unwrap_or(limits.output_tokens_max);
        let terms = Terms::of_prompt(body, &prompt, limits, output_tokens_max)?;
        let thinks = thinks(body);
        Ok(Box::new(ConverseCall {
            is_all_shown: prompt.is_plain() && !thinks.unwrap_or(limits.reasoning),
            thinks,
            input_ways: InputWays { cache_writes: cache_writes(body), ..prompt.input_ways() },
            model: body.member_range("model"),
            terms,
            possible: Usage {
                input_tokens: limits.input_tokens_max,
                output_tokens: limits.output_tokens_max,
                ..Usage::ZERO
            },
        }))
    }
}

/// Whether the request switches thinking on or off, if it says so: one of Anthropic's models, in
/// Anthropic's words.
fn thinks(body: &Object<'_>) -> Option<bool> {
    let fields = body.get_non_null("additionalModelRequestFields")?.as_object().ok()?;
    let thinking = fields.get_non_null("thinking")?.as_object().ok()?;
    Some(thinking.get("type").and_then(|kind| kind.as_str()).as_deref() != Some("disabled"))
}

/// What is written to the cache: what a `cachePoint` stands behind, for five minutes where no `ttl` says
/// otherwise. Text in which either stands between quotes has a backslash before them.
fn cache_writes(body: &Object<'_>) -> CacheWrites {
    let has = |key: &str| memchr::memmem::find(body.text(), key.as_bytes()).is_some();
    match (has("\"cachePoint\""), has("\"ttl\"")) {
        (false, _) => CacheWrites::None,
        (true, false) => CacheWrites::Short,
        (true, true) => CacheWrites::Any,
    }
}

#[derive(Debug)]
struct ConverseCall {
    terms: Terms,
    is_all_shown: bool,
    thinks: Option<bool>,
    input_ways: InputWays,
    /// Where the body names the model, which goes into the path.
    model: Option<Range<usize>>,
    /// What the model could use at all: a report above it says that its limits are out of date.
    possible: Usage,
}

impl Call for ConverseCall {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn is_all_shown(&self) -> bool {
        self.is_all_shown
    }

    fn input_ways(&self) -> InputWays {
        self.input_ways
    }

    fn traits(&self) -> Traits {
        Traits { thinking: self.thinks, ..Traits::default() }
    }

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
        let frame = Frame::new(&self.terms, self.possible);
        match framing {
            Framing::Json | Framing::Binary => {
                Box::new(JsonMeter::new(frame, Box::new(WireConverseUsage::report)))
            }
            // Whoever translates has taken the frames apart.
            Framing::Sse | Framing::EventStream => Box::new(StreamMeter::new(ConverseTally {
                known: StreamState::new(frame),
                ..ConverseTally::default()
            })),
        }
    }
}

/// The `usage` object. `inputTokens` leaves out what the cache has read or written.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireConverseUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_write_input_tokens: Option<u64>,
    cache_details: Option<Vec<WireCacheDetail>>,
}

/// What was written to the cache for one time.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireCacheDetail {
    ttl: String,
    input_tokens: u64,
}

impl WireConverseUsage {
    fn report(usage: &[u8]) -> Option<UsageReport> {
        let usage: Self = metering::read_wire(usage)?;
        let details = usage.cache_details.unwrap_or_default();
        let sum = |all: &mut dyn Iterator<Item = &WireCacheDetail>| {
            all.fold(0_u64, |sum, detail| sum.saturating_add(detail.input_tokens))
        };
        let written = usage.cache_write_input_tokens.unwrap_or_else(|| sum(&mut details.iter()));
        let one_hour = sum(&mut details.iter().filter(|detail| detail.ttl == "1h")).min(written);
        let usage = Usage {
            input_tokens: usage.input_tokens.unwrap_or(0),
            cache_read_tokens: usage.cache_read_input_tokens.unwrap_or(0),
            cache_write_tokens: written.saturating_sub(one_hour),
            cache_write_1h_tokens: one_hour,
            output_tokens: usage.output_tokens.unwrap_or(0),
            ..Usage::ZERO
        };
        let served = Traits::default();
        Some(UsageReport { usage, has_details: true, rounds: 1, served, cost: None })
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
            let said = format!("{{\"message\":{}}}", json_string(name(":error-message")));
            Converse::stream_event("error", name(":error-code"), said.as_bytes(), &mut data);
        }
    }
    data
}

/// What a stream has shown so far.
#[derive(Default)]
struct ConverseTally {
    known: StreamState,
    /// The end of what was said has come, or why there is none.
    has_ended: bool,
    /// Behind that, what was used: what comes later is neither believed nor passed on.
    has_closed: bool,
}

impl Tally for ConverseTally {
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
            self.known.failed = true;
            (self.has_ended, self.has_closed) = (true, true);
        }
        EventAction::Keep
    }

    fn is_complete(&self) -> bool {
        self.has_ended
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

    fn is_above_limits(&self) -> bool {
        self.known.is_above_limits()
    }
}

impl ConverseTally {
    fn count(&mut self, name: &[u8], payload: &[u8]) {
        match name {
            b"\"contentBlockStart\"" | b"\"contentBlockDelta\"" => {
                let mut text = TextSize::default();
                add_text(&mut Cursor::new(payload), &mut text);
                self.known.show(Shown::from_text(text));
            }
            b"\"messageStop\"" => self.has_ended = true,
            b"\"metadata\"" => {
                let mut usages = Vec::new();
                Cursor::new(payload).object(|key, value| {
                    match key {
                        b"usage" => usages.extend(value.non_null()?),
                        _ => value.skip()?,
                    }
                    Some(())
                });
                for report in usages.into_iter().filter_map(WireConverseUsage::report) {
                    self.known.report(report);
                }
                self.has_closed = self.has_ended;
            }
            _ => {}
        }
    }
}

/// Adds what a delta, or the beginning of a block, says.
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
