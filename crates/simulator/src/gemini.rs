//! Google's Gemini API: content, whole and streamed, and counts of tokens.
//!
//! The shapes are those of the Gemini API's reference, "Generating content", "Function calling" and
//! "Thought signatures". Models `gemini-3…` give their calls ids, and refuse a call of the turn that
//! is going on that comes back without its signature.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{Answer, ErrorFormat};
use super::behaviour::{Behaviour, SimulatedRefusal, UsageForm};
use super::prompt::{self, CountDialect};
use super::received_request::ReceivedRequest;
use super::reply::Reply;
use super::script::{EventStream, StreamFormat};

/// Pieces of a thought summary.
const THOUGHTS: [&str; 2] = ["Let me ", "think."];

/// Method of a model, from the suffix of the path.
#[derive(Clone, Copy)]
pub(super) enum Method {
    Generate,
    Stream,
    Count,
}

impl Method {
    /// The model and the method that a segment of the path names.
    pub(super) fn from_segment(segment: &str) -> Option<(&str, Self)> {
        let (model, method) = segment.rsplit_once(':')?;
        let method = match method {
            "generateContent" => Self::Generate,
            "streamGenerateContent" => Self::Stream,
            "countTokens" => Self::Count,
            _ => return None,
        };
        Some((model, method))
    }
}

/// The parts of a request that shape the answer.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContentRequest {
    contents: Vec<Value>,
    #[serde(default)]
    tools: Vec<Value>,
    #[serde(default)]
    tool_config: Value,
    #[serde(default)]
    generation_config: Value,
}

impl ContentRequest {
    /// Function that the answer calls: the first declared one, until the conversation has its result.
    fn tool(&self) -> Option<&Value> {
        let declared = |tool: &'_ Value| tool["functionDeclarations"].as_array().is_some();
        let declarations = self.tools.iter().filter(|tool| declared(tool));
        let mut all = declarations.flat_map(|tool| tool["functionDeclarations"].as_array());
        let all = all.next()?;
        let config = &self.tool_config["functionCallingConfig"];
        let has_result = self.contents.last().is_some_and(|content| {
            let mut parts = content["parts"].as_array().into_iter().flatten();
            parts.any(|part| part["functionResponse"].is_object())
        });
        match (config["mode"].as_str(), config["allowedFunctionNames"][0].as_str()) {
            (Some("NONE"), _) => None,
            (Some("ANY"), Some(name)) => all.iter().find(|tool| tool["name"] == name),
            (Some("ANY"), None) => all.first(),
            _ if has_result => None,
            _ => all.first(),
        }
    }

    /// A call of the turn that is going on that stands first in its content and is not signed.
    fn has_unsigned_call(&self) -> bool {
        let is_of_user = |content: &Value| {
            let mut parts = content["parts"].as_array().into_iter().flatten();
            content["role"] != "model" && parts.any(|part| part["text"].is_string())
        };
        // Only the turn that is going on is checked: Google lets older calls lose their signatures.
        let turn = self.contents.iter().rev().take_while(|content| !is_of_user(content));
        turn.filter(|content| content["role"] == "model").any(|content| {
            let mut parts = content["parts"].as_array().into_iter().flatten();
            let first = parts.find(|part| part["functionCall"].is_object());
            first.is_some_and(|part| !part["thoughtSignature"].is_string())
        })
    }

    /// True if thoughts are requested, in either spelling.
    fn shows_thoughts(&self) -> bool {
        let config = &self.generation_config;
        let config = [&config["thinkingConfig"], &config["thinking_config"]];
        config.into_iter().any(|it| it["includeThoughts"] == true || it["include_thoughts"] == true)
    }

    fn reply(&self, behaviour: &Behaviour) -> Reply {
        let config = &self.generation_config;
        let limit = config["maxOutputTokens"].as_u64();
        let tokens_max = limit.filter(|_| !behaviour.ignores_max_tokens).unwrap_or(u64::MAX);
        if let Some(tool) = self.tool() {
            let name = tool["name"].as_str().unwrap_or_default();
            let schema = [&tool["parametersJsonSchema"], &tool["parameters"]];
            let schema = schema.into_iter().find(|schema| schema.is_object()).map(json_schema);
            return Reply::tool_call(name, &schema.unwrap_or_default(), tokens_max);
        }
        let schema = [&config["responseJsonSchema"], &config["responseSchema"]];
        match schema.into_iter().find(|schema| schema.is_object()) {
            Some(schema) => Reply::structured(&json_schema(schema), tokens_max),
            None => Reply::words(behaviour, tokens_max),
        }
    }
}

/// A schema with its types in lower case: OpenAPI's, as Google's SDKs write them, are in upper case.
fn json_schema(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => {
            let lowered = |key: &String, value: &Value| match value {
                Value::String(word) if key == "type" => json!(word.to_ascii_lowercase()),
                other => json_schema(other),
            };
            let members = members.iter().map(|(key, value)| (key.clone(), lowered(key, value)));
            Value::Object(members.collect())
        }
        Value::Array(all) => Value::Array(all.iter().map(json_schema).collect()),
        other => other.clone(),
    }
}

/// Answers a request for a model that the path names.
pub(super) fn answer(
    model: &str,
    method: Method,
    http_request: &ReceivedRequest<'_>,
    behaviour: &Behaviour,
) -> Answer {
    if matches!(method, Method::Count) {
        return prompt::count(CountDialect::Google(model), http_request.body, behaviour);
    }
    let invalid = |message: &str| {
        Answer::refused(ErrorFormat::Google, StatusCode::BAD_REQUEST, message, behaviour)
    };
    let request = match serde_json::from_slice::<ContentRequest>(http_request.body) {
        Ok(request) => request,
        Err(error) => return invalid(&format!("Invalid JSON payload received: {error}.")),
    };
    let has_signatures = model.starts_with("gemini-3");
    if has_signatures && request.has_unsigned_call() {
        return invalid("Function call is missing a thought_signature in functionCall parts.");
    }
    let streams = matches!(method, Method::Stream);
    let has_events = streams && http_request.query.split('&').any(|field| field == "alt=sse");
    if behaviour.faults.refusal == Some(SimulatedRefusal::Garbage) {
        return Answer::garbage(has_events);
    }
    let reply = request.reply(behaviour);
    let content = GeneratedContent {
        number: http_request.number,
        model,
        has_ids: has_signatures,
        shows_thoughts: request.shows_thoughts(),
        usage: ContentUsage::reported(http_request.body, &reply, behaviour),
        reply,
    };
    match (streams, has_events) {
        (_, true) => content.streamed(behaviour),
        // Without `alt=sse` a stream is one JSON array, as Google's older clients read it.
        (true, false) => Answer::json(json!([content.whole()]).to_string(), behaviour),
        (false, false) => Answer::json(content.whole().to_string(), behaviour),
    }
}

struct GeneratedContent<'a> {
    number: u64,
    model: &'a str,
    has_ids: bool,
    shows_thoughts: bool,
    reply: Reply,
    usage: Option<ContentUsage>,
}

impl GeneratedContent<'_> {
    fn document(&self, parts: &[Value], reason: Option<&str>, usage: Option<&Value>) -> Value {
        let mut candidate = json!({"content": {"parts": parts, "role": "model"}, "index": 0});
        if let Some(reason) = reason {
            candidate["finishReason"] = json!(reason);
        }
        let mut document = json!({
            "candidates": [candidate],
            "modelVersion": self.model,
            "responseId": format!("sim-{}", self.number),
        });
        if let Some(usage) = usage {
            document["usageMetadata"] = usage.clone();
        }
        document
    }

    fn thoughts(&self) -> impl Iterator<Item = Value> {
        let shown = THOUGHTS.iter().filter(|_| self.shows_thoughts);
        shown.map(|text| json!({"text": text, "thought": true}))
    }

    /// The call with its signature.
    fn call(&self, name: &str) -> Value {
        let text = self.reply.pieces.concat();
        let args: Value = serde_json::from_str(&text).unwrap_or_else(|_| json!({}));
        let mut call = json!({"name": name, "args": args});
        if self.has_ids {
            call["id"] = json!(format!("fc_sim_{}", self.number));
        }
        let signature = STANDARD.encode(format!("signature {}", self.number));
        json!({"functionCall": call, "thoughtSignature": signature})
    }

    fn whole(&self) -> Value {
        let mut parts: Vec<Value> = self.thoughts().collect();
        parts.push(match &self.reply.tool {
            Some(name) => self.call(name),
            None => json!({"text": self.reply.pieces.concat()}),
        });
        let usage = self.usage.map(ContentUsage::to_json);
        self.document(&parts, Some(self.finish_reason()), usage.as_ref())
    }

    fn streamed(&self, behaviour: &Behaviour) -> Answer {
        let mut stream = EventStream::new(behaviour, StreamFormat::Google);
        for thought in self.thoughts() {
            // Google reports usage in every chunk, so that a cut stream has one as well.
            let begun = self.usage.map(|usage| usage.after(0, 1).to_json());
            let chunk = self.document(&[thought], None, begun.as_ref()).to_string();
            stream.send(&stream.event(&chunk));
        }
        let calls = self.reply.tool.as_ref().map(|name| vec![self.call(name)]);
        let texts = || self.reply.pieces.iter().map(|text| json!({"text": text})).collect();
        let parts: Vec<Value> = calls.unwrap_or_else(texts);
        let form = behaviour.faults.usage;
        for (place, part) in parts.iter().enumerate() {
            let mut usage = self.usage.map(|usage| usage.after(place + 1, parts.len()));
            if form == UsageForm::Early && place == parts.len() / 2 {
                usage = self.usage.map(ContentUsage::tenfold);
            }
            let usage = usage.map(ContentUsage::to_json);
            let chunk = self.document(std::slice::from_ref(part), None, usage.as_ref());
            let event = stream.event(&chunk.to_string());
            stream.send_chunk(&event);
        }
        let last = |usage: Option<ContentUsage>| {
            // The last chunk often has an empty text beside its reason to finish.
            let (empty, usage) = (json!({"text": ""}), usage.map(ContentUsage::to_json));
            self.document(&[empty], Some(self.finish_reason()), usage.as_ref()).to_string()
        };
        stream.send(&stream.event(&last(self.usage)));
        if matches!(form, UsageForm::Twice | UsageForm::Late) {
            stream.send(&stream.event(&last(self.usage.map(ContentUsage::tenfold))));
        }
        Answer::events(stream)
    }

    fn finish_reason(&self) -> &'static str {
        if self.reply.finish_reason == "length" { "MAX_TOKENS" } else { "STOP" }
    }
}

/// Reported usage, in tokens. Thoughts are not part of the visible output.
#[derive(Clone, Copy)]
struct ContentUsage {
    prompt: i64,
    cached: i64,
    visible: i64,
    thought: i64,
}

impl ContentUsage {
    /// Compute the reported usage: estimated from request and answer, unless `behaviour` overrides it.
    fn reported(body: &[u8], reply: &Reply, behaviour: &Behaviour) -> Option<Self> {
        let overrides = behaviour.usage;
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        behaviour.faults.usage.select(
            Self { prompt: -100, cached: -50, visible: -200, thought: -1 },
            Self { prompt: i64::MAX, cached: 0, visible: i64::MAX, thought: 0 },
            || {
                let thought = overrides.reasoning.unwrap_or(0);
                let output = overrides.completion.unwrap_or(number(reply.tokens));
                Self {
                    prompt: overrides.prompt.unwrap_or(number(prompt::tokens(body))),
                    cached: overrides.cached.unwrap_or(0),
                    visible: output.saturating_sub(thought),
                    thought,
                }
            },
        )
    }

    /// Usage reported after `pieces` of `all` pieces.
    fn after(self, pieces: usize, all: usize) -> Self {
        let number = |count: usize| i64::try_from(count.max(1)).unwrap_or(i64::MAX);
        let share = if pieces == 0 { 0 } else { self.visible / number(all) * number(pieces) };
        Self { visible: share.min(self.visible), ..self }
    }

    fn tenfold(self) -> Self {
        let ten = |count: i64| count.saturating_mul(10);
        Self { prompt: ten(self.prompt), visible: ten(self.visible), ..self }
    }

    fn to_json(self) -> Value {
        let Self { prompt, cached, visible, thought } = self;
        let total = prompt.saturating_add(visible).saturating_add(thought);
        let mut usage = json!({
            "promptTokenCount": prompt,
            "candidatesTokenCount": visible,
            "totalTokenCount": total,
            "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt}],
        });
        if cached != 0 {
            usage["cachedContentTokenCount"] = json!(cached);
        }
        if thought != 0 {
            usage["thoughtsTokenCount"] = json!(thought);
        }
        usage
    }
}
