//! From an upstream's response to the customer's: accept or try the next target, wait for the hold,
//! pass pieces on, and end well whatever happens.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, TRANSFER_ENCODING};
use pingora::http::ResponseHeader;
use pingora::proxy::{FailToProxy, Session};
use pingora::{Error, ErrorSource, ErrorType, Result};

use super::envelope::Envelope;
use super::exchange::{Cut, Exchange, Stage, framing};
use super::peer;
use super::respond::REQUEST_ID;
use super::{body, deadline, headers, respond, told};
use crate::balance::Outcome;
use crate::error::{ErrorKind, GatewayError};
use crate::ledger::Refusal;
use crate::pipeline::{Relaying, Step, Uncovered};
use crate::protocols::Framing;

/// How long a refused customer is listened to after the answer.
const LINGER_TIMEOUT: Duration = Duration::from_millis(200);

/// Looks at a response header before any of it reaches the customer. A refusal that another target
/// may not give goes to the next target; one that is nobody's business but the operator's is
/// replaced by an error of ours.
pub(super) fn accept(header: &ResponseHeader, exchange: &mut Exchange) -> Result<()> {
    let status = header.status.as_u16();
    let Stage::Sending(sending) = &mut exchange.stage else { return Ok(()) };
    let refusal = match status {
        // Nobody asked for another protocol, and what came over it would not be metered.
        101 => peer::Refusal::Upstreams,
        ..200 => return Ok(()),
        200..300 if framing(header, sending.admitted.call.as_ref()).is_some() => {
            sending.report(Outcome::Begun, &exchange.metrics);
            return Ok(());
        }
        200..300 => peer::Refusal::Upstreams,
        _ => peer::refusal(status),
    };
    let outcome = if status < 300 {
        Outcome::Failed
    } else {
        peer::outcome_of(status, Some(&header.headers))
    };
    sending.report(outcome, &exchange.metrics);
    if refusal == peer::Refusal::Customers {
        return Ok(());
    }
    if sending.may_retry(&exchange.metrics) {
        sending.last_failure = Some(peer::refused(status));
        let mut error = Error::new_up(ErrorType::HTTPStatus(status));
        error.set_retry(true);
        return Err(error);
    }
    if matches!(status, 404 | 405 | 501)
        && let Some(answer) = sending.admitted.call.local_answer()
    {
        exchange.local_answer = Some(answer);
        return Err(exchange.fail(peer::refused(status)));
    }
    let dialect = sending.attempt.as_ref().map(|attempt| attempt.candidate.target.upstream.dialect);
    if dialect.is_some_and(|dialect| peer::relays_failure(dialect, status)) {
        return Ok(());
    }
    let failure =
        if refusal == peer::Refusal::Busy { peer::busy(header) } else { peer::refused(status) };
    Err(exchange.fail(failure))
}

/// Turns the response header into the customer's. A successful response waits here until the hold
/// that pays for it is on disk: it was being written while the upstream worked.
pub(super) async fn begin(header: &mut ResponseHeader, exchange: &mut Exchange) -> Result<()> {
    let id = exchange.id;
    let channel = exchange.attempt().map(|attempt| &attempt.candidate.channel);
    let credential = channel.and_then(|channel| channel.credential.as_ref());
    headers::to_customer(header, credential.map(|one| one.secret.expose()), id)?;
    if exchange.envelope == Envelope::Anthropic && !header.headers.contains_key(REQUEST_ID) {
        header.insert_header(REQUEST_ID, id.to_string())?;
    }
    if header.status.is_informational() {
        return Ok(());
    }
    exchange.stamp().limits(header)?;
    exchange.first_byte = Some(exchange.started.elapsed());
    let Stage::Sending(sending) = &exchange.stage else { return Ok(()) };
    let framing = framing(header, sending.admitted.call.as_ref());
    let Some(framing) = framing.filter(|_| header.status.is_success()) else { return Ok(()) };
    if let Err(error) = sending.admitted.payment.durable().await {
        let message = "The gateway could not record the request. Nothing was charged.";
        return Err(exchange.fail(GatewayError::new(ErrorKind::Internal, message).cause(error)));
    }
    let Some(response) = exchange.begin_relaying(framing) else { return Ok(()) };
    if response.relaying.changes_length() && header.remove_header(&CONTENT_LENGTH).is_some() {
        header.insert_header(TRANSFER_ENCODING, "chunked")?;
    }
    if framing == Framing::Sse {
        header.insert_header(CACHE_CONTROL, "no-cache")?;
        // nginx and others buffer a response unless they are told not to.
        header.insert_header("x-accel-buffering", "no")?;
    }
    Ok(())
}

/// Passes a piece of a response on.
pub(super) fn piece(
    session: &Session,
    body: &mut Option<Bytes>,
    end_of_stream: bool,
    exchange: &mut Exchange,
) -> Result<()> {
    let Stage::Relaying(response) = &mut exchange.stage else { return Ok(()) };
    if response.cut.is_some() {
        *body = Some(Bytes::new());
        // An error drops what was filtered in the same batch, so it waits for all to be written.
        let written = session.body_bytes_sent() >= response.bytes_passed;
        return if written && !end_of_stream {
            Err(Error::new(ErrorType::Custom("the answer was cut")))
        } else {
            Ok(())
        };
    }
    if exchange.deadline.is_over() && response.framing == Framing::Sse {
        response.cut = Some(Cut::Stopping);
        let event = exchange
            .envelope
            .error_event(exchange.id, exchange.failure.insert(deadline::stopping(true)));
        response.bytes_passed += event.len();
        *body = Some(event);
        return Ok(());
    }
    let total = response.candidate.target.upstream.timeouts.total;
    let is_overdue = exchange.started.elapsed() > total;
    if is_overdue {
        response.report(Outcome::TimedOut, &exchange.metrics);
    }
    if is_overdue && response.framing != Framing::Sse {
        return Err(exchange.fail(peer::timed_out()));
    }
    let piece = body.take().unwrap_or_default();
    let step = (!is_overdue).then(|| response.relaying.relay(piece));
    let mut out = match step {
        Some(Step::Relay(bytes)) => bytes,
        Some(Step::RelayWhenCovered(bytes)) => match wait_until_covered(&mut response.relaying) {
            Ok(()) => bytes,
            Err(Uncovered::Exhausted(refusal)) => {
                response.cut = Some(Cut::Exhausted);
                let failure = exchange.failure.insert(exhausted(refusal));
                exchange.envelope.error_event(exchange.id, failure)
            }
            Err(Uncovered::NotDurable(error)) => {
                let context = "the hold could not be enlarged";
                return Err(Error::because(ErrorType::InternalError, context, error));
            }
        },
        None => {
            response.cut = Some(Cut::Overdue);
            let failure = exchange.failure.insert(peer::timed_out());
            exchange.envelope.error_event(exchange.id, failure)
        }
    };
    let budget = exchange.snapshot.limits.body_memory_bytes_max;
    if !response.held.resize(response.relaying.held_bytes(), budget) {
        let message = "The upstream's answer is too large to be re-encoded at the moment.";
        return Err(exchange.fail(GatewayError::new(ErrorKind::BadGateway, message)));
    }
    if end_of_stream && response.cut.is_none() {
        out = append(out, response.relaying.finish());
        if response.framing == Framing::Sse && !response.relaying.is_complete() {
            response.report(Outcome::Broken, &exchange.metrics);
            let event =
                exchange.envelope.error_event(exchange.id, exchange.failure.insert(stopped()));
            out = append(out, event);
        }
    }
    response.bytes_passed += out.len();
    // Nothing to send is an empty piece, which Pingora leaves out; `None` is kept for the end.
    *body = Some(out).filter(|out| !out.is_empty() || !end_of_stream);
    if end_of_stream || exchange.is_whole() {
        exchange.leave();
    }
    Ok(())
}

/// The hook cannot wait, and no piece may go before the hold that pays for it is on disk. It happens
/// once for each extension; other requests of this thread go on elsewhere.
fn wait_until_covered(relaying: &mut Relaying) -> Result<(), Uncovered> {
    let handle = tokio::runtime::Handle::current();
    tokio::task::block_in_place(|| handle.block_on(relaying.covered()))
}

/// Ends a request that failed: with an error, or with an error event if the answer had begun.
pub(super) async fn fail(
    session: &mut Session,
    error: &Error,
    exchange: &mut Exchange,
) -> FailToProxy {
    let is_cut = exchange.deadline.is_over() && exchange.failure.is_none();
    if is_cut {
        exchange.failure = Some(deadline::stopping(respond::begun(session)));
    }
    let gone = *error.esource() == ErrorSource::Downstream && exchange.failure.is_none();
    if gone {
        let message = "The customer went away.";
        exchange.failure =
            Some(GatewayError::new(ErrorKind::ClientGone, message).cause(told(error)));
        return FailToProxy { error_code: 0, can_reuse_downstream: false };
    }
    if respond::begun(session) {
        end_begun(session, error, exchange).await;
        return FailToProxy { error_code: 0, can_reuse_downstream: false };
    }
    if let Some(document) = exchange.local_answer.take() {
        exchange.failure = None;
        session.set_keepalive(None);
        let sent = respond::document(session, exchange.stamp(), document).await.is_ok();
        return FailToProxy { error_code: if sent { 200 } else { 0 }, can_reuse_downstream: false };
    }
    let was_sent = matches!(exchange.stage, Stage::Sending(_) | Stage::Relaying(_));
    let stamp = exchange.stamp();
    let failure = exchange.failure.get_or_insert_with(|| match *error.esource() {
        ErrorSource::Upstream => peer::failed(error),
        _ => GatewayError::new(ErrorKind::Internal, "The gateway failed.").cause(error),
    });
    // Pingora closes the connection behind a request that it has begun to send.
    let reusable = !was_sent && failure.kind != ErrorKind::BadFraming && session.is_body_done();
    // Who is turned away comes again, and costs less over the connection that is there.
    let is_shed = failure.kind == ErrorKind::Overloaded && !was_sent && !is_cut;
    let drained = is_shed && body::is_short(session);
    if drained {
        session.set_close_on_response_before_downstream_finish(false);
    } else if !reusable {
        session.set_keepalive(None);
    }
    let (status, _, _) = respond::wire(failure.kind);
    if failure.kind == ErrorKind::ClientGone {
        return FailToProxy { error_code: 0, can_reuse_downstream: false };
    }
    let sent = respond::error(session, stamp, exchange.envelope, failure).await.is_ok();
    if sent && !reusable && failure.kind != ErrorKind::BadFraming {
        linger(session).await;
    }
    let can_reuse_downstream = sent && (reusable || drained && session.is_body_done());
    FailToProxy { error_code: status, can_reuse_downstream }
}

/// Listens a little to a body that nobody wants: closing with unread bytes resets the connection,
/// and the answer may be lost with it.
async fn linger(session: &mut Session) {
    let downstream = session.as_downstream_mut();
    downstream.set_total_drain_timeout(Some(LINGER_TIMEOUT));
    // A customer who goes on sending has been answered all the same.
    drop(downstream.drain_request_body().await);
}

/// A stream gets an error event: without one, its reader would take the end for a success. Anything
/// else is cut off, which no reader of a declared length or a JSON document can overlook.
async fn end_begun(session: &mut Session, error: &Error, exchange: &mut Exchange) {
    let Stage::Relaying(response) = &mut exchange.stage else {
        // It was kept alive while upstreams were asked, and none has answered.
        if matches!(exchange.stage, Stage::Sending(_)) {
            let failure = exchange.failure.get_or_insert_with(|| stopped().cause(told(error)));
            let event = exchange.envelope.error_event(exchange.id, failure);
            drop(session.write_response_body(Some(event), true).await);
        }
        return;
    };
    if *error.esource() == ErrorSource::Upstream {
        response.report(peer::outcome(error), &exchange.metrics);
    }
    if response.framing != Framing::Sse {
        exchange.failure.get_or_insert_with(|| stopped().cause(told(error)));
        return;
    }
    let closing = if response.cut.is_some() {
        Bytes::new()
    } else {
        let failure = if exchange.deadline.is_over() {
            exchange.failure.insert(deadline::stopping(true))
        } else {
            exchange.failure.insert(stopped().cause(told(error)))
        };
        exchange.envelope.error_event(exchange.id, failure)
    };
    // A customer who is gone cannot be told.
    drop(session.write_response_body(Some(closing), true).await);
}

fn exhausted(refusal: Refusal) -> GatewayError {
    let (kind, message) = match refusal {
        Refusal::DiskFull | Refusal::CutOff | Refusal::Stopped | Refusal::UnknownAccount => (
            ErrorKind::Overloaded,
            "The answer was cut: it reached what was held for it, and the gateway can hold no more \
             at the moment. What was delivered is charged.",
        ),
        Refusal::Capped(_) | Refusal::ShareUsed { .. } => (
            ErrorKind::RateLimited,
            "The answer was cut: it reached what was held for it, and the API key may spend no more \
             in this period. Lower `max_tokens`, or ask for another limit of the key.",
        ),
        Refusal::Insufficient { .. } | Refusal::Held { .. } => (
            ErrorKind::BalanceExhausted,
            "The answer was cut: it reached what was held for it, and the balance covers no more. \
             Add credit, or lower `max_tokens`.",
        ),
    };
    GatewayError::new(kind, message)
}

fn stopped() -> GatewayError {
    let message =
        "The upstream stopped in the middle of the answer. What was delivered is charged.";
    GatewayError::new(ErrorKind::BadGateway, message)
}

fn append(first: Bytes, second: Bytes) -> Bytes {
    match (first.is_empty(), second.is_empty()) {
        (_, true) => first,
        (true, false) => second,
        (false, false) => {
            let mut both = BytesMut::from(first);
            both.extend_from_slice(&second);
            both.freeze()
        }
    }
}
