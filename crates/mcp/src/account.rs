//! `list_models` and `get_balance`: what there is, and what is left.

use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use serde::Deserialize;
use serde_json::{Value, json};

use super::caller::ToolCaller;
use super::refused::ToolError;
use super::usable::{Usable, usable};
use super::{schema, tools};
use tollgate_protocols::Operation;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoArguments {}

/// The arguments of a tool that takes none.
pub(super) fn no_arguments(_: &[Usable<'_>]) -> (Value, &'static [&'static str]) {
    (json!({}), &[])
}

/// The models, with what each can do.
///
/// # Errors
/// What is wrong with the arguments.
pub(super) async fn models(
    caller: &ToolCaller,
    arguments: JsonObject,
) -> Result<CallToolResult, ToolError> {
    let NoArguments {} = tools::read(arguments)?;
    // The same request as over HTTP, for the same checks; what it answers says too little.
    caller.get("/v1/models".to_owned()).await?;
    let mut lines = String::new();
    let mut models = Vec::new();
    for usable in usable(&caller.snapshot, &caller.key, &Operation::ALL) {
        let operations: Vec<&str> =
            usable.model.served().map(|operation| operation.as_str()).collect();
        lines.push_str(&format!("{}: {}\n", usable.name, operations.join(", ")));
        models.push(json!({
            "id": usable.name,
            "operations": operations,
            "limits": schema::limits(&usable),
        }));
    }
    let mut result = CallToolResult::success(vec![ContentBlock::text(lines)]);
    result.structured_content = Some(json!({"models": models}));
    Ok(result)
}

/// The balance.
///
/// # Errors
/// What is wrong with the arguments, and what the gateway refuses.
pub(super) async fn balance(
    caller: &ToolCaller,
    arguments: JsonObject,
) -> Result<CallToolResult, ToolError> {
    let NoArguments {} = tools::read(arguments)?;
    let balance = caller.get("/v1/balance".to_owned()).await?.json()?;
    let amount = |name: &str| balance[name].as_str().unwrap_or("?").to_owned();
    let mut text = format!(
        "${} available, ${} held by calls under way, ${} spent.",
        amount("available"),
        amount("held"),
        amount("spent")
    );
    if balance["credit_limit"] != "0.00" {
        let (used, line) = (amount("credit_used"), amount("credit_limit"));
        text.push_str(&format!(" ${used} of a credit line of ${line} is used."));
    }
    if balance["debt"] != "0.00" {
        let owed = format!(" ${} is owed, and calls are refused until it is paid.", amount("debt"));
        text.push_str(&owed);
    }
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(balance);
    Ok(result)
}
