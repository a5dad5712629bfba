use tollgate_translation::dialect::UpstreamDialect;
use tollgate_translation::part::AnswerPart;

use bytes::Bytes;

use super::*;
use crate::event_stream::EventFrames;
use crate::event_stream::tests::frame;
use crate::pieces;
use tollgate_money::price::{CacheWrites, UsageSource};

const REQUEST: &[u8] = include_bytes!("../../fixtures/bedrock_converse/request.json");
const RESPONSE: &str = include_str!("../../fixtures/bedrock_converse/response.json");
const STREAM: &str = include_str!("../../fixtures/bedrock_converse/stream.jsonl");

fn limits() -> ModelLimits {
    ModelLimits { input_tokens_max: 200_000, output_tokens_max: 64_000, ..ModelLimits::default() }
}

fn read(body: &[u8]) -> Result<Box<dyn Call>, GatewayError> {
    BedrockConverse.read(&Request::Json(Object::parse(body).expect("JSON")), &limits())
}

fn with(fields: &str) -> Box<dyn Call> {
    let body = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":[{{"text":"hi"}}]}}]{fields}}}"#
    );
    read(body.as_bytes()).expect("valid")
}

/// An event as the API frames it.
fn event(name: &str, payload: &str) -> Vec<u8> {
    let headers =
        [(":event-type", name), (":content-type", "application/json"), (":message-type", "event")];
    frame(&headers, payload.as_bytes())
}

fn exception(name: &str, payload: &str) -> Vec<u8> {
    let headers = [
        (":exception-type", name),
        (":content-type", "application/json"),
        (":message-type", "exception"),
    ];
    frame(&headers, payload.as_bytes())
}

/// The events of the fixture, one for each line.
fn fixture() -> Vec<Vec<u8>> {
    STREAM
        .lines()
        .map(|line| {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let (name, payload) = line.as_object().expect("an object").iter().next().expect("one");
            event(name, &payload.to_string())
        })
        .collect()
}

/// The events passed on for translation, one per line, and the meter, for a stream in pieces of `size` bytes.
fn relay(stream: &[u8], size: usize) -> (String, Box<dyn Meter>) {
    let mut meter = with("").meter(Framing::EventStream);
    let (mut messages, mut out) = (EventFrames::default(), String::new());
    for piece in stream.chunks(size) {
        messages
            .read(piece, |message| {
                let data = event_data(message);
                if meter.take_event(&data, &data) {
                    out.push_str(std::str::from_utf8(&data).expect("UTF-8"));
                    out.push('\n');
                }
            })
            .expect("frames");
    }
    assert!(meter.finish().is_empty());
    (out, meter)
}

fn usage(input_tokens: u64, output_tokens: u64) -> Usage {
    Usage { input_tokens, output_tokens, ..Usage::ZERO }
}

const TEXT: &str = r#"{"contentBlockIndex":0,"delta":{"text":"Hello, world"}}"#;
/// Estimated tokens of the text; it has 3.
const HELLO: u64 = 6;
const STOP: &str = r#"{"stopReason":"end_turn"}"#;

fn metadata(input: u64, output: u64) -> Vec<u8> {
    let usage = format!(r#"{{"usage":{{"inputTokens":{input},"outputTokens":{output}}}}}"#);
    event("metadata", &usage)
}

#[test]
fn the_model_goes_into_the_path_and_out_of_the_body() {
    let call = read(REQUEST).expect("valid");
    let sent = call.splice("anything").apply(&Bytes::from_static(REQUEST));
    let expected = std::str::from_utf8(REQUEST).expect("text");
    assert_eq!(sent, expected.replace(r#""model":"public-name","#, "").as_bytes());
    for (model, streams, path) in [
        ("amazon.nova-pro-v1:0", false, "/model/amazon.nova-pro-v1%3A0/converse"),
        ("us.anthropic.claude", true, "/model/us.anthropic.claude/converse-stream"),
        ("arn:aws:x/a bé", false, "/model/arn%3Aaws%3Ax%2Fa%20b%C3%A9/converse"),
        ("../..", true, ""),
        ("a/../b", false, ""),
    ] {
        let request = PathVariables { dialect: Dialect::Bedrock, model, streams };
        assert_eq!(BedrockConverse.path_to(&request).unwrap_or_default(), path);
    }
}

#[test]
fn the_hold_covers_what_can_be_used() {
    let call = with(r#","inferenceConfig":{"maxTokens":100}"#);
    let max_usage = call.max_usage();
    assert_eq!(max_usage.output_tokens, 100);
    assert!(max_usage.input_tokens < 200, "bounded by its bytes: {max_usage:?}");
    assert_eq!(with("").max_usage().output_tokens, 64_000);
    let tools = with(r#","toolConfig":{"tools":[]}"#).max_usage().input_tokens;
    assert!(tools > 1024 + 60, "what the upstream adds for tools: {tools}");
    for block in [
        r#"{"image":{"format":"png","source":{"bytes":"AAAA"}}}"#,
        r#"{"document":{"format":"pdf","name":"a","source":{"bytes":"AAAA"}}}"#,
        r#"{"toolResult":{"toolUseId":"a","content":[{"image":{}}]}}"#,
        r#"{"video":{}}"#,
        r#"{"toolResult":{"toolUseId":"a","content":[{"video":{}}]}}"#,
    ] {
        let body = format!(r#"{{"messages":[{{"role":"user","content":[{block}]}}]}}"#);
        let call = read(body.as_bytes()).expect("valid");
        assert_eq!(call.max_usage().input_tokens, 200_000, "{block}");
        assert!(!call.is_all_shown(), "{block}");
    }
    assert!(!with("").is_all_shown(), "a model that may think");
    let off = r#","additionalModelRequestFields":{"thinking":{"type":"disabled"}}"#;
    assert!(with(off).is_all_shown());
    assert_eq!(with(off).traits().thinking, Some(false));
    let on = off.replace("disabled", "adaptive");
    assert!(!with(&on).is_all_shown() && with(&on).traits().thinking == Some(true));
    let cached = r#","system":[{"text":"a"},{"cachePoint":{"type":"default"}}]"#;
    assert_eq!(with("").input_ways().cache_writes, CacheWrites::None);
    assert_eq!(with(cached).input_ways().cache_writes, CacheWrites::Short);
    let hour = cached.replace(r#""default""#, r#""default","ttl":"1h""#);
    assert_eq!(with(&hour).input_ways().cache_writes, CacheWrites::Any);
    for (body, param) in [
        (r#"{"messages":[]}"#, "messages"),
        (r#"{"messages":[{}],"guardrailConfig":{}}"#, "guardrailConfig"),
        (r#"{"messages":[{}],"inferenceConfig":{"maxTokens":64001}}"#, "maxTokens"),
    ] {
        let error = read(body.as_bytes()).expect_err(body);
        assert_eq!(error.param.as_deref(), Some(param));
    }
}

#[test]
fn a_document_is_metered_by_its_usage() {
    for size in [1, 7, RESPONSE.len()] {
        let (relayed, meter) = pieces::relay(with("").meter(Framing::Json), RESPONSE, size);
        assert_eq!(relayed, RESPONSE);
        let expected = Usage {
            input_tokens: 125,
            cache_read_tokens: 51,
            cache_write_tokens: 51,
            cache_write_1h_tokens: 2000,
            output_tokens: 60,
            ..Usage::ZERO
        };
        assert_eq!(meter.measure(), (expected, UsageSource::Upstream));
        assert!(meter.is_complete() && !meter.is_above_limits());
    }
    let without = RESPONSE.replace("\"cacheDetails\"", "\"other\"");
    let (_, meter) = pieces::relay(with("").meter(Framing::Json), &without, 9);
    assert_eq!(meter.measure().0.cache_write_tokens, 2051, "for five minutes");
}

#[test]
fn a_stream_is_handed_on_and_metered_however_it_is_cut() {
    let stream = fixture().concat();
    let (whole, _) = relay(&stream, stream.len());
    for size in 1..stream.len() {
        let (relayed, meter) = relay(&stream, size);
        assert_eq!(relayed, whole, "in pieces of {size}");
        assert!(meter.is_complete() && !meter.has_failed());
        let expected = Usage { cache_read_tokens: 51, ..usage(125, 60) };
        assert_eq!(meter.measure(), (expected, UsageSource::Upstream), "in pieces of {size}");
    }
    let mut reader = Converse.stream_reader();
    let (mut shown_text, mut called) = (String::new(), String::new());
    for data in whole.lines() {
        let mut take = |piece: AnswerPart<'_>| match piece {
            AnswerPart::Text(text) => shown_text.push_str(&text),
            AnswerPart::Input(text) => called.push_str(&text),
            _ => {}
        };
        reader.read(data.as_bytes(), &mut take).expect("an event");
    }
    assert_eq!((shown_text.as_str(), called.as_str()), ("Let me look.", r#"{"city": "Bergen"}"#));
}

#[test]
fn a_stream_that_is_cut_costs_its_floor_and_what_was_relayed() {
    let (_, meter) = relay(&event("contentBlockDelta", TEXT), 9);
    assert!(!meter.is_complete());
    let min_usage = with("").min_usage();
    assert!(min_usage.input_tokens > 0);
    let expected = Usage { output_tokens: HELLO, ..min_usage };
    assert_eq!(meter.measure(), (expected, UsageSource::Estimated));
    assert_eq!(meter.relayed(), expected);
    let stopped = [event("contentBlockDelta", TEXT), event("messageStop", STOP)].concat();
    let (_, meter) = relay(&stopped, 9);
    assert!(meter.is_complete(), "all was said, and no usage");
    assert_eq!(meter.measure(), (expected, UsageSource::Estimated));
}

#[test]
fn what_comes_behind_the_end_is_neither_believed_nor_passed_on() {
    let stream = [
        event("contentBlockDelta", TEXT),
        event("messageStop", STOP),
        metadata(10, 40),
        metadata(1000, 4000),
        event("contentBlockDelta", TEXT),
    ];
    let (relayed, meter) = relay(&stream.concat(), 9);
    assert_eq!(meter.measure(), (usage(10, 40), UsageSource::Upstream));
    assert_eq!(relayed.lines().count(), 3, "{relayed}");
    let (_, meter) = relay(&[&stream[0][..], &metadata(10, 0), &stream[1]].concat(), 9);
    assert_eq!(meter.measure(), (usage(10, HELLO), UsageSource::Estimated), "zero beside text");
    let twice = [&stream[0][..], &metadata(10, 40), &metadata(1, 4), &stream[1]].concat();
    let (_, meter) = relay(&twice, 9);
    assert_eq!(meter.measure(), (usage(10, 40), UsageSource::Upstream), "the dearest");
}

#[test]
fn exceptions_end_a_stream_and_are_handed_on() {
    let failed = exception("throttlingException", "{\"message\":\n\"slow\"}");
    let (relayed, meter) = relay(&[event("contentBlockDelta", TEXT), failed.clone()].concat(), 5);
    assert!(meter.is_complete() && meter.has_failed());
    assert_eq!(meter.measure().0.output_tokens, HELLO);
    let last = relayed.lines().last().expect("an event");
    let expected =
        r#"{"kind":"exception","name":"throttlingException","payload":{"message": "slow"}}"#;
    assert_eq!(last, expected);
    let error = frame(
        &[(":message-type", "error"), (":error-code", "E"), (":error-message", "a \"b\"")],
        b"",
    );
    let (relayed, meter) = relay(&error, 5);
    assert!(meter.has_failed());
    assert!(relayed.contains(r#""kind":"error","name":"E","payload":{"message":"a \"b\""}"#));
}

#[test]
fn a_report_above_the_limits_is_charged_and_flagged() {
    let stream = [event("messageStop", STOP), metadata(9_000_000, 2)].concat();
    let (_, meter) = relay(&stream, 64);
    assert_eq!(meter.measure(), (usage(9_000_000, 2), UsageSource::Upstream));
    assert!(meter.is_above_limits());
}
