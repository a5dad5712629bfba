//! Lists of tasks, for customers and operators.

use std::sync::Arc;

use super::{COLUMNS, SharedTask, SharedTasks, read};
use crate::postgres::columns::{at_ms, size};
use crate::postgres::{DbError, Param};
use tollgate_ledger::{AccountId, Task, TaskFilter, TaskId};

/// Maximum number of listed tasks in doubt, more than anybody examines by hand.
const DOUBTS_MAX: i64 = 1000;

/// One page of a list of tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SharedTaskPage {
    /// The tasks of the page, the newest first.
    pub tasks: Vec<SharedTask>,
    /// True if more tasks follow.
    pub has_more: bool,
}

impl SharedTasks {
    /// At most `limit` tasks, newest first, of one account or all, after `after`. `None` if `after` does not
    /// exist.
    ///
    /// # Errors
    /// See [`DbError`].
    pub async fn list(
        &self,
        account: Option<AccountId>,
        filter: Option<&TaskFilter>,
        after: Option<TaskId>,
        limit: usize,
    ) -> Result<Option<SharedTaskPage>, DbError> {
        let (matches, state) = match filter {
            None => ("stage <> 'never'", None),
            Some(TaskFilter::Open) => ("stage IN ('submitting', 'submitted')", None),
            Some(TaskFilter::InDoubt) => ("stage = 'in_doubt'", None),
            Some(TaskFilter::Ended(state)) => ("stage = 'ended' AND state = $1", Some(state)),
            Some(TaskFilter::Announced) => ("stage <> 'never' AND is_announced", None),
        };
        let begin = match after {
            None => (i64::MAX, String::new()),
            Some(after) => match self.any_task(after).await? {
                Some(found) => (at_ms(found.task.intent.at), after.to_string()),
                None => return Ok(None),
            },
        };
        let account = account.map(|account| account.to_string());
        // One more than the page has, which tells if any follow.
        let more = size(limit.saturating_add(1));
        let mut params: Vec<Param<'_>> = Vec::new();
        if let Some(state) = &state {
            params.push(state);
        }
        let mut place = |param| {
            params.push(param);
            params.len()
        };
        let (at, id) = (place(&begin.0), place(&begin.1));
        let of_account = account
            .as_ref()
            .map_or(String::new(), |account| format!("AND account = ${}", place(account)));
        let sql = format!(
            "SELECT {COLUMNS} FROM tollgate.tasks
             WHERE {matches} AND (submitted_at, id) < (${at}, ${id}) {of_account}
             ORDER BY submitted_at DESC, id DESC LIMIT ${}",
            place(&more)
        );
        let rows = self.db().query(&sql, &params).await?;
        let mut tasks = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let has_more = tasks.len() > limit;
        tasks.truncate(limit);
        Ok(Some(SharedTaskPage { tasks, has_more }))
    }

    /// The tasks with an unknown outcome of their submission, oldest first.
    ///
    /// # Errors
    /// See [`DbError`].
    pub async fn in_doubt(&self) -> Result<Vec<Arc<Task>>, DbError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM tollgate.tasks WHERE stage = 'in_doubt'
             ORDER BY submitted_at, id LIMIT {DOUBTS_MAX}"
        );
        let rows = self.db().query(&sql, &[]).await?;
        rows.iter().map(|row| Ok(read(row)?.task)).collect()
    }
}
