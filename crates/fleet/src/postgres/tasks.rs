//! The tasks of a fleet, which stand in PostgreSQL and nowhere else: any node answers for any task,
//! and one at a time looks after it.
//!
//! | File | What it knows |
//! |---|---|
//! | `open` | a task and its money come into the database together, or not at all |
//! | `end` | a task changes, and ends with its money, once |
//! | `due` | which node looks at which task when, and what an upstream said last |
//! | `list` | lists of tasks, and forgetting old ones |
//!
//! Locks are taken in this order: node, task, account, lease.

mod due;
mod end;
mod list;
mod open;

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio_postgres::Row;

pub use self::due::{Claims, UpstreamProgress};
pub use self::list::SharedTaskPage;
pub use self::open::{CommitState, OpenOutcome, Opening};
use super::columns::{at_ms, id, number};
use super::{Db, DbError, Transaction};
use crate::Fleet;
use tollgate_ledger::{
    AccountId, DeliveryAttempt, RepeatKey, RepeatLookup, Task, TaskId, TaskPhase,
};
use tollgate_types::clock::UnixMs;

/// The tasks that all nodes share, as one node sees them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SharedTasks(Arc<Fleet>);

/// A task with its columns in the database.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedTask {
    /// The task itself, as the ledger has it.
    pub task: Arc<Task>,
    /// The last try to announce its end.
    pub tried: Option<DeliveryAttempt>,
    /// The last status from its upstream, while it has not ended.
    pub status: Option<StoredStatus>,
    /// The time since its upstream was polled.
    pub polled_ago: Option<Duration>,
}

/// The upstream's status of a task that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredStatus {
    /// The state, as customers see it.
    pub state: String,
    /// The upstream's document for the customer's record: JSON.
    pub document: String,
    /// The time of the last change of state.
    pub changed_at: UnixMs,
}

/// The columns of [`read`], in its order.
const COLUMNS: &str = "task, tried, said_state, said_document, said_changed_at, \
                       (extract(epoch FROM now() - asked_at) * 1000)::bigint";

impl SharedTasks {
    /// The tasks of a fleet, as the node that `fleet` connects sees them.
    #[must_use]
    pub fn of(fleet: Arc<Fleet>) -> Self {
        Self(fleet)
    }

    fn db(&self) -> &Db {
        self.0.db()
    }

    fn node(&self) -> i32 {
        i32::from(self.0.node().number())
    }

    /// The life of the node in which it acts.
    fn epoch(&self) -> i64 {
        number(self.0.epoch())
    }

    /// The account's task with this id, or with this id at its upstream. One query, so that its duration does
    /// not reveal another account's task.
    ///
    /// # Errors
    /// See [`DbError`].
    pub async fn task(&self, account: AccountId, id: &str) -> Result<Option<SharedTask>, DbError> {
        let is_own = id.parse::<TaskId>().is_ok();
        let by = if is_own { "id" } else { "native_id" };
        let sql = format!(
            "SELECT {COLUMNS} FROM tollgate.tasks
             WHERE account = $1 AND {by} = $2 AND stage <> 'never'
             ORDER BY submitted_at DESC LIMIT 1"
        );
        let rows = self.db().query(&sql, &[&account.to_string(), &id]).await?;
        rows.first().map(read).transpose()
    }

    /// The task of this id, whosever it is.
    ///
    /// # Errors
    /// See [`DbError`].
    pub async fn any_task(&self, id: TaskId) -> Result<Option<SharedTask>, DbError> {
        let sql =
            format!("SELECT {COLUMNS} FROM tollgate.tasks WHERE id = $1 AND stage <> 'never'");
        let rows = self.db().query(&sql, &[&id.to_string()]).await?;
        rows.first().map(read).transpose()
    }

    /// Checks if a submit repeats one that is in progress or in doubt, or that was answered less than
    /// `within` before `at`.
    ///
    /// # Errors
    /// See [`DbError`].
    pub async fn repeated(
        &self,
        account: AccountId,
        repeat: &RepeatKey,
        at: UnixMs,
        within: Duration,
    ) -> Result<RepeatLookup, DbError> {
        let sql = "SELECT s.task, s.body FROM tollgate.submits s
                   LEFT JOIN tollgate.tasks t ON t.id = s.task
                   WHERE s.account = $1 AND s.key = $2
                     AND (s.at > $3 OR t.stage IN ('submitting', 'in_doubt'))";
        let params = (account.to_string(), &repeat.key[..], before(at, within));
        let rows = self.db().query(sql, &[&params.0, &params.1, &params.2]).await?;
        let Some(row) = rows.first() else { return Ok(RepeatLookup::New) };
        // The same key with another body is a mistake of the customer, not a repetition.
        if row.try_get::<_, &[u8]>(1)? != repeat.body {
            return Ok(RepeatLookup::Other);
        }
        Ok(RepeatLookup::Same(id(row.try_get(0)?)?))
    }

    /// Counts the repetitions of a task's submit from `at`.
    ///
    /// # Errors
    /// See [`DbError`].
    pub async fn answered(&self, task: &Task, at: UnixMs) -> Result<(), DbError> {
        self.db().transact(move |tx| Box::pin(count_from(tx, task, at))).await
    }
}

/// Counts the repetitions of a task's submit from `at`, unless another one has taken its name since.
async fn count_from(tx: &Transaction<'_>, task: &Task, at: UnixMs) -> Result<(), DbError> {
    let Some(repeat) = task.intent.repeat else { return Ok(()) };
    let sql = "UPDATE tollgate.submits SET at = $4 WHERE account = $1 AND key = $2 AND task = $3";
    let (account, id) = (task.intent.account.to_string(), task.id().to_string());
    tx.execute(sql, &[&account, &&repeat.key[..], &id, &at_ms(at)]).await?;
    Ok(())
}

/// Name of a task's stage.
pub(super) fn stage_of(task: &Task) -> &'static str {
    match task.stage {
        TaskPhase::Submitting => "submitting",
        TaskPhase::InDoubt => "in_doubt",
        TaskPhase::Submitted { .. } => "submitted",
        TaskPhase::Ended(_) => "ended",
    }
}

fn read(row: &Row) -> Result<SharedTask, DbError> {
    let tried: Option<&[u8]> = row.try_get(1)?;
    let state: Option<String> = row.try_get(2)?;
    let document: Option<String> = row.try_get(3)?;
    let changed_at: Option<i64> = row.try_get(4)?;
    let polled_ago_ms: Option<i64> = row.try_get(5)?;
    let status = state.zip(document).map(|(state, document)| StoredStatus {
        state,
        document,
        changed_at: UnixMs(changed_at.and_then(|at| at.try_into().ok()).unwrap_or_default()),
    });
    let polled_ago = polled_ago_ms.map(|ms| Duration::from_millis(ms.try_into().unwrap_or(0)));
    Ok(SharedTask {
        task: Arc::new(decode(row.try_get(0)?)?),
        tried: tried.map(decode).transpose()?,
        status,
        polled_ago,
    })
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DbError> {
    postcard::from_bytes(bytes)
        .map_err(|error| DbError::Failed(format!("a task cannot be read: {error}")))
}

/// The moment that lies `within` before `at`, in milliseconds since 1970.
fn before(at: UnixMs, within: Duration) -> i64 {
    let within = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
    at_ms(UnixMs(at.0.saturating_sub(within)))
}
