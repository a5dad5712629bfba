//! Repeated submits of tasks: lookup, and the time from which a submit counts.

use std::time::Duration;

use tollgate_options::ledger::REPEATED_WITHIN;

use super::Core;
use crate::records::task::{RepeatKey, Task};
use crate::rules::submit::{RepeatLookup, SubmitMemo, is_recent, is_unanswered};
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::AccountId;

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
        let blocks = |submit_before: &&SubmitMemo| {
            is_recent(submit_before.at, now, within)
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
        // A later submit may have taken the key since: its time is not this task's to change.
        if let Some(submit) = submit_before.filter(|submit| submit.task == task.id()) {
            submit.at = at;
        }
    }

    /// Counts the repetitions of submits from `now` that were made less than `longest` before: when the
    /// last process answered them is not known.
    pub(crate) fn count_submits_from(&mut self, now: UnixMs, longest: Duration) {
        let submits = self.accounts.values_mut().flat_map(|state| state.submits.values_mut());
        for submit in submits.filter(|submit| is_recent(submit.at, now, longest)) {
            // Later than was promised rather than earlier: a repeated order within the promise would
            // cost a second video.
            submit.at = submit.at.max(now);
        }
    }

    /// Forgets submits that are not recognised any more.
    pub(crate) fn forget_submits(&mut self, now: UnixMs) {
        for state in self.accounts.values_mut() {
            state.submits.retain(|_, submit| is_recent(submit.at, now, REPEATED_WITHIN));
        }
    }
}
