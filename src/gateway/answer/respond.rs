//! From a failure to an answer: the only place that knows statuses, codes and the headers that SDKs
//! act on.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderName, HeaderValue};
use pingora::http::RequestHeader;
use pingora::{ErrorType, OrErr};
use pingora_proxy::Session;

use crate::error::{AllowedMethods, ErrorKind, GatewayError};
use crate::gateway::answer::envelope::Envelope;
use crate::gateway::answer::head::{self, AnswerHead, AnswerHeaders};
use crate::gateway::client;
use crate::gateway::listen::http1;
use crate::gateway::listen::origin::Origin;
use crate::gateway::receive::cors;
use crate::ledger::RequestId;
use crate::limits::{Gauge, RateLimitStatus};

/// The header that names the request; SDKs show it as the request id.
pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The header that names the request for Anthropic's SDKs.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
/// Has browsers take an answer for what it says it is.
pub(crate) const NO_SNIFFING: (HeaderName, HeaderValue) =
    (http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
/// The header that names the model which has served a request in the place of the one that it names.
const SERVED_BY: HeaderName = HeaderName::from_static("x-tollgate-model");
/// The header that names the output limit, in tokens for each choice, to which a request was lowered.
const MAX_TOKENS: HeaderName = HeaderName::from_static("x-tollgate-max-tokens");
/// OpenAI's and Anthropic's SDKs obey it above their own rules.
const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// What says how the limits stand: the limit, what is left of it, and when all of it is there again.
const LIMITS_OF_REQUESTS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-requests"),
    HeaderName::from_static("x-ratelimit-remaining-requests"),
    HeaderName::from_static("x-ratelimit-reset-requests"),
];
const LIMITS_OF_TOKENS: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit-tokens"),
    HeaderName::from_static("x-ratelimit-remaining-tokens"),
    HeaderName::from_static("x-ratelimit-reset-tokens"),
];
/// nginx and others buffer a response unless they are told not to.
pub(crate) const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// When to come again, in milliseconds: OpenAI's and Anthropic's SDKs read it before `retry-after`.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
/// How long a customer may take for an answer of the gateway's own: it fits into one packet or a few,
/// and whoever has asked is there to read it.
const TAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// SDKs that are told to wait longer than this come again after a time of their own, which is shorter.
const REPEATED_WITHIN: Duration = Duration::from_secs(60);

/// What is read of a request when it is over.
const LOGGED: [&str; 2] = [client::FORWARDED_FOR, "traceparent"];
/// The bytes of each of [`LOGGED`] that are kept while a customer takes an answer.
const LOGGED_BYTES_MAX: usize = 512;

/// What every answer says beside its body: which request it answers, how its limits stand, which model
/// has served it, if that is not the one that was asked, and its output limit, if that was lowered.
#[derive(Clone)]
pub(crate) struct Stamp {
    pub(crate) id: RequestId,
    pub(crate) standing: RateLimitStatus,
    /// The id of the fallback that has served it.
    pub(crate) fallback: Option<Arc<str>>,
    /// The output limit to which it was lowered.
    pub(crate) clamped: Option<u64>,
}

impl From<RequestId> for Stamp {
    fn from(id: RequestId) -> Self {
        Self { id, standing: RateLimitStatus::default(), fallback: None, clamped: None }
    }
}

impl Stamp {
    /// Puts into an answer of the gateway's own what every one says.
    fn put(&self, headers: &mut AnswerHeaders) {
        headers.insert(NO_SNIFFING.0, NO_SNIFFING.1);
        headers.insert(X_REQUEST_ID, head::id(self.id));
        self.put_beside(headers);
    }

    /// Says how the limits stand, which fallback has served the request, and to what its output limit was
    /// lowered. Nothing where there is nothing to say.
    pub(crate) fn put_beside(&self, headers: &mut AnswerHeaders) {
        if let Some(fallback) = &self.fallback
            && let Ok(fallback) = HeaderValue::from_str(fallback)
        {
            headers.insert(SERVED_BY, fallback);
        }
        if let Some(tokens) = self.clamped {
            headers.insert(MAX_TOKENS, tokens.into());
        }
        self.put_limits(headers);
    }

    /// Says how the limits stand, as OpenAI's API does.
    fn put_limits(&self, headers: &mut AnswerHeaders) {
        let RateLimitStatus { requests, tokens } = self.standing;
        for (gauge, [limit, remaining, reset]) in
            [(requests, LIMITS_OF_REQUESTS), (tokens, LIMITS_OF_TOKENS)]
        {
            if let Some(gauge) = gauge {
                let Gauge { limit: value, remaining: left, reset: after } = gauge;
                headers.insert(limit, value.into());
                headers.insert(remaining, left.into());
                headers.insert(reset, text(format!("{}ms", millis_up(after))));
            }
        }
    }
}

/// Digits and letters as the value of a header.
fn text(value: String) -> HeaderValue {
    HeaderValue::try_from(value).unwrap_or(HeaderValue::from_static(""))
}

/// Whole milliseconds, rounded up: who waits for them has waited long enough.
fn millis_up(duration: Duration) -> u128 {
    duration.as_nanos().div_ceil(1_000_000)
}

/// Status, `error.type` and `error.code` of a kind. Spec section 7; types as OpenAI writes them.
pub(crate) fn wire(kind: ErrorKind) -> (u16, &'static str, &'static str) {
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
        ErrorKind::UpgradeRequired => (426, "invalid_request_error", "upgrade_required"),
        ErrorKind::RequestTimeout => (408, "invalid_request_error", "request_timeout"),
        ErrorKind::IdempotencyConflict => (409, "invalid_request_error", "idempotency_conflict"),
        ErrorKind::PayloadTooLarge => (413, "invalid_request_error", "request_too_large"),
        ErrorKind::UnsupportedMediaType => (415, "invalid_request_error", "unsupported_media_type"),
        ErrorKind::RateLimited => (429, "rate_limit_error", "rate_limit_exceeded"),
        ErrorKind::HeaderTooLarge => (431, "invalid_request_error", "headers_too_large"),
        ErrorKind::ClientDisconnected => (499, "invalid_request_error", "client_closed_request"),
        ErrorKind::Internal => (500, "api_error", "internal_error"),
        ErrorKind::UpstreamUnavailable => (502, "api_error", "service_unavailable"),
        ErrorKind::BadGateway => (502, "api_error", "BadGateway"),
        ErrorKind::Overloaded => (503, "api_error", "ServiceUnavailable"),
        ErrorKind::UpstreamTimeout => (504, "api_error", "RequestTimeout"),
    }
}

/// The status that a failure is answered with.
pub(crate) fn status_of(error: &GatewayError) -> u16 {
    error.words.as_ref().map_or_else(|| wire(error.kind).0, |words| words.status)
}

/// Whether an SDK that repeats the request by itself could do any good, or harm.
pub(crate) fn should_retry(kind: ErrorKind) -> Option<bool> {
    match kind {
        ErrorKind::Unauthorized
        | ErrorKind::InsufficientBalance
        | ErrorKind::BalanceExhausted
        | ErrorKind::PermissionDenied
        | ErrorKind::ModelNotFound
        | ErrorKind::NotFound
        | ErrorKind::MethodNotAllowed
        | ErrorKind::UpgradeRequired
        | ErrorKind::IdempotencyConflict
        // The upstream has taken the work and may still be at it.
        | ErrorKind::UpstreamTimeout => Some(false),
        // The money comes free when the customer's own requests end, which is soon as a rule. SDKs give
        // up at a 402 unless they are told.
        ErrorKind::BalanceHeld => Some(true),
        ErrorKind::InvalidRequest
        | ErrorKind::BadFraming
        | ErrorKind::RequestTimeout
        | ErrorKind::PayloadTooLarge
        | ErrorKind::UnsupportedMediaType
        | ErrorKind::HeaderTooLarge
        | ErrorKind::ClientDisconnected
        | ErrorKind::Internal
        | ErrorKind::UpstreamUnavailable
        | ErrorKind::BadGateway
        | ErrorKind::RateLimited
        | ErrorKind::Overloaded => None,
    }
}

/// Whether the answer to the customer has begun. A `100 Continue` is not an answer.
pub(crate) fn begun(session: &Session) -> bool {
    session.response_written().is_some_and(|header| !header.status.is_informational())
}

/// Answers with an error.
pub(crate) async fn error(
    session: &mut Session,
    stamp: impl Into<Stamp>,
    envelope: Envelope,
    error: &GatewayError,
) -> pingora::Result<()> {
    let stamp = stamp.into();
    let id = stamp.id;
    let status = status_of(error);
    let body = match &error.words {
        Some(words) => words.body.clone(),
        None => envelope.body(id, error).to_string().into(),
    };
    let mut header = json_head(status, stamp, body.len());
    let headers = &mut header.headers;
    if envelope == Envelope::Anthropic {
        headers.insert(REQUEST_ID, head::id(id));
    }
    if let Some(delay) = error.retry_after {
        let ms = millis_up(delay).max(1);
        headers.insert(RETRY_AFTER, text(ms.div_ceil(1000).to_string()));
        headers.insert(RETRY_AFTER_MS, text(ms.to_string()));
    }
    let is_late = |delay: Option<Duration>| delay.is_none_or(|delay| delay > REPEATED_WITHIN);
    let retry = match error.limited {
        Some(_) if is_late(error.retry_after) => Some(false),
        _ => should_retry(error.kind),
    };
    if let Some(retry) = retry {
        let retry = if retry { "true" } else { "false" };
        headers.insert(X_SHOULD_RETRY, HeaderValue::from_static(retry));
    }
    if let Some(allow) = error.allow {
        let methods = match allow {
            AllowedMethods::Get => "GET, HEAD",
            AllowedMethods::Post => "POST",
            AllowedMethods::GetOrDelete => "GET, HEAD, DELETE",
        };
        headers.insert(ALLOW, HeaderValue::from_static(methods));
    }
    if error.kind == ErrorKind::UpgradeRequired {
        // RFC 9110, section 15.5.22: what to come with instead.
        headers.insert(UPGRADE, HeaderValue::from_static("HTTP/1.1"));
    }
    if status == 401 {
        headers.insert(http::header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if error.kind == ErrorKind::BadFraming {
        http1::close_behind(session);
    }
    send(session, header, body).await
}

/// A whole HTTP/1.1 answer for a request whose head was not taken: the connection closes behind it.
pub(crate) fn refusal(error: &GatewayError) -> Bytes {
    let (status, _, _) = wire(error.kind);
    let reason = http::StatusCode::from_u16(status).ok().and_then(|code| code.canonical_reason());
    let (reason, id) = (reason.unwrap_or_default(), RequestId::new());
    let text = Envelope::default().body(id, error).to_string();
    format!(
        "HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\n\
         x-content-type-options: nosniff\r\ncontent-length: {}\r\nx-request-id: {id}\r\n\
         connection: close\r\n\r\n{text}",
        text.len(),
    )
    .into()
}

/// Answers 200 with a JSON document that is written already.
pub(crate) async fn document(
    session: &mut Session,
    stamp: impl Into<Stamp>,
    text: Bytes,
) -> pingora::Result<()> {
    let header = json_head(200, stamp.into(), text.len());
    send(session, header, text).await
}

/// Answers with an upstream's own words about the customer's request.
pub(crate) async fn relayed(
    session: &mut Session,
    stamp: impl Into<Stamp>,
    status: u16,
    text: Bytes,
) -> pingora::Result<()> {
    let mut header = json_head(status, stamp.into(), text.len());
    if !text.trim_ascii_start().starts_with(b"{") {
        // A page of an upstream's is no page of this origin.
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        header.headers.insert(CONTENT_TYPE, plain);
    }
    send(session, header, text).await
}

/// Begins an answer 200 that is a file.
pub(crate) async fn begin_file(
    session: &mut Session,
    stamp: impl Into<Stamp>,
    media_type: &str,
    length: Option<u64>,
) -> pingora::Result<()> {
    let media_type = HeaderValue::from_str(media_type)
        .or_err(ErrorType::InternalError, "a media type that is none")?;
    let mut header = head::of(200);
    let headers = &mut header.headers;
    headers.insert(CONTENT_TYPE, media_type);
    match length {
        Some(length) => headers.insert(CONTENT_LENGTH, length.into()),
        None => headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked")),
    };
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    stamp.into().put(headers);
    cors::allow(headers, session.req_header());
    head::write(session, header, false).await
}

/// Begins a stream of events before its upstream has.
pub(crate) async fn begin_events(
    session: &mut Session,
    stamp: impl Into<Stamp>,
    envelope: Envelope,
) -> pingora::Result<()> {
    let stamp = stamp.into();
    let mut header = head::of(200);
    let headers = &mut header.headers;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    if envelope == Envelope::Anthropic {
        headers.insert(REQUEST_ID, head::id(stamp.id));
    }
    stamp.put(headers);
    cors::allow(headers, session.req_header());
    head::write(session, header, false).await
}

/// Answers a browser that asks whether it may call.
pub(crate) async fn preflight(session: &mut Session) -> pingora::Result<()> {
    let header = cors::preflight(session.req_header());
    head::write(session, header, true).await
}

/// Answers 200 with nothing.
pub(crate) async fn empty(session: &mut Session, id: RequestId) -> pingora::Result<()> {
    let mut header = head::of(200);
    let headers = &mut header.headers;
    headers.insert(CONTENT_LENGTH, 0.into());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_REQUEST_ID, head::id(id));
    head::write(session, header, true).await
}

fn json_head(status: u16, stamp: Stamp, length: usize) -> AnswerHead {
    let mut header = head::of(status);
    let headers = &mut header.headers;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, length.into());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    stamp.put(headers);
    header
}

async fn send(session: &mut Session, mut header: AnswerHead, body: Bytes) -> pingora::Result<()> {
    cors::allow(&mut header.headers, session.req_header());
    let head_only = session.req_header().method == http::Method::HEAD;
    let taken = session.get_write_timeout().map_or(TAKE_TIMEOUT, |set| set.min(TAKE_TIMEOUT));
    session.set_write_timeout(Some(taken));
    head::write(session, header, false).await?;
    let body = Some(body).filter(|_| !head_only);
    forget_head(session);
    session.write_response_body(body, true).await
}

/// Lets go of what is not needed any more of a request over HTTP/2, before its answer waits for a
/// window: a head takes up to 64 KiB, and whoever has sent it a few bytes, if they were sent before.
fn forget_head(session: &mut Session) {
    let head = session.req_header();
    if session.as_http2().is_none() || head.headers.is_empty() {
        return;
    }
    let Ok(mut rest) = RequestHeader::build_no_case(head.method.clone(), b"/", None) else {
        return;
    };
    rest.set_version(head.version);
    // What metrics, the access log and whoever asked from inside read of it.
    for name in LOGGED {
        for value in head.headers.get_all(name) {
            if value.len() <= LOGGED_BYTES_MAX && rest.append_header(name, value.clone()).is_err() {
                return;
            }
        }
    }
    *session.req_header_mut() = rest;
}

/// Ends a request that is turned away. One of a stranger over HTTP/2 is refused without an answer, which
/// may have to wait for a window; a library then knows that nothing was done. Others are told when to
/// come again.
pub(crate) fn refused_at_once(session: &mut Session) -> bool {
    let is_stranger = |origin: &Origin| !origin.is_authenticated();
    let is_refused =
        session.as_http2().is_some() && Origin::of_session(session).is_some_and(is_stranger);
    if is_refused {
        session.as_downstream_mut().shutdown_with_reason(h2::Reason::REFUSED_STREAM);
    }
    is_refused
}
