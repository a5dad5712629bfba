//! The messages of a conversation, as callers write them and as each of the two protocols has them:
//! calls of functions and their answers too.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::text::{BorrowedText, ObjectTree, TextOrTree};
use super::tool_error::ToolError;
use super::writer::ObjectWriter;

/// A message, in the words of chat completions.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChatMessage<'a> {
    pub(super) role: Role,
    #[serde(borrow, default)]
    pub(super) content: TextOrTree<'a>,
    /// Tool calls of the assistant, as `tool_calls` of an earlier answer.
    tool_calls: Option<Vec<ObjectTree>>,
    /// Tool call that a message of the role `tool` answers.
    #[serde(borrow)]
    tool_call_id: Option<BorrowedText<'a>>,
}

/// Role of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    /// Instructions for the model.
    System,
    /// The user.
    User,
    /// The model, which answers.
    Assistant,
    /// A function that the model called.
    Tool,
}

impl Role {
    fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// The schema of one message.
pub(super) fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "role": {"type": "string", "enum": ["system", "user", "assistant", "tool"]},
            "content": {
                "description": "A text, or parts as the model's own API has them. May be null beside `tool_calls`.",
                "anyOf": [
                    {"type": "string"},
                    {"type": "array", "items": {"type": "object"}},
                    {"type": "null"},
                ],
            },
            "tool_calls": {
                "type": "array",
                "items": {"type": "object"},
                "description": "What the assistant called: the `tool_calls` of an earlier answer.",
            },
            "tool_call_id": {
                "type": "string",
                "description": "With the role `tool`: the `id` of the call that this answers.",
            },
        },
        "required": ["role"],
        "additionalProperties": false,
    })
}

impl<'a> ChatMessage<'a> {
    /// A message with nothing but a content.
    pub(super) fn new(role: Role, content: BorrowedText<'a>) -> Self {
        Self { role, content: content.into(), tool_calls: None, tool_call_id: None }
    }

    /// Appends it, its members in the order of their names.
    pub(super) fn write(&self, json: Vec<u8>) -> Vec<u8> {
        let mut message = ObjectWriter::new(json);
        message.text_or_tree("content", &self.content);
        message.text("role", self.role.as_str());
        if let Some(id) = &self.tool_call_id {
            message.text("tool_call_id", id);
        }
        if let Some(calls) = &self.tool_calls {
            message.value("tool_calls", calls);
        }
        message.end()
    }

    /// Check the fields that the message's role requires.
    ///
    /// # Errors
    /// What is missing, or too much.
    pub(super) fn check(&self) -> Result<(), ToolError> {
        let wrong = match self.role {
            Role::Tool if self.tool_call_id.is_none() => {
                "A message of the role `tool` needs the `tool_call_id` that it answers."
            }
            role if role != Role::Tool && self.tool_call_id.is_some() => {
                "`tool_call_id` is for messages of the role `tool`."
            }
            role if role != Role::Assistant && self.tool_calls.is_some() => {
                "`tool_calls` are for messages of the role `assistant`."
            }
            _ if self.content.is_null() && self.tool_calls.is_none() => {
                "A message needs a `content`."
            }
            _ => return Ok(()),
        };
        Err(ToolError::arguments(wrong))
    }

    /// The messages for Anthropic's API, where results of functions belong to the user.
    ///
    /// # Errors
    /// Calls that are none.
    pub(super) fn in_messages(&self) -> Result<Value, ToolError> {
        if let Some(id) = &self.tool_call_id {
            let answer = json!({"type": "tool_result", "tool_use_id": id, "content": self.content});
            return Ok(json!({"role": "user", "content": [answer]}));
        }
        let Some(calls) = &self.tool_calls else {
            return Ok(json!({"role": self.role, "content": self.content}));
        };
        let mut blocks = match &self.content {
            TextOrTree::Text(text) if !text.is_empty() => {
                vec![json!({"type": "text", "text": text})]
            }
            TextOrTree::Tree(Value::Array(blocks)) => blocks.clone(),
            _ => Vec::new(),
        };
        for ObjectTree(call) in calls {
            let function = call.get("function").unwrap_or(&Value::Null);
            let input: Option<Value> =
                function["arguments"].as_str().and_then(|text| serde_json::from_str(text).ok());
            let (Some(id), Some(name), Some(input)) =
                (call.get("id"), function["name"].as_str(), input)
            else {
                let message = "A call in `tool_calls` needs `id`, `function.name` and \
                               `function.arguments`, which is JSON in a string.";
                return Err(ToolError::arguments(message));
            };
            blocks.push(json!({"type": "tool_use", "id": id, "name": name, "input": input}));
        }
        Ok(json!({"role": self.role, "content": blocks}))
    }
}

/// Tool calls in an answer of the Messages API, as chat completions write them; null for none.
pub(super) fn calls_in(blocks: &[Value]) -> Value {
    let is_call = |block: &&Value| block["type"] == "tool_use";
    let calls: Vec<Value> = blocks
        .iter()
        .filter(is_call)
        .map(|block| {
            let arguments = block["input"].to_string();
            let function = json!({"name": block["name"], "arguments": arguments});
            json!({"id": block["id"], "type": "function", "function": function})
        })
        .collect();
    if calls.is_empty() { Value::Null } else { calls.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(message: Value) -> Result<ChatMessage<'static>, String> {
        let message = ChatMessage::deserialize(message).map_err(|error| error.to_string())?;
        message.check().map_err(|_| "refused".to_owned())?;
        Ok(message)
    }

    #[test]
    fn a_call_and_its_answer_are_written_in_both_protocols() {
        let call = json!({"id": "call_1", "type": "function",
            "function": {"name": "weather", "arguments": "{\"city\":\"Bern\"}"}});
        let request = json!({"role": "assistant", "content": null, "tool_calls": [call]});
        let answer = json!({"role": "tool", "tool_call_id": "call_1", "content": "rain"});
        for message in [&request, &answer] {
            let read = read(message.clone()).expect("a message");
            assert_eq!(read.write(Vec::new()), message.to_string().into_bytes());
        }
        let translated = read(request).expect("a message").in_messages().expect("translated");
        let used = json!({"type": "tool_use", "id": "call_1", "name": "weather",
            "input": {"city": "Bern"}});
        assert_eq!(translated, json!({"role": "assistant", "content": [used]}));
        let answered = read(answer).expect("a message").in_messages().expect("translated");
        let result = json!({"type": "tool_result", "tool_use_id": "call_1", "content": "rain"});
        assert_eq!(answered, json!({"role": "user", "content": [result]}));
        assert_eq!(calls_in(&[used]), json!([call]), "and back");
        assert_eq!(calls_in(&[json!({"type": "text", "text": "a"})]), Value::Null);
    }

    #[test]
    fn what_belongs_to_another_role_is_refused() {
        for message in [
            json!({"role": "tool", "content": "a"}),
            json!({"role": "user", "content": "a", "tool_call_id": "1"}),
            json!({"role": "user", "content": "a", "tool_calls": []}),
            json!({"role": "user", "content": null}),
            json!({"role": "assistant"}),
            json!({"role": "user", "content": "a", "other": 1}),
        ] {
            assert!(read(message.clone()).is_err(), "{message}");
        }
        let no_json = json!({"role": "assistant", "tool_calls": [{"id": "1",
            "function": {"name": "a", "arguments": "{"}}]});
        assert!(read(no_json).expect("a message").in_messages().is_err());
    }
}
