//! `generate_image`: images from a text.

use rmcp::model::{CallToolResult, JsonObject};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::caller::{GatewayAnswer, ToolCaller};
use super::media::{self, MediaKind, ResultMedia};
use super::tool::ToolEntry;
use super::tool_error::ToolError;
use super::usable_model::UsableModel;
use super::{arguments, schema};
use tollgate_money::price::Quality;
use tollgate_protocols::limits::ImageFormat;
use tollgate_protocols::plain::PlainImage;
use tollgate_protocols::{Dialect, Operation};

/// Tool that makes images from a text.
pub(super) const TOOL: ToolEntry = ToolEntry {
    name: "generate_image",
    title: "Make images",
    description: "Makes images from a text, with some models also from other images.",
    operations: &[Operation::ImageGeneration],
    is_read_only: false,
    schema,
    call: |caller, arguments| Box::pin(call(caller, arguments)),
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ImageArguments {
    model: String,
    prompt: String,
    n: Option<u32>,
    size: Option<String>,
    quality: Option<String>,
    output_format: Option<String>,
    #[serde(default)]
    image_urls: Vec<String>,
    extra: Option<Map<String, Value>>,
}

/// Parameters that both tools for images share.
pub(super) fn common(usable: &[UsableModel<'_>]) -> Value {
    let qualities = |usable: &UsableModel<'_>| usable.model.limits.images.qualities.clone();
    let formats = |usable: &UsableModel<'_>| usable.model.limits.images.output_formats.clone();
    json!({
        "model": schema::model(usable),
        "prompt": {"type": "string", "minLength": 1, "description": "What is to be seen."},
        "n": schema::count(usable),
        "size": schema::size(usable),
        "quality": schema::words(usable, qualities, Quality::as_str, "How much care is taken."),
        "output_format": schema::words(usable, formats, ImageFormat::as_str, "The file's format."),
        "extra": schema::extra(),
    })
}

/// Schema of the arguments, and the required ones.
pub(super) fn schema(usable: &[UsableModel<'_>]) -> (Value, &'static [&'static str]) {
    let mut properties = common(usable);
    let max = usable.iter().map(|usable| usable.model.limits.images.references_max).max();
    if max.is_some_and(|max| max > 0) {
        properties["image_urls"] = json!({
            "type": "array",
            "items": {"type": "string", "format": "uri"},
            "maxItems": max,
            "description": "Public https URLs of images to go by, for models that take some.",
        });
    }
    (properties, &["model", "prompt"])
}

/// Generates the images.
///
/// # Errors
/// What is wrong with the arguments, and what the gateway refuses.
pub(super) async fn call(
    caller: &ToolCaller,
    arguments: JsonObject,
) -> Result<CallToolResult, ToolError> {
    let arguments: ImageArguments = arguments::read(arguments)?;
    let plain = PlainImage {
        model: &arguments.model,
        prompt: &arguments.prompt,
        count: arguments.n,
        size: arguments.size.as_deref(),
        quality: arguments.quality.as_deref(),
        output_format: arguments.output_format.as_deref(),
        image_urls: &arguments.image_urls,
    };
    let mut body = plain.body(dialect(caller, &arguments.model));
    arguments::add(&mut body, arguments.extra);
    let mut answer = caller.post(Operation::ImageGeneration, &body).await?;
    result(caller, &mut answer)
}

/// The dialect in which a model is asked: that of its first target.
pub(super) fn dialect(caller: &ToolCaller, model: &str) -> Dialect {
    let target = caller.snapshot.model(model).and_then(|model| model.targets.first());
    // A body for one dialect is refused by a target of another, so the first target decides.
    target.map_or(Dialect::Openai, |target| target.upstream.dialect)
}

/// The images of an answer, in any of the shapes in which there are some.
///
/// # Errors
/// An answer that is none.
pub(super) fn result(
    caller: &ToolCaller,
    answer: &mut GatewayAnswer,
) -> Result<CallToolResult, ToolError> {
    let document = answer.json()?;
    let mut media = ResultMedia::new(caller.snapshot.mcp.media_bytes_max);
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for image in items(&document["data"]) {
        // OpenAI's shape; DashScope's follows.
        if let Some(data) = image["b64_json"].as_str() {
            media.add_base64(MediaKind::Image, data, media::image_type(data));
        } else if let Some(url) = image["url"].as_str() {
            media.add_url(MediaKind::Image, url);
        }
    }
    for choice in items(&document["output"]["choices"]) {
        for block in items(&choice["message"]["content"]) {
            if let Some(url) = block["image"].as_str() {
                media.add_url(MediaKind::Image, url);
            }
        }
    }
    let ResultMedia { content, entries, .. } = media;
    let mut result = CallToolResult::success(content);
    let structured = json!({"images": entries, "usage": document["usage"]});
    result.structured_content = Some(answer.with_cost(structured));
    Ok(result)
}
