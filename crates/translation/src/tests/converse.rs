//! The Converse API, which has no customers: what is written for it is read here as its documentation has
//! it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    answer_contents, any_answer, any_exchange, any_request, conversation_contents, settings,
    target, text, user_at_end,
};
use crate::Converse;
use crate::dialect::{Losses, Mode, ThinkingStyle, TranslationTarget, UpstreamDialect};
use crate::part::{
    AnswerFormat, AnswerPart, Cache, ContentPart, Effort, FailureKind, MediaPart, PromptPart,
    Reasoning, Sampling, Source, Speaker, Stop, Text, Thinking, Tool, ToolCall, ToolChoice,
    ToolResult,
};
use crate::seal::{self, Maker};

/// The pictures that the API takes stand in the request.
fn with_inline_pictures(parts: Vec<PromptPart<'static>>) -> Vec<PromptPart<'static>> {
    let inline = |part| match part {
        PromptPart::Content(ContentPart::Image(media)) => {
            PromptPart::Content(ContentPart::Image(MediaPart {
                source: Source::Inline { media_type: "image/png".into(), data: "AAAA".into() },
                ..media
            }))
        }
        other => other,
    };
    parts.into_iter().map(inline).collect()
}

fn write_for(target: &TranslationTarget, parts: &[PromptPart<'_>]) -> (Value, Losses) {
    let mut losses = Losses::default();
    let body = Converse.write_request(parts, target, &mut losses).expect("written");
    (serde_json::from_slice(&body).expect("JSON"), losses)
}

fn write(parts: &[PromptPart<'_>]) -> Value {
    let (body, losses) = write_for(&target(), parts);
    assert_eq!(losses, Losses::default());
    body
}

fn owned(value: &Value) -> std::borrow::Cow<'static, str> {
    value.as_str().expect("a string").to_owned().into()
}

/// A request as an independent reader understands it.
fn read(body: &Value) -> Vec<PromptPart<'static>> {
    let mut parts = Vec::new();
    for one in body["system"].as_array().into_iter().flatten() {
        parts.push(PromptPart::Instruction(Text { text: owned(&one["text"]), cache: None }));
    }
    let mut last = None;
    for message in body["messages"].as_array().expect("messages") {
        let role = match message["role"].as_str() {
            Some("user") => Speaker::User,
            Some("assistant") => Speaker::Assistant,
            other => panic!("{other:?} speaks"),
        };
        assert_ne!(last, Some(role), "roles alternate: {body}");
        last = Some(role);
        parts.push(PromptPart::Turn(role));
        parts.extend(message["content"].as_array().expect("content").iter().map(read_block));
    }
    for tool in body["toolConfig"]["tools"].as_array().into_iter().flatten() {
        let spec = &tool["toolSpec"];
        parts.push(PromptPart::Tool(Tool {
            name: owned(&spec["name"]),
            description: spec["description"].as_str().map(|it| it.to_owned().into()),
            schema: Some(spec["inputSchema"]["json"].to_string().into()),
            is_strict: spec["strict"].as_bool(),
            is_free: false,
            cache: None,
        }));
    }
    if body["toolConfig"]["toolChoice"]["any"].is_object() {
        parts.push(PromptPart::ToolChoice(ToolChoice::Any));
    }
    if let Some(number) = body["inferenceConfig"]["temperature"].as_f64() {
        parts.push(PromptPart::Sampling(Sampling::Temperature(number)));
    }
    let format = &body["outputConfig"]["textFormat"];
    if format["type"] == "json_schema" {
        parts.push(PromptPart::Format(AnswerFormat::Schema {
            name: None,
            description: None,
            schema: owned(&format["structure"]["jsonSchema"]["schema"]),
            is_strict: Some(true),
        }));
    }
    parts
}

fn read_block(block: &Value) -> PromptPart<'static> {
    let (kind, value) = block.as_object().expect("a block").iter().next().expect("one member");
    match kind.as_str() {
        "text" => PromptPart::Content(text(owned(value))),
        "image" => PromptPart::Content(ContentPart::Image(MediaPart {
            source: Source::Inline {
                media_type: format!("image/{}", value["format"].as_str().expect("a format")).into(),
                data: owned(&value["source"]["bytes"]),
            },
            name: None,
            detail: None,
            cache: None,
        })),
        "toolUse" => PromptPart::ToolCall(ToolCall {
            id: owned(&value["toolUseId"]),
            name: owned(&value["name"]),
            input: value["input"].to_string().into(),
            is_free: false,
            seal: None,
            cache: None,
        }),
        "toolResult" => PromptPart::ToolResult(ToolResult {
            id: owned(&value["toolUseId"]),
            content: value["content"]
                .as_array()
                .expect("content")
                .iter()
                .map(|one| text(owned(&one["text"])))
                .collect(),
            is_error: value["status"] == "error",
            cache: None,
        }),
        other => panic!("a block of {other}"),
    }
}

proptest! {
    #[test]
    fn requests_are_read_as_they_were_written(parts in any_request()) {
        let parts = with_inline_pictures(parts);
        let read_back = read(&write(&parts));
        prop_assert_eq!(conversation_contents(&read_back), conversation_contents(&parts));
        prop_assert_eq!(settings(&read_back), settings(&parts));
    }

    #[test]
    fn another_turn_changes_nothing_before_it(parts in any_request(), more in any_exchange()) {
        let parts = with_inline_pictures(parts);
        let longer: Vec<_> =
            parts.iter().cloned().chain(with_inline_pictures(more)).chain(user_at_end()).collect();
        let [short, long] = [&parts, &longer].map(|parts| write(parts));
        let turns = |body: &Value| -> Vec<String> {
            body["messages"].as_array().expect("turns").iter().map(Value::to_string).collect()
        };
        let shared = turns(&short).len() - 1;
        prop_assert_eq!(&turns(&long)[..shared], &turns(&short)[..shared]);
        // Tools that were called are declared where none are offered.
        if parts.iter().any(|part| matches!(part, PromptPart::Tool(_))) {
            prop_assert_eq!(&long["toolConfig"], &short["toolConfig"]);
        }
    }

    #[test]
    fn answers_carry_all_contents(answer in any_answer()) {
        let document = document(&answer).to_string();
        let read = Converse.read_answer(document.as_bytes()).expect("an answer");
        prop_assert_eq!(answer_contents(read), answer_contents(answer.clone()));
        let read = read_stream(&events(&answer)).expect("events");
        prop_assert!(matches!(read.first(), Some(AnswerPart::Begin { .. })), "{:?}", read);
        prop_assert!(matches!(read.last(), Some(AnswerPart::End(_))), "{:?}", read);
        prop_assert_eq!(answer_contents(read), answer_contents(answer));
    }

    #[test]
    fn a_stream_that_is_cut_has_no_end(answer in any_answer(), percent in 0..100_usize) {
        let events = events(&answer);
        // Behind `messageStop` only the usage is missing.
        let kept = (events.len() * percent / 100).min(events.len() - 2);
        let read = read_stream(&events[..kept]).expect("events");
        prop_assert!(!read.iter().any(|piece| matches!(piece, AnswerPart::End(_))), "{:?}", read);
    }

    #[test]
    fn nothing_makes_it_panic(text in "[\\[\\]{}\":,a-zA-Z0-9\\\\ ]{0,80}", place in 0..6_usize) {
        let names = ["messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop",
            "messageStop", "metadata"];
        let mut event = Vec::new();
        Converse::stream_event("event", names[place], text.as_bytes(), &mut event);
        drop(Converse.stream_reader().read(&event, &mut |_| {}));
        drop(Converse.stream_reader().read(text.as_bytes(), &mut |_| {}));
        drop(Converse.read_answer(text.as_bytes()));
        drop(Converse.read_failure(400, text.as_bytes()));
        drop(Converse.read_failure_by_name(400, &text, text.as_bytes()));
    }
}

/// The parts of an answer as contents: pieces of one block joined.
fn contents(answer: &[AnswerPart<'_>]) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    for piece in answer {
        match piece {
            AnswerPart::Text(more) => {
                match all.last_mut().filter(|last| last["text"].is_string()) {
                    Some(last) => {
                        last["text"] =
                            json!(format!("{}{more}", last["text"].as_str().expect("text")));
                    }
                    None => all.push(json!({"text": more})),
                }
            }
            AnswerPart::ToolCall { id, name, .. } => {
                all.push(json!({"toolUse": {"toolUseId": id, "name": name, "input": ""}}));
            }
            AnswerPart::Input(more) => {
                let input = &mut all.last_mut().expect("a call")["toolUse"]["input"];
                *input = json!(format!("{}{more}", input.as_str().expect("text")));
            }
            _ => {}
        }
    }
    all
}

fn stop_reason(answer: &[AnswerPart<'_>]) -> &'static str {
    let is_waiting = answer.iter().any(|piece| matches!(piece, AnswerPart::Stop(Stop::Tools)));
    if is_waiting { "tool_use" } else { "end_turn" }
}

fn document(answer: &[AnswerPart<'_>]) -> Value {
    let mut all = contents(answer);
    for block in &mut all {
        if let Some(input) = block["toolUse"]["input"].as_str() {
            block["toolUse"]["input"] = serde_json::from_str(input).expect("JSON");
        }
    }
    json!({"output": {"message": {"role": "assistant", "content": all}},
        "stopReason": stop_reason(answer), "metrics": {"latencyMs": 1},
        "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}})
}

/// The events of a stream, each with two letters of a text or an input in each delta.
fn events(answer: &[AnswerPart<'_>]) -> Vec<(&'static str, Value)> {
    let mut all = vec![("messageStart", json!({"role": "assistant", "p": "abcd"}))];
    for (index, block) in contents(answer).iter().enumerate() {
        let call = &block["toolUse"];
        let whole = call["input"].as_str().or_else(|| block["text"].as_str()).expect("a text");
        if call.is_object() {
            let start = json!({"toolUse": {"toolUseId": call["toolUseId"], "name": call["name"]}});
            let start = json!({"start": start, "contentBlockIndex": index});
            all.push(("contentBlockStart", start));
        }
        let letters: Vec<char> = whole.chars().collect();
        for piece in letters.chunks(2) {
            let piece: String = piece.iter().collect();
            let delta = match call.is_object() {
                true => json!({"toolUse": {"input": piece}}),
                false => json!({"text": piece}),
            };
            let delta = json!({"delta": delta, "contentBlockIndex": index, "p": "a"});
            all.push(("contentBlockDelta", delta));
        }
        all.push(("contentBlockStop", json!({"contentBlockIndex": index})));
    }
    all.push(("messageStop", json!({"stopReason": stop_reason(answer)})));
    let usage = json!({"inputTokens": 1, "outputTokens": 1, "totalTokens": 2});
    all.push(("metadata", json!({"usage": usage, "metrics": {"latencyMs": 1}})));
    all
}

fn read_stream(events: &[(&str, Value)]) -> Result<Vec<AnswerPart<'static>>, String> {
    let mut reader = Converse.stream_reader();
    let mut read = Vec::new();
    for (name, payload) in events {
        let mut data = Vec::new();
        let payload = serde_json::to_string_pretty(payload).expect("JSON");
        Converse::stream_event("event", name, payload.as_bytes(), &mut data);
        assert!(!data.contains(&b'\n'), "one line");
        let keep = &mut |piece: AnswerPart<'_>| read.push(piece.into_owned());
        reader.read(&data, keep).map_err(|error| error.to_string())?;
    }
    reader.finish(&mut |piece| read.push(piece.into_owned()));
    Ok(read)
}

#[test]
fn thoughts_come_back_to_their_maker_and_go_to_nobody_else() {
    let answer = json!({"output": {"message": {"role": "assistant", "content": [
        {"reasoningContent": {"reasoningText": {"text": "I see.", "signature": "c2ln"}}},
        {"reasoningContent": {"redactedContent": "cmVk"}},
        {"toolUse": {"toolUseId": "a", "name": "f", "input": {"x": 1}}}]}},
        "stopReason": "tool_use"})
    .to_string();
    let read = Converse.read_answer(answer.as_bytes()).expect("an answer");
    let streamed = read_stream(&[
        ("messageStart", json!({"role": "assistant"})),
        (
            "contentBlockDelta",
            json!({"contentBlockIndex": 0,
            "delta": {"reasoningContent": {"text": "I see."}}}),
        ),
        (
            "contentBlockDelta",
            json!({"contentBlockIndex": 0,
            "delta": {"reasoningContent": {"signature": "c2ln"}}}),
        ),
        ("contentBlockStop", json!({"contentBlockIndex": 0})),
        (
            "contentBlockDelta",
            json!({"contentBlockIndex": 1,
            "delta": {"reasoningContent": {"redactedContent": "cmVk"}}}),
        ),
        ("contentBlockStop", json!({"contentBlockIndex": 1})),
        (
            "contentBlockStart",
            json!({"contentBlockIndex": 2,
            "start": {"toolUse": {"toolUseId": "a", "name": "f"}}}),
        ),
        (
            "contentBlockDelta",
            json!({"contentBlockIndex": 2, "delta": {"toolUse": {"input": "{\"x\":1}"}}}),
        ),
        ("contentBlockStop", json!({"contentBlockIndex": 2})),
        ("messageStop", json!({"stopReason": "tool_use"})),
    ])
    .expect("events");
    assert_eq!(answer_contents(streamed), answer_contents(read.clone()));
    for (place, customer) in super::DIALECTS.into_iter().enumerate() {
        let document: Value =
            serde_json::from_slice(&customer.write_answer(&read, &super::frame())).expect("JSON");
        let request = super::sent_back(place, &document).to_string();
        let parts = customer.read_request(request.as_bytes()).expect("read").parts;
        let body = write(&parts).to_string();
        for expected in [
            r#"{"reasoningContent":{"reasoningText":{"signature":"c2ln","text":"I see."}}}"#,
            r#"{"reasoningContent":{"redactedContent":"cmVk"}}"#,
        ] {
            assert!(body.contains(expected), "{customer:?}: {request} {body}");
        }
        for other in super::DIALECTS {
            let body = String::from_utf8(super::write(other, &parts)).expect("text");
            assert!(!body.contains("I see") && !body.contains("cmVk"), "{other:?}: {body}");
        }
        // Nor do those of others go there.
        let seal = Some(seal::wrap(Maker::Messages, "other").into());
        let thought = PromptPart::Reasoning(Reasoning { text: "Hm.".into(), seal });
        let parts = [PromptPart::Turn(Speaker::Assistant), thought];
        assert!(!write(&parts).to_string().contains("Hm."));
    }
}

#[test]
fn what_it_has_no_words_for_is_refused_by_name() {
    let media = |source| MediaPart { source, name: None, detail: None, cache: None };
    let url = || Source::Url("https://example.com/a".into());
    let inline = |media_type: &'static str| Source::Inline {
        media_type: media_type.into(),
        data: "AAAA".into(),
    };
    let user = |content| vec![PromptPart::Turn(Speaker::User), PromptPart::Content(content)];
    let rows: Vec<(TranslationTarget, Vec<PromptPart<'_>>, &str)> = vec![
        (target(), user(ContentPart::Image(media(url()))), "messages.content: an image by URL"),
        (
            target(),
            user(ContentPart::Image(media(inline("image/tiff")))),
            "messages.content: an image of this type",
        ),
        (target(), user(ContentPart::File(media(url()))), "messages.content: a document by URL"),
        (
            target(),
            user(ContentPart::File(media(inline("application/zip")))),
            "messages.content: a document of this type",
        ),
        (target(), user(ContentPart::Audio(media(inline("audio/wav")))), "messages.content: audio"),
        (target(), vec![PromptPart::Format(AnswerFormat::Json)], "response_format"),
    ];
    for (target, parts, field) in rows {
        let refusal = Converse.write_request(&parts, &target, &mut Losses::default());
        assert_eq!(refusal.expect_err(field).field, field);
    }
}

#[test]
fn only_anthropics_models_get_additional_request_fields() {
    let parts = [
        PromptPart::Thinking(Thinking::Effort(Effort::Medium)),
        PromptPart::Sampling(Sampling::TopK(40)),
        PromptPart::Sampling(Sampling::TopP(0.5)),
        PromptPart::Sampling(Sampling::Seed(1)),
        PromptPart::OutputMax(4000),
        PromptPart::Stop(vec!["END".into()]),
        PromptPart::Tool(Tool {
            name: "f".into(),
            description: None,
            schema: None,
            is_strict: None,
            is_free: false,
            cache: Some(Cache::Long),
        }),
    ];
    let (body, losses) = write_for(&target(), &parts);
    assert_eq!(
        body["additionalModelRequestFields"],
        json!({"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}})
    );
    assert_eq!(body["inferenceConfig"], json!({"maxTokens": 4000, "stopSequences": ["END"]}));
    assert_eq!(losses.fields(), ["top_k", "top_p", "seed"], "beside thinking");
    assert_eq!(
        body["toolConfig"]["tools"][1],
        json!({"cachePoint": {"type": "default", "ttl": "1h"}})
    );
    let budget = TranslationTarget { thinking: ThinkingStyle::Budget, ..target() };
    let fields = write_for(&budget, &parts).0["additionalModelRequestFields"].clone();
    assert_eq!(fields["thinking"], json!({"type": "enabled", "budget_tokens": 2976}));
    let single: Vec<_> =
        parts.iter().skip(1).cloned().chain([PromptPart::ParallelTools(false)]).collect();
    let (body, _) = write_for(&target(), &single);
    let tool_choice = json!({"type": "auto", "disable_parallel_tool_use": true});
    let expected = json!({"top_k": 40, "tool_choice": tool_choice});
    assert_eq!(body["additionalModelRequestFields"], expected);
    assert_eq!(body["toolConfig"]["toolChoice"], Value::Null, "said in one place");
    let other = TranslationTarget { thinking: ThinkingStyle::None, ..target() };
    let (body, losses) = write_for(&other, &parts);
    assert_eq!(body["additionalModelRequestFields"], Value::Null, "{body}");
    assert_eq!(body["inferenceConfig"]["topP"], json!(0.5));
    assert_eq!(losses.fields(), ["reasoning_effort", "top_k", "seed", "cache_control"]);
    let strict = TranslationTarget { mode: Mode::Strict, ..other };
    let refusal = Converse.write_request(&parts, &strict, &mut Losses::default());
    assert_eq!(refusal.expect_err("strict").field, "reasoning_effort");
}

#[test]
fn documents_and_marks_stand_where_the_api_has_them() {
    let file = |source, cache| {
        ContentPart::File(MediaPart { source, name: Some("a_b.txt".into()), detail: None, cache })
    };
    let result = ToolResult {
        id: "call 1".into(),
        content: vec![file(Source::Plain("hé".into()), Some(Cache::Short))],
        is_error: true,
        cache: None,
    };
    let call = ToolCall {
        id: "call 1".into(),
        name: "f".into(),
        input: "{}".into(),
        is_free: false,
        seal: None,
        cache: None,
    };
    let parts = [
        PromptPart::Turn(Speaker::User),
        PromptPart::Content(text("Read it.")),
        PromptPart::ToolCall(call),
        PromptPart::Turn(Speaker::User),
        PromptPart::Content(file(Source::Plain("hé".into()), None)),
        PromptPart::ToolResult(result),
        PromptPart::Turn(Speaker::Assistant),
        PromptPart::Content(text("so")),
        PromptPart::Instruction(Text { text: "Be short.".into(), cache: None }),
    ];
    let body = write(&parts);
    let bytes = STANDARD.encode("hé");
    let document = |name: &str| json!({"document": {"format": "txt", "name": name, "source": {"bytes": bytes}}});
    let result = json!({"toolUseId": "call_1_5lyuen2w857f1", "status": "error",
        "content": [document("a-b-txt")]});
    assert_eq!(
        body["messages"].as_array().expect("messages")[2..],
        [
            json!({"role": "user", "content": [{"toolResult": result},
                {"cachePoint": {"type": "default"}}, document("a-b-txt [2]"),
                {"text": "(See the document.)"}]}),
            json!({"role": "assistant", "content": [{"text": "so"}]}),
            json!({"role": "user", "content": [{"text": "Be short."}]}),
        ]
    );
    let marked = TranslationTarget { caches: true, ..target() };
    let plain = [PromptPart::Turn(Speaker::User), PromptPart::Content(text("b"))];
    let body = write_for(&marked, &plain).0.to_string();
    assert_eq!(body.matches("cachePoint").count(), 1, "{body}");
}

#[test]
fn failures_are_classified_by_name_and_message() {
    use FailureKind::{Busy, Denied, Invalid, NotFound, TooLong, Upstream};
    for (status, name, body, kind) in [
        (400, Some("ValidationException"), r#"{"message":"bad"}"#, Invalid),
        (400, None, r#"{"message":"Input is too long for requested model."}"#, TooLong),
        (
            400,
            Some("ValidationException:http://x/"),
            r#"{"message":"too many input tokens"}"#,
            TooLong,
        ),
        (400, Some("ServiceQuotaExceededException"), r#"{"message":"m"}"#, Busy),
        (400, None, r#"{"__type":"com.amazon.coral#ThrottlingException","Message":"m"}"#, Busy),
        (403, Some("AccessDeniedException"), r#"{"Message":"m"}"#, Denied),
        (403, None, "<html>", Denied),
        (404, Some("ResourceNotFoundException"), r#"{"message":"m"}"#, NotFound),
        (408, Some("ModelTimeoutException"), r#"{"message":"m"}"#, Upstream),
        (424, None, r#"{"message":"m"}"#, Upstream),
        (429, Some("ModelNotReadyException"), r#"{"message":"m"}"#, Busy),
        (500, None, "", Upstream),
    ] {
        let failure = match name {
            Some(name) => Converse.read_failure_by_name(status, name, body.as_bytes()),
            None => Converse.read_failure(status, body.as_bytes()),
        };
        assert_eq!(failure.kind, kind, "{status} {name:?} {body}");
        assert!(!failure.message.is_empty());
    }
}

#[test]
fn exceptions_end_a_stream_and_odd_events_are_not_read() {
    let read_one = |kind: &str, name: &str, payload: &str| {
        let mut data = Vec::new();
        Converse::stream_event(kind, name, payload.as_bytes(), &mut data);
        let mut read = Vec::new();
        let result =
            Converse.stream_reader().read(&data, &mut |piece| read.push(piece.into_owned()));
        result.map(|()| read)
    };
    for (name, payload, kind, message) in [
        ("throttlingException", r#"{"message":"slow down"}"#, FailureKind::Busy, "slow down"),
        (
            "modelStreamErrorException",
            r#"{"originalMessage":"it broke"}"#,
            FailureKind::Upstream,
            "it broke",
        ),
        ("validationException", r#"{"message":"bad"}"#, FailureKind::Invalid, "bad"),
        ("somethingNewException", "", FailureKind::Upstream, ""),
    ] {
        let read = read_one("exception", name, payload).expect("read");
        let [AnswerPart::Error(failure)] = &read[..] else { panic!("{name}: {read:?}") };
        assert_eq!(failure.kind, kind, "{name}");
        assert!(failure.message.contains(message) && !failure.message.is_empty(), "{failure:?}");
    }
    assert_eq!(read_one("event", "somethingNew", "{}").expect("ignored"), []);
    let lost = r#"{"contentBlockIndex":3,"delta":{"toolUse":{"input":"{"}}}"#;
    assert!(read_one("event", "contentBlockDelta", lost).is_err(), "never dropped");
    let new = r#"{"contentBlockIndex":0,"delta":{"somethingNew":{}}}"#;
    assert_eq!(read_one("event", "contentBlockDelta", new).expect("passed over"), []);
    let image = r#"{"contentBlockIndex":0,"delta":{"image":{}}}"#;
    assert!(read_one("event", "contentBlockDelta", image).is_err(), "never dropped");
}
