//! Calls of browsers from other origins (Fetch standard, "CORS protocol"). Nothing here goes by
//! cookies, so any origin may ask; whose page holds a key is its owner's affair.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderValue, Method};
use pingora::http::RequestHeader;

use crate::gateway::wire::head::{self, AnswerHead, AnswerHeaders};

/// Response headers that pages may read: those that SDKs act on.
const EXPOSED: &str = "x-request-id, request-id, retry-after, retry-after-ms, x-should-retry, \
    x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, \
    x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens, \
    x-tollgate-left-out, x-tollgate-max-tokens, x-tollgate-model";
const METHODS: &str = "GET, HEAD, POST, DELETE, OPTIONS";
/// Lifetime of a preflight answer in a browser's cache, in seconds. Chromium caps it at two hours.
const MAX_AGE: &str = "7200";

/// True for a CORS preflight request.
pub(crate) fn is_preflight(head: &RequestHeader) -> bool {
    head.method == Method::OPTIONS
        && head.headers.contains_key(ORIGIN)
        && head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The answer: it may.
pub(crate) fn preflight(head: &RequestHeader) -> AnswerHead {
    let mut answer = head::of(204);
    let headers = &mut answer.headers;
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    // SDKs send many headers of their own, and `*` does not stand for `authorization`.
    if let Some(requested) = head.headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, requested.clone());
        headers.insert(VARY, HeaderValue::from_static("access-control-request-headers"));
    }
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
    answer
}

/// Adds the headers that let the calling page read the response.
pub(crate) fn allow(answer: &mut AnswerHeaders, head: &RequestHeader) {
    if head.headers.contains_key(ORIGIN) {
        answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    }
}
