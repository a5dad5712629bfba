//! Requests that start a task. The task is on disk before its upstream is asked, and again with the
//! upstream's id before the customer is answered; what may have been taken is never sent again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pingora::Result;
use pingora_proxy::Session;

use crate::balance::{Candidate, Channel, Outcome};
use crate::error::{ErrorKind, GatewayError};
use crate::gateway::answer::{refused, respond};
use crate::gateway::call::post::{ConnectionReuse, Poster};
use crate::gateway::call::repeated_submit::{
    accepted_as, answer_of_first, id_alone, overtaken, taken,
};
use crate::gateway::call::task_record::{
    count_repetitions_after, internal, no_such_task, open, reject, retarget, stand, unreadable,
};
use crate::gateway::call::try_result::TryResult;
use crate::gateway::call::whole_call::{FailedCall, WholeAnswer, is_error};
use crate::gateway::request::context::{RequestContext, RequestStage};
use crate::gateway::request::failure::CallFailure;
use crate::gateway::request::filters::UpstreamFilters;
use crate::gateway::request::progress::Missing;
use crate::gateway::request::refusal::judge;
use crate::gateway::request::sending::{Attempt, Sending};
use crate::gateway::request::services::Gateway;
use crate::gateway::request::upstream_error;
use crate::gateway::upstream::secrets::UpstreamSecrets;
use crate::ledger::{Key, RequestId, Task, TaskPhase};
use crate::limits::InUseGuard;
use crate::outbound::{OutboundError, may_announce};
use crate::pipeline::{self, AdmittedRequest};
use crate::protocols::refusal;
use crate::protocols::task::Submit;
use crate::protocols::{Call, Delivery};
use crate::tasks::WAIT_MAX;

/// An upstream's answer to a submit.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Checks a submit before any money is held: its webhook must not lead inside, its tasks must be the
/// account's, and there must be a slot to wait for its end. Gives the slot, if it waits.
pub(crate) async fn check(
    gateway: &Gateway,
    ctx: &RequestContext,
    key: &Key,
    call: &dyn Call,
) -> std::result::Result<Option<InUseGuard>, GatewayError> {
    let Some(submit) = call.submit() else { return Ok(None) };
    let snapshot = &ctx.snapshot;
    if let Some(url) = submit.webhook_url()
        && let Err(cause) = may_announce(url, &snapshot.tasks.webhook_hosts)
    {
        let message = format!("`webhook_url` must be a public https URL: {cause}");
        let error = GatewayError::invalid("webhook_url", message);
        return Err(error.code("InvalidParameter.UrlInvalid"));
    }
    if let Some(pause) = gateway.tasks.pause(key.account, snapshot.tasks.unpaid_per_minute) {
        return Err(too_many_unpaid(pause));
    }
    if submit.waits() && !gateway.tasks.has_room_to_wait() {
        return Err(too_many_wait());
    }
    let waiting = match submit.waits() {
        true => gateway.request_slots.waiting(ctx.admission.slot.as_ref(), &snapshot.limits)?,
        false => None,
    };
    for id in submit.tasks() {
        let task =
            gateway.ledger.task(key.account, &id).await.map_err(|error| unreadable(&error))?;
        if task.is_none() {
            return Err(no_such_task());
        }
    }
    Ok(waiting)
}

/// Submits a paid task.
///
/// # Errors
/// What `fail_to_proxy` is to tell the customer, or the log.
pub(crate) async fn answer(
    gateway: &Gateway,
    session: &mut Session,
    ctx: &mut RequestContext,
) -> Result<()> {
    let customers = session.req_header().headers.clone();
    let mut submit = SubmitTo { gateway, headers: &customers, opened: None };
    let submitted = submit.ask(ctx).await;
    // Its record is still open: no upstream has taken the task, and none may have taken it.
    if let Some(task) = submit.opened {
        reject(gateway, &task).await;
    }
    // The task's record names its upstream.
    if let RequestStage::Sending(sending) = &mut ctx.stage {
        sending.attempt = None;
    }
    let (submitted, accepted) = match submitted? {
        WholeAnswer::Done(SubmitAnswer::Taken { task, answer }) => (task, answer),
        WholeAnswer::Done(SubmitAnswer::Before(status, answer)) => {
            return respond::relayed(session, ctx.gateway_headers(), status, answer).await;
        }
        WholeAnswer::Words(status, words) => {
            let words = refused::with_own_id(words, ctx);
            return respond::relayed(session, ctx.gateway_headers(), status, words).await;
        }
    };
    ctx.response.first_byte = Some(ctx.started.elapsed());
    ctx.response.task = Some(submitted.id());
    // A request that waits for the end of its task holds a slot for waiting, and no other.
    ctx.release_slots();
    // The task has taken the hold over, and is on disk with it: this returns at once.
    gateway.response_filter(None, ctx).await?;
    let RequestStage::Sending(sending) = &ctx.stage else { return Ok(()) };
    let (status, document) = accepted_as(&submitted, Some(accepted));
    let waits = sending.admitted.call.submit().is_some_and(Submit::waits);
    if !waits {
        let sent = respond::relayed(session, ctx.gateway_headers(), status, document).await;
        return sent.map_err(|error| error.into_down());
    }
    count_repetitions_after(gateway, &submitted, WAIT_MAX).await;
    // A submit that was taken is answered as such, also if nobody may wait any more.
    let waited = tokio::select! {
        waited = gateway.tasks.wait(&submitted) => Ok(waited),
        // A disconnect gives the slot back; the task goes on.
        left = session.as_downstream_mut().read_body_or_idle(true) => {
            let left = left.map(|_| pingora::Error::new(pingora::ErrorType::ConnectionClosed));
            Err(left.unwrap_or_else(|error| error).into_down())
        }
    };
    count_repetitions_after(gateway, &submitted, Duration::ZERO).await;
    let waited = waited?;
    let sent = match waited {
        Ok(record) => respond::document(session, ctx.gateway_headers(), record.into()).await,
        Err(_) => respond::relayed(session, ctx.gateway_headers(), status, document).await,
    };
    sent.map_err(|error| error.into_down())
}

/// The answer to a submit.
enum SubmitAnswer {
    /// An upstream has taken the task, with this body of its answer.
    Taken { task: Arc<Task>, answer: Bytes },
    /// Another submit under the same name was faster: the status and body of its answer.
    Before(u16, Bytes),
}

/// Strategy that submits a task to one target.
struct SubmitTo<'a> {
    gateway: &'a Gateway,
    /// The headers of the customer's request.
    headers: &'a http::HeaderMap,
    /// The task, from when it is on disk until an upstream has taken it, or may have.
    opened: Option<Arc<Task>>,
}

/// The result of a submit to one target; the error ends the request.
type SubmitResult = std::result::Result<TryResult<WholeAnswer<SubmitAnswer>>, GatewayError>;

impl SubmitTo<'_> {
    /// Asks one target after the other, until one takes the task.
    ///
    /// # Errors
    /// The request ends here, whatever other targets there are.
    async fn ask(&mut self, ctx: &mut RequestContext) -> Result<WholeAnswer<SubmitAnswer>> {
        let (id, delivery) = (ctx.id, ctx.delivery());
        loop {
            let candidate = self.gateway.upstream_peer(ctx).await?;
            let tried = self.submit(ctx.sending()?, candidate, id).await;
            let tried = tried.map_err(|error| ctx.fail(error))?;
            if let Some(answer) = ctx.conclude(tried, delivery)? {
                return Ok(answer);
            }
        }
    }

    /// Records the attempt on disk, sends the submit, and makes its answer durable.
    async fn submit(
        &mut self,
        sending: &mut Sending,
        candidate: Candidate,
        id: RequestId,
    ) -> SubmitResult {
        let gateway = self.gateway;
        // A task is followed in the words in which it was put on disk.
        let dialect = candidate.target.upstream.dialect;
        if self.opened.as_ref().is_some_and(|task| task.intent.protocol != dialect.as_str()) {
            return Ok(TryResult::Skipped);
        }
        let rewrite = |admitted: &AdmittedRequest, body: &Bytes| {
            pipeline::rewrite_submit(admitted, &candidate, body)
        };
        let rewritten = gateway.request_body_filter(sending, rewrite).await;
        let Some(mut request) = rewritten else { return Ok(TryResult::Skipped) };
        let Some(call) = sending.admitted.call.submit() else { return Err(internal("no submit")) };
        let head = gateway.upstream_request_filter(self.headers, &mut request, id, 0);
        let Ok(headers) = head else {
            return Err(internal("the request could not be written for the upstream"));
        };
        let headers = with_own(headers, call);
        let task = match self.opened.take() {
            None => match open(gateway, sending, &candidate).await? {
                Some(task) => task,
                None => return answer_as_first(gateway, sending).await,
            },
            Some(task) => retarget(gateway, &task, &candidate, &sending.admitted.resolved).await?,
        };
        let (upstream, token) = (Arc::clone(&candidate.target.upstream), candidate.token.clone());
        let (channel, quotas) =
            (Arc::clone(&candidate.channel), candidate.quota_channel().cloned());
        let hidden = UpstreamSecrets { upstream: &upstream, token: token.as_ref() };
        let (path, body) = (request.path.clone(), request.body.clone().into_whole());
        sending.attempt = Some(Attempt::begin(candidate, request));
        let missing = sending.missing_by_status(404);
        gateway.ledger.note_submit(task.intent.hold);
        let Some(call) = sending.admitted.call.submit() else { return Err(internal("no submit")) };
        // A handshake is short beside a task, and a lost submit is a task in doubt.
        let reuse = ConnectionReuse::Never;
        let poster = Poster { gateway, upstream: &upstream, channel: quotas.as_deref(), reuse };
        let caller = SubmitCall { poster, call, hidden, missing_model: missing };
        let failed = match ask(&caller, &path, headers, body).await {
            Ok((id, answer)) => {
                sending.report(Outcome::Ok, &gateway.metrics);
                let answer = shown(gateway, &channel, &hidden, &id, answer);
                let upstream_id = taken(&task, &id, &answer);
                let task = stand(gateway, &task, TaskPhase::Submitted { upstream_id }).await?;
                gateway.tasks.follow(&task).await;
                return Ok(TryResult::Answered(WholeAnswer::Done(SubmitAnswer::Taken {
                    task,
                    answer,
                })));
            }
            Err(failed) => failed,
        };
        sending.refusal = failed.refusal.clone();
        if failed.failure.consequence(Delivery::Submit).progress.may_be_done() {
            // Whatever comes of it, the upstream is not asked again.
            if let Ok(task) = stand(gateway, &task, TaskPhase::InDoubt).await {
                gateway.tasks.doubt(&task).await;
            }
            if let Some(error) = failed.error() {
                log::warn!("{} is in doubt: {error}", task.id());
            }
        } else {
            self.opened = Some(task);
        }
        Ok(TryResult::Failed(failed.failure, failed.otherwise()))
    }
}

/// The answer of an upstream that took a task, or the id alone in the place of one that holds the operator's
/// credential.
fn shown(
    gateway: &Gateway,
    channel: &Channel,
    hidden: &UpstreamSecrets<'_>,
    id: &str,
    answer: Bytes,
) -> Bytes {
    if !channel.has_credential_in(&answer, hidden.token) {
        return answer;
    }
    gateway.metrics.answer_withheld(&hidden.upstream.name);
    id_alone(id).into()
}

/// Answers a submit of which another one turns out to be the first.
async fn answer_as_first(gateway: &Gateway, sending: &Sending) -> SubmitResult {
    let account = sending.admitted.resolved.key.account;
    let Some(mark) = &sending.mark else { return Err(internal("no mark")) };
    let first = answer_of_first(gateway, account, mark, None).await?;
    let (status, answer) = first.ok_or_else(overtaken)?;
    Ok(TryResult::Answered(WholeAnswer::Done(SubmitAnswer::Before(status, answer))))
}

/// The headers, with those that the protocol wants beside the usual ones.
fn with_own(mut headers: http::HeaderMap, call: &(dyn Submit + Sync)) -> http::HeaderMap {
    for (name, value) in call.headers() {
        let name = http::HeaderName::from_bytes(name.as_bytes());
        let value = http::HeaderValue::from_str(value);
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.insert(name, value);
        }
    }
    headers
}

/// The submit to one target.
struct SubmitCall<'a> {
    poster: Poster<'a>,
    call: &'a (dyn Submit + Sync),
    /// Upstream and its secrets, which must not appear in answers.
    hidden: UpstreamSecrets<'a>,
    /// The thing that the target lacks if it answers 404; `None` if a 404 is a failure of the target's own.
    missing_model: Option<Missing>,
}

/// The upstream's id of the task, and the answer in which it took it.
async fn ask(
    caller: &SubmitCall<'_>,
    path: &str,
    headers: http::HeaderMap,
    body: Bytes,
) -> std::result::Result<(String, Bytes), FailedCall> {
    let SubmitCall { ref poster, call, hidden, missing_model } = *caller;
    let delivery = Delivery::Submit;
    let sent = poster.post(path, &headers, body).await;
    let answer = sent.map_err(|error| {
        FailedCall::unanswered(CallFailure::from_outbound(&error), delivery, &error)
    })?;
    let status = answer.status();
    let headers = answer.headers().clone();
    let read = answer.whole_within(ANSWER_BYTES_MAX).await;
    if (200..300).contains(&status) {
        let answer = read.map_err(|error| match error {
            // No upstream says so much of a task.
            OutboundError::TooLarge => {
                FailedCall::new(CallFailure::Unreadable, upstream_error::unreadable(error))
            }
            error => {
                FailedCall::unanswered(CallFailure::from_outbound_body(&error), delivery, &error)
            }
        })?;
        return match call.read(&answer) {
            Ok(upstream_id) => Ok((upstream_id, answer)),
            // Where it tells nothing, the task may have been taken.
            Err(fault) => {
                let failure = CallFailure::from_success(&fault, is_error(&answer), &headers);
                let failed = FailedCall::read(failure, delivery, fault);
                let refusal = refusal::read(hidden.upstream.dialect, 200, None, &answer);
                Err(failed.with_refusal(Some(refusal)).without_secrets(&headers, hidden))
            }
        };
    }
    // It is a refusal all the same, whose words are too many or break off.
    let answer = read.unwrap_or_default();
    // Before the protocol's own reading of it, which takes it for the operator's fault.
    if let Some(missing) = missing_model.filter(|_| status == 404) {
        return Err(FailedCall::by_table(CallFailure::NotOffered(missing), delivery));
    }
    let refusal =
        refusal::read(hidden.upstream.dialect, status, refused::name_in(&headers), &answer);
    let by_status = CallFailure::from_status(status, &headers);
    let failure = judge(by_status, &refusal, status, &headers, delivery);
    if matches!(failure, CallFailure::RefusedCredential | CallFailure::RefusedAccount) {
        return Err(FailedCall::by_table(failure, delivery).with_refusal(Some(refusal)));
    }
    let fault = call.refusal(status, &answer);
    let failure = CallFailure::from_words(&fault, status, &headers);
    let failed = FailedCall::read(failure, delivery, fault).with_refusal(Some(refusal));
    let failed = match call.failure(status, &answer) {
        Some(error) => failed.in_its_words(error, &headers, hidden),
        None => failed,
    };
    Err(failed.without_secrets(&headers, hidden))
}

fn too_many_unpaid(pause: Duration) -> GatewayError {
    let message = "Too many of this account's tasks have come to nothing within a minute. Look at \
                   what they were refused for, and go on a minute later.";
    GatewayError::new(ErrorKind::RateLimited, message).retry_after(pause)
}

fn too_many_wait() -> GatewayError {
    let message = "Too many requests wait for the end of their task. Ask again without `wait`.";
    GatewayError::new(ErrorKind::RateLimited, message)
        .code("ConcurrencyExceeded")
        .retry_after(Duration::from_secs(5))
}
