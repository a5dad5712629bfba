//! Tasks in lists, and what came of the last try to announce the end of each: beside the task, whose
//! own record never changes its form.

use std::sync::Arc;

use crate::memory::Ledger;
use crate::ports::tasks::{ListedTask, TaskFilter, TaskPage, TaskQuery};
use crate::records::error::LedgerError;
use crate::records::task::{DeliveryAttempt, Task};
use tollgate_types::ids::{AccountId, TaskId};

/// Maximum number of tasks of one query.
const TASKS_MAX: usize = 1000;

impl Ledger {
    /// At most `limit` (and at most 1,000) retained tasks, newest first, of one account or all, after
    /// `after`. A page may have fewer although there are more; `next_after` tells. `None` if `after` does not
    /// exist.
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
        self.tasks.list(self, TaskQuery { account, filter, after, limit }).await
    }

    /// The task of this id, whosever it is, until it is forgotten.
    ///
    /// # Errors
    /// [`LedgerError::Store`], [`LedgerError::Stopped`] and [`LedgerError::Unavailable`].
    pub async fn listed_task(&self, id: TaskId) -> Result<Option<ListedTask>, LedgerError> {
        self.tasks.listed(self, id).await
    }

    /// The last try to announce the end of a task; `None` before the first.
    ///
    /// # Errors
    /// [`LedgerError::Store`], [`LedgerError::Stopped`] and [`LedgerError::Unavailable`].
    pub async fn tried(&self, task: TaskId) -> Result<Option<DeliveryAttempt>, LedgerError> {
        self.tasks.tried(self, task).await
    }

    /// Changes a task after a try to announce its end, and notes what came of the try, together;
    /// `None` when the task cannot become so. Both are on disk when this returns.
    ///
    /// # Errors
    /// [`LedgerError::Stopped`].
    pub async fn announced(
        &self,
        id: (AccountId, TaskId),
        tried: DeliveryAttempt,
        change: impl Fn(&Task) -> Task + Send + Sync,
    ) -> Result<Option<Arc<Task>>, LedgerError> {
        self.tasks.change(self, id, &change, Some(tried)).await
    }
}
