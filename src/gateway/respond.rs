//! From a failure to an answer: the only place that knows statuses, codes and the headers that SDKs
//! act on.

use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, TRANSFER_ENCODING,
};
use pingora::http::ResponseHeader;
use pingora::proxy::Session;

use super::cors;
use super::envelope::Envelope;
use crate::error::{Allow, ErrorKind, GatewayError};
use crate::ledger::RequestId;
use crate::limits::{Gauge, Standing};

/// The header that names the request; SDKs show it as the request id.
pub(super) const X_REQUEST_ID: &str = "x-request-id";
/// The same for Anthropic's SDKs.
pub(super) const REQUEST_ID: &str = "request-id";
/// OpenAI's and Anthropic's SDKs obey it above their own rules.
const X_SHOULD_RETRY: &str = "x-should-retry";

/// When to come again, in milliseconds: OpenAI's and Anthropic's SDKs read it before `retry-after`.
const RETRY_AFTER_MS: &str = "retry-after-ms";
/// SDKs that are told to wait longer than this come again after a time of their own, which is shorter.
const REPEATED_WITHIN: Duration = Duration::from_secs(60);

/// What every answer says beside its body: which request it answers, and how its limits stand.
#[derive(Clone, Copy)]
pub(super) struct Stamp {
    pub(super) id: RequestId,
    pub(super) standing: Standing,
}

impl From<RequestId> for Stamp {
    fn from(id: RequestId) -> Self {
        Self { id, standing: Standing::default() }
    }
}

impl Stamp {
    /// Says how the limits stand, as OpenAI's API does. Nothing where there are none.
    pub(super) fn limits(&self, header: &mut ResponseHeader) -> pingora::Result<()> {
        let Standing { requests, tokens } = self.standing;
        for (gauge, [limit, remaining, reset]) in [
            (
                requests,
                [
                    "x-ratelimit-limit-requests",
                    "x-ratelimit-remaining-requests",
                    "x-ratelimit-reset-requests",
                ],
            ),
            (
                tokens,
                [
                    "x-ratelimit-limit-tokens",
                    "x-ratelimit-remaining-tokens",
                    "x-ratelimit-reset-tokens",
                ],
            ),
        ] {
            if let Some(gauge) = gauge {
                let Gauge { limit: value, remaining: left, reset: after } = gauge;
                header.insert_header(limit, value.to_string())?;
                header.insert_header(remaining, left.to_string())?;
                header.insert_header(reset, format!("{}ms", millis_up(after)))?;
            }
        }
        Ok(())
    }
}

/// Whole milliseconds, rounded up: who waits for them has waited long enough.
fn millis_up(duration: Duration) -> u128 {
    duration.as_nanos().div_ceil(1_000_000)
}

/// Status, `error.type` and `error.code` of a kind. Spec section 7; types as OpenAI writes them.
pub(super) fn wire(kind: ErrorKind) -> (u16, &'static str, &'static str) {
    match kind {
        ErrorKind::InvalidRequest | ErrorKind::BadFraming => {
            (400, "invalid_request_error", "invalid_request_error")
        }
        ErrorKind::Unauthorized => (401, "authentication_error", "unauthorized"),
        ErrorKind::InsufficientBalance => (402, "billing_error", "insufficient_balance"),
        ErrorKind::BalanceHeld => (402, "billing_error", "balance_held"),
        ErrorKind::BalanceExhausted => (402, "billing_error", "insufficient_balance"),
        ErrorKind::PermissionDenied => (403, "permission_error", "permission_denied"),
        ErrorKind::ModelNotFound => (404, "invalid_request_error", "model_not_found"),
        ErrorKind::NotFound => (404, "invalid_request_error", "not_found"),
        ErrorKind::MethodNotAllowed => (405, "invalid_request_error", "method_not_allowed"),
        ErrorKind::RequestTimeout => (408, "invalid_request_error", "request_timeout"),
        ErrorKind::IdempotencyConflict => (409, "invalid_request_error", "idempotency_conflict"),
        ErrorKind::PayloadTooLarge => (413, "invalid_request_error", "request_too_large"),
        ErrorKind::UnsupportedMediaType => (415, "invalid_request_error", "unsupported_media_type"),
        ErrorKind::RateLimited => (429, "rate_limit_error", "rate_limit_exceeded"),
        ErrorKind::HeaderTooLarge => (431, "invalid_request_error", "headers_too_large"),
        ErrorKind::ClientGone => (499, "invalid_request_error", "client_closed_request"),
        ErrorKind::Internal => (500, "api_error", "internal_error"),
        ErrorKind::UpstreamUnavailable => (502, "api_error", "service_unavailable"),
        ErrorKind::BadGateway => (502, "api_error", "BadGateway"),
        ErrorKind::Overloaded => (503, "api_error", "ServiceUnavailable"),
        ErrorKind::UpstreamTimeout => (504, "api_error", "RequestTimeout"),
    }
}

/// Whether an SDK that repeats the request by itself could do any good, or harm.
pub(super) fn should_retry(kind: ErrorKind) -> Option<bool> {
    match kind {
        ErrorKind::Unauthorized
        | ErrorKind::InsufficientBalance
        | ErrorKind::BalanceHeld
        | ErrorKind::BalanceExhausted
        | ErrorKind::PermissionDenied
        | ErrorKind::ModelNotFound
        | ErrorKind::NotFound
        | ErrorKind::MethodNotAllowed
        | ErrorKind::IdempotencyConflict
        // The upstream has taken the work and may still be at it.
        | ErrorKind::UpstreamTimeout => Some(false),
        ErrorKind::InvalidRequest
        | ErrorKind::BadFraming
        | ErrorKind::RequestTimeout
        | ErrorKind::PayloadTooLarge
        | ErrorKind::UnsupportedMediaType
        | ErrorKind::HeaderTooLarge
        | ErrorKind::ClientGone
        | ErrorKind::Internal
        | ErrorKind::UpstreamUnavailable
        | ErrorKind::BadGateway
        | ErrorKind::RateLimited
        | ErrorKind::Overloaded => None,
    }
}

/// Whether the answer to the customer has begun. A `100 Continue` is not an answer.
pub(super) fn begun(session: &Session) -> bool {
    session.response_written().is_some_and(|header| !header.status.is_informational())
}

/// Answers with an error.
pub(super) async fn error(
    session: &mut Session,
    stamp: impl Into<Stamp>,
    envelope: Envelope,
    error: &GatewayError,
) -> pingora::Result<()> {
    let stamp = stamp.into();
    let id = stamp.id;
    let (status, _, _) = wire(error.kind);
    let text = envelope.body(id, error).to_string();
    let mut header = json_header(status, stamp, text.len())?;
    if envelope == Envelope::Anthropic {
        header.insert_header(REQUEST_ID, id.to_string())?;
    }
    if let Some(delay) = error.retry_after {
        let ms = millis_up(delay).max(1);
        header.insert_header(RETRY_AFTER, ms.div_ceil(1000).to_string())?;
        header.insert_header(RETRY_AFTER_MS, ms.to_string())?;
    }
    let is_late = |delay: Option<Duration>| delay.is_none_or(|delay| delay > REPEATED_WITHIN);
    let retry = match error.limited {
        Some(_) if is_late(error.retry_after) => Some(false),
        _ => should_retry(error.kind),
    };
    if let Some(retry) = retry {
        header.insert_header(X_SHOULD_RETRY, if retry { "true" } else { "false" })?;
    }
    if let Some(allow) = error.allow {
        let methods = match allow {
            Allow::Get => "GET, HEAD",
            Allow::Post => "POST",
        };
        header.insert_header(ALLOW, methods)?;
    }
    if status == 401 {
        header.insert_header(http::header::WWW_AUTHENTICATE, "Bearer")?;
    }
    if error.kind == ErrorKind::BadFraming {
        session.set_keepalive(None);
    }
    send(session, header, text.into()).await
}

/// A whole HTTP/1.1 answer for a request whose head was not taken: the connection closes behind it.
pub(super) fn refusal(error: &GatewayError) -> Bytes {
    let (status, _, _) = wire(error.kind);
    let reason = http::StatusCode::from_u16(status).ok().and_then(|code| code.canonical_reason());
    let (reason, id) = (reason.unwrap_or_default(), RequestId::new());
    let text = Envelope::default().body(id, error).to_string();
    format!(
        "HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n{X_REQUEST_ID}: {id}\r\nconnection: close\r\n\r\n{text}",
        text.len(),
    )
    .into()
}

/// Answers 200 with a JSON document that is written already.
pub(super) async fn document(
    session: &mut Session,
    stamp: impl Into<Stamp>,
    text: Bytes,
) -> pingora::Result<()> {
    let header = json_header(200, stamp.into(), text.len())?;
    send(session, header, text).await
}

/// Answers with an upstream's own words about the customer's request.
pub(super) async fn relayed(
    session: &mut Session,
    stamp: impl Into<Stamp>,
    status: u16,
    text: Bytes,
) -> pingora::Result<()> {
    let header = json_header(status, stamp.into(), text.len())?;
    send(session, header, text).await
}

/// Answers with this status and a JSON document.
pub(super) async fn json_with(
    session: &mut Session,
    stamp: impl Into<Stamp>,
    status: u16,
    document: &serde_json::Value,
) -> pingora::Result<()> {
    relayed(session, stamp, status, document.to_string().into()).await
}

/// Begins an answer 200 that is a file.
pub(super) async fn begin_file(
    session: &mut Session,
    stamp: impl Into<Stamp>,
    media_type: &str,
    length: Option<u64>,
) -> pingora::Result<()> {
    let stamp = stamp.into();
    let mut header = ResponseHeader::build(200, Some(12))?;
    header.insert_header(CONTENT_TYPE, media_type)?;
    match length {
        Some(length) => header.insert_header(CONTENT_LENGTH, length.to_string())?,
        None => header.insert_header(TRANSFER_ENCODING, "chunked")?,
    }
    header.insert_header(CACHE_CONTROL, "no-store")?;
    header.insert_header(X_REQUEST_ID, stamp.id.to_string())?;
    stamp.limits(&mut header)?;
    cors::allow(&mut header, session.req_header())?;
    session.write_response_header(Box::new(header), false).await
}

/// Begins a stream of events before its upstream has.
pub(super) async fn begin_events(
    session: &mut Session,
    stamp: impl Into<Stamp>,
    envelope: Envelope,
) -> pingora::Result<()> {
    let stamp = stamp.into();
    let mut header = ResponseHeader::build(200, Some(14))?;
    header.insert_header(CONTENT_TYPE, "text/event-stream")?;
    header.insert_header(TRANSFER_ENCODING, "chunked")?;
    header.insert_header(CACHE_CONTROL, "no-cache")?;
    header.insert_header("x-accel-buffering", "no")?;
    header.insert_header(X_REQUEST_ID, stamp.id.to_string())?;
    if envelope == Envelope::Anthropic {
        header.insert_header(REQUEST_ID, stamp.id.to_string())?;
    }
    stamp.limits(&mut header)?;
    cors::allow(&mut header, session.req_header())?;
    session.write_response_header(Box::new(header), false).await
}

/// Answers a browser that asks whether it may call.
pub(super) async fn preflight(session: &mut Session) -> pingora::Result<()> {
    let header = cors::preflight(session.req_header())?;
    session.write_response_header(Box::new(header), true).await
}

/// Answers 200 with nothing.
pub(super) async fn empty(session: &mut Session, id: RequestId) -> pingora::Result<()> {
    let mut header = ResponseHeader::build(200, Some(3))?;
    header.insert_header(CONTENT_LENGTH, "0")?;
    header.insert_header(CACHE_CONTROL, "no-store")?;
    header.insert_header(X_REQUEST_ID, id.to_string())?;
    session.write_response_header(Box::new(header), true).await
}

/// Answers 200 with a JSON document.
pub(super) async fn json(
    session: &mut Session,
    stamp: impl Into<Stamp>,
    document: &serde_json::Value,
) -> pingora::Result<()> {
    self::document(session, stamp, document.to_string().into()).await
}

fn json_header(status: u16, stamp: Stamp, length: usize) -> pingora::Result<ResponseHeader> {
    let mut header = ResponseHeader::build(status, Some(16))?;
    header.insert_header(CONTENT_TYPE, "application/json")?;
    header.insert_header(CONTENT_LENGTH, length.to_string())?;
    header.insert_header(CACHE_CONTROL, "no-store")?;
    header.insert_header(X_REQUEST_ID, stamp.id.to_string())?;
    stamp.limits(&mut header)?;
    Ok(header)
}

async fn send(
    session: &mut Session,
    mut header: ResponseHeader,
    body: Bytes,
) -> pingora::Result<()> {
    cors::allow(&mut header, session.req_header())?;
    session.write_response_header(Box::new(header), false).await?;
    let head_only = session.req_header().method == http::Method::HEAD;
    let body = Some(body).filter(|_| !head_only);
    session.write_response_body(body, true).await
}
