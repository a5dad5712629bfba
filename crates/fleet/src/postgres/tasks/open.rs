//! A task and its money come into the database in one transaction, by the task's id: so it can be
//! found out afterwards whether they did.

use std::collections::HashSet;
use std::time::Duration;

use super::{SharedTasks, before, stage_of};
use crate::postgres::columns::{at_ms, count, encoded, number, place};
use crate::postgres::{DbError, Transaction};
use tollgate_ledger::{HoldId, OpenHold, Task};
use tollgate_types::clock::UnixMs;

/// The delay after which a new task is polled if its node stores nothing more: the node has died, or still
/// waits for the upstream.
const SOON_MS: u64 = 5_000;
/// Maximum number of holds of one query.
const HOLDS_MAX: usize = 1000;

/// A task to open.
#[derive(Clone, Debug)]
pub struct Opening {
    task: Task,
    hold: OpenHold,
    repeat_within: Duration,
    encoded: (Vec<u8>, Vec<u8>),
}

/// The outcome of an [`Opening`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenOutcome {
    /// Task and money are in the database.
    Done,
    /// A submit of the same name came before. Nothing has changed.
    Repeated,
    /// The node's term is over, or what it was lent does not cover the hold. Nothing has changed.
    Refused,
}

/// The state of an [`Opening`] whose COMMIT was not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitState {
    /// The task was opened.
    Done,
    /// It was not, and never will be.
    Never,
}

impl Opening {
    /// The opening of a task that `hold` pays for. A repeated submit, as defined by [`SharedTasks::repeated`]
    /// with `repeat_within`, is refused.
    ///
    /// # Errors
    /// [`DbError::Failed`] for what cannot be encoded.
    pub fn new(task: &Task, hold: OpenHold, repeat_within: Duration) -> Result<Self, DbError> {
        let encoded = (encoded(task)?, encoded(&hold)?);
        Ok(Self { task: task.clone(), hold, repeat_within, encoded })
    }

    fn hold_number(&self) -> Result<i64, DbError> {
        place(self.task.intent.hold.number())
    }
}

impl SharedTasks {
    /// Opens a task: its row, what marks its repetitions, and its money, which leaves what this node
    /// was lent.
    ///
    /// # Errors
    /// See [`DbError`]. After [`DbError::Unknown`] ask [`SharedTasks::settle_opening`].
    pub async fn open(&self, opening: &Opening) -> Result<OpenOutcome, DbError> {
        let opened = self.db().transact_or_refuse(move |tx| {
            Box::pin(async move {
                let opened = self.open_in(tx, opening).await?;
                Ok(if opened == OpenOutcome::Done { Ok(opened) } else { Err(opened) })
            })
        });
        opened.await.map(|opened| opened.unwrap_or_else(|refused| refused))
    }

    async fn open_in(
        &self,
        tx: &Transaction<'_>,
        opening: &Opening,
    ) -> Result<OpenOutcome, DbError> {
        // Locked, so that nobody takes this node's place or its leases before the end of this.
        let alive = "SELECT 1 FROM tollgate.nodes
                     WHERE id = $1 AND epoch = $2 AND term_ends > now() AND suspended_at IS NULL
                     FOR SHARE";
        if tx.query_opt(alive, &[&self.node(), &self.epoch()]).await?.is_none() {
            return Ok(OpenOutcome::Refused);
        }
        // The task's row first: a try whose answer was lost finds it, and `settle_opening` excludes it.
        if !self.enter(tx, opening, None).await? {
            return self.found(tx, opening).await.map(|found| match found {
                CommitState::Done => OpenOutcome::Done,
                CommitState::Never => OpenOutcome::Refused,
            });
        }
        if !mark(tx, opening).await? {
            return Ok(OpenOutcome::Repeated);
        }
        let (account, amount) =
            (opening.task.intent.account.to_string(), opening.hold.amount.get());
        let moved = "UPDATE tollgate.accounts SET leased = leased - $2, held = held + $2
                     WHERE id = $1 AND leased >= $2";
        let taken = "UPDATE tollgate.leases SET amount = amount - $3
                     WHERE account = $1 AND node = $2 AND amount >= $3";
        // On the account and on the node's lease, or the money would be the node's and the task's at one
        // time.
        let is_covered = amount == 0
            || tx.execute(moved, &[&account, &amount]).await? == 1
                && tx.execute(taken, &[&account, &self.node(), &amount]).await? == 1;
        Ok(if is_covered { OpenOutcome::Done } else { OpenOutcome::Refused })
    }

    /// Inserts the row of a task, or with `never` a row that prevents its opening; returns false if there was
    /// one.
    async fn enter(
        &self,
        tx: &Transaction<'_>,
        opening: &Opening,
        never: Option<UnixMs>,
    ) -> Result<bool, DbError> {
        let Opening { task, hold, encoded, .. } = opening;
        let sql = "INSERT INTO tollgate.tasks (id, account, node, epoch, hold, held, stage,
                       is_announced, task, open_hold, submitted_at, ended_at, due_at)
                   VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
                   ON CONFLICT DO NOTHING";
        let (stage, held) = match never {
            None => (stage_of(task), hold.amount.get()),
            Some(_) => ("never", 0),
        };
        let due_at = never.is_none().then(|| at_ms(soon()));
        let entered = tx
            .execute(
                sql,
                &[
                    &task.id().to_string(),
                    &task.intent.account.to_string(),
                    &self.node(),
                    &self.epoch(),
                    &opening.hold_number()?,
                    &held,
                    &stage,
                    &task.intent.webhook_url.is_some(),
                    &encoded.0,
                    &encoded.1,
                    &at_ms(task.intent.at),
                    &never.map(at_ms),
                    &due_at,
                ],
            )
            .await?;
        Ok(entered == 1)
    }

    async fn found(&self, tx: &Transaction<'_>, opening: &Opening) -> Result<CommitState, DbError> {
        let sql = "SELECT stage FROM tollgate.tasks WHERE id = $1 AND hold = $2";
        let (id, hold) = (opening.task.id().to_string(), opening.hold_number()?);
        let row = tx.query_one(sql, &[&id, &hold]).await?;
        Ok(if row.try_get::<_, &str>(0)? == "never" {
            CommitState::Never
        } else {
            CommitState::Done
        })
    }

    /// Resolves an opening whose COMMIT was not answered. The row that says "never" waits for a transaction
    /// that may still be in progress, and excludes it.
    ///
    /// # Errors
    /// See [`DbError`]: ask again.
    pub async fn settle_opening(&self, opening: &Opening) -> Result<CommitState, DbError> {
        let settled = self.db().transact(move |tx| {
            Box::pin(async move {
                if self.enter(tx, opening, Some(UnixMs::now())).await? {
                    return Ok(CommitState::Never);
                }
                self.found(tx, opening).await
            })
        });
        settled.await
    }

    /// Filters the holds that are in the database with their tasks. For the start of a node, about the holds
    /// that its last process left open: once the node has joined, none of them can arrive any more.
    ///
    /// # Errors
    /// See [`DbError`].
    pub async fn with_holds(&self, holds: &[HoldId]) -> Result<HashSet<HoldId>, DbError> {
        let mut found = HashSet::new();
        for holds in holds.chunks(HOLDS_MAX) {
            let numbers: Vec<i64> = holds.iter().map(|hold| number(hold.number())).collect();
            let sql = "SELECT hold FROM tollgate.tasks WHERE hold = ANY($1) AND stage <> 'never'";
            for row in self.db().query(sql, &[&numbers]).await? {
                found.insert(HoldId::from_number(count(row.try_get(0)?)));
            }
        }
        Ok(found)
    }

    /// True if the node that took a task runs as another process now, so that nobody submits the task to its
    /// upstream.
    ///
    /// # Errors
    /// See [`DbError`].
    pub async fn is_orphaned(&self, task: &Task) -> Result<bool, DbError> {
        let sql = "SELECT 1 FROM tollgate.tasks t JOIN tollgate.nodes n ON n.id = t.node
                   WHERE t.id = $1 AND n.epoch = t.epoch AND n.term_ends > now()";
        Ok(self.db().query(sql, &[&task.id().to_string()]).await?.is_empty())
    }
}

/// Inserts the idempotency record of a submit, unless one with its key is in progress, in doubt, or was
/// answered within the time.
async fn mark(tx: &Transaction<'_>, opening: &Opening) -> Result<bool, DbError> {
    let intent = &opening.task.intent;
    let Some(repeat) = intent.repeat else { return Ok(true) };
    let (account, id) = (intent.account.to_string(), intent.id.to_string());
    let (key, body, at) = (&repeat.key[..], &repeat.body[..], at_ms(intent.at));
    let first = "INSERT INTO tollgate.submits (account, key, body, task, at)
                 VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
    if tx.execute(first, &[&account, &key, &body, &id, &at]).await? == 1 {
        return Ok(true);
    }
    // What becomes taken meanwhile changes `at` with it, which this sees once it has the row.
    let again = "UPDATE tollgate.submits s SET body = $3, task = $4, at = $5
                 WHERE account = $1 AND key = $2 AND at <= $6
                   AND NOT EXISTS (SELECT 1 FROM tollgate.tasks t WHERE t.id = s.task
                                   AND t.stage IN ('submitting', 'in_doubt'))";
    let old = before(intent.at, opening.repeat_within);
    Ok(tx.execute(again, &[&account, &key, &body, &id, &at, &old]).await? == 1)
}

/// The time by which another node looks after a task that this one says nothing more of.
pub(super) fn soon() -> UnixMs {
    UnixMs(UnixMs::now().0.saturating_add(SOON_MS))
}
