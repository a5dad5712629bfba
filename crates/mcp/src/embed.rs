//! `embed`: texts as vectors.

use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::caller::ToolCaller;
use super::tool::ToolEntry;
use super::tool_error::ToolError;
use super::usable_model::UsableModel;
use super::{arguments, schema};
use tollgate_protocols::Operation;

/// Texts in one call: an agent reads every number of their vectors.
pub(super) const INPUTS_MAX: usize = 100;

/// Tool that embeds texts.
pub(super) const TOOL: ToolEntry = ToolEntry {
    name: "embed",
    title: "Embed texts",
    description: "Turns texts into vectors.",
    operations: &[Operation::Embeddings],
    is_read_only: false,
    schema,
    call: |caller, arguments| Box::pin(call(caller, arguments)),
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EmbedArguments {
    model: String,
    input: TextOrTexts,
    dimensions: Option<u32>,
    extra: Option<Map<String, Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum TextOrTexts {
    One(String),
    Many(Vec<String>),
}

/// Schema of the arguments, and the required ones.
pub(super) fn schema(usable: &[UsableModel<'_>]) -> (Value, &'static [&'static str]) {
    let mut dimensions =
        json!({"type": "integer", "minimum": 1, "description": "Numbers in a vector."});
    let lists = || usable.iter().map(|usable| &usable.model.limits.dimensions);
    if lists().all(|list| !list.is_empty()) {
        let mut all: Vec<u32> = lists().flatten().copied().collect();
        all.sort_unstable();
        all.dedup();
        dimensions["enum"] = json!(all);
    }
    let properties = json!({
        "model": schema::model(usable),
        "input": {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": INPUTS_MAX}],
            "description": "One text, or several.",
        },
        "dimensions": dimensions,
        "extra": schema::extra(),
    });
    (properties, &["model", "input"])
}

/// Embeds the texts.
///
/// # Errors
/// What is wrong with the arguments, and what the gateway refuses.
pub(super) async fn call(
    caller: &ToolCaller,
    arguments: JsonObject,
) -> Result<CallToolResult, ToolError> {
    let arguments: EmbedArguments = arguments::read(arguments)?;
    let input = match arguments.input {
        TextOrTexts::One(text) => json!(text),
        // Checked here: the answer to more would not fit an agent, and would be paid for.
        TextOrTexts::Many(texts) if texts.len() > INPUTS_MAX => {
            let message =
                format!("`input` has more than {INPUTS_MAX} texts: embed them over HTTP.");
            return Err(ToolError::arguments(message));
        }
        TextOrTexts::Many(texts) => json!(texts),
    };
    // `base64`, the default of some SDKs, would be no list of numbers to an agent.
    let mut body = json!({"model": arguments.model, "input": input, "encoding_format": "float"});
    if let Some(dimensions) = arguments.dimensions {
        body["dimensions"] = json!(dimensions);
    }
    arguments::add(&mut body, arguments.extra);
    let mut answer = caller.post(Operation::Embeddings, &body).await?;
    let mut document = answer.json()?;
    let vectors: Vec<Value> = match document["data"].take() {
        Value::Array(data) => data.into_iter().map(|mut one| one["embedding"].take()).collect(),
        _ => Vec::new(),
    };
    let numbers = vectors.first().and_then(Value::as_array).map_or(0, Vec::len);
    let count = match vectors.len() {
        1 => "1 vector".to_owned(),
        count => format!("{count} vectors"),
    };
    let text = format!("{count} of {numbers} numbers, in `embeddings` of the structured content.");
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(answer.with_cost(json!({
        "model": document["model"],
        "embeddings": vectors,
        "usage": document["usage"],
    })));
    Ok(result)
}
