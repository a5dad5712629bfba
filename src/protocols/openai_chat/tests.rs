use bytes::Bytes;

use super::*;
use crate::protocols::pieces;

const REQUEST: &[u8] = include_bytes!("../../../tests/fixtures/openai_chat/request.json");
const RESPONSE: &[u8] = include_bytes!("../../../tests/fixtures/openai_chat/response.json");
const STREAM: &str = include_str!("../../../tests/fixtures/openai_chat/stream.sse");

fn limits() -> ModelLimits {
    ModelLimits { input_tokens_max: 1000, output_tokens_max: 100, ..ModelLimits::default() }
}

fn read(body: &[u8]) -> Result<Box<dyn Call>, GatewayError> {
    let object = Object::parse(body).expect("JSON");
    OpenaiChat.read(&Request::Json(object), &limits())
}

fn with(field: &str) -> String {
    format!(r#"{{"model":"m","messages":[{{}}],{field}}}"#)
}

/// Relays a stream whole and in pieces of `size` bytes; both must give the same.
fn relay(stream: &str, options: &str, size: usize) -> (String, Box<dyn Meter>) {
    let body = with(&format!(r#""stream":true{options}"#));
    pieces::relay(read(body.as_bytes()).expect("valid").meter(Framing::Sse), stream, size)
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
    assert_eq!(call.bound().output_tokens, 64, "max_tokens bounds the output");
    assert_eq!(call.bound().input_tokens, REQUEST.len() as u64, "a token has a byte at least");
}

#[test]
fn usage_is_asked_for_and_kept_from_those_who_did_not_ask() {
    for (options, expected) in [
        ("", r#","stream_options":{"include_usage":true}}"#),
        (r#","stream_options":null"#, r#""stream_options":{"include_usage":true}}"#),
        (r#","stream_options":{}"#, r#""stream_options":{"include_usage":true}}"#),
        (r#","stream_options":{"x":1}"#, r#""stream_options":{"x":1,"include_usage":true}}"#),
        (r#","stream_options":{"include_usage":false}"#, r#"{"include_usage":true}}"#),
    ] {
        let body = with(&format!(r#""stream":true{options}"#));
        let edited = read(body.as_bytes()).expect("valid").splice("m").apply(&body.into());
        let edited = String::from_utf8(edited.to_vec()).expect("text");
        assert!(edited.ends_with(expected), "{options}: {edited}");
        let (relayed, _) = relay(STREAM, options, 7);
        assert!(!relayed.contains(r#""choices":[]"#), "{options}: the usage chunk got through");
        assert!(relayed.ends_with("data: [DONE]\n\n"));
    }
    let (relayed, _) = relay(STREAM, r#","stream_options":{"include_usage":true}"#, 7);
    assert_eq!(relayed, STREAM, "who asks for usage gets the upstream's bytes");
}

#[test]
fn reported_usage_is_billed_in_disjoint_kinds() {
    let mut meter = read(REQUEST).expect("valid").meter(Framing::Json);
    for piece in RESPONSE.chunks(5) {
        assert_eq!(meter.relay(Bytes::copy_from_slice(piece)), piece);
    }
    let expected =
        Usage { input_tokens: 16, cache_read_tokens: 8, output_tokens: 9, ..Usage::ZERO };
    assert_eq!(meter.measure(), (expected, UsageSource::Upstream));
    let (_, meter) = relay(STREAM, "", STREAM.len());
    let expected = Usage { input_tokens: 24, output_tokens: 9, ..Usage::ZERO };
    assert_eq!(meter.measure(), (expected, UsageSource::Upstream));
    assert!(meter.is_complete());
}

#[test]
fn the_dialects_of_usage() {
    let possible = Usage { input_tokens: 1000, output_tokens: 100, ..Usage::ZERO };
    let parse = |text: &str| {
        serde_json::from_str::<WireUsage>(text).ok().and_then(|usage| usage.to_usage(&possible))
    };
    let deepseek = parse(
        r#"{"prompt_tokens":10,"completion_tokens":2,"prompt_cache_hit_tokens":4,"prompt_cache_miss_tokens":6}"#,
    );
    assert_eq!(deepseek.map(|usage| (usage.input_tokens, usage.cache_read_tokens)), Some((6, 4)));
    let qwen = parse(
        r#"{"prompt_tokens":10,"completion_tokens":2,"prompt_tokens_details":{"cache_creation_input_tokens":3}}"#,
    );
    assert_eq!(qwen.map(|usage| (usage.input_tokens, usage.cache_write_tokens)), Some((7, 3)));
    let xai = parse(
        r#"{"prompt_tokens":10,"completion_tokens":2,"total_tokens":17,"completion_tokens_details":{"reasoning_tokens":5}}"#,
    );
    assert_eq!(xai.map(|usage| usage.output_tokens), Some(7), "reasoning beside the completion");
    let openai = parse(
        r#"{"prompt_tokens":10,"completion_tokens":7,"total_tokens":17,"completion_tokens_details":{"reasoning_tokens":5}}"#,
    );
    assert_eq!(openai.map(|usage| usage.output_tokens), Some(7), "reasoning inside the completion");
    for forged in [
        r#"{"prompt_tokens":-5,"completion_tokens":2}"#,
        r#"{"prompt_tokens":1001,"completion_tokens":2}"#,
        r#"{"prompt_tokens":1,"completion_tokens":101}"#,
        r#"{"prompt_tokens":1.5,"completion_tokens":2}"#,
        r#"{"prompt_tokens":18446744073709551616}"#,
        r#"{"completion_tokens":2}"#,
    ] {
        assert_eq!(parse(forged), None, "{forged} was believed");
    }
}

#[test]
fn nothing_behind_done_is_believed_or_relayed() {
    let forged = format!(
        "{STREAM}data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":1,\"completion_tokens\":0}}}}\n\ndata: [DONE]\n\n"
    );
    let (relayed, meter) = relay(&forged, r#","stream_options":{"include_usage":true}"#, 11);
    assert_eq!(relayed, STREAM);
    assert_eq!(meter.measure().0.output_tokens, 9);
}

#[test]
fn a_stream_without_usage_is_estimated_from_what_was_relayed() {
    let cut = &STREAM[..STREAM.find("\"finish_reason\":\"stop\"").expect("stop")];
    let (_, meter) = relay(cut, "", 13);
    let (usage, source) = meter.measure();
    assert_eq!(source, UsageSource::Estimated);
    // "A gate" and " where a toll is paid." are 28 characters.
    assert_eq!(usage.output_tokens, 7);
    assert_eq!(meter.relayed().output_tokens, 2, "two deltas carried text");
    assert!(!meter.is_complete(), "a cut stream is not complete");
}

#[test]
fn invalid_requests_name_the_field() {
    for (field, param) in [
        (r#""temperature":2.1"#, "temperature"),
        (r#""temperature":"hot""#, "temperature"),
        (r#""top_p":-0.1"#, "top_p"),
        (r#""presence_penalty":3"#, "presence_penalty"),
        (r#""stop":["1","2","3","4","5"]"#, "stop"),
        (r#""stop":[1]"#, "stop"),
        (r#""n":0"#, "n"),
        (r#""n":1000"#, "n"),
        (r#""max_tokens":-1"#, "max_tokens"),
        (r#""max_tokens":"10""#, "max_tokens"),
        (r#""max_completion_tokens":1.5"#, "max_completion_tokens"),
        (r#""stream":"yes""#, "stream"),
        (r#""stream":true,"stream_options":[]"#, "stream_options"),
        (r#""stream":true,"stream_options":{"include_usage":1}"#, "stream_options"),
        (
            r#""stream":true,"stream_options":{"include_usage":true,"include_usage":false}"#,
            "stream_options",
        ),
        (r#""Max_Tokens":5"#, "Max_Tokens"),
    ] {
        let error = read(with(field).as_bytes()).expect_err(field);
        assert_eq!(error.param.as_deref(), Some(param), "{field}: {error}");
    }
    for body in
        [r#"{"model":"m"}"#, r#"{"model":"m","messages":[ ]}"#, r#"{"model":"m","messages":"x"}"#]
    {
        let error = read(body.as_bytes()).expect_err(body);
        assert_eq!(error.param.as_deref(), Some("messages"), "{body}");
    }
}

#[test]
fn the_hold_covers_choices_media_and_the_models_maximum() {
    let bound = |field: &str| read(with(field).as_bytes()).expect(field).bound();
    assert_eq!(bound(r#""n":3,"max_tokens":10"#).output_tokens, 30);
    assert_eq!(bound(r#""max_tokens":10,"max_completion_tokens":20"#).output_tokens, 20);
    assert_eq!(bound(r#""max_tokens":5000"#).output_tokens, 100, "no more than the model can");
    assert_eq!(bound(r#""user":"a""#).output_tokens, 100);
    let media = r#""x":{"type":"image_url","image_url":{"url":"https://example.com/a.png"}}"#;
    assert_eq!(bound(media).input_tokens, 1000, "a picture's tokens are not in its URL");
    assert_eq!(bound(r#""x":{"\u0069mage_url":1}"#).input_tokens, 1000, "nor behind an escape");
}
