//! `response_body_filter`: relays and meters each piece of a response body under the hold that pays for it.

use bytes::{Bytes, BytesMut};
use pingora::{Error, ErrorType, Result};

use crate::balance::{Candidate, HoldsCredential, Outcome};
use crate::error::{ErrorKind, GatewayError};
use crate::gateway::answer::customer;
use crate::gateway::listen::deadline;
use crate::gateway::request::context::{CutReason, Exchange, RequestStage, Response};
use crate::gateway::request::failure::CallFailure;
use crate::gateway::request::orphan::Orphan;
use crate::gateway::request::peer;
use crate::gateway::upstream::secrets::{self, Hidden};
use crate::gateway::wire::kind::{self, ShownFraming};
use crate::gateway::wire::offload;
use crate::ledger::Refusal;
use crate::pipeline::{Relaying, Step, Uncovered};
use crate::price::Side;
use crate::protocols::Framing;

/// Passes a piece of a response on, unless it has to wait for the hold that pays for it: then it is kept
/// for [`covered`].
pub(super) fn filter(
    body: &mut Option<Bytes>,
    end_of_stream: bool,
    exchange: &mut Exchange,
) -> Result<()> {
    if matches!(exchange.stage, RequestStage::Sending(_)) {
        return collected(body.as_deref().unwrap_or_default(), exchange);
    }
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

/// Refuses a document that the gateway has put together if it holds the credential of its target.
fn collected(document: &[u8], exchange: &mut Exchange) -> Result<()> {
    let holds_credential = exchange.attempt().is_some_and(|attempt| {
        let Candidate { channel, token, .. } = &attempt.candidate;
        channel.has_credential_in(document, token.as_ref())
    });
    if !holds_credential {
        return Ok(());
    }
    exchange.metrics.answer_withheld(exchange.upstream_name());
    exchange.fail_answer(CallFailure::Unreadable);
    Err(exchange.fail(peer::withheld("The upstream's answer", "Nothing is charged.")))
}

/// The piece that had to wait, as the customer gets it once a hold on disk pays for it, and whether it is
/// the last; in its place the event that ends the answer, where no hold will pay for it.
pub(super) async fn covered(exchange: &mut Exchange) -> Result<(Bytes, bool)> {
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

/// What the customer reads of a stream that ends before its end.
pub(super) fn broken(relaying: &Relaying) -> GatewayError {
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

pub(super) fn stopped() -> GatewayError {
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
