//! `POST /v1/messages` and `POST /v1/messages/count_tokens` over upstreams that speak Anthropic's protocol.
//!
//! Spec section 4. Fields, events and usage figures: Anthropic's API reference, "Messages" and
//! "Streaming Messages".

use bytes::Bytes;
use serde::Deserialize;

use super::estimate::TextSize;
use super::json::{Object, Value};
use super::json_cursor::Cursor;
use super::limits::ModelLimits;
use super::metering::{JsonMeter, Shown, StreamMeter, Tally};
use super::sse::Verdict;
use super::{Call, Codec, Dialect, Framing, Meter, Operation, Prompt, Request, Terms};
use crate::error::GatewayError;
use crate::price::{Usage, UsageSource};

/// Fields that decide what a call costs: a spelling that only some parsers take for them is refused.
const BILLING_FIELDS: [&str; 10] = [
    "model",
    "messages",
    "max_tokens",
    "stream",
    "system",
    "tools",
    "mcp_servers",
    "container",
    "fallbacks",
    "speed",
];
/// Fields with which an upstream adds input of its own.
const UNBOUNDED_FIELDS: [&str; 3] = ["mcp_servers", "container", "fallbacks"];
/// What an upstream adds to a prompt that has tools: a system prompt of up to some 700 tokens.
const TOOLS_TOKENS_MAX: u64 = 1024;
/// How often a model may read its whole context within one request: once, or after each call of a
/// tool that the upstream runs itself.
const SERVER_TOOL_LOOPS_MAX: u64 = 10;
/// Rounds of one request that are summed up at most.
const ITERATIONS_MAX: u64 = 32;

/// The codec.
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

    fn forwards_query(&self) -> bool {
        true
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        super::refuse_case_variants(body, &BILLING_FIELDS)?;
        super::check_messages(body)?;
        check_speed(body)?;
        // Zero is legal: it only writes the prompt to the cache.
        let asked = super::integer(body, "max_tokens", 0..=u64::MAX)?;
        let output_tokens_max =
            asked.unwrap_or(limits.output_tokens_max).min(limits.output_tokens_max);
        let tools = Tools::read(body);
        let is_unbounded = tools == Tools::Servers
            || UNBOUNDED_FIELDS.iter().any(|field| body.get_non_null(field).is_some());
        let added = if tools == Tools::None { 0 } else { TOOLS_TOKENS_MAX };
        let prompt = Prompt {
            // Media and files, in place or by reference.
            has_media: super::has_quote_where(body.text(), |_, behind| {
                behind.starts_with(b"source\"") || behind.starts_with(b"file_id\"")
            }),
            added_tokens_max: (!is_unbounded).then_some(added),
        };
        Ok(Box::new(MessagesCall {
            terms: Terms::of_prompt(body, &prompt, limits, output_tokens_max)?,
            possible: Possible {
                input: limits.input_tokens_max,
                output: limits.output_tokens_max,
                loops: if tools == Tools::Servers { SERVER_TOOL_LOOPS_MAX } else { 1 },
            },
        }))
    }
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

    fn forwards_query(&self) -> bool {
        true
    }

    fn read(&self, request: &Request<'_>, _: &ModelLimits) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        super::refuse_case_variants(body, &BILLING_FIELDS)?;
        super::check_messages(body)?;
        let tokens = TextSize::of_strings(body.text()).tokens();
        let terms = Terms::of_whole(body, Usage::ZERO, Usage::ZERO);
        Ok(Box::new(CountCall { terms, tokens }))
    }
}

/// A faster mode has prices of its own, and `models.yaml` has none for it.
fn check_speed(body: &Object<'_>) -> Result<(), GatewayError> {
    match body.get_non_null("speed") {
        Some(speed) if speed.as_str().as_deref() != Some("standard") => {
            Err(GatewayError::invalid("speed", "`speed` must be `standard`"))
        }
        _ => Ok(()),
    }
}

/// Who runs the tools of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tools {
    None,
    Customers,
    /// The upstream runs some, whose results it adds to the input.
    Servers,
}

impl Tools {
    fn read(body: &Object<'_>) -> Self {
        let Some(tools) = body.get_non_null("tools").and_then(|tools| tools.as_array()) else {
            return Self::None;
        };
        let is_customers = |tool: &Value<'_>| {
            let kind = tool.as_object().ok().and_then(|tool| tool.get_non_null("type"));
            kind.is_none_or(|kind| kind.as_str().as_deref() == Some("custom"))
        };
        match tools.as_slice() {
            [] => Self::None,
            tools if tools.iter().all(is_customers) => Self::Customers,
            _ => Self::Servers,
        }
    }
}

#[derive(Debug)]
struct MessagesCall {
    terms: Terms,
    possible: Possible,
}

/// What the model could use at all: a report above it is not believed.
#[derive(Clone, Copy, Debug, Default)]
struct Possible {
    input: u64,
    output: u64,
    loops: u64,
}

impl Call for MessagesCall {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn meter(&self, framing: Framing) -> Box<dyn Meter> {
        let (floor, possible) = (self.terms.floor, self.possible);
        match framing {
            Framing::Json | Framing::Binary => {
                let read = move |usage: &[u8]| WireUsage::read(usage)?.to_usage(&possible);
                Box::new(JsonMeter::new(floor, possible.output, Box::new(read)))
            }
            Framing::Sse => {
                let tally = MessagesTally { floor, possible, ..MessagesTally::default() };
                Box::new(StreamMeter::new(tally))
            }
        }
    }
}

#[derive(Debug)]
struct CountCall {
    terms: Terms,
    /// An estimate.
    tokens: u64,
}

impl Call for CountCall {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn local_answer(&self) -> Option<Bytes> {
        Some(format!(r#"{{"input_tokens":{}}}"#, self.tokens).into())
    }

    fn meter(&self, _: Framing) -> Box<dyn Meter> {
        Box::new(JsonMeter::new(Usage::ZERO, 0, Box::new(|_| None)))
    }
}

/// The `usage` object. `input_tokens` leaves out what the cache has read or written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireUsage {
    input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_creation: Option<WireCacheCreation>,
    output_tokens: Option<u64>,
    /// The rounds of a request that compacts its context; the figures above are the last one's.
    iterations: Option<Vec<WireUsage>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireCacheCreation {
    ephemeral_5m_input_tokens: u64,
    ephemeral_1h_input_tokens: u64,
}

impl WireUsage {
    fn read(usage: &[u8]) -> Option<Self> {
        serde_json::from_slice(usage).ok()
    }

    /// Takes over what a later report says. Reports are cumulative, and later ones leave out what
    /// has not changed.
    fn update(&mut self, later: Self) {
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.cache_read_input_tokens =
            later.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.cache_creation_input_tokens =
            later.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
        self.cache_creation = later.cache_creation.or(self.cache_creation.take());
        self.output_tokens = later.output_tokens.or(self.output_tokens);
        self.iterations = later.iterations.or(self.iterations.take());
    }

    /// The usage in disjoint kinds, unless it is more than the model can use.
    fn to_usage(&self, possible: &Possible) -> Option<Usage> {
        let iterations = self.iterations.as_deref().unwrap_or_default();
        let rounds = (iterations.len() as u64).min(ITERATIONS_MAX).max(possible.loops);
        let last = self.flat()?;
        let sum = iterations.iter().try_fold(Usage::ZERO, |sum, iteration| {
            Some(combine(sum, iteration.flat()?, u64::saturating_add))
        })?;
        let usage = combine(last, sum, u64::max);
        let is_possible = usage.input_tokens_total() <= possible.input.saturating_mul(rounds)
            && usage.output_tokens <= possible.output.saturating_mul(rounds);
        is_possible.then_some(usage)
    }

    fn flat(&self) -> Option<Usage> {
        let split = self.cache_creation.clone().unwrap_or_default();
        let (five_minutes, one_hour) =
            (split.ephemeral_5m_input_tokens, split.ephemeral_1h_input_tokens);
        let written =
            self.cache_creation_input_tokens.unwrap_or(five_minutes.saturating_add(one_hour));
        let one_hour = one_hour.min(written);
        Some(Usage {
            input_tokens: self.input_tokens?,
            cache_read_tokens: self.cache_read_input_tokens.unwrap_or(0),
            cache_write_tokens: written.saturating_sub(one_hour),
            cache_write_1h_tokens: one_hour,
            output_tokens: self.output_tokens.unwrap_or(0),
            ..Usage::ZERO
        })
    }
}

fn combine(a: Usage, b: Usage, with: fn(u64, u64) -> u64) -> Usage {
    Usage {
        input_tokens: with(a.input_tokens, b.input_tokens),
        cache_read_tokens: with(a.cache_read_tokens, b.cache_read_tokens),
        cache_write_tokens: with(a.cache_write_tokens, b.cache_write_tokens),
        cache_write_1h_tokens: with(a.cache_write_1h_tokens, b.cache_write_1h_tokens),
        output_tokens: with(a.output_tokens, b.output_tokens),
        ..Usage::ZERO
    }
}

/// What an event of a stream says.
#[derive(Default)]
struct Event<'a> {
    kind: &'a [u8],
    text: TextSize,
    /// Of a `message_start` or a `message_delta`.
    usage: Option<&'a [u8]>,
    stops: bool,
    has_error: bool,
}

impl<'a> Event<'a> {
    /// Reads the data of an event; `None` for what no event looks like.
    fn read(data: &'a [u8]) -> Option<Self> {
        let mut event = Self::default();
        Cursor::new(data).object(|key, value| {
            match key {
                b"type" => event.kind = value.raw()?,
                b"usage" => event.usage = value.non_null()?,
                b"error" => event.has_error |= value.non_null()?.is_some(),
                b"message" => value.object(|key, value| {
                    match key {
                        b"usage" => event.usage = value.non_null()?,
                        _ => value.skip()?,
                    }
                    Some(())
                })?,
                b"delta" | b"content_block" => value.object(|key, value| {
                    match key {
                        b"text" | b"thinking" | b"partial_json" | b"name" | b"content" => {
                            event.text.add(value.text_size()?);
                        }
                        b"stop_reason" => event.stops |= value.non_null()?.is_some(),
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
}

/// What a stream has shown so far.
#[derive(Default)]
struct MessagesTally {
    floor: Usage,
    possible: Possible,
    reported: WireUsage,
    /// A report came that is not the one at the start, which knows nothing of the output.
    is_final: bool,
    shown: Shown,
    ended: bool,
    failed: bool,
    /// `message_stop` has come: what comes later is relayed, and not believed.
    stopped: bool,
}

impl MessagesTally {
    /// What was reported so far, if it can be true.
    fn usage(&self) -> Option<Usage> {
        self.reported.to_usage(&self.possible)
    }
}

impl Tally for MessagesTally {
    fn judge(&mut self, data: &[u8]) -> Verdict {
        if self.stopped {
            return Verdict::Keep;
        }
        let Some(event) = Event::read(data) else { return Verdict::Keep };
        if let Some(usage) = event.usage.and_then(WireUsage::read) {
            self.reported.update(usage);
            self.is_final |= event.kind == b"\"message_delta\"";
        }
        self.shown.add(event.text);
        self.failed |= event.has_error;
        self.ended |= event.stops || event.has_error;
        self.stopped = event.kind == b"\"message_stop\"";
        Verdict::Keep
    }

    fn is_complete(&self) -> bool {
        self.stopped || self.ended
    }

    fn has_failed(&self) -> bool {
        self.failed && !self.is_final
    }

    fn relayed(&self) -> Usage {
        let usage = self.usage().unwrap_or(self.floor);
        Usage { output_tokens: usage.output_tokens.max(self.shown.tokens_min()), ..usage }
    }

    fn measure(&self) -> (Usage, UsageSource) {
        match self.usage() {
            Some(usage) if self.is_final => (usage, UsageSource::Upstream),
            begun => {
                let usage = begun.unwrap_or(self.floor);
                let output_tokens = usage.output_tokens.max(self.shown.tokens());
                (Usage { output_tokens, ..usage }, UsageSource::Estimated)
            }
        }
    }
}

#[cfg(test)]
mod tests;
