//! `POST /v1/responses` over upstreams that speak OpenAI's protocol.
//!
//! Fields, events and usage figures: OpenAI's API reference, "Responses" and "Streaming events".

use serde::Deserialize;

use super::estimate::TextSize;
use super::json::Value;
use super::json_cursor::Cursor;
use super::limits::ModelLimits;
use super::metering::{JsonMeter, Known, StreamMeter, Tally};
use super::sse::Verdict;
use super::{Call, Codec, Dialect, Framing, Meter, Operation, Prompt, Request, Terms};
use crate::error::GatewayError;
use crate::price::{Usage, UsageSource};

/// Fields that decide what a call costs: a spelling that only some parsers take for them is refused.
const BILLING_FIELDS: [&str; 10] = [
    "model",
    "input",
    "max_output_tokens",
    "stream",
    "tools",
    "background",
    "previous_response_id",
    "conversation",
    "prompt",
    "service_tier",
];
/// Fields that stand for input which is not in the body.
const UNBOUNDED_FIELDS: [&str; 3] = ["previous_response_id", "conversation", "prompt"];
/// Tools that the customer runs. The upstream runs the others, and adds their results to the input.
const CUSTOMERS_TOOLS: [&str; 2] = ["function", "custom"];
/// What an upstream adds to a prompt that has tools.
const TOOLS_TOKENS_MAX: u64 = 1024;
/// How often a model may read its whole context within one request that has tools of the upstream's.
const SERVER_TOOL_LOOPS_MAX: u64 = 10;

/// The codec.
#[derive(Debug)]
pub struct OpenaiResponses;

impl Codec for OpenaiResponses {
    fn operation(&self) -> Operation {
        Operation::Responses
    }

    fn dialects(&self) -> &'static [Dialect] {
        &[Dialect::Openai]
    }

    fn path(&self) -> &'static str {
        "/responses"
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        super::refuse_case_variants(body, &BILLING_FIELDS)?;
        super::check_service_tier(body)?;
        if super::boolean(body, "background")? == Some(true) {
            let message = "`background` is not offered here: nobody could meter such an answer";
            return Err(GatewayError::invalid("background", message));
        }
        let asked = super::integer(body, "max_output_tokens", 1..=u64::MAX)?;
        let output_tokens_max =
            asked.unwrap_or(limits.output_tokens_max).min(limits.output_tokens_max);
        let tools = body.get_non_null("tools").and_then(|tools| tools.as_array());
        let tools = tools.unwrap_or_default();
        let has_server_tools = !tools.iter().all(is_customers_tool);
        let is_unbounded = has_server_tools
            || UNBOUNDED_FIELDS.iter().any(|field| body.get_non_null(field).is_some());
        let added = if tools.is_empty() { 0 } else { TOOLS_TOKENS_MAX };
        let prompt = Prompt {
            has_media: super::has_quote_where(body.text(), |_, behind| {
                behind.starts_with(b"input_image") || behind.starts_with(b"input_file")
            }),
            added_tokens_max: (!is_unbounded).then_some(added),
        };
        let loops = if has_server_tools { SERVER_TOOL_LOOPS_MAX } else { 1 };
        Ok(Box::new(ResponsesCall {
            terms: Terms::of_prompt(body, &prompt, limits, output_tokens_max)?,
            possible: Usage {
                input_tokens: limits.input_tokens_max.saturating_mul(loops),
                output_tokens: limits.output_tokens_max.saturating_mul(loops),
                ..Usage::ZERO
            },
        }))
    }
}

fn is_customers_tool(tool: &Value<'_>) -> bool {
    let kind = tool.as_object().ok().and_then(|tool| tool.get("type"));
    kind.and_then(|kind| kind.as_str()).is_some_and(|kind| CUSTOMERS_TOOLS.contains(&&*kind))
}

#[derive(Debug)]
struct ResponsesCall {
    terms: Terms,
    /// What the model could use at all: a report above it is not believed.
    possible: Usage,
}

impl Call for ResponsesCall {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn meter(&self, framing: Framing) -> Box<dyn Meter> {
        let (floor, possible) = (self.terms.floor, self.possible);
        match framing {
            Framing::Json | Framing::Binary => {
                let read = move |usage: &[u8]| WireUsage::read(usage)?.to_usage(&possible);
                Box::new(JsonMeter::new(floor, possible.output_tokens, Box::new(read)))
            }
            Framing::Sse => {
                let known = Known { floor, ..Known::default() };
                Box::new(StreamMeter::new(ResponsesTally { known, possible, ended: false }))
            }
        }
    }
}

/// The `usage` object. `input_tokens` holds what the cache has read or written, `output_tokens` the
/// reasoning.
#[derive(Debug, Default, Deserialize)]
struct WireUsage {
    input_tokens: u64,
    #[serde(default)]
    input_tokens_details: Option<WireInputDetails>,
    #[serde(default)]
    output_tokens: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireInputDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

impl WireUsage {
    fn read(usage: &[u8]) -> Option<Self> {
        serde_json::from_slice(usage).ok()
    }

    /// The usage in disjoint kinds, unless it is more than the model can use.
    fn to_usage(&self, possible: &Usage) -> Option<Usage> {
        let details = self.input_tokens_details.as_ref();
        let of = |count: Option<u64>, rest: u64| count.unwrap_or(0).min(rest);
        let read = of(details.and_then(|details| details.cached_tokens), self.input_tokens);
        let rest = self.input_tokens.saturating_sub(read);
        let written = of(details.and_then(|details| details.cache_write_tokens), rest);
        let is_possible = self.input_tokens <= possible.input_tokens
            && self.output_tokens <= possible.output_tokens;
        is_possible.then(|| Usage {
            input_tokens: rest.saturating_sub(written),
            cache_read_tokens: read,
            cache_write_tokens: written,
            output_tokens: self.output_tokens,
            ..Usage::ZERO
        })
    }
}

/// What an event of a stream says.
#[derive(Default)]
struct Event<'a> {
    /// With its quotes.
    kind: &'a [u8],
    /// Of a delta, whatever it is a delta of.
    text: TextSize,
    /// Of the response that the event carries.
    usage: Option<&'a [u8]>,
}

impl<'a> Event<'a> {
    /// Reads the data of an event; `None` for what no event looks like.
    fn read(data: &'a [u8]) -> Option<Self> {
        let mut event = Self::default();
        Cursor::new(data).object(|key, value| {
            match key {
                b"type" => event.kind = value.raw()?,
                b"delta" => event.text = value.text_size()?,
                b"response" => value.object(|key, value| {
                    match key {
                        b"usage" => event.usage = value.non_null()?,
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
struct ResponsesTally {
    known: Known,
    possible: Usage,
    ended: bool,
}

impl Tally for ResponsesTally {
    fn judge(&mut self, data: &[u8]) -> Verdict {
        if self.ended {
            // What comes behind the last event is relayed, and not believed.
            return Verdict::Keep;
        }
        let Some(event) = Event::read(data) else { return Verdict::Keep };
        self.known.shown.add(event.text);
        match event.kind {
            b"\"response.completed\"" | b"\"response.incomplete\"" => self.ended = true,
            b"\"response.failed\"" | b"\"error\"" => {
                self.ended = true;
                self.known.failed = true;
            }
            _ => {}
        }
        if self.ended {
            let usage = event.usage.and_then(WireUsage::read);
            self.known.usage = usage.and_then(|usage| usage.to_usage(&self.possible));
        }
        Verdict::Keep
    }

    fn is_complete(&self) -> bool {
        self.ended
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
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::protocols::json::Object;
    use crate::protocols::pieces;

    const REQUEST: &[u8] = include_bytes!("../../tests/fixtures/openai_responses/request.json");
    const RESPONSE: &str = include_str!("../../tests/fixtures/openai_responses/response.json");
    const STREAM: &str = include_str!("../../tests/fixtures/openai_responses/stream.sse");
    const TEXT: &str = "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"Hello, world\"}\n\n";
    const FAILED: &str = "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"usage\":null}}\n\n";

    fn read(body: &[u8]) -> Result<Box<dyn Call>, GatewayError> {
        let limits = ModelLimits {
            input_tokens_max: 128_000,
            output_tokens_max: 16_384,
            ..ModelLimits::default()
        };
        OpenaiResponses.read(&Request::Json(Object::parse(body).expect("JSON")), &limits)
    }

    fn with(fields: &str) -> String {
        format!(r#"{{"model":"m","input":"hi"{fields}}}"#)
    }

    /// Relays a response in pieces of `size` bytes.
    fn relay(response: &str, framing: Framing, size: usize) -> (String, Box<dyn Meter>) {
        pieces::relay(read(with("").as_bytes()).expect("valid").meter(framing), response, size)
    }

    #[test]
    fn a_rename_changes_the_name_and_nothing_else() {
        let call = read(REQUEST).expect("valid");
        let renamed = call.splice("upstream-name").apply(&Bytes::from_static(REQUEST));
        let expected =
            std::str::from_utf8(REQUEST).expect("text").replace("public-name", "upstream-name");
        assert_eq!(renamed, expected.as_bytes());
    }

    #[test]
    fn answers_are_relayed_byte_for_byte_and_metered_by_their_usage() {
        let expected =
            Usage { input_tokens: 27, cache_read_tokens: 9, output_tokens: 87, ..Usage::ZERO };
        for (text, framing) in [(RESPONSE, Framing::Json), (STREAM, Framing::Sse)] {
            for size in [1, 7, 13, text.len()] {
                let (relayed, meter) = relay(text, framing, size);
                assert_eq!(relayed, text, "in pieces of {size}");
                assert!(meter.is_complete() && !meter.has_failed());
                assert_eq!(
                    meter.measure(),
                    (expected, UsageSource::Upstream),
                    "{framing:?} {size}"
                );
            }
        }
    }

    #[test]
    fn a_stream_that_is_cut_or_fails_costs_what_was_relayed() {
        let floor = read(with("").as_bytes()).expect("valid").floor();
        let (_, meter) = relay(TEXT, Framing::Sse, 9);
        assert!(!meter.is_complete());
        assert_eq!(meter.measure(), (Usage { output_tokens: 3, ..floor }, UsageSource::Estimated));
        let (_, meter) = relay(FAILED, Framing::Sse, 9);
        assert!(meter.has_failed() && meter.is_complete() && meter.relayed().output_tokens == 0);
        let late = STREAM.replace("\"output_tokens\":87", "\"output_tokens\":8700");
        let (_, meter) = relay(&format!("{STREAM}{late}"), Framing::Sse, 9);
        assert_eq!(meter.measure().0.output_tokens, 87, "what comes late is not believed");
    }

    #[test]
    fn bytes_bound_the_input_unless_some_is_elsewhere() {
        let bound = |fields: &str| read(with(fields).as_bytes()).expect("valid").bound();
        let tool = r#","tools":[{"type":"function","name":"f"}]"#;
        assert_eq!(bound("").input_tokens, with("").len() as u64);
        assert_eq!(bound(tool).input_tokens, with(tool).len() as u64 + TOOLS_TOKENS_MAX);
        assert_eq!(bound(r#","max_output_tokens":7"#).output_tokens, 7);
        for fields in [
            r#","tools":[{"type":"web_search"}]"#,
            r#","previous_response_id":"resp_1""#,
            r#","prompt":{"id":"p"}"#,
            r#","x":[{"type":"input_image","image_url":"https://a/b"}]"#,
        ] {
            assert_eq!(bound(fields).input_tokens, 128_000, "{fields}");
        }
    }

    #[test]
    fn requests_that_are_not_valid_name_the_field() {
        for (fields, param) in [
            (r#","background":true"#, "background"),
            (r#","service_tier":"priority""#, "service_tier"),
            (r#","max_output_tokens":0"#, "max_output_tokens"),
            (r#","Stream":true"#, "Stream"),
        ] {
            let error = read(with(fields).as_bytes()).expect_err(fields);
            assert_eq!(error.param.as_deref(), Some(param), "{fields}");
        }
    }
}
