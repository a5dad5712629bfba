//! Resolution of doubts: calls that a crash left open, and submits without a known outcome.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::sync::Arc;

use crate::memory::act::{ActorScope, WriteOutcome};
use crate::records::error::LedgerError;
use crate::records::record::Record;
use crate::records::task::Task;
use crate::rules::core::Decision;
use crate::rules::text::{check_note, check_text};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId, TaskId};

/// A refund that goes with a resolved doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoubtRefund {
    /// The caller's id of the refund.
    pub id: String,
    /// Amount; above zero, and within the hold's charge.
    pub amount: Nanousd,
}

impl ActorScope<'_> {
    /// Removes a call that a crash interrupted from the list of calls in doubt, optionally with a refund. The
    /// statement keeps both. Returns true if the same request was made before.
    ///
    /// # Errors
    /// [`LedgerError::NotInDoubt`], and what [`ActorScope::refund`] fails with.
    pub async fn resolve_doubt(
        &self,
        (account, hold): (AccountId, HoldId),
        note: &str,
        refund: Option<DoubtRefund>,
    ) -> Result<WriteOutcome<()>, LedgerError> {
        check_note(note)?;
        refund.as_ref().map_or(Ok(()), |refund| check_text(&refund.id))?;
        let charged = match refund {
            Some(_) => self.ledger.charged(account, hold).await?,
            None => None,
        };
        let once = self.write("doubt.resolve", account, |locked, audit| {
            let core = locked.core(account);
            if !core.may_be_in_doubt(account, hold) {
                return Err(LedgerError::NotInDoubt(hold));
            }
            let at = UnixMs::now();
            let given = refund.as_ref().map(|refund| {
                let charged = charged.ok_or(LedgerError::UnknownHold(hold))?;
                core.decide_refund((account, &refund.id), (hold, charged), refund.amount, at)
            });
            let given = match given.transpose()? {
                Some(Decision::New(record)) => Some(record),
                Some(Decision::Repeated(_)) | None => None,
            };
            let resolved = Record::DoubtResolved { account, hold, note: note.to_owned(), at };
            let records = [Some(resolved), given, Some(audit.act(account, hold))];
            Ok(((), records.into_iter().flatten().collect()))
        });
        let (_, repeated) = once.await?.place();
        Ok(WriteOutcome { value: (), repeated })
    }

    /// Ends a task whose submit is in doubt, and its hold: with this state and document, and a charge of at
    /// most the hold or none. Returns the task, unless the same request has ended it before. Durable on
    /// return.
    ///
    /// # Errors
    /// [`LedgerError::NoDoubt`], [`LedgerError::Invalid`] for a charge that is not above zero or
    /// beyond the hold, [`LedgerError::OtherRequest`], [`LedgerError::Stopped`] and, in a fleet,
    /// [`LedgerError::Unavailable`].
    pub async fn resolve_task(
        &self,
        id: (AccountId, TaskId),
        end: (&str, String),
        charge: Option<Nanousd>,
    ) -> Result<Option<Arc<Task>>, LedgerError> {
        self.ledger.tasks.resolve(self, id, end, charge).await
    }

    /// Reopens a finished task to send its webhook again. Durable on return.
    ///
    /// # Errors
    /// [`LedgerError::OtherRequest`], [`LedgerError::Invalid`] and [`LedgerError::Stopped`].
    pub async fn announce_again(&self, task: Task) -> Result<(), LedgerError> {
        self.ledger.tasks.announce_again(self, task).await
    }
}
