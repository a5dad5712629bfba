//! Errors of the transport in the protocol's words: whatever answers a request that is no message, in the
//! wrong form or by the wrong method, is a JSON-RPC error with the status that HTTP has for it.
//!
//! The protocol's library answers these in plain text, and with a 415 for a body that is no message.
//! Model Context Protocol 2025-06-18, "Transports": an HTTP error may have a JSON-RPC error as its body.
//! JSON-RPC 2.0, section 5.1: -32700 for what is no JSON, -32600 for JSON that is no request.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use rmcp::model::NumberOrString;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

/// HTTP response of the server.
pub(super) type HttpAnswer = Response<BoxBody<Bytes, Infallible>>;

const JSON: &str = "application/json";
/// Error code for invalid JSON.
const PARSE_ERROR: i32 = -32700;
/// The code of JSON that is no request, and of requests that HTTP refuses.
pub(super) const INVALID_REQUEST: i32 = -32600;
/// The longest text of the library's that is passed on, in characters: one of them repeats a header.
const TEXT_CHARS_MAX: usize = 200;
const BATCH: &str = "Batches are not part of the protocol since its version 2025-06-18: send each \
                     message in a request of its own.";

/// The JSON-RPC id of a message, for errors about it.
#[derive(Deserialize)]
struct MessageId {
    #[serde(default)]
    id: Option<NumberOrString>,
}

/// The id of the message that `body` is.
///
/// # Errors
/// The answer to a body that can be none: no JSON, a batch, or no object.
pub(super) fn identify(
    head: &Parts,
    body: &[u8],
) -> Result<Option<NumberOrString>, Box<HttpAnswer>> {
    if head.method != Method::POST || !is_json(&head.headers) {
        return Ok(None);
    }
    let bad =
        |code, message: &str| Err(Box::new(error(StatusCode::BAD_REQUEST, None, code, message)));
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    if first == Some(&b'{')
        && let Ok(MessageId { id }) = serde_json::from_slice(body)
    {
        return Ok(id);
    }
    match serde_json::from_slice::<IgnoredAny>(body) {
        Err(cause) => bad(PARSE_ERROR, &format!("The body is no JSON: {cause}.")),
        Ok(_) => match first {
            Some(b'[') => bad(INVALID_REQUEST, BATCH),
            Some(b'{') => {
                bad(INVALID_REQUEST, "The message has no `id` that is a text or a number.")
            }
            _ => bad(INVALID_REQUEST, "The body is no message: it is no JSON object."),
        },
    }
}

/// The library's answer to the message of this id; an error in plain text becomes one in JSON. `is_json_request`
/// says whether the request has the content type that it must have.
pub(super) async fn enveloped(
    answer: HttpAnswer,
    id: Option<NumberOrString>,
    is_json_request: bool,
) -> HttpAnswer {
    let status = answer.status();
    let is_error = status.is_client_error() || status.is_server_error();
    if !is_error || is_json(answer.headers()) {
        return answer;
    }
    let (mut head, body) = answer.into_parts();
    let Ok(text) = body.collect().await.map(http_body_util::Collected::to_bytes);
    let text: String = String::from_utf8_lossy(&text).chars().take(TEXT_CHARS_MAX).collect();
    // A 415 is the library's answer to a body, too, whose content type is right.
    let is_no_message = is_json_request && status == StatusCode::UNSUPPORTED_MEDIA_TYPE;
    let (status, text) = match is_no_message {
        true => {
            (StatusCode::BAD_REQUEST, "The body is no request or notification of the protocol.")
        }
        false => (status, text.as_str()),
    };
    head.headers.remove(CONTENT_LENGTH);
    let mut answer = error(status, id, INVALID_REQUEST, text);
    let content_type = answer.headers_mut().remove(CONTENT_TYPE);
    // What else HTTP wants there stays, such as `Allow` of a 405.
    *answer.headers_mut() = head.headers;
    answer.headers_mut().extend(content_type.map(|value| (CONTENT_TYPE, value)));
    answer
}

/// An error with this status: an answer to the request of this id, or to none in particular.
pub(super) fn error(
    status: StatusCode,
    id: Option<NumberOrString>,
    code: i32,
    message: &str,
) -> HttpAnswer {
    let error = json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}});
    let mut answer = Response::new(Full::from(Bytes::from(error.to_string())).boxed());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    answer
}

/// True if the content type is JSON.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = value.and_then(|value| value.split(';').next()).map(str::trim);
    essence.is_some_and(|essence| essence.eq_ignore_ascii_case(JSON))
}

#[cfg(test)]
mod tests {
    use http::Request;
    use serde_json::Value;

    use super::*;

    fn head() -> Parts {
        let request = Request::post("/mcp").header(CONTENT_TYPE, "application/json");
        request.body(()).expect("a request").into_parts().0
    }

    async fn json_of(answer: HttpAnswer) -> Value {
        assert_eq!(answer.headers()[CONTENT_TYPE], "application/json");
        let Ok(body) = answer.into_body().collect().await;
        serde_json::from_slice(&body.to_bytes()).expect("JSON")
    }

    #[tokio::test]
    async fn a_body_that_can_be_no_message_is_named_by_its_kind() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for (body, code, part) in [
            ("", -32700, "no JSON"),
            ("no JSON", -32700, "no JSON"),
            ("{\"id\": 1", -32700, "no JSON"),
            ("{\"id\": 1} x", -32700, "no JSON"),
            ("[1, x]", -32700, "no JSON"),
            ("[]", -32600, "Batches"),
            (" \n[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}]", -32600, "Batches"),
            ("[1, \"garbage\", null]", -32600, "Batches"),
            (&deep, -32600, "Batches"),
            ("null", -32600, "no JSON object"),
            ("5", -32600, "no JSON object"),
            ("{\"id\": {}}", -32600, "`id`"),
        ] {
            let shown: String = body.chars().take(40).collect();
            let answer = identify(&head(), body.as_bytes()).expect_err("no message");
            assert_eq!(answer.status(), 400, "{shown}");
            let error = json_of(*answer).await;
            assert_eq!((&error["id"], &error["error"]["code"]), (&Value::Null, &json!(code)));
            let message = error["error"]["message"].as_str().expect("a message");
            assert!(message.contains(part), "{shown}: {message}");
        }
        for (body, id) in
            [("{}", json!(null)), ("{\"id\":7}", json!(7)), ("{\"id\":\"a\"}", json!("a"))]
        {
            let found = identify(&head(), body.as_bytes()).expect("may be a message");
            assert_eq!(json!(found), id, "{body}");
        }
    }

    #[tokio::test]
    async fn an_error_in_plain_text_becomes_one_of_the_protocol() {
        let plain = |status: u16, text: &str| {
            let mut answer = Response::new(Full::from(text.to_owned()).boxed());
            *answer.status_mut() = StatusCode::from_u16(status).expect("a status");
            answer.headers_mut().insert("allow", HeaderValue::from_static("POST"));
            answer
        };
        let id = Some(NumberOrString::Number(7));
        let answer = enveloped(plain(405, "Method Not Allowed"), None, false).await;
        assert_eq!(answer.status(), 405);
        assert_eq!(answer.headers()["allow"], "POST");
        let error = json_of(answer).await;
        assert_eq!(error["error"], json!({"code": -32600, "message": "Method Not Allowed"}));
        let answer = enveloped(plain(415, "fail to deserialize"), id.clone(), true).await;
        assert_eq!(answer.status(), 400);
        assert_eq!(json_of(answer).await["id"], 7);
        let answer = enveloped(plain(415, "Content-Type must be"), id.clone(), false).await;
        assert_eq!(answer.status(), 415);
        let answer = enveloped(plain(400, &"x".repeat(9_999)), id.clone(), true).await;
        assert_eq!(json_of(answer).await["error"]["message"], "x".repeat(TEXT_CHARS_MAX));
        let untouched = error_of_the_library(id);
        assert_eq!(json_of(enveloped(untouched, None, true).await).await["id"], 7);
        let accepted = enveloped(plain(202, ""), None, true).await;
        assert_eq!(accepted.status(), 202);
    }

    fn error_of_the_library(id: Option<NumberOrString>) -> HttpAnswer {
        error(StatusCode::BAD_REQUEST, id, -32022, "Unsupported")
    }
}
