//! Deviations of providers that copied chat completions.

use super::*;
use crate::names::CallIds;
use crate::part::FailureKind::{self, Busy, Denied, Filtered, Invalid, TooLong, Upstream};

/// Reads an answer of this message, complete and streamed in these pieces.
fn read_both(message: &Value, deltas: &[Value], finish: &str) -> Vec<String> {
    let whole =
        json!({"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": finish}]});
    let whole = whole.to_string();
    let whole = Chat.read_answer(whole.as_bytes()).expect("an answer");
    let mut events = String::new();
    for delta in deltas {
        let chunk =
            json!({"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
        events.push_str(&format!("data: {chunk}\n\n"));
    }
    let last = json!({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]});
    events.push_str(&format!("data: {last}\n\ndata: [DONE]\n\n"));
    let streamed = answer_contents(read_events(&Chat, events.as_bytes()));
    assert_eq!(answer_contents(whole), streamed, "whole and streamed: {message}");
    streamed
}

/// The message of the assistant that a model gets back, by a customer of each dialect.
fn sent_back_to_chat(parts: Vec<AnswerPart<'static>>) -> Vec<Value> {
    let customers: [&dyn CustomerDialect; 2] = [&Messages, &Responses];
    let places = [1, 2];
    customers
        .into_iter()
        .zip(places)
        .map(|(customer, place)| {
            let document = customer.write_answer(&parts, &frame());
            let document: Value = serde_json::from_slice(&document).expect("JSON");
            let request = sent_back(place, &document).to_string();
            let read = customer.read_request(request.as_bytes()).expect("read");
            let target =
                TranslationTarget { chat: ChatStyle::Common, ..TranslationTarget::default() };
            let written = Chat.write_request(&read.parts, &target, &mut Losses::default());
            let written: Value = serde_json::from_slice(&written.expect("written")).expect("JSON");
            assistants_message(&written)
        })
        .collect()
}

/// The first message of the assistant.
fn assistants_message(request: &Value) -> Value {
    let messages = request["messages"].as_array().expect("messages");
    let found = messages.iter().find(|message| message["role"] == "assistant");
    found.expect("a message of the assistant").clone()
}

fn read_document(message: &Value) -> Vec<AnswerPart<'static>> {
    let whole =
        json!({"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]});
    let whole = whole.to_string();
    let parts = Chat.read_answer(whole.as_bytes()).expect("an answer");
    parts.into_iter().map(AnswerPart::into_owned).collect()
}

#[test]
fn thoughts_go_back_to_where_they_stood() {
    let signed = json!([
        {"type": "reasoning.text", "text": "I sée.", "signature": "c2ln", "format": "anthropic-claude-v1", "index": 0},
        {"type": "reasoning.encrypted", "data": "gAAA", "id": "rs_1", "format": "openai-responses-v1", "index": 1},
    ]);
    for message in [
        json!({"content": "Hi.", "reasoning_content": "I sée."}),
        json!({"content": "Hi.", "reasoning": "I sée."}),
        json!({"content": "<think>\nI sée.\n</think>\n\nHi."}),
        json!({"content": "<think>I sée.</think>Hi."}),
        json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "I sée."}]},
            {"type": "text", "text": "Hi."}]}),
        json!({"content": "Hi.", "reasoning_details": signed}),
    ] {
        let contents = answer_contents(read_document(&message));
        assert_eq!(contents.len(), 4, "a thought, its seal, a text, an end: {contents:?}");
        assert_eq!(contents[0].replace('\n', ""), "thought I sée.", "{message}");
        assert_eq!(contents[2], "text Hi.", "{message}");
        for mut sent in sent_back_to_chat(read_document(&message)) {
            sent.as_object_mut().expect("a message").remove("role");
            assert_eq!(sent, message);
        }
    }
}

#[test]
fn thoughts_between_tags_are_thoughts_however_they_are_cut() {
    let text = "<think>a < b </thin, no</think>\n\nSo: <think>not this</think>";
    for size in 1..12 {
        let letters: Vec<char> = text.chars().collect();
        let deltas: Vec<Value> = letters
            .chunks(size)
            .map(|piece| json!({"content": piece.iter().collect::<String>()}))
            .collect();
        let contents = read_both(&json!({"content": text}), &deltas, "stop");
        let expected = [
            "thought a < b </thin, no",
            "Seal(\"tg1.c.think:\\\"\\\\n\\\\n\\\"\")",
            "text So: <think>not this</think>",
            "Stop(Done)",
        ];
        assert_eq!(contents, expected, "{size}");
    }
    for (text, expected) in [
        ("<thin", vec!["text <thin"]),
        ("\n\n", vec!["text \n\n"]),
        (" <b>Hi</b>", vec!["text  <b>Hi</b>"]),
        ("<think>never ends </t", vec!["thought never ends </t", "Seal(\"tg1.c.think:\\\"\\\"\")"]),
    ] {
        let cut = text.split_at(1);
        let deltas = [json!({"content": cut.0}), json!({"content": cut.1})];
        let contents = read_both(&json!({"content": text}), &deltas, "stop");
        assert_eq!(contents[..contents.len() - 1], expected, "{text:?}");
    }
}

#[test]
fn pieces_of_signed_thoughts_are_put_together() {
    let detail = |text: &str, signature: Value| {
        json!({"reasoning": text, "reasoning_details": [
            {"type": "reasoning.text", "text": text, "signature": signature, "index": 0}]})
    };
    let whole = json!({"reasoning": "I see.", "content": "Hi.", "reasoning_details": [
        {"type": "reasoning.text", "text": "I see.", "signature": "c2ln", "index": 0}]});
    let deltas = [
        detail("I ", Value::Null),
        detail("see.", Value::Null),
        json!({"reasoning_details": [{"type": "reasoning.text", "signature": "c2ln", "text": "", "index": 0}]}),
        json!({"content": "Hi."}),
    ];
    let contents = read_both(&whole, &deltas, "stop");
    assert_eq!(contents[0], "thought I see.");
    // Words that do not fit the details any more go without them.
    let mut parts = read_document(&whole);
    for part in &mut parts {
        if let AnswerPart::Reasoning(text) = part {
            *text = "I saw it.".into();
        }
    }
    for sent in sent_back_to_chat(parts) {
        assert_eq!(sent["reasoning"], "I saw it.");
        assert_eq!(sent.get("reasoning_details"), None, "{sent}");
    }
}

#[test]
fn an_error_in_the_place_of_an_answer_has_its_kind() {
    let rows: [(&str, FailureKind, &str); 8] = [
        (r#"{"error":{"code":429,"message":"slow down"}}"#, Busy, "slow down"),
        (
            r#"{"error":{"code":"402","message":"no money"}}"#,
            Denied,
            "The provider refused the request (402).",
        ),
        (
            r#"{"choices":[{"index":0,"error":{"code":502,"message":"down"},"finish_reason":"error"}]}"#,
            Upstream,
            "down",
        ),
        (
            r#"{"choices":[{"index":0,"finish_reason":"network_error"}]}"#,
            Upstream,
            "The provider failed while it answered.",
        ),
        (
            r#"{"choices":null,"base_resp":{"status_code":1002,"status_msg":"rate limit"}}"#,
            Busy,
            "The provider refused the request (1002): rate limit",
        ),
        (
            r#"{"base_resp":{"status_code":1008,"status_msg":"insufficient balance"}}"#,
            Denied,
            "The provider refused the request (1008).",
        ),
        (
            r#"{"base_resp":{"status_code":1026,"status_msg":"sensitive"}}"#,
            Filtered,
            "The provider refused the request (1026): sensitive",
        ),
        (
            r#"{"base_resp":{"status_code":2013,"status_msg":"context window exceeds limit"}}"#,
            TooLong,
            "The provider refused the request (2013): context window exceeds limit",
        ),
    ];
    for (body, kind, message) in rows {
        let whole = Chat.read_answer(body.as_bytes()).expect("an answer");
        let event = format!("data: {body}\n\n");
        for contents in [
            whole.into_iter().map(AnswerPart::into_owned).collect(),
            read_events(&Chat, event.as_bytes()),
        ] {
            let Some(AnswerPart::Error(failure)) = contents.last() else {
                panic!("{body}: {contents:?}")
            };
            assert_eq!((failure.kind, failure.message.as_str()), (kind, message), "{body}");
        }
    }
    let fine = r#"{"choices":[{"index":0,"message":{"content":"Hi."},"finish_reason":"stop"}],"base_resp":{"status_code":0,"status_msg":""}}"#;
    assert_eq!(
        answer_contents(Chat.read_answer(fine.as_bytes()).expect("an answer")),
        ["text Hi.", "Stop(Done)"]
    );
}

#[test]
fn refusals_of_providers_are_understood() {
    for (status, body, kind, message) in [
        (
            422,
            r#"{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","stream_options","include_usage"],"msg":"Extra inputs are not permitted","input":true}]},"type":"invalid_request_error","param":null,"code":null}"#,
            Invalid,
            "Extra inputs are not permitted: stream_options.include_usage",
        ),
        (400, r#"{"error":{"code":"1301","message":"sensitive"}}"#, Filtered, "sensitive"),
        (
            400,
            r#"{"error":{"code":"1261","message":"Prompt exceeds max length"}}"#,
            TooLong,
            "Prompt exceeds max length",
        ),
        (429, r#"{"error":{"code":"1302","message":"too many"}}"#, Busy, "too many"),
        (
            400,
            r#"{"code":20012,"message":"Model does not exist.","data":null}"#,
            Invalid,
            "Model does not exist.",
        ),
        (401, r#""Invalid token""#, Denied, "Invalid token"),
        (404, "404 page not found", FailureKind::NotFound, "404 page not found"),
        (
            400,
            r#"{"object":"error","message":"This model's maximum context length is 10","type":"BadRequestError","param":null,"code":400}"#,
            TooLong,
            "This model's maximum context length is 10",
        ),
        (
            400,
            r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_prompt_tokens":9,"n_ctx":8}}"#,
            TooLong,
            "the request exceeds the available context size",
        ),
        (400, "<html>no</html>", Invalid, "The provider refused the request (400)."),
    ] {
        let failure = Chat.read_failure(status, body.as_bytes());
        assert_eq!((failure.kind, failure.message.as_str()), (kind, message), "{body}");
    }
}

#[test]
fn reasons_to_stop_have_other_words() {
    let stop = |word: &str| {
        read_both(&json!({"content": "Hi."}), &[json!({"content": "Hi."})], word).pop()
    };
    for (word, expected) in [
        ("sensitive", "Stop(Refused)"),
        ("model_length", "Stop(Length)"),
        ("model_context_window_exceeded", "Stop(Length)"),
        ("eos", "Stop(Done)"),
    ] {
        assert_eq!(stop(word).as_deref(), Some(expected), "{word}");
    }
}

#[test]
fn ids_of_calls_are_what_mistral_takes() {
    let body = |id: &str| {
        json!({"max_tokens": 9, "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "x"}]},
        ]})
    };
    let sent = |id: &str, call_ids| {
        let body = body(id).to_string();
        let read = Messages.read_request(body.as_bytes()).expect("read");
        let target = TranslationTarget { call_ids, ..TranslationTarget::default() };
        let written = Chat.write_request(&read.parts, &target, &mut Losses::default());
        let written: Value = serde_json::from_slice(&written.expect("written")).expect("JSON");
        let call = assistants_message(&written)["tool_calls"][0]["id"].clone();
        let call = call.as_str().expect("an id").to_owned();
        let last = written["messages"].as_array().and_then(|all| all.last()).expect("messages");
        assert_eq!(last["tool_call_id"], call.as_str(), "found again");
        call
    };
    assert_eq!(sent("toolu_01", CallIds::Any), "toolu_01");
    assert_eq!(sent("D681PevKs", CallIds::Nine), "D681PevKs", "its own");
    let made = ["toolu_01", "toolu_02", "call-1234", "", "x"].map(|id| sent(id, CallIds::Nine));
    for id in &made {
        assert!(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{id}");
    }
    let distinct: std::collections::HashSet<_> = made.iter().collect();
    assert_eq!(distinct.len(), made.len(), "{made:?}");
    assert_eq!(sent("toolu_01", CallIds::Nine), made[0], "the same on every turn");
}
