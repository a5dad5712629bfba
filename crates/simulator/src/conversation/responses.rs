//! OpenAI's responses, with an encrypted reasoning item before the answer.

use serde_json::{Value, json};

use super::{DeclaredTool, PastCall, TurnReply, elements, parsed, pieces, text_of};
use crate::answer::Answer;
use crate::behaviour::Behaviour;
use crate::script::{EventStream, StreamFormat};

/// The encrypted content of all reasoning of a simulated model.
const ENCRYPTED: &str = "ZW5jcnlwdGVkIHJlYXNvbmluZyBvZiBhIHNpbXVsYXRlZCBtb2RlbA==";

/// Tools of the request and those that its input adds, with those inside namespaces.
pub(super) fn tools(body: &Value) -> Vec<DeclaredTool> {
    let added = elements(&body["input"]).filter(|item| item["type"] == "additional_tools");
    let all = elements(&body["tools"]).chain(added.flat_map(|item| elements(&item["tools"])));
    let inside = |tool: &Value| -> Vec<DeclaredTool> {
        if tool["type"] != "namespace" {
            return vec![offered("", tool)];
        }
        let namespace = text_of(&tool["name"]);
        elements(&tool["tools"]).map(|tool| offered(&namespace, tool)).collect()
    };
    all.flat_map(inside).collect()
}

fn offered(namespace: &str, tool: &Value) -> DeclaredTool {
    DeclaredTool {
        name: text_of(&tool["name"]),
        namespace: namespace.to_owned(),
        is_free: tool["type"] == "custom",
    }
}

pub(super) fn calls(body: &Value) -> Vec<PastCall> {
    let result = |id: &Value| {
        let mut outputs = elements(&body["input"]);
        let found = outputs.find(|item| {
            item["call_id"] == *id && text_of(&item["type"]).ends_with("_call_output")
        });
        found.map(|item| item["output"].clone()).unwrap_or_default()
    };
    let is_call =
        |item: &&Value| matches!(item["type"].as_str(), Some("function_call" | "custom_tool_call"));
    let calls = elements(&body["input"]).filter(is_call);
    calls
        .map(|call| PastCall {
            id: text_of(&call["call_id"]),
            name: text_of(&call["name"]),
            input: if call["arguments"].is_string() {
                parsed(&call["arguments"])
            } else {
                call["input"].clone()
            },
            result: result(&call["call_id"]),
        })
        .collect()
}

pub(super) fn answer(reply: &TurnReply<'_>, behaviour: &Behaviour) -> Answer {
    let items = items(reply);
    let mut whole = begun(reply);
    whole["status"] = json!("completed");
    whole["output"] = json!(items);
    whole["usage"] = usage(reply);
    if !reply.streams {
        return Answer::json(whole.to_string(), behaviour);
    }
    let mut stream = EventStream::new(behaviour, StreamFormat::Responses);
    let mut number = 0_u64;
    let mut send = |name: &str, mut data: Value| {
        data["type"] = json!(name);
        data["sequence_number"] = json!(number);
        number += 1;
        let event = stream.named_event(name, &data.to_string());
        stream.send(&event);
    };
    send("response.created", json!({"response": begun(reply)}));
    for (index, item) in items.iter().enumerate() {
        send("response.output_item.added", json!({"output_index": index, "item": opened(item)}));
        for (name, mut data) in inside(item) {
            data["output_index"] = json!(index);
            data["item_id"] = item["id"].clone();
            send(name, data);
        }
        send("response.output_item.done", json!({"output_index": index, "item": item}));
    }
    send("response.completed", json!({"response": whole}));
    Answer::events(stream)
}

fn begun(reply: &TurnReply<'_>) -> Value {
    json!({
        "id": reply.id("resp"), "object": "response", "created_at": 1_700_000_000,
        "status": "in_progress", "model": reply.model(), "output": [], "error": null,
        "incomplete_details": null, "parallel_tool_calls": true, "tool_choice": "auto",
        "tools": [], "usage": null,
    })
}

fn items(reply: &TurnReply<'_>) -> Vec<Value> {
    let (turn, body) = (&reply.turn, &reply.request.body);
    let mut items = Vec::new();
    if !turn.thoughts.is_empty() && body["reasoning"]["effort"] != "none" {
        let summary = json!({"type": "summary_text", "text": turn.thoughts});
        let shown = body["reasoning"]["summary"].is_string();
        let mut item = json!({"id": reply.id("rs"), "type": "reasoning", "summary": []});
        if shown {
            item["summary"] = json!([summary]);
        }
        if elements(&body["include"]).any(|it| it == "reasoning.encrypted_content") {
            item["encrypted_content"] = json!(ENCRYPTED);
        }
        items.push(item);
    }
    if !turn.text.is_empty() {
        let part = json!({"type": "output_text", "text": turn.text, "annotations": []});
        items.push(json!({
            "id": reply.id("msg"), "type": "message", "role": "assistant",
            "status": "completed", "content": [part],
        }));
    }
    items.extend(turn.calls.iter().enumerate().map(|(place, call)| {
        // Ids begin with the kind of their item, and come back with it.
        let (kind, mut item) = match call.input.as_str() {
            Some(input) => ("ctc", json!({"type": "custom_tool_call", "input": input})),
            None => ("fc", json!({"type": "function_call", "arguments": call.input.to_string()})),
        };
        let (id, call_id) = (reply.call_id(kind, place), reply.call_id("call", place));
        let tool = reply.request.tool(&call.name).filter(|tool| !tool.namespace.is_empty());
        if let Some(tool) = tool {
            item["namespace"] = json!(tool.namespace);
        }
        item["id"] = json!(id);
        item["call_id"] = json!(call_id);
        item["name"] = json!(call.name);
        item["status"] = json!("completed");
        item
    }));
    items
}

/// An item at its start.
fn opened(item: &Value) -> Value {
    let mut opened = item.clone();
    opened["status"] = json!("in_progress");
    for (field, empty) in [
        ("content", json!([])),
        ("summary", json!([])),
        ("arguments", json!("")),
        ("input", json!("")),
    ] {
        if !opened[field].is_null() {
            opened[field] = empty;
        }
    }
    opened
}

/// The events between an item's start and its end.
fn inside(item: &Value) -> Vec<(&'static str, Value)> {
    let pair = |delta: &'static str, done: &'static str, field: &str, text: &str, at: &Value| {
        let with = |field: &str, text: &str| {
            let mut data = at.clone();
            data[field] = json!(text);
            data
        };
        let mut all: Vec<_> = pieces(text).map(|piece| (delta, with("delta", piece))).into();
        all.push((done, with(field, text)));
        all
    };
    match item["type"].as_str() {
        Some("message") => {
            let at = json!({"content_index": 0});
            let part = |text: &str| {
                let part = json!({"type": "output_text", "text": text, "annotations": []});
                json!({"content_index": 0, "part": part})
            };
            let text = text_of(&item["content"][0]["text"]);
            let mut all = vec![("response.content_part.added", part(""))];
            let (delta, done) = ("response.output_text.delta", "response.output_text.done");
            all.extend(pair(delta, done, "text", &text, &at));
            all.push(("response.content_part.done", part(&text)));
            all
        }
        Some("reasoning") => {
            let Some(text) = item["summary"][0]["text"].as_str() else { return Vec::new() };
            let at = json!({"summary_index": 0});
            let part = |text: &str| json!({"summary_index": 0, "part": {"type": "summary_text", "text": text}});
            let mut all = vec![("response.reasoning_summary_part.added", part(""))];
            let delta = "response.reasoning_summary_text.delta";
            let done = "response.reasoning_summary_text.done";
            all.extend(pair(delta, done, "text", text, &at));
            all.push(("response.reasoning_summary_part.done", part(text)));
            all
        }
        Some("custom_tool_call") => {
            let delta = "response.custom_tool_call_input.delta";
            let done = "response.custom_tool_call_input.done";
            pair(delta, done, "input", &text_of(&item["input"]), &json!({}))
        }
        _ => {
            let delta = "response.function_call_arguments.delta";
            let done = "response.function_call_arguments.done";
            pair(delta, done, "arguments", &text_of(&item["arguments"]), &json!({}))
        }
    }
}

fn usage(reply: &TurnReply<'_>) -> Value {
    let usage = reply.turn.usage;
    json!({
        "input_tokens": usage.input, "output_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
    })
}
