//! `POST /v1/messages` and `POST /v1/messages/count_tokens` over upstreams that speak Anthropic's protocol.
//!
//! Spec section 4. Fields, events and usage figures: Anthropic's API reference, "Messages" and
//! "Streaming Messages".

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;

use super::allowed_keys::AllowedKey;
use super::counter::Counter;
use super::disjoint::{CACHE_CONTROL, RequestedLifetime};
use super::estimate::TextSize;
use super::fields;
use super::json::Object;
use super::json_cursor::Cursor;
use super::limits::{MissingUsage, ModelLimits};
use super::metering::{
    self, JsonMeter, MeterContext, StreamMeter, StreamState, Tally, VisibleOutput,
};
use super::prompt_count::{MediaCount, prompt_tokens};
use super::request_bounds::BillingFacts;
use super::request_policy::SearchLimit;
use super::server_tools::{ItemScan, ServerToolCalls};
use super::splice::Splice;
use super::sse::EventAction;
use super::stored::StoredIds;
use super::{
    Call, Codec, Dialect, Framing, Meter, Operation, Request, RequestBounds, request_policy,
};
use crate::codec::bounds_in_field;
use tollgate_money::price::{InferenceGeo, InputWays, Speed, Traits, Unit, Usage};
use tollgate_types::error::GatewayError;

mod usage;

use usage::WireMessagesUsage;

/// Fields that decide what is counted: a spelling that only some parsers take for them is refused.
const COUNTED_FIELDS: [&str; 4] = ["model", "messages", "system", "tools"];

/// Parameters of the query that Anthropic's SDKs and Claude Code send: `?beta=true` with their calls of
/// beta endpoints.
const QUERY_PARAMETERS: &[&str] = &["beta"];

/// Codec of Anthropic's Messages API.
#[derive(Debug)]
pub struct AnthropicMessages;

impl Codec for AnthropicMessages {
    fn operation(&self) -> Operation {
        Operation::Messages
    }

    fn dialects(&self) -> &'static [Dialect] {
        &[Dialect::Anthropic]
    }

    fn path(&self) -> &'static str {
        "/v1/messages"
    }

    fn counter(&self) -> Option<Counter> {
        Some(Counter::Messages)
    }

    fn query_parameters(&self) -> &'static [&'static str] {
        QUERY_PARAMETERS
    }

    fn allowed_keys(&self) -> Vec<AllowedKey> {
        AllowedKey::of_allowlist(&request_policy::MESSAGES)
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        let prompt = request_policy::read(body, &request_policy::MESSAGES, limits)?;
        fields::check_messages(body)?;
        // Zero is legal: it only writes the prompt to the cache.
        let requested = fields::output_tokens(body, "max_tokens", 0, limits)?;
        let output_tokens_max = requested.unwrap_or(limits.output_tokens_max);
        let bounds = RequestBounds::from_prompt(body, &prompt, limits, output_tokens_max)?
            .with_output_limit(requested, limits.output_tokens_max, 1);
        let shows_thinking = match thinks(body) {
            Some(thinks) => !thinks,
            None => !limits.reasoning,
        };
        let has = |field: &str| body.get_non_null(field).is_some();
        let lifetime = RequestedLifetime::in_body(body, &CACHE_CONTROL);
        let bounds = bounds.with_billing(BillingFacts {
            is_all_shown: prompt.is_plain() && shows_thinking,
            estimates_unreported: limits.missing_usage == MissingUsage::Estimate
                && prompt.is_plain()
                && thinks(body) != Some(true)
                // What a stop sequence cuts off is billed and never seen, and an effort makes a
                // model think unseen.
                && !has("stop_sequences")
                && !has("output_config"),
            traits: traits(body),
            input_ways: InputWays {
                cache_writes: lifetime.cache_writes(prompt.has_passed),
                ..prompt.input_ways()
            },
            ..BillingFacts::default()
        });
        let left_out_ranges = body.member_ranges(&prompt.left_out_fields);
        Ok(Box::new(MessagesCall {
            unsplit: lifetime.unsplit(),
            runs_tools: prompt.has_server_tools(),
            left_out: prompt.left_out_fields,
            left_out_ranges,
            search_limit: prompt.search_limit,
            bounds,
            model_limits: RoundLimits {
                input: limits.input_tokens_max,
                output: limits.output_tokens_max,
                loops: prompt.rounds,
            },
        }))
    }
}

/// Traits of the request on which the price depends. No tier is requested from Anthropic: priority capacity
/// is used where it was bought.
fn traits(body: &Object<'_>) -> Traits {
    let word = |field: &str| body.get_non_null(field).and_then(|value| value.as_str());
    Traits {
        speed: word("speed").and_then(|word| Speed::of(&word)),
        inference_geo: word("inference_geo").and_then(|word| InferenceGeo::of(&word)),
        thinking: thinks(body),
        ..Traits::default()
    }
}

/// True or false if the request switches thinking on or off.
fn thinks(body: &Object<'_>) -> Option<bool> {
    let thinking = body.get_non_null("thinking")?.as_object().ok();
    let kind = thinking.and_then(|thinking| thinking.get("type"));
    Some(kind.and_then(|kind| kind.as_str()).as_deref() != Some("disabled"))
}

/// The codec of `POST /v1/messages/count_tokens`.
#[derive(Debug)]
pub struct AnthropicCountTokens;

impl Codec for AnthropicCountTokens {
    fn operation(&self) -> Operation {
        Operation::CountTokens
    }

    fn dialects(&self) -> &'static [Dialect] {
        &[Dialect::Anthropic]
    }

    fn path(&self) -> &'static str {
        "/v1/messages/count_tokens"
    }

    fn query_parameters(&self) -> &'static [&'static str] {
        QUERY_PARAMETERS
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        fields::refuse_case_variants(body, &COUNTED_FIELDS)?;
        fields::check_messages(body)?;
        let tokens = prompt_tokens(body, MediaCount::Anthropic, limits.pictures);
        let bounds = RequestBounds::from_body(body, Usage::ZERO, Usage::ZERO)
            .with_references(request_policy::references(body, &request_policy::MESSAGES));
        Ok(Box::new(CountCall { bounds, tokens }))
    }
}

#[derive(Debug)]
struct MessagesCall {
    bounds: RequestBounds,
    /// The unit of cache writes of which a report does not say how long they are kept.
    unsplit: Unit,
    runs_tools: bool,
    /// Top-level fields that do not go upstream, and where they stand.
    left_out: Vec<&'static str>,
    left_out_ranges: Vec<Range<usize>>,
    search_limit: Option<SearchLimit>,
    model_limits: RoundLimits,
}

/// The model's limits: a report above them shows that they are out of date.
#[derive(Clone, Copy, Debug, Default)]
struct RoundLimits {
    input: u64,
    output: u64,
    loops: u64,
}

impl RoundLimits {
    /// Maximum usage of all rounds together.
    fn usage(self) -> Usage {
        Usage {
            input_tokens: self.input.saturating_mul(self.loops),
            output_tokens: self.output.saturating_mul(self.loops),
            ..Usage::ZERO
        }
    }
}

impl Call for MessagesCall {
    bounds_in_field!();

    fn splice(&self, upstream_model: &str) -> Splice {
        let mut splice = self.bounds.model.rename(upstream_model);
        for range in &self.left_out_ranges {
            splice.replace(range.clone(), "");
        }
        if let Some(limit) = &self.search_limit {
            limit.write(&mut splice);
        }
        splice
    }

    fn is_stored(&self) -> bool {
        // The container that code runs in, which a later request can name.
        self.runs_tools
    }

    fn left_out(&self) -> Option<Cow<'_, str>> {
        (!self.left_out.is_empty()).then(|| self.left_out.join(", ").into())
    }

    fn meter(&self, framing: Framing) -> Box<dyn Meter> {
        let (frame, unsplit) =
            (MeterContext::new(&self.bounds, self.model_limits.usage()), self.unsplit);
        match framing {
            Framing::Json | Framing::EventStream | Framing::Binary => {
                let items = self.runs_tools.then(|| ItemScan::new("content"));
                let report = move |usage: &[u8]| WireMessagesUsage::report(usage, unsplit);
                let meter = JsonMeter::new(frame, Box::new(report));
                Box::new(meter.noting_ids(self.runs_tools).counting(items))
            }
            Framing::Sse => {
                let state = StreamState::new(frame);
                let server_calls = self.runs_tools.then(ServerToolCalls::default);
                let tally = MessagesTally {
                    state,
                    unsplit,
                    reported: WireMessagesUsage::default(),
                    ended: false,
                    server_calls,
                    ids: self.runs_tools.then(StoredIds::default),
                    stopped: false,
                };
                Box::new(StreamMeter::new(tally))
            }
        }
    }
}

#[derive(Debug)]
struct CountCall {
    bounds: RequestBounds,
    /// The tokens of the prompt, by an estimate.
    tokens: u64,
}

impl Call for CountCall {
    bounds_in_field!();

    fn local_answer(&self) -> Option<Bytes> {
        Some(format!(r#"{{"input_tokens":{}}}"#, self.tokens).into())
    }

    fn meter(&self, _: Framing) -> Box<dyn Meter> {
        Box::new(JsonMeter::new(MeterContext::default(), Box::new(|_| None)))
    }
}

/// The members of a stream event that count.
#[derive(Default)]
struct MessagesEvent<'a> {
    kind: &'a [u8],
    text: TextSize,
    /// The `usage` of a `message_start` or `message_delta`; more than one only if the key is repeated.
    usages: Vec<&'a [u8]>,
    /// A block that begins.
    block: Option<&'a [u8]>,
    stops: bool,
    /// It stops because it reached the requested maximum, or the end of the context.
    ends_at_limit: bool,
    has_error: bool,
    /// The id of the container that code of the answer runs in, with its quotes.
    container: Option<&'a [u8]>,
}

impl<'a> MessagesEvent<'a> {
    /// Reads the data of an event; `None` for what no event looks like.
    fn read(data: &'a [u8]) -> Option<Self> {
        let mut event = Self::default();
        Cursor::new(data).object(|key, value| {
            match key {
                b"type" => event.kind = value.raw()?,
                b"usage" => event.usages.extend(value.non_null()?),
                b"error" => event.has_error |= value.non_null()?.is_some(),
                b"message" => value.object(|key, value| {
                    match key {
                        b"usage" => event.usages.extend(value.non_null()?),
                        b"container" => event.read_container(value)?,
                        _ => value.skip()?,
                    }
                    Some(())
                })?,
                b"content_block" => {
                    let block = value.raw()?;
                    event.block = Some(block);
                    // The beginning of a block can carry text already, and the name of a tool is
                    // output too.
                    event.read_text(&mut Cursor::new(block))?;
                }
                b"delta" => event.read_text(value)?,
                _ => value.skip()?,
            }
            Some(())
        })?;
        Some(event)
    }

    fn read_container(&mut self, value: &mut Cursor<'a>) -> Option<()> {
        let Some(container) = value.non_null()? else { return Some(()) };
        Cursor::new(container).object(|key, value| {
            match key {
                b"id" => self.container = value.non_null()?,
                _ => value.skip()?,
            }
            Some(())
        })
    }

    /// Reads a delta, or the beginning of a block.
    fn read_text(&mut self, value: &mut Cursor<'a>) -> Option<()> {
        value.object(|key, value| {
            match key {
                b"text" | b"thinking" | b"partial_json" | b"name" | b"content" => {
                    self.text.add(value.text_size()?);
                }
                b"stop_reason" => {
                    let reason = value.non_null()?;
                    self.stops |= reason.is_some();
                    self.ends_at_limit |= matches!(
                        reason,
                        Some(b"\"max_tokens\"" | b"\"model_context_window_exceeded\"")
                    );
                }
                b"container" => self.read_container(value)?,
                _ => value.skip()?,
            }
            Some(())
        })
    }
}

/// Meters a stream of message events.
struct MessagesTally {
    state: StreamState,
    /// The unit of cache writes of which a report does not say how long they are kept.
    unsplit: Unit,
    /// The usage reported so far; each report leaves out unchanged members.
    reported: WireMessagesUsage,
    ended: bool,
    /// Calls of tools that the upstream runs, if the request permits any.
    server_calls: Option<ServerToolCalls>,
    /// Ids of containers, where code may run in one.
    ids: Option<StoredIds>,
    /// `message_stop` has come: what comes later is relayed, and not believed.
    stopped: bool,
}

impl Tally for MessagesTally {
    type Totals = StreamState;

    fn judge(&mut self, data: &[u8]) -> EventAction {
        if self.stopped {
            return EventAction::Keep;
        }
        let Some(event) = MessagesEvent::read(data) else { return EventAction::Keep };
        self.state.show(VisibleOutput::from_text(event.text));
        if let (Some(ids), Some(id)) = (&mut self.ids, event.container) {
            ids.add(id);
        }
        if let (Some(server_calls), Some(block)) = (&mut self.server_calls, event.block) {
            server_calls.count(block);
            // Counted from the blocks as they begin: a cut stream has no final report of searches.
            self.state.made = server_calls.usage();
        }
        for text in &event.usages {
            let Some(usage) = metering::read_wire::<WireMessagesUsage>(text) else { continue };
            // Asked before the usages are joined: the joined one has the count of the start.
            let has_output = usage.output_tokens.is_some();
            self.reported.update(usage);
            let report = self.reported.to_report(self.unsplit).with_no_counts_noted(text);
            // The one at the start knows nothing of the output, nor does one whose count is none.
            match event.kind {
                b"\"message_delta\"" if has_output => self.state.report(report),
                _ => self.state.report_begun(report),
            }
        }
        self.state.failed |= event.has_error;
        self.state.ended_at_limit |= event.ends_at_limit;
        self.ended |= event.stops || event.has_error;
        self.stopped = event.kind == b"\"message_stop\"";
        EventAction::Keep
    }

    fn is_complete(&self) -> bool {
        self.stopped || self.ended
    }

    fn totals(&self) -> &StreamState {
        &self.state
    }

    fn stored_ids(&self) -> &[String] {
        self.ids.as_ref().map_or(&[], StoredIds::all)
    }
}

#[cfg(test)]
mod tests;
