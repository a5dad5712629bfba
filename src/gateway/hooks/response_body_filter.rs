//! `response_body_filter`: relays and meters each piece of a response body under the hold that pays for it.

use bytes::{Bytes, BytesMut};
use pingora::{Error, ErrorType, Result};

use crate::balance::{Candidate, CredentialLeak, Outcome};
use crate::error::{ErrorKind, GatewayError};
use crate::gateway::answer::customer;
use crate::gateway::listen::deadline;
use crate::gateway::request::context::{RequestContext, RequestStage};
use crate::gateway::request::failure::CallFailure;
use crate::gateway::request::orphan::Orphan;
use crate::gateway::request::response::{CutReason, Response};
use crate::gateway::request::upstream_error;
use crate::gateway::upstream::secrets::{self, UpstreamSecrets};
use crate::gateway::wire::offload;
use crate::gateway::wire::response_framing::{self, ShownFraming};
use crate::ledger::Refusal;
use crate::pipeline::{CoverageError, RelayStep, Relaying};
use crate::price::Side;
use crate::protocols::Framing;

/// Passes a piece of a response on, unless it has to wait for the hold that pays for it: then it is kept
/// for [`covered`].
pub(super) fn filter(
    body: &mut Option<Bytes>,
    end_of_stream: bool,
    ctx: &mut RequestContext,
) -> Result<()> {
    if matches!(ctx.stage, RequestStage::Sending(_)) {
        return collected(body.as_deref().unwrap_or_default(), ctx);
    }
    let RequestStage::Relaying(response) = &mut ctx.stage else { return Ok(()) };
    // First of all checks: what nobody receives is metered and needs no hold, no scan and no deadline.
    if let Some(orphan) = &mut ctx.response.orphan {
        return discarded(orphan, response, body.take().unwrap_or_default(), end_of_stream);
    }
    if body.as_ref().is_some_and(|piece| is_mislabelled(response, piece)) {
        response.report(Outcome::Broken, &ctx.services.metrics);
        let cause = "the body is no event stream, or is one, against what its head says";
        return Err(ctx.fail(upstream_error::unreadable(cause)));
    }
    if ctx.services.deadline.is_over() && response.framing == Framing::Sse {
        response.cut = Some(CutReason::Stopping);
        let event = ctx
            .routing
            .envelope
            .error_event(ctx.id, ctx.response.failure.insert(deadline::stopping(true)));
        *body = Some(event);
        return Ok(());
    }
    let total = response.candidate.target.upstream.timeouts.total;
    let is_overdue = ctx.started.elapsed() > total;
    if is_overdue {
        response.report(Outcome::TimedOut, &ctx.services.metrics);
    }
    if is_overdue && response.framing != Framing::Sse {
        return Err(ctx.fail(upstream_error::timed_out()));
    }
    let piece = body.take().unwrap_or_default();
    let step = (!is_overdue).then(|| response.relaying.relay(piece));
    let out = match step {
        Some(RelayStep::Relay(bytes)) => bytes,
        Some(RelayStep::RelayWhenCovered(bytes)) => {
            response.uncovered = Some((bytes, end_of_stream));
            return Ok(());
        }
        None => {
            response.cut = Some(CutReason::Overdue);
            let failure = ctx.response.failure.insert(upstream_error::timed_out());
            ctx.routing.envelope.error_event(ctx.id, failure)
        }
    };
    *body = Some(passed(out, end_of_stream, ctx)?);
    Ok(())
}

/// Refuses a document that the gateway has put together if it holds the credential of its target.
fn collected(document: &[u8], ctx: &mut RequestContext) -> Result<()> {
    let holds_credential = ctx.attempt().is_some_and(|attempt| {
        let Candidate { channel, token, .. } = &attempt.candidate;
        channel.has_credential_in(document, token.as_ref())
    });
    if !holds_credential {
        return Ok(());
    }
    ctx.services.metrics.answer_withheld(ctx.upstream_name());
    ctx.fail_answer(CallFailure::Unreadable);
    Err(ctx.fail(upstream_error::withheld("The upstream's answer", "Nothing is charged.")))
}

/// The piece that had to wait, as the customer gets it once a hold on disk pays for it, and whether it is
/// the last; in its place the event that ends the answer, where no hold will pay for it.
pub(super) async fn covered(ctx: &mut RequestContext) -> Result<(Bytes, bool)> {
    let RequestStage::Relaying(response) = &mut ctx.stage else {
        return Ok((Bytes::new(), false));
    };
    let (bytes, end_of_stream) = response.uncovered.take().unwrap_or_default();
    let out = match response.relaying.covered().await {
        Ok(()) => bytes,
        Err(CoverageError::Exhausted(refusal)) => {
            response.cut = Some(CutReason::Exhausted);
            let failure = ctx.response.failure.insert(exhausted(refusal));
            ctx.routing.envelope.error_event(ctx.id, failure)
        }
        Err(CoverageError::NotDurable(error)) => {
            let context = "the hold could not be enlarged";
            return Err(Error::because(ErrorType::InternalError, context, error));
        }
    };
    Ok((passed(out, end_of_stream, ctx)?, end_of_stream))
}

/// A metered piece, in the form in which the client receives it.
fn passed(mut out: Bytes, end_of_stream: bool, ctx: &mut RequestContext) -> Result<Bytes> {
    let RequestStage::Relaying(response) = &mut ctx.stage else { return Ok(out) };
    let budget = ctx.snapshot.limits.body_memory_bytes_max;
    if !response.held.resize(response.relaying.held_bytes(), budget) {
        let message = "The upstream's answer is too large to be re-encoded at the moment.";
        return Err(ctx.fail(GatewayError::new(ErrorKind::BadGateway, message)));
    }
    if response.framing != Framing::Binary {
        out = secrets::masked(out, UpstreamSecrets::at(&response.candidate));
    }
    if end_of_stream && response.cut.is_none() {
        out = ended(ctx, out)?;
    }
    out = match scanned(out, end_of_stream, ctx) {
        Ok(out) => out,
        Err(CredentialLeak) => withheld(ctx)?,
    };
    if end_of_stream || ctx.is_whole() {
        ctx.release_slots();
    }
    Ok(out)
}

fn scanned(
    out: Bytes,
    end_of_stream: bool,
    ctx: &mut RequestContext,
) -> std::result::Result<Bytes, CredentialLeak> {
    match &mut ctx.stage {
        RequestStage::Relaying(response) => response.scan.pass(out, end_of_stream),
        _ => Ok(out),
    }
}

/// Event that ends a stream instead of a piece with the operator's credential.
///
/// # Errors
/// The end of any other answer, which no reader of a declared length or a JSON document can overlook.
#[cold]
fn withheld(ctx: &mut RequestContext) -> Result<Bytes> {
    ctx.services.metrics.answer_withheld(ctx.upstream_name());
    let RequestStage::Relaying(response) = &mut ctx.stage else { return Ok(Bytes::new()) };
    if response.framing == Framing::Sse {
        response.cut = Some(CutReason::Withheld);
        let charged = "What was delivered is charged.";
        let failure = upstream_error::withheld("The rest of the upstream's answer", charged);
        let failure = ctx.response.failure.insert(failure);
        return Ok(ctx.routing.envelope.error_event(ctx.id, failure));
    }
    if response.framing == Framing::Json {
        // Nobody can use the beginning of a document.
        response.relaying.withhold();
    }
    let charged = match response.framing {
        Framing::Json => "Nothing is charged.",
        _ => "What was delivered is charged.",
    };
    Err(ctx.fail(upstream_error::withheld("The upstream's answer", charged)))
}

/// Meters a piece that no client receives, so that it needs no hold before.
fn discarded(
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

/// True for the first piece with content, if its framing is not the one that the head declares: it would be
/// delivered without being metered.
fn is_mislabelled(response: &mut Response, piece: &[u8]) -> bool {
    if response.is_framing_confirmed || response.framing == Framing::Binary {
        return false;
    }
    let shown = response_framing::shown_framing(piece);
    response.is_framing_confirmed = shown != ShownFraming::Blank;
    matches!(shown, ShownFraming::Only(framing) if framing != response.framing)
}

/// Appends the end of the response to `out`.
fn ended(ctx: &mut RequestContext, out: Bytes) -> Result<Bytes> {
    let RequestStage::Relaying(response) = &mut ctx.stage else { return Ok(out) };
    let held_bytes = response.relaying.held_bytes();
    let out = append(out, offload::run_now(held_bytes, || response.relaying.finish()));
    if response.relaying.is_complete() || response.framing == Framing::Binary {
        return Ok(out);
    }
    let hidden = UpstreamSecrets::at(&response.candidate);
    let is_shown =
        |error: &GatewayError| !secrets::contains_secret(error.message.as_bytes(), hidden);
    if let Some(refusal) = response.relaying.refusal().filter(is_shown) {
        let outcome = match refusal.kind {
            ErrorKind::InvalidRequest => Outcome::Refused,
            ErrorKind::RateLimited => Outcome::Busy(None),
            _ => Outcome::Failed,
        };
        response.report(outcome, &ctx.services.metrics);
        return Err(ctx.fail(refusal));
    }
    response.report(Outcome::Broken, &ctx.services.metrics);
    if response.framing == Framing::Json {
        // No reader of a document takes its beginning for the whole when the rest never comes.
        let failure = upstream_error::unreadable("its answer ended before its document did");
        return Err(ctx.fail(failure));
    }
    let failure = broken(&response.relaying);
    let event = ctx.routing.envelope.error_event(ctx.id, ctx.response.failure.insert(failure));
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

/// The error for a stream that broke off.
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
