//! Port for a ledger's tasks. `tasks::local` and `tasks::shared` implement it; the ledger keeps the
//! one that it was opened with.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::memory::Ledger;
use crate::memory::act::ActorScope;
use crate::memory::hold::Hold;
use crate::ports::tasks::{ChangeTask, ListedTask, TaskPage, TaskQuery};
use crate::records::error::LedgerError;
use crate::records::task::{DeliveryAttempt, RepeatKey, Task};
use crate::rules::settlement::TaskSettlement;
use crate::rules::submit::RepeatLookup;
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId, TaskId};

/// A ledger's tasks, in the one place where they stand. The ledger that asks is handed in with each
/// call: a registry that kept it would keep it open. What a method has changed is on disk when it
/// returns. All fail with [`LedgerError::Stopped`] once the ledger has closed, and with
/// [`LedgerError::Store`] or [`LedgerError::Unavailable`] where the place cannot be read.
#[async_trait]
pub(crate) trait TaskRegistry: Send + Sync {
    /// Opens a task that `hold` pays for, which its end ends from here on. The hold is voided where the
    /// task is not opened: with [`LedgerError::Conflict`] where it repeats a submit, as
    /// [`TaskRegistry::repeated`] says.
    async fn open(
        &self,
        ledger: &Ledger,
        hold: Hold,
        task: Arc<Task>,
        repeat_within: Duration,
    ) -> Result<(), LedgerError>;

    /// Changes a task, and notes with it the last try to announce its end; `None` when it cannot become
    /// so.
    async fn change(
        &self,
        ledger: &Ledger,
        id: (AccountId, TaskId),
        change: &ChangeTask<'_>,
        tried: Option<DeliveryAttempt>,
    ) -> Result<Option<Arc<Task>>, LedgerError>;

    /// Ends a task and its hold together, with this state and document; `None` when it has ended before.
    async fn end(
        &self,
        ledger: &Ledger,
        id: (AccountId, TaskId),
        end: (&str, String),
        settlement: TaskSettlement,
    ) -> Result<Option<Arc<Task>>, LedgerError>;

    /// Resolves a task whose submit is in doubt, as described at [`ActorScope::resolve_task`], and records
    /// the actor.
    async fn resolve(
        &self,
        by: &ActorScope<'_>,
        id: (AccountId, TaskId),
        end: (&str, String),
        charge: Option<Nanousd>,
    ) -> Result<Option<Arc<Task>>, LedgerError>;

    /// Reopens a finished task to send its webhook again, and records the actor.
    async fn announce_again(&self, by: &ActorScope<'_>, task: Task) -> Result<(), LedgerError>;

    /// The account's task of this id, or of this upstream's id.
    async fn find(
        &self,
        ledger: &Ledger,
        account: AccountId,
        id: &str,
    ) -> Result<Option<Arc<Task>>, LedgerError>;

    /// The account's task of this id, while something remains to be done for it.
    async fn in_work(
        &self,
        ledger: &Ledger,
        id: (AccountId, TaskId),
    ) -> Result<Option<Arc<Task>>, LedgerError>;

    /// The task of this id, whosever it is, with the last try to announce its end.
    async fn listed(&self, ledger: &Ledger, id: TaskId) -> Result<Option<ListedTask>, LedgerError>;

    /// The last try to announce the end of a task; `None` before the first.
    async fn tried(
        &self,
        ledger: &Ledger,
        id: TaskId,
    ) -> Result<Option<DeliveryAttempt>, LedgerError>;

    /// A page of the list of tasks; `None` if the task after which it begins does not exist.
    async fn list(
        &self,
        ledger: &Ledger,
        query: TaskQuery,
    ) -> Result<Option<TaskPage>, LedgerError>;

    /// The tasks of which nobody knows whether their upstreams took them, oldest first.
    async fn in_doubt(&self, ledger: &Ledger) -> Result<Vec<Arc<Task>>, LedgerError>;

    /// Looks up whether a submit repeats one that is under way, in doubt, or was answered less than
    /// `within` before `at`.
    async fn repeated(
        &self,
        ledger: &Ledger,
        account: AccountId,
        repeat: &RepeatKey,
        at: UnixMs,
        within: Duration,
    ) -> Result<RepeatLookup, LedgerError>;

    /// Counts the repetitions of a task's submit from `at`. They are counted from when an upstream took
    /// it, as long as nobody says otherwise.
    async fn answered(&self, ledger: &Ledger, task: &Task, at: UnixMs) -> Result<(), LedgerError>;

    /// Removes at most `limit` tasks that ended before `ended_before`, and returns their number.
    async fn forget(
        &self,
        ledger: &Ledger,
        ended_before: UnixMs,
        limit: usize,
    ) -> Result<usize, LedgerError>;

    /// Open holds of the ledger that have moved to the treasury with their tasks.
    async fn handed_over(&self, ledger: &Ledger) -> Result<HashSet<HoldId>, LedgerError>;
}
