//! Submits of tasks: which are repetitions, and what a task's record must keep to.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::sync::Arc;
use std::time::Duration;

use crate::records::id_map::IdMap;
use crate::records::reservation::OpenHold;
use crate::records::task::{Task, TaskPhase};
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{HoldId, TaskId};

/// Result of looking up an idempotency key among submits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepeatLookup {
    /// The submit is new.
    New,
    /// The same was submitted before, as this task.
    Same(TaskId),
    /// A different body was submitted with the same idempotency key.
    Other,
}

/// True if `at` is less than `within` before `now`.
pub(crate) fn is_recent(at: UnixMs, now: UnixMs, within: Duration) -> bool {
    Duration::from_millis(now.0.saturating_sub(at.0)) < within
}

/// A past submit, remembered for repeats of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct SubmitMemo {
    pub(crate) task: TaskId,
    pub(crate) body: [u8; 32],
    /// Time of the submit. In memory, once answered: the time of the answer; while the customer
    /// waits for the task's end, the latest end of that wait.
    pub(crate) at: UnixMs,
}

/// True if the submit has no known answer yet: it is under way or in doubt. A repetition could then
/// produce a second video for one order, however long ago the first began.
#[must_use]
pub fn is_unanswered(task: &Task) -> bool {
    matches!(task.stage, TaskPhase::Submitting | TaskPhase::InDoubt)
}

/// Idempotency key of a task's submit, with the entry to remember; `None` if no upstream accepted
/// it, so that the customer can retry.
pub(crate) fn submit_of(task: &Task) -> Option<([u8; 32], Option<SubmitMemo>)> {
    let repeat = task.intent.repeat?;
    // Without an upstream id nothing was ordered, so a retry is wanted rather than recognised.
    let was_refused = task.ended().is_some_and(|ended| ended.upstream_id.is_none());
    let submit = SubmitMemo { task: task.id(), body: repeat.body, at: task.intent.at };
    Some((repeat.key, (!was_refused).then_some(submit)))
}

/// A task stands on its hold until its end, and goes its stages in order.
pub(crate) fn check_task(
    task: &Task,
    before: Option<&Arc<Task>>,
    holds: &IdMap<HoldId, OpenHold>,
) -> Result<(), &'static str> {
    let hold = holds.get(&task.intent.hold);
    let is_own = hold.is_none_or(|hold| hold.reservation.account == task.intent.account);
    match before {
        _ if !is_own => Err("the task's hold is another account's"),
        // Its end is announced once more.
        None if task.ended().is_some() && hold.is_none() => Ok(()),
        None if hold.is_none() => Err("the task has no hold"),
        None if task.stage != TaskPhase::Submitting => {
            Err("the task does not begin at its beginning")
        }
        Some(before) if !before.can_become(task) => Err("the task cannot become so"),
        _ if task.ended().is_some() == hold.is_some() => {
            Err("a task and its hold must end together")
        }
        _ => Ok(()),
    }
}
