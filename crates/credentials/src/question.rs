//! Token requests and the grants in their responses.

use std::time::Duration;

use http::HeaderMap;
use http::header::DATE;
use tollgate_types::clock::UnixMs;
use url::Url;

use crate::issued::Proof;

/// The longest token, in bytes: what a request's head can take.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// A form for a token endpoint.
pub(crate) struct TokenRequest<'a> {
    pub(crate) url: &'a Url,
    pub(crate) form: String,
    pub(crate) headers: HeaderMap,
}

/// An issued credential and its lifetime.
pub(crate) struct TokenGrant {
    pub(crate) proof: Proof,
    pub(crate) life: Duration,
}

/// True if a text is valid in an HTTP header.
pub(crate) fn is_sendable(text: &str) -> bool {
    (1..=TOKEN_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Reads the offset of the responding server's clock from its `Date` header, in milliseconds; positive if it
/// is ahead.
pub(crate) fn ahead_ms(headers: &HeaderMap) -> Option<i64> {
    let date = httpdate::parse_http_date(headers.get(DATE)?.to_str().ok()?).ok()?;
    let theirs = date.duration_since(std::time::UNIX_EPOCH).ok()?.as_millis();
    let (theirs, ours) = (i64::try_from(theirs).ok()?, i64::try_from(UnixMs::now().0).ok()?);
    Some(theirs.saturating_sub(ours))
}
