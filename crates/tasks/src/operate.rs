//! Operators' actions on single tasks: repeat an announcement, and resolve a submit in doubt.

use super::{Tasks, given_up};
use tollgate_ledger::{
    AccountId, ActorScope, LedgerError, Settlement, Task, TaskId, TaskSettlement, Webhook,
};
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Usage, UsageSource};
use tollgate_protocols::task::{TaskError, TaskState};
use tollgate_types::clock::UnixMs;

/// Result of a request to announce a task's end again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReannounceOutcome {
    /// The announcement is scheduled.
    Due,
    /// The task has not ended.
    NotEnded,
    /// The task has no webhook URL.
    Nowhere,
    /// The task does not exist.
    Unknown,
}

/// Operator's decision on a task whose submit is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The customer pays nothing.
    Void,
    /// The customer pays this; above zero, and within the hold.
    Charge(Nanousd),
}

impl Tasks {
    /// Announce the end of a task once more, whatever the result of earlier deliveries.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn announce_again(
        &self,
        by: &ActorScope<'_>,
        account: AccountId,
        id: TaskId,
    ) -> Result<ReannounceOutcome, LedgerError> {
        let Some(task) = self.ledger.task(account, &id.to_string()).await? else {
            return Ok(ReannounceOutcome::Unknown);
        };
        if task.ended().is_none() {
            return Ok(ReannounceOutcome::NotEnded);
        }
        if task.intent.webhook_url.is_none() {
            return Ok(ReannounceOutcome::Nowhere);
        }
        let due = Webhook::Due { tries: 0, at: UnixMs::now() };
        by.announce_again(Task { webhook: due, ..Task::clone(&task) }).await?;
        self.agenda.schedule(&task, UnixMs::now()).await;
        Ok(ReannounceOutcome::Due)
    }

    /// End a task whose submit is in doubt. Returns true if the same request did so before.
    ///
    /// # Errors
    /// [`LedgerError::NoDoubt`], [`LedgerError::Invalid`], [`LedgerError::OtherRequest`] and
    /// [`LedgerError::Stopped`].
    pub async fn resolve(
        &self,
        by: &ActorScope<'_>,
        (account, id): (AccountId, TaskId),
        resolution: Resolution,
    ) -> Result<bool, LedgerError> {
        let (charge, message) = match resolution {
            Resolution::Void => {
                (None, "It is not known whether the upstream took the task. Nothing was charged.")
            }
            Resolution::Charge(amount) => {
                (Some(amount), "The upstream took the task, but its result was lost.")
            }
        };
        let task = self.ledger.task(account, &id.to_string()).await?;
        let error = TaskError { code: "InternalError", message };
        let document = task.map(|task| given_up(&task, "", &error)).unwrap_or_default();
        let end = (TaskState::Failed.as_str(), document);
        let task = by.resolve_task((account, id), end, charge).await?;
        let repeated = task.is_none();
        if let Some(task) = task {
            let settlement = charge.map_or(TaskSettlement::Void, |charge| {
                let (usage, source) = (Usage::ZERO, UsageSource::Estimated);
                TaskSettlement::Post(Settlement { charge, usage, source })
            });
            self.finish(&task, TaskState::Failed, settlement).await;
        }
        Ok(repeated)
    }
}
