//! Port for tasks that several ledgers share.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::records::error::LedgerError;
use crate::records::record::JournaledRecord;
use crate::records::reservation::OpenHold;
use crate::records::task::{DeliveryAttempt, RepeatKey, Task, TaskPhase};
use crate::rules::submit::RepeatLookup;
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId, TaskId};

/// Result of a [`PreparedOpening`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskOpened {
    /// The task and its money were stored.
    Done,
    /// A submit of the same name came before. Nothing has changed.
    Repeated,
    /// The term is over, or what was lent does not cover the hold. Nothing has changed.
    Refused,
}

/// An open task with the money that its end is charged to.
#[derive(Clone, Debug)]
pub struct OpenTask {
    /// Task that has not ended.
    pub task: Arc<Task>,
    /// Hold that pays for the task.
    pub hold: OpenHold,
    /// Available amount of its account.
    pub available: Nanousd,
    /// Debt of its account.
    pub debt: Nanousd,
}

/// Result of a finished task.
#[derive(Clone, Debug)]
pub struct TaskEnding {
    /// Task in its final state.
    pub task: Task,
    /// The end of its hold, and the line of the statement: `PostedCharge` or `Voided`, at the place of the
    /// hold.
    pub journaled: JournaledRecord,
}

/// Query for tasks, newest first.
#[derive(Clone, Debug)]
pub struct TaskQuery {
    /// Account to list; `None` for all.
    pub account: Option<AccountId>,
    /// Filter by phase; `None` for all.
    pub filter: Option<TaskFilter>,
    /// From behind this one on.
    pub after: Option<TaskId>,
    /// Maximum number of tasks.
    pub limit: usize,
}

/// Filter of listed tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskFilter {
    /// Tasks that have neither ended nor are in doubt.
    Open,
    /// Tasks whose submit is in doubt.
    InDoubt,
    /// Tasks that ended in this state, as customers read it.
    Ended(String),
    /// Tasks with a webhook.
    Announced,
}

impl TaskFilter {
    pub(crate) fn wants(&self, task: &Task) -> bool {
        match (self, &task.stage) {
            (Self::Open, TaskPhase::Submitting | TaskPhase::Submitted { .. })
            | (Self::InDoubt, TaskPhase::InDoubt) => true,
            (Self::Ended(state), TaskPhase::Ended(ended)) => ended.state == *state,
            (Self::Announced, _) => task.intent.webhook_url.is_some(),
            _ => false,
        }
    }
}

/// A task in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTask {
    /// The listed task.
    pub task: Task,
    /// The last try to announce its end.
    pub tried: Option<DeliveryAttempt>,
}

/// A page of a list of tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskPage {
    /// Tasks of the page, newest first.
    pub tasks: Vec<ListedTask>,
    /// Behind which task the list goes on; `None` at its end.
    pub next_after: Option<TaskId>,
}

/// Failure of the task store, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskStoreError {
    /// It cannot be done, and not later either.
    Failed(String),
    /// Nothing has changed; it may be tried again.
    Unavailable(String),
    /// It may have been done.
    Unknown(String),
}

impl fmt::Display for TaskStoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Failed(why) | Self::Unavailable(why) | Self::Unknown(why)) = self;
        f.write_str(why)
    }
}

/// Converts an error of the store for callers. A programming error or a wrong database is described only in
/// the log.
impl From<TaskStoreError> for LedgerError {
    fn from(error: TaskStoreError) -> Self {
        if let TaskStoreError::Failed(why) = &error {
            log::error!("the fleet's database: {why}");
        }
        Self::Unavailable(error.to_string())
    }
}

/// Change of a task.
pub type ChangeTask<'a> = dyn Fn(&Task) -> Task + Send + Sync + 'a;

/// Decides the end of a locked task.
pub type DecideEnd<'a> = dyn Fn(&OpenTask) -> Result<TaskEnding, LedgerError> + Send + Sync + 'a;

/// A task to open, encoded for the store.
#[async_trait]
pub trait PreparedOpening: Send + Sync {
    /// Opens the task: its money leaves what this ledger was lent. After [`TaskStoreError::Unknown`]
    /// ask [`PreparedOpening::settle`].
    async fn open(&self) -> Result<TaskOpened, TaskStoreError>;

    /// Determines whether an opening with an unknown outcome was done. If not, it never will be.
    async fn settle(&self) -> Result<bool, TaskStoreError>;
}

/// The tasks that several ledgers share, as one of them sees them.
#[async_trait]
pub trait TaskStore: Send + Sync {
    /// Prepares the opening of a task that `hold` pays for, without any I/O. A repeated submit, see
    /// [`TaskStore::repeated`], is refused later.
    ///
    /// # Errors
    /// [`TaskStoreError::Failed`] for what cannot be encoded.
    fn prepare(
        &self,
        task: &Task,
        hold: OpenHold,
        repeat_within: Duration,
    ) -> Result<Box<dyn PreparedOpening>, TaskStoreError>;

    /// The holds among these that the store has taken over with their tasks.
    async fn with_holds(&self, holds: &[HoldId]) -> Result<HashSet<HoldId>, TaskStoreError>;

    /// Changes a task, and notes the last try to announce its end; `None` when it cannot become so. A
    /// change that an earlier try of the same made counts as made. From when an upstream takes a task
    /// the repetitions of its submit are counted.
    async fn change(
        &self,
        account: AccountId,
        id: TaskId,
        change: &ChangeTask<'_>,
        tried: Option<&DeliveryAttempt>,
    ) -> Result<Option<Arc<Task>>, TaskStoreError>;

    /// Ends a task and settles its hold with the result of `decide`; `None` if it has already ended. An error
    /// of `decide` is returned and changes nothing.
    async fn end(
        &self,
        account: AccountId,
        id: TaskId,
        decide: &DecideEnd<'_>,
    ) -> Result<Result<Option<Arc<Task>>, LedgerError>, TaskStoreError>;

    /// The account's task of this id, or of this upstream's id.
    async fn task(&self, account: AccountId, id: &str)
    -> Result<Option<Arc<Task>>, TaskStoreError>;

    /// The task of this id, whosever it is.
    async fn any_task(&self, id: TaskId) -> Result<Option<ListedTask>, TaskStoreError>;

    /// Looks up whether a submit repeats one that is under way, in doubt, or was answered less than
    /// `within` before `at`.
    async fn repeated(
        &self,
        account: AccountId,
        repeat: &RepeatKey,
        at: UnixMs,
        within: Duration,
    ) -> Result<RepeatLookup, TaskStoreError>;

    /// Counts the repetitions of a task's submit from `at`.
    async fn answered(&self, task: &Task, at: UnixMs) -> Result<(), TaskStoreError>;

    /// A page of the list of tasks; `None` if the task after which it begins does not exist.
    async fn list(&self, query: &TaskQuery) -> Result<Option<TaskPage>, TaskStoreError>;

    /// The tasks of which nobody knows whether their upstreams took them, oldest first.
    async fn in_doubt(&self) -> Result<Vec<Arc<Task>>, TaskStoreError>;

    /// Removes at most `limit` tasks that ended before `ended_before`, and returns their number.
    async fn forget(
        &self,
        ended_before: UnixMs,
        repeated_within: Duration,
        limit: usize,
    ) -> Result<usize, TaskStoreError>;
}
