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
mod tests {
    use super::*;

    const REQUEST: &[u8] = include_bytes!("../../tests/fixtures/anthropic_messages/request.json");
    const RESPONSE: &[u8] = include_bytes!("../../tests/fixtures/anthropic_messages/response.json");
    const STREAM: &str = include_str!("../../tests/fixtures/anthropic_messages/stream.sse");

    fn limits() -> ModelLimits {
        ModelLimits {
            input_tokens_max: 200_000,
            output_tokens_max: 64_000,
            ..ModelLimits::default()
        }
    }

    fn read(body: &[u8]) -> Result<Box<dyn Call>, GatewayError> {
        AnthropicMessages.read(&Request::Json(Object::parse(body).expect("JSON")), &limits())
    }

    fn with(fields: &str) -> String {
        format!(r#"{{"model":"m","max_tokens":100,"messages":[{{}}]{fields}}}"#)
    }

    /// Relays a response whole and in pieces of `size` bytes; both must give the same.
    fn relay(response: &str, framing: Framing, size: usize) -> (String, Box<dyn Meter>) {
        let mut meter = read(with("").as_bytes()).expect("valid").meter(framing);
        let mut out = Vec::new();
        for piece in response.as_bytes().chunks(size) {
            out.extend_from_slice(&meter.relay(Bytes::copy_from_slice(piece)));
        }
        out.extend_from_slice(&meter.finish());
        (String::from_utf8(out).expect("UTF-8"), meter)
    }

    fn event(json: &str) -> String {
        format!("event: x\ndata: {json}\n\n")
    }

    const START: &str = r#"{"type":"message_start","message":{"usage":{"input_tokens":10,"cache_creation_input_tokens":5,"cache_read_input_tokens":7,"cache_creation":{"ephemeral_5m_input_tokens":2,"ephemeral_1h_input_tokens":3},"output_tokens":1}}}"#;
    const TEXT: &str = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello, world"}}"#;
    const DELTA: &str = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":null,"output_tokens":40}}"#;
    const STOP: &str = r#"{"type":"message_stop"}"#;
    const ERROR: &str = r#"{"type":"error","error":{"type":"overloaded_error","message":"no"}}"#;

    fn usage(output_tokens: u64) -> Usage {
        Usage {
            input_tokens: 10,
            cache_read_tokens: 7,
            cache_write_tokens: 2,
            cache_write_1h_tokens: 3,
            output_tokens,
            ..Usage::ZERO
        }
    }

    #[test]
    fn a_rename_changes_the_name_and_nothing_else() {
        let call = read(REQUEST).expect("valid");
        let body = Bytes::from_static(REQUEST);
        let renamed = call.splice("upstream-name").apply(&body);
        let expected =
            std::str::from_utf8(REQUEST).expect("text").replace("public-name", "upstream-name");
        assert_eq!(renamed, expected.as_bytes());
        assert_eq!(call.splice("public-name").apply(&body).as_ptr(), body.as_ptr(), "no copy");
        let object = Object::parse(REQUEST).expect("JSON");
        let count = AnthropicCountTokens.read(&Request::Json(object), &limits()).expect("valid");
        assert_eq!(count.splice("upstream-name").apply(&body), expected.as_bytes());
        let answer = count.local_answer().expect("an estimate");
        let answer: serde_json::Value = serde_json::from_slice(&answer).expect("JSON");
        assert!((100..300).contains(&answer["input_tokens"].as_u64().unwrap_or(0)), "{answer}");
    }

    #[test]
    fn a_stream_is_relayed_byte_for_byte_however_it_is_cut() {
        for size in [1, 7, 13, STREAM.len()] {
            let (relayed, meter) = relay(STREAM, Framing::Sse, size);
            assert_eq!(relayed, STREAM, "in pieces of {size}");
            assert!(meter.is_complete() && !meter.has_failed());
            let expected = Usage {
                input_tokens: 2095,
                cache_read_tokens: 51,
                cache_write_1h_tokens: 2051,
                output_tokens: 503,
                ..Usage::ZERO
            };
            assert_eq!(meter.measure(), (expected, UsageSource::Upstream), "in pieces of {size}");
        }
    }

    #[test]
    fn reports_are_cumulative_and_keep_what_they_leave_out() {
        let stream = [START, TEXT, DELTA, STOP].map(event).concat();
        let (_, meter) = relay(&stream, Framing::Sse, 9);
        assert_eq!(meter.measure(), (usage(40), UsageSource::Upstream));
        let late = stream + &event(&DELTA.replace("40", "4000"));
        let (relayed, meter) = relay(&late, Framing::Sse, 9);
        assert_eq!(relayed, late, "what comes late is relayed");
        assert_eq!(meter.measure(), (usage(40), UsageSource::Upstream), "and not believed");
    }

    #[test]
    fn a_stream_that_is_cut_costs_its_input_and_what_was_relayed() {
        let (_, meter) = relay(&[START, TEXT].map(event).concat(), Framing::Sse, 9);
        assert!(!meter.is_complete());
        assert_eq!(meter.measure(), (usage(3), UsageSource::Estimated), "12 letters are 3 tokens");
        let (_, meter) = relay(&event(TEXT), Framing::Sse, 9);
        let floor = read(with("").as_bytes()).expect("valid").floor();
        assert_eq!(meter.measure().0, Usage { output_tokens: 3, ..floor }, "without a start");
    }

    #[test]
    fn an_error_before_any_text_has_failed() {
        for stream in [event(ERROR), [START, ERROR].map(event).concat()] {
            let (relayed, meter) = relay(&stream, Framing::Sse, 9);
            assert_eq!(relayed, stream);
            assert!(meter.has_failed() && meter.is_complete(), "it is said, and need not be again");
        }
        let (_, meter) = relay(ERROR, Framing::Json, 9);
        assert!(meter.has_failed());
    }

    #[test]
    fn a_json_answer_is_metered_by_its_usage() {
        let text = std::str::from_utf8(RESPONSE).expect("text");
        let (relayed, meter) = relay(text, Framing::Json, 9);
        assert_eq!(relayed, text);
        let expected = Usage { input_tokens: 25, output_tokens: 12, ..Usage::ZERO };
        assert_eq!(meter.measure(), (expected, UsageSource::Upstream));
    }

    #[test]
    fn what_cannot_be_true_is_estimated() {
        for forged in [
            r#"{"input_tokens":-1,"output_tokens":2}"#,
            r#"{"input_tokens":9000000,"output_tokens":2}"#,
            r#"{"input_tokens":1,"output_tokens":9000000}"#,
            r#"{"input_tokens":1.5,"output_tokens":2}"#,
            r#"{"output_tokens":2}"#,
        ] {
            let answer = format!(r#"{{"content":[{{"text":"four"}}],"usage":{forged}}}"#);
            let (_, meter) = relay(&answer, Framing::Json, 9);
            assert_eq!(meter.measure().1, UsageSource::Estimated, "{forged}");
        }
        let split = r#"{"input_tokens":0,"cache_creation_input_tokens":4,"cache_creation":{"ephemeral_1h_input_tokens":9}}"#;
        let usage = WireUsage::read(split.as_bytes())
            .and_then(|usage| usage.to_usage(&Possible { input: 100, output: 100, loops: 1 }));
        let expected = Usage { cache_write_1h_tokens: 4, ..Usage::ZERO };
        assert_eq!(usage, Some(expected), "a split is no more than its sum");
    }

    #[test]
    fn the_rounds_of_a_compacted_request_are_summed_up() {
        let rounds = r#"{"input_tokens":23,"output_tokens":10,"iterations":[{"input_tokens":180,"output_tokens":35},{"input_tokens":23,"output_tokens":10}]}"#;
        let usage = WireUsage::read(rounds.as_bytes())
            .and_then(|usage| usage.to_usage(&Possible { input: 200, output: 100, loops: 1 }));
        let expected = Usage { input_tokens: 203, output_tokens: 45, ..Usage::ZERO };
        assert_eq!(usage, Some(expected));
    }

    #[test]
    fn bytes_bound_the_input_unless_the_upstream_adds_some() {
        let bound = |fields: &str| read(with(fields).as_bytes()).expect("valid").bound();
        let tool = r#","tools":[{"name":"f","input_schema":{"properties":{"url":{}}}}]"#;
        assert_eq!(bound("").input_tokens, with("").len() as u64);
        assert_eq!(bound(tool).input_tokens, with(tool).len() as u64 + TOOLS_TOKENS_MAX);
        for fields in [
            r#","tools":[{"type":"web_search_20260209","name":"web_search"}]"#,
            r#","mcp_servers":[{}]"#,
            r#","system":[{"type":"image","source":{}}]"#,
            r#","container":"c""#,
        ] {
            assert_eq!(bound(fields).input_tokens, 200_000, "{fields}");
        }
        assert_eq!(bound("").output_tokens, 100);
        let unlimited = read(br#"{"model":"m","messages":[{}]}"#).expect("valid").bound();
        assert_eq!(unlimited.output_tokens, 64_000, "the model's limit");
    }

    #[test]
    fn requests_that_are_not_valid_name_the_field() {
        for (fields, param) in [
            (r#","speed":"fast""#, "speed"),
            (r#","Model":"x""#, "Model"),
            (r#","stream":1"#, "stream"),
        ] {
            let error = read(with(fields).as_bytes()).expect_err(fields);
            assert_eq!(error.param.as_deref(), Some(param), "{fields}");
        }
        let bodies = [
            (r#"{"model":"m"}"#, "messages"),
            (r#"{"model":"m","messages":[]}"#, "messages"),
            (r#"{"model":"m","messages":[{}],"max_tokens":-1}"#, "max_tokens"),
        ];
        for (body, param) in bodies {
            let error = read(body.as_bytes()).expect_err(body);
            assert_eq!(error.param.as_deref(), Some(param), "{body}");
        }
        assert!(read(br#"{"model":"m","messages":[{"role":"system"}],"max_tokens":0}"#).is_ok());
    }
}
