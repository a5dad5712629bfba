//! Calls whose answer is passed on as it comes, as a document or a stream: over Pingora's connections,
//! but in a loop of our own. This file asks targets for the head; [`relay`](super::relay) passes the body on.
//!
//! Pingora's loop ends an upstream's answer as soon as the customer is gone. Here it is read on where
//! what it costs is known at its end only, and work that an upstream may have begun is never sent a
//! second time unless an operator says so.

use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::HeaderMap;
use pingora::{Error, ErrorType, Result};
use pingora_proxy::Session;
use tollgate_outbound::{DialError, certificate_refusal};

use crate::balance::{Candidate, Outcome};
use crate::gateway::answer::customer::{Customer, disconnected};
use crate::gateway::call::first_event;
use crate::gateway::call::relay::Relay;
use crate::gateway::call::try_result::{FallbackAnswer, TryResult};
use crate::gateway::request::context::RequestContext;
use crate::gateway::request::failure::{self, CallFailure};
use crate::gateway::request::filters::UpstreamFilters;
use crate::gateway::request::progress::Progress;
use crate::gateway::request::sending::Attempt;
use crate::gateway::request::services::Gateway;
use crate::gateway::request::upstream_error;
use crate::gateway::upstream::client::UpstreamCall;
use crate::gateway::wire::error::describe_error;
use crate::gateway::wire::head::AnswerHead;
use crate::pipeline::{self, AdmittedRequest};
use crate::protocols::Delivery;
use crate::protocols::refusal::{self, AnswerStart};

/// Answers a paid request.
///
/// # Errors
/// What `fail_to_proxy` is to tell the customer, or the log.
pub(crate) async fn answer(
    gateway: &Gateway,
    session: &mut Session,
    ctx: &mut RequestContext,
) -> Result<()> {
    let mut customer = Customer::new(session, ctx);
    // Boxed: its state is large, and is freed before the answer is passed on, which can take minutes.
    let (call, header) = Box::pin(Forward { gateway, customer: &mut customer }.call()).await?;
    Relay { gateway, customer, call }.answer(header).await
}

/// Asks targets over Pingora's connections, while the customer is watched and kept waiting.
struct Forward<'c, 'a> {
    gateway: &'a Gateway,
    customer: &'c mut Customer<'a>,
}

/// A call whose answer can be passed on, or is not here yet.
enum ResponseStart {
    /// The head has come.
    Head(Box<UpstreamCall>, AnswerHead),
    /// The head has not come in time, and the call goes on.
    Silent(Box<UpstreamCall>, Box<Error>),
}

impl Forward<'_, '_> {
    /// The call whose answer is passed on, and the head of the answer.
    ///
    /// # Errors
    /// The request ends here, whatever other targets there are.
    async fn call(mut self) -> Result<(Box<UpstreamCall>, AnswerHead)> {
        let begun = self.ask().await?;
        self.wait_for_head(begun).await
    }

    /// Tries one target after another until one answers.
    ///
    /// # Errors
    /// The request ends here, whatever other targets there are.
    async fn ask(&mut self) -> Result<ResponseStart> {
        let delivery = self.customer.ctx.delivery();
        loop {
            let candidate = self.gateway.upstream_peer(self.customer.ctx).await?;
            let tried = self.try_target(candidate).await?;
            if let Some(start) = self.customer.ctx.conclude(tried, delivery)? {
                return Ok(start);
            }
        }
    }

    /// Rewrites the request for a target, sends it, and waits for the head of its answer.
    async fn try_target(&mut self, candidate: Candidate) -> Result<TryResult<ResponseStart>> {
        let Customer { session, ctx, .. } = &mut *self.customer;
        let gateway = self.gateway;
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
        let mut call = match self.customer.wait(pin!(connecting)).await? {
            Ok(call) => call,
            Err(error) => {
                self.customer.ctx.services.metrics.connect_failed(&upstream.name, &error);
                return Ok(not_connected(&error, delivery));
            }
        };
        let Customer { session, ctx, .. } = &mut *self.customer;
        let sending = ctx.sending()?;
        let Some(attempt) = &mut sending.attempt else { return Err(disconnected()) };
        let body = attempt.request.body.clone();
        let customers = &session.req_header().headers;
        let joined = UpstreamCall::joined_bytes(&body);
        let head = gateway.upstream_request_filter(customers, &mut attempt.request, id, joined)?;
        // Before any byte is sent: a start after a crash finds every call that an upstream may have begun.
        sending.admitted.payment.note_sent().await.map_err(|error| {
            Error::because(ErrorType::InternalError, "the call left no trace", error)
        })?;
        attempt.progress = Progress::Sent;
        let sent = self.customer.wait(pin!(call.send(head, &body))).await?;
        drop(body);
        match sent {
            Ok(()) => self.head(call).await,
            Err(error) => unanswered(self.customer.ctx, call, error),
        }
    }

    /// Waits for the head of an answer, and looks at it.
    async fn head(&mut self, mut call: Box<UpstreamCall>) -> Result<TryResult<ResponseStart>> {
        let head = self.customer.wait(pin!(call.head())).await?;
        let ctx = &mut *self.customer.ctx;
        let header = match head {
            Ok(header) => header,
            Err(error) => return unanswered(ctx, call, error),
        };
        note_quota(ctx, &call);
        match self.gateway.upstream_response_filter(&header, ctx) {
            None => self.answered(call, header).await,
            // Boxed: it is large, and most responses are successes.
            Some(failure) => Box::pin(self.refused(call, header, failure)).await,
        }
    }

    /// Handles a successful response head, once the beginning of the body has arrived.
    async fn answered(
        &mut self,
        mut call: Box<UpstreamCall>,
        header: AnswerHead,
    ) -> Result<TryResult<ResponseStart>> {
        let first = first_event::error(self.customer, &mut call).await?;
        let ctx = &mut *self.customer.ctx;
        if let Some(error) = first {
            let (failure, error) = ctx.read_error_in_answer(&error, &header.headers.into());
            return Ok(TryResult::Failed(failure, FallbackAnswer::Error(error)));
        }
        let metrics = Arc::clone(&ctx.services.metrics);
        ctx.sending()?.report(Outcome::Begun, &metrics);
        Ok(TryResult::Answered(ResponseStart::Head(call, header)))
    }

    /// Handles a response head that reports `failure`, once the beginning of the body has arrived.
    async fn refused(
        &mut self,
        mut call: Box<UpstreamCall>,
        header: AnswerHead,
        failure: CallFailure,
    ) -> Result<TryResult<ResponseStart>> {
        let ctx = &mut *self.customer.ctx;
        let (delivery, status) = (ctx.delivery(), header.status.as_u16());
        // A customer who leaves while the words come pays for no more than if they had come.
        if let Some(attempt) = ctx.attempt() {
            attempt.progress = failure.consequence(delivery).progress;
        }
        let headers = HeaderMap::from(header.headers.clone());
        let is_document = status < 300 && failure::is_json(&headers);
        let mut failure = failure;
        if !matches!(failure, CallFailure::NotOffered(_)) && (status >= 400 || is_document) {
            let words = first_event::words(self.customer, &mut call).await?;
            let ctx = &mut *self.customer.ctx;
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
        let ctx = &mut *self.customer.ctx;
        let dialect = ctx.attempt().map(|tried| tried.candidate.target.upstream.dialect);
        let relays = |dialect| upstream_error::relays_failure(dialect, status);
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
        begun: ResponseStart,
    ) -> Result<(Box<UpstreamCall>, AnswerHead)> {
        let (mut call, silence) = match begun {
            ResponseStart::Head(call, header) => return Ok((call, header)),
            ResponseStart::Silent(call, silence) => (call, silence),
        };
        if self.customer.ctx.response.orphan.is_some() {
            return Err(disconnected());
        }
        let delivery = self.customer.ctx.delivery();
        self.customer.end_and_read_on(self.gateway, &mut call, silence).await?;
        let tried = self.head(call).await?;
        match self.customer.ctx.conclude(tried, delivery)? {
            Some(ResponseStart::Head(call, header)) => Ok((call, header)),
            Some(ResponseStart::Silent(..)) | None => Err(disconnected()),
        }
    }
}

/// Records the quota that the answer reports for the credential.
fn note_quota(ctx: &mut RequestContext, call: &UpstreamCall) {
    if let Some(report) = call.quota()
        && let Some(attempt) = ctx.attempt()
        && let Some(channel) = attempt.candidate.quota_channel()
    {
        channel.note_quota(report, Instant::now());
    }
}

/// Result of a try for which no usable connection to the target could be opened.
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
