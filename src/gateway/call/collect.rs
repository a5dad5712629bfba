//! Answers that are put together before any of them is sent. The gateway makes the calls itself, with
//! the same rules for the next target as for a relayed request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use http::HeaderMap;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::Session;

use crate::balance::{Candidate, Outcome};
use crate::config::snapshot::Upstream;
use crate::error::{ErrorKind, GatewayError};
use crate::gateway::answer::{refused, respond};
use crate::gateway::call::post::{ConnectionReuse, Poster};
use crate::gateway::call::try_result::TryResult;
use crate::gateway::call::whole_call::{FailedCall, WholeAnswer, is_error};
use crate::gateway::request::context::RequestContext;
use crate::gateway::request::failure::CallFailure;
use crate::gateway::request::filters::UpstreamFilters;
use crate::gateway::request::progress::{Missing, Progress};
use crate::gateway::request::refusal::{customers_error, judge, judge_success};
use crate::gateway::request::sending::{Attempt, Sending};
use crate::gateway::request::services::Gateway;
use crate::gateway::request::upstream_error;
use crate::gateway::upstream::secrets::UpstreamSecrets;
use crate::gateway::wire::offload::{LARGE_BYTES, Offload};
use crate::outbound::{Outbound, OutboundResponse};
use crate::pipeline::{self, AdmittedRequest, AnsweredParts, UpstreamRequest};
use crate::protocols::audio::Transcoder;
use crate::protocols::limits::AudioFormat;
use crate::protocols::refusal::{self, AnswerStart, RefusalFault};
use crate::protocols::{Collect, CollectedAnswer, CollectedContent, Delivery, Framing};

/// Requests to one target at one time for one customer: enough to hide a round trip, few enough not
/// to use up an account's limit at once.
const PARALLEL_MAX: usize = 4;
/// Attempts to fetch a result: it exists already, and fetching it again changes nothing.
const FETCHES_MAX: u32 = 2;

/// Answers a paid request.
///
/// # Errors
/// What `fail_to_proxy` is to tell the customer, or the log.
pub(crate) async fn answer(
    gateway: &Gateway,
    session: &mut Session,
    ctx: &mut RequestContext,
) -> Result<()> {
    let customers = session.req_header().headers.clone();
    let collected = match (CollectFrom { gateway, headers: &customers }).ask(ctx).await? {
        WholeAnswer::Done(collected) => collected,
        WholeAnswer::Words(status, words) => {
            let words = refused::with_own_id(words, ctx);
            return respond::relayed(session, ctx.gateway_headers(), status, words).await;
        }
    };
    // Nothing goes to the client before the hold that pays for it is on disk.
    gateway.response_filter(None, ctx).await?;
    let CollectedAnswer { usage, source, content } = collected;
    match content {
        CollectedContent::Json(document) => {
            let mut body = Some(document);
            pingora_proxy::ProxyHttp::response_body_filter(gateway, session, &mut body, true, ctx)?;
            let document = body.unwrap_or_default();
            ctx.begin_collected(Framing::Json, usage, source);
            ctx.finish_collected();
            ctx.response.first_byte = Some(ctx.started.elapsed());
            let sent = respond::document(session, ctx.gateway_headers(), document).await;
            sent.map_err(|error| error.into_down())
        }
        CollectedContent::Audio(url, format) => {
            let Some(Attempt { candidate, .. }) = ctx.attempt() else { return Ok(()) };
            let upstream = Arc::clone(&candidate.target.upstream);
            let opened = open(&gateway.outbound, &url, &upstream, format).await;
            let speech = opened.map_err(|error| ctx.fail(error))?;
            ctx.begin_collected(Framing::Binary, usage, source);
            ctx.response.first_byte = Some(ctx.started.elapsed());
            send(session, ctx, speech).await
        }
    }
}

/// Strategy that collects a complete answer from one target.
struct CollectFrom<'a> {
    gateway: &'a Gateway,
    /// The headers of the customer's request.
    headers: &'a HeaderMap,
}

impl CollectFrom<'_> {
    /// Tries one target after another until one answers.
    ///
    /// # Errors
    /// The request ends here, whatever other targets there are.
    async fn ask(&self, ctx: &mut RequestContext) -> Result<WholeAnswer<CollectedAnswer>> {
        let delivery = ctx.delivery();
        loop {
            let candidate = self.gateway.upstream_peer(ctx).await?;
            let tried = match self.collect(ctx, candidate).await? {
                Some(Ok(collected)) => TryResult::Answered(WholeAnswer::Done(collected)),
                Some(Err(failed)) => TryResult::Failed(failed.failure, failed.otherwise()),
                None => TryResult::Skipped,
            };
            if let Some(answer) = ctx.conclude(tried, delivery)? {
                return Ok(answer);
            }
        }
    }

    /// Asks one target; `None` where the request cannot be written for it.
    async fn collect(
        &self,
        ctx: &mut RequestContext,
        candidate: Candidate,
    ) -> Result<Option<std::result::Result<CollectedAnswer, FailedCall>>> {
        let (gateway, id) = (self.gateway, ctx.id);
        let budget = ctx.snapshot.limits.body_memory_bytes_max;
        let sending = ctx.sending()?;
        let rewrite = |admitted: &AdmittedRequest, body: &Bytes| {
            pipeline::rewrite_collected(admitted, &candidate, body)
        };
        let rewritten = gateway.request_body_filter(sending, rewrite).await;
        let Some(mut requests) = rewritten else { return Ok(None) };
        let Some(request) = requests.first().cloned() else { return Ok(None) };
        let mut headers = Vec::with_capacity(requests.len());
        for request in &mut requests {
            let head: HeaderMap = gateway.upstream_request_filter(self.headers, request, id, 0)?;
            headers.push(head);
        }
        let (upstream, token) = (Arc::clone(&candidate.target.upstream), candidate.token.clone());
        let quotas = candidate.quota_channel().cloned();
        let hidden = UpstreamSecrets { upstream: &upstream, token: token.as_ref() };
        if let Err(error) = sending.admitted.payment.note_sent().await {
            return Err(ctx.fail(upstream_error::unrecorded(&error)));
        }
        // Behind the record, and before the calls: a drop from here on settles a request that may be at work.
        let attempt = Attempt::begin(candidate, request);
        sending.attempt = Some(Attempt { progress: Progress::Sent, ..attempt });
        let (missing_model, is_name_chosen) =
            (sending.missing_by_status(404), sending.is_name_chosen());
        let reuse = ConnectionReuse::Allowed;
        let poster = Poster { gateway, upstream: &upstream, channel: quotas.as_deref(), reuse };
        let offload = gateway.offload.as_ref();
        let caller = PartsCall { poster, offload, hidden, missing_model, is_name_chosen };
        let requests: Vec<_> = requests.iter().zip(headers).collect();
        let collected = call_all(&caller, sending, requests, budget).await;
        match &collected {
            Ok(_) => sending.report(Outcome::Ok, &gateway.metrics),
            Err(failed) => sending.refusal = failed.refusal.clone(),
        }
        Ok(Some(collected))
    }
}

/// The calls of one target for the parts of an answer.
struct PartsCall<'a> {
    poster: Poster<'a>,
    offload: &'a Offload,
    /// Upstream and its secrets, which must not appear in answers.
    hidden: UpstreamSecrets<'a>,
    /// The thing that the target lacks if it answers 404; `None` if a 404 is a failure of the target's own.
    missing_model: Option<Missing>,
    /// The model has a name of the customer's own.
    is_name_chosen: bool,
}

/// Sends all of the requests to one target, and puts their answers together.
async fn call_all(
    caller: &PartsCall<'_>,
    sending: &mut Sending,
    requests: Vec<(&UpstreamRequest, HeaderMap)>,
    budget: usize,
) -> std::result::Result<CollectedAnswer, FailedCall> {
    let Sending { admitted, body, .. } = sending;
    let call = admitted.call.collected();
    let body = parking_lot::Mutex::new(body);
    let may_grow = |bytes: usize| body.lock().grow(bytes, budget);
    let may_grow: &(dyn Fn(usize) -> bool + Sync) = &may_grow;
    // Those that are under way when one fails are waited for: they are paid for.
    let has_failed = AtomicBool::new(false);
    let count = requests.len();
    let begin_one = |(request, headers): (_, HeaderMap)| {
        let has_failed = &has_failed;
        let call = async move {
            if has_failed.load(Ordering::Relaxed) {
                return None;
            }
            let answer = call_one(caller, call, request, headers, may_grow).await;
            has_failed.fetch_or(answer.is_err(), Ordering::Relaxed);
            Some(answer)
        };
        call.boxed()
    };
    let calls: Vec<BoxFuture<'_, _>> = requests.into_iter().map(begin_one).collect();
    let mut calls = stream::iter(calls).buffered(PARALLEL_MAX);
    let (mut answers, mut failed) = (Vec::with_capacity(count), None);
    while let Some(answer) = calls.next().await {
        match answer {
            Some(Ok(answer)) => answers.push(answer),
            Some(Err(failure)) => failed = failed.or(Some(failure)),
            None => {}
        }
    }
    drop(calls);
    let length: usize = answers.iter().map(Bytes::len).sum();
    // Answers that are put together are there twice more: as their parts and as a whole.
    if failed.is_none() && length >= LARGE_BYTES && !may_grow(length.saturating_mul(2)) {
        failed = Some(FailedCall::by_table(CallFailure::TooLarge, Delivery::Collect));
    }
    if let Some(failed) = failed {
        let is_refused = matches!(failed.failure, CallFailure::RefusedRequest(_));
        let answered = call.and_then(|call| call.answered(&answers));
        admitted.partial =
            answered.map(|(usage, source)| AnsweredParts { usage, source, is_refused });
        return Err(failed);
    }
    let read = || pipeline::read_collected(admitted, &answers);
    caller.offload.run(length, read).await.map_err(|fault| {
        let (is_error, headers) = (answers.iter().all(is_error), HeaderMap::new());
        let failure = CallFailure::from_success(&fault, is_error, &headers);
        let failed = FailedCall::read(failure, Delivery::Collect, fault);
        failed.without_secrets(&headers, caller.hidden)
    })
}

/// Sends one request, and reads its answer: a JSON object.
async fn call_one(
    caller: &PartsCall<'_>,
    call: Option<&(dyn Collect + Sync)>,
    request: &UpstreamRequest,
    headers: HeaderMap,
    may_grow: &(dyn Fn(usize) -> bool + Sync),
) -> std::result::Result<Bytes, FailedCall> {
    let delivery = Delivery::Collect;
    let (path, body) = (request.path.as_str(), request.body.clone().into_whole());
    let sent = caller.poster.post(path, &headers, body).await;
    let answer = sent.map_err(|error| {
        FailedCall::unanswered(CallFailure::from_outbound(&error), delivery, &error)
    })?;
    let status = answer.status();
    let headers = answer.headers().clone();
    let is_good = (200..300).contains(&status);
    let mut length = 0_usize;
    let read = answer.whole(|bytes| {
        length = length.saturating_add(bytes);
        (is_good || length <= refused::BYTES_MAX) && may_grow(bytes)
    });
    let read = read.await;
    if is_good {
        let body = read.map_err(|error| {
            FailedCall::unanswered(CallFailure::from_outbound_body(&error), delivery, &error)
        })?;
        if let AnswerStart::Error(_) = refusal::beginning(&body, true) {
            return Err(caller.error_in_answer(call, &body, &headers));
        }
        if body.trim_ascii_start().starts_with(b"{") {
            return Ok(body);
        }
        let error = upstream_error::unreadable("its answer is no JSON object");
        return Err(FailedCall::new(CallFailure::Unreadable, error));
    }
    // It is a refusal all the same, whose words are too many or break off.
    let body = read.unwrap_or_default();
    if let Some(missing) = caller.missing_model.filter(|_| status == 404) {
        return Err(FailedCall::by_table(CallFailure::NotOffered(missing), delivery));
    }
    Err(caller.refused(call, status, body, &headers))
}

impl PartsCall<'_> {
    /// Classifies a refusal: by the protocol's own reading of its body, unless the operator is at fault.
    fn refused(
        &self,
        call: Option<&(dyn Collect + Sync)>,
        status: u16,
        body: Bytes,
        headers: &HeaderMap,
    ) -> FailedCall {
        let delivery = Delivery::Collect;
        let name = refused::name_in(headers);
        let refusal = refusal::read(self.hidden.upstream.dialect, status, name, &body);
        let by_status = CallFailure::from_status(status, headers);
        let judged = judge(by_status, &refusal, status, headers, delivery);
        if refusal.fault == Some(RefusalFault::Model) && self.is_name_chosen {
            return FailedCall::by_table(CallFailure::NotOffered(Missing::Model), delivery);
        }
        let is_operators =
            matches!(judged, CallFailure::RefusedCredential | CallFailure::RefusedAccount);
        let fault = call.and_then(|call| call.refusal(status, &body));
        let failed = match (fault.filter(|_| !is_operators), judged) {
            (Some(fault), _) => {
                let failure = CallFailure::from_words(&fault, status, headers);
                FailedCall::read(failure, delivery, fault)
            }
            (None, CallFailure::RefusedRequest(status)) => FailedCall::words(status, body),
            (None, failure) => FailedCall::by_table(failure, delivery),
        };
        failed.with_refusal(Some(refusal)).without_secrets(headers, self.hidden)
    }

    /// Classifies an error body with a status of success.
    fn error_in_answer(
        &self,
        call: Option<&(dyn Collect + Sync)>,
        body: &Bytes,
        headers: &HeaderMap,
    ) -> FailedCall {
        let delivery = Delivery::Collect;
        let refusal = refusal::read(self.hidden.upstream.dialect, 200, None, body);
        let judged = judge_success(&refusal, headers);
        let is_operators =
            matches!(judged, CallFailure::RefusedCredential | CallFailure::RefusedAccount);
        let fault = call.and_then(|call| call.refusal(200, body));
        let failed = match (fault.filter(|_| !is_operators), judged) {
            (Some(fault), _) => {
                let failure = CallFailure::from_success(&fault, true, headers);
                FailedCall::read(failure, delivery, fault)
            }
            (None, CallFailure::RefusedRequest(status)) => {
                let error = customers_error(&refusal, status, body, true, self.hidden);
                FailedCall::new(judged, error)
            }
            (None, failure) => FailedCall::by_table(failure, delivery),
        };
        failed.with_refusal(Some(refusal)).without_secrets(headers, self.hidden)
    }
}

/// Audio that is relayed to the customer.
struct Speech {
    answer: OutboundResponse,
    transcoder: Option<Box<Transcoder>>,
    /// The bytes to send first.
    first: Bytes,
}

impl Speech {
    /// Reads the next piece; `None` at the end.
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

/// Starts the download of audio and reads its first piece.
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
async fn send(session: &mut Session, ctx: &mut RequestContext, mut speech: Speech) -> Result<()> {
    let (media_type, length) = match &speech.transcoder {
        Some(_) => ("audio/mpeg", None),
        None => ("audio/wav", speech.answer.content_length()),
    };
    let begun = respond::begin_file(session, ctx.gateway_headers(), media_type, length).await;
    begun.map_err(|error| error.into_down())?;
    let first = std::mem::take(&mut speech.first);
    let left = |error: Box<Error>| error.into_down();
    session.write_response_body(Some(first), false).await.map_err(left)?;
    loop {
        match speech.next().await {
            Ok(Some(piece)) if piece.is_empty() => {}
            Ok(Some(piece)) => {
                session.write_response_body(Some(piece), false).await.map_err(left)?;
            }
            Ok(None) => break,
            Err(error) => {
                ctx.response.failure = Some(error);
                return Err(Error::new_up(ErrorType::ConnectionClosed));
            }
        }
    }
    let last = speech.transcoder.as_mut().map(|transcoder| transcoder.finish());
    ctx.finish_collected();
    session.write_response_body(Some(last.unwrap_or_default()), true).await.map_err(left)
}

fn unfetched(cause: impl std::fmt::Display) -> GatewayError {
    let message = "The upstream made the audio, but it could not be fetched. Nothing was charged.";
    GatewayError::new(ErrorKind::BadGateway, message).cause(cause)
}

fn not_audio() -> GatewayError {
    unfetched("what the upstream made is no whole 16-bit PCM wav file")
}
