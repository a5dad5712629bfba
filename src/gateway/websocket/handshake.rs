//! Opening handshake of a WebSocket (RFC 6455, section 4.2).

use http::header::{
    CONNECTION, CONTENT_LENGTH, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION,
    TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Method, Version};
use pingora::http::RequestHeader;
use tungstenite::handshake::derive_accept_key;

use crate::error::GatewayError;
use crate::gateway::wire::head::{self, AnswerHead, X_REQUEST_ID};
use crate::ids::RequestId;

/// The only version of the protocol.
const VERSION: &[u8] = b"13";
/// Length of 16 bytes in base64, the form of every key.
const KEY_BYTES: usize = 24;

/// True if a request asks for an upgrade to a WebSocket, also where a proxy in front has dropped the
/// hop-by-hop headers.
pub(crate) fn is_upgrade(head: &RequestHeader) -> bool {
    let is_upgrade = is_passed_on(&head.headers) || head.headers.contains_key(SEC_WEBSOCKET_KEY);
    head.method == Method::GET && is_upgrade
}

/// True if the connection of the request can become a WebSocket. Over HTTP/2 another handshake would be
/// needed (RFC 8441), which no agent uses.
pub(crate) fn can_be_had(head: &RequestHeader) -> bool {
    head.version == Version::HTTP_11 && is_passed_on(&head.headers)
}

fn is_passed_on(headers: &HeaderMap) -> bool {
    let mut protocols = headers.get_all(UPGRADE).iter();
    protocols.any(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// The value of `Sec-WebSocket-Accept` for a request that asks for a WebSocket.
///
/// # Errors
/// What of the request is not as the protocol has it. Nothing can come with it: what a body is to some
/// would be messages to others.
pub(super) fn accept(headers: &HeaderMap) -> Result<String, GatewayError> {
    let refused =
        |header: &'static str, message: &'static str| Err(GatewayError::invalid(header, message));
    if !lists(headers, CONNECTION.as_str(), b"upgrade") {
        return refused("connection", "A WebSocket needs `Connection: Upgrade`.");
    }
    let is_empty = |value: &HeaderValue| value.as_bytes() == b"0";
    let has_body = headers.contains_key(TRANSFER_ENCODING)
        || !headers.get(CONTENT_LENGTH).is_none_or(is_empty);
    if has_body {
        return refused("content-length", "A request for a WebSocket has no body.");
    }
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version.as_bytes() != VERSION) {
        return refused("sec-websocket-version", "`Sec-WebSocket-Version` must be 13.");
    }
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
    let key = headers.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes).unwrap_or_default();
    if key.len() != KEY_BYTES || !key.iter().all(is_letter) {
        return refused("sec-websocket-key", "`Sec-WebSocket-Key` must be 16 bytes in base64.");
    }
    Ok(derive_accept_key(key))
}

/// True if a list-valued header contains the token.
fn lists(headers: &HeaderMap, name: &str, word: &[u8]) -> bool {
    let mut words =
        headers.get_all(name).iter().flat_map(|value| value.as_bytes().split(|b| *b == b','));
    words.any(|found| found.trim_ascii().eq_ignore_ascii_case(word))
}

/// The head of the answer with which the WebSocket begins. No extension is agreed on: what is compressed
/// has no size that could be bounded before it is read.
pub(super) fn head(accept: &str, id: RequestId) -> AnswerHead {
    let mut answer = head::of(101);
    let headers = &mut answer.headers;
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    // It is base64.
    let accept = HeaderValue::from_str(accept).unwrap_or(HeaderValue::from_static(""));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    headers.insert(X_REQUEST_ID, head::id(id));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 6455, section 1.3.
    const GOOD: [(&str, &str); 4] = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];

    fn accepted(changed: &[(&'static str, &'static str)]) -> Result<String, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in GOOD.iter().chain(changed) {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        accept(&headers).map_err(|error| error.param.unwrap_or_default().into_owned())
    }

    #[test]
    fn the_example_of_the_standard_is_accepted() {
        assert_eq!(accepted(&[]).as_deref(), Ok("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert!(accepted(&[("content-length", "0")]).is_ok());
        assert_eq!(head("x", RequestId::from_number(1)).status.as_u16(), 101);
    }

    #[test]
    fn what_is_not_as_the_protocol_has_it_is_refused_by_name() {
        for (name, value) in [
            ("connection", "keep-alive"),
            ("sec-websocket-version", "8"),
            ("sec-websocket-key", "dGhlIHNhbXBsZQ=="),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ\u{3d} "),
            ("content-length", "5"),
        ] {
            assert_eq!(accepted(&[(name, value)]), Err(name.to_owned()), "{value}");
        }
        let chunked = accepted(&[("transfer-encoding", "chunked")]);
        assert_eq!(chunked, Err("content-length".to_owned()));
    }
}
