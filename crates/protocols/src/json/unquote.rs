//! Strings without their quotes and escapes.

use std::borrow::Cow;

use super::find::has_backslash;

/// Decodes a quoted string; `None` for anything else.
pub(super) fn unquote(quoted: &str) -> Option<Cow<'_, str>> {
    let inner = quoted.strip_prefix('"')?.strip_suffix('"')?;
    if !has_backslash(inner.as_bytes()) {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str::<String>(quoted).ok().map(Cow::Owned)
}

/// The text between the quotes of a valid string, without its escapes.
pub(super) fn unquote_text(inner: &str) -> Cow<'_, str> {
    if !has_backslash(inner.as_bytes()) {
        return Cow::Borrowed(inner);
    }
    let quoted = format!("\"{inner}\"");
    serde_json::from_str::<String>(&quoted).map_or(Cow::Borrowed(inner), Cow::Owned)
}
