//! The tools: one row each.

use futures_util::future::BoxFuture;
use rmcp::model::{CallToolResult, JsonObject, Tool, ToolAnnotations};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::caller::ToolCaller;
use super::refused::ToolError;
use super::usable::{Usable, usable};
use super::{account, chat, edit, embed, images, schema, speak, video};
use tollgate_config::snapshot::Snapshot;
use tollgate_ledger::Key;
use tollgate_protocols::Operation;

/// Result of a tool call.
pub(super) type ToolFuture<'a> = BoxFuture<'a, Result<CallToolResult, ToolError>>;

/// A tool that agents can call: its name, its arguments and what it does.
pub(super) struct ToolEntry {
    pub(super) name: &'static str,
    title: &'static str,
    description: &'static str,
    /// It is there for who may use a model that does one of these; none, and it is there for all.
    operations: &'static [Operation],
    /// True if the tool changes nothing and is free.
    is_read_only: bool,
    schema: fn(&[Usable<'_>]) -> (Value, &'static [&'static str]),
    pub(super) call: for<'a> fn(&'a ToolCaller, JsonObject) -> ToolFuture<'a>,
}

/// Every tool, in the order in which they are listed.
pub(super) static ROWS: [ToolEntry; 9] = [
    ToolEntry {
        name: chat::NAME,
        title: "Ask a model",
        description: "Sends messages to a language model and returns its answer.",
        operations: &[Operation::Chat, Operation::Messages],
        is_read_only: false,
        schema: chat::schema,
        call: |caller, arguments| Box::pin(chat::call(caller, arguments)),
    },
    ToolEntry {
        name: "generate_image",
        title: "Make images",
        description: "Makes images from a text, with some models also from other images.",
        operations: &[Operation::ImageGeneration],
        is_read_only: false,
        schema: images::schema,
        call: |caller, arguments| Box::pin(images::call(caller, arguments)),
    },
    ToolEntry {
        name: "edit_image",
        title: "Edit images",
        description: "Changes images, given as base64, as a text says.",
        operations: &[Operation::ImageEdit],
        is_read_only: false,
        schema: edit::schema,
        call: |caller, arguments| Box::pin(edit::call(caller, arguments)),
    },
    ToolEntry {
        name: "submit_video",
        title: "Begin a video",
        description: "Begins to make a video and returns the id of its task at once. Making it takes \
                      minutes: ask for it with `get_video`.",
        operations: &[Operation::Video],
        is_read_only: false,
        schema: video::submit_schema,
        call: |caller, arguments| Box::pin(video::submit(caller, arguments)),
    },
    ToolEntry {
        name: "get_video",
        title: "Look after a video",
        description: "Tells how far a video is, and where it is to be had once it is made. Waits for \
                      its end if asked to.",
        operations: &[Operation::Video],
        is_read_only: true,
        schema: video::get_schema,
        call: |caller, arguments| Box::pin(video::get(caller, arguments)),
    },
    ToolEntry {
        name: "embed",
        title: "Embed texts",
        description: "Turns texts into vectors.",
        operations: &[Operation::Embeddings],
        is_read_only: false,
        schema: embed::schema,
        call: |caller, arguments| Box::pin(embed::call(caller, arguments)),
    },
    ToolEntry {
        name: "speak",
        title: "Speak a text",
        description: "Speaks a text and returns the audio.",
        operations: &[Operation::Speech],
        is_read_only: false,
        schema: speak::schema,
        call: |caller, arguments| Box::pin(speak::call(caller, arguments)),
    },
    ToolEntry {
        name: "list_models",
        title: "List the models",
        description: "Lists the models that this key may use, what each can do, and its limits.",
        operations: &[],
        is_read_only: true,
        schema: account::no_arguments,
        call: |caller, arguments| Box::pin(account::models(caller, arguments)),
    },
    ToolEntry {
        name: "get_balance",
        title: "Read the balance",
        description: "Tells how much money the account has, in US dollars.",
        operations: &[],
        is_read_only: true,
        schema: account::no_arguments,
        call: |caller, arguments| Box::pin(account::balance(caller, arguments)),
    },
];

impl ToolEntry {
    /// The tool as this key sees it; `None` if it could do nothing with it.
    pub(super) fn tool(&self, snapshot: &Snapshot, key: &Key) -> Option<Tool> {
        let usable = usable(snapshot, key, self.operations);
        if usable.is_empty() && !self.operations.is_empty() {
            return None;
        }
        let (properties, required) = (self.schema)(&usable);
        let annotations = ToolAnnotations::from_raw(
            None,
            Some(self.is_read_only),
            Some(false),
            Some(self.is_read_only),
            Some(!self.operations.is_empty()),
        );
        let schema = schema::object(properties, required);
        let tool = Tool::new(self.name, self.description, schema);
        Some(tool.with_title(self.title).with_annotations(annotations))
    }
}

/// The arguments of a call.
///
/// # Errors
/// What they lack, or have too much.
pub(super) fn read<'de, T: Deserialize<'de>>(arguments: JsonObject) -> Result<T, ToolError> {
    serde_path_to_error::deserialize(Value::Object(arguments)).map_err(|error| {
        let path = error.path().to_string();
        let at = if path == "." { String::new() } else { format!("`{path}`: ") };
        ToolError::arguments(format!("{at}{}", error.into_inner()))
    })
}

/// Adds the fields that the tool has no argument for. What it has one for is not theirs to say, but
/// objects are put together.
pub(super) fn add(body: &mut Value, extra: Option<Map<String, Value>>) {
    let Value::Object(body) = body else { return };
    for (name, value) in extra.into_iter().flatten() {
        match (body.get_mut(&name), value) {
            (None, value) => {
                body.insert(name, value);
            }
            (Some(Value::Object(own)), Value::Object(more)) => {
                for (name, value) in more {
                    own.entry(name).or_insert(value);
                }
            }
            (Some(_), _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn more_fields_do_not_change_those_of_the_tool() {
        let mut body = json!({"model": "m", "parameters": {"n": 1}});
        let more = json!({"model": "other", "parameters": {"n": 9, "seed": 7}, "user": "me"});
        let Value::Object(more) = more else { panic!("an object") };
        add(&mut body, Some(more));
        assert_eq!(body, json!({"model": "m", "parameters": {"n": 1, "seed": 7}, "user": "me"}));
    }
}
