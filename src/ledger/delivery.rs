//! Tasks in lists, and what came of the last try to announce the end of each: beside the task, whose
//! own record never changes its form.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::clock::UnixMs;
use crate::fleet::postgres::tasks::SharedTask;
use crate::ledger::error::LedgerError;
use crate::ledger::record::Record;
use crate::ledger::store::Store;
use crate::ledger::{AccountId, Ledger, Stage, Task, TaskId};

/// The longest reason for a failed try that is kept, in bytes.
const ERROR_BYTES_MAX: usize = 256;

/// The most tasks that one query gives.
const TASKS_MAX: usize = 1000;

/// The last try of an announcement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// The status that the receiver answered; `None` where it did not answer.
    pub status: Option<u16>,
    /// Why it was not reached.
    pub error: Option<String>,
    /// When.
    pub at: UnixMs,
}

impl Tried {
    /// A try that was answered, or failed for a reason, now.
    #[must_use]
    pub fn now(came_of_it: Result<u16, String>) -> Self {
        let at = UnixMs::now();
        match came_of_it {
            Ok(status) => Self { status: Some(status), error: None, at },
            Err(mut error) => {
                let fits = (0..=ERROR_BYTES_MAX.min(error.len()))
                    .rev()
                    .find(|end| error.is_char_boundary(*end));
                error.truncate(fits.unwrap_or(0));
                Self { status: None, error: Some(error), at }
            }
        }
    }
}

/// Which tasks are listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskFilter {
    /// Those that have not ended, and are not in doubt.
    Open,
    /// Those whose submit is in doubt.
    InDoubt,
    /// Those that ended so, in the customers' words.
    Ended(String),
    /// Those whose end is announced, or will be.
    Announced,
}

impl TaskFilter {
    fn wants(&self, task: &Task) -> bool {
        match (self, &task.stage) {
            (Self::Open, Stage::Submitting | Stage::Submitted { .. })
            | (Self::InDoubt, Stage::InDoubt) => true,
            (Self::Ended(state), Stage::Ended(ended)) => ended.state == *state,
            (Self::Announced, _) => task.intent.webhook_url.is_some(),
            _ => false,
        }
    }
}

/// A task in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedTask {
    /// The task.
    pub task: Task,
    /// The last try to announce its end.
    pub tried: Option<Tried>,
}

/// A part of a list of tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskPage {
    /// Newest first.
    pub tasks: Vec<ListedTask>,
    /// Behind which task the list goes on; `None` at its end.
    pub next_after: Option<TaskId>,
}

impl Ledger {
    /// At most `limit` (and never more than 1,000) tasks that have not been forgotten, newest first,
    /// of one account or all, from behind `after`. A page may have fewer though there are more:
    /// `next_after` tells. `None` if there is no such task as `after`.
    ///
    /// # Errors
    /// [`LedgerError::Store`], [`LedgerError::Stopped`] and [`LedgerError::Unavailable`].
    pub async fn tasks(
        &self,
        account: Option<AccountId>,
        filter: Option<TaskFilter>,
        after: Option<TaskId>,
        limit: usize,
    ) -> Result<Option<TaskPage>, LedgerError> {
        let limit = limit.min(TASKS_MAX);
        if let Some(shared) = self.shared_tasks() {
            return Self::shared_page(&shared, account, filter.as_ref(), after, limit).await;
        }
        let list = move |store: &Store| {
            let is_wanted = |task: &Task| filter.as_ref().is_none_or(|filter| filter.wants(task));
            store.tasks(account, after, limit, is_wanted)
        };
        let Some(found) = self.query(list).await? else { return Ok(None) };
        let listed = |(task, tried)| ListedTask { task, tried };
        let tasks = found.tasks.into_iter().map(listed).collect();
        Ok(Some(TaskPage { tasks, next_after: found.next_after }))
    }

    /// The task of this id, whosever it is, until it is forgotten.
    ///
    /// # Errors
    /// [`LedgerError::Store`], [`LedgerError::Stopped`] and [`LedgerError::Unavailable`].
    pub async fn listed_task(&self, id: TaskId) -> Result<Option<ListedTask>, LedgerError> {
        if let Some(shared) = self.shared_tasks() {
            let found = shared.any_task(id).await?;
            let listed =
                |found: SharedTask| ListedTask { task: (*found.task).clone(), tried: found.tried };
            return Ok(found.map(listed));
        }
        self.query(move |store| {
            let Some(task) = store.task(AccountId::HOUSE, Some(id), "")? else { return Ok(None) };
            Ok(Some(ListedTask { task, tried: store.tried(id)? }))
        })
        .await
    }

    /// The last try to announce the end of a task; `None` before the first.
    ///
    /// # Errors
    /// [`LedgerError::Store`], [`LedgerError::Stopped`] and [`LedgerError::Unavailable`].
    pub async fn tried(&self, task: TaskId) -> Result<Option<Tried>, LedgerError> {
        if let Some(shared) = self.shared_tasks() {
            return Ok(shared.any_task(task).await?.and_then(|found| found.tried));
        }
        self.query(move |store| store.tried(task)).await
    }

    /// Changes a task after a try to announce its end, and notes what came of the try, together;
    /// `None` when the task cannot become so. Both are on disk when this returns.
    ///
    /// # Errors
    /// [`LedgerError::Stopped`].
    pub async fn announced(
        &self,
        id: (AccountId, TaskId),
        tried: Tried,
        change: impl Fn(&Task) -> Task + Send + Sync,
    ) -> Result<Option<Arc<Task>>, LedgerError> {
        if let Some(shared) = self.shared_tasks() {
            return Self::change_shared(&shared, id, &change, Some(&tried)).await;
        }
        let (account, task) = id;
        let tried = Record::Announced { account, task, tried: Arc::new(tried) };
        let Some((task, seq)) = self.alter_task(id, change, Some(tried))? else { return Ok(None) };
        self.task_durable(seq).await?;
        Ok(Some(task))
    }
}
