//! Tests of Gemini's peculiarities: calls without ids, schemas in OpenAPI's words, reasoning in pieces, and
//! unusual upstream answers.

use serde_json::{Value, json};

use super::{FOREIGN_CALL_SIGNATURE, Gemini, seal_of_signature, signature_of_seal};
use crate::dialect::{CustomerDialect, Losses, ThinkingStyle, TranslationTarget, UpstreamDialect};
use crate::part::{
    AnswerPart, ContentPart, Effort, FailureKind, PromptPart, Reasoning, Stop, Thinking, ToolCall,
};
use crate::seal::{self, Maker};
use crate::{Chat, Messages};

fn read(body: &Value) -> Vec<PromptPart<'static>> {
    let body: &'static str = Box::leak(body.to_string().into_boxed_str());
    Gemini.read_request(body.as_bytes()).expect("a request").parts
}

fn write(
    dialect: &dyn CustomerDialect,
    parts: &[PromptPart<'_>],
    target: &TranslationTarget,
) -> Value {
    let body = dialect.write_request(parts, target, &mut Losses::default()).expect("written");
    serde_json::from_slice(&body).expect("JSON")
}

fn answer(body: &Value) -> Vec<AnswerPart<'static>> {
    let body: &'static str = Box::leak(body.to_string().into_boxed_str());
    Gemini.read_answer(body.as_bytes()).expect("an answer")
}

/// gemini-cli says the last result twice when it resumes a session. What says something else is refused.
#[test]
fn a_result_that_is_repeated_is_one() {
    let call = json!({"functionCall": {"id": "c", "name": "f", "args": {}}});
    let result = |word: &str| json!({"functionResponse": {"id": "c", "name": "f", "response": {"output": word}}});
    let contents = |results: &[Value]| {
        json!({"contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [call]},
            {"role": "user", "parts": results},
        ]})
    };
    let twice = read(&contents(&[result("one"), result("one"), result("one")]));
    assert_eq!(twice, read(&contents(&[result("one")])));
    let other = contents(&[result("one"), result("two")]).to_string();
    let refusal = Gemini.read_request(other.as_bytes()).expect_err("two results");
    assert_eq!(refusal.field, "contents[2].parts[1].functionResponse");
}

#[test]
fn results_find_their_calls_by_name_and_order_and_ids_stay_the_same() {
    let call = |name: &str| json!({"functionCall": {"name": name, "args": {}}});
    let result = |name: &str, word: &str| json!({"functionResponse": {"name": name, "response": {"output": word}}});
    let mut contents = vec![
        json!({"role": "user", "parts": [{"text": "hi"}]}),
        json!({"role": "model", "parts": [call("f"), call("g"), call("f")]}),
        json!({"role": "user", "parts": [result("g", "one"), result("f", "two"), result("f", "three")]}),
    ];
    let ids = |contents: &[Value]| {
        let parts = read(&json!({"contents": contents}));
        let ids = parts.iter().filter_map(|part| match part {
            PromptPart::ToolCall(call) => Some(format!("{}={}", call.name, call.id)),
            PromptPart::ToolResult(result) => match &result.content[..] {
                [ContentPart::Text(text)] => Some(format!("{}={}", text.text, result.id)),
                other => panic!("a text: {other:?}"),
            },
            _ => None,
        });
        ids.collect::<Vec<_>>()
    };
    let first = ids(&contents);
    let expected = ["f=call_0", "g=call_1", "f=call_2", "one=call_1", "two=call_0", "three=call_2"];
    assert_eq!(first, expected);
    contents.push(json!({"role": "model", "parts": [call("g")]}));
    contents.push(json!({"role": "user", "parts": [{"functionResponse":
        {"id": "of-a-client", "name": "g", "response": {"error": "four"}}}]}));
    let second = ids(&contents);
    assert_eq!(second[..first.len()], first[..], "as before");
    assert_eq!(second[first.len()..], ["g=call_3", "four=call_3"]);
    let lost = json!({"contents": [{"parts": [result("h", "x")]}]}).to_string();
    let refusal = Gemini.read_request(lost.as_bytes()).expect_err("a result of nothing");
    assert_eq!(refusal.field, "contents[0].parts[0].functionResponse");
}

#[test]
fn names_are_read_in_both_spellings_and_never_twice() {
    let parts = read(&json!({
        "system_instruction": {"parts": {"text": "Be short."}},
        "contents": {"parts": {"inline_data": {"mime_type": "image/png", "data": "a-_b"}}},
        "generation_config": {"max_output_tokens": 5, "top_k": 40.0},
    }));
    let shown = format!("{parts:?}");
    for word in ["Be short.", "image/png", "a+/b", "OutputMax(5)", "TopK(40)"] {
        assert!(shown.contains(word), "{word}: {shown}");
    }
    let twice =
        br#"{"contents":[],"systemInstruction":{"parts":[]},"system_instruction":{"parts":[]}}"#;
    let refusal = Gemini.read_request(twice).expect_err("two of one");
    assert_eq!(refusal.field, "systemInstruction");
}

#[test]
fn schemas_of_openapi_become_json_schemas() {
    let tool = |schema: &Value| {
        let parts = read(&json!({"contents": [{"parts": [{"text": "hi"}]}], "tools":
            [{"functionDeclarations": [{"name": "f", "parameters": schema}]}]}));
        match &parts[0] {
            PromptPart::Tool(tool) => tool.schema.clone().expect("a schema").into_owned(),
            other => panic!("a tool: {other:?}"),
        }
    };
    let written = tool(&json!({"type": "OBJECT", "properties": {
        "any_of": {"type": "STRING", "nullable": true, "enum": ["a"]},
        "list": {"type": "ARRAY", "items": {"type": "INTEGER"}, "min_items": "1"},
    }, "required": ["any_of"], "propertyOrdering": ["any_of", "list"]}));
    let expected = json!({"type": "object", "properties": {
        "any_of": {"type": ["string", "null"], "enum": ["a"]},
        "list": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
    }, "required": ["any_of"]});
    assert_eq!(serde_json::from_str::<Value>(&written).expect("JSON"), expected);
    let plain = json!({"type": "object", "properties": {"x": {"type": "string"}}});
    assert_eq!(tool(&plain), plain.to_string(), "byte for byte");
}

#[test]
fn thoughts_in_pieces_are_one_thought_with_its_seal() {
    let seal = seal::wrap(Maker::Messages, "c2ln");
    let signature = signature_of_seal(&seal).replace('+', "-").replace('/', "_");
    let model = |part: Value| json!({"role": "model", "parts": [part]});
    let parts = read(&json!({"contents": [
        {"role": "user", "parts": [{"text": "hi"}]},
        model(json!({"text": "I ", "thought": true})),
        model(json!({"text": "see.", "thought": true})),
        model(json!({"text": "", "thought": true, "thoughtSignature": signature})),
        model(json!({"text": "So"})), model(json!({"text": " "})), model(json!({"text": "it is."})),
        model(json!({"text": ""})),
        {"role": "user", "parts": [{"text": "and?"}]},
    ]}));
    let body = write(&Messages, &parts, &TranslationTarget::default());
    let expected = json!([
        {"type": "thinking", "thinking": "I see.", "signature": "c2ln"},
        {"type": "text", "text": "So it is."},
    ]);
    assert_eq!(body["messages"][1]["content"], expected, "{body}");
}

#[test]
fn seals_travel_as_base64_and_geminis_own_as_they_are() {
    assert_eq!(seal_of_signature("CiQB+/w==").as_deref(), Some("tg1.g.CiQB+/w=="));
    assert_eq!(seal_of_signature(FOREIGN_CALL_SIGNATURE), None);
    assert_eq!(signature_of_seal("tg1.g.CiQB+/w=="), "CiQB+/w==");
    let seal = seal::wrap(Maker::Responses, r#"{"id":"rs_1","x":"é?>~"}"#);
    let travelled = signature_of_seal(&seal);
    assert!(!travelled.contains("tg1"), "{travelled}");
    assert_eq!(seal_of_signature(&travelled).as_deref(), Some(&*seal));
    let of_urls = travelled.replace('+', "-").replace('/', "_");
    assert_eq!(seal_of_signature(of_urls.trim_end_matches('=')).as_deref(), Some(&*seal));
}

#[test]
fn calls_of_other_models_are_marked_for_models_that_want_signatures() {
    let call = |id: &str, seal: Option<&str>| {
        PromptPart::ToolCall(ToolCall {
            id: id.to_owned().into(),
            name: "f".into(),
            input: "{}".into(),
            is_free: false,
            seal: seal.map(|token| seal::wrap(Maker::Gemini, token).into()),
            cache: None,
        })
    };
    let signatures = |parts: &[PromptPart<'_>], thinking| {
        let target = TranslationTarget { thinking, ..TranslationTarget::default() };
        let body = write(&Gemini, parts, &target);
        let parts = body["contents"][1]["parts"].as_array().expect("parts").clone();
        parts.iter().map(|part| part["thoughtSignature"].clone()).collect::<Vec<_>>()
    };
    let foreign = [call("a", None), call("b", None)];
    assert_eq!(
        signatures(&foreign, ThinkingStyle::Effort),
        [json!(FOREIGN_CALL_SIGNATURE), Value::Null]
    );
    assert_eq!(signatures(&foreign, ThinkingStyle::Budget), [Value::Null, Value::Null]);
    let own = [call("a", Some("sgn")), call("b", None)];
    assert_eq!(signatures(&own, ThinkingStyle::Effort), [json!("sgn"), Value::Null]);
}

#[test]
fn thinking_is_set_in_the_form_of_each_model() {
    use Thinking::{Adaptive, Budget, Off};
    let high = Thinking::Effort(Effort::High);
    for (style, thinking, expected) in [
        (ThinkingStyle::Effort, high, json!({"includeThoughts": true, "thinkingLevel": "high"})),
        (ThinkingStyle::Effort, Adaptive, json!({"includeThoughts": true})),
        (ThinkingStyle::Effort, Off, Value::Null),
        (ThinkingStyle::None, high, Value::Null),
        (ThinkingStyle::Budget, Off, json!({"thinkingBudget": 0})),
        (ThinkingStyle::Budget, Adaptive, json!({"includeThoughts": true, "thinkingBudget": -1})),
        (
            ThinkingStyle::Budget,
            Budget(99_999),
            json!({"includeThoughts": true, "thinkingBudget": 24_576}),
        ),
    ] {
        let target = TranslationTarget { thinking: style, ..TranslationTarget::default() };
        let body = write(&Gemini, &[PromptPart::Thinking(thinking)], &target);
        assert_eq!(body["generationConfig"]["thinkingConfig"], expected, "{style:?} {thinking:?}");
        if thinking != Budget(99_999) && !expected.is_null() {
            let again = read(
                &json!({"contents": [{"parts": [{"text": "hi"}]}], "generationConfig": body["generationConfig"]}),
            );
            assert_eq!(again[0], PromptPart::Thinking(thinking), "{body}");
        }
    }
}

#[test]
fn unusual_upstream_answers_are_reported() {
    let parts = |parts: Value, reason: &str| {
        json!({"responseId": "r-1", "candidates":
            [{"content": {"role": "model", "parts": parts}, "finishReason": reason}]})
    };
    let call = json!({"functionCall": {"name": "f", "args": {"a": 1}}, "thoughtSignature": "sgn"});
    let read = answer(&parts(json!([{"text": "Hm.", "thought": true}, call]), "STOP"));
    assert!(read.contains(&AnswerPart::Seal("tg1.g.".into())), "unsigned thoughts end: {read:?}");
    assert!(
        read.contains(&AnswerPart::ToolCall {
            id: "".into(),
            name: "f".into(),
            seal: Some("tg1.g.sgn".into()),
        }),
        "{read:?}"
    );
    assert!(read.contains(&AnswerPart::Stop(Stop::Tools)), "{read:?}");
    let blocked = answer(&json!({"promptFeedback": {"blockReason": "SAFETY"}}));
    assert!(blocked.contains(&AnswerPart::Stop(Stop::Refused)), "{blocked:?}");
    for (reason, expected) in [("MAX_TOKENS", Stop::Length), ("SAFETY", Stop::Refused)] {
        let read = answer(&json!({"candidates": [{"finishReason": reason, "index": 0}]}));
        assert!(read.contains(&AnswerPart::Stop(expected)), "{reason}: {read:?}");
    }
    for odd in [
        json!({"candidates": []}),
        json!({"candidates": [{"content": {"parts": [{"text": "cut"}]}}]}),
        parts(json!([{"inlineData": {"mimeType": "image/png", "data": "AA"}}]), "STOP"),
    ] {
        assert!(Gemini.read_answer(odd.to_string().as_bytes()).is_err(), "{odd}");
    }
}

#[test]
fn failures_are_the_operators_where_the_key_is() {
    for (message, kind) in [
        ("API key not valid. Please pass a valid API key.", FailureKind::Denied),
        (
            "The input token count (9) exceeds the maximum number of tokens allowed (8).",
            FailureKind::TooLong,
        ),
        ("Invalid value at 'contents'", FailureKind::Invalid),
    ] {
        let body =
            json!({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}});
        assert_eq!(Gemini.read_failure(400, body.to_string().as_bytes()).kind, kind, "{message}");
    }
}

#[test]
fn what_has_no_words_elsewhere_is_refused_by_name() {
    let user = |part: Value| json!({"contents": [{"role": "user", "parts": [part]}]});
    let with = |field: &str, value: Value| json!({"contents": [{"parts": [{"text": "hi"}]}], field: value});
    for (body, field) in [
        (with("cachedContent", json!("cachedContents/x")), "cachedContent"),
        (with("unheardOf", json!(1)), "unheardOf"),
        (with("generationConfig", json!({"candidateCount": 2})), "generationConfig.candidateCount"),
        (
            with("generationConfig", json!({"responseModalities": ["IMAGE"]})),
            "generationConfig.responseModalities",
        ),
        (
            user(json!({"fileData": {"fileUri": "gs://b/o.png"}})),
            "contents[0].parts[0].fileData.fileUri",
        ),
        (
            user(json!({"inlineData": {"mimeType": "model/obj", "data": ""}})),
            "contents[0].parts[0].inlineData.mimeType",
        ),
        (user(json!({"text": "a", "functionCall": {"name": "f"}})), "contents[0].parts[0]"),
        (user(json!({})), "contents[0].parts[0]"),
        (json!({"contents": [{"role": "critic", "parts": []}]}), "contents[0].role"),
    ] {
        let text = body.to_string();
        let refusal = Gemini.read_request(text.as_bytes()).expect_err(&text);
        assert_eq!(refusal.field, field, "{text}");
    }
    // A thought of another model's is none of the prompt's.
    let thought = Reasoning { text: "hm".into(), seal: Some(seal::wrap(Maker::Chat, "").into()) };
    let body = write(&Gemini, &[PromptPart::Reasoning(thought)], &TranslationTarget::default());
    let opening = json!([{"role": "user", "parts": [{"text": "(The conversation begins here.)"}]}]);
    assert_eq!(body["contents"], opening);
    let chat = read(&user(json!({"fileData": {"fileUri": "https://example.com/a.png"}})));
    let body = write(&Chat, &chat, &TranslationTarget::default());
    assert_eq!(body["messages"][0]["content"][0]["type"], "image_url", "{body}");
}
