//! How customers of each dialect ask, and what they read.

use serde_json::{Value, json};

use crate::harness::Answer;

/// The customer's dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Customer {
    Chat,
    Messages,
    Responses,
    Gemini,
}

/// The content of an answer.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) text: String,
    pub(super) calls: Vec<Called>,
    /// `done`, `tools`, or the dialect's own word.
    pub(super) stop: String,
    pub(super) usage: Used,
}

/// A call of a tool.
#[derive(Clone, Debug, Default)]
pub(super) struct Called {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) input: String,
    /// Signatures beside the reasoning, which are sent back with it.
    pub(super) sealed: Vec<Value>,
}

/// Usage in disjoint kinds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    pub(super) input: u64,
    pub(super) cache_read: u64,
    pub(super) output: u64,
}

impl Used {
    fn of(usage: &Value, customer: Customer) -> Self {
        let number = |path: &str| usage.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        match customer {
            Customer::Chat => Self {
                input: number("/prompt_tokens") - number("/prompt_tokens_details/cached_tokens"),
                cache_read: number("/prompt_tokens_details/cached_tokens"),
                output: number("/completion_tokens"),
            },
            Customer::Messages => Self {
                input: number("/input_tokens"),
                cache_read: number("/cache_read_input_tokens"),
                output: number("/output_tokens"),
            },
            Customer::Gemini => Self {
                input: number("/promptTokenCount") - number("/cachedContentTokenCount"),
                cache_read: number("/cachedContentTokenCount"),
                output: number("/candidatesTokenCount") + number("/thoughtsTokenCount"),
            },
            Customer::Responses => Self {
                input: number("/input_tokens") - number("/input_tokens_details/cached_tokens"),
                cache_read: number("/input_tokens_details/cached_tokens"),
                output: number("/output_tokens"),
            },
        }
    }
}

fn document(answer: &Answer) -> Value {
    let is_measured = answer.header("content-length").is_some();
    let text = if is_measured { answer.body() } else { answer.content() };
    serde_json::from_slice(&text).expect("JSON")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The events of a stream, in order: their names, where they have one, and their data.
fn events(answer: &Answer) -> Vec<(String, Value)> {
    let body = String::from_utf8(answer.content()).expect("text");
    let mut events = Vec::new();
    for block in body.split("\n\n").filter(|block| !block.trim().is_empty()) {
        let field = |name: &str| {
            block.lines().find_map(|line| line.strip_prefix(name)).map(str::trim).map(str::to_owned)
        };
        let Some(data) = field("data:") else { continue };
        if data == "[DONE]" {
            events.push((String::new(), json!("[DONE]")));
            continue;
        }
        let data = serde_json::from_str(&data).unwrap_or_else(|_| panic!("no JSON: {data}"));
        events.push((field("event:").unwrap_or_default(), data));
    }
    events
}

impl Customer {
    /// Where a request is asked for, and its body as it is sent. Google's clients say in the path what
    /// others say in the body.
    pub(super) fn request(self, body: &Value) -> (String, String) {
        let path = match self {
            Self::Chat => "/v1/chat/completions",
            Self::Messages => "/v1/messages",
            Self::Responses => "/v1/responses",
            Self::Gemini => {
                let model = body["model"].as_str().expect("a model");
                let method = match body["stream"] == true {
                    true => "streamGenerateContent?alt=sse",
                    false => "generateContent",
                };
                let mut body = body.clone();
                let members = body.as_object_mut().expect("an object");
                members.remove("model");
                members.remove("stream");
                return (format!("/v1beta/models/{model}:{method}"), body.to_string());
            }
        };
        (path.to_owned(), body.to_string())
    }

    /// A request with instructions and a text.
    pub(super) fn body(self, model: &str, stream: bool) -> Value {
        let hi = json!({"role": "user", "content": "Say hello."});
        let mut body = match self {
            Self::Chat => json!({"max_tokens": 500, "messages": [
                {"role": "system", "content": "Be short."}, hi]}),
            Self::Messages => {
                json!({"max_tokens": 500, "system": "Be short.", "messages": [hi]})
            }
            Self::Responses => {
                json!({"max_output_tokens": 500, "instructions": "Be short.", "input": [hi]})
            }
            Self::Gemini => json!({"generationConfig": {"maxOutputTokens": 500},
                "systemInstruction": {"parts": [{"text": "Be short."}]},
                "contents": [{"role": "user", "parts": [{"text": "Say hello."}]}]}),
        };
        body["model"] = json!(model);
        body["stream"] = json!(stream);
        if self == Self::Chat && stream {
            body["stream_options"] = json!({"include_usage": true});
        }
        body
    }

    fn turns(self) -> &'static str {
        match self {
            Self::Responses => "input",
            Self::Gemini => "contents",
            Self::Chat | Self::Messages => "messages",
        }
    }

    fn push(self, body: &mut Value, turn: Value) {
        body[self.turns()].as_array_mut().expect("turns").push(turn);
    }

    pub(super) fn add_tool(self, body: &mut Value) {
        let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        let (name, about) = ("weather", "Tells the weather.");
        body["tools"] = match self {
            Self::Chat => json!([{"type": "function", "function":
                {"name": name, "description": about, "parameters": schema}}]),
            Self::Messages => json!([{"name": name, "description": about, "input_schema": schema}]),
            Self::Responses => json!([{"type": "function", "name": name, "description": about,
                "parameters": schema, "strict": false}]),
            Self::Gemini => {
                let schema = json!({"type": "OBJECT", "properties": {"city": {"type": "STRING"}}});
                json!([{"functionDeclarations":
                    [{"name": name, "description": about, "parameters": schema}]}])
            }
        };
    }

    /// The call, and what came of it.
    pub(super) fn add_result(self, body: &mut Value, called: &Called) {
        let Called { id, name, input, sealed } = called;
        match self {
            Self::Chat => {
                let mut call = json!({"id": id, "type": "function",
                    "function": {"name": name, "arguments": input}});
                if let [extra] = &sealed[..] {
                    call["extra_content"] = extra.clone();
                }
                self.push(
                    body,
                    json!({"role": "assistant", "content": null, "tool_calls": [call]}),
                );
                self.push(body, json!({"role": "tool", "tool_call_id": id, "content": "rain"}));
            }
            Self::Messages => {
                let input: Value = serde_json::from_str(input).expect("JSON");
                let call = json!({"type": "tool_use", "id": id, "name": name, "input": input});
                let blocks: Vec<&Value> = sealed.iter().chain([&call]).collect();
                self.push(body, json!({"role": "assistant", "content": blocks}));
                let result = json!({"type": "tool_result", "tool_use_id": id, "content": "rain"});
                self.push(body, json!({"role": "user", "content": [result]}));
            }
            Self::Responses => {
                sealed.iter().for_each(|item| self.push(body, item.clone()));
                let call = json!({"type": "function_call", "call_id": id, "name": name,
                    "arguments": input});
                self.push(body, call);
                let output =
                    json!({"type": "function_call_output", "call_id": id, "output": "rain"});
                self.push(body, output);
            }
            // Neither needs an id there.
            Self::Gemini => {
                let args: Value = serde_json::from_str(input).expect("JSON");
                let call = json!({"functionCall": {"name": name, "args": args}});
                self.push(body, json!({"role": "model", "parts": [call]}));
                let response = json!({"name": name, "response": {"result": "rain"}});
                let result = json!({"functionResponse": response});
                self.push(body, json!({"role": "user", "parts": [result]}));
            }
        }
    }

    /// Appends the answer and another question.
    pub(super) fn add_turn(self, body: &mut Value, text: &str) {
        if self == Self::Gemini {
            self.push(body, json!({"role": "model", "parts": [{"text": text}]}));
            self.push(body, json!({"role": "user", "parts": [{"text": "And tomorrow?"}]}));
            return;
        }
        self.push(body, json!({"role": "assistant", "content": text}));
        self.push(body, json!({"role": "user", "content": "And tomorrow?"}));
    }

    /// Content of the answer, after a check of its shape.
    pub(super) fn read(self, answer: &Answer, stream: bool) -> Read {
        match (self, stream) {
            (Self::Chat, false) => chat(&document(answer)),
            (Self::Chat, true) => chat_stream(answer),
            (Self::Messages, false) => message(&document(answer)),
            (Self::Messages, true) => message_stream(answer),
            (Self::Responses, false) => response(&document(answer)),
            (Self::Responses, true) => response_stream(answer),
            (Self::Gemini, false) => content(&[document(answer)]),
            (Self::Gemini, true) => {
                content(&events(answer).into_iter().map(|(_, data)| data).collect::<Vec<_>>())
            }
        }
    }

    pub(super) fn check_error(self, error: &Value, what: &str) {
        assert!(error["error"]["message"].is_string(), "{what}");
        let is_googles = error["error"]["status"].is_string() && error["error"]["code"].is_u64();
        assert_eq!(is_googles, self == Self::Gemini, "{what}");
        let kind = if self == Self::Messages { "error" } else { "" };
        assert_eq!(error["type"].as_str().unwrap_or_default(), kind, "{what}");
    }

    /// A stream that ends in an error, and in nothing that could be taken for its end.
    pub(super) fn check_broken(self, answer: &Answer, what: &str) {
        let events = events(answer);
        let (name, last) = events.last().expect("events");
        match self {
            Self::Chat => assert!(last["error"]["message"].is_string(), "{what}"),
            Self::Gemini => {
                assert!(last["error"]["status"].is_string(), "{what}");
                let ends = |event: &Value| event["candidates"][0]["finishReason"].is_string();
                assert!(!events.iter().any(|(_, event)| ends(event)), "{what}");
            }
            Self::Messages => {
                assert_eq!((name.as_str(), &last["type"]), ("error", &json!("error")), "{what}");
            }
            Self::Responses => {
                assert_eq!(last["type"], "response.failed", "{what}");
                assert_eq!(last["response"]["status"], "failed", "{what}");
            }
        }
        let ends = ["message_stop", "response.completed"];
        assert!(!events.iter().any(|(name, _)| ends.contains(&name.as_str())), "{what}");
    }
}

/// The signature at a call of chat completions.
fn sealed_at(call: &Value) -> Vec<Value> {
    Some(&call["extra_content"]).filter(|extra| extra.is_object()).cloned().into_iter().collect()
}

fn stop(word: &str) -> String {
    match word {
        "stop" | "end_turn" | "completed" | "STOP" => "done".to_owned(),
        "tool_calls" | "tool_use" => "tools".to_owned(),
        other => other.to_owned(),
    }
}

fn chat(answer: &Value) -> Read {
    assert_eq!(answer["object"], "chat.completion", "{answer}");
    let choice = &answer["choices"][0];
    let calls = choice["message"]["tool_calls"].as_array().cloned().unwrap_or_default();
    Read {
        text: text(&choice["message"]["content"]),
        calls: calls
            .iter()
            .map(|call| Called {
                id: text(&call["id"]),
                name: text(&call["function"]["name"]),
                input: text(&call["function"]["arguments"]),
                sealed: sealed_at(call),
            })
            .collect(),
        stop: stop(choice["finish_reason"].as_str().unwrap_or_default()),
        usage: Used::of(&answer["usage"], Customer::Chat),
    }
}

fn chat_stream(answer: &Answer) -> Read {
    let events = events(answer);
    assert_eq!(events.last().expect("events").1, json!("[DONE]"), "{answer:?}");
    let mut read = Read::default();
    for (_, chunk) in &events[..events.len() - 1] {
        assert_eq!(chunk["object"], "chat.completion.chunk", "{chunk}");
        if chunk["usage"].is_object() {
            read.usage = Used::of(&chunk["usage"], Customer::Chat);
        }
        let choice = &chunk["choices"][0];
        read.text.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            let index = usize::try_from(call["index"].as_u64().expect("an index")).expect("few");
            if index == read.calls.len() {
                let (id, name) = (text(&call["id"]), text(&call["function"]["name"]));
                let sealed = sealed_at(call);
                read.calls.push(Called { id, name, input: String::new(), sealed });
            }
            let more = call["function"]["arguments"].as_str().unwrap_or_default();
            read.calls[index].input.push_str(more);
        }
        if let Some(word) = choice["finish_reason"].as_str() {
            read.stop = stop(word);
        }
    }
    read
}

fn message(answer: &Value) -> Read {
    assert_eq!((&answer["type"], &answer["role"]), (&json!("message"), &json!("assistant")));
    let mut read = Read {
        stop: stop(answer["stop_reason"].as_str().unwrap_or_default()),
        usage: Used::of(&answer["usage"], Customer::Messages),
        ..Read::default()
    };
    let mut sealed = Vec::new();
    for block in answer["content"].as_array().expect("blocks") {
        match block["type"].as_str() {
            Some("redacted_thinking") => sealed.push(block.clone()),
            Some("text") => read.text.push_str(block["text"].as_str().expect("text")),
            Some("tool_use") => read.calls.push(Called {
                id: text(&block["id"]),
                name: text(&block["name"]),
                input: block["input"].to_string(),
                sealed: std::mem::take(&mut sealed),
            }),
            other => panic!("a block of type {other:?}: {answer}"),
        }
    }
    read
}

fn message_stream(answer: &Answer) -> Read {
    let (mut read, mut sealed) = (Read::default(), Vec::new());
    let mut open = None;
    let events = events(answer);
    assert_eq!(events.first().expect("events").0, "message_start", "{answer:?}");
    assert_eq!(events.last().expect("events").0, "message_stop", "{answer:?}");
    let mut next = 0;
    for (name, event) in &events {
        assert_eq!(event["type"], name.as_str(), "{event}");
        match name.as_str() {
            "content_block_start" => {
                assert_eq!((open, &event["index"]), (None, &json!(next)), "{answer:?}");
                open = Some(next);
                let block = &event["content_block"];
                if block["type"] == "redacted_thinking" {
                    sealed.push(block.clone());
                }
                if block["type"] == "tool_use" {
                    let (id, name) = (text(&block["id"]), text(&block["name"]));
                    let sealed = std::mem::take(&mut sealed);
                    read.calls.push(Called { id, name, input: String::new(), sealed });
                }
            }
            "content_block_delta" => {
                assert_eq!(event["index"], json!(open.expect("an open block")), "{answer:?}");
                let delta = &event["delta"];
                match delta["type"].as_str().expect("a type") {
                    "text_delta" => read.text.push_str(delta["text"].as_str().expect("text")),
                    "input_json_delta" => {
                        let more = delta["partial_json"].as_str().expect("text");
                        read.calls.last_mut().expect("a call").input.push_str(more);
                    }
                    other => panic!("a delta of type {other}: {answer:?}"),
                }
            }
            "content_block_stop" => {
                assert_eq!(event["index"], json!(open.take().expect("an open block")));
                next += 1;
            }
            "message_delta" => {
                assert_eq!(open, None, "{answer:?}");
                read.stop = stop(event["delta"]["stop_reason"].as_str().expect("a reason"));
                read.usage = Used::of(&event["usage"], Customer::Messages);
            }
            _ => {}
        }
    }
    read
}

fn response(answer: &Value) -> Read {
    assert_eq!(answer["object"], "response", "{answer}");
    let mut read = Read {
        stop: stop(answer["status"].as_str().unwrap_or_default()),
        usage: Used::of(&answer["usage"], Customer::Responses),
        ..Read::default()
    };
    let mut sealed = Vec::new();
    for item in answer["output"].as_array().expect("items") {
        match item["type"].as_str() {
            Some("reasoning") => sealed.push(item.clone()),
            Some("message") => {
                for part in item["content"].as_array().expect("parts") {
                    read.text.push_str(part["text"].as_str().expect("text"));
                }
            }
            Some("function_call") => read.calls.push(Called {
                id: text(&item["call_id"]),
                name: text(&item["name"]),
                input: text(&item["arguments"]),
                sealed: std::mem::take(&mut sealed),
            }),
            other => panic!("an item of type {other:?}: {answer}"),
        }
    }
    if !read.calls.is_empty() && read.stop == "done" {
        read.stop = "tools".to_owned();
    }
    read
}

fn response_stream(answer: &Answer) -> Read {
    let events = events(answer);
    let mut deltas = String::new();
    for (place, (name, event)) in events.iter().enumerate() {
        assert_eq!(event["type"], name.as_str(), "{event}");
        assert_eq!(event["sequence_number"], json!(place), "{answer:?}");
        if name == "response.output_text.delta" {
            deltas.push_str(event["delta"].as_str().expect("text"));
        }
    }
    assert_eq!(events.first().expect("events").0, "response.created", "{answer:?}");
    let (name, last) = events.last().expect("events");
    assert_eq!(name, "response.completed", "{answer:?}");
    let read = response(&last["response"]);
    assert_eq!(read.text, deltas, "{answer:?}");
    read
}

/// Content from Google's clients' side: of a document, or of the chunks of a stream.
fn content(chunks: &[Value]) -> Read {
    let mut read = Read::default();
    for (place, chunk) in chunks.iter().enumerate() {
        assert!(chunk["responseId"].is_string() && chunk["modelVersion"].is_string(), "{chunk}");
        let candidate = &chunk["candidates"][0];
        assert_eq!(candidate["content"]["role"], "model", "{chunk}");
        for part in candidate["content"]["parts"].as_array().expect("parts") {
            if part["functionCall"].is_object() {
                let call = &part["functionCall"];
                read.calls.push(Called {
                    id: text(&call["id"]),
                    name: text(&call["name"]),
                    input: call["args"].to_string(),
                    sealed: Vec::new(),
                });
            } else if part["thought"] != true {
                read.text.push_str(part["text"].as_str().expect("text"));
            }
        }
        let is_last = place + 1 == chunks.len();
        assert_eq!(candidate["finishReason"].is_string(), is_last, "{chunk}");
    }
    let last = chunks.last().expect("a chunk");
    read.stop = stop(last["candidates"][0]["finishReason"].as_str().unwrap_or_default());
    read.usage = Used::of(&last["usageMetadata"], Customer::Gemini);
    if !read.calls.is_empty() && read.stop == "done" {
        read.stop = "tools".to_owned();
    }
    read
}
