//! Work that outlives its request, and the hold that pays for it: what a ledger can be asked of its
//! tasks, wherever they stand. What a task is stands in `records::task`.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::memory::Ledger;
use crate::memory::hold::Hold;
use crate::records::error::LedgerError;
use crate::records::hold_end::VoidReason;
use crate::records::record::WRITE_BYTES_MAX;
use crate::records::task::{EndedTask, RepeatKey, Task, TaskPhase, Webhook};
use crate::rules::settlement::{Settlement, TaskSettlement};
use crate::rules::submit::RepeatLookup;
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Usage, UsageSource};
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId, TaskId};

/// Retention of a task after its end, in milliseconds (spec section 8: 7 to 8 days).
pub const KEPT_MS: u64 = 8 * 24 * 3600 * 1000;

impl Ledger {
    /// Opens a task that `hold` pays for. From here on only its end ends the hold. It is on disk
    /// when this returns.
    ///
    /// # Errors
    /// [`LedgerError::Stopped`]; the hold is voided then. [`LedgerError::Conflict`] when it repeats a
    /// submit, as [`Ledger::repeated`] says, [`LedgerError::Invalid`] when the task's texts are too long
    /// for a record; the hold is voided then as well.
    /// [`LedgerError::Unavailable`] in a fleet; the hold ends then, if not at once.
    pub async fn open_task(
        &self,
        hold: Hold,
        task: Arc<Task>,
        repeat_within: Duration,
    ) -> Result<(), LedgerError> {
        if !is_small(&task) {
            hold.void(VoidReason::Unreached);
            return Err(LedgerError::Invalid("a task's texts are too long"));
        }
        self.tasks.open(self, hold, task, repeat_within).await
    }

    /// Changes a task that has not ended, and gives it as it is then; `None` when it cannot become
    /// so. The change is on disk when this returns.
    ///
    /// # Errors
    /// [`LedgerError::Stopped`].
    pub async fn change_task(
        &self,
        id: (AccountId, TaskId),
        change: impl Fn(&Task) -> Task + Send + Sync,
    ) -> Result<Option<Arc<Task>>, LedgerError> {
        self.tasks.change(self, id, &change, None).await
    }

    /// Ends a task and its hold in one group commit and returns the finished task; `None` if it has already
    /// ended. Durable on return.
    ///
    /// # Errors
    /// [`LedgerError::Stopped`].
    pub async fn end_task(
        &self,
        id: (AccountId, TaskId),
        what: (&str, String),
        settlement: TaskSettlement,
    ) -> Result<Option<Arc<Task>>, LedgerError> {
        self.tasks.end(self, id, what, settlement).await
    }

    /// The tasks of which nobody knows whether their upstream took them, oldest first.
    ///
    /// # Errors
    /// [`LedgerError::Store`], [`LedgerError::Stopped`] and [`LedgerError::Unavailable`].
    pub async fn tasks_in_doubt(&self) -> Result<Vec<Arc<Task>>, LedgerError> {
        self.tasks.in_doubt(self).await
    }

    /// The tasks for which something remains to be done, in no order: what a start takes up.
    #[must_use]
    pub fn tasks_in_work(&self) -> Vec<Arc<Task>> {
        let shards = self.shards.iter();
        shards.flat_map(|shard| shard.lock().tasks().cloned().collect::<Vec<_>>()).collect()
    }

    /// Number of open tasks.
    #[must_use]
    pub fn open_tasks(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().tasks().count() as u64).sum()
    }

    /// The task, while something remains to be done for it.
    ///
    /// # Errors
    /// [`LedgerError::Store`], [`LedgerError::Stopped`] and [`LedgerError::Unavailable`].
    pub async fn task_in_work(
        &self,
        id: (AccountId, TaskId),
    ) -> Result<Option<Arc<Task>>, LedgerError> {
        self.tasks.in_work(self, id).await
    }

    /// The task of this id, or of this upstream's id, if it is the account's.
    ///
    /// # Errors
    /// [`LedgerError::Store`], [`LedgerError::Stopped`] and [`LedgerError::Unavailable`].
    pub async fn task(
        &self,
        account: AccountId,
        id: &str,
    ) -> Result<Option<Arc<Task>>, LedgerError> {
        self.tasks.find(self, account, id).await
    }

    /// Looks up whether a submit repeats one that is under way, in doubt, or was answered less than
    /// `within` before `at`. A submit that no upstream accepted is not repeated.
    ///
    /// # Errors
    /// [`LedgerError::Store`], [`LedgerError::Stopped`] and [`LedgerError::Unavailable`].
    pub async fn repeated(
        &self,
        account: AccountId,
        repeat: &RepeatKey,
        (at, within): (UnixMs, Duration),
    ) -> Result<RepeatLookup, LedgerError> {
        self.tasks.repeated(self, account, repeat, at, within).await
    }

    /// Counts the repetitions of a task's submit from `at`: when its customer was answered, or will be at
    /// the latest. Without it they are counted from when an upstream took the task.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`].
    pub async fn submit_answered(&self, task: &Task, at: UnixMs) -> Result<(), LedgerError> {
        self.tasks.answered(self, task, at).await
    }

    /// Counts the repetitions of submits from now that began less than `longest` ago. For a start:
    /// it is not known when the last process answered them.
    pub fn count_submits_from_now(&self, longest: Duration) {
        let now = UnixMs::now();
        for shard in &self.shards {
            shard.lock().count_submits_from(now, longest);
        }
    }

    /// Removes at most `limit` tasks that ended before `before`, and returns their number.
    ///
    /// # Errors
    /// [`LedgerError::Store`] and [`LedgerError::Stopped`].
    pub async fn forget_tasks(&self, before: UnixMs, limit: usize) -> Result<usize, LedgerError> {
        let now = UnixMs::now();
        for shard in &self.shards {
            shard.lock().forget_submits(now);
        }
        self.forget_people(now);
        self.query(move |store| store.forget_sessions(now)).await?;
        self.tasks.forget(self, before, limit).await
    }

    /// Open holds that have moved to the treasury with their tasks. Call it after the node has
    /// joined.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`].
    pub async fn handed_over(&self) -> Result<HashSet<HoldId>, LedgerError> {
        self.tasks.handed_over(self).await
    }
}

/// True if a task fits into a record, whichever upstream is tried next.
fn is_small(task: &Task) -> bool {
    let bytes = postcard::experimental::serialized_size(task);
    bytes.is_ok_and(|bytes| bytes <= WRITE_BYTES_MAX / 2)
}

/// A task as it is with this end.
pub(crate) fn ended_as(
    before: &Task,
    (state, document): (&str, &str),
    (charged, usage): (Nanousd, Usage),
    at: UnixMs,
) -> Task {
    let ended = EndedTask {
        upstream_id: before.taken().cloned(),
        state: state.to_owned(),
        document: document.to_owned(),
        charged,
        usage,
        at,
    };
    let webhook = match before.webhook {
        Webhook::Due { tries, .. } => Webhook::Due { tries, at },
        other => other,
    };
    Task { stage: TaskPhase::Ended(ended), webhook, ..before.clone() }
}

/// Settlement of a task in doubt with this charge.
pub(crate) fn resolution(
    charge: Option<Nanousd>,
    held: Nanousd,
) -> Result<TaskSettlement, LedgerError> {
    match charge {
        None => Ok(TaskSettlement::Void),
        Some(charge) if Nanousd::ZERO < charge && charge <= held => {
            let (usage, source) = (Usage::ZERO, UsageSource::Estimated);
            Ok(TaskSettlement::Post(Settlement { charge, usage, source }))
        }
        Some(_) => Err(LedgerError::Invalid("the charge must be above zero and within the hold")),
    }
}
