//! Inputs of tool calls: free text in dialects that know JSON objects only, and what is no object.

use std::borrow::Cow;

use serde::Deserialize;

use crate::dialect::Untranslatable;
use crate::field_path;
use crate::json::{self, Members};
use crate::part::ToolCall;

/// The schema of a tool that takes free text, in dialects that know JSON objects only.
pub(crate) const FREE_SCHEMA: &str = r#"{"type":"object","properties":{"input":{"type":"string","description":"The whole input of the tool, as free text."}},"required":["input"],"additionalProperties":false}"#;

/// Free text as the JSON object of [`FREE_SCHEMA`].
pub(crate) fn wrap_free(text: &str) -> String {
    let mut out = Vec::new();
    let mut object = Members::object(&mut out);
    object.text(&mut out, "input", text);
    object.end(&mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// The free text in a JSON object of [`FREE_SCHEMA`]; any other text is returned unchanged.
#[must_use]
pub fn unwrap_free(input: &str) -> Cow<'_, str> {
    #[derive(Deserialize)]
    struct WrappedInput<'a> {
        #[serde(borrow)]
        input: Cow<'a, str>,
    }
    json::read::<WrappedInput<'_>>(input).map_or(Cow::Borrowed(input), |wrapped| wrapped.input)
}

/// The input of a call as a JSON object, in dialects that know nothing else.
pub(crate) fn object_input<'c>(call: &'c ToolCall<'_>) -> Result<Cow<'c, str>, Untranslatable> {
    if call.is_free {
        return Ok(wrap_free(&call.input).into());
    }
    match call.input.trim() {
        "" => Ok("{}".into()),
        input if field_path::is_object(input) => Ok(Cow::Borrowed(&call.input)),
        _ => Err(Untranslatable::malformed("arguments", "a JSON object")),
    }
}

/// The member in which an input stands that is no JSON object, as models write them, and as an answer
/// leaves them that reaches its limit. It is the name that Anthropic's documentation of tool streaming
/// has for it.
const INVALID_INPUT: &str = "INVALID_JSON";

/// Writes the input of a call as a JSON object, in dialects whose answers have nothing else.
pub(crate) fn push_input(input: &str, out: &mut Vec<u8>) {
    match input.trim() {
        "" => out.extend_from_slice(b"{}"),
        object if field_path::is_object(object) => out.extend_from_slice(input.as_bytes()),
        _ => {
            let mut wrapped = Members::object(out);
            wrapped.text(out, INVALID_INPUT, input);
            wrapped.end(out);
        }
    }
}
