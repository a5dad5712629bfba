//! Anthropic's messages, with signed thinking where the request turns it on.

use serde_json::{Value, json};

use super::{DeclaredTool, PastCall, TurnReply, elements, function, pieces, text_of};
use crate::answer::Answer;
use crate::behaviour::Behaviour;
use crate::script::{EventStream, StreamFormat};

/// The signature of all thinking of a simulated model.
const SIGNATURE: &str = "c2lnbmF0dXJlIG9mIGEgc2ltdWxhdGVkIG1vZGVs";

pub(super) fn tools(body: &Value) -> Vec<DeclaredTool> {
    elements(&body["tools"]).map(|tool| function(&tool["name"])).collect()
}

fn blocks(body: &Value) -> impl Iterator<Item = &Value> {
    elements(&body["messages"]).flat_map(|message| elements(&message["content"]))
}

pub(super) fn calls(body: &Value) -> Vec<PastCall> {
    let result = |id: &Value| {
        let found = blocks(body).find(|block| block["tool_use_id"] == *id);
        found.cloned().unwrap_or_default()
    };
    let calls = blocks(body).filter(|block| block["type"] == "tool_use");
    calls
        .map(|call| PastCall {
            id: text_of(&call["id"]),
            name: text_of(&call["name"]),
            input: call["input"].clone(),
            result: result(&call["id"]),
        })
        .collect()
}

pub(super) fn answer(reply: &TurnReply<'_>, behaviour: &Behaviour) -> Answer {
    if !reply.streams {
        let mut message = opened(reply);
        message["content"] = json!(content(reply));
        message["stop_reason"] = json!(stop_reason(reply));
        message["usage"] = usage(reply, reply.turn.usage.output);
        return Answer::json(message.to_string(), behaviour);
    }
    let mut stream = EventStream::new(behaviour, StreamFormat::Anthropic);
    let mut send = |name: &str, mut data: Value| {
        data["type"] = json!(name);
        let event = stream.named_event(name, &data.to_string());
        stream.send(&event);
    };
    let mut start = opened(reply);
    start["usage"] = usage(reply, 1);
    send("message_start", json!({"message": start}));
    send("ping", json!({}));
    for (index, block) in content(reply).iter().enumerate() {
        send("content_block_start", json!({"index": index, "content_block": begun(block)}));
        for delta in deltas(block) {
            send("content_block_delta", json!({"index": index, "delta": delta}));
        }
        send("content_block_stop", json!({"index": index}));
    }
    let delta = json!({"stop_reason": stop_reason(reply), "stop_sequence": null});
    let usage = json!({"output_tokens": reply.turn.usage.output});
    send("message_delta", json!({"delta": delta, "usage": usage}));
    send("message_stop", json!({}));
    Answer::events(stream)
}

fn opened(reply: &TurnReply<'_>) -> Value {
    json!({
        "id": reply.id("msg"), "type": "message", "role": "assistant", "model": reply.model(),
        "content": [], "stop_reason": null, "stop_sequence": null,
    })
}

fn content(reply: &TurnReply<'_>) -> Vec<Value> {
    let turn = &reply.turn;
    let thinking = reply.request.body["thinking"]["type"].as_str();
    let mut content = Vec::new();
    if !turn.thoughts.is_empty() && matches!(thinking, Some("enabled" | "adaptive")) {
        content
            .push(json!({"type": "thinking", "thinking": turn.thoughts, "signature": SIGNATURE}));
    }
    if !turn.text.is_empty() {
        content.push(json!({"type": "text", "text": turn.text}));
    }
    let calls = turn.calls.iter().enumerate();
    content.extend(calls.map(|(place, call)| {
        let id = reply.call_id("toolu", place);
        json!({"type": "tool_use", "id": id, "name": call.name, "input": call.input})
    }));
    content
}

/// A block at its start, before its deltas.
fn begun(block: &Value) -> Value {
    let mut begun = block.clone();
    match block["type"].as_str() {
        Some("thinking") => {
            begun["thinking"] = json!("");
            begun["signature"] = json!("");
        }
        Some("text") => begun["text"] = json!(""),
        _ => begun["input"] = json!({}),
    }
    begun
}

fn deltas(block: &Value) -> Vec<Value> {
    let of = |kind: &str, field: &str, text: &str| -> Vec<Value> {
        pieces(text).map(|piece| json!({"type": kind, field: piece})).into()
    };
    match block["type"].as_str() {
        Some("thinking") => {
            let mut all = of("thinking_delta", "thinking", &text_of(&block["thinking"]));
            all.push(json!({"type": "signature_delta", "signature": block["signature"]}));
            all
        }
        Some("text") => of("text_delta", "text", &text_of(&block["text"])),
        _ => of("input_json_delta", "partial_json", &block["input"].to_string()),
    }
}

fn stop_reason(reply: &TurnReply<'_>) -> &'static str {
    if reply.turn.calls.is_empty() { "end_turn" } else { "tool_use" }
}

fn usage(reply: &TurnReply<'_>, output: u64) -> Value {
    let usage = reply.turn.usage;
    json!({
        "input_tokens": usage.input - usage.cached, "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached, "output_tokens": output,
    })
}
