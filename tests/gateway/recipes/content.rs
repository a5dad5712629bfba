//! Reading an answer as customers of each protocol do, and continuing the conversation.

use serde_json::{Value, json};

use crate::harness::Answer;

/// A customer, by what it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Customer {
    Chat,
    Messages,
    Responses,
}

/// The content of an answer.
#[derive(Debug, Default)]
pub(super) struct AnswerContent {
    pub(super) text: String,
    pub(super) thoughts: String,
    /// The name, the input and the id of each call.
    pub(super) calls: Vec<(String, String, String)>,
    /// Input that no cache has read, input that one has, and output.
    pub(super) usage: [u64; 3],
    /// The message or items that a careful customer sends back.
    turn: Vec<Value>,
}

/// The body of an answer.
pub(super) fn body(answer: &Answer) -> Vec<u8> {
    let is_chunked = answer.header("transfer-encoding").is_some_and(|it| it == "chunked");
    if is_chunked { answer.content() } else { answer.body() }
}

/// The data of the events of a stream.
pub(super) fn events(answer: &Answer) -> Vec<Value> {
    let text = String::from_utf8(body(answer)).expect("text");
    let data = text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim);
    data.filter(|data| *data != "[DONE]")
        .map(|data| serde_json::from_str(data).unwrap_or_else(|_| panic!("no JSON: {data}")))
        .collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn push(to: &mut Value, key: &str, more: &Value) {
    let whole = format!("{}{}", text(&to[key]), text(more));
    if !text(more).is_empty() {
        to[key] = json!(whole);
    }
}

impl Customer {
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Messages => "/v1/messages",
            Self::Responses => "/v1/responses",
        }
    }

    /// A question, with a tool if it may be called.
    pub(super) fn ask(self, model: &str, stream: bool, has_tool: bool) -> Value {
        let hi = json!({"role": "user", "content": "How is the weather?"});
        let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        let (name, about) = ("weather", "Tells the weather.");
        let (mut body, tool) = match self {
            Self::Chat => (
                json!({"max_tokens": 500, "messages": [hi]}),
                json!({"type": "function", "function":
                    {"name": name, "description": about, "parameters": schema}}),
            ),
            Self::Messages => (
                json!({"max_tokens": 500, "messages": [hi]}),
                json!({"name": name, "description": about, "input_schema": schema}),
            ),
            Self::Responses => (
                json!({"max_output_tokens": 500, "input": [hi]}),
                json!({"type": "function", "name": name, "description": about,
                    "parameters": schema, "strict": false}),
            ),
        };
        body["model"] = json!(model);
        body["stream"] = json!(stream);
        if has_tool {
            body["tools"] = json!([tool]);
        }
        body
    }

    /// Goes on with what was said, and what came of its call.
    pub(super) fn go_on(self, body: &mut Value, message: &AnswerContent) {
        let (_, _, id) = &message.calls[0];
        let result = match self {
            Self::Chat => json!({"role": "tool", "tool_call_id": id, "content": "rain"}),
            Self::Messages => json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": id, "content": "rain"}]}),
            Self::Responses => {
                json!({"type": "function_call_output", "call_id": id, "output": "rain"})
            }
        };
        let turns = if self == Self::Responses { "input" } else { "messages" };
        let turns = body[turns].as_array_mut().expect("turns");
        turns.extend(message.turn.iter().cloned().chain([result]));
    }

    pub(super) fn read(self, answer: &Answer, stream: bool) -> AnswerContent {
        let document = || serde_json::from_slice(&body(answer)).expect("JSON");
        match (self, stream) {
            (Self::Chat, false) => chat(&document()),
            (Self::Chat, true) => chat(&chat_of_chunks(&events(answer))),
            (Self::Messages, false) => message(&document()),
            (Self::Messages, true) => message(&message_of_events(&events(answer))),
            (Self::Responses, false) => response(&document()),
            (Self::Responses, true) => {
                let last = events(answer).pop().expect("events");
                assert_eq!(last["type"], "response.completed", "{answer:?}");
                response(&last["response"])
            }
        }
    }
}

fn numbers(usage: &Value, of_input: &str, cached: &str, of_output: &str) -> [u64; 3] {
    let number = |path: &str| usage.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    [number(of_input), number(cached), number(of_output)]
}

/// Content of a chat completion; reasoning is wherever the provider puts it.
fn chat(document: &Value) -> AnswerContent {
    let message = &document["choices"][0]["message"];
    let mut messages = AnswerContent { turn: vec![message.clone()], ..AnswerContent::default() };
    messages.thoughts.push_str(text(&message["reasoning_content"]));
    messages.thoughts.push_str(text(&message["reasoning"]));
    messages.text.push_str(text(&message["content"]));
    for block in message["content"].as_array().into_iter().flatten() {
        messages.text.push_str(text(&block["text"]));
        messages.thoughts.push_str(text(&block["thinking"][0]["text"]));
    }
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let of = |key: &str| text(&call["function"][key]).to_owned();
        messages.calls.push((of("name"), of("arguments"), text(&call["id"]).to_owned()));
    }
    let [all, cached, output] = numbers(
        &document["usage"],
        "/prompt_tokens",
        "/prompt_tokens_details/cached_tokens",
        "/completion_tokens",
    );
    messages.usage = [all - cached, cached, output];
    messages
}

/// The chunks of a stream as one document. The blocks of a content stay apart.
fn chat_of_chunks(chunks: &[Value]) -> Value {
    let mut message = json!({"role": "assistant", "content": ""});
    let mut usage = Value::Null;
    for chunk in chunks {
        assert!(chunk["error"].is_null(), "{chunk}");
        if chunk["usage"].is_object() {
            usage = chunk["usage"].clone();
        }
        let delta = &chunk["choices"][0]["delta"];
        for key in ["content", "reasoning_content", "reasoning"] {
            push(&mut message, key, &delta[key]);
        }
        for block in delta["content"].as_array().into_iter().flatten() {
            push(&mut message, "reasoning_of_blocks", &block["thinking"][0]["text"]);
        }
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            if message["tool_calls"].is_null() {
                message["tool_calls"] = json!([call]);
            } else {
                let more = call["function"]["arguments"].clone();
                push(&mut message["tool_calls"][0]["function"], "arguments", &more);
            }
        }
    }
    let blocks = message.as_object_mut().expect("a message").remove("reasoning_of_blocks");
    if let Some(thoughts) = blocks {
        let text = message["content"].clone();
        message["content"] = json!([
            {"type": "thinking", "thinking": [{"type": "text", "text": thoughts}]},
            {"type": "text", "text": text}]);
    }
    json!({"choices": [{"message": message}], "usage": usage})
}

fn message(document: &Value) -> AnswerContent {
    let turn = json!({"role": "assistant", "content": document["content"]});
    let mut messages = AnswerContent { turn: vec![turn], ..AnswerContent::default() };
    for block in document["content"].as_array().expect("blocks") {
        match text(&block["type"]) {
            "text" => messages.text.push_str(text(&block["text"])),
            "thinking" => messages.thoughts.push_str(text(&block["thinking"])),
            "tool_use" => {
                let of = |key: &str| text(&block[key]).to_owned();
                messages.calls.push((of("name"), block["input"].to_string(), of("id")));
            }
            other => panic!("a block of type {other}: {document}"),
        }
    }
    messages.usage =
        numbers(&document["usage"], "/input_tokens", "/cache_read_input_tokens", "/output_tokens");
    messages
}

fn message_of_events(events: &[Value]) -> Value {
    let (mut blocks, mut usage) = (Vec::<Value>::new(), Value::Null);
    assert_eq!(events.last().expect("events")["type"], "message_stop", "{events:?}");
    for event in events {
        let delta = &event["delta"];
        match text(&event["type"]) {
            "content_block_start" => blocks.push(event["content_block"].clone()),
            "content_block_delta" => {
                let block = blocks.last_mut().expect("an open block");
                push(block, "text", &delta["text"]);
                push(block, "thinking", &delta["thinking"]);
                push(block, "signature", &delta["signature"]);
                if delta["type"] == "input_json_delta" {
                    let so_far =
                        if block["input"].is_object() { json!("") } else { block["input"].clone() };
                    block["input"] =
                        json!(format!("{}{}", text(&so_far), text(&delta["partial_json"])));
                }
            }
            "content_block_stop" => {
                let block = blocks.last_mut().expect("an open block");
                if let Some(input) = block["input"].as_str() {
                    block["input"] = serde_json::from_str(input).expect("JSON");
                }
            }
            "message_delta" => usage = event["usage"].clone(),
            _ => {}
        }
    }
    json!({"content": blocks, "usage": usage})
}

fn response(document: &Value) -> AnswerContent {
    assert_eq!(document["status"], "completed", "{document}");
    let mut text_found = AnswerContent::default();
    for item in document["output"].as_array().expect("items") {
        text_found.turn.push(item.clone());
        let parts = |key: &str| item[key].as_array().cloned().unwrap_or_default();
        match text(&item["type"]) {
            "message" => {
                parts("content")
                    .iter()
                    .for_each(|part| text_found.text.push_str(text(&part["text"])));
            }
            "reasoning" => {
                let all = parts("content").into_iter().chain(parts("summary"));
                all.for_each(|part| text_found.thoughts.push_str(text(&part["text"])));
            }
            "function_call" => {
                let of = |key: &str| text(&item[key]).to_owned();
                text_found.calls.push((of("name"), of("arguments"), of("call_id")));
            }
            other => panic!("an item of type {other}: {document}"),
        }
    }
    let [all, cached, output] = numbers(
        &document["usage"],
        "/input_tokens",
        "/input_tokens_details/cached_tokens",
        "/output_tokens",
    );
    text_found.usage = [all - cached, cached, output];
    text_found
}
