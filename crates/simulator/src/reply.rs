//! Reply of a simulated model: words, JSON, or a tool call.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::sample::sample;
use crate::behaviour::{Behaviour, Writes};

/// Vocabulary, repeated cyclically: a chunk's text repeats after as many chunks as there are words.
const WORDS: [&str; PERIOD] = [
    "Simulated ",
    "upstreams ",
    "answer ",
    "with ",
    "the ",
    "same ",
    "sixteen ",
    "words ",
    "over ",
    "and ",
    "over, ",
    "as ",
    "many ",
    "as ",
    "asked ",
    "for. ",
];
/// The words of a reply whose characters should have more than one byte.
const WIDE_WORDS: [&str; PERIOD] = [
    "模拟 ",
    "上游 ",
    "répond ",
    "avec ",
    "les ",
    "mêmes ",
    "шестнадцать ",
    "слов ",
    "снова ",
    "و ",
    "مجددًا ",
    "🙂 ",
    "👩‍🚀 ",
    "só ",
    "até ",
    "fim… ",
];
/// Number of chunks after which the text repeats, for any number of words per chunk.
pub(super) const PERIOD: usize = 16;
/// Characters of JSON per piece, each counted as one token.
const JSON_PIECE_CHARS: usize = 4;

/// The parts of a chat request that shape the answer.
#[derive(Deserialize)]
pub(super) struct ChatRequest<'a> {
    #[serde(borrow)]
    pub(super) model: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) messages: &'a RawValue,
    #[serde(default)]
    pub(super) stream: Option<bool>,
    #[serde(default)]
    pub(super) stream_options: Option<StreamOptions>,
    #[serde(default)]
    pub(super) n: Option<u32>,
    #[serde(default)]
    max_tokens: Option<u64>,
    #[serde(default)]
    max_completion_tokens: Option<u64>,
    #[serde(default)]
    tools: Option<Vec<Value>>,
    #[serde(default)]
    tool_choice: Option<Value>,
    #[serde(default)]
    response_format: Option<Value>,
}

/// The `stream_options` of a request.
#[derive(Deserialize)]
pub(super) struct StreamOptions {
    #[serde(default)]
    pub(super) include_usage: Option<bool>,
}

impl ChatRequest<'_> {
    pub(super) fn is_stream(&self) -> bool {
        self.stream == Some(true)
    }

    pub(super) fn wants_usage(&self) -> bool {
        self.stream_options.as_ref().is_some_and(|options| options.include_usage == Some(true))
    }

    /// Tool that the answer calls, if any.
    ///
    /// As real models do, it answers in words once the last message is a tool's result, unless a
    /// call is required.
    fn tool(&self) -> Option<&Value> {
        let tools = self.tools.as_ref()?;
        match &self.tool_choice {
            Some(Value::String(choice)) if choice == "none" => None,
            Some(Value::String(choice)) if choice == "required" => tools.first(),
            Some(choice) if choice["function"]["name"].is_string() => {
                let name = &choice["function"]["name"];
                tools.iter().find(|tool| tool["function"]["name"] == *name)
            }
            _ if self.ends_with_tool_result() => None,
            _ => tools.first(),
        }
    }

    fn ends_with_tool_result(&self) -> bool {
        #[derive(Deserialize)]
        struct LastMessage {
            role: String,
        }
        let messages = serde_json::from_str::<Vec<LastMessage>>(self.messages.get());
        messages.is_ok_and(|all| all.last().is_some_and(|last| last.role == "tool"))
    }
}

/// Reply of the simulated model, in streamed pieces.
#[derive(Debug)]
pub(super) struct Reply {
    /// Called tool, whose arguments are then the pieces.
    pub(super) tool: Option<String>,
    pub(super) pieces: Vec<Cow<'static, str>>,
    /// Number of tokens it counts as.
    pub(super) tokens: u64,
    pub(super) finish_reason: &'static str,
}

impl Reply {
    pub(super) fn new(request: &ChatRequest<'_>, behaviour: &Behaviour) -> Self {
        let tokens_max = request.max_completion_tokens.or(request.max_tokens);
        let tokens_max = tokens_max.filter(|_| !behaviour.ignores_max_tokens).unwrap_or(u64::MAX);
        let mut reply = if let Some(tool) = request.tool() {
            let name = tool["function"]["name"].as_str().unwrap_or_default();
            Self::tool_call(name, &tool["function"]["parameters"], tokens_max)
        } else {
            match request.response_format.as_ref().map(|format| (&format["type"], format)) {
                Some((kind, _)) if kind == "json_object" => {
                    Self::json(&serde_json::json!({"answer": "sample"}), tokens_max, "stop")
                }
                Some((kind, format)) if kind == "json_schema" => {
                    Self::structured(&format["json_schema"]["schema"], tokens_max)
                }
                _ => Self::words(behaviour, tokens_max),
            }
        };
        if let Some(bytes) = behaviour.faults.giant_bytes {
            let giant = "x".repeat(usize::try_from(bytes).unwrap_or_default());
            // Behind the first piece: something is delivered before the piece that no event may
            // hold.
            reply.pieces.insert(reply.pieces.len().min(1), giant.into());
        }
        reply
    }

    /// The reason to stop in the words of Anthropic's API, and of Bedrock's.
    pub(super) fn stop_reason(&self) -> &'static str {
        match self.finish_reason {
            "length" => "max_tokens",
            "tool_calls" => "tool_use",
            _ => "end_turn",
        }
    }

    /// A call of the tool `name` with arguments that its JSON Schema allows.
    pub(super) fn tool_call(name: &str, schema: &Value, tokens_max: u64) -> Self {
        let arguments = sample(schema);
        // A schema may allow anything, and the input of a call is an object all the same.
        let arguments = if arguments.is_object() { arguments } else { serde_json::json!({}) };
        let reply = Self::json(&arguments, tokens_max, "tool_calls");
        Self { tool: Some(name.to_owned()), ..reply }
    }

    /// JSON that `schema` allows.
    pub(super) fn structured(schema: &Value, tokens_max: u64) -> Self {
        Self::json(&sample(schema), tokens_max, "stop")
    }

    pub(super) fn words(behaviour: &Behaviour, tokens_max: u64) -> Self {
        let words = match behaviour.faults.writes {
            Writes::Utf8Split => WIDE_WORDS,
            _ => WORDS,
        };
        let mut words = words.iter().cycle();
        let per_chunk = u64::from(behaviour.words_per_chunk);
        let full_length = per_chunk * u64::from(behaviour.chunks);
        let tokens = full_length.min(tokens_max);
        let mut left = tokens;
        let mut pieces = Vec::new();
        for _ in 0..behaviour.chunks {
            // With no words per chunk all chunks are sent, empty: benchmarks count events, not tokens.
            if left == 0 && per_chunk > 0 {
                break;
            }
            let count = per_chunk.min(left);
            left -= count;
            let text: String = (0..count).filter_map(|_| words.next().copied()).collect();
            pieces.push(text.into());
        }
        Self { tool: None, pieces, tokens, finish_reason: finish("stop", tokens < full_length) }
    }

    fn json(value: &Value, tokens_max: u64, finish_reason: &'static str) -> Self {
        let text: Vec<char> = value.to_string().chars().collect();
        let all = text.chunks(JSON_PIECE_CHARS);
        let full_length = all.len();
        let kept = full_length.min(usize::try_from(tokens_max).unwrap_or(usize::MAX));
        let pieces = all.take(kept).map(|piece| piece.iter().collect::<String>().into()).collect();
        let finish_reason = finish(finish_reason, kept < full_length);
        Self { tool: None, pieces, tokens: kept as u64, finish_reason }
    }
}

fn finish(reason: &'static str, is_capped: bool) -> &'static str {
    if is_capped { "length" } else { reason }
}
