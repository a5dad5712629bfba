//! What operators do with single tasks: announce an end again, and end what is in doubt.

use super::{Tasks, given_up};
use crate::clock::UnixMs;
use crate::ledger::{
    AccountId, ActorScope, LedgerError, Settlement, Task, TaskId, TaskSettlement, Webhook,
};
use crate::money::Nanousd;
use crate::price::{Usage, UsageSource};
use crate::protocols::task::{Error, TaskState};

/// What becomes of a wish to announce a task's end again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// It is due now.
    Due,
    /// There is no end to announce.
    NotEnded,
    /// There is nobody to announce it to.
    Nowhere,
    /// There is no such task.
    Unknown,
}

/// How an operator ends a task whose submit is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The customer pays nothing.
    Void,
    /// The customer pays this; above zero, and within the hold.
    Charge(Nanousd),
}

impl Tasks {
    /// Announces the end of a task once more, whatever became of it before.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn announce_again(
        &self,
        by: &ActorScope<'_>,
        account: AccountId,
        id: TaskId,
    ) -> Result<Announced, LedgerError> {
        let Some(task) = self.ledger.task(account, &id.to_string()).await? else {
            return Ok(Announced::Unknown);
        };
        if task.ended().is_none() {
            return Ok(Announced::NotEnded);
        }
        if task.intent.webhook_url.is_none() {
            return Ok(Announced::Nowhere);
        }
        let due = Webhook::Due { tries: 0, at: UnixMs::now() };
        by.announce_again(Task { webhook: due, ..Task::clone(&task) }).await?;
        self.agenda.schedule(&task, UnixMs::now()).await;
        Ok(Announced::Due)
    }

    /// Ends a task whose submit is in doubt. Says whether the same request did it before.
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
        let known = self.ledger.task(account, &id.to_string()).await?;
        let error = Error { code: "InternalError", message };
        let document = known.map(|task| given_up(&task, "", &error)).unwrap_or_default();
        let end = (TaskState::Failed.as_str(), document);
        let task = by.resolve_task((account, id), end, charge).await?;
        let repeated = task.is_none();
        if let Some(task) = task {
            let settlement = charge.map_or(TaskSettlement::Void, |charge| {
                let (usage, source) = (Usage::ZERO, UsageSource::Estimated);
                TaskSettlement::Post(Settlement { charge, usage, source })
            });
            self.has_ended(&task, TaskState::Failed, settlement).await;
        }
        Ok(repeated)
    }
}
