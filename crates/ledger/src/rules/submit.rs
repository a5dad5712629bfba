//! Submits of tasks: which are repetitions, and what a task's record must keep to.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::sync::Arc;
use std::time::Duration;

use tollgate_options::ledger::REPEATED_WITHIN;

use crate::records::id_map::IdMap;
use crate::records::record::OpenHold;
use crate::records::task::{Repeat, Stage, Task};
use crate::rules::core::Core;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId, TaskId};

/// What a submit that may be a repetition comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repeated {
    /// It is new.
    New,
    /// The same was submitted before, as this task.
    Same(TaskId),
    /// Something else was submitted under the same name.
    Other,
}

/// Whether `at` is less than `within` before `now`.
pub(crate) fn is_recent(at: UnixMs, (now, within): (UnixMs, Duration)) -> bool {
    Duration::from_millis(now.0.saturating_sub(at.0)) < within
}

/// A submit that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Submit {
    pub(crate) task: TaskId,
    pub(crate) body: [u8; 32],
    /// When it was made. In memory, once it is answered: when that was, and while its customer waits
    /// for the end of the task, when the wait ends at the latest.
    pub(crate) at: UnixMs,
}

/// Whether no answer to the submit of a task is known: it is under way, or in doubt. What repeats it
/// meanwhile could be a second video for one wish, however long ago the first began.
#[must_use]
pub fn is_unanswered(task: &Task) -> bool {
    matches!(task.stage, Stage::Submitting | Stage::InDoubt)
}

impl Core {
    /// Whether a submit repeats one that is unanswered, or was answered less than `within` before
    /// `now`.
    #[must_use]
    pub fn repeated(
        &self,
        account: AccountId,
        repeat: &Repeat,
        (now, within): (UnixMs, Duration),
    ) -> Repeated {
        let known = self.accounts.get(&account).and_then(|state| state.submits.get(&repeat.key));
        let blocks = |known: &&Submit| {
            is_recent(known.at, (now, within))
                || self.task(known.task).is_some_and(|task| is_unanswered(task))
        };
        match known.filter(blocks) {
            None => Repeated::New,
            Some(known) if known.body == repeat.body => Repeated::Same(known.task),
            Some(_) => Repeated::Other,
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
        let known = state.and_then(|state| state.submits.get_mut(&repeat.key));
        if let Some(submit) = known.filter(|submit| submit.task == task.id()) {
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

/// What the customer calls a task's submit, and what is remembered of it: nothing, once no upstream
/// took it, so that the customer can try again.
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
        None if task.stage != Stage::Submitting => Err("the task does not begin at its beginning"),
        Some(before) if !before.can_become(task) => Err("the task cannot become so"),
        _ if task.ended().is_some() == hold.is_some() => {
            Err("a task and its hold must end together")
        }
        _ => Ok(()),
    }
}
