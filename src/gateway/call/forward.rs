//! Calls whose answer is passed on as it comes, as a document or a stream: over Pingora's connections,
//! but in a loop of our own.
//!
//! Pingora's loop ends an upstream's answer as soon as the customer is gone. Here it is read on where
//! what it costs is known at its end only, and work that an upstream may have begun is never sent a
//! second time unless an operator says so.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use pingora::{Error, ErrorType, Result};
use pingora_proxy::Session;
use tollgate_outbound::{DialError, certificate_refusal};

use crate::balance::{Candidate, Outcome};
use crate::gateway::answer::customer::{Customer, disconnected};
use crate::gateway::answer::refused;
use crate::gateway::call::first_event;
use crate::gateway::call::targets::{FallbackAnswer, TryResult, UpstreamStrategy, try_targets};
use crate::gateway::request::context::RequestContext;
use crate::gateway::request::failure::{self, CallFailure};
use crate::gateway::request::filters::UpstreamFilters;
use crate::gateway::request::peer;
use crate::gateway::request::progress::Progress;
use crate::gateway::request::sending::Attempt;
use crate::gateway::request::services::Gateway;
use crate::gateway::upstream::client::{UpstreamCall, delimit};
use crate::gateway::wire::cors;
use crate::gateway::wire::error::describe_error;
use crate::gateway::wire::head::AnswerHead;
use crate::gateway::wire::kind::{self, ShownFraming};
use crate::pipeline::{self, AdmittedRequest};
use crate::protocols::refusal::{self, AnswerStart};
use crate::protocols::{Delivery, Framing};

/// Pieces of an answer that are there at once go to the customer together, up to about this size.
const GATHERED_BYTES_MAX: usize = 16 * 1024;

/// Answers a paid request.
///
/// # Errors
/// What `fail_to_proxy` is to tell the customer, or the log.
pub(crate) async fn answer(
    gateway: &Gateway,
    session: &mut Session,
    ctx: &mut RequestContext,
) -> Result<()> {
    let mut relay = Forward { gateway, session, customer: Customer::new(ctx) };
    let begun = try_targets(gateway, ctx, &mut relay).await?;
    let (mut call, mut header) = relay.wait_for_head(ctx, begun).await?;
    relay.sniff_body(ctx, &mut call, &mut header).await?;
    if header.status.is_success() {
        let first = relay.begin(ctx, &mut call, header).await?;
        relay.pass_on(ctx, &mut call, first).await?;
    } else {
        let Forward { session, mut customer, .. } = relay;
        // It is large, and most requests do without it.
        let refused = refused::answer(gateway, session, ctx, &mut customer, &mut call, header);
        Box::pin(refused).await?;
    }
    gateway.upstreams.release(call);
    Ok(())
}

/// Asks targets over Pingora's connections, while the customer is watched and kept waiting.
struct Forward<'a> {
    gateway: &'a Gateway,
    session: &'a mut Session,
    customer: Customer,
}

/// A call whose answer can be passed on, or is not here yet.
enum ResponseStart {
    /// The head has come.
    Head(Box<UpstreamCall>, AnswerHead),
    /// The head has not come in time, and the call goes on.
    Silent(Box<UpstreamCall>, Box<Error>),
}

impl UpstreamStrategy for Forward<'_> {
    type Answer = ResponseStart;

    async fn try_target(
        &mut self,
        ctx: &mut RequestContext,
        candidate: Candidate,
    ) -> TryResult<ResponseStart> {
        self.send(ctx, candidate).await.unwrap_or_else(TryResult::Ended)
    }
}

impl Forward<'_> {
    async fn send(
        &mut self,
        ctx: &mut RequestContext,
        candidate: Candidate,
    ) -> Result<TryResult<ResponseStart>> {
        let (gateway, session) = (self.gateway, &mut *self.session);
        let (id, budget) = (ctx.id, ctx.snapshot.limits.body_memory_bytes_max);
        let delivery = ctx.delivery();
        let upstream = Arc::clone(&candidate.target.upstream);
        let sending = ctx.sending()?;
        let query = session.req_header().uri.query();
        let rewrite = |admitted: &AdmittedRequest, body: &Bytes| {
            pipeline::rewrite(admitted, &candidate, query, body)
        };
        let rewritten = gateway.request_body_filter(sending, rewrite).await;
        let Some(request) = rewritten else { return Ok(TryResult::Skipped) };
        if let Err(full) = sending.body.share_with(&request.body, budget) {
            return Err(ctx.fail(full.to_error()));
        }
        sending.attempt = Some(Attempt::begin(candidate, request));
        let fresh = sending.take_new_connection();
        let connecting = gateway.upstreams.connect(&upstream, fresh);
        let mut call = match self.customer.wait(session, ctx, pin!(connecting)).await? {
            Ok(call) => call,
            Err(error) => {
                ctx.services.metrics.connect_failed(&upstream.name, &error);
                return Ok(not_connected(&error, delivery));
            }
        };
        let sending = ctx.sending()?;
        let Some(attempt) = &mut sending.attempt else { return Err(disconnected()) };
        let body = attempt.request.body.clone();
        let customers = &session.req_header().headers;
        let joined = UpstreamCall::joined_bytes(&body);
        let head = gateway.upstream_request_filter(customers, &mut attempt.request, id, joined)?;
        sending.admitted.payment.note_sent().await.map_err(|error| {
            Error::because(ErrorType::InternalError, "the call left no trace", error)
        })?;
        attempt.progress = Progress::Sent;
        let sent = self.customer.wait(session, ctx, pin!(call.send(head, &body))).await?;
        drop(body);
        match sent {
            Ok(()) => self.head(ctx, call).await,
            Err(error) => unanswered(ctx, call, error),
        }
    }

    /// Waits for the head of an answer, and looks at it.
    async fn head(
        &mut self,
        ctx: &mut RequestContext,
        mut call: Box<UpstreamCall>,
    ) -> Result<TryResult<ResponseStart>> {
        let head = self.customer.wait(self.session, ctx, pin!(call.head())).await?;
        let header = match head {
            Ok(header) => header,
            Err(error) => return unanswered(ctx, call, error),
        };
        note_quota(ctx, &call);
        match self.gateway.upstream_response_filter(&header, ctx) {
            None => self.answered(ctx, call, header).await,
            // It is large, and most answers are good.
            Some(failure) => Box::pin(self.refused(ctx, call, header, failure)).await,
        }
    }

    /// Handles a response head of success, once the beginning of the body is there.
    async fn answered(
        &mut self,
        ctx: &mut RequestContext,
        mut call: Box<UpstreamCall>,
        header: AnswerHead,
    ) -> Result<TryResult<ResponseStart>> {
        let Self { customer, session, .. } = self;
        if let Some(error) = first_event::error(customer, session, ctx, &mut call).await? {
            let (failure, error) = ctx.read_error_in_answer(&error, &header.headers.into());
            return Ok(TryResult::Failed(failure, FallbackAnswer::Error(error)));
        }
        let metrics = Arc::clone(&ctx.services.metrics);
        ctx.sending()?.report(Outcome::Begun, &metrics);
        Ok(TryResult::Answered(ResponseStart::Head(call, header)))
    }

    /// Handles a response head that reports `failure`, once the beginning of the body is there.
    async fn refused(
        &mut self,
        ctx: &mut RequestContext,
        mut call: Box<UpstreamCall>,
        header: AnswerHead,
        failure: CallFailure,
    ) -> Result<TryResult<ResponseStart>> {
        let (delivery, status) = (ctx.delivery(), header.status.as_u16());
        // A customer who leaves while the words come pays for no more than if they had come.
        if let Some(attempt) = ctx.attempt() {
            attempt.progress = failure.consequence(delivery).progress;
        }
        let headers = HeaderMap::from(header.headers.clone());
        let is_document = status < 300 && failure::is_json(&headers);
        let mut failure = failure;
        if !matches!(failure, CallFailure::NotOffered(_)) && (status >= 400 || is_document) {
            let Self { customer, session, .. } = self;
            let words = first_event::words(customer, session, ctx, &mut call).await?;
            match refusal::beginning(&words, true) {
                // An answer that should have been of another kind, such as audio.
                AnswerStart::Error(error) if is_document => {
                    let (failure, error) = ctx.read_error_in_answer(&error, &headers);
                    return Ok(TryResult::Failed(failure, FallbackAnswer::Error(error)));
                }
                _ if is_document => {}
                _ => failure = ctx.read_refusal(failure, status, &headers, &words),
            }
        }
        let dialect = ctx.attempt().map(|tried| tried.candidate.target.upstream.dialect);
        let relays = |dialect| peer::relays_failure(dialect, status);
        let is_relayed = match failure {
            CallFailure::RefusedRequest(_) => true,
            CallFailure::RefusedCredential | CallFailure::RefusedAccount => false,
            // What it says of itself is of use to customers who read its words.
            _ => dialect.is_some_and(relays) && (status == 429 || !ctx.is_translated()),
        };
        Ok(TryResult::Failed(
            failure,
            match is_relayed {
                true => FallbackAnswer::Answer(ResponseStart::Head(call, header)),
                false => FallbackAnswer::Error(failure.error_with(delivery, &headers)),
            },
        ))
    }

    /// The head of the answer. Of one that has not come in time, the customer is told so, and it is
    /// waited for where the answer will have cost money.
    ///
    /// # Errors
    /// The silence, where it is not waited for; then whatever goes wrong.
    async fn wait_for_head(
        &mut self,
        ctx: &mut RequestContext,
        begun: ResponseStart,
    ) -> Result<(Box<UpstreamCall>, AnswerHead)> {
        let (mut call, silence) = match begun {
            ResponseStart::Head(call, header) => return Ok((call, header)),
            ResponseStart::Silent(call, silence) => (call, silence),
        };
        if ctx.response.orphan.is_some() {
            return Err(disconnected());
        }
        let delivery = ctx.delivery();
        self.read_on(ctx, &mut call, silence).await?;
        let tried = self.head(ctx, call).await?;
        match ctx.conclude(tried, delivery)? {
            Some(ResponseStart::Head(call, header)) => Ok((call, header)),
            Some(ResponseStart::Silent(..)) | None => Err(disconnected()),
        }
    }

    /// Looks whether what is said to be JSON is a stream of events, or nothing that can be read: the body
    /// decides. Of one that is said
    /// to be events the head does not wait for its body.
    async fn sniff_body(
        &mut self,
        ctx: &mut RequestContext,
        call: &mut UpstreamCall,
        header: &mut AnswerHead,
    ) -> Result<()> {
        let declared = ctx.attempt().and_then(|attempt| attempt.framing);
        if declared != Some(Framing::Json) {
            return Ok(());
        }
        // Who did not ask for events gets blank lines as they come.
        let streams = ctx.stream;
        let is_enough =
            |begun: &[u8], _: bool| !streams || kind::shown_framing(begun) != ShownFraming::Blank;
        let begun = loop {
            let shown =
                self.customer.wait(self.session, ctx, pin!(call.look(!streams, is_enough))).await?;
            match shown {
                Ok(begun) => break begun,
                Err(error) => {
                    ctx.fail_answer(CallFailure::refine_by_body(&error));
                    self.broken_off(ctx, call, error).await?;
                }
            }
        };
        // Who did not ask for events cannot read them.
        if streams && kind::shown_framing(&begun) == ShownFraming::Only(Framing::Sse) {
            header.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            header.headers.remove(&CONTENT_LENGTH);
            if let Some(attempt) = ctx.attempt() {
                attempt.framing = Some(Framing::Sse);
            }
            return Ok(());
        }
        match no_document(&begun, call.has_shown_all()) {
            Some(cause) => Err(ctx.unread(cause)),
            None => Ok(()),
        }
    }

    /// Ends the customer's answer, of which they get no more because of `error`, and goes on reading the
    /// upstream's for its bill.
    ///
    /// # Errors
    /// The one given, where nothing is read on.
    async fn read_on(
        &mut self,
        ctx: &mut RequestContext,
        call: &mut UpstreamCall,
        error: Box<Error>,
    ) -> Result<()> {
        if !ctx.read_on() {
            return Err(error);
        }
        // It is large, and most answers do without it.
        let answered = self.gateway.fail_downstream(self.session, &error, ctx);
        let _reuse = Box::pin(answered).await;
        // A client would keep a connection over HTTP/1.1, and its next request would wait there. Over HTTP/2 only
        // an answer has its end now that has none.
        self.session.as_downstream_mut().shutdown().await;
        call.wait_without_limit();
        Ok(())
    }

    /// Sends the upstream's head as the customer's, if there is none yet. A document that is there as a
    /// whole is read before that, so that one that is none can still be told from one: then it is given.
    async fn begin(
        &mut self,
        ctx: &mut RequestContext,
        call: &mut UpstreamCall,
        mut header: AnswerHead,
    ) -> Result<Option<AnswerPiece>> {
        let framing = ctx.attempt().and_then(|attempt| attempt.framing);
        let is_stream = framing.is_some_and(|framing| framing.for_customers() == Framing::Sse);
        if self.customer.has_head() && !is_stream && ctx.response.orphan.is_none() {
            return Err(ctx.fail(peer::unreadable("events were asked for, and none came")));
        }
        delimit(&mut header);
        self.gateway.response_filter(Some(&mut header), ctx).await?;
        cors::allow(&mut header.headers, self.session.req_header());
        let mut first = None;
        if framing == Some(Framing::Json)
            && call.has_shown_all()
            && let Some(Some(document)) = call.chunk_now()
        {
            first = Some(self.gather(ctx, call, document)?);
        }
        self.customer.send_head(self.session, ctx, header).await?;
        Ok(first)
    }

    /// Passes the answer's body on, or reads it to its end for nobody. What was read of it before its head
    /// was sent comes first.
    async fn pass_on(
        &mut self,
        ctx: &mut RequestContext,
        call: &mut UpstreamCall,
        mut first: Option<AnswerPiece>,
    ) -> Result<()> {
        loop {
            let (piece, is_end) = if let Some(piece) = first.take() {
                piece
            } else {
                let chunk = self.customer.wait(self.session, ctx, pin!(call.chunk())).await?;
                match chunk {
                    Ok(Some(chunk)) => self.gather(ctx, call, chunk)?,
                    Ok(None) => self.metered(ctx, Bytes::new(), true)?,
                    // What a connection does behind a stream's last event is nobody's concern.
                    Err(_) if ctx.is_whole_stream() => self.metered(ctx, Bytes::new(), true)?,
                    Err(error) => {
                        self.broken_off(ctx, call, error).await?;
                        continue;
                    }
                }
            };
            self.customer.send(self.session, ctx, piece, is_end).await?;
            if ctx.is_held_up() && ctx.response.orphan.is_none() {
                if ctx.has_uncovered() {
                    // It is large, and most answers never wait.
                    first = Some(Box::pin(self.gateway.uncovered_body_filter(ctx)).await?);
                    continue;
                }
                let cut = Error::new(ErrorType::Custom("the answer was cut"));
                if is_end || ctx.services.deadline.is_over() || ctx.is_withheld() {
                    return Err(cut);
                }
                self.read_on(ctx, call, cut).await?;
            }
            if is_end {
                return Ok(());
            }
        }
    }

    /// All of the response that has arrived, as the client gets it, and true if that is its end.
    fn gather(
        &mut self,
        ctx: &mut RequestContext,
        call: &mut UpstreamCall,
        first: Bytes,
    ) -> Result<AnswerPiece> {
        let (mut out, mut is_end) = self.metered(ctx, first, call.is_done())?;
        let mut gathered = BytesMut::new();
        while !is_end && !ctx.is_held_up() && gathered.len().max(out.len()) < GATHERED_BYTES_MAX {
            let Some(piece) = call.chunk_now() else { break };
            let is_last = piece.is_none() || call.is_done();
            let more;
            (more, is_end) = self.metered(ctx, piece.unwrap_or_default(), is_last)?;
            if more.is_empty() {
                continue;
            }
            if gathered.is_empty() {
                gathered.extend_from_slice(&out);
            }
            gathered.extend_from_slice(&more);
        }
        if !gathered.is_empty() {
            out = gathered.freeze();
        }
        Ok((out, is_end))
    }

    /// A piece of the answer as the customer gets it, once it is metered and paid for. One that has to wait for
    /// the hold that pays for it is not the end of the answer.
    fn metered(
        &mut self,
        ctx: &mut RequestContext,
        piece: Bytes,
        is_end: bool,
    ) -> Result<AnswerPiece> {
        let mut body = Some(piece);
        pingora_proxy::ProxyHttp::response_body_filter(
            self.gateway,
            self.session,
            &mut body,
            is_end,
            ctx,
        )?;
        Ok((body.unwrap_or_default(), is_end && !ctx.has_uncovered()))
    }

    /// The upstream broke off, or has been silent for too long. In that case the customer is told, and
    /// it is read on where it may go on to cost money.
    ///
    /// # Errors
    /// The one given, where nothing is read on.
    async fn broken_off(
        &mut self,
        ctx: &mut RequestContext,
        call: &mut UpstreamCall,
        error: Box<Error>,
    ) -> Result<()> {
        if *error.etype() != ErrorType::ReadTimedout || ctx.response.orphan.is_some() {
            return Err(error);
        }
        self.read_on(ctx, call, error).await
    }
}

/// A piece of the answer as the customer gets it, and whether it is the last.
type AnswerPiece = (Bytes, bool);

/// Notes what the answer says of the quota of the credential that it was asked with.
fn note_quota(ctx: &mut RequestContext, call: &UpstreamCall) {
    if let Some(report) = call.quota()
        && let Some(attempt) = ctx.attempt()
        && let Some(channel) = attempt.candidate.quota_channel()
    {
        channel.note_quota(report, Instant::now());
    }
}

/// No connection to the target came about, or none on which it takes requests.
fn not_connected(error: &DialError, delivery: Delivery) -> TryResult<ResponseStart> {
    let failure = CallFailure::from_dial(error);
    TryResult::Failed(failure, FallbackAnswer::Error(failure.error(delivery).cause(error)))
}

/// The target got the request, or some of it, and the connection failed before it had answered.
fn unanswered(
    ctx: &mut RequestContext,
    call: Box<UpstreamCall>,
    error: Box<Error>,
) -> Result<TryResult<ResponseStart>> {
    let delivery = ctx.delivery();
    if let Some(refused) = certificate_refusal(&call.upstream().authority, error.root_cause()) {
        ctx.services.metrics.connect_failed(&call.upstream().name, &refused);
        return Ok(not_connected(&refused, delivery));
    }
    let failure = match (call.has_not_begun(), error.etype()) {
        // The upstream had closed an idle connection when the request came: it is asked again, over a
        // new one.
        (true, _) if call.is_reused() => CallFailure::ClosedWhileIdle,
        (true, ErrorType::ReadTimedout | ErrorType::WriteTimedout) => {
            CallFailure::StalledWhileSending
        }
        (true, _) => CallFailure::BrokenWhileSending,
        (false, ErrorType::ReadTimedout) => CallFailure::TimedOut,
        (false, _) => CallFailure::ConnectionLost,
    };
    Ok(TryResult::Failed(
        failure,
        match failure {
            CallFailure::TimedOut => FallbackAnswer::Answer(ResponseStart::Silent(call, error)),
            _ => FallbackAnswer::Error(failure.error(delivery).cause(describe_error(&error))),
        },
    ))
}

/// The reason why these first bytes cannot begin a JSON object; `None` if they can. The meter checks the
/// rest.
fn no_document(begun: &[u8], is_all: bool) -> Option<&'static str> {
    let text = begun.trim_ascii_start();
    match text.first() {
        None => is_all.then_some("its answer is empty"),
        Some(b'{') => None,
        Some(_) => Some("its answer is no JSON object"),
    }
}
