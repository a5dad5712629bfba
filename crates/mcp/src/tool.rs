//! Descriptor of a tool: its name, its arguments and what it does.

use futures_util::future::BoxFuture;
use rmcp::model::{CallToolResult, JsonObject, Tool, ToolAnnotations};
use serde_json::Value;

use super::caller::ToolCaller;
use super::schema;
use super::tool_error::ToolError;
use super::usable_model::{UsableModel, usable_models};
use tollgate_config::snapshot::Snapshot;
use tollgate_ledger::Key;
use tollgate_protocols::Operation;

/// Result of a tool call.
type ToolFuture<'a> = BoxFuture<'a, Result<CallToolResult, ToolError>>;

/// A tool that agents can call.
pub(super) struct ToolEntry {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) description: &'static str,
    /// Operations of which the key needs a model to see the tool; empty for a tool of every key.
    pub(super) operations: &'static [Operation],
    /// True if the tool changes nothing and is free.
    pub(super) is_read_only: bool,
    pub(super) schema: fn(&[UsableModel<'_>]) -> (Value, &'static [&'static str]),
    pub(super) call: for<'a> fn(&'a ToolCaller, JsonObject) -> ToolFuture<'a>,
}

impl ToolEntry {
    /// The tool as this key sees it; `None` if it could do nothing with it.
    pub(super) fn tool(&self, snapshot: &Snapshot, key: &Key) -> Option<Tool> {
        let usable = usable_models(snapshot, key, self.operations);
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
