//! `chat`: a whole answer of a language model, whichever of the two protocols it is asked in.

use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::caller::ToolCaller;
use super::conversation::{self, ChatMessage, Role};
use super::refused::ToolError;
use super::usable::Usable;
use super::{schema, tools};
use crate::protocols::Operation;

/// What a model of Anthropic's may put out where the caller does not say: its API wants a number.
const MAX_TOKENS_DEFAULT: u64 = 4096;

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

/// The arguments, and those that are needed.
pub(super) fn schema(usable: &[Usable<'_>]) -> (Value, &'static [&'static str]) {
    let tokens = usable.iter().map(|usable| usable.model.limits.output_tokens_max).max();
    let properties = json!({
        "model": schema::model(usable),
        "prompt": {"type": "string", "description": "One message of the user, in the place of `messages`."},
        "messages": {
            "type": "array",
            "minItems": 1,
            "description": "The conversation, the last message at its end.",
            "items": conversation::schema(),
        },
        "system": {"type": "string", "description": "How the model is to behave."},
        "max_tokens": {
            "type": "integer",
            "minimum": 1,
            "maximum": tokens.unwrap_or(1),
            "description": "The longest answer. The most that the call can cost grows with it.",
        },
        "temperature": {"type": "number", "minimum": 0, "maximum": 2},
        "top_p": {"type": "number", "minimum": 0, "maximum": 1},
        "stop": {"type": "array", "items": {"type": "string"}, "description": "Texts to end at."},
        "extra": schema::extra(),
    });
    (properties, &["model"])
}

/// Asks the model.
///
/// # Errors
/// What is wrong with the arguments, and what the gateway refuses.
pub(super) async fn call(
    caller: &ToolCaller,
    arguments: JsonObject,
) -> Result<CallToolResult, ToolError> {
    let arguments: ChatArguments = tools::read(arguments)?;
    let model = caller.snapshot.model(&arguments.model);
    let speaks = |operation| model.is_some_and(|model| model.operations.contains(&operation));
    // Whom nobody knows is refused as such, in one protocol as in the other.
    let by_messages = speaks(Operation::Messages) && !speaks(Operation::Chat);
    let operation = if by_messages { Operation::Messages } else { Operation::Chat };
    let most = model.map_or(0, |model| model.limits.output_tokens_max);
    let mut answer = caller.post(operation, &arguments.body(by_messages, most)?).await?;
    let document = answer.json()?;
    let told = if by_messages { of_messages(&document) } else { of_chat(&document) };
    // What is called is the answer, where nothing is said beside it.
    let is_silent = told.text.is_empty() && !told.tool_calls.is_null();
    let shown = if is_silent { told.tool_calls.to_string() } else { told.text.clone() };
    let mut result = CallToolResult::success(vec![ContentBlock::text(shown)]);
    let mut content = json!({
        "model": document["model"],
        "text": told.text,
        "finish_reason": told.finish_reason,
        "usage": document["usage"],
    });
    if !told.tool_calls.is_null() {
        content["tool_calls"] = told.tool_calls;
    }
    result.structured_content = Some(answer.with_cost(content));
    Ok(result)
}

impl ChatArguments {
    /// The body of the request, in the words of the model's protocol.
    fn body(self, by_messages: bool, output_tokens_max: u64) -> Result<Value, ToolError> {
        let mut messages = match (self.prompt, self.messages) {
            (Some(prompt), None) => vec![ChatMessage::new(Role::User, json!(prompt))],
            (None, Some(messages)) => messages,
            _ => return Err(ToolError::arguments("Give either `prompt` or `messages`.")),
        };
        messages.iter().try_for_each(ChatMessage::check)?;
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
                let is_system = message.role == Role::System;
                system.extend(is_system.then(|| message.content.clone()));
                !is_system
            });
            let texts: Option<Vec<&str>> = system.iter().map(Value::as_str).collect();
            let texts = texts.ok_or_else(|| {
                ToolError::arguments("The content of a system message must be a text.")
            })?;
            say("system", if texts.is_empty() { Value::Null } else { json!(texts.join("\n\n")) });
            let default = MAX_TOKENS_DEFAULT.min(output_tokens_max.max(1));
            say("max_tokens", json!(self.max_tokens.unwrap_or(default)));
            say("stop_sequences", json!(self.stop));
            let said: Result<Vec<Value>, ToolError> =
                messages.iter().map(ChatMessage::in_messages).collect();
            say("messages", json!(said?));
        } else {
            if let Some(system) = self.system {
                messages.insert(0, ChatMessage::new(Role::System, json!(system)));
            }
            say("max_tokens", json!(self.max_tokens));
            say("stop", json!(self.stop));
            say("messages", json!(messages));
        }
        let mut body = Value::Object(body);
        let extra = self.extra.map(|mut extra| {
            // An answer in pieces has no reader here.
            extra.remove("stream");
            extra
        });
        tools::add(&mut body, extra);
        Ok(body)
    }
}

/// What an answer says.
struct ChatReply {
    text: String,
    finish_reason: Value,
    /// The functions that it wants called, as chat completions has them; null for none.
    tool_calls: Value,
}

fn of_chat(document: &Value) -> ChatReply {
    let choice = &document["choices"][0];
    let text = choice["message"]["content"].as_str().unwrap_or_default().to_owned();
    let tool_calls = choice["message"]["tool_calls"].clone();
    ChatReply { text, finish_reason: choice["finish_reason"].clone(), tool_calls }
}

fn of_messages(document: &Value) -> ChatReply {
    let blocks = document["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = blocks.iter().filter_map(|block| block["text"].as_str()).collect();
    let tool_calls = conversation::calls_in(blocks);
    ChatReply { text, finish_reason: document["stop_reason"].clone(), tool_calls }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(arguments: Value, by_messages: bool) -> Result<Value, ToolError> {
        let Value::Object(arguments) = arguments else { panic!("an object") };
        tools::read::<ChatArguments>(arguments)?.body(by_messages, 1000)
    }

    #[test]
    fn both_protocols_are_written() {
        let asked = json!({"model": "m", "prompt": "Hi", "system": "Be brief.", "stop": ["x"]});
        let chat = body(asked.clone(), false).expect("a body");
        let messages = json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
        ]);
        let expected = json!({"model": "m", "messages": messages, "stop": ["x"]});
        assert_eq!(chat, expected);
        let other = body(asked, true).expect("a body");
        let expected = json!({
            "model": "m",
            "system": "Be brief.",
            "messages": [{"role": "user", "content": "Hi"}],
            "max_tokens": 1000,
            "stop_sequences": ["x"],
        });
        assert_eq!(other, expected);
    }

    #[test]
    fn arguments_that_say_two_things_are_refused() {
        for arguments in [
            json!({"model": "m"}),
            json!({"model": "m", "prompt": "a", "messages": []}),
            json!({"prompt": "a"}),
            json!({"model": "m", "prompt": "a", "other": 1}),
            json!({"model": "m", "messages": [{"role": "tool", "content": "a"}]}),
            json!({"model": "m", "messages": "a"}),
            json!({"model": 1, "prompt": "a"}),
        ] {
            assert!(body(arguments.clone(), false).is_err(), "{arguments}");
        }
        let extra = json!({"model": "m", "prompt": "a", "extra": {"stream": true, "model": "n"}});
        let body = body(extra, false).expect("a body");
        assert_eq!((&body["stream"], &body["model"]), (&Value::Null, &json!("m")));
    }
}
