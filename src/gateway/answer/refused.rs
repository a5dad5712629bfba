//! An upstream's own words about a request that it refuses. They are read whole before any of them is
//! passed on: what they tell of the operator's credential or account stays here.

use std::borrow::Cow;
use std::pin::pin;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderValue};
use memchr::memmem;
use pingora::{Error, ErrorType, Result};

use crate::error::{ErrorKind, GatewayError};
use crate::gateway::answer::customer::Customer;
use crate::gateway::request::context::{RequestContext, RequestStage};
use crate::gateway::request::failure::is_json;
use crate::gateway::request::filters::UpstreamFilters;
use crate::gateway::request::refusal::own_words;
use crate::gateway::upstream::client::UpstreamCall;
use crate::gateway::upstream::secrets::{self, UpstreamSecrets};
use crate::gateway::wire::cors;
use crate::gateway::wire::head::AnswerHead;
use crate::outbound::retry_after;
use crate::protocols::json;

/// The longest refusal that is passed on: some repeat the request that they refuse.
pub(crate) const BYTES_MAX: usize = 1 << 20;
/// The header in which Amazon's services name a failure.
const AMAZON_ERROR_TYPE: &str = "x-amzn-errortype";
/// A shorter id of an upstream's could stand in its words by chance.
const ID_BYTES_MIN: usize = 8;

/// Passes a refusal on, or says in the gateway's words that there was one.
///
/// # Errors
/// What `fail_to_proxy` is to tell the customer, or the log.
pub(crate) async fn answer(
    gateway: &impl UpstreamFilters,
    customer: &mut Customer<'_>,
    call: &mut UpstreamCall,
    mut header: AnswerHead,
) -> Result<()> {
    let status = header.status.as_u16();
    let read = read(customer, call).await?;
    let has_head = customer.has_head();
    let ctx = &mut *customer.ctx;
    let hidden = ctx.attempt().map(|tried| UpstreamSecrets::at(&tried.candidate));
    let upstreams = HeaderMap::from(header.headers.clone());
    let may_be_shown = |words: &Bytes| !secrets::hides(words, &upstreams, hidden);
    let Some(words) = read.filter(may_be_shown) else {
        return Err(ctx.fail(own_words(status)));
    };
    let name = name_in(&upstreams);
    if let Some(error) = in_the_customers_dialect(ctx, status, name, &words) {
        let delay = retry_after(&upstreams).or_else(|| ctx.refusal_delay());
        let delay = delay.filter(|_| error.kind == ErrorKind::RateLimited);
        let retry_after = error.retry_after.or(delay);
        return Err(ctx.fail(GatewayError { retry_after, ..error }));
    }
    if has_head {
        ctx.response.failure = Some(as_event(&words, status));
        return Err(Error::new_up(ErrorType::HTTPStatus(status)));
    }
    let words = with_own_id(words, ctx);
    header.headers.remove(&TRANSFER_ENCODING);
    header.headers.insert(CONTENT_LENGTH, words.len().into());
    if !is_json(&upstreams) {
        // A page of an upstream's is no page of this origin.
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        header.headers.insert(CONTENT_TYPE, text);
    }
    gateway.response_filter(Some(&mut header), ctx).await?;
    cors::allow(&mut header.headers, customer.session.req_header());
    customer.send_head(header).await?;
    customer.send(words, true).await
}

/// The name of a failure in a header, as Amazon's services send it.
pub(crate) fn name_in(headers: &HeaderMap) -> Option<&str> {
    headers.get(AMAZON_ERROR_TYPE)?.to_str().ok()
}

/// The refusal of an upstream that speaks another dialect than the customer.
fn in_the_customers_dialect(
    ctx: &RequestContext,
    status: u16,
    name: Option<&str>,
    words: &[u8],
) -> Option<GatewayError> {
    let RequestStage::Sending(sending) = &ctx.stage else { return None };
    // What is passed on with one of these is about the customer's request, not about the credential.
    let status = if matches!(status, 401..=404) { 400 } else { status };
    sending.admitted.call.refusal(status, name, words)
}

impl RequestContext {
    /// The delay before a retry that the upstream's refusal asks for.
    fn refusal_delay(&self) -> Option<Duration> {
        let RequestStage::Sending(sending) = &self.stage else { return None };
        sending.refusal.as_ref().and_then(|refusal| refusal.delay)
    }

    /// True if client and upstream speak different dialects.
    pub(crate) fn is_translated(&self) -> bool {
        let RequestStage::Sending(sending) = &self.stage else { return false };
        sending.admitted.call.refusal(500, None, b"{}").is_some()
    }
}

/// Reads the upstream's error body; `None` if it is too large or incomplete.
async fn read(customer: &mut Customer<'_>, call: &mut UpstreamCall) -> Result<Option<Bytes>> {
    let budget = customer.ctx.snapshot.limits.body_memory_bytes_max;
    let mut words = BytesMut::new();
    loop {
        let piece = match customer.wait(pin!(call.chunk())).await? {
            Ok(Some(piece)) => piece,
            Ok(None) => return Ok(Some(words.freeze())),
            Err(_) => return Ok(None),
        };
        let RequestStage::Sending(sending) = &mut customer.ctx.stage else { return Ok(None) };
        if words.len() + piece.len() > BYTES_MAX || !sending.body.grow(piece.len(), budget) {
            return Ok(None);
        }
        words.extend_from_slice(&piece);
    }
}

/// The refusal for a customer whose stream has begun.
fn as_event(words: &[u8], status: u16) -> GatewayError {
    let document = json::from_upstream::<serde_json::Value>(words).unwrap_or_default();
    let message = match document["error"]["message"].as_str() {
        Some(message) => message.to_owned(),
        None => format!("The upstream refused the request ({status})."),
    };
    GatewayError::new(ErrorKind::InvalidRequest, message)
}

/// The words with the gateway's id of the request in the place of the upstream's: what customers quote
/// is found in the log, which has both.
pub(crate) fn with_own_id(words: Bytes, ctx: &mut RequestContext) -> Bytes {
    #[derive(serde::Deserialize)]
    struct RequestIdField<'a> {
        #[serde(borrow)]
        request_id: Cow<'a, str>,
    }
    let Ok(RequestIdField { request_id: theirs }) = serde_json::from_slice(&words) else {
        return words;
    };
    let is_id = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    if theirs.len() < ID_BYTES_MIN || !theirs.bytes().all(is_id) {
        return words;
    }
    let own = ctx.id.to_string();
    let mut replaced = BytesMut::with_capacity(words.len() + own.len());
    let mut from = 0;
    for at in memmem::find_iter(&words, theirs.as_bytes()) {
        replaced.extend_from_slice(words.get(from..at).unwrap_or_default());
        replaced.extend_from_slice(own.as_bytes());
        from = at + theirs.len();
    }
    replaced.extend_from_slice(words.get(from..).unwrap_or_default());
    let theirs = theirs.into_owned();
    ctx.response.upstream_request_id.get_or_insert(theirs);
    replaced.freeze()
}
