//! `response_filter`: the client's response head, and the wait for the durable hold.

use http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, TRANSFER_ENCODING,
};
use pingora::Result;

use crate::gateway::answer::respond::ACCEL_BUFFERING;
use crate::gateway::request::context::{RequestContext, RequestStage};
use crate::gateway::request::envelope::Envelope;
use crate::gateway::request::upstream_error;
use crate::gateway::upstream::response_headers;
use crate::gateway::upstream::secrets::UpstreamSecrets;
use crate::gateway::wire::head::{self, AnswerHead, REQUEST_ID};
use crate::protocols::Framing;

/// The header that says what of a request did not go upstream.
const LEFT_OUT: HeaderName = HeaderName::from_static("x-tollgate-left-out");

/// Turns the response header into the customer's. A successful response waits here until the hold
/// that pays for it is on disk: it was being written while the upstream worked.
pub(super) async fn filter(header: &mut AnswerHead, ctx: &mut RequestContext) -> Result<()> {
    let id = ctx.id;
    let attempt = ctx.attempt();
    let framing = attempt.as_ref().and_then(|attempt| attempt.framing);
    let hidden = attempt.map(|attempt| UpstreamSecrets::at(&attempt.candidate));
    response_headers::to_customer(&mut header.headers, hidden, id);
    if ctx.routing.envelope == Envelope::Anthropic {
        header.headers.insert(REQUEST_ID, head::id(id));
    }
    if header.status.is_informational() {
        return Ok(());
    }
    ctx.gateway_headers().put_optional(&mut header.headers);
    if let RequestStage::Sending(sending) = &ctx.stage
        && let Some(left_out) = sending.left_out()
        && let Ok(left_out) = HeaderValue::try_from(left_out)
    {
        header.headers.insert(LEFT_OUT, left_out);
    }
    ctx.response.first_byte = Some(ctx.started.elapsed());
    if !matches!(ctx.stage, RequestStage::Sending(_)) || !header.status.is_success() {
        return Ok(());
    }
    let Some(framing) = framing else {
        return Err(ctx.fail(upstream_error::unreadable("nothing says how the answer is read")));
    };
    durable(ctx).await?;
    let Some(response) = ctx.begin_relaying(framing) else { return Ok(()) };
    // The upstream's length is that of its own bytes; a rewritten body has another.
    if response.relaying.changes_length() && header.headers.remove(&CONTENT_LENGTH) {
        header.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    if framing == Framing::EventStream {
        let text = HeaderValue::from_static("text/event-stream");
        header.headers.insert(CONTENT_TYPE, text);
    }
    if framing.for_customers() == Framing::Sse {
        header.headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        header.headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    }
    if ctx.is_array() {
        header.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    Ok(())
}

/// Waits until the hold that pays for the response is on disk. It was being written while the upstream worked,
/// and a disk is faster than a model: no response may begin that a crash would leave unpaid.
pub(super) async fn durable(ctx: &mut RequestContext) -> Result<()> {
    if let RequestStage::Sending(sending) = &ctx.stage
        && let Err(error) = sending.admitted.payment.durable().await
    {
        return Err(ctx.fail(upstream_error::unrecorded(&error)));
    }
    Ok(())
}
