//! `chunking_strategy`: how the upstream cuts the audio before a model hears it, chunk by chunk.

use serde_json::Value;

use super::AudioForm;
use tollgate_types::error::GatewayError;

/// The field, and its members as SDKs write them that take objects of forms apart.
pub(in super::super) const FIELDS: [&str; 5] = [
    "chunking_strategy",
    "chunking_strategy[type]",
    "chunking_strategy[prefix_padding_ms]",
    "chunking_strategy[silence_duration_ms]",
    "chunking_strategy[threshold]",
];
/// Maximum length of a chunk: speech models process 30 s at a time (OpenAI's API reference requires chunking
/// above that).
const CHUNK_SECONDS_MAX: u64 = 30;
/// Maximum repeated audio before a chunk: more would be billed several times.
const PADDING_MS_MAX: u64 = 1000;

/// The seconds after which the audio is cut at the latest, if it is.
pub(super) fn read(fields: &AudioForm<'_>) -> Result<Option<u64>, GatewayError> {
    const FIELD: &str = "chunking_strategy";
    let whole = fields.text(FIELD)?;
    let padding = fields.text("chunking_strategy[prefix_padding_ms]")?;
    let has_members = FIELDS.iter().skip(1).any(|name| fields.form.files(&[name]).next().is_some());
    let padding = match whole {
        Some(_) if has_members => return Err(invalid("`chunking_strategy` is given in two ways")),
        None if !has_members => return Ok(None),
        None => padding.map(|text| text.parse().ok()),
        Some("" | "null") => return Ok(None),
        Some("auto") => None,
        Some(text) => padding_of(text)?.map(|padding| padding.as_u64()),
    };
    if padding.is_some_and(|padding| padding.is_none_or(|padding| padding > PADDING_MS_MAX)) {
        let message = "`chunking_strategy` must have a `prefix_padding_ms` from 0 to 1000: what is heard \
                       twice is billed twice";
        return Err(invalid(message));
    }
    Ok(Some(CHUNK_SECONDS_MAX))
}

/// The padding in a strategy that is written as JSON.
fn padding_of(text: &str) -> Result<Option<Value>, GatewayError> {
    let invalid = || invalid("`chunking_strategy` must be `auto` or an object with a `type`");
    let object = crate::json::Object::parse(text.as_bytes()).map_err(|_| invalid())?;
    let keys = ["type", "prefix_padding_ms", "silence_duration_ms", "threshold"];
    if !object.keys().all(|key| keys.contains(&key)) {
        return Err(invalid());
    }
    let padding = object.get_non_null("prefix_padding_ms");
    padding.map(|value| serde_json::from_slice(value.text()).map_err(|_| invalid())).transpose()
}

fn invalid(message: &'static str) -> GatewayError {
    GatewayError::invalid("chunking_strategy", message)
}
