//! `fail_to_proxy`: ends a request that failed, with an error or with an error event in a response that has begun.

use std::time::Duration;

use bytes::Bytes;
use pingora::{Error, ErrorSource};
use pingora_proxy::{FailToProxy, Session};

use crate::error::{ErrorKind, GatewayError};
use crate::gateway::answer::respond;
use crate::gateway::hooks::response_body_filter::{broken, stopped};
use crate::gateway::listen::{deadline, http1};
use crate::gateway::request::context::{RequestContext, RequestStage};
use crate::gateway::request::failure::{CallFailure, Consequence};
use crate::gateway::request::status;
use crate::gateway::wire::error::describe_error;
use crate::gateway::wire::{head, length};
use crate::protocols::{Delivery, Framing};

/// Time for which the gateway goes on reading after a refusal.
const LINGER_TIMEOUT: Duration = Duration::from_millis(200);
/// Write timeout of a shed response over HTTP/2: it leaves at once if the client's window is open, and does
/// not wait for one.
const SHED_TAKE_TIMEOUT: Duration = Duration::from_millis(10);

/// Ends a failed request, unless its client has disconnected or has received an error.
pub(super) async fn fail(
    session: &mut Session,
    error: &Error,
    ctx: &mut RequestContext,
) -> FailToProxy {
    if ctx.response.orphan.is_some() {
        return FailToProxy { error_code: 0, can_reuse_downstream: false };
    }
    answer(session, error, ctx).await
}

/// Ends a failed request with an error response, or with an error event if the response had begun.
pub(super) async fn answer(
    session: &mut Session,
    error: &Error,
    ctx: &mut RequestContext,
) -> FailToProxy {
    let is_cut = ctx.services.deadline.is_over() && ctx.response.failure.is_none();
    if is_cut {
        ctx.response.failure = Some(deadline::stopping(head::begun(session)));
    }
    let is_disconnected =
        *error.esource() == ErrorSource::Downstream && ctx.response.failure.is_none();
    if is_disconnected {
        let message = "The customer went away.";
        ctx.response.failure = Some(
            GatewayError::new(ErrorKind::ClientDisconnected, message).cause(describe_error(error)),
        );
        return FailToProxy { error_code: 0, can_reuse_downstream: false };
    }
    if head::begun(session) {
        end_begun(session, error, ctx).await;
        return FailToProxy { error_code: 0, can_reuse_downstream: false };
    }
    if let Some(document) = ctx.response.local_answer.take() {
        ctx.response.failure = None;
        http1::close_behind(session);
        let sent = respond::document(session, ctx.gateway_headers(), document).await.is_ok();
        return FailToProxy { error_code: if sent { 200 } else { 0 }, can_reuse_downstream: false };
    }
    let was_sent = matches!(ctx.stage, RequestStage::Sending(_) | RequestStage::Relaying(_));
    let gateway_headers = ctx.gateway_headers();
    let failure = ctx.response.failure.get_or_insert_with(|| match *error.esource() {
        ErrorSource::Upstream => failed(error),
        _ => GatewayError::new(ErrorKind::Internal, "The gateway failed.").cause(error),
    });
    // Behind a request that an upstream was asked for, the connection is closed.
    let reusable = !was_sent && failure.kind != ErrorKind::BadFraming && session.is_body_done();
    // A shed client retries, and costs less over the connection that it has.
    let is_overloaded = failure.kind == ErrorKind::Overloaded && !was_sent && !is_cut;
    let is_shed = ctx.admission.is_shed || is_overloaded;
    if is_shed && respond::refused_at_once(session) {
        return FailToProxy { error_code: 0, can_reuse_downstream: false };
    }
    if is_overloaded && session.as_http2().is_some() {
        // A client that reads its response takes it at once.
        session.set_write_timeout(Some(SHED_TAKE_TIMEOUT));
    }
    let drained = is_shed && length::is_short(session);
    if drained {
        http1::drain_behind(session);
    } else if !reusable {
        http1::close_behind(session);
    }
    let status = status::status_of(failure);
    if failure.kind == ErrorKind::ClientDisconnected {
        return FailToProxy { error_code: 0, can_reuse_downstream: false };
    }
    let sent =
        respond::error(session, gateway_headers, ctx.routing.envelope, failure).await.is_ok();
    if sent && !reusable && failure.kind != ErrorKind::BadFraming {
        linger(session).await;
    }
    let can_reuse_downstream = sent && (reusable || drained && session.is_body_done());
    FailToProxy { error_code: status, can_reuse_downstream }
}

/// Reads on for a moment: closing with unread bytes resets the connection, and the response may be lost with
/// it.
async fn linger(session: &mut Session) {
    let downstream = session.as_downstream_mut();
    downstream.set_total_drain_timeout(Some(LINGER_TIMEOUT));
    // A client that goes on sending has its response all the same.
    drop(downstream.drain_request_body().await);
}

/// A stream gets an error event: without one, its reader would take the end for a success. Anything
/// else is cut off, which no reader of a declared length or a JSON document can overlook.
async fn end_begun(session: &mut Session, error: &Error, ctx: &mut RequestContext) {
    let RequestStage::Relaying(response) = &mut ctx.stage else {
        // It was kept alive while upstreams were asked, and none has answered.
        if matches!(ctx.stage, RequestStage::Sending(_)) {
            let failure = ctx.response.failure.get_or_insert_with(|| match *error.esource() {
                ErrorSource::Upstream => failed(error),
                _ => stopped().cause(describe_error(error)),
            });
            let event = ctx.routing.envelope.error_event(ctx.id, failure);
            drop(session.write_response_body(Some(event), true).await);
        }
        return;
    };
    if *error.esource() == ErrorSource::Upstream {
        let Consequence { outcome, .. } =
            CallFailure::refine_by_body(error).consequence(Delivery::Stream);
        if let Some(outcome) = outcome {
            response.report(outcome, &ctx.services.metrics);
        }
    }
    if response.framing != Framing::Sse {
        ctx.response.failure.get_or_insert_with(|| stopped().cause(describe_error(error)));
        return;
    }
    let closing = if response.cut.is_some() {
        Bytes::new()
    } else {
        let failure = if ctx.services.deadline.is_over() {
            ctx.response.failure.insert(deadline::stopping(true))
        } else {
            let broken = || broken(&response.relaying).cause(describe_error(error));
            ctx.response.failure.get_or_insert_with(broken)
        };
        ctx.routing.envelope.error_event(ctx.id, failure)
    };
    let closing = ctx.as_sent(closing, true);
    // A client that has disconnected gets nothing.
    drop(session.write_response_body(Some(closing), true).await);
}

/// The error for a response that ended before any of it was sent.
fn failed(error: &Error) -> GatewayError {
    CallFailure::refine_by_body(error).error(Delivery::Relay).cause(describe_error(error))
}
