//! Chat completions as those answer who copied them: each as its own documentation, or what was seen
//! of it, has them.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::chat_usage::ChatUsage;
use crate::answer::Answer;
use crate::behaviour::{Behaviour, DoneMarker};
use crate::provider::ChatProvider;
use crate::received_request::ReceivedRequest;
use crate::reply::{ChatRequest, Reply};
use crate::script::{EventStream, StreamFormat};
use tollgate_types::clock::UnixMs;

/// Reasoning of every model, in streamed pieces.
const THOUGHTS: [&str; 2] = ["I am ", "thinking."];
/// Tokens of the reasoning.
const THOUGHT_TOKENS: i64 = 4;
/// Reasoning within the text, in pieces that split the tags.
const TAGGED_THOUGHTS: [&str; 4] = ["<thi", "nk>\nI am ", "thinking.\n</th", "ink>\n\n"];
/// Length of Mistral's tool call ids.
const MISTRAL_ID_LETTERS: usize = 9;
/// Fields accepted by Mistral. Source: <https://docs.mistral.ai/api/endpoint/chat>.
const MISTRAL_FIELDS: [&str; 20] = [
    "model",
    "messages",
    "temperature",
    "top_p",
    "max_tokens",
    "stream",
    "stop",
    "random_seed",
    "metadata",
    "response_format",
    "tools",
    "tool_choice",
    "presence_penalty",
    "frequency_penalty",
    "n",
    "prediction",
    "parallel_tool_calls",
    "prompt_mode",
    "reasoning_effort",
    "safe_prompt",
];

/// Position of the usage in a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UsagePlace {
    /// In a separate chunk, on request.
    OwnChunk,
    /// Beside the last choice, asked for or not.
    LastChunk,
    /// Inside the last choice, asked for or not.
    InChoice,
    /// In `x_groq` of the last chunk, and in a separate one on request.
    Groq,
    /// In every chunk, cumulative.
    EveryChunk,
}

/// Answers a request as `behaviour.provider` does.
pub(super) fn answer(
    http_request: &ReceivedRequest<'_>,
    request: &ChatRequest<'_>,
    behaviour: &Behaviour,
) -> Answer {
    let body: Value = serde_json::from_slice(http_request.body).unwrap_or_default();
    if let Some((status, message)) = refusal(behaviour.provider, &body) {
        return Answer::error(status, &message, behaviour);
    }
    let reply = Reply::new(request, behaviour);
    let overrides = behaviour.usage;
    let usage = ChatUsage::reported(request, &reply, 1, behaviour).map(|usage| ChatUsage {
        completion: overrides.completion.unwrap_or(usage.completion + THOUGHT_TOKENS),
        reasoning: overrides.reasoning.unwrap_or(THOUGHT_TOKENS),
        ..usage
    });
    let imitation = Imitation {
        provider: behaviour.provider,
        number: http_request.number,
        model: request.model.clone().into_owned(),
        wants_usage: request.wants_usage(),
        body,
        reply,
        usage,
    };
    if request.is_stream() { imitation.streamed(behaviour) } else { imitation.whole(behaviour) }
}

/// Refusal of a request by a provider: status and message.
fn refusal(provider: ChatProvider, body: &Value) -> Option<(StatusCode, String)> {
    let messages = || body["messages"].as_array().into_iter().flatten().enumerate();
    let calls = |message: &Value| message["tool_calls"].as_array().is_some_and(|it| !it.is_empty());
    let refused = |message: String| Some((StatusCode::BAD_REQUEST, message));
    match provider {
        ChatProvider::Mistral => {
            let forbidden = |path: String| Some((StatusCode::UNPROCESSABLE_ENTITY, path));
            let fields = body.as_object().into_iter().flatten().map(|(name, _)| name);
            if let Some(field) =
                fields.into_iter().find(|it| !MISTRAL_FIELDS.contains(&it.as_str()))
            {
                return forbidden(field.clone());
            }
            for (place, message) in messages() {
                for field in ["reasoning_content", "reasoning", "reasoning_details"] {
                    if message.get(field).is_some() {
                        return forbidden(format!("messages.{place}.assistant.{field}"));
                    }
                }
                let made = message["tool_calls"].as_array().into_iter().flatten();
                let ids = made.map(|call| &call["id"]).chain([&message["tool_call_id"]]);
                let is_taken = |id: &str| {
                    id.len() == MISTRAL_ID_LETTERS
                        && id.bytes().all(|it| it.is_ascii_alphanumeric())
                };
                if let Some(id) = ids.filter_map(Value::as_str).find(|id| !is_taken(id)) {
                    return refused(format!(
                        "Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9."
                    ));
                }
            }
            None
        }
        ChatProvider::Groq => {
            let unsupported = ["logit_bias", "logprobs", "top_logprobs"];
            if let Some(field) = unsupported.into_iter().find(|field| body.get(*field).is_some()) {
                return refused(format!("property '{field}' is unsupported"));
            }
            let (place, _) =
                messages().find(|(_, message)| message.get("reasoning_content").is_some())?;
            refused(format!(
                "'messages.{place}' : for 'role:assistant' the following must be satisfied\
                 [('messages.{place}' : property 'reasoning_content' is unsupported)]"
            ))
        }
        ChatProvider::Deepseek => {
            let lacks =
                |message: &Value| calls(message) && message.get("reasoning_content").is_none();
            messages().find(|(_, message)| lacks(message))?;
            refused(
                "The `reasoning_content` in the thinking mode must be passed back to the API."
                    .to_owned(),
            )
        }
        ChatProvider::Moonshot => {
            if body["temperature"].as_f64().is_some_and(|it| (it - 1.0).abs() > f64::EPSILON) {
                return refused("invalid temperature: only 1 is allowed for this model".to_owned());
            }
            let lacks =
                |message: &Value| calls(message) && message.get("reasoning_content").is_none();
            let (place, _) = messages().find(|(_, message)| lacks(message))?;
            refused(format!(
                "thinking is enabled but reasoning_content is missing in assistant tool call message at index {place}"
            ))
        }
        _ => None,
    }
}

struct Imitation {
    provider: ChatProvider,
    number: u64,
    model: String,
    wants_usage: bool,
    body: Value,
    reply: Reply,
    usage: Option<ChatUsage>,
}

impl Imitation {
    fn usage_place(&self) -> UsagePlace {
        let stats = &self.body["stream_options"]["continuous_usage_stats"];
        match self.provider {
            ChatProvider::Moonshot => UsagePlace::InChoice,
            ChatProvider::Groq => UsagePlace::Groq,
            ChatProvider::Siliconflow => UsagePlace::EveryChunk,
            ChatProvider::Vllm | ChatProvider::Sglang if *stats == true => UsagePlace::EveryChunk,
            ChatProvider::Openai
            | ChatProvider::Minimax
            | ChatProvider::Vllm
            | ChatProvider::Sglang
            | ChatProvider::Ollama
            | ChatProvider::Llamacpp => UsagePlace::OwnChunk,
            ChatProvider::Deepseek
            | ChatProvider::Zhipu
            | ChatProvider::Mistral
            | ChatProvider::Together
            | ChatProvider::Fireworks
            | ChatProvider::Openrouter => UsagePlace::LastChunk,
        }
    }

    fn usage(&self) -> Option<Value> {
        let ChatUsage { prompt, completion, cached, reasoning } = self.usage?;
        let total = prompt.saturating_add(completion);
        let mut usage = json!({"prompt_tokens": prompt, "completion_tokens": completion,
            "total_tokens": total});
        let details = json!({"cached_tokens": cached});
        let thoughts = json!({"reasoning_tokens": reasoning});
        match self.provider {
            ChatProvider::Deepseek => {
                usage["prompt_cache_hit_tokens"] = json!(cached);
                usage["prompt_cache_miss_tokens"] = json!(prompt.saturating_sub(cached));
                usage["completion_tokens_details"] = thoughts;
            }
            ChatProvider::Moonshot | ChatProvider::Together => {
                usage["cached_tokens"] = json!(cached)
            }
            ChatProvider::Sglang => {
                usage["prompt_tokens_details"] = details;
                usage["reasoning_tokens"] = json!(reasoning);
            }
            ChatProvider::Groq => {
                usage["queue_time"] = json!(0.037);
                usage["total_time"] = json!(0.2);
                usage["prompt_tokens_details"] = details;
                usage["completion_tokens_details"] = thoughts;
            }
            ChatProvider::Openrouter => {
                usage["cost"] = json!(0.000_123);
                usage["cost_details"] = json!({"upstream_inference_cost": null});
                usage["prompt_tokens_details"] = details;
                usage["completion_tokens_details"] = thoughts;
            }
            _ => {
                usage["prompt_tokens_details"] = details;
                usage["completion_tokens_details"] = thoughts;
            }
        }
        Some(usage)
    }

    fn finish_reason(&self) -> &'static str {
        match (self.provider, self.reply.finish_reason) {
            (ChatProvider::Together, "stop") => "eos",
            (ChatProvider::Mistral, "length") => "model_length",
            (_, reason) => reason,
        }
    }

    fn call_id(&self) -> String {
        match self.provider {
            ChatProvider::Llamacpp => String::new(),
            ChatProvider::Mistral => format!("sim{:06}", self.number % 1_000_000),
            _ => format!("call_sim_{}", self.number),
        }
    }

    /// The fields of a message, or a delta, that thinks this.
    fn thought(&self, text: &str) -> Map<String, Value> {
        let fields = match self.provider {
            ChatProvider::Mistral => json!({"content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": text}]}]}),
            ChatProvider::Groq
            | ChatProvider::Together
            | ChatProvider::Vllm
            | ChatProvider::Ollama => {
                json!({"reasoning": text})
            }
            ChatProvider::Openrouter => json!({"reasoning": text, "reasoning_details": [
                {"type": "reasoning.text", "text": text, "signature": null,
                    "format": "anthropic-claude-v1", "index": 0}]}),
            _ => json!({"reasoning_content": text}),
        };
        fields.as_object().cloned().unwrap_or_default()
    }

    fn whole(&self, behaviour: &Behaviour) -> Answer {
        let text = self.reply.pieces.concat();
        let mut message = Map::new();
        if self.provider == ChatProvider::Minimax {
            message.insert("content".to_owned(), json!(TAGGED_THOUGHTS.concat()));
        } else {
            message.extend(self.thought(&THOUGHTS.concat()));
        }
        if self.provider == ChatProvider::Openrouter {
            message["reasoning_details"][0]["signature"] = json!("c2ln");
        }
        message.insert("role".to_owned(), json!("assistant"));
        match &self.reply.tool {
            Some(name) => {
                message.entry("content").or_insert(Value::Null);
                let function = json!({"name": name, "arguments": text});
                let call = json!({"id": self.call_id(), "type": "function", "function": function});
                message.insert("tool_calls".to_owned(), json!([call]));
            }
            None => {
                let content = message.entry("content").or_insert(json!(""));
                match content {
                    Value::Array(blocks) => blocks.push(json!({"type": "text", "text": text})),
                    Value::String(before) => before.push_str(&text),
                    _ => {}
                }
            }
        }
        let choice = json!({"index": 0, "message": message, "finish_reason": self.finish_reason()});
        let mut document = self.document("chat.completion", json!([choice]));
        if let Some(usage) = self.usage() {
            document["usage"] = usage;
        }
        self.decorate(&mut document);
        // DeepSeek keeps a connection that waits alive with blank lines.
        let before = if self.provider == ChatProvider::Deepseek { "\n\n\n" } else { "" };
        Answer::json(format!("{before}{document}"), behaviour)
    }

    fn document(&self, object: &str, choices: Value) -> Value {
        let id = format!("chatcmpl-sim-{}", self.number);
        let created = UnixMs::now().seconds();
        json!({"id": id, "object": object, "created": created, "model": self.model, "choices": choices})
    }

    /// Add the provider's extra fields to an answer or to the last chunk of a stream.
    fn decorate(&self, document: &mut Value) {
        match self.provider {
            ChatProvider::Minimax => {
                document["input_sensitive"] = json!(false);
                document["base_resp"] = json!({"status_code": 0, "status_msg": ""});
            }
            ChatProvider::Groq => document["service_tier"] = json!("on_demand"),
            ChatProvider::Openrouter => document["provider"] = json!("Sim"),
            ChatProvider::Fireworks if self.body["perf_metrics_in_response"] == true => {
                document["perf_metrics"] = json!({"server-time-to-first-token": 0.02});
            }
            ChatProvider::Llamacpp => {
                document["timings"] = json!({"prompt_n": 12, "prompt_ms": 30.5, "predicted_n": 20});
            }
            _ => {}
        }
    }

    fn chunk(&self, delta: Value, reason: Value) -> Value {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
        let mut chunk = self.document("chat.completion.chunk", json!([choice]));
        if self.provider == ChatProvider::Minimax {
            // It says this in every chunk, whatever comes of it.
            chunk["usage"] = json!({"total_tokens": 0, "total_characters": 0});
        }
        if self.usage_place() == UsagePlace::EveryChunk
            && let Some(mut usage) = self.usage()
        {
            usage["completion_tokens"] = json!(1);
            usage["total_tokens"] = json!(self.usage.map_or(0, |usage| usage.prompt) + 1);
            chunk["usage"] = usage;
        }
        chunk
    }

    fn streamed(&self, behaviour: &Behaviour) -> Answer {
        let mut stream = EventStream::new(behaviour, StreamFormat::Openai);
        match self.provider {
            ChatProvider::Deepseek => stream.send(&Bytes::from_static(b": keep-alive\n\n")),
            ChatProvider::Openrouter => {
                stream.send(&Bytes::from_static(b": OPENROUTER PROCESSING\n\n"));
            }
            _ => {}
        }
        let send = |stream: &mut EventStream<'_>, delta: Value| {
            let event = stream.event(&self.chunk(delta, Value::Null).to_string());
            stream.send(&event);
        };
        send(&mut stream, json!({"role": "assistant", "content": ""}));
        if self.provider == ChatProvider::Minimax {
            for piece in TAGGED_THOUGHTS {
                send(&mut stream, json!({"role": "", "content": piece}));
            }
        } else {
            for piece in THOUGHTS {
                send(&mut stream, Value::Object(self.thought(piece)));
            }
        }
        if self.provider == ChatProvider::Openrouter {
            let signed = json!({"type": "reasoning.text", "signature": "c2ln",
                "format": "anthropic-claude-v1", "index": 0});
            send(&mut stream, json!({"content": "", "reasoning_details": [signed]}));
        }
        self.stream_content(&mut stream);
        self.stream_end(&mut stream, behaviour);
        Answer::events(stream)
    }

    fn stream_content(&self, stream: &mut EventStream<'_>) {
        let pieces = &self.reply.pieces;
        let mut chunk = |delta: Value| {
            let event = stream.event(&self.chunk(delta, Value::Null).to_string());
            stream.send_chunk(&event);
        };
        let Some(name) = &self.reply.tool else {
            pieces.iter().for_each(|piece| chunk(json!({"content": piece})));
            return;
        };
        let id = self.call_id();
        let call = |arguments: &str| {
            json!({"tool_calls": [{"index": 0, "id": id, "type": "function",
                "function": {"name": name, "arguments": arguments}}]})
        };
        // Calls come whole from those who parse them out of a text.
        if matches!(
            self.provider,
            ChatProvider::Mistral | ChatProvider::Groq | ChatProvider::Ollama
        ) {
            return chunk(call(&pieces.concat()));
        }
        chunk(call(""));
        for piece in pieces {
            chunk(json!({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}));
        }
    }

    /// The last chunks: why the model stopped, and what was used, where the provider says that.
    fn stream_end(&self, stream: &mut EventStream<'_>, behaviour: &Behaviour) {
        let place = self.usage_place();
        let mut last = self.chunk(json!({}), json!(self.finish_reason()));
        self.decorate(&mut last);
        if let Some(usage) = self.usage() {
            match place {
                UsagePlace::LastChunk | UsagePlace::EveryChunk => last["usage"] = usage,
                UsagePlace::InChoice => last["choices"][0]["usage"] = usage,
                UsagePlace::Groq => last["x_groq"] = json!({"id": "req_sim", "usage": usage}),
                UsagePlace::OwnChunk => {}
            }
        }
        stream.send(&stream.event(&last.to_string()));
        let has_own = matches!(place, UsagePlace::OwnChunk | UsagePlace::Groq) && self.wants_usage;
        if let Some(usage) = self.usage().filter(|_| has_own) {
            let mut own = self.document("chat.completion.chunk", json!([]));
            own["usage"] = usage;
            self.decorate(&mut own);
            stream.send(&stream.event(&own.to_string()));
        }
        if behaviour.faults.done != DoneMarker::Missing {
            stream.send(&stream.event("[DONE]"));
        }
    }
}
