//! Requests that start a task. The task is on disk before its upstream is asked, and again with the
//! upstream's id before the customer is answered; what may have been taken is never sent again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pingora::Result;
use pingora::http::RequestHeader;
use pingora::proxy::Session;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::exchange::{self, Exchange, Sending, Stage as Reached};
use super::failed::Failed;
use super::proxy::Gateway;
use super::{headers, peer, respond};
use crate::balance::{Candidate, Outcome};
use crate::clock::UnixMs;
use crate::config::snapshot::{Snapshot, Upstream};
use crate::error::{ErrorKind, GatewayError};
use crate::ledger::{
    AccountId, Intent, Key, LedgerError, REPEATED_WITHIN, Repeat, Repeated, Stage, Task, TaskId,
    TaskSettlement, Webhook,
};
use crate::outbound::{OutboundError, may_announce};
use crate::pipeline::{self, Resolved};
use crate::protocols::task::{Submit, task_codec};
use crate::protocols::{Call, Fault};

/// What marks repetitions of a submit, and how long they are recognised.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    repeat: Repeat,
    within: Duration,
}

/// The header with which a customer marks repetitions of a submit.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The longest such mark.
const MARK_BYTES_MAX: usize = 255;
/// When to try again while the database of a fleet is away: a standby takes over in that time.
const RETRY_CUT_OFF: Duration = Duration::from_secs(5);
/// An upstream's answer to a submit.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// What can be said against a submit before any money is held: a webhook that leads inside, and
/// tasks of others.
pub(super) async fn check(
    gateway: &Gateway,
    snapshot: &Snapshot,
    key: &Key,
    call: &dyn Call,
) -> std::result::Result<(), GatewayError> {
    let Some(submit) = call.submit() else { return Ok(()) };
    if let Some(url) = submit.webhook_url()
        && let Err(cause) = may_announce(url, &snapshot.tasks.webhook_hosts)
    {
        let message = format!("`webhook_url` must be a public https URL: {cause}");
        let error = GatewayError::invalid("webhook_url", message);
        return Err(error.code("InvalidParameter.UrlInvalid"));
    }
    if submit.waits() && !gateway.tasks.has_room_to_wait() {
        return Err(too_many_wait());
    }
    for id in submit.tasks() {
        let known =
            gateway.ledger.task(key.account, &id).await.map_err(|error| unreadable(&error))?;
        if known.is_none() {
            return Err(no_such_task());
        }
    }
    Ok(())
}

/// The answer to a submit that was made before, if this is one.
pub(super) async fn repeated(
    gateway: &Gateway,
    key: &Key,
    resolved: &Resolved,
    mark: Option<&Mark>,
) -> std::result::Result<Option<(u16, Value)>, GatewayError> {
    let Some(mark) = mark else { return Ok(None) };
    let conflict =
        |message: &'static str| Err(GatewayError::new(ErrorKind::IdempotencyConflict, message));
    let when = (UnixMs::now(), mark.within);
    let repeated = gateway.ledger.repeated(key.account, &mark.repeat, when).await;
    match repeated.map_err(|error| unreadable(&error))? {
        Repeated::New => Ok(None),
        Repeated::Other => conflict("This Idempotency-Key was used with another request."),
        Repeated::Same(id) => {
            let task = gateway.ledger.task(key.account, &id.to_string()).await;
            let task = task.map_err(|error| unreadable(&error))?;
            match task.filter(|task| task.upstream_id().is_some()) {
                Some(task) => Ok(Some(accepted(resolved, &task))),
                None => conflict("The first of these requests has no answer yet."),
            }
        }
    }
}

/// What marks repetitions of the request, for this key and path: what the customer calls it, else
/// its body for as long as the operator has set.
///
/// # Errors
/// A mark that is none.
pub(super) fn mark(
    head: &RequestHeader,
    snapshot: &Snapshot,
    key: &Key,
    body: &[u8],
) -> std::result::Result<Option<Mark>, GatewayError> {
    let name = |kind: u8, value: &[u8]| -> [u8; 32] {
        let key = key.id.number().to_be_bytes();
        let name = Sha256::new().chain_update(key).chain_update(head.uri.path());
        name.chain_update([kind]).chain_update(value).finalize().into()
    };
    let digest = || -> [u8; 32] { Sha256::digest(body).into() };
    let Some(value) = head.headers.get(IDEMPOTENCY_KEY) else {
        let window = snapshot.tasks.repeat_window;
        return Ok(window.map(|within| {
            let body = digest();
            Mark { repeat: Repeat { key: name(1, &body), body }, within }
        }));
    };
    let value = value.as_bytes();
    if value.is_empty() || value.len() > MARK_BYTES_MAX {
        let message = format!("Idempotency-Key must have 1 to {MARK_BYTES_MAX} characters.");
        return Err(GatewayError::invalid("Idempotency-Key", message));
    }
    let repeat = Repeat { key: name(0, value), body: digest() };
    Ok(Some(Mark { repeat, within: REPEATED_WITHIN }))
}

/// Submits a paid task.
pub(super) async fn answer(
    gateway: &Gateway,
    session: &mut Session,
    exchange: &mut Exchange,
) -> Result<()> {
    let head = session.req_header().clone();
    let submitted = match submit(gateway, &head, exchange).await {
        Ok(task) => task,
        Err(Failed::Relayed(status, body)) => {
            return respond::relayed(session, exchange.stamp(), status, body).await;
        }
        Err(Failed::Ours(error) | Failed::Next(_, error) | Failed::InDoubt(_, error)) => {
            return Err(exchange.fail(error));
        }
    };
    exchange.first_byte = Some(exchange.started.elapsed());
    exchange.task = Some(submitted.id());
    // Who waits for the end of the task holds a place among those who wait, and no other.
    exchange.leave();
    let Reached::Sending(sending) = &exchange.stage else { return Ok(()) };
    let (status, document) = accepted(&sending.admitted.resolved, &submitted);
    let waits = sending.admitted.call.submit().is_some_and(Submit::waits);
    if !waits {
        return respond::json_with(session, exchange.stamp(), status, &document).await;
    }
    // A submit that was taken is answered as such, also if nobody may wait any more.
    let waited = tokio::select! {
        waited = gateway.tasks.wait(&submitted) => waited,
        // Who leaves gives the place up; the task goes on.
        left = session.as_downstream_mut().read_body_or_idle(true) => {
            return left.map(|_| ()).and_then(|()| {
                Err(pingora::Error::new_down(pingora::ErrorType::ConnectionClosed))
            });
        }
    };
    match waited {
        Ok(record) => respond::json_with(session, exchange.stamp(), 200, &record).await,
        Err(_) => respond::json_with(session, exchange.stamp(), status, &document).await,
    }
}

/// Opens the task, asks one target after the other, and makes the answer durable.
async fn submit(
    gateway: &Gateway,
    head: &RequestHeader,
    exchange: &mut Exchange,
) -> std::result::Result<Arc<Task>, Failed> {
    let id = exchange.id;
    let Reached::Sending(sending) = &mut exchange.stage else {
        return Err(internal("not admitted"));
    };
    let mut opened: Option<Arc<Task>> = None;
    while let Some(mut candidate) = sending.next(&gateway.metrics) {
        let body = &sending.body.bytes;
        let Some(request) = pipeline::rewrite_submit(&sending.admitted, &candidate, body) else {
            continue;
        };
        let task = match &opened {
            None => open(gateway, sending, &candidate).await?,
            Some(task) => retarget(gateway, task, &candidate, &sending.admitted.resolved).await?,
        };
        opened = Some(Arc::clone(&task));
        let Some(call) = sending.admitted.call.submit() else { return Err(internal("no submit")) };
        let mut head = head.clone();
        if headers::to_upstream(&mut head, &request, id).is_err() {
            return Err(internal("the request could not be written for the upstream"));
        }
        let mut headers = head.headers.clone();
        for (name, value) in call.headers() {
            let name = http::HeaderName::from_bytes(name.as_bytes());
            let value = http::HeaderValue::from_str(value);
            if let (Ok(name), Ok(value)) = (name, value) {
                headers.insert(name, value);
            }
        }
        let (began, upstream) = (Instant::now(), Arc::clone(&candidate.target.upstream));
        let asked = ask(gateway, call, &upstream, &request.path, headers, request.body).await;
        if let Some(outcome) = Failed::outcome_of(&asked) {
            exchange::report(&mut candidate, began, outcome, &gateway.metrics);
        }
        match asked {
            Ok(upstream_id) => {
                let stage = Stage::Submitted { upstream_id };
                let task = stand(gateway, &task, stage).await?;
                gateway.tasks.follow(&task).await;
                return Ok(task);
            }
            Err(Failed::Next(_, error)) => sending.last_failure = Some(error),
            Err(Failed::InDoubt(outcome, error)) => {
                // Whatever comes of it, the upstream is not asked again.
                if let Ok(task) = stand(gateway, &task, Stage::InDoubt).await {
                    gateway.tasks.doubt(&task).await;
                }
                log::warn!("{} is in doubt: {error}", task.id());
                return Err(Failed::InDoubt(outcome, error));
            }
            Err(refused) => {
                reject(gateway, &task).await;
                return Err(refused);
            }
        }
    }
    if let Some(task) = opened {
        reject(gateway, &task).await;
    }
    Err(Failed::Ours(sending.give_up()))
}

/// Puts the task on disk: from here on it, and not the request, ends the hold.
async fn open(
    gateway: &Gateway,
    sending: &mut Sending,
    candidate: &Candidate,
) -> std::result::Result<Arc<Task>, Failed> {
    let Some(call) = sending.admitted.call.submit() else { return Err(internal("no submit")) };
    let (resolved, facts) = (&sending.admitted.resolved, call.facts());
    let key = &resolved.key;
    let webhook_url = call.webhook_url().map(str::to_owned);
    let at = UnixMs::now();
    let webhook = match webhook_url {
        Some(_) => Webhook::Due { tries: 0, at },
        None => Webhook::None,
    };
    let (model, upstream_model) =
        (Arc::clone(&resolved.model.id), resolved.name_at(&candidate.target).to_owned());
    let (account, key) = (key.account, key.id);
    let prices = sending.admitted.prices;
    let Some(hold) = sending.admitted.payment.pass_on() else { return Err(internal("no hold")) };
    let intent = Intent {
        id: TaskId::random(),
        account,
        key,
        hold: hold.id(),
        model,
        protocol: candidate.target.upstream.dialect.as_str().to_owned(),
        prices,
        facts: facts.encode(),
        webhook_url,
        repeat: sending.mark.map(|mark| mark.repeat),
        at,
        expires_at: UnixMs(at.0.saturating_add(facts.expires_after_s.saturating_mul(1000))),
    };
    let task = Arc::new(Task {
        intent: Arc::new(intent),
        upstream: candidate.place(),
        upstream_model,
        stage: Stage::Submitting,
        webhook,
    });
    let within = sending.mark.map_or(Duration::ZERO, |mark| mark.within);
    let opened = gateway.ledger.open_task(hold, Arc::clone(&task), within).await;
    opened.map_err(|error| match error {
        LedgerError::Conflict => {
            let message = "The same request is under way.";
            Failed::Ours(GatewayError::new(ErrorKind::IdempotencyConflict, message))
        }
        error => unrecorded(&error),
    })?;
    Ok(task)
}

/// Notes that another upstream is about to be asked.
async fn retarget(
    gateway: &Gateway,
    task: &Task,
    candidate: &Candidate,
    resolved: &Resolved,
) -> std::result::Result<Arc<Task>, Failed> {
    let next = Task {
        upstream: candidate.place(),
        upstream_model: resolved.name_at(&candidate.target).to_owned(),
        ..task.clone()
    };
    save(gateway, next).await
}

/// Notes how far the task is.
async fn stand(
    gateway: &Gateway,
    task: &Task,
    stage: Stage,
) -> std::result::Result<Arc<Task>, Failed> {
    save(gateway, Task { stage, ..task.clone() }).await
}

async fn save(gateway: &Gateway, next: Task) -> std::result::Result<Arc<Task>, Failed> {
    let id = (next.intent.account, next.id());
    let changed = gateway.ledger.change_task(id, |_| next.clone()).await;
    let changed = changed.map_err(|error| unrecorded(&error))?;
    changed.ok_or_else(|| internal("the task has ended"))
}

/// No upstream took the task: the money is free again.
async fn reject(gateway: &Gateway, task: &Task) {
    let id = (task.intent.account, task.id());
    let document = json!({"error": {"code": "rejected", "message": "No upstream took the task."}});
    let what = ("failed", document.to_string());
    if let Err(error) = gateway.ledger.end_task(id, what, TaskSettlement::Void).await {
        log::error!("{} could not be ended: {error}", task.id());
    }
}

async fn ask(
    gateway: &Gateway,
    call: &(dyn Submit + Sync),
    upstream: &Upstream,
    path: &str,
    headers: http::HeaderMap,
    body: Bytes,
) -> std::result::Result<String, Failed> {
    let sent = gateway.outbound.post(upstream, path, headers, body);
    let answer = sent.await.map_err(unanswered)?;
    let status = answer.status();
    let answer = answer.whole_within(ANSWER_BYTES_MAX).await.map_err(unanswered)?;
    if !(200..300).contains(&status) {
        return Err(call.refusal(status, &answer).into());
    }
    match call.read(&answer) {
        Ok(id) => Ok(id),
        // A good status with something that tells nothing: it may have been taken.
        Err(Fault::Upstreams(cause)) if !is_error(&answer) => {
            Err(Failed::InDoubt(Outcome::Failed, peer::at_fault(cause)))
        }
        Err(fault) => Err(fault.into()),
    }
}

/// Whether a body is an error in any of the protocols' words.
fn is_error(answer: &Bytes) -> bool {
    serde_json::from_slice::<Value>(answer)
        .is_ok_and(|answer| !answer["code"].is_null() || !answer["error"].is_null())
}

fn unanswered(error: OutboundError) -> Failed {
    match error {
        OutboundError::Unreachable(_) => Failed::Next(Outcome::Unreachable, peer::at_fault(error)),
        OutboundError::TimedOut => {
            Failed::InDoubt(Outcome::TimedOut, peer::timed_out().cause(error))
        }
        error => Failed::InDoubt(Outcome::Broken, peer::timed_out().cause(error)),
    }
}

/// The answer to a submit that was taken: spec section 4 allows 202 and 200, and family S comes back
/// as its upstream answers.
fn accepted(resolved: &Resolved, task: &Task) -> (u16, Value) {
    let first = resolved.targets().next();
    let codec = first.and_then(|(target, _)| task_codec(target.upstream.dialect));
    match (codec.is_some_and(|codec| codec.is_native()), task.upstream_id()) {
        (true, Some(id)) => (200, json!({"id": id})),
        _ => (
            202,
            json!({
                "id": task.id(),
                "object": "video.generation",
                "model": task.intent.model,
                "status": "processing",
                "created_at": task.intent.at.0 / 1000,
            }),
        ),
    }
}

/// The record of a task, for `GET`.
pub(super) async fn record(
    gateway: &Gateway,
    account: AccountId,
    id: &str,
) -> std::result::Result<Value, GatewayError> {
    let record = gateway.tasks.record(account, id).await.map_err(|error| unreadable(&error))?;
    record.ok_or_else(no_such_task)
}

fn no_such_task() -> GatewayError {
    let message = "There is no such task. Tasks are kept for 8 days after their end.";
    GatewayError::new(ErrorKind::NotFound, message).code("ResourceNotFound")
}

fn too_many_wait() -> GatewayError {
    let message = "Too many requests wait for the end of their task. Ask again without `wait`.";
    GatewayError::new(ErrorKind::RateLimited, message)
        .code("ConcurrencyExceeded")
        .retry_after(Duration::from_secs(5))
}

fn unreadable(error: &LedgerError) -> GatewayError {
    if let LedgerError::Unavailable(_) = error {
        return cut_off(error);
    }
    GatewayError::new(ErrorKind::Internal, "The task could not be read.").cause(error)
}

/// What all nodes of a fleet share cannot be reached: that passes.
fn cut_off(cause: &LedgerError) -> GatewayError {
    let message = "Tasks cannot be taken or read at the moment. Try again shortly.";
    GatewayError::new(ErrorKind::Overloaded, message).retry_after(RETRY_CUT_OFF).cause(cause)
}

fn unrecorded(error: &LedgerError) -> Failed {
    if let LedgerError::Unavailable(_) = error {
        return Failed::Ours(cut_off(error));
    }
    let message = "The gateway could not record the task.";
    Failed::Ours(GatewayError::new(ErrorKind::Internal, message).cause(error))
}

fn internal(cause: &'static str) -> Failed {
    let message = "The task could not be submitted.";
    Failed::Ours(GatewayError::new(ErrorKind::Internal, message).cause(cause))
}
