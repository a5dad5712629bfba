//! The rules by which the arguments of a chat were read when they were a tree: what the reader without one
//! is held against, and texts to hold against each other. What a single message must have, and how Anthropic's
//! API says it, is `conversation`'s on both sides, which has tests of its own.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use rmcp::model::JsonObject;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::conversation::Role;
use super::{arguments, conversation};

const MAX_TOKENS_DEFAULT: u64 = 4096;

// Named as the types of the product: serde's messages contain the names, and both must agree.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatArguments {
    model: String,
    prompt: Option<String>,
    messages: Option<Vec<ChatMessage>>,
    system: Option<String>,
    max_tokens: Option<u64>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    stop: Option<Vec<String>>,
    extra: Option<Map<String, Value>>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ChatMessage {
    role: Role,
    #[serde(default)]
    content: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<Vec<Map<String, Value>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
}

/// Body of the model's request, or the error for the agent.
pub(super) fn body(arguments: JsonObject, by_messages: bool) -> Result<String, String> {
    let arguments: ChatArguments =
        arguments::read(arguments).map_err(|error| error.into_result().content.as_text())?;
    arguments.body(by_messages, 1000).map(|body| body.to_string())
}

trait AsText {
    fn as_text(&self) -> String;
}

impl AsText for Vec<rmcp::model::ContentBlock> {
    fn as_text(&self) -> String {
        json!(self).to_string()
    }
}

impl ChatArguments {
    fn body(self, by_messages: bool, output_tokens_max: u64) -> Result<Value, String> {
        let invalid = |message: &str| {
            let error = super::tool_error::ToolError::arguments(message);
            error.into_result().content.as_text()
        };
        let mut messages = match (self.prompt, self.messages) {
            (Some(prompt), None) => vec![json!({"role": "user", "content": prompt})],
            (None, Some(messages)) => messages.into_iter().map(|one| json!(one)).collect(),
            _ => return Err(invalid("Give either `prompt` or `messages`.")),
        };
        let read = |message: &Value| {
            conversation::ChatMessage::deserialize(message.clone()).expect("a message again")
        };
        for message in &messages {
            read(message).check().map_err(|error| error.into_result().content.as_text())?;
        }
        let mut body = Map::new();
        let mut say = |name: &str, value: Value| {
            if !value.is_null() {
                body.insert(name.to_owned(), value);
            }
        };
        say("model", json!(self.model));
        say("temperature", json!(self.temperature));
        say("top_p", json!(self.top_p));
        if by_messages {
            let mut system: Vec<Value> = self.system.map(|text| json!(text)).into_iter().collect();
            messages.retain(|message| {
                let is_system = message["role"] == "system";
                system.extend(is_system.then(|| message["content"].clone()));
                !is_system
            });
            let texts: Option<Vec<&str>> = system.iter().map(Value::as_str).collect();
            let texts =
                texts.ok_or_else(|| invalid("The content of a system message must be a text."))?;
            say("system", if texts.is_empty() { Value::Null } else { json!(texts.join("\n\n")) });
            let default = MAX_TOKENS_DEFAULT.min(output_tokens_max.max(1));
            say("max_tokens", json!(self.max_tokens.unwrap_or(default)));
            say("stop_sequences", json!(self.stop));
            let contents: Result<Vec<Value>, _> =
                messages.iter().map(|one| read(one).in_messages()).collect();
            say(
                "messages",
                json!(contents.map_err(|error| error.into_result().content.as_text())?),
            );
        } else {
            if let Some(system) = self.system {
                messages.insert(0, json!({"role": "system", "content": system}));
            }
            say("max_tokens", json!(self.max_tokens));
            say("stop", json!(self.stop));
            say("messages", json!(messages));
        }
        let mut body = Value::Object(body);
        let extra = self.extra.map(|mut extra| {
            extra.remove("stream");
            extra
        });
        arguments::add(&mut body, extra);
        Ok(body)
    }
}

/// Any value as JSON has it, or nearly: what parsers disagree on is among it.
pub(super) fn value() -> impl Strategy<Value = String> + Clone {
    let leaf = select(vec![
        "null",
        "true",
        "0",
        "-0",
        "7",
        "-1",
        "0.1",
        "1e2",
        "256.0",
        "1e400",
        "9007199254740993",
        "18446744073709551616",
        "\"\"",
        "\"a\"",
        r#""\u0061""#,
        r#""\ud800""#,
        r#""\ud83d\ude00""#,
        r#""a \"b\" \\ \n""#,
        "\"\u{e9}\"",
        "\"user\"",
        "\"text\"",
        "\"tool_use\"",
        "\"{}\"",
        "nul",
    ]);
    leaf.prop_map(str::to_owned).prop_recursive(4, 24, 4, |inner| {
        let names = select(vec![
            "a",
            "id",
            "type",
            "text",
            "name",
            "input",
            "function",
            "arguments",
            "content",
            "role",
            "message",
            "tool_calls",
            "finish_reason",
            "model",
            r"\u0061",
            "stream",
        ]);
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(|all| array(&all)),
            proptest::collection::vec((names, inner), 0..4).prop_map(|all| object(&all)),
        ]
    })
}

/// One of these texts mostly, and sometimes any value.
pub(super) fn mostly(texts: &[&'static str]) -> impl Strategy<Value = String> + Clone + use<> {
    prop_oneof![
        16 => select(texts.to_vec()).prop_map(str::to_owned),
        1 => value(),
    ]
}

pub(super) fn array(elements: &[String]) -> String {
    format!("[{}]", elements.join(", "))
}

/// An object with its members in this order, the same name twice among them.
pub(super) fn object<N: AsRef<str>>(members: &[(N, String)]) -> String {
    let member = |(name, value): &(N, String)| format!("\"{}\": {value}", name.as_ref());
    format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(","))
}

/// A byte of the text that is put in the place of another, or nothing for most texts.
pub(super) fn broken(text: impl Strategy<Value = String>) -> impl Strategy<Value = Vec<u8>> {
    let edit = proptest::option::weighted(0.1, (any::<Index>(), any::<u8>()));
    (text, edit).prop_map(|(text, edit)| {
        let mut bytes = text.into_bytes();
        if let (Some((at, byte)), false) = (edit, bytes.is_empty()) {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes
    })
}
