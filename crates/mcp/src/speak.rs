//! `speak`: a text as audio.

use rmcp::model::{CallToolResult, JsonObject};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::caller::ToolCaller;
use super::media::{MediaKind, ResultMedia};
use super::tool::ToolEntry;
use super::tool_error::ToolError;
use super::usable_model::UsableModel;
use super::{arguments, schema};
use tollgate_protocols::Operation;
use tollgate_protocols::limits::AudioFormat;

/// Tool that turns a text into audio.
pub(super) const TOOL: ToolEntry = ToolEntry {
    name: "speak",
    title: "Speak a text",
    description: "Speaks a text and returns the audio.",
    operations: &[Operation::Speech],
    is_read_only: false,
    schema,
    call: |caller, arguments| Box::pin(call(caller, arguments)),
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpeechArguments {
    model: String,
    input: String,
    voice: Option<String>,
    response_format: Option<String>,
    instructions: Option<String>,
    speed: Option<f64>,
    extra: Option<Map<String, Value>>,
}

/// Schema of the arguments, and the required ones.
pub(super) fn schema(usable: &[UsableModel<'_>]) -> (Value, &'static [&'static str]) {
    let max = usable.iter().map(|usable| usable.model.limits.speech.characters_max).max();
    let formats = |usable: &UsableModel<'_>| usable.model.limits.speech.formats.clone();
    let properties = json!({
        "model": schema::model(usable),
        "input": {"type": "string", "minLength": 1, "maxLength": max, "description": "The text."},
        "voice": {"type": "string", "description": "A name of the model's own voices."},
        "response_format": schema::words(usable, formats, AudioFormat::as_str, "The file's format."),
        "instructions": {"type": "string", "description": "How to speak, for models that can be told."},
        "speed": {"type": "number", "exclusiveMinimum": 0},
        "extra": schema::extra(),
    });
    (properties, &["model", "input"])
}

/// Speaks the text.
///
/// # Errors
/// What is wrong with the arguments, and what the gateway refuses.
pub(super) async fn call(
    caller: &ToolCaller,
    arguments: JsonObject,
) -> Result<CallToolResult, ToolError> {
    let SpeechArguments { model, input, voice, response_format, instructions, speed, extra } =
        arguments::read(arguments)?;
    let mut body = json!({"model": model, "input": input});
    for (name, value) in [
        ("voice", json!(voice)),
        ("response_format", json!(response_format)),
        ("instructions", json!(instructions)),
        ("speed", json!(speed)),
    ] {
        if !value.is_null() {
            body[name] = value;
        }
    }
    // One file, not events.
    let extra = extra.map(|mut extra| {
        extra.remove("stream_format");
        extra
    });
    arguments::add(&mut body, extra);
    let answer = caller.post(Operation::Speech, &body).await?;
    let media_type = answer.content_type.split(';').next().unwrap_or_default().trim();
    // An upstream may name no type of audio; MP3 is what the API makes unless asked otherwise.
    let media_type = if media_type.starts_with("audio/") { media_type } else { "audio/mpeg" };
    let mut media = ResultMedia::new(caller.snapshot.mcp.media_bytes_max);
    media.add_bytes(MediaKind::Audio, &answer.body, media_type);
    let ResultMedia { content, entries, .. } = media;
    let mut result = CallToolResult::success(content);
    result.structured_content = Some(answer.with_cost(json!({"audio": entries})));
    Ok(result)
}
