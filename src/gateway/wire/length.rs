//! Lengths of bodies, as their heads declare them.

use std::str::FromStr;

use http::header::{CONTENT_LENGTH, EXPECT};
use http::{HeaderValue, Version};
use pingora_proxy::Session;

/// A body of at most this size is sooner read than a connection made anew.
pub(crate) const SHORT_BYTES_MAX: usize = 64 * 1024;

/// True if reading the rest of the body is cheaper than a new connection.
pub(crate) fn is_short(session: &Session) -> bool {
    content_length(session).is_some_and(|length| length <= SHORT_BYTES_MAX)
        && !expects_continue(session)
}

/// True if the client waits for `100 Continue`. Clients of HTTP/1.0 cannot (RFC 9110, section 10.1.1).
pub(crate) fn expects_continue(session: &Session) -> bool {
    session.req_header().version != Version::HTTP_10
        && session.get_header_bytes(EXPECT).eq_ignore_ascii_case(b"100-continue")
}

pub(crate) fn content_length(session: &Session) -> Option<usize> {
    declared_length(session.req_header().headers.get(CONTENT_LENGTH))
}

/// Length of a body from its `Content-Length`, in bytes; `None` without one.
pub(crate) fn declared_length<N: FromStr>(length: Option<&HeaderValue>) -> Option<N> {
    length?.to_str().ok()?.parse().ok()
}
