//! From a failure to an answer: the only place that knows the headers that SDKs act on.

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
use crate::forwarded as client;
use crate::gateway::listen::http1;
use crate::gateway::listen::origin::Origin;
use crate::gateway::request::envelope::Envelope;
use crate::gateway::request::gateway_headers::GatewayHeaders;
use crate::gateway::request::status::{should_retry, status_of, wire};
use crate::gateway::wire::cors;
use crate::gateway::wire::head::{self, AnswerHead, REQUEST_ID, X_REQUEST_ID, millis_up, text};
use crate::ledger::RequestId;

/// OpenAI's and Anthropic's SDKs obey it above their own rules.
const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// nginx and others buffer a response unless they are told not to.
pub(crate) const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// Delay before a retry, in milliseconds: OpenAI's and Anthropic's SDKs read it before `retry-after`.
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
/// Write timeout of a response that the gateway makes itself: it fits into a few packets, and its client is
/// waiting for it.
const TAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum `retry-after`: SDKs ignore longer values and retry after a shorter time of their own.
const REPEATED_WITHIN: Duration = Duration::from_secs(60);

/// Request headers that the access log and in-process callers read after the request.
const LOGGED: [&str; 2] = [client::FORWARDED_FOR, "traceparent"];
/// The bytes of each of [`LOGGED`] that are kept while a customer takes an answer.
const LOGGED_BYTES_MAX: usize = 512;

/// Answers with an error.
pub(crate) async fn error(
    session: &mut Session,
    gateway_headers: impl Into<GatewayHeaders>,
    envelope: Envelope,
    error: &GatewayError,
) -> pingora::Result<()> {
    let gateway_headers = gateway_headers.into();
    let id = gateway_headers.id;
    let status = status_of(error);
    let body = match &error.upstream_error {
        Some(words) => words.body.clone(),
        None => envelope.body(id, error).to_string().into(),
    };
    let mut header = json_head(status, gateway_headers, body.len());
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

/// Complete HTTP/1.1 response to a request whose head was refused; the connection is closed after it.
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

/// Answers 200 with a serialized JSON document.
pub(crate) async fn document(
    session: &mut Session,
    gateway_headers: impl Into<GatewayHeaders>,
    text: Bytes,
) -> pingora::Result<()> {
    let header = json_head(200, gateway_headers.into(), text.len());
    send(session, header, text).await
}

/// Answers with an upstream's own words about the customer's request.
pub(crate) async fn relayed(
    session: &mut Session,
    gateway_headers: impl Into<GatewayHeaders>,
    status: u16,
    text: Bytes,
) -> pingora::Result<()> {
    let mut header = json_head(status, gateway_headers.into(), text.len());
    if !text.trim_ascii_start().starts_with(b"{") {
        // A page of an upstream's is no page of this origin.
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        header.headers.insert(CONTENT_TYPE, plain);
    }
    send(session, header, text).await
}

/// Begins a 200 answer with a file as its body.
pub(crate) async fn begin_file(
    session: &mut Session,
    gateway_headers: impl Into<GatewayHeaders>,
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
    gateway_headers.into().put(headers);
    cors::allow(headers, session.req_header());
    head::write(session, header, false).await
}

/// Begins an event stream before its upstream has answered.
pub(crate) async fn begin_events(
    session: &mut Session,
    gateway_headers: impl Into<GatewayHeaders>,
    envelope: Envelope,
) -> pingora::Result<()> {
    let gateway_headers = gateway_headers.into();
    let mut header = head::of(200);
    let headers = &mut header.headers;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    if envelope == Envelope::Anthropic {
        headers.insert(REQUEST_ID, head::id(gateway_headers.id));
    }
    gateway_headers.put(headers);
    cors::allow(headers, session.req_header());
    head::write(session, header, false).await
}

/// Answers a CORS preflight.
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

fn json_head(status: u16, gateway_headers: GatewayHeaders, length: usize) -> AnswerHead {
    let mut header = head::of(status);
    let headers = &mut header.headers;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_LENGTH, length.into());
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    gateway_headers.put(headers);
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

/// Frees the request head of an HTTP/2 request before its answer waits for a flow-control window: a head
/// takes up to 64 KiB, and cost the client only a few bytes if HPACK had them in its table.
fn forget_head(session: &mut Session) {
    let head = session.req_header();
    if session.as_http2().is_none() || head.headers.is_empty() {
        return;
    }
    let Ok(mut rest) = RequestHeader::build_no_case(head.method.clone(), b"/", None) else {
        return;
    };
    rest.set_version(head.version);
    for name in LOGGED {
        for value in head.headers.get_all(name) {
            if value.len() <= LOGGED_BYTES_MAX && rest.append_header(name, value.clone()).is_err() {
                return;
            }
        }
    }
    *session.req_header_mut() = rest;
}

/// Ends a request that is shed. An unauthenticated one over HTTP/2 is refused without a response, which might
/// wait for a window; a library then knows that nothing was done. Others are told when to retry.
pub(crate) fn refused_at_once(session: &mut Session) -> bool {
    let is_unauthenticated = |origin: &Origin| !origin.is_authenticated();
    let is_refused =
        session.as_http2().is_some() && Origin::of_session(session).is_some_and(is_unauthenticated);
    if is_refused {
        session.as_downstream_mut().shutdown_with_reason(h2::Reason::REFUSED_STREAM);
    }
    is_refused
}
