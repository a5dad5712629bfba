//! Chat completions with reasoning beside the content, as `DeepSeek` and vLLM report it.

use serde_json::{Value, json};

use super::{DeclaredTool, PastCall, TurnReply, elements, parsed, pieces, text_of};
use crate::answer::Answer;
use crate::behaviour::Behaviour;
use crate::conversation;
use crate::script::{EventStream, StreamFormat};

pub(super) fn tools(body: &Value) -> Vec<DeclaredTool> {
    let offered = |tool: &Value| match tool["type"].as_str() {
        Some("custom") => {
            DeclaredTool { is_free: true, ..conversation::function(&tool["custom"]["name"]) }
        }
        _ => conversation::function(&tool["function"]["name"]),
    };
    elements(&body["tools"]).map(offered).collect()
}

pub(super) fn calls(body: &Value) -> Vec<PastCall> {
    let result = |id: &Value| {
        let mut all = elements(&body["messages"]);
        let found = all.find(|message| message["tool_call_id"] == *id);
        found.map_or(Value::Null, |message| message["content"].clone())
    };
    let calls = elements(&body["messages"]).flat_map(|message| elements(&message["tool_calls"]));
    calls
        .map(|call| PastCall {
            id: text_of(&call["id"]),
            name: text_of(&call["function"]["name"]),
            input: parsed(&call["function"]["arguments"]),
            result: result(&call["id"]),
        })
        .collect()
}

pub(super) fn answer(reply: &TurnReply<'_>, behaviour: &Behaviour) -> Answer {
    if !reply.streams {
        return Answer::json(whole(reply).to_string(), behaviour);
    }
    let mut stream = EventStream::new(behaviour, StreamFormat::Openai);
    let mut send = |choices: Value, usage: Value| {
        let mut chunk = object(reply, "chat.completion.chunk", &choices);
        chunk["usage"] = usage;
        let event = stream.event(&chunk.to_string());
        stream.send(&event);
    };
    let delta = |delta: Value| json!([{"index": 0, "delta": delta, "finish_reason": null}]);
    let turn = &reply.turn;
    send(delta(json!({"role": "assistant", "content": ""})), Value::Null);
    for (field, text) in [("reasoning_content", &turn.thoughts), ("content", &turn.text)] {
        for piece in pieces(text).into_iter().filter(|piece| !piece.is_empty()) {
            send(delta(json!({field: piece})), Value::Null);
        }
    }
    for place in 0..turn.calls.len() {
        let mut call = call(reply, place);
        call["index"] = json!(place);
        let arguments = text_of(&call["function"]["arguments"]);
        call["function"]["arguments"] = json!("");
        send(delta(json!({"tool_calls": [call]})), Value::Null);
        for piece in pieces(&arguments) {
            let call = json!({"index": place, "function": {"arguments": piece}});
            send(delta(json!({"tool_calls": [call]})), Value::Null);
        }
    }
    let end = json!([{"index": 0, "delta": {}, "finish_reason": finish_reason(reply)}]);
    send(end, Value::Null);
    if reply.request.body["stream_options"]["include_usage"] == true {
        send(json!([]), usage(reply));
    }
    let done = stream.event("[DONE]");
    stream.send(&done);
    Answer::events(stream)
}

fn whole(reply: &TurnReply<'_>) -> Value {
    let turn = &reply.turn;
    let mut message = json!({"role": "assistant", "content": turn.text});
    if !turn.thoughts.is_empty() {
        message["reasoning_content"] = json!(turn.thoughts);
    }
    if !turn.calls.is_empty() {
        message["tool_calls"] = (0..turn.calls.len()).map(|place| call(reply, place)).collect();
    }
    let choice = json!({"index": 0, "message": message, "finish_reason": finish_reason(reply)});
    let mut object = object(reply, "chat.completion", &json!([choice]));
    object["usage"] = usage(reply);
    object
}

fn object(reply: &TurnReply<'_>, object: &str, choices: &Value) -> Value {
    json!({
        "id": reply.id("chatcmpl"), "object": object, "created": 1_700_000_000,
        "model": reply.model(), "choices": choices,
    })
}

fn call(reply: &TurnReply<'_>, place: usize) -> Value {
    let call = &reply.turn.calls[place];
    let function = json!({"name": call.name, "arguments": call.input.to_string()});
    json!({"id": reply.call_id("call", place), "type": "function", "function": function})
}

fn finish_reason(reply: &TurnReply<'_>) -> &'static str {
    if reply.turn.calls.is_empty() { "stop" } else { "tool_calls" }
}

fn usage(reply: &TurnReply<'_>) -> Value {
    let usage = reply.turn.usage;
    json!({
        "prompt_tokens": usage.input, "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    })
}
