//! Anthropic's protocol: messages, whole and streamed.
//!
//! The shapes are those of Anthropic's API reference, "Messages" and "Streaming Messages".

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{Answer, ErrorFormat};
use super::behaviour::{Behaviour, DoneMarker, SimulatedRefusal};
use super::prompt::{self, CountDialect};
use super::received_request::ReceivedRequest;
use super::reply::Reply;
use super::script::{EventStream, StreamFormat};
use super::usage::CachedUsage;

/// The parts of a request that shape the answer.
#[derive(Deserialize)]
struct MessagesRequest {
    model: String,
    messages: Vec<Value>,
    max_tokens: u64,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    tools: Vec<Value>,
}

impl MessagesRequest {
    /// Tool that the answer calls: the first declared one, until the conversation has its result.
    fn tool(&self) -> Option<&Value> {
        let last = self.messages.last().map(|message| &message["content"]);
        let has_result = last
            .and_then(Value::as_array)
            .is_some_and(|blocks| blocks.iter().any(|block| block["type"] == "tool_result"));
        self.tools.first().filter(|_| !has_result)
    }
}

/// Answers a request to count tokens: `…/messages/count_tokens`.
pub(super) fn token_count(http_request: &ReceivedRequest<'_>, behaviour: &Behaviour) -> Answer {
    prompt::count(CountDialect::Anthropic, http_request.body, behaviour)
}

/// Answers a request for a message: `…/messages`.
pub(super) fn message(http_request: &ReceivedRequest<'_>, behaviour: &Behaviour) -> Answer {
    let request = match serde_json::from_slice::<MessagesRequest>(http_request.body) {
        Ok(request) => request,
        Err(error) => {
            let message = format!("The body: {error}.");
            let status = StatusCode::BAD_REQUEST;
            return Answer::refused(ErrorFormat::Anthropic, status, &message, behaviour);
        }
    };
    if behaviour.faults.refusal == Some(SimulatedRefusal::Garbage) {
        return Answer::garbage(request.stream);
    }
    let tokens_max = if behaviour.ignores_max_tokens { u64::MAX } else { request.max_tokens };
    let reply = match request.tool() {
        Some(tool) => {
            let name = tool["name"].as_str().unwrap_or_default();
            Reply::tool_call(name, &tool["input_schema"], tokens_max)
        }
        None => Reply::words(behaviour, tokens_max),
    };
    let message = MessagesResponse {
        number: http_request.number,
        usage: CachedUsage::reported(prompt::tokens(http_request.body), &reply, behaviour),
        model: request.model,
        reply,
    };
    if request.stream {
        message.streamed(behaviour)
    } else {
        Answer::json(message.whole().to_string(), behaviour)
    }
}

struct MessagesResponse {
    number: u64,
    model: String,
    reply: Reply,
    usage: Option<CachedUsage>,
}

impl MessagesResponse {
    fn whole(&self) -> Value {
        let text = self.reply.pieces.concat();
        let block = match &self.reply.tool {
            Some(name) => {
                let input: Value = serde_json::from_str(&text).unwrap_or_default();
                json!({"type": "tool_use", "id": self.tool_id(), "name": name, "input": input})
            }
            None => json!({"type": "text", "text": text}),
        };
        let mut message = self.opened();
        message["content"] = json!([block]);
        message["stop_reason"] = json!(self.reply.stop_reason());
        if let Some(usage) = self.usage {
            message["usage"] = usage_json(usage);
        }
        message
    }

    fn streamed(&self, behaviour: &Behaviour) -> Answer {
        let mut stream = EventStream::new(behaviour, StreamFormat::Anthropic);
        let mut start = self.opened();
        if let Some(usage) = self.usage {
            // The first report knows the input only. Anthropic counts an output token there already.
            start["usage"] = usage_json(CachedUsage { output: 1, ..usage });
        }
        let block = match &self.reply.tool {
            Some(name) => {
                json!({"type": "tool_use", "id": self.tool_id(), "name": name, "input": {}})
            }
            None => json!({"type": "text", "text": ""}),
        };
        send(&mut stream, "message_start", json!({"message": start}));
        send(&mut stream, "content_block_start", json!({"index": 0, "content_block": block}));
        // Anthropic sends pings anywhere in a stream; the first comes right here.
        send(&mut stream, "ping", json!({}));
        for piece in &self.reply.pieces {
            let delta = match &self.reply.tool {
                Some(_) => json!({"type": "input_json_delta", "partial_json": piece}),
                None => json!({"type": "text_delta", "text": piece}),
            };
            let event = event(&stream, "content_block_delta", json!({"index": 0, "delta": delta}));
            stream.send_chunk(&event);
        }
        send(&mut stream, "content_block_stop", json!({"index": 0}));
        let mut end =
            json!({"delta": {"stop_reason": self.reply.stop_reason(), "stop_sequence": null}});
        if let Some(usage) = self.usage {
            // The last report leaves out what has not changed since the first.
            end["usage"] = json!({"output_tokens": usage.output});
        }
        send(&mut stream, "message_delta", end);
        let stops = match behaviour.faults.done {
            DoneMarker::Once => 1,
            DoneMarker::Twice => 2,
            DoneMarker::Missing => 0,
        };
        (0..stops).for_each(|_| send(&mut stream, "message_stop", json!({})));
        Answer::events(stream)
    }

    fn opened(&self) -> Value {
        json!({
            "id": format!("msg_sim_{}", self.number),
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": null,
            "stop_sequence": null,
        })
    }

    fn tool_id(&self) -> String {
        format!("toolu_sim_{}", self.number)
    }
}

fn send(stream: &mut EventStream<'_>, name: &str, data: Value) {
    let event = event(stream, name, data);
    stream.send(&event);
}

fn event(stream: &EventStream<'_>, name: &str, mut data: Value) -> bytes::Bytes {
    data["type"] = json!(name);
    stream.named_event(name, &data.to_string())
}

/// The usage as a message reports it.
fn usage_json(usage: CachedUsage) -> Value {
    json!({
        "input_tokens": usage.input,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
    })
}
