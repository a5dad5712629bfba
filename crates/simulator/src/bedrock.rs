//! Amazon Bedrock's Converse API, whole and streamed.
//!
//! The shapes are those of the Amazon Bedrock API Reference, "Converse" and "ConverseStream".

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{Answer, ErrorFormat};
use super::behaviour::{Behaviour, SimulatedRefusal, UsageForm};
use super::event_frames;
use super::received_request::ReceivedRequest;
use super::reply::Reply;
use super::script::{EventStream, StreamFormat};
use super::usage::CachedUsage;

/// Approximate bytes of a prompt per token.
const BYTES_PER_TOKEN: usize = 4;
/// Content type of streams.
const EVENT_STREAM: &str = "application/vnd.amazon.eventstream";

/// The parts of a request that shape the answer. What the API does not know at the top level it refuses.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConverseRequest {
    messages: Vec<ConverseMessage>,
    #[serde(default)]
    inference_config: InferenceConfig,
    #[serde(default)]
    tool_config: Option<ToolConfig>,
    #[serde(default)]
    output_config: Value,
    #[serde(default, rename = "system")]
    _system: Value,
    #[serde(default, rename = "additionalModelRequestFields")]
    _additional: Value,
}

#[derive(Deserialize)]
struct ConverseMessage {
    role: String,
    content: Vec<Value>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct InferenceConfig {
    max_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct ToolConfig {
    tools: Vec<Value>,
}

impl ConverseRequest {
    /// Validation error of a conversation, in the API's words.
    fn fault(&self) -> Option<&'static str> {
        let roles: Vec<&str> = self.messages.iter().map(|message| &*message.role).collect();
        if roles.first() != Some(&"user") {
            return Some("A conversation must start with a user message.");
        }
        // Checked without `strict` as well: no model behind this API takes another order.
        if roles.windows(2).any(|pair| pair.first() == pair.last()) {
            return Some("Messages must alternate between user and assistant roles.");
        }
        let mut blocks = self.messages.iter().flat_map(|message| &message.content);
        let has_calls = blocks.any(|block| block["toolUse"].is_object());
        (has_calls && self.tool_config.is_none())
            .then_some("The toolConfig field must be defined when using toolUse content blocks.")
    }

    /// Tool that the answer calls: the first declared one, until the conversation has its result.
    fn tool(&self) -> Option<&Value> {
        let last = self.messages.last()?;
        let has_result = last.content.iter().any(|block| block["toolResult"].is_object());
        let first = self.tool_config.as_ref()?.tools.first()?;
        Some(&first["toolSpec"]).filter(|_| !has_result)
    }

    fn reply(&self, behaviour: &Behaviour) -> Reply {
        let tokens_max = self.inference_config.max_tokens;
        let tokens_max = tokens_max.filter(|_| !behaviour.ignores_max_tokens).unwrap_or(u64::MAX);
        if let Some(tool) = self.tool() {
            let name = tool["name"].as_str().unwrap_or_default();
            return Reply::tool_call(name, &tool["inputSchema"]["json"], tokens_max);
        }
        let schema = &self.output_config["textFormat"]["structure"]["jsonSchema"]["schema"];
        match schema.as_str().and_then(|schema| serde_json::from_str::<Value>(schema).ok()) {
            Some(schema) => Reply::structured(&schema, tokens_max),
            None => Reply::words(behaviour, tokens_max),
        }
    }
}

/// Answers a request: `…/model/{id}/converse`, or `…/converse-stream` for a stream.
pub(super) fn answer(
    http_request: &ReceivedRequest<'_>,
    streams: bool,
    behaviour: &Behaviour,
) -> Answer {
    let invalid = |message: &str| {
        Answer::refused(ErrorFormat::Bedrock, StatusCode::BAD_REQUEST, message, behaviour)
    };
    let request = match serde_json::from_slice::<ConverseRequest>(http_request.body) {
        Ok(request) => request,
        Err(error) => return invalid(&format!("The body: {error}.")),
    };
    if let Some(fault) = request.fault() {
        return invalid(fault);
    }
    if behaviour.faults.refusal == Some(SimulatedRefusal::Garbage) {
        let content_type = if streams { EVENT_STREAM } else { "application/json" };
        return Answer { content_type, ..Answer::garbage(streams) };
    }
    let reply = request.reply(behaviour);
    let input = 1 + (http_request.body.len() / BYTES_PER_TOKEN) as u64;
    let usage = CachedUsage::reported(input, &reply, behaviour);
    let response = ConverseResponse { number: http_request.number, reply, usage };
    if streams {
        response.streamed(behaviour)
    } else {
        Answer::json(response.whole().to_string(), behaviour)
    }
}

struct ConverseResponse {
    number: u64,
    reply: Reply,
    usage: Option<CachedUsage>,
}

impl ConverseResponse {
    fn whole(&self) -> Value {
        let text = self.reply.pieces.concat();
        let block = match &self.reply.tool {
            Some(name) => {
                let input: Value = serde_json::from_str(&text).unwrap_or_default();
                json!({"toolUse": {"toolUseId": self.tool_id(), "name": name, "input": input}})
            }
            None => json!({"text": text}),
        };
        let mut answer = json!({
            "metrics": {"latencyMs": 1},
            "output": {"message": {"role": "assistant", "content": [block]}},
            "stopReason": self.reply.stop_reason(),
        });
        if let Some(usage) = self.usage {
            answer["usage"] = usage_json(usage);
        }
        answer
    }

    fn streamed(&self, behaviour: &Behaviour) -> Answer {
        let form = behaviour.faults.usage;
        let mut stream = EventStream::new(behaviour, StreamFormat::Bedrock);
        send(&mut stream, "messageStart", json!({"role": "assistant"}));
        if let Some(name) = &self.reply.tool {
            let start = json!({"toolUse": {"toolUseId": self.tool_id(), "name": name}});
            let start = json!({"contentBlockIndex": 0, "start": start});
            send(&mut stream, "contentBlockStart", start);
        }
        for (at, piece) in self.reply.pieces.iter().enumerate() {
            if at == self.reply.pieces.len() / 2 && form == UsageForm::Early {
                self.send_usage(&mut stream, CachedUsage::tenfold);
            }
            let delta = match &self.reply.tool {
                Some(_) => json!({"toolUse": {"input": piece}}),
                None => json!({"text": piece}),
            };
            // Amazon pads its events with a member `p`, so that their lengths do not tell their
            // texts.
            let delta = json!({"contentBlockIndex": 0, "delta": delta, "p": "abcdefgh"});
            let mut frame = event_frames::event("contentBlockDelta", &delta.to_string());
            // Not the first piece: the gateway shall find the damage behind something that it has
            // delivered.
            if at == 1 && behaviour.faults.checksum {
                frame = event_frames::with_wrong_checksum(&frame);
            }
            stream.send_chunk(&frame);
        }
        send(&mut stream, "contentBlockStop", json!({"contentBlockIndex": 0}));
        send(&mut stream, "messageStop", json!({"stopReason": self.reply.stop_reason()}));
        // Usage comes behind the end of the message, where a meter must still wait for it.
        self.send_usage(&mut stream, |usage| usage);
        if matches!(form, UsageForm::Twice | UsageForm::Late) {
            self.send_usage(&mut stream, CachedUsage::tenfold);
        }
        Answer { content_type: EVENT_STREAM, ..Answer::events(stream) }
    }

    fn send_usage(&self, stream: &mut EventStream<'_>, forge: impl Fn(CachedUsage) -> CachedUsage) {
        if let Some(usage) = self.usage {
            let usage = usage_json(forge(usage));
            send(stream, "metadata", json!({"metrics": {"latencyMs": 1}, "usage": usage}));
        }
    }

    fn tool_id(&self) -> String {
        format!("tooluse_sim_{}", self.number)
    }
}

fn send(stream: &mut EventStream<'_>, name: &str, payload: Value) {
    stream.send(&event_frames::event(name, &payload.to_string()));
}

/// The usage as an answer reports it.
fn usage_json(usage: CachedUsage) -> Value {
    let CachedUsage { input, cache_read, output } = usage;
    json!({
        "inputTokens": input,
        "outputTokens": output,
        "totalTokens": input.saturating_add(output),
        "cacheReadInputTokens": cache_read,
        "cacheWriteInputTokens": 0,
    })
}
