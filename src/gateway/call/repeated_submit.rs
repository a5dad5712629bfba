//! Submits that are made again: what marks them, and the answer of the first.

use std::time::{Duration, Instant};

use bytes::Bytes;
use pingora_proxy::Session;
use serde_json::json;

use crate::clock::UnixMs;
use crate::error::{ErrorKind, GatewayError};
use crate::gateway::call::task_record::unreadable;
use crate::gateway::request::idempotency::IdempotencyMark;
use crate::gateway::request::services::Gateway;
use crate::ledger::{AccountId, RepeatLookup, Task, TaskPhase, UpstreamTask};
use crate::protocols::task::TaskCodec;
use crate::tasks::{WAIT_MAX, codec_of, customer_id};

/// Longest wait of a repetition for the answer to the first submit: as long as a submit may wait for the end
/// of its task.
const FIRST_WAIT_MAX: Duration = WAIT_MAX;
/// Polling interval meanwhile. Submits take about a second.
const FIRST_LOOK_EVERY: Duration = Duration::from_millis(200);
/// Delay before the retry of a submit whose concurrent twin failed.
const RETRY_OVERTAKEN: Duration = Duration::from_secs(1);

/// The answer to a submit that was made before, if this is one. While the first is under way it is waited
/// for, as long as the customer of `session` does, if there is one: with the first answer the customer
/// has the id of the task, also where it has lost that answer.
///
/// # Errors
/// A conflict with the first submit, or that one's own end.
pub(crate) async fn answer_of_first(
    gateway: &Gateway,
    account: AccountId,
    mark: &IdempotencyMark,
    mut session: Option<&mut Session>,
) -> Result<Option<(u16, Bytes)>, GatewayError> {
    let deadline = Instant::now() + FIRST_WAIT_MAX;
    loop {
        let when = (UnixMs::now(), mark.within);
        let repeated = gateway.ledger.repeated(account, &mark.repeat, when).await;
        let first = match repeated.map_err(|error| unreadable(&error))? {
            RepeatLookup::New => return Ok(None),
            RepeatLookup::Other => {
                let message = "This Idempotency-Key was used with another request.";
                return Err(GatewayError::new(ErrorKind::IdempotencyConflict, message));
            }
            RepeatLookup::Same(id) => gateway.ledger.task(account, &id.to_string()).await,
        };
        let first = first.map_err(|error| unreadable(&error))?;
        match first {
            Some(first) if first.taken().is_some() && mark.is_named => {
                return Ok(Some(accepted(&first)));
            }
            Some(first) if first.taken().is_some() || first.stage == TaskPhase::InDoubt => {
                return Err(repetition(&first, mark));
            }
            Some(first) if Instant::now() >= deadline => return Err(repetition(&first, mark)),
            None if Instant::now() >= deadline => return Err(overtaken()),
            // It is under way, or has failed since: the next look tells.
            Some(_) | None => {}
        }
        let Some(session) = &mut session else {
            tokio::time::sleep(FIRST_LOOK_EVERY).await;
            continue;
        };
        tokio::select! {
            () = tokio::time::sleep(FIRST_LOOK_EVERY) => {}
            _ = session.as_downstream_mut().read_body_or_idle(true) => {
                return Err(GatewayError::new(ErrorKind::ClientDisconnected, "The customer went away."));
            }
        }
    }
}

/// The error for a submit whose concurrent twin failed.
pub(crate) fn overtaken() -> GatewayError {
    let message = "The same request came at the same time and came to nothing. Send it again.";
    GatewayError::new(ErrorKind::Overloaded, message).retry_after(RETRY_OVERTAKEN)
}

/// Refuses a submit that repeats another, usually by mistake.
fn repetition(first: &Task, mark: &IdempotencyMark) -> GatewayError {
    let named = customer_id(first).map(|id| format!(", as the task {id}")).unwrap_or_default();
    if mark.is_named && first.stage == TaskPhase::InDoubt {
        // The answer that the first submit had, or would have had.
        let message = format!(
            "The first of these requests was sent{named}. Its upstream did not answer in time, and may \
             still be at work."
        );
        return GatewayError::new(ErrorKind::UpstreamTimeout, message);
    }
    let another = "If another video of it is wanted, send each with an Idempotency-Key of its own";
    let message = match first.stage {
        TaskPhase::Submitting if mark.is_named => format!(
            "The first of these requests is under way{named}. Send this one again: it gets the answer \
             of the first."
        ),
        TaskPhase::Submitting => format!("The same request is under way{named}. {another}."),
        TaskPhase::InDoubt => format!(
            "The same request was sent{named}, and it is not known whether its upstream took it. \
             {another}, or wait until it is known, for a day at most."
        ),
        TaskPhase::Submitted { .. } | TaskPhase::Ended(_) => format!(
            "The same request was taken{named}, and was answered less than {} s ago or its customer \
             waits for the end. {another}, or wait so long.",
            mark.within.as_secs_f32().ceil()
        ),
    };
    GatewayError::new(ErrorKind::IdempotencyConflict, message)
}

/// The answer to an accepted submit (spec section 4: 202 or 200), the same for every repetition.
fn accepted(task: &Task) -> (u16, Bytes) {
    accepted_as(task, None)
}

/// The answer to an accepted submit, given the upstream's `answer`: family S returns that, reduced to the id
/// if it was too large to be stored.
pub(crate) fn accepted_as(task: &Task, answer: Option<Bytes>) -> (u16, Bytes) {
    let is_native = codec_of(task).is_some_and(TaskCodec::is_native);
    match (is_native, task.taken()) {
        (true, Some(taken)) => {
            let kept = || taken.answer().map_or_else(|| id_alone(taken.id()), str::to_owned);
            (200, answer.unwrap_or_else(|| kept().into()))
        }
        _ => (
            202,
            json!({
                "id": task.id(),
                "object": "video.generation",
                "model": task.intent.model,
                "status": "processing",
                "created_at": task.intent.at.0 / 1000,
            })
            .to_string()
            .into(),
        ),
    }
}

/// The part of an upstream's answer to a submit that the task stores: everything, if the client reads it and
/// the id alone would not reproduce it.
pub(crate) fn taken(task: &Task, id: &str, answer: &Bytes) -> UpstreamTask {
    let is_native = codec_of(task).is_some_and(TaskCodec::is_native);
    match std::str::from_utf8(answer) {
        Ok(answer) if is_native && answer != id_alone(id) => UpstreamTask::with_answer(id, answer),
        _ => UpstreamTask::from(id),
    }
}

/// An answer to a submit with only the upstream's task id.
pub(crate) fn id_alone(id: &str) -> String {
    json!({"id": id}).to_string()
}
