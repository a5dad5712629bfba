use serde_json::{Value, json};

use super::*;
use crate::limits::{Mode, TranslationTarget};

/// A model of OpenAI that is sold over both APIs.
fn limits(chat_tools: ChatTools) -> ModelLimits {
    ModelLimits {
        input_tokens_max: 100_000,
        output_tokens_max: 8_000,
        chat_tools,
        ..ModelLimits::default()
    }
}

const BOTH: &[Operation] = &[Operation::Chat, Operation::Responses];

/// The path that a request goes to, and what it loses on its way.
fn open(
    operation: Operation,
    operations: &[Operation],
    limits: &ModelLimits,
    body: &Value,
) -> Result<(&'static str, Option<String>), GatewayError> {
    let text = body.to_string();
    let request = Request::Json(Object::parse(text.as_bytes()).expect("JSON"));
    let choice = CodecChoice { operation, dialect: Dialect::Openai, operations, limits };
    let (codec, call) = choice.read(&request).expect("a codec")?;
    Ok((codec.path(), call.left_out().map(|fields| fields.into_owned())))
}

fn path(operation: Operation, limits: &ModelLimits, body: &Value) -> &'static str {
    match open(operation, BOTH, limits, body) {
        Ok((path, _)) => path,
        Err(error) => panic!("{body}: {error:?}"),
    }
}

fn with(mut body: Value, fields: Value) -> Value {
    let (Value::Object(body), Value::Object(fields)) = (&mut body, fields) else {
        panic!("objects")
    };
    body.extend(fields);
    Value::Object(body.clone())
}

fn chat() -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": "hi"}]})
}

fn messages() -> Value {
    json!({"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "hi"}]})
}

fn chat_tools() -> Value {
    json!({"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]})
}

fn messages_tools() -> Value {
    json!({"tools": [{"name": "f", "input_schema": {"type": "object"}}]})
}

#[test]
fn tools_beside_reasoning_go_where_the_model_takes_them() {
    use ChatTools::{Always, EffortNone, Never, WithoutEffort};
    let (native, responses) = ("/chat/completions", "/responses");
    for (chat_tools_of, effort, expected) in [
        (Always, Some("high"), native),
        (WithoutEffort, None, native),
        (WithoutEffort, Some("none"), native),
        (WithoutEffort, Some("low"), responses),
        (EffortNone, None, responses),
        (EffortNone, Some("none"), native),
        (EffortNone, Some("high"), responses),
        (Never, Some("none"), responses),
    ] {
        let limits = limits(chat_tools_of);
        let effort = effort.map_or(json!({}), |effort| json!({"reasoning_effort": effort}));
        let plain = with(chat(), effort);
        assert_eq!(path(Operation::Chat, &limits, &plain), native, "{plain}");
        let body = with(plain.clone(), chat_tools());
        assert_eq!(path(Operation::Chat, &limits, &body), expected, "{chat_tools_of:?} {body}");
        let empty = with(plain, json!({"tools": []}));
        assert_eq!(path(Operation::Chat, &limits, &empty), native, "{empty}");
        // A model that is not for responses, and one that is not translated, have no other codec.
        let only = open(Operation::Chat, &[Operation::Chat], &limits, &body).expect("read");
        assert_eq!(only.0, native);
        let off = ModelLimits { translation: None, ..limits };
        assert_eq!(path(Operation::Chat, &off, &body), native);
    }
}

#[test]
fn what_neither_codec_carries_is_refused_by_the_field() {
    let limits = limits(ChatTools::EffortNone);
    for (fields, param) in [
        (json!({"n": 2}), "n"),
        (json!({"logprobs": true}), "logprobs"),
        (json!({"stop": "x"}), "stop"),
    ] {
        let alone = with(chat(), fields.clone());
        assert_eq!(path(Operation::Chat, &limits, &alone), "/chat/completions");
        let body = with(alone, chat_tools());
        let error = open(Operation::Chat, BOTH, &limits, &body).expect_err("no codec");
        assert_eq!(error.param.as_deref(), Some(param), "{error:?}");
        assert!(error.message.contains("take no `tools` beside reasoning"), "{error:?}");
    }
    let stops = with(messages(), json!({"stop_sequences": ["x"]}));
    let error =
        open(Operation::Messages, BOTH, &limits, &with(stops, messages_tools())).expect_err("no");
    assert!(error.param.as_deref().is_some_and(|param| param.starts_with("stop")), "{error:?}");
    assert!(error.message.contains("take no `tools` beside reasoning"), "{error:?}");
}

#[test]
fn a_request_goes_through_the_first_codec_that_carries_it() {
    let limits = limits(ChatTools::EffortNone);
    let stops = json!({"stop_sequences": ["x"]});
    for (fields, expected) in
        [(json!({}), "/responses"), (messages_tools(), "/responses"), (stops, "/chat/completions")]
    {
        let body = with(messages(), fields);
        assert_eq!(path(Operation::Messages, &limits, &body), expected, "{body}");
    }
    let gemini = |config: Value| {
        let body = json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}],
            "generationConfig": config})
        .to_string();
        let named = crate::ModelInPath { model: "m", streams: false };
        let request = Request::JsonAt(Object::parse(body.as_bytes()).expect("JSON"), named);
        let operation = Operation::GenerateContent;
        let choice =
            CodecChoice { operation, dialect: Dialect::Openai, operations: BOTH, limits: &limits };
        choice.read(&request).expect("a codec").map(|(codec, _)| codec.path()).expect("read")
    };
    assert_eq!(gemini(json!({"temperature": 1})), "/responses");
    assert_eq!(gemini(json!({"stopSequences": ["x"]})), "/chat/completions");
}

#[test]
fn hints_decide_between_codecs_where_the_model_has_no_thoughts_to_lose() {
    let seeded = json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "generationConfig": {"seed": 7}})
    .to_string();
    let read = |limits: &ModelLimits| {
        let named = crate::ModelInPath { model: "m", streams: false };
        let request = Request::JsonAt(Object::parse(seeded.as_bytes()).expect("JSON"), named);
        let operation = Operation::GenerateContent;
        let choice = CodecChoice { operation, dialect: Dialect::Openai, operations: BOTH, limits };
        let (codec, call) = choice.read(&request).expect("a codec").expect("read");
        (codec.path(), call.left_out().map(|fields| fields.into_owned()))
    };
    let reasons = limits(ChatTools::Always);
    let (path, left_out) = read(&reasons);
    assert_eq!(path, "/responses");
    assert!(left_out.is_some_and(|fields| fields.ends_with("seed")));
    let plain = ModelLimits { reasoning: false, ..reasons.clone() };
    assert_eq!(read(&plain), ("/chat/completions", None));
    // Where nothing may be lost, the codec that loses something refuses.
    let target = TranslationTarget { mode: Mode::Strict, ..TranslationTarget::default() };
    let strict = ModelLimits { translation: Some(target), ..reasons };
    assert_eq!(read(&strict), ("/chat/completions", None));
}

#[test]
fn the_hold_is_that_of_the_codec() {
    let limits = limits(ChatTools::EffortNone);
    let body = with(with(chat(), chat_tools()), json!({"max_completion_tokens": 77}));
    let text = body.to_string();
    let request = Request::Json(Object::parse(text.as_bytes()).expect("JSON"));
    let choice = CodecChoice {
        operation: Operation::Chat,
        dialect: Dialect::Openai,
        operations: BOTH,
        limits: &limits,
    };
    let (codec, call) = choice.read(&request).expect("a codec").expect("read");
    assert_eq!(codec.path(), "/responses");
    assert_eq!(call.max_usage().output_tokens, 77);
    let sent = call.splice("upstreams").apply(&text.clone().into());
    let sent: Value = serde_json::from_slice(&sent).expect("JSON");
    assert_eq!(sent["model"], "upstreams");
    assert_eq!(sent["max_output_tokens"], 77);
    assert_eq!(sent["tools"][0]["name"], "f");
}

#[test]
fn a_target_is_called_natively_where_possible() {
    let limits = ModelLimits::default();
    let off = ModelLimits { translation: None, ..ModelLimits::default() };
    let kind = |operation, dialect, operations, limits| {
        CodecChoice { operation, dialect, operations, limits }.kind()
    };
    let messages: &[Operation] = &[Operation::Messages];
    for (operation, dialect, operations, expected) in [
        (Operation::Messages, Dialect::Anthropic, messages, Some(CodecKind::Native)),
        (Operation::Messages, Dialect::Openai, messages, Some(CodecKind::Translated)),
        (Operation::Chat, Dialect::Anthropic, messages, Some(CodecKind::Translated)),
        (Operation::Chat, Dialect::Openai, BOTH, Some(CodecKind::Native)),
        (Operation::Embeddings, Dialect::Anthropic, &[Operation::Embeddings], None),
    ] {
        assert_eq!(
            kind(operation, dialect, operations, &limits),
            expected,
            "{operation} {dialect}"
        );
        let native = expected.filter(|kind| *kind == CodecKind::Native);
        assert_eq!(kind(operation, dialect, operations, &off), native, "{operation} {dialect}");
    }
}

#[test]
fn wishes_of_claude_code_are_left_out_of_a_translation_too() {
    let limits = limits(ChatTools::Always);
    let wishes =
        json!({"safeguards": [{"type": "dangerous_tool_use"}], "thread": {"type": "create"}});
    let body = with(messages(), wishes);
    let (_, left_out) = open(Operation::Messages, BOTH, &limits, &body).expect("read");
    assert_eq!(left_out.as_deref(), Some("safeguards"));
    let thread = json!({"thread": {"type": "continue", "previous_message_id": "msg_1"}});
    let error = open(Operation::Messages, BOTH, &limits, &with(messages(), thread));
    assert_eq!(error.expect_err("kept elsewhere").param.as_deref(), Some("thread"));
}
