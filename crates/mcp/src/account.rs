//! `list_models` and `get_balance`: what there is, and what is left.

use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use serde::Deserialize;
use serde_json::{Value, json};

use super::caller::ToolCaller;
use super::tool::ToolEntry;
use super::tool_error::ToolError;
use super::usable_model::{UsableModel, usable_models};
use super::{arguments, schema};
use tollgate_protocols::Operation;

/// Tool that lists the models of the key.
pub(super) const MODELS: ToolEntry = ToolEntry {
    name: "list_models",
    title: "List the models",
    description: "Lists the models that this key may use, what each can do, and its limits.",
    operations: &[],
    is_read_only: true,
    schema: no_arguments,
    call: |caller, arguments| Box::pin(models(caller, arguments)),
};

/// Tool that reads the balance of the account.
pub(super) const BALANCE: ToolEntry = ToolEntry {
    name: "get_balance",
    title: "Read the balance",
    description: "Tells how much money the account has, in US dollars.",
    operations: &[],
    is_read_only: true,
    schema: no_arguments,
    call: |caller, arguments| Box::pin(balance(caller, arguments)),
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NoArguments {}

/// The arguments of a tool that takes none.
pub(super) fn no_arguments(_: &[UsableModel<'_>]) -> (Value, &'static [&'static str]) {
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
    let NoArguments {} = arguments::read(arguments)?;
    // The same request as over HTTP, for the same checks; what it answers says too little.
    caller.get("/v1/models".to_owned()).await?;
    let mut lines = String::new();
    let mut models = Vec::new();
    for usable in usable_models(&caller.snapshot, &caller.key, &Operation::ALL) {
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
    let NoArguments {} = arguments::read(arguments)?;
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
