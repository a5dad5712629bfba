//! Answers that are put together before any of them is sent. The gateway makes the calls itself, with
//! the same rules for the next target as for a relayed request.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use pingora::http::RequestHeader;
use pingora::proxy::Session;
use pingora::{Error, ErrorType, Result};

use super::exchange::{Attempt, Exchange, Sending, Stage};
use super::failed::Failed;
use super::proxy::Gateway;
use super::{headers, peer, respond};
use crate::balance::Outcome;
use crate::config::snapshot::Upstream;
use crate::error::{ErrorKind, GatewayError};
use crate::ledger::RequestId;
use crate::outbound::{Answer, Outbound, OutboundError};
use crate::pipeline::{self, UpstreamRequest};
use crate::protocols::audio::Transcoder;
use crate::protocols::limits::AudioFormat;
use crate::protocols::{Collect, Collected, Content, Framing};

/// Requests to one target at one time for one customer: enough to hide a round trip, few enough not
/// to use up an account's limit at once.
const PARALLEL_MAX: usize = 4;
/// How often a result is asked for: it is there already, and asking again does nothing.
const FETCHES_MAX: u32 = 2;

/// Answers a paid request.
pub(super) async fn answer(
    gateway: &Gateway,
    session: &mut Session,
    exchange: &mut Exchange,
) -> Result<()> {
    let head = session.req_header().clone();
    let collected = match collect(gateway, &head, exchange).await {
        Ok(collected) => collected,
        Err(Failed::Relayed(status, body)) => {
            return respond::relayed(session, exchange.stamp(), status, body).await;
        }
        Err(Failed::Ours(error) | Failed::Next(_, error) | Failed::InDoubt(_, error)) => {
            return Err(exchange.fail(error));
        }
    };
    // Nothing goes to the customer before the hold that pays for it is on disk.
    if let Stage::Sending(sending) = &exchange.stage
        && let Err(error) = sending.admitted.payment.durable().await
    {
        let message = "The gateway could not record the request. Nothing was charged.";
        return Err(exchange.fail(GatewayError::new(ErrorKind::Internal, message).cause(error)));
    }
    let Collected { usage, source, content } = collected;
    match content {
        Content::Json(document) => {
            exchange.begin_known(Framing::Json, usage, source);
            exchange.finish_known();
            exchange.first_byte = Some(exchange.started.elapsed());
            respond::document(session, exchange.stamp(), document).await
        }
        Content::Audio(url, format) => {
            let Some(Attempt { candidate, .. }) = exchange.attempt() else { return Ok(()) };
            let upstream = Arc::clone(&candidate.target.upstream);
            let opened = open(&gateway.outbound, &url, &upstream, format).await;
            let speech = opened.map_err(|error| exchange.fail(error))?;
            exchange.begin_known(Framing::Binary, usage, source);
            exchange.first_byte = Some(exchange.started.elapsed());
            send(session, exchange, speech).await
        }
    }
}

/// Asks one target after the other.
async fn collect(
    gateway: &Gateway,
    head: &RequestHeader,
    exchange: &mut Exchange,
) -> std::result::Result<Collected, Failed> {
    let budget = exchange.snapshot.limits.body_memory_bytes_max;
    let id = exchange.id;
    let Stage::Sending(sending) = &mut exchange.stage else {
        let message = "The request was not admitted.";
        return Err(Failed::Ours(GatewayError::new(ErrorKind::Internal, message)));
    };
    while let Some(candidate) = sending.next(&gateway.metrics) {
        let body = &sending.body.bytes;
        let Some(requests) = pipeline::rewrite_collected(&sending.admitted, &candidate, body)
        else {
            continue;
        };
        let Some(request) = requests.first().cloned() else { continue };
        let upstream = Arc::clone(&candidate.target.upstream);
        let attempt = Attempt::begin(candidate, request);
        sending.attempt = Some(Attempt { body_emitted: true, ..attempt });
        let caller = Caller { outbound: &gateway.outbound, upstream: &upstream, head, id };
        let asked = ask(&caller, sending, &requests, budget).await;
        if let Some(outcome) = Failed::outcome_of(&asked) {
            sending.report(outcome, &gateway.metrics);
        }
        match asked {
            Err(Failed::Next(_, error)) => sending.last_failure = Some(error),
            done => return done,
        }
    }
    Err(Failed::Ours(sending.give_up()))
}

/// Whose request goes to whom.
struct Caller<'a> {
    outbound: &'a Outbound,
    upstream: &'a Upstream,
    /// The customer's.
    head: &'a RequestHeader,
    id: RequestId,
}

/// Sends all of the requests to one target, and puts their answers together.
async fn ask(
    caller: &Caller<'_>,
    sending: &mut Sending,
    requests: &[UpstreamRequest],
    budget: usize,
) -> std::result::Result<Collected, Failed> {
    let Sending { admitted, body, .. } = sending;
    let Some(call) = admitted.call.collected() else {
        let message = "The request cannot be answered this way.";
        return Err(Failed::Ours(GatewayError::new(ErrorKind::Internal, message)));
    };
    let body = parking_lot::Mutex::new(body);
    let may_grow = |bytes: usize| body.lock().grow(bytes, budget);
    let may_grow: &(dyn Fn(usize) -> bool + Sync) = &may_grow;
    let asked: Vec<BoxFuture<'_, _>> =
        requests.iter().map(|request| ask_one(caller, call, request, may_grow).boxed()).collect();
    let answers: Vec<Bytes> = stream::iter(asked).buffered(PARALLEL_MAX).try_collect().await?;
    call.read(&answers).map_err(Failed::from)
}

async fn ask_one(
    caller: &Caller<'_>,
    call: &(dyn Collect + Sync),
    request: &UpstreamRequest,
    may_grow: &(dyn Fn(usize) -> bool + Sync),
) -> std::result::Result<Bytes, Failed> {
    let mut head = caller.head.clone();
    let internal = |error: Box<Error>| {
        let message = "The request could not be written for the upstream.";
        Failed::Ours(GatewayError::new(ErrorKind::Internal, message).cause(error))
    };
    headers::to_upstream(&mut head, request, caller.id).map_err(internal)?;
    let (path, body) = (request.path.as_str(), request.body.clone());
    let sent = caller.outbound.post(caller.upstream, path, head.headers.clone(), body);
    let answer = sent.await.map_err(unanswered)?;
    let status = answer.status();
    let outcome = peer::outcome_of(status, Some(answer.headers()));
    let body = answer.whole(may_grow).await.map_err(unanswered)?;
    if (200..300).contains(&status) {
        return Ok(body);
    }
    Err(match (call.refusal(status, &body), peer::refusal(status)) {
        (Some(fault), _) => fault.into(),
        (None, peer::Refusal::Customers) => Failed::Relayed(status, body),
        (None, peer::Refusal::Busy) => Failed::Next(outcome, peer::busy_without_word()),
        (None, peer::Refusal::Upstreams) => Failed::Next(outcome, peer::refused(status)),
    })
}

fn unanswered(error: OutboundError) -> Failed {
    match error {
        OutboundError::Unreachable(_) => Failed::Next(Outcome::Unreachable, peer::at_fault(error)),
        OutboundError::TimedOut => {
            Failed::InDoubt(Outcome::TimedOut, peer::timed_out().cause(error))
        }
        // The upstream has the request, and may be at work: another one would cost twice.
        OutboundError::Broken(_) | OutboundError::Forbidden(_) => {
            Failed::InDoubt(Outcome::Broken, peer::at_fault(error))
        }
        OutboundError::TooLarge => {
            let message = "The upstream's answer is too large at the moment. Try again shortly.";
            Failed::Ours(GatewayError::new(ErrorKind::BadGateway, message))
        }
    }
}

/// Audio on its way to the customer.
struct Speech {
    answer: Answer,
    transcoder: Option<Box<Transcoder>>,
    /// What is there to send already.
    first: Bytes,
}

impl Speech {
    /// The next piece; `None` at the end.
    async fn next(&mut self) -> std::result::Result<Option<Bytes>, GatewayError> {
        let piece = self.answer.chunk().await.map_err(unfetched)?;
        match (&mut self.transcoder, piece) {
            (None, piece) => Ok(piece),
            (Some(transcoder), Some(piece)) => {
                transcoder.feed(&piece).map(Some).map_err(|_| not_audio())
            }
            (Some(transcoder), None) if !transcoder.is_whole() => Err(not_audio()),
            (Some(_), None) => Ok(None),
        }
    }
}

/// Begins to fetch audio, so far that there is something to send.
async fn open(
    outbound: &Outbound,
    url: &str,
    upstream: &Upstream,
    format: AudioFormat,
) -> std::result::Result<Speech, GatewayError> {
    let mut tries = 0;
    let answer = loop {
        tries += 1;
        match outbound.fetch(url, upstream).await {
            Ok(answer) if answer.status() == 200 => break answer,
            Ok(answer) if tries == FETCHES_MAX || answer.status() < 500 => {
                return Err(unfetched(format!("its URL answered {}", answer.status())));
            }
            Err(error) if tries == FETCHES_MAX => return Err(unfetched(error)),
            Ok(_) | Err(_) => {}
        }
    };
    let transcoder = (format == AudioFormat::Mp3).then(Box::default);
    let mut speech = Speech { answer, transcoder, first: Bytes::new() };
    while speech.first.is_empty() {
        match speech.next().await? {
            Some(piece) => speech.first = piece,
            None => break,
        }
    }
    Ok(speech)
}

/// Sends audio as it arrives.
async fn send(session: &mut Session, exchange: &mut Exchange, mut speech: Speech) -> Result<()> {
    let (media_type, length) = match &speech.transcoder {
        Some(_) => ("audio/mpeg", None),
        None => ("audio/wav", speech.answer.content_length()),
    };
    respond::begin_file(session, exchange.stamp(), media_type, length).await?;
    let first = std::mem::take(&mut speech.first);
    session.write_response_body(Some(first), false).await?;
    loop {
        match speech.next().await {
            Ok(Some(piece)) if piece.is_empty() => {}
            Ok(Some(piece)) => session.write_response_body(Some(piece), false).await?,
            Ok(None) => break,
            Err(error) => {
                exchange.failure = Some(error);
                return Err(Error::new_up(ErrorType::ConnectionClosed));
            }
        }
    }
    let last = speech.transcoder.as_mut().map(|transcoder| transcoder.finish());
    exchange.finish_known();
    session.write_response_body(Some(last.unwrap_or_default()), true).await
}

fn unfetched(cause: impl std::fmt::Display) -> GatewayError {
    let message = "The upstream made the audio, but it could not be fetched. Nothing was charged.";
    GatewayError::new(ErrorKind::BadGateway, message).cause(cause)
}

fn not_audio() -> GatewayError {
    unfetched("what the upstream made is no whole 16-bit PCM wav file")
}
