//! Submits that are made again: what marks them, and the answer of the first.

use std::time::Duration;

use bytes::Bytes;
use pingora::http::RequestHeader;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::clock::UnixMs;
use crate::config::snapshot::Snapshot;
use crate::error::{ErrorKind, GatewayError};
use crate::gateway::call::task_record::unreadable;
use crate::gateway::proxy::Gateway;
use crate::ledger::{Key, REPEATED_WITHIN, Repeat, Repeated, Taken, Task, TaskId};
use crate::protocols::Dialect;
use crate::protocols::task::TaskCodec;
use crate::protocols::task_codec;

/// What marks repetitions of a submit, and how long they are recognised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) repeat: Repeat,
    pub(crate) within: Duration,
    /// The customer has named it; else only its body tells.
    is_named: bool,
}

/// The header with which a customer marks repetitions of a submit.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The longest such mark.
const MARK_BYTES_MAX: usize = 255;

/// The answer to a submit that was made before, if this is one.
pub(crate) async fn repeated(
    gateway: &Gateway,
    key: &Key,
    mark: Option<&Mark>,
) -> Result<Option<(u16, Bytes)>, GatewayError> {
    let Some(mark) = mark else { return Ok(None) };
    let conflict =
        |message: &'static str| Err(GatewayError::new(ErrorKind::IdempotencyConflict, message));
    let when = (UnixMs::now(), mark.within);
    let repeated = gateway.ledger.repeated(key.account, &mark.repeat, when).await;
    match repeated.map_err(|error| unreadable(&error))? {
        Repeated::New => Ok(None),
        Repeated::Other => conflict("This Idempotency-Key was used with another request."),
        Repeated::Same(id) if !mark.is_named => Err(repetition(id, mark.within)),
        Repeated::Same(id) => {
            let task = gateway.ledger.task(key.account, &id.to_string()).await;
            let task = task.map_err(|error| unreadable(&error))?;
            match task.filter(|task| task.upstream_id().is_some()) {
                Some(task) => Ok(Some(accepted(&task))),
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
pub(crate) fn mark(
    head: &RequestHeader,
    snapshot: &Snapshot,
    key: &Key,
    body: &[u8],
) -> Result<Option<Mark>, GatewayError> {
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
            Mark { repeat: Repeat { key: name(1, &body), body }, within, is_named: false }
        }));
    };
    let value = value.as_bytes();
    if value.is_empty() || value.len() > MARK_BYTES_MAX {
        let message = format!("Idempotency-Key must have 1 to {MARK_BYTES_MAX} characters.");
        return Err(GatewayError::invalid("Idempotency-Key", message));
    }
    let repeat = Repeat { key: name(0, value), body: digest() };
    Ok(Some(Mark { repeat, within: REPEATED_WITHIN, is_named: true }))
}

/// Refuses a body that came a moment ago as well: one of two that were meant as one, as a rule.
fn repetition(first: TaskId, within: Duration) -> GatewayError {
    let message = format!(
        "The same request was taken less than {} s ago, as the task {first}. If another video of it \
         is wanted, wait so long, or send each with an Idempotency-Key of its own.",
        within.as_secs_f32().ceil()
    );
    GatewayError::new(ErrorKind::IdempotencyConflict, message)
}

/// The answer to a submit that was taken: spec section 4 allows 202 and 200. It is the same however often
/// it is asked for.
fn accepted(task: &Task) -> (u16, Bytes) {
    accepted_as(task, None)
}

/// The answer to a submit that was taken, where it is known what the upstream `said`: family S comes back
/// so, and where its answer was too long to be kept with the id alone.
pub(crate) fn accepted_as(task: &Task, said: Option<Bytes>) -> (u16, Bytes) {
    let is_native = codec_of(task).is_some_and(TaskCodec::is_native);
    match (is_native, task.taken()) {
        (true, Some(taken)) => {
            let kept = || taken.answer().map_or_else(|| id_alone(taken.id()), str::to_owned);
            (200, said.unwrap_or_else(|| kept().into()))
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

/// What is kept of the answer of an upstream that took a task: all of it, where a customer reads it and
/// could not read the same if the id alone were known.
pub(crate) fn taken(task: &Task, id: &str, answer: &Bytes) -> Taken {
    let is_native = codec_of(task).is_some_and(TaskCodec::is_native);
    match std::str::from_utf8(answer) {
        Ok(answer) if is_native && answer != id_alone(id) => Taken::with_answer(id, answer),
        _ => Taken::from(id),
    }
}

fn codec_of(task: &Task) -> Option<&'static dyn TaskCodec> {
    let spoken = Dialect::ALL.into_iter().find(|one| one.as_str() == task.intent.protocol);
    spoken.and_then(task_codec)
}

fn id_alone(id: &str) -> String {
    json!({"id": id}).to_string()
}
