//! Responses, whole and streamed.
//!
//! The shapes are those of OpenAI's API reference, "Responses" and its streaming events.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::behaviour::{Behaviour, SimulatedRefusal};
use crate::prompt::{self, CountDialect};
use crate::received_request::ReceivedRequest;
use crate::reply::Reply;
use crate::script::{EventStream, StreamFormat};
use crate::usage::CachedUsage;

use super::stored::ResponseStore;

/// The parts of a request that shape the answer.
#[derive(Deserialize)]
struct ResponsesRequest {
    model: String,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    max_output_tokens: Option<u64>,
    #[serde(default)]
    input: Value,
    #[serde(default)]
    tools: Vec<Value>,
    #[serde(default)]
    tool_choice: Value,
    #[serde(default)]
    text: Value,
    #[serde(default)]
    store: Option<bool>,
}

impl ResponsesRequest {
    /// Function that the answer calls: the first declared one, until the conversation has its result.
    fn tool(&self) -> Option<&Value> {
        let is_result = |item: &Value| item["type"] == "function_call_output";
        let has_result =
            self.input.as_array().and_then(|items| items.last()).is_some_and(is_result);
        let mut functions = self.tools.iter().filter(|tool| tool["type"] == "function");
        match (self.tool_choice.as_str(), &self.tool_choice["name"]) {
            (Some("none"), _) => None,
            (Some("required"), _) => functions.next(),
            (_, Value::String(name)) => functions.find(|tool| tool["name"] == *name),
            // Else it would call for ever, and no agent's session would end.
            _ if has_result => None,
            _ => functions.next(),
        }
    }

    fn reply(&self, behaviour: &Behaviour) -> Reply {
        let tokens_max = self.max_output_tokens.filter(|_| !behaviour.ignores_max_tokens);
        let tokens_max = tokens_max.unwrap_or(u64::MAX);
        if let Some(tool) = self.tool() {
            let name = tool["name"].as_str().unwrap_or_default();
            return Reply::tool_call(name, &tool["parameters"], tokens_max);
        }
        match self.text["format"]["type"].as_str() {
            Some("json_schema") => Reply::structured(&self.text["format"]["schema"], tokens_max),
            _ => Reply::words(behaviour, tokens_max),
        }
    }
}

/// Answers a request for a response: `…/responses`.
pub(crate) fn answer(
    http_request: &ReceivedRequest<'_>,
    behaviour: &Behaviour,
    store: &ResponseStore,
) -> Answer {
    let request = match serde_json::from_slice::<ResponsesRequest>(http_request.body) {
        Ok(request) => request,
        Err(error) => return Answer::invalid(&format!("The body: {error}."), behaviour),
    };
    let is_stream = request.stream == Some(true);
    if behaviour.faults.refusal == Some(SimulatedRefusal::Garbage) {
        return Answer::garbage(is_stream);
    }
    let reply = request.reply(behaviour);
    let response = Response {
        number: http_request.number,
        model: request.model,
        usage: usage(http_request.body, &reply, behaviour),
        reply,
    };
    // Stored unless the request says otherwise: clients go on with `previous_response_id`.
    if request.store != Some(false) {
        store.keep(http_request, response.whole(), &request.input);
    }
    if is_stream {
        response.streamed(behaviour)
    } else {
        Answer::json(response.whole().to_string(), behaviour)
    }
}

/// Answers a request to count the tokens of a prompt: `…/responses/input_tokens`.
pub(crate) fn input_tokens(http_request: &ReceivedRequest<'_>, behaviour: &Behaviour) -> Answer {
    prompt::count(CountDialect::Openai, http_request.body, behaviour)
}

/// Answers a request to sum a conversation up: `…/responses/compact`.
pub(crate) fn compact(http_request: &ReceivedRequest<'_>, behaviour: &Behaviour) -> Answer {
    if behaviour.faults.refusal == Some(SimulatedRefusal::Garbage) {
        return Answer::garbage(false);
    }
    let number = http_request.number;
    let summary = json!({
        "type": "compaction",
        "id": format!("cmp_sim_{number}"),
        "encrypted_content": "c3VtbWFyeQ==",
    });
    let answer = json!({
        "id": format!("resp_sim_{number}"),
        "object": "response.compaction",
        "created_at": 1_700_000_000,
        "output": [summary],
        "usage": usage(http_request.body, &Reply::words(behaviour, u64::MAX), behaviour),
    });
    Answer::json(answer.to_string(), behaviour)
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
        response["output"] = json!([self.item(&self.reply.pieces.concat(), "completed")]);
        response["usage"] = self.usage.clone();
        response
    }

    fn streamed(&self, behaviour: &Behaviour) -> Answer {
        let mut stream = EventStream::new(behaviour, StreamFormat::Responses);
        let mut number = 0_u64;
        let mut event = |stream: &EventStream<'_>, name: &str, mut data: Value| {
            data["type"] = json!(name);
            data["sequence_number"] = json!(number);
            number += 1;
            stream.named_event(name, &data.to_string())
        };
        let text = self.reply.pieces.concat();
        let at = || self.place();
        let with = |mut data: Value, field: &str, value: Value| {
            data[field] = value;
            data
        };
        let is_call = self.reply.tool.is_some();
        let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
        let added = json!({"output_index": 0, "item": self.item("", "in_progress")});
        for (name, data) in [
            ("response.created", json!({"response": self.begun()})),
            ("response.in_progress", json!({"response": self.begun()})),
            ("response.output_item.added", added),
        ] {
            let event = event(&stream, name, data);
            stream.send(&event);
        }
        let (delta, over) = if is_call {
            let arguments = with(at(), "arguments", json!(text));
            let name = with(arguments, "name", json!(self.reply.tool));
            (
                "response.function_call_arguments.delta",
                vec![("response.function_call_arguments.done", name)],
            )
        } else {
            let begun = with(at(), "part", part(""));
            let event = event(&stream, "response.content_part.added", begun);
            stream.send(&event);
            (
                "response.output_text.delta",
                vec![
                    (
                        "response.output_text.done",
                        with(with(at(), "text", json!(text)), "logprobs", json!([])),
                    ),
                    ("response.content_part.done", with(at(), "part", part(&text))),
                ],
            )
        };
        for piece in &self.reply.pieces {
            let mut data = with(at(), "delta", json!(piece));
            if !is_call {
                data["logprobs"] = json!([]);
            }
            let event = event(&stream, delta, data);
            stream.send_chunk(&event);
        }
        let whole = self.whole();
        let done = json!({"output_index": 0, "item": whole["output"][0]});
        let last = match whole["status"].as_str() {
            Some("incomplete") => "response.incomplete",
            _ => "response.completed",
        };
        // The last event repeats the whole response, with its usage: nothing before has one.
        let ends = [("response.output_item.done", done), (last, json!({"response": whole}))];
        for (name, data) in over.into_iter().chain(ends) {
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

    /// Position fields of a piece of the only item.
    fn place(&self) -> Value {
        let place = json!({"item_id": self.item_id(), "output_index": 0});
        match &self.reply.tool {
            Some(_) => place,
            None => json!({"item_id": place["item_id"], "output_index": 0, "content_index": 0}),
        }
    }

    /// The only item of the output: a call, or a message.
    fn item(&self, text: &str, status: &str) -> Value {
        let Some(name) = &self.reply.tool else { return self.message(text, status) };
        json!({
            "id": self.item_id(),
            "type": "function_call",
            "call_id": format!("call_sim_{}", self.number),
            "name": name,
            "arguments": text,
            "status": status,
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
        let kind = if self.reply.tool.is_some() { "fc" } else { "msg" };
        format!("{kind}_sim_{}", self.number)
    }
}

/// Reported usage: estimated from request and answer, unless `behaviour` overrides it.
fn usage(body: &[u8], reply: &Reply, behaviour: &Behaviour) -> Value {
    let input = prompt::tokens(body);
    let Some(usage) = CachedUsage::reported(input, reply, behaviour) else { return Value::Null };
    let CachedUsage { input, cache_read, output } = usage;
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": cache_read},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": behaviour.usage.reasoning.unwrap_or(0)},
        "total_tokens": input.saturating_add(output),
    })
}
