//! Amazon Bedrock's Converse, with signed reasoning where the request turns it on.

use serde_json::{Value, json};

use super::{DeclaredTool, PastCall, TurnReply, elements, function, pieces, text_of};
use crate::answer::Answer;
use crate::behaviour::Behaviour;
use crate::event_frames;
use crate::script::{EventStream, StreamFormat};

const EVENT_STREAM: &str = "application/vnd.amazon.eventstream";
/// The signature of all reasoning of a simulated model.
const SIGNATURE: &str = "c2lnbmF0dXJlIG9mIGEgc2ltdWxhdGVkIG1vZGVs";

pub(super) fn tools(body: &Value) -> Vec<DeclaredTool> {
    let specs = elements(&body["toolConfig"]["tools"]).filter(|tool| tool["toolSpec"].is_object());
    specs.map(|tool| function(&tool["toolSpec"]["name"])).collect()
}

fn blocks(body: &Value) -> impl Iterator<Item = &Value> {
    elements(&body["messages"]).flat_map(|message| elements(&message["content"]))
}

pub(super) fn calls(body: &Value) -> Vec<PastCall> {
    let result = |id: &Value| {
        let found = blocks(body).find(|block| block["toolResult"]["toolUseId"] == *id);
        found.map(|block| block["toolResult"].clone()).unwrap_or_default()
    };
    let calls = blocks(body).map(|block| &block["toolUse"]).filter(|call| call.is_object());
    calls
        .map(|call| PastCall {
            id: text_of(&call["toolUseId"]),
            name: text_of(&call["name"]),
            input: call["input"].clone(),
            result: result(&call["toolUseId"]),
        })
        .collect()
}

pub(super) fn answer(reply: &TurnReply<'_>, behaviour: &Behaviour) -> Answer {
    let content = content(reply);
    if !reply.streams {
        let message = json!({"role": "assistant", "content": content});
        let whole = json!({
            "metrics": {"latencyMs": 1}, "output": {"message": message},
            "stopReason": stop_reason(reply), "usage": usage(reply),
        });
        return Answer::json(whole.to_string(), behaviour);
    }
    let mut stream = EventStream::new(behaviour, StreamFormat::Bedrock);
    let mut send = |name: &str, payload: Value| {
        stream.send(&event_frames::event(name, &payload.to_string()));
    };
    send("messageStart", json!({"role": "assistant"}));
    for (index, block) in content.iter().enumerate() {
        if let Some(call) = block["toolUse"].as_object() {
            let start = json!({"toolUse": {"toolUseId": call["toolUseId"], "name": call["name"]}});
            send("contentBlockStart", json!({"contentBlockIndex": index, "start": start}));
        }
        for delta in deltas(block) {
            send("contentBlockDelta", json!({"contentBlockIndex": index, "delta": delta}));
        }
        send("contentBlockStop", json!({"contentBlockIndex": index}));
    }
    send("messageStop", json!({"stopReason": stop_reason(reply)}));
    send("metadata", json!({"metrics": {"latencyMs": 1}, "usage": usage(reply)}));
    Answer { content_type: EVENT_STREAM, ..Answer::events(stream) }
}

fn content(reply: &TurnReply<'_>) -> Vec<Value> {
    let turn = &reply.turn;
    let thinking = reply.request.body["additionalModelRequestFields"]["thinking"]["type"].as_str();
    let mut content = Vec::new();
    if !turn.thoughts.is_empty() && matches!(thinking, Some("enabled" | "adaptive")) {
        let text = json!({"text": turn.thoughts, "signature": SIGNATURE});
        content.push(json!({"reasoningContent": {"reasoningText": text}}));
    }
    if !turn.text.is_empty() {
        content.push(json!({"text": turn.text}));
    }
    let calls = turn.calls.iter().enumerate();
    content.extend(calls.map(|(place, call)| {
        let id = reply.call_id("tooluse", place);
        json!({"toolUse": {"toolUseId": id, "name": call.name, "input": call.input}})
    }));
    content
}

fn deltas(block: &Value) -> Vec<Value> {
    if let Some(text) = block["text"].as_str() {
        return pieces(text).map(|piece| json!({"text": piece})).into();
    }
    if block["toolUse"].is_object() {
        let input = block["toolUse"]["input"].to_string();
        return pieces(&input).map(|piece| json!({"toolUse": {"input": piece}})).into();
    }
    let text = text_of(&block["reasoningContent"]["reasoningText"]["text"]);
    let mut all = pieces(&text).map(|piece| json!({"reasoningContent": {"text": piece}})).to_vec();
    all.push(json!({"reasoningContent": {"signature": SIGNATURE}}));
    all
}

fn stop_reason(reply: &TurnReply<'_>) -> &'static str {
    if reply.turn.calls.is_empty() { "end_turn" } else { "tool_use" }
}

fn usage(reply: &TurnReply<'_>) -> Value {
    let usage = reply.turn.usage;
    json!({
        "inputTokens": usage.input - usage.cached, "outputTokens": usage.output,
        "totalTokens": usage.input + usage.output,
        "cacheReadInputTokens": usage.cached, "cacheWriteInputTokens": 0,
    })
}
