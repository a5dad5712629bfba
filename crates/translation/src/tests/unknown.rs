//! Unknown events and blocks are skipped, and an end without an answer is a failure.

use serde_json::{Value, json};

use super::interleaved::read;
use super::{DIALECTS, answer_contents, frame};
use crate::dialect::UpstreamDialect;
use crate::part::{AnswerPart, Citation, FailureKind, Stop};
use crate::{Chat, Converse, Gemini, Messages, Responses};

fn answer_parts(upstream: &dyn UpstreamDialect, events: &[Value]) -> Vec<String> {
    let answer = read(upstream, events).unwrap_or_else(|error| panic!("{error}: {events:?}"));
    answer_contents(answer)
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of streams")]
fn unknown_events_items_and_pieces_are_passed_over() {
    let block = |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let delta = |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: u64| json!({"type": "content_block_stop", "index": index});
    let messages = [
        json!({"type": "message_start", "message": {"id": "m"}}),
        json!({"type": "ping"}),
        json!({"type": "something_new", "delta": "a text", "index": "x"}),
        block(0, json!({"type": "text", "text": ""})),
        delta(0, json!({"type": "text_delta", "text": "a"})),
        delta(0, json!({"type": "citations_delta", "citation": {"type": "char_location"}})),
        delta(0, json!({"type": "something_new", "text": {"odd": 1}})),
        delta(0, json!({"type": "text_delta", "text": "b"})),
        stop(0),
        block(1, json!({"type": "compaction", "content": null})),
        delta(1, json!({"type": "compaction_delta", "content": "sum"})),
        stop(1),
        block(2, json!({"type": "something_new", "id": null, "name": 7, "text": ["x"]})),
        delta(2, json!({"type": "input_json_delta", "partial_json": "{}"})),
        stop(2),
        block(3, json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})),
        delta(3, json!({"type": "input_json_delta", "partial_json": "{}"})),
        stop(3),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
        json!({"type": "message_stop"}),
    ];
    assert_eq!(answer_parts(&Messages, &messages), ["Alive", "text ab", "Stop(Done)"]);
    let text =
        json!({"type": "message", "id": "m", "content": [{"type": "output_text", "text": "ab"}]});
    let search = json!({"type": "web_search_call", "id": "w", "status": "completed", "action": {}});
    let new =
        json!({"type": "something_new", "id": 7, "name": null, "content": "x", "arguments": {}});
    let item = |kind: &str, place: u64, item: &Value| json!({"type": format!("response.output_item.{kind}"), "output_index": place, "item": item});
    let responses = [
        json!({"type": "response.created", "response": {"id": "r"}}),
        json!({"type": "keepalive", "sequence_number": 3}),
        json!({"type": "response.something_new", "response": 1, "output_index": "x"}),
        item("added", 0, &search),
        json!({"type": "response.web_search_call.searching", "output_index": 0, "item_id": "w"}),
        item("done", 0, &search),
        item("added", 1, &new),
        json!({"type": "response.output_text.delta", "output_index": 1, "delta": "of the new item"}),
        item("done", 1, &new),
        item("added", 2, &json!({"type": "message", "id": "m", "content": []})),
        json!({"type": "response.output_text.delta", "output_index": 2, "delta": "ab", "logprobs": []}),
        json!({"type": "response.content_part.added", "output_index": 2, "part": {"type": "new"}}),
        item("done", 2, &text),
        json!({"type": "response.completed", "response": {"status": "completed", "output": [search, new, text]}}),
    ];
    assert_eq!(answer_parts(&Responses, &responses), ["Alive", "text ab", "Stop(Done)"]);
    let event =
        |name: &str, payload: Value| json!({"kind": "event", "name": name, "payload": payload});
    let converse = [
        event("messageStart", json!({"role": "assistant"})),
        event("somethingNew", json!({"a": 1})),
        event("contentBlockStart", json!({"contentBlockIndex": 0, "start": {"somethingNew": {}}})),
        event("contentBlockDelta", json!({"contentBlockIndex": 0, "delta": {"somethingNew": {}}})),
        event("contentBlockStop", json!({"contentBlockIndex": 0})),
        event("contentBlockDelta", json!({"contentBlockIndex": 1, "delta": {"text": "ab"}})),
        event(
            "contentBlockDelta",
            json!({"contentBlockIndex": 1, "delta": {"citation": {"title": "t"}}}),
        ),
        event("contentBlockStop", json!({"contentBlockIndex": 1})),
        event("messageStop", json!({"stopReason": "something_new"})),
    ];
    assert_eq!(answer_parts(&Converse, &converse), ["text ab", "Stop(Done)"]);
    let part = |part: Value| json!({"candidates": [{"content": {"parts": [part]}}]});
    let mut last = part(json!({"text": "ab"}));
    last["candidates"][0]["finishReason"] = json!("SOMETHING_NEW");
    let gemini = [
        part(json!({"executableCode": {"code": "1"}})),
        part(json!({"codeExecutionResult": {"outcome": "OUTCOME_OK"}})),
        part(json!({"somethingNew": {}})),
        last,
    ];
    assert_eq!(answer_parts(&Gemini, &gemini), ["text ab", "Stop(Done)"]);
}

/// A block is not delayed by an unknown block beside it.
#[test]
fn nobody_waits_for_what_is_passed_over() {
    let rows: [(&dyn UpstreamDialect, [Value; 3]); 2] = [
        (
            &Messages,
            [
                json!({"type": "content_block_start", "index": 0, "content_block": {"type": "new"}}),
                json!({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}),
                json!({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "a"}}),
            ],
        ),
        (
            &Responses,
            [
                json!({"type": "response.output_item.added", "output_index": 0, "item": {"type": "new"}}),
                json!({"type": "response.output_item.added", "output_index": 1, "item": {"type": "message"}}),
                json!({"type": "response.output_text.delta", "output_index": 1, "delta": "a"}),
            ],
        ),
    ];
    for (upstream, events) in rows {
        assert_eq!(answer_parts(upstream, &events), ["text a"], "{upstream:?}");
    }
}

#[test]
fn complete_answers_keep_their_supported_blocks_beside_unknown_ones() {
    let message = json!({"id": "m", "stop_reason": "end_turn", "content": [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": []},
        {"type": "something_new", "name": null, "text": 4},
        {"type": "text", "text": "ab", "citations": [{"type": "web_search_result_location"}]}]});
    let response = json!({"id": "r", "status": "completed", "output": [
        {"type": "web_search_call", "id": "w", "status": "completed"},
        {"type": "something_new", "name": null},
        {"type": "message", "content": [{"type": "new"}, {"type": "output_text", "text": "ab"}]}]});
    let converse = json!({"stopReason": "end_turn", "output": {"message": {"content": [
        {"somethingNew": {}}, {"text": "ab"}]}}});
    let gemini = json!({"candidates": [{"finishReason": "STOP", "content": {"parts": [
        {"executableCode": {}}, {"text": "ab"}]}}]});
    let rows: [(&dyn UpstreamDialect, Value); 4] =
        [(&Messages, message), (&Responses, response), (&Converse, converse), (&Gemini, gemini)];
    for (upstream, document) in rows {
        let document = document.to_string();
        let read =
            upstream.read_answer(document.as_bytes()).unwrap_or_else(|e| panic!("{e}: {document}"));
        assert_eq!(answer_contents(read), ["text ab", "Stop(Done)"], "{upstream:?}");
    }
}

/// The reasons for which a model ends without an answer are failures to the customer, JSON and streamed.
#[test]
fn an_end_without_an_answer_is_a_failure() {
    let gemini = |reason: &str, parts: Value| {
        json!({"candidates": [{"content": {"parts": parts}, "finishReason": reason}],
            "usageMetadata": {"promptTokenCount": 3, "totalTokenCount": 3}})
    };
    let (text, call) =
        (json!([{"text": "I will call."}]), json!([{"functionCall": {"name": "f"}}]));
    let none = json!([]);
    for (reason, parts, fails) in [
        ("MALFORMED_FUNCTION_CALL", &none, true),
        ("MALFORMED_FUNCTION_CALL", &text, true),
        ("MALFORMED_FUNCTION_CALL", &call, false),
        ("UNEXPECTED_TOOL_CALL", &none, true),
        ("MISSING_THOUGHT_SIGNATURE", &none, true),
        ("TOO_MANY_TOOL_CALLS", &none, true),
        ("MALFORMED_RESPONSE", &none, true),
        ("OTHER", &none, true),
        ("OTHER", &text, false),
        ("NO_IMAGE", &none, true),
        ("SOMETHING_NEW", &none, true),
        ("STOP", &none, false),
        ("SAFETY", &none, false),
        ("MAX_TOKENS", &none, false),
    ] {
        let document = gemini(reason, parts.clone());
        let text = document.to_string();
        let whole = Gemini.read_answer(text.as_bytes()).expect("read");
        let streamed = read(&Gemini, &[document]).expect("read");
        for read in [whole, streamed] {
            match read.last() {
                Some(AnswerPart::Error(failure)) => {
                    assert!(fails, "{reason}: {read:?}");
                    assert_eq!(failure.kind, FailureKind::Upstream, "to be sent again");
                    assert!(failure.message.contains(reason), "{failure:?}");
                }
                last => assert!(
                    !fails && matches!(last, Some(AnswerPart::End(_))),
                    "{reason}: {read:?}"
                ),
            }
        }
    }
    for reason in ["malformed_model_output", "malformed_tool_use"] {
        let document = json!({"stopReason": reason, "output": {"message": {"content": []}}});
        let document = document.to_string();
        let read = Converse.read_answer(document.as_bytes()).expect("read");
        assert!(matches!(read.last(), Some(AnswerPart::Error(_))), "{reason}: {read:?}");
    }
}

/// Copies of chat completions report failures in their own formats, and some send no choice at all.
#[test]
fn a_chat_completion_that_failed_is_a_failure() {
    for word in [
        "error",
        "network_error",
        "insufficient_system_resource",
        "function_call_filter: MALFORMED_FUNCTION_CALL",
        "malformed_function_call",
    ] {
        let choice = |key: &str| json!({"choices": [{"index": 0, key: {"content": null}, "finish_reason": word}]});
        let document = choice("message").to_string();
        let whole = Chat.read_answer(document.as_bytes()).expect("read");
        let streamed = read(&Chat, &[choice("delta")]).expect("read");
        for read in [whole, streamed] {
            let Some(AnswerPart::Error(failure)) = read.last() else { panic!("{word}: {read:?}") };
            assert_eq!(failure.kind, FailureKind::Upstream, "{word}");
        }
    }
    let mut reader = Chat.stream_reader();
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 3}}).to_string();
    reader.read(usage.as_bytes(), &mut |_| {}).expect("usage");
    assert!(reader.read(b"[DONE]", &mut |_| {}).is_err(), "no answer is no empty answer");
    let failed = json!({"id": "r", "status": "failed", "error": null, "output": []}).to_string();
    let read = Responses.read_answer(failed.as_bytes()).expect("read");
    assert!(matches!(read.last(), Some(AnswerPart::Error(_))), "{read:?}");
}

/// Calls wait for their results, whatever the upstream calls their end.
#[test]
fn calls_that_end_without_a_reason_wait_for_their_results() {
    let called = json!([{"id": "a", "function": {"name": "f", "arguments": "{}"}}]);
    let choice = |word: Value| json!({"choices": [{"message": {"tool_calls": called}, "finish_reason": word}]});
    let second = json!({"choices": [{"index": 0, "message": {"content": "I will."}, "finish_reason": "stop"},
        {"index": 1, "message": {"tool_calls": called}, "finish_reason": "tool_calls"}]});
    let message = |word: Value| {
        json!({"id": "m", "stop_reason": word,
            "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]})
    };
    let converse = json!({"stopReason": "end_turn", "output": {"message": {"content": [
        {"toolUse": {"toolUseId": "a", "name": "f", "input": {}}}]}}});
    let rows: Vec<(&dyn UpstreamDialect, Value)> = vec![
        (&Chat, choice(Value::Null)),
        (&Chat, choice(json!(""))),
        (&Chat, choice(json!("stop"))),
        (&Chat, second),
        (&Messages, message(Value::Null)),
        (&Messages, message(json!("end_turn"))),
        (&Converse, converse),
    ];
    for (upstream, document) in rows {
        let document = document.to_string();
        let read = upstream.read_answer(document.as_bytes()).expect(&document);
        assert!(read.contains(&AnswerPart::Stop(Stop::Tools)), "{document}: {read:?}");
    }
    // Where nothing was called there is nothing to wait for.
    let none = json!({"choices": [{"message": {"content": "a"}, "finish_reason": "tool_calls"}]});
    let none = none.to_string();
    let read = Chat.read_answer(none.as_bytes()).expect("read");
    assert!(read.contains(&AnswerPart::Stop(Stop::Done)), "{read:?}");
}

/// A citation names the same words in both of OpenAI's dialects, as a document and as a stream.
#[test]
#[expect(clippy::too_many_lines, reason = "a table of streams")]
fn citations_survive_between_openais_dialects() {
    let flat = |start: u64, end: u64| json!({"type": "url_citation", "start_index": start, "end_index": end, "url": "https://e.com/a", "title": "A"});
    let nested = |start: u64, end: u64| {
        let mut cited = flat(start, end);
        cited.as_object_mut().expect("an object").remove("type");
        json!({"type": "url_citation", "url_citation": cited})
    };
    let content = |text: &str, cited: Value| json!({"type": "message", "content": [{"type": "output_text", "text": text, "annotations": [cited]}]});
    // Two messages: in chat completions they are one text.
    let output = [content("漢a b", flat(1, 2)), content("cde", flat(0, 3))];
    let response = json!({"id": "r", "status": "completed", "output": output}).to_string();
    let completion = json!({"id": "c", "choices": [{"finish_reason": "stop", "message":
        {"content": "漢a bcde", "annotations": [nested(1, 2), nested(4, 7)]}}]});
    let read = Responses.read_answer(response.as_bytes()).expect("read");
    let document: Value =
        serde_json::from_slice(&DIALECTS[0].write_answer(&read, &frame())).expect("JSON");
    assert_eq!(
        document["choices"][0]["message"]["annotations"],
        json!([nested(1, 2), nested(4, 7)])
    );
    let completion = completion.to_string();
    let read = Chat.read_answer(completion.as_bytes()).expect("read");
    let document: Value =
        serde_json::from_slice(&DIALECTS[2].write_answer(&read, &frame())).expect("JSON");
    let annotations = &document["output"][0]["content"][0]["annotations"];
    assert_eq!(annotations, &json!([flat(1, 2), flat(4, 7)]), "{document}");
    // Streams.
    let item = |kind: &str, place: usize, item: &Value| json!({"type": format!("response.output_item.{kind}"), "output_index": place, "item": item});
    let text = |place: usize, text: &str| json!({"type": "response.output_text.delta", "output_index": place, "delta": text});
    let begun = json!({"type": "message", "content": []});
    let events = [
        item("added", 0, &begun),
        text(0, "漢a"),
        json!({"type": "response.output_text.annotation.added", "output_index": 0, "content_index": 0, "annotation": flat(1, 2)}),
        text(0, " b"),
        item("done", 0, &output[0]),
        item("added", 1, &begun),
        text(1, "cde"),
        item("done", 1, &output[1]),
        json!({"type": "response.completed", "response": {"status": "completed"}}),
    ];
    let answer = super::interleaved::read(&Responses, &events).expect("read");
    let written = String::from_utf8(super::write_events(DIALECTS[0], &answer)).expect("text");
    for expected in [nested(1, 2), nested(4, 7)] {
        assert!(
            written.contains(&format!("\"annotations\":[{expected}]"))
                || written.matches("url_citation").count() >= 4,
            "{written}"
        );
    }
    let chunk = |delta: Value, word: Value| json!({"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": word}]});
    let chunks = [
        chunk(json!({"content": "漢a b"}), Value::Null),
        chunk(json!({"content": "cde"}), Value::Null),
        chunk(json!({"annotations": [nested(1, 2), nested(4, 7)]}), json!("stop")),
    ];
    let answer = super::interleaved::read(&Chat, &chunks).expect("read");
    let citation = |back: (u64, u64)| {
        AnswerPart::Citation(Citation { back, url: "https://e.com/a".into(), title: "A".into() })
    };
    assert!(answer.contains(&citation((6, 5))) && answer.contains(&citation((3, 0))), "{answer:?}");
    let written = String::from_utf8(super::write_events(DIALECTS[2], &answer)).expect("text");
    let added: Vec<Value> = written
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter_map(|data| serde_json::from_str::<Value>(data).ok())
        .collect();
    let annotation: Vec<&Value> = added
        .iter()
        .filter(|event| event["type"] == "response.output_text.annotation.added")
        .map(|event| &event["annotation"])
        .collect();
    assert_eq!(annotation, [&flat(1, 2), &flat(4, 7)]);
    let last = &added.last().expect("an end")["response"]["output"][0]["content"][0]["annotations"];
    assert_eq!(last, &json!([flat(1, 2), flat(4, 7)]));
}

/// A sign of life is one in each dialect, and none that its SDKs do not read.
#[test]
fn signs_of_life_are_written_in_each_dialect() {
    for (place, dialect) in DIALECTS.into_iter().enumerate() {
        let mut writer = dialect.stream_writer(&frame());
        let mut out = Vec::new();
        writer.write(&AnswerPart::Alive, &mut out);
        let comment: &[u8] = if place == 3 { b"\n\n" } else { b": keep-alive\n\n" };
        assert_eq!(out, comment, "before the first event");
        writer.write(&AnswerPart::Begin { id: "".into(), counts: Default::default() }, &mut out);
        out.clear();
        writer.write(&AnswerPart::Alive, &mut out);
        let expected: &[u8] = match place {
            1 => b"event: ping\ndata: {\"type\":\"ping\"}\n\n",
            _ => comment,
        };
        assert_eq!(out, expected, "{dialect:?}");
    }
}
