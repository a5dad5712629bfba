//! Changes of a task: its row is locked, read and written in one transaction, and its end settles its money.
//! A second caller finds it changed.

use std::sync::Arc;

use super::open::soon;
use super::{SharedTasks, count_from, decode, stage_of};
use crate::postgres::columns::{at_ms, encoded};
use crate::postgres::history::put_history;
use crate::postgres::{DbError, Transaction, debts};
use tollgate_ledger::{
    AccountId, Charge, DeliveryAttempt, FleetHistory, OpenTask, Task, TaskEnding, TaskId,
    TaskPhase, Webhook, is_unanswered,
};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;

impl SharedTasks {
    /// Changes a task, and notes the last try to announce its end; `None` when it cannot become so. A
    /// change that an earlier try of the same made counts as made.
    ///
    /// # Errors
    /// See [`DbError`].
    pub async fn change(
        &self,
        account: AccountId,
        id: TaskId,
        change: &(dyn Fn(&Task) -> Task + Send + Sync),
        tried: Option<&DeliveryAttempt>,
    ) -> Result<Option<Arc<Task>>, DbError> {
        let tried = tried.map(encoded).transpose()?;
        let (account, id, tried) = (&account.to_string(), &id.to_string(), &tried);
        let changed = self.db().transact(move |tx| {
            Box::pin(async move {
                let sql = "SELECT task FROM tollgate.tasks
                           WHERE id = $1 AND account = $2 AND stage <> 'never' FOR UPDATE";
                let Some(row) = tx.query_opt(sql, &[id, account]).await? else { return Ok(None) };
                let before: Task = decode(row.try_get(0)?)?;
                let after = change(&before);
                // An earlier try of this change was done, and its answer lost.
                if before == after && tried.is_none() {
                    return Ok(Some(Arc::new(after)));
                }
                if !before.can_become(&after) {
                    return Ok(None);
                }
                write(tx, &after, tried.as_deref()).await?;
                if is_unanswered(&before) && matches!(after.stage, TaskPhase::Submitted { .. }) {
                    count_from(tx, &after, UnixMs::now()).await?;
                }
                Ok(Some(Arc::new(after)))
            })
        });
        changed.await
    }

    /// Ends a task and settles its hold as `decide` returns; `None` if it has already ended. An error of
    /// `decide` is returned and changes nothing.
    ///
    /// # Errors
    /// See [`DbError`].
    pub async fn end<E: Send>(
        &self,
        account: AccountId,
        id: TaskId,
        decide: &(dyn Fn(&OpenTask) -> Result<TaskEnding, E> + Send + Sync),
    ) -> Result<Result<Option<Arc<Task>>, E>, DbError> {
        let (account, id) = (&account.to_string(), &id.to_string());
        let ended = self.db().transact(move |tx| {
            Box::pin(async move {
                let Some(open) = lock(tx, account, id).await? else {
                    return Ok(Ok(None));
                };
                // Decided under the locks of both rows: of two callers the second finds the task ended.
                let ending = match decide(&open) {
                    Ok(ending) => ending,
                    Err(refused) => return Ok(Err(refused)),
                };
                // The line of the call stands before that of a debt which it pays.
                put_history(tx, &history_of(&ending)?).await?;
                settle(tx, &open, &ending).await?;
                write(tx, &ending.task, None).await?;
                forget_refused(tx, &ending.task).await?;
                Ok(Ok(Some(Arc::new(ending.task))))
            })
        });
        ended.await
    }
}

/// A task that has not ended, locked together with its account.
async fn lock(
    tx: &Transaction<'_>,
    account: &String,
    id: &String,
) -> Result<Option<OpenTask>, DbError> {
    let sql = "SELECT task, open_hold FROM tollgate.tasks
               WHERE id = $1 AND account = $2 AND stage NOT IN ('ended', 'never') FOR UPDATE";
    // The task, then its account: rows are locked in this order everywhere.
    let Some(row) = tx.query_opt(sql, &[id, account]).await? else { return Ok(None) };
    let sql = "SELECT available, debt FROM tollgate.accounts WHERE id = $1 FOR UPDATE";
    let funds = tx.query_one(sql, &[account]).await?;
    Ok(Some(OpenTask {
        task: Arc::new(decode(row.try_get(0)?)?),
        hold: decode(row.try_get(1)?)?,
        available: Nanousd::new(funds.try_get(0)?),
        debt: Nanousd::new(funds.try_get(1)?),
    }))
}

/// Moves the money of a task's hold according to its end.
async fn settle(tx: &Transaction<'_>, open: &OpenTask, ending: &TaskEnding) -> Result<(), DbError> {
    let charge = ending.journaled.record.charge();
    let amount = |of: fn(Charge) -> Nanousd| charge.map(of).unwrap_or_default().get();
    let account = open.task.intent.account.to_string();
    let sql = "UPDATE tollgate.accounts
               SET held = held - $2, spent = spent + $3, available = available + $2 - $3,
                   debt = debt + $4
               WHERE id = $1";
    let params =
        (open.hold.amount.get(), amount(|charge| charge.charged), amount(|charge| charge.owed));
    tx.execute(sql, &[&account, &params.0, &params.1, &params.2]).await?;
    debts::pay(tx, open.task.intent.account).await
}

/// Writes a task as it is now. Who looked after it does so no longer.
async fn write(tx: &Transaction<'_>, task: &Task, tried: Option<&[u8]>) -> Result<(), DbError> {
    let sql = "UPDATE tollgate.tasks
               SET stage = $2, native_id = $3, state = $4, task = $5, ended_at = $6, due_at = $7,
                   tried = COALESCE($8, tried), held = CASE WHEN $2 = 'ended' THEN 0 ELSE held END,
                   holder = NULL, held_until = NULL
               WHERE id = $1";
    let due_at = match (task.ended(), task.webhook) {
        (None, _) => Some(soon()),
        (Some(_), Webhook::Due { at, .. }) => Some(at),
        (Some(_), _) => None,
    };
    let ended = task.ended();
    tx.execute(
        sql,
        &[
            &task.id().to_string(),
            &stage_of(task),
            &task.upstream_id(),
            &ended.map(|ended| ended.state.as_str()),
            &encoded(task)?,
            &ended.map(|ended| at_ms(ended.at)),
            &due_at.map(at_ms),
            &tried,
        ],
    )
    .await?;
    Ok(())
}

/// A submit that no upstream took can be tried again under the same name.
async fn forget_refused(tx: &Transaction<'_>, task: &Task) -> Result<(), DbError> {
    let Some(repeat) = task.intent.repeat.filter(|_| task.upstream_id().is_none()) else {
        return Ok(());
    };
    let sql = "DELETE FROM tollgate.submits WHERE account = $1 AND key = $2 AND task = $3";
    let (account, key) = (task.intent.account.to_string(), &repeat.key[..]);
    tx.execute(sql, &[&account, &key, &task.id().to_string()]).await?;
    Ok(())
}

/// The line of the statement, and what was used.
fn history_of(ending: &TaskEnding) -> Result<FleetHistory, DbError> {
    FleetHistory::of_record(ending.journaled.clone())
        .map_err(|violation| DbError::Failed(violation.to_string()))
}
