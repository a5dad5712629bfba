//! Submits of tasks: which are repetitions, and what a task's record must keep to.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::sync::Arc;
use std::time::Duration;

use tollgate_options::ledger::REPEATED_WITHIN;

use crate::records::id_map::IdMap;
use crate::records::record::OpenHold;
use crate::records::task::{RepeatKey, Task, TaskPhase};
use crate::rules::core::Core;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId, TaskId};

/// Result of looking up an idempotency key among submits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RepeatLookup {
    /// It is new.
    New,
    /// The same was submitted before, as this task.
    Same(TaskId),
    /// Something else was submitted under the same name.
    Other,
}

/// True if `at` is less than `within` before `now`.
pub(crate) fn is_recent(at: UnixMs, (now, within): (UnixMs, Duration)) -> bool {
    Duration::from_millis(now.0.saturating_sub(at.0)) < within
}

/// A submit that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Submit {
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

impl Core {
    /// Looks up whether a submit repeats one that is unanswered, or was answered less than `within`
    /// before `now`.
    #[must_use]
    pub fn repeated(
        &self,
        account: AccountId,
        repeat: &RepeatKey,
        (now, within): (UnixMs, Duration),
    ) -> RepeatLookup {
        let submit_before =
            self.accounts.get(&account).and_then(|state| state.submits.get(&repeat.key));
        let blocks = |submit_before: &&Submit| {
            is_recent(submit_before.at, (now, within))
                || self.task(submit_before.task).is_some_and(|task| is_unanswered(task))
        };
        match submit_before.filter(blocks) {
            None => RepeatLookup::New,
            Some(submit_before) if submit_before.body == repeat.body => {
                RepeatLookup::Same(submit_before.task)
            }
            Some(_) => RepeatLookup::Other,
        }
    }

    /// Counts the repetitions of a task's submit from `at`, when it was answered or will be at the
    /// latest.
    ///
    /// This is in memory alone: a record of it would cost each submit a second write, and the next
    /// start can only count from a later time, by [`Self::count_submits_from`].
    pub(crate) fn note_answer(&mut self, task: &Task, at: UnixMs) {
        let Some(repeat) = task.intent.repeat else { return };
        let state = self.accounts.get_mut(&task.intent.account);
        let submit_before = state.and_then(|state| state.submits.get_mut(&repeat.key));
        if let Some(submit) = submit_before.filter(|submit| submit.task == task.id()) {
            submit.at = at;
        }
    }

    /// Counts the repetitions of submits from `now` that were made less than `longest` before: when the
    /// last process answered them is not known.
    pub(crate) fn count_submits_from(&mut self, now: UnixMs, longest: Duration) {
        let submits = self.accounts.values_mut().flat_map(|state| state.submits.values_mut());
        for submit in submits.filter(|submit| is_recent(submit.at, (now, longest))) {
            submit.at = submit.at.max(now);
        }
    }

    /// Forgets submits that are not recognised any more.
    pub(crate) fn forget_submits(&mut self, now: UnixMs) {
        for state in self.accounts.values_mut() {
            state.submits.retain(|_, submit| is_recent(submit.at, (now, REPEATED_WITHIN)));
        }
    }
}

/// Idempotency key of a task's submit, with the entry to remember; `None` if no upstream accepted
/// it, so that the customer can retry.
pub(crate) fn submit_of(task: &Task) -> Option<([u8; 32], Option<Submit>)> {
    let repeat = task.intent.repeat?;
    let was_refused = task.ended().is_some_and(|ended| ended.upstream_id.is_none());
    let submit = Submit { task: task.id(), body: repeat.body, at: task.intent.at };
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
