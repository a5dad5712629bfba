//! Responses, whole and streamed.
//!
//! The shapes are those of OpenAI's API reference, "Responses" and its streaming events.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::sim::answer::Answer;
use crate::sim::asked::Asked;
use crate::sim::behaviour::{Behaviour, Refusal, UsageForm};
use crate::sim::reply::Reply;
use crate::sim::script::{EventStream, Protocol};

/// How many bytes of a prompt make a token, about.
const BYTES_PER_TOKEN: usize = 4;

/// The parts of a request that shape the answer.
#[derive(Deserialize)]
struct Request {
    model: String,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    max_output_tokens: Option<u64>,
}

/// Answers `…/responses`.
pub(in crate::sim) fn answer(asked: &Asked<'_>, behaviour: &Behaviour) -> Answer {
    let request = match serde_json::from_slice::<Request>(asked.body) {
        Ok(request) => request,
        Err(error) => return Answer::invalid(&format!("The body: {error}."), behaviour),
    };
    let is_stream = request.stream == Some(true);
    if behaviour.faults.refusal == Some(Refusal::Garbage) {
        return Answer::garbage(is_stream);
    }
    let tokens_max = request.max_output_tokens.filter(|_| !behaviour.ignores_max_tokens);
    let reply = Reply::words(behaviour, tokens_max.unwrap_or(u64::MAX));
    let response = Response {
        number: asked.number,
        model: request.model,
        usage: usage(asked.body.len(), &reply, behaviour),
        reply,
    };
    if is_stream {
        response.streamed(behaviour)
    } else {
        Answer::json(response.whole().to_string(), behaviour)
    }
}

struct Response {
    number: u64,
    model: String,
    reply: Reply,
    usage: Value,
}

impl Response {
    fn whole(&self) -> Value {
        let is_capped = self.reply.finish_reason == "length";
        let mut response = self.begun();
        response["status"] = json!(if is_capped { "incomplete" } else { "completed" });
        response["incomplete_details"] =
            if is_capped { json!({"reason": "max_output_tokens"}) } else { Value::Null };
        response["output"] = json!([self.message(&self.reply.pieces.concat(), "completed")]);
        response["usage"] = self.usage.clone();
        response
    }

    fn streamed(&self, behaviour: &Behaviour) -> Answer {
        let mut stream = EventStream::new(behaviour, Protocol::Responses);
        let mut number = 0_u64;
        let mut event = |stream: &EventStream<'_>, name: &str, mut data: Value| {
            data["type"] = json!(name);
            data["sequence_number"] = json!(number);
            number += 1;
            stream.named_event(name, &data.to_string())
        };
        let (item, text) = (self.item_id(), self.reply.pieces.concat());
        let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
        let at = || json!({"item_id": item, "output_index": 0, "content_index": 0});
        let with = |mut data: Value, field: &str, value: Value| {
            data[field] = value;
            data
        };
        let added = json!({"output_index": 0, "item": self.message("", "in_progress")});
        for (name, data) in [
            ("response.created", json!({"response": self.begun()})),
            ("response.in_progress", json!({"response": self.begun()})),
            ("response.output_item.added", added),
            ("response.content_part.added", with(at(), "part", part(""))),
        ] {
            let event = event(&stream, name, data);
            stream.send(&event);
        }
        for piece in &self.reply.pieces {
            let data = with(with(at(), "delta", json!(piece)), "logprobs", json!([]));
            let event = event(&stream, "response.output_text.delta", data);
            stream.send_chunk(&event);
        }
        let whole = self.whole();
        let done = json!({"output_index": 0, "item": whole["output"][0]});
        let last = match whole["status"].as_str() {
            Some("incomplete") => "response.incomplete",
            _ => "response.completed",
        };
        for (name, data) in [
            ("response.output_text.done", with(at(), "text", json!(text))),
            ("response.content_part.done", with(at(), "part", part(&text))),
            ("response.output_item.done", done),
            (last, json!({"response": whole})),
        ] {
            let event = event(&stream, name, data);
            stream.send(&event);
        }
        Answer::events(stream)
    }

    fn begun(&self) -> Value {
        json!({
            "id": format!("resp_sim_{}", self.number),
            "object": "response",
            "created_at": 1_700_000_000,
            "status": "in_progress",
            "model": self.model,
            "output": [],
            "error": null,
            "incomplete_details": null,
            "instructions": null,
            "metadata": {},
            "parallel_tool_calls": true,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "usage": null,
        })
    }

    fn message(&self, text: &str, status: &str) -> Value {
        let part = json!({"type": "output_text", "text": text, "annotations": []});
        let content = if text.is_empty() { json!([]) } else { json!([part]) };
        json!({
            "id": self.item_id(),
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        })
    }

    fn item_id(&self) -> String {
        format!("msg_sim_{}", self.number)
    }
}

/// The usage that is reported: what the request and the answer suggest, unless `behaviour` says
/// otherwise.
fn usage(body_bytes: usize, reply: &Reply, behaviour: &Behaviour) -> Value {
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let told = behaviour.usage;
    let (input, cached, output) = match behaviour.faults.usage {
        UsageForm::Missing => return Value::Null,
        UsageForm::Negative => (-100, -50, -200),
        UsageForm::Huge => (i64::MAX, 0, i64::MAX),
        UsageForm::Honest
        | UsageForm::Text
        | UsageForm::Twice
        | UsageForm::Early
        | UsageForm::Late => (
            told.prompt.unwrap_or(number(1 + (body_bytes / BYTES_PER_TOKEN) as u64)),
            told.cached.unwrap_or(0),
            told.completion.unwrap_or(number(reply.tokens)),
        ),
    };
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": told.reasoning.unwrap_or(0)},
        "total_tokens": input.saturating_add(output),
    })
}
