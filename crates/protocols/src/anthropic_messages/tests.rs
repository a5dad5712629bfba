use super::*;
use crate::limits::{PassList, PricedFeatures};
use crate::pieces;
use crate::request_policy::TOOLS_TOKENS_MAX;
use tollgate_money::price::{CacheWrites, UsageSource};

const REQUEST: &[u8] = include_bytes!("../../fixtures/anthropic_messages/request.json");
const RESPONSE: &[u8] = include_bytes!("../../fixtures/anthropic_messages/response.json");
const STREAM: &str = include_str!("../../fixtures/anthropic_messages/stream.sse");

/// Of a model for which the operator passes an unknown field and searches in the web.
fn limits() -> ModelLimits {
    let pass = PassList {
        fields: vec!["x_unknown".to_owned()],
        tools: vec!["web_search_*".to_owned()],
        content: Vec::new(),
    };
    ModelLimits {
        input_tokens_max: 200_000,
        output_tokens_max: 64_000,
        pass,
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
    pieces::relay(read(with("").as_bytes()).expect("valid").meter(framing), response, size)
}

fn event(json: &str) -> String {
    format!("event: x\ndata: {json}\n\n")
}

const START: &str = r#"{"type":"message_start","message":{"usage":{"input_tokens":10,"cache_creation_input_tokens":5,"cache_read_input_tokens":7,"cache_creation":{"ephemeral_5m_input_tokens":2,"ephemeral_1h_input_tokens":3},"output_tokens":1}}}"#;
const TEXT: &str = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello, world"}}"#;
/// Estimated tokens of the text; it has 3.
const HELLO: u64 = 6;
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
    assert!((100..400).contains(&answer["input_tokens"].as_u64().unwrap_or(0)), "{answer}");
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
    assert_eq!(meter.measure(), (usage(HELLO), UsageSource::Estimated));
    let (_, meter) = relay(&event(TEXT), Framing::Sse, 9);
    let min_usage = read(with("").as_bytes()).expect("valid").min_usage();
    assert_eq!(meter.measure().0, Usage { output_tokens: HELLO, ..min_usage }, "without a start");
}

#[test]
fn a_later_report_makes_nothing_cheaper() {
    let less = DELTA.replace("40", "4").replace(r#""input_tokens":null"#, r#""input_tokens":1"#);
    for deltas in [[DELTA, &less], [&less, DELTA]] {
        let stream = [START, TEXT, deltas[0], deltas[1], STOP].map(event).concat();
        let (_, meter) = relay(&stream, Framing::Sse, 9);
        assert_eq!(meter.measure(), (usage(40), UsageSource::Upstream));
    }
    let zeros = event(&DELTA.replace("40", "0"));
    let (_, meter) = relay(&([START, TEXT].map(event).concat() + &zeros), Framing::Sse, 9);
    assert_eq!(meter.measure(), (usage(HELLO), UsageSource::Estimated), "zero beside text");
}

#[test]
fn a_report_above_the_limits_is_charged_and_flagged() {
    for (input_tokens, output_tokens) in [(9_000_000, 2), (1, 9_000_000)] {
        let report =
            format!(r#"{{"input_tokens":{input_tokens},"output_tokens":{output_tokens}}}"#);
        let answer = format!(r#"{{"content":[{{"text":"four"}}],"usage":{report}}}"#);
        let (_, meter) = relay(&answer, Framing::Json, 9);
        let expected = Usage { input_tokens, output_tokens, ..Usage::ZERO };
        assert_eq!(meter.measure(), (expected, UsageSource::Upstream));
        assert!(meter.is_above_limits());
        let stream =
            event(TEXT) + &event(&format!(r#"{{"type":"message_delta","usage":{report}}}"#));
        let (_, meter) = relay(&stream, Framing::Sse, 9);
        assert_eq!(meter.measure(), (expected, UsageSource::Upstream));
        assert!(meter.is_above_limits());
    }
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
        r#"{"input_tokens":1.5,"output_tokens":2}"#,
        r#"{"output_tokens":2}"#,
    ] {
        let answer = format!(r#"{{"content":[{{"text":"four"}}],"usage":{forged}}}"#);
        let (_, meter) = relay(&answer, Framing::Json, 9);
        assert_eq!(meter.measure().1, UsageSource::Estimated, "{forged}");
    }
    let split = r#"{"input_tokens":0,"cache_creation_input_tokens":4,"cache_creation":{"ephemeral_1h_input_tokens":9}}"#;
    let report = WireMessagesUsage::report(split.as_bytes(), Unit::CacheWriteTokens).expect("read");
    let expected = Usage { cache_write_1h_tokens: 9, ..Usage::ZERO };
    assert_eq!(report.usage, expected, "a split of more than the whole counts");
    assert!(!report.contradictions.is_empty());
}

#[test]
fn the_rounds_of_a_compacted_request_are_summed_up() {
    let rounds = r#"{"input_tokens":23,"output_tokens":10,"iterations":[{"input_tokens":180,"output_tokens":35},{"input_tokens":23,"output_tokens":10}]}"#;
    let report =
        WireMessagesUsage::report(rounds.as_bytes(), Unit::CacheWriteTokens).expect("a usage");
    let expected = Usage { input_tokens: 203, output_tokens: 45, ..Usage::ZERO };
    assert_eq!((report.usage, report.rounds), (expected, 2));
}

#[test]
fn bytes_bound_the_input_unless_the_upstream_adds_some() {
    let max_usage = |fields: &str| read(with(fields).as_bytes()).expect("valid").max_usage();
    let tool = r#","tools":[{"name":"f","input_schema":{"properties":{"url":{}}}}]"#;
    assert_eq!(max_usage("").input_tokens, with("").len() as u64);
    assert_eq!(max_usage(tool).input_tokens, with(tool).len() as u64 + TOOLS_TOKENS_MAX);
    for fields in [
        r#","system":[{"type":"image","source":{}}]"#,
        r#","tools":[{"type":"computer_20251124","name":"computer"}]"#,
        r#","x_unknown":"may stand for anything""#,
    ] {
        assert_eq!(max_usage(fields).input_tokens, 200_000, "{fields}");
    }
    let search = r#","tools":[{"type":"web_search_20260209","name":"web_search"}]"#;
    let held = max_usage(search);
    assert_eq!((held.input_tokens, held.output_tokens), (2_000_000, 1000), "for each round");
    let compact = r#","context_management":{"edits":[{"type":"compact_20260112"}]}"#;
    let held = max_usage(compact);
    assert_eq!((held.input_tokens, held.output_tokens), (400_000, 64_100), "a summary more");
    let keeps =
        r#","context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]}"#;
    assert_eq!(max_usage(keeps).input_tokens, with(keeps).len() as u64);
    assert_eq!(max_usage("").output_tokens, 100);
    let unlimited = read(br#"{"model":"m","messages":[{}]}"#).expect("valid").max_usage();
    assert_eq!(unlimited.output_tokens, 64_000, "the model's limit");
}

#[test]
fn requests_that_are_not_valid_name_the_field() {
    for (fields, param) in [
        (r#","speed":"fast""#, "speed"),
        (r#","Model":"x""#, "Model"),
        (r#","container":"c""#, "container"),
        (r#","mcp_servers":[{}]"#, "mcp_servers"),
        (r#","tools":[{"type":"code_execution_20250825","name":"x"}]"#, "tools"),
        (r#","stream":1"#, "stream"),
    ] {
        let error = read(with(fields).as_bytes()).expect_err(fields);
        assert_eq!(error.param.as_deref(), Some(param), "{fields}");
    }
    let bodies = [
        (r#"{"model":"m"}"#, "messages"),
        (r#"{"model":"m","messages":[]}"#, "messages"),
        (r#"{"model":"m","messages":[{}],"max_tokens":-1}"#, "max_tokens"),
        (r#"{"model":"m","messages":[{}],"max_tokens":64001}"#, "max_tokens"),
    ];
    for (body, param) in bodies {
        let error = read(body.as_bytes()).expect_err(body);
        assert_eq!(error.param.as_deref(), Some(param), "{body}");
    }
    assert!(read(br#"{"model":"m","messages":[{"role":"system"}],"max_tokens":0}"#).is_ok());
}

#[test]
fn all_is_shown_of_a_plain_stream_without_thinking() {
    let shown = |fields: &str, reasoning| {
        let body = with(&format!(r#","stream":true{fields}"#));
        let object = Object::parse(body.as_bytes()).expect("JSON");
        let limits = ModelLimits { reasoning, ..limits() };
        AnthropicMessages.read(&Request::Json(object), &limits).expect(fields).is_all_shown()
    };
    let off = r#","thinking":{"type":"disabled"}"#;
    assert!(shown(off, true) && shown(off, false) && shown("", false));
    assert!(!shown("", true), "nobody knows whether it thinks");
    for fields in [
        r#","thinking":{"type":"adaptive"}"#,
        r#","thinking":{"type":"disabled","type":"enabled"}"#,
        r#","tools":[{"type":"web_search_20260209","name":"web_search"}]"#,
        r#","system":[{"type":"document","source":{}}]"#,
        r#","x_unknown":1"#,
    ] {
        assert!(!shown(fields, false), "{fields}");
    }
    assert!(read(with(off).as_bytes()).expect("valid").is_all_shown(), "streamed or not");
}

#[test]
fn counting_costs_nothing_and_takes_anything() {
    let body = with(r#","mcp_servers":[{}],"tools":[{"type":"web_search_20250305"}],"x":1"#);
    let object = Object::parse(body.as_bytes()).expect("JSON");
    assert!(AnthropicCountTokens.read(&Request::Json(object), &limits()).is_ok());
}

#[test]
fn only_marked_parts_are_held_as_cache_writes() {
    let writes =
        |fields: &str| read(with(fields).as_bytes()).expect("valid").input_ways().cache_writes;
    for fields in [
        "",
        r#","system":"about \"cache_control\" and \"ttl\"""#,
        r#","metadata":{"user_id":"little"}"#,
    ] {
        assert_eq!(writes(fields), CacheWrites::None, "{fields}");
    }
    for fields in [
        r#","cache_control":{"type":"ephemeral"}"#,
        r#","cache_control":{"type":"ephemeral","ttl":"5m"}"#,
        r#","system":[{"type":"text","text":"s","cache_control" : {"type":"ephemeral"}}]"#,
        r#","tools":[{"name":"t","input_schema":{},"cache_control":{"type":"ephemeral"}}]"#,
    ] {
        assert_eq!(writes(fields), CacheWrites::Short, "{fields}");
    }
    for fields in [
        r#","cache_control":{"type":"ephemeral","ttl":"1h"}"#,
        r#","cache_control":{"type":"ephemeral","ttl":"\u0031h"}"#,
        r#","cache_contro\u006c":{"type":"ephemeral","ttl":"1h"}"#,
        r#","cache_control":{"type":"ephemeral","tt\u006c":"1h"}"#,
        r#","x_unknown":1"#,
    ] {
        assert_eq!(writes(fields), CacheWrites::Any, "{fields}");
    }
}

/// A later request can name the container that code of an answer has run in.
#[test]
fn containers_of_answers_are_noted_where_code_may_run() {
    let limits = ModelLimits {
        priced: PricedFeatures {
            units: vec![Unit::ContainerSessions],
            ..PricedFeatures::default()
        },
        ..limits()
    };
    let tools = r#","tools":[{"type":"code_execution_20250825","name":"code_execution"}]"#;
    let body = with(tools);
    let object = Object::parse(body.as_bytes()).expect("JSON");
    let call = AnthropicMessages.read(&Request::Json(object), &limits).expect("valid");
    assert!(call.is_stored());
    let container = r#""container":{"id":"container_1","expires_at":"2026-01-01"}"#;
    let document = format!(
        r#"{{"id":"msg_1","content":[{{"type":"text","text":"\"container\""}}],{container},"usage":{{}}}}"#
    );
    let start = START.replace(r#""message":{"#, &format!(r#""message":{{{container},"#));
    let delta = DELTA.replace(r#""delta":{"#, &format!(r#""delta":{{{container},"#));
    for (framing, answer) in [
        (Framing::Json, document),
        (Framing::Sse, event(&start) + &event(DELTA) + &event(STOP)),
        (Framing::Sse, event(START) + &event(&delta) + &event(STOP)),
    ] {
        let (_, meter) = pieces::relay(call.meter(framing), &answer, 7);
        let ids = meter.stored_ids();
        assert!(ids.iter().any(|id| id == "container_1"), "{ids:?} of {answer}");
    }
    let plain = read(with("").as_bytes()).expect("valid");
    assert!(!plain.is_stored(), "nothing is kept of it");
}
