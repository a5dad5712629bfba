//! The task that a submit starts, as it is on disk: opened before an upstream is asked, kept up to date
//! while upstreams are asked, and read by whoever has the id.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use crate::balance::Candidate;
use crate::clock::UnixMs;
use crate::error::{ErrorKind, GatewayError};
use crate::gateway::request::sending::Sending;
use crate::gateway::request::services::Gateway;
use crate::ledger::{
    AccountId, Intent, LedgerError, Task, TaskId, TaskPhase, TaskSettlement, Webhook,
};
use crate::pipeline::ResolvedRequest;

/// Delay before a retry while the database of a fleet is away: a standby takes over in that time.
const RETRY_CUT_OFF: Duration = Duration::from_secs(5);

/// Writes the task to disk: from then on the task ends the hold, not the request. `None` if another submit
/// with the same key or body was first.
pub(crate) async fn open(
    gateway: &Gateway,
    sending: &mut Sending,
    candidate: &Candidate,
) -> std::result::Result<Option<Arc<Task>>, GatewayError> {
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
    // What a task costs is known from what it asks for.
    let prices = *sending.admitted.quote.dearest();
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
        stage: TaskPhase::Submitting,
        webhook,
    });
    let within = sending.mark.map_or(Duration::ZERO, |mark| mark.within);
    match gateway.ledger.open_task(hold, Arc::clone(&task), within).await {
        Ok(()) => Ok(Some(task)),
        Err(LedgerError::Conflict) => Ok(None),
        Err(LedgerError::Invalid(why)) => Err(GatewayError::new(ErrorKind::InvalidRequest, why)),
        Err(error) => Err(unrecorded(&error)),
    }
}

/// Counts the repetitions of a submit from `time` after now: while its customer waits for the end of the
/// task, from when the wait ends at the latest.
pub(crate) async fn count_repetitions_after(gateway: &Gateway, task: &Task, time: Duration) {
    let time_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let at = UnixMs(UnixMs::now().0.saturating_add(time_ms));
    if let Err(error) = gateway.ledger.submit_answered(task, at).await {
        log::warn!("when {} was answered could not be noted: {error}", task.id());
    }
}

/// Records that another upstream is about to be called.
pub(crate) async fn retarget(
    gateway: &Gateway,
    task: &Task,
    candidate: &Candidate,
    resolved: &ResolvedRequest,
) -> std::result::Result<Arc<Task>, GatewayError> {
    let next = Task {
        upstream: candidate.place(),
        upstream_model: resolved.name_at(&candidate.target).to_owned(),
        ..task.clone()
    };
    save(gateway, next).await
}

/// Notes how far the task is.
pub(crate) async fn stand(
    gateway: &Gateway,
    task: &Task,
    stage: TaskPhase,
) -> std::result::Result<Arc<Task>, GatewayError> {
    save(gateway, Task { stage, ..task.clone() }).await
}

async fn save(gateway: &Gateway, next: Task) -> std::result::Result<Arc<Task>, GatewayError> {
    let id = (next.intent.account, next.id());
    let changed = gateway.ledger.change_task(id, |_| next.clone()).await;
    let changed = changed.map_err(|error| unrecorded(&error))?;
    changed.ok_or_else(|| internal("the task has ended"))
}

/// Records that no upstream accepted the task, and releases the hold.
pub(crate) async fn reject(gateway: &Gateway, task: &Task) {
    let id = (task.intent.account, task.id());
    let document = json!({"error": {"code": "rejected", "message": "No upstream took the task."}});
    let what = ("failed", document.to_string());
    gateway.tasks.note_unpaid(task.intent.account);
    if let Err(error) = gateway.ledger.end_task(id, what, TaskSettlement::Void).await {
        log::error!("{} could not be ended: {error}", task.id());
    }
}

/// The record of a task, for `GET`.
pub(crate) async fn record(
    gateway: &Gateway,
    account: AccountId,
    id: &str,
) -> std::result::Result<String, GatewayError> {
    let record = gateway.tasks.record(account, id).await.map_err(|error| unreadable(&error))?;
    record.ok_or_else(no_such_task)
}

/// The error for an id that is no task of the account.
pub(crate) fn no_such_task() -> GatewayError {
    let message = "There is no such task. Tasks are kept for 8 days after their end.";
    GatewayError::new(ErrorKind::NotFound, message).code("ResourceNotFound")
}

/// The error for a task that cannot be read.
pub(crate) fn unreadable(error: &LedgerError) -> GatewayError {
    // The one passes as soon as the database answers, the other as soon as sled is mended.
    if let LedgerError::Unavailable(_) | LedgerError::Store(_) = error {
        return cut_off(error);
    }
    GatewayError::new(ErrorKind::Internal, "The task could not be read.").cause(error)
}

/// The error while the database of a fleet, or the query index of the ledger, is unavailable. It is
/// temporary.
fn cut_off(cause: &LedgerError) -> GatewayError {
    let message = "Tasks cannot be taken or read at the moment. Try again shortly.";
    GatewayError::new(ErrorKind::Overloaded, message).retry_after(RETRY_CUT_OFF).cause(cause)
}

fn unrecorded(error: &LedgerError) -> GatewayError {
    if let LedgerError::Unavailable(_) = error {
        return cut_off(error);
    }
    let message = "The gateway could not record the task.";
    GatewayError::new(ErrorKind::Internal, message).cause(error)
}

/// The error for a fault of the gateway's own.
pub(crate) fn internal(cause: &'static str) -> GatewayError {
    let message = "The task could not be submitted.";
    GatewayError::new(ErrorKind::Internal, message).cause(cause)
}
