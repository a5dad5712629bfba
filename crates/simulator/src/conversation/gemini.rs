//! Google's Gemini API, with thoughts where the request includes them and signed calls.

use serde_json::{Value, json};

use super::{DeclaredTool, PastCall, TurnReply, elements, function, pieces, text_of};
use crate::answer::Answer;
use crate::behaviour::Behaviour;
use crate::script::{EventStream, StreamFormat};

/// The signature of all calls of a simulated model.
const SIGNATURE: &str = "c2lnbmF0dXJlIG9mIGEgc2ltdWxhdGVkIG1vZGVs";

pub(super) fn tools(body: &Value) -> Vec<DeclaredTool> {
    let declared =
        elements(&body["tools"]).flat_map(|tool| elements(&tool["functionDeclarations"]));
    declared.map(|tool| function(&tool["name"])).collect()
}

fn parts(body: &Value) -> impl Iterator<Item = &Value> {
    elements(&body["contents"]).flat_map(|content| elements(&content["parts"]))
}

/// Results are paired with calls by id where there are ids, and by order of the same name elsewhere.
pub(super) fn calls(body: &Value) -> Vec<PastCall> {
    let mut results: Vec<&Value> = parts(body)
        .map(|part| &part["functionResponse"])
        .filter(|response| response.is_object())
        .collect();
    let calls = parts(body).map(|part| &part["functionCall"]).filter(|call| call.is_object());
    calls
        .map(|call| {
            let belongs =
                |result: &&Value| result["name"] == call["name"] && result["id"] == call["id"];
            let found = results.iter().position(belongs);
            PastCall {
                id: text_of(&call["id"]),
                name: text_of(&call["name"]),
                input: call["args"].clone(),
                result: found.map(|at| results.remove(at).clone()).unwrap_or_default(),
            }
        })
        .collect()
}

pub(super) fn answer(reply: &TurnReply<'_>, behaviour: &Behaviour) -> Answer {
    if !reply.streams {
        let whole = document(reply, &content(reply, false), Some("STOP"));
        return Answer::json(whole.to_string(), behaviour);
    }
    let mut stream = EventStream::new(behaviour, StreamFormat::Google);
    for part in content(reply, true) {
        let event = stream.event(&document(reply, &[part], None).to_string());
        stream.send(&event);
    }
    let end = document(reply, &[json!({"text": ""})], Some("STOP"));
    let event = stream.event(&end.to_string());
    stream.send(&event);
    Answer::events(stream)
}

fn document(reply: &TurnReply<'_>, parts: &[Value], reason: Option<&str>) -> Value {
    let mut candidate = json!({"content": {"parts": parts, "role": "model"}, "index": 0});
    if let Some(reason) = reason {
        candidate["finishReason"] = json!(reason);
    }
    let usage = reply.turn.usage;
    json!({
        "candidates": [candidate],
        "modelVersion": model(reply),
        "responseId": reply.id("resp"),
        "usageMetadata": {
            "promptTokenCount": usage.input, "cachedContentTokenCount": usage.cached,
            "candidatesTokenCount": usage.output - usage.reasoning,
            "thoughtsTokenCount": usage.reasoning,
            "totalTokenCount": usage.input + usage.output,
        },
    })
}

fn model<'a>(reply: &'a TurnReply<'_>) -> &'a str {
    let segment = reply.request.path.rsplit('/').next().unwrap_or_default();
    segment.split(':').next().unwrap_or_default()
}

fn content(reply: &TurnReply<'_>, in_pieces: bool) -> Vec<Value> {
    let turn = &reply.turn;
    let config = &reply.request.body["generationConfig"]["thinkingConfig"];
    let mut content = Vec::new();
    let cut = |text: &str| -> Vec<String> {
        let all = if in_pieces { pieces(text).to_vec() } else { vec![text] };
        all.into_iter().filter(|piece| !piece.is_empty()).map(str::to_owned).collect()
    };
    if config["includeThoughts"] == true {
        content.extend(cut(&turn.thoughts).iter().map(|it| json!({"text": it, "thought": true})));
    }
    content.extend(cut(&turn.text).iter().map(|it| json!({"text": it})));
    for (place, call) in turn.calls.iter().enumerate() {
        let mut function = json!({"name": call.name, "args": call.input});
        // Since Gemini 3 calls have ids.
        if model(reply).starts_with("gemini-3") {
            function["id"] = json!(reply.call_id("fc", place));
        }
        let mut part = json!({"functionCall": function});
        // Only the first of parallel calls is signed (Gemini API, "Thought signatures").
        if place == 0 {
            part["thoughtSignature"] = json!(SIGNATURE);
        }
        content.push(part);
    }
    content
}
