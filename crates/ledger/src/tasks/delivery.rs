//! Tasks in lists, and what came of the last try to announce the end of each: beside the task, whose
//! own record never changes its form.

use crate::records::task::Tried;
use crate::seam::tasks::{ListedTask, TaskFilter, TaskPage, TaskQuery};
use std::sync::Arc;

use crate::memory::ledger::Ledger;
use crate::projection::store::Store;
use crate::records::error::LedgerError;
use crate::records::record::Record;
use crate::records::task::Task;
use tollgate_money::ids::{AccountId, TaskId};

/// The most tasks that one query gives.
const TASKS_MAX: usize = 1000;

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
            let query = TaskQuery { account, filter, after, limit };
            return Ok(shared.list(&query).await?);
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
            return Ok(shared.any_task(id).await?);
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
            return Self::change_shared(&*shared, id, &change, Some(&tried)).await;
        }
        let (account, task) = id;
        let tried = Record::Announced { account, task, tried: Arc::new(tried) };
        let Some((task, seq)) = self.alter_task(id, change, Some(tried))? else { return Ok(None) };
        self.task_durable(seq).await?;
        Ok(Some(task))
    }
}
