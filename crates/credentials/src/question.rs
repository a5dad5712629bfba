//! What whoever issues tokens is asked, and what they grant.

use std::time::Duration;

use http::HeaderMap;
use http::header::DATE;
use tollgate_types::clock::UnixMs;
use url::Url;

use crate::issued::Proof;

/// The longest token, in bytes: what a request's head can take.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// A form for whoever issues tokens.
pub(crate) struct TokenRequest<'a> {
    pub(crate) url: &'a Url,
    pub(crate) form: String,
    pub(crate) headers: HeaderMap,
}

/// What was issued, and for how long it is good.
pub(crate) struct Grant {
    pub(crate) proof: Proof,
    pub(crate) life: Duration,
}

/// Whether a text can be sent in a header.
pub(crate) fn is_sendable(text: &str) -> bool {
    (1..=TOKEN_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// How far the clock of whoever has answered is ahead of ours, in milliseconds.
pub(crate) fn ahead_ms(headers: &HeaderMap) -> Option<i64> {
    let date = httpdate::parse_http_date(headers.get(DATE)?.to_str().ok()?).ok()?;
    let theirs = date.duration_since(std::time::UNIX_EPOCH).ok()?.as_millis();
    let (theirs, ours) = (i64::try_from(theirs).ok()?, i64::try_from(UnixMs::now().0).ok()?);
    Some(theirs.saturating_sub(ours))
}
