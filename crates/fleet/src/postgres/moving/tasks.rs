//! Tasks of a ledger that moves into the database or out of it.

use std::sync::Arc;

use super::super::columns::{encoded, number};
use super::super::tasks::stage_of;
use super::super::{Db, DbError, Transaction};
use super::ROWS_MAX;
use tollgate_ledger::moving::{MovedSubmit, MovedTask};
use tollgate_ledger::{AccountId, OpenHold, RequestId, Reservation, Task, Webhook};
use tollgate_money::money::Nanousd;

/// Writes tasks, and what marks their repetitions.
pub(super) async fn put(
    tx: &Transaction<'_>,
    tasks: &[&MovedTask],
    submits: &[MovedSubmit],
) -> Result<(), DbError> {
    for moved in tasks {
        put_task(tx, moved).await?;
    }
    let sql = "INSERT INTO tollgate.submits (account, key, body, task, at)
        SELECT * FROM unnest($1::text[], $2::bytea[], $3::bytea[], $4::text[], $5::bigint[])";
    for submits in submits.chunks(ROWS_MAX) {
        let accounts: Vec<String> = submits.iter().map(|submit| submit.0.to_string()).collect();
        let keys: Vec<&[u8]> = submits.iter().map(|submit| &submit.1[..]).collect();
        let bodies: Vec<&[u8]> = submits.iter().map(|submit| &submit.2[..]).collect();
        let ids: Vec<String> = submits.iter().map(|submit| submit.3.to_string()).collect();
        let at: Vec<i64> = submits.iter().map(|submit| number(submit.4.0)).collect();
        tx.execute(sql, &[&accounts, &keys, &bodies, &ids, &at]).await?;
    }
    Ok(())
}

/// Writes a task without a node: the first node that finds it due takes it.
async fn put_task(tx: &Transaction<'_>, moved: &MovedTask) -> Result<(), DbError> {
    let task = &*moved.task;
    let hold = moved.hold.clone().unwrap_or_else(|| paid(task));
    let (ended, at) = (task.ended(), task.intent.at);
    let due_at = match (ended, task.webhook) {
        (None, _) => Some(at),
        (Some(_), Webhook::Due { at, .. }) => Some(at),
        (Some(_), _) => None,
    };
    let held = if ended.is_some() { Nanousd::ZERO } else { hold.amount };
    let sql = "INSERT INTO tollgate.tasks (id, account, native_id, node, epoch, hold, held, stage,
            state, is_announced, task, open_hold, tried, submitted_at, ended_at, due_at)
        VALUES ($1, $2, $3, 0, 0, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)";
    let tried = moved.tried.as_ref().map(encoded).transpose()?;
    let params: [super::super::Param<'_>; 14] = [
        &task.id().to_string(),
        &task.intent.account.to_string(),
        &task.upstream_id(),
        &number(task.intent.hold.number()),
        &held.get(),
        &stage_of(task),
        &ended.map(|ended| ended.state.as_str()),
        &task.intent.webhook_url.is_some(),
        &encoded(task)?,
        &encoded(&hold)?,
        &tried,
        &number(at.0),
        &ended.map(|ended| number(ended.at.0)),
        &due_at.map(|at| number(at.0)),
    ];
    tx.execute(sql, &params).await?;
    Ok(())
}

/// The hold that paid for a finished task, for a journal without it.
fn paid(task: &Task) -> OpenHold {
    let amount = task.ended().map_or(Nanousd::ZERO, |ended| ended.charged);
    let reservation = Reservation {
        account: task.intent.account,
        key: task.intent.key,
        model: Arc::clone(&task.intent.model),
        price: None,
        request: RequestId::from_number(0),
        amount,
        floor: Nanousd::ZERO,
        at: task.intent.at,
    };
    OpenHold { reservation: Arc::new(reservation), amount }
}

impl Db {
    /// The tasks of an account, oldest first.
    pub(crate) async fn tasks_out(&self, account: AccountId) -> Result<Vec<MovedTask>, DbError> {
        let sql = "SELECT task, open_hold, tried FROM tollgate.tasks
                   WHERE account = $1 AND stage <> 'never' ORDER BY submitted_at, id";
        let unreadable = |error| DbError::Failed(format!("a task cannot be read: {error}"));
        let mut tasks = Vec::new();
        for row in self.query(sql, &[&account.to_string()]).await? {
            let tried: Option<&[u8]> = row.try_get(2)?;
            tasks.push(MovedTask {
                task: postcard::from_bytes(row.try_get(0)?).map_err(unreadable)?,
                hold: Some(postcard::from_bytes(row.try_get(1)?).map_err(unreadable)?),
                tried: tried.map(postcard::from_bytes).transpose().map_err(unreadable)?,
            });
        }
        Ok(tasks)
    }
}
