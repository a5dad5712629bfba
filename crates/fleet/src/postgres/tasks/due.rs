//! Polling of tasks: each node claims due tasks for a while and stores their upstream's status. If a node
//! dies, its tasks become due for another one.

use std::time::Duration;

use super::{SharedTasks, before, stage_of};
use crate::postgres::columns::{at_ms, count, id, size};
use crate::postgres::{DbError, Param, Transaction};
use tollgate_ledger::{AccountId, Task, TaskId};
use tollgate_types::clock::UnixMs;

/// The work of this node now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// Due tasks, the longest due first.
    pub tasks: Vec<(AccountId, TaskId)>,
    /// The number of nodes alive, which share the upstreams' limits.
    pub nodes: u32,
}

/// An upstream's status of a task that has not ended: the state as customers see it, and JSON.
pub type UpstreamProgress<'a> = (&'a str, &'a str);

/// Whom a task belongs to for so long: the longest question to an upstream takes less.
macro_rules! held_until {
    () => {
        "now() + interval '30 seconds'"
    };
}

const DUE: &str = "SELECT id FROM tollgate.tasks
                   WHERE due_at <= $1 AND (held_until IS NULL OR held_until < now())
                   ORDER BY due_at LIMIT $2";

impl SharedTasks {
    /// Claims at most `limit` due tasks that no other node has claimed.
    ///
    /// # Errors
    /// See [`DbError`]. What was taken then is due again when its time as this node's is over.
    pub async fn claim(&self, limit: usize) -> Result<Option<Claims>, DbError> {
        let (now, limit) = (at_ms(UnixMs::now()), size(limit));
        // A look without locks, since most of the time nothing is due.
        if self.db().query(DUE, &[&now, &limit]).await?.is_empty() {
            return Ok(None);
        }
        let claimed = self.db().transact(move |tx| Box::pin(self.claim_in(tx, now, limit)));
        claimed.await.map(Some)
    }

    async fn claim_in(
        &self,
        tx: &Transaction<'_>,
        now: i64,
        limit: i64,
    ) -> Result<Claims, DbError> {
        // Due by the nodes' clocks, which wrote it; held by the database's, so that no node's clock keeps a
        // task from the others. Those that are locked are another node's now.
        let sql = format!("{DUE} FOR UPDATE SKIP LOCKED");
        let mut ids: Vec<String> = Vec::new();
        for row in tx.query(&sql, &[&now, &limit]).await? {
            ids.push(row.try_get(0)?);
        }
        let sql = concat!(
            "UPDATE tollgate.tasks SET holder = $1, held_until = ",
            held_until!(),
            " WHERE id = ANY($2) RETURNING id, account, due_at"
        );
        let mut tasks = Vec::new();
        for row in tx.query(sql, &[&self.node(), &ids]).await? {
            let task: (AccountId, TaskId) = (id(row.try_get(1)?)?, id(row.try_get(0)?)?);
            tasks.push((row.try_get::<_, i64>(2)?, task));
        }
        // RETURNING gives no order.
        tasks.sort();
        let alive = "SELECT count(*) FROM tollgate.nodes WHERE term_ends > now()";
        let nodes: i64 = tx.query_one(alive, &[]).await?.try_get(0)?;
        let tasks = tasks.into_iter().map(|(_, task)| task).collect();
        Ok(Claims { tasks, nodes: u32::try_from(nodes).unwrap_or(u32::MAX) })
    }

    /// Claims a task for a poll of its upstream, unless another node polls it, or did less than `fresh` ago.
    ///
    /// # Errors
    /// See [`DbError`].
    pub async fn claim_to_ask(&self, id: TaskId, fresh: Duration) -> Result<bool, DbError> {
        let (id, fresh_s) = (&id.to_string(), fresh.as_secs_f64());
        let sql = concat!(
            "UPDATE tollgate.tasks SET holder = $2, held_until = ",
            held_until!(),
            " WHERE id = $1 AND stage = 'submitted'
                AND (held_until IS NULL OR held_until < now())
                AND (asked_at IS NULL OR asked_at < now() - $3 * interval '1 second')"
        );
        Ok(self.db().execute(sql, &[id, &self.node(), &fresh_s]).await? == 1)
    }

    /// Stores a poll of a task's upstream, its status, and the time of the next poll by any node.
    ///
    /// # Errors
    /// See [`DbError`].
    pub async fn note_poll(
        &self,
        id: TaskId,
        status: Option<UpstreamProgress<'_>>,
        due_at: UnixMs,
    ) -> Result<(), DbError> {
        let sql = "UPDATE tollgate.tasks
                   SET said_changed_at = CASE WHEN $2::text IS NULL OR said_state = $2
                                              THEN said_changed_at ELSE $4 END,
                       said_state = COALESCE($2::text, said_state),
                       said_document = COALESCE($3::text, said_document),
                       asked_at = now(), due_at = $5, holder = NULL, held_until = NULL
                   WHERE id = $1 AND stage = 'submitted'";
        let (state, document) = status.unzip();
        let (id, now, due_at) = (&id.to_string(), at_ms(UnixMs::now()), at_ms(due_at));
        let params: [Param<'_>; 5] = [id, &state, &document, &now, &due_at];
        self.db().execute(sql, &params).await.map(|_| ())
    }

    /// Sets the time of a task's next poll, by any node, unless the task has advanced beyond `task`.
    ///
    /// # Errors
    /// See [`DbError`].
    pub async fn schedule(&self, task: &Task, due_at: UnixMs) -> Result<(), DbError> {
        let sql = "UPDATE tollgate.tasks SET due_at = $3, holder = NULL, held_until = NULL
                   WHERE id = $1 AND stage = $2";
        let (id, stage, due_at) = (&task.id().to_string(), stage_of(task), at_ms(due_at));
        self.db().execute(sql, &[id, &stage, &due_at]).await.map(|_| ())
    }

    /// Reschedules a webhook that this node was to deliver, for any node, unless it was delivered meanwhile.
    ///
    /// # Errors
    /// See [`DbError`].
    pub async fn put_off(&self, id: TaskId, due_at: UnixMs) -> Result<(), DbError> {
        let sql = "UPDATE tollgate.tasks SET due_at = $2, holder = NULL, held_until = NULL
                   WHERE id = $1 AND stage = 'ended' AND due_at IS NOT NULL AND holder = $3";
        let (id, due_at) = (&id.to_string(), at_ms(due_at));
        self.db().execute(sql, &[id, &due_at, &self.node()]).await.map(|_| ())
    }

    /// The number of this node's tasks that have not ended.
    ///
    /// # Errors
    /// See [`DbError`].
    pub async fn count_own(&self) -> Result<u64, DbError> {
        let sql = "SELECT count(*) FROM tollgate.tasks
                   WHERE stage NOT IN ('ended', 'never') AND node = $1";
        Ok(count(self.db().query_one(sql, &[&self.node()]).await?.try_get(0)?))
    }

    /// Deletes tasks that ended before `ended_before`, at most `limit` of them, and returns their number; and
    /// as many idempotency records older than `repeated_within`.
    ///
    /// # Errors
    /// See [`DbError`].
    pub async fn forget(
        &self,
        ended_before: UnixMs,
        repeated_within: Duration,
        limit: usize,
    ) -> Result<usize, DbError> {
        let limit = size(limit);
        let (ended, at) = (at_ms(ended_before), before(UnixMs::now(), repeated_within));
        let tasks = "DELETE FROM tollgate.tasks WHERE id IN (
                         SELECT id FROM tollgate.tasks WHERE ended_at < $1
                         ORDER BY ended_at LIMIT $2)";
        let submits = "DELETE FROM tollgate.submits WHERE (account, key) IN (
                           SELECT account, key FROM tollgate.submits WHERE at < $1
                           ORDER BY at LIMIT $2)";
        let forgotten = self.db().transact(move |tx| {
            Box::pin(async move {
                tx.execute(submits, &[&at, &limit]).await?;
                tx.execute(tasks, &[&ended, &limit]).await
            })
        });
        Ok(usize::try_from(forgotten.await?).unwrap_or(usize::MAX))
    }
}
