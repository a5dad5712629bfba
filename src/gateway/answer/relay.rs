//! From an upstream's response to the customer's: accept or try the next target, wait for the hold,
//! pass pieces on, and end well whatever happens.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, TRANSFER_ENCODING,
};
use pingora::{Error, ErrorSource, ErrorType, Result};
use pingora_proxy::{FailToProxy, Session};

use crate::balance::{HoldsCredential, Outcome};
use crate::error::{ErrorKind, GatewayError};
use crate::gateway::answer::customer;
use crate::gateway::answer::respond::{self, ACCEL_BUFFERING};
use crate::gateway::listen::{deadline, http1};
use crate::gateway::request::context::{CutReason, Exchange, RequestStage, Response};
use crate::gateway::request::envelope::Envelope;
use crate::gateway::request::failure::{CallFailure, Consequence};
use crate::gateway::request::orphan::Orphan;
use crate::gateway::request::{peer, status};
use crate::gateway::upstream::response_headers;
use crate::gateway::upstream::secrets::{self, Hidden};
use crate::gateway::wire::error::describe_error;
use crate::gateway::wire::head::{self, AnswerHead, REQUEST_ID};
use crate::gateway::wire::kind::{self, ShownFraming};
use crate::gateway::wire::length;
use crate::gateway::wire::offload;
use crate::ledger::{LedgerError, Refusal};
use crate::pipeline::{Relaying, Step, Uncovered};
use crate::price::Side;
use crate::protocols::{Delivery, Framing};

/// The header that says what of a request did not go upstream.
const LEFT_OUT: HeaderName = HeaderName::from_static("x-tollgate-left-out");
/// How long a refused customer is listened to after the answer.
const LINGER_TIMEOUT: Duration = Duration::from_millis(200);
/// How long one who is turned away over HTTP/2 may take for the answer: what has a window is sent at
/// once, and nothing waits for one.
const SHED_TAKE_TIMEOUT: Duration = Duration::from_millis(10);

/// Looks at a response header before any of it reaches the customer: what of a failure it tells, or
/// `None` for an answer that can be passed on.
pub(crate) fn failure_of(header: &AnswerHead, exchange: &mut Exchange) -> Option<CallFailure> {
    let status = header.status.as_u16();
    if status >= 400 {
        let id = response_headers::upstreams_id(&header.headers);
        let hidden = exchange.attempt().map(|tried| Hidden::at(&tried.candidate));
        // It goes to the log.
        let tells = |id: &str| hidden.is_some_and(|hidden| secrets::is_told(id.as_bytes(), hidden));
        exchange.upstreams_id = id.filter(|id| !tells(id));
    }
    let RequestStage::Sending(sending) = &mut exchange.stage else { return None };
    if let Some(lack) = sending.lacks(status) {
        return Some(CallFailure::NotOffered(lack));
    }
    if !header.status.is_success() {
        return Some(CallFailure::from_status(status, &header.headers.clone().into()));
    }
    let framing = kind::declared_framing(&header.headers, sending.admitted.call.as_ref());
    if framing.is_none() {
        return Some(CallFailure::Unreadable);
    }
    if let Some(attempt) = &mut sending.attempt {
        attempt.framing = framing;
    }
    None
}

/// What the customer reads when the ledger cannot write down that the request was made.
pub(crate) fn unrecorded(error: &LedgerError) -> GatewayError {
    let message = "The gateway could not record the request. Nothing was charged.";
    GatewayError::new(ErrorKind::Internal, message).cause(error)
}

/// Turns the response header into the customer's. A successful response waits here until the hold
/// that pays for it is on disk: it was being written while the upstream worked.
pub(crate) async fn begin(header: &mut AnswerHead, exchange: &mut Exchange) -> Result<()> {
    let id = exchange.id;
    let attempt = exchange.attempt();
    let framing = attempt.as_ref().and_then(|attempt| attempt.framing);
    let hidden = attempt.map(|attempt| Hidden::at(&attempt.candidate));
    response_headers::to_customer(&mut header.headers, hidden, id);
    if exchange.envelope == Envelope::Anthropic {
        header.headers.insert(REQUEST_ID, head::id(id));
    }
    if header.status.is_informational() {
        return Ok(());
    }
    exchange.stamp().put_beside(&mut header.headers);
    if let RequestStage::Sending(sending) = &exchange.stage
        && let Some(left_out) = sending.left_out()
        && let Ok(left_out) = HeaderValue::try_from(left_out)
    {
        header.headers.insert(LEFT_OUT, left_out);
    }
    exchange.first_byte = Some(exchange.started.elapsed());
    let RequestStage::Sending(sending) = &exchange.stage else { return Ok(()) };
    if !header.status.is_success() {
        return Ok(());
    }
    let Some(framing) = framing else {
        return Err(exchange.fail(peer::unreadable("nothing says how the answer is read")));
    };
    if let Err(error) = sending.admitted.payment.durable().await {
        return Err(exchange.fail(unrecorded(&error)));
    }
    let Some(response) = exchange.begin_relaying(framing) else { return Ok(()) };
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
    if exchange.is_array() {
        header.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    Ok(())
}

/// Passes a piece of a response on, unless it has to wait for the hold that pays for it: then it is kept
/// for [`covered`].
pub(crate) fn piece(
    body: &mut Option<Bytes>,
    end_of_stream: bool,
    exchange: &mut Exchange,
) -> Result<()> {
    let RequestStage::Relaying(response) = &mut exchange.stage else { return Ok(()) };
    if let Some(orphan) = &mut exchange.orphan {
        return unheard(orphan, response, body.take().unwrap_or_default(), end_of_stream);
    }
    if body.as_ref().is_some_and(|piece| is_mislabelled(response, piece)) {
        response.report(Outcome::Broken, &exchange.metrics);
        let cause = "the body is no event stream, or is one, against what its head says";
        return Err(exchange.fail(peer::unreadable(cause)));
    }
    if exchange.deadline.is_over() && response.framing == Framing::Sse {
        response.cut = Some(CutReason::Stopping);
        let event = exchange
            .envelope
            .error_event(exchange.id, exchange.failure.insert(deadline::stopping(true)));
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
    let out = match step {
        Some(Step::Relay(bytes)) => bytes,
        Some(Step::RelayWhenCovered(bytes)) => {
            response.uncovered = Some((bytes, end_of_stream));
            return Ok(());
        }
        None => {
            response.cut = Some(CutReason::Overdue);
            let failure = exchange.failure.insert(peer::timed_out());
            exchange.envelope.error_event(exchange.id, failure)
        }
    };
    *body = Some(passed(out, end_of_stream, exchange)?);
    Ok(())
}

/// The piece that had to wait, as the customer gets it once a hold on disk pays for it, and whether it is
/// the last; in its place the event that ends the answer, where no hold will pay for it.
pub(crate) async fn covered(exchange: &mut Exchange) -> Result<(Bytes, bool)> {
    let RequestStage::Relaying(response) = &mut exchange.stage else {
        return Ok((Bytes::new(), false));
    };
    let (bytes, end_of_stream) = response.uncovered.take().unwrap_or_default();
    let out = match response.relaying.covered().await {
        Ok(()) => bytes,
        Err(Uncovered::Exhausted(refusal)) => {
            response.cut = Some(CutReason::Exhausted);
            let failure = exchange.failure.insert(exhausted(refusal));
            exchange.envelope.error_event(exchange.id, failure)
        }
        Err(Uncovered::NotDurable(error)) => {
            let context = "the hold could not be enlarged";
            return Err(Error::because(ErrorType::InternalError, context, error));
        }
    };
    Ok((passed(out, end_of_stream, exchange)?, end_of_stream))
}

/// A piece that is paid for, as the customer gets it.
fn passed(mut out: Bytes, end_of_stream: bool, exchange: &mut Exchange) -> Result<Bytes> {
    let RequestStage::Relaying(response) = &mut exchange.stage else { return Ok(out) };
    let budget = exchange.snapshot.limits.body_memory_bytes_max;
    if !response.held.resize(response.relaying.held_bytes(), budget) {
        let message = "The upstream's answer is too large to be re-encoded at the moment.";
        return Err(exchange.fail(GatewayError::new(ErrorKind::BadGateway, message)));
    }
    if response.framing != Framing::Binary {
        out = secrets::masked(out, Hidden::at(&response.candidate));
    }
    if end_of_stream && response.cut.is_none() {
        out = ended(exchange, out)?;
    }
    out = match scanned(out, end_of_stream, exchange) {
        Ok(out) => out,
        Err(HoldsCredential) => withheld(exchange)?,
    };
    if end_of_stream || exchange.is_whole() {
        exchange.leave();
    }
    Ok(out)
}

fn scanned(
    out: Bytes,
    end_of_stream: bool,
    exchange: &mut Exchange,
) -> std::result::Result<Bytes, HoldsCredential> {
    match &mut exchange.stage {
        RequestStage::Relaying(response) => response.scan.pass(out, end_of_stream),
        _ => Ok(out),
    }
}

/// What the customer gets in the place of a piece that holds the operator's credential: the event that ends
/// a stream.
///
/// # Errors
/// The end of any other answer, which no reader of a declared length or a JSON document can overlook.
#[cold]
fn withheld(exchange: &mut Exchange) -> Result<Bytes> {
    exchange.metrics.answer_withheld(exchange.upstream_name());
    let RequestStage::Relaying(response) = &mut exchange.stage else { return Ok(Bytes::new()) };
    if response.framing == Framing::Sse {
        response.cut = Some(CutReason::Withheld);
        let charged = "What was delivered is charged.";
        let failure = peer::withheld("The rest of the upstream's answer", charged);
        let failure = exchange.failure.insert(failure);
        return Ok(exchange.envelope.error_event(exchange.id, failure));
    }
    if response.framing == Framing::Json {
        // Nobody can use the beginning of a document.
        response.relaying.withhold();
    }
    let charged = match response.framing {
        Framing::Json => "Nothing is charged.",
        _ => "What was delivered is charged.",
    };
    Err(exchange.fail(peer::withheld("The upstream's answer", charged)))
}

/// Takes a piece that nobody gets, so that nothing has to be held for it first.
fn unheard(
    orphan: &mut Orphan,
    response: &mut Response,
    piece: Bytes,
    end_of_stream: bool,
) -> Result<()> {
    if !orphan.take(piece.len()) {
        return Err(customer::given_up());
    }
    drop(response.relaying.relay(piece));
    if end_of_stream {
        drop(response.relaying.finish());
    }
    Ok(())
}

/// Whether a piece is the first to show anything of a body, and shows something else than its head has
/// said: it would be delivered without being metered.
fn is_mislabelled(response: &mut Response, piece: &[u8]) -> bool {
    if response.is_as_said || response.framing == Framing::Binary {
        return false;
    }
    let shown = kind::shown_framing(piece);
    response.is_as_said = shown != ShownFraming::Blank;
    matches!(shown, ShownFraming::Only(framing) if framing != response.framing)
}

/// What is left to send at an answer's end, behind `out`.
fn ended(exchange: &mut Exchange, out: Bytes) -> Result<Bytes> {
    let RequestStage::Relaying(response) = &mut exchange.stage else { return Ok(out) };
    let held_bytes = response.relaying.held_bytes();
    let out = append(out, offload::run_now(held_bytes, || response.relaying.finish()));
    if response.relaying.is_complete() || response.framing == Framing::Binary {
        return Ok(out);
    }
    let hidden = Hidden::at(&response.candidate);
    let is_shown = |error: &GatewayError| !secrets::is_told(error.message.as_bytes(), hidden);
    if let Some(refusal) = response.relaying.refusal().filter(is_shown) {
        let outcome = match refusal.kind {
            ErrorKind::InvalidRequest => Outcome::Refused,
            ErrorKind::RateLimited => Outcome::Busy(None),
            _ => Outcome::Failed,
        };
        response.report(outcome, &exchange.metrics);
        return Err(exchange.fail(refusal));
    }
    response.report(Outcome::Broken, &exchange.metrics);
    if response.framing == Framing::Json {
        // No reader of a document takes its beginning for the whole when the rest never comes.
        let failure = peer::unreadable("its answer ended before its document did");
        return Err(exchange.fail(failure));
    }
    let failure = broken(&response.relaying);
    let event = exchange.envelope.error_event(exchange.id, exchange.failure.insert(failure));
    Ok(append(out, event))
}

/// Ends a request that failed: with an error, or with an error event if the answer had begun.
pub(crate) async fn fail(
    session: &mut Session,
    error: &Error,
    exchange: &mut Exchange,
) -> FailToProxy {
    let is_cut = exchange.deadline.is_over() && exchange.failure.is_none();
    if is_cut {
        exchange.failure = Some(deadline::stopping(head::begun(session)));
    }
    let gone = *error.esource() == ErrorSource::Downstream && exchange.failure.is_none();
    if gone {
        let message = "The customer went away.";
        exchange.failure =
            Some(GatewayError::new(ErrorKind::ClientGone, message).cause(describe_error(error)));
        return FailToProxy { error_code: 0, can_reuse_downstream: false };
    }
    if head::begun(session) {
        end_begun(session, error, exchange).await;
        return FailToProxy { error_code: 0, can_reuse_downstream: false };
    }
    if let Some(document) = exchange.local_answer.take() {
        exchange.failure = None;
        http1::close_behind(session);
        let sent = respond::document(session, exchange.stamp(), document).await.is_ok();
        return FailToProxy { error_code: if sent { 200 } else { 0 }, can_reuse_downstream: false };
    }
    let was_sent = matches!(exchange.stage, RequestStage::Sending(_) | RequestStage::Relaying(_));
    let stamp = exchange.stamp();
    let failure = exchange.failure.get_or_insert_with(|| match *error.esource() {
        ErrorSource::Upstream => failed(error),
        _ => GatewayError::new(ErrorKind::Internal, "The gateway failed.").cause(error),
    });
    // Behind a request that an upstream was asked for, the connection is closed.
    let reusable = !was_sent && failure.kind != ErrorKind::BadFraming && session.is_body_done();
    // Who is turned away comes again, and costs less over the connection that is there.
    let is_overloaded = failure.kind == ErrorKind::Overloaded && !was_sent && !is_cut;
    let is_shed = exchange.is_shed || is_overloaded;
    if is_shed && respond::refused_at_once(session) {
        return FailToProxy { error_code: 0, can_reuse_downstream: false };
    }
    if is_overloaded && session.as_http2().is_some() {
        // It is read at once by whoever means to read it.
        session.set_write_timeout(Some(SHED_TAKE_TIMEOUT));
    }
    let drained = is_shed && length::is_short(session);
    if drained {
        http1::drain_behind(session);
    } else if !reusable {
        http1::close_behind(session);
    }
    let status = status::status_of(failure);
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
    let RequestStage::Relaying(response) = &mut exchange.stage else {
        // It was kept alive while upstreams were asked, and none has answered.
        if matches!(exchange.stage, RequestStage::Sending(_)) {
            let failure = exchange.failure.get_or_insert_with(|| match *error.esource() {
                ErrorSource::Upstream => failed(error),
                _ => stopped().cause(describe_error(error)),
            });
            let event = exchange.envelope.error_event(exchange.id, failure);
            drop(session.write_response_body(Some(event), true).await);
        }
        return;
    };
    if *error.esource() == ErrorSource::Upstream {
        let Consequence { outcome, .. } =
            CallFailure::refine_by_body(error).consequence(Delivery::Stream);
        if let Some(outcome) = outcome {
            response.report(outcome, &exchange.metrics);
        }
    }
    if response.framing != Framing::Sse {
        exchange.failure.get_or_insert_with(|| stopped().cause(describe_error(error)));
        return;
    }
    let closing = if response.cut.is_some() {
        Bytes::new()
    } else {
        let failure = if exchange.deadline.is_over() {
            exchange.failure.insert(deadline::stopping(true))
        } else {
            let broken = || broken(&response.relaying).cause(describe_error(error));
            exchange.failure.get_or_insert_with(broken)
        };
        exchange.envelope.error_event(exchange.id, failure)
    };
    let closing = exchange.as_sent(closing, true);
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
        Refusal::Insufficient { .. } | Refusal::Held { .. } | Refusal::InDebt { .. } => (
            ErrorKind::BalanceExhausted,
            "The answer was cut: it reached what was held for it, and the balance covers no more. \
             Add credit, or lower `max_tokens`.",
        ),
    };
    GatewayError::new(kind, message)
}

/// What the customer reads when the upstream ended an answer of which nothing was sent.
fn failed(error: &Error) -> GatewayError {
    CallFailure::refine_by_body(error).error(Delivery::Relay).cause(describe_error(error))
}

/// What the customer reads of a stream that ends before its end.
fn broken(relaying: &Relaying) -> GatewayError {
    let message = match relaying.delivered_before_break() {
        None => return stopped(),
        Some(delivered) if delivered.total(Side::Output) == 0 => {
            "The upstream gave no answer that could be used. Nothing is charged."
        }
        Some(_) => {
            "The rest of the upstream's answer could not be translated. What was delivered is charged."
        }
    };
    GatewayError::new(ErrorKind::BadGateway, message)
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
