//! Statements of accounts, for people and for the API: read from sled, or from the database of a
//! fleet.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use crate::memory::Ledger;
use crate::memory::books::StatementLines;
use crate::projection::store::{Store, StoreError};
use crate::records::error::LedgerError;
use crate::records::hold_end::{Charge, VoidReason};
use crate::records::record::{JournaledRecord, Record, SuspenseEnd};
use crate::records::reservation::OpenHold;
use tollgate_money::money::Nanousd;
use tollgate_money::price::{PriceVersion, Usage, UsageSource};
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId, KeyId, RequestId, Seq};

/// Maximum number of entries of one query.
const ENTRIES_MAX: usize = 1000;

/// One line of an account's statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StatementEntry {
    /// Its place in the journal, or in a fleet's statement: what the next page is asked for with.
    pub seq: Seq,
    /// Time of the event.
    pub at: UnixMs,
    /// Call of the entry.
    pub call: Option<StatementCall>,
    /// Event that the entry records.
    #[serde(flatten)]
    pub kind: EntryKind,
}

/// The call that an entry belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StatementCall {
    /// The hold that pays for it.
    pub hold: HoldId,
    /// Id of the request.
    pub request: RequestId,
    /// Key of the call.
    pub key: KeyId,
    /// The public id of the model.
    pub model: Arc<str>,
    /// The version of the price that it was charged by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<PriceVersion>,
    /// Amount of the hold at this entry, extensions included.
    pub held: Nanousd,
}

/// Kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EntryKind {
    /// An operator added credit.
    Grant {
        /// Id chosen by the caller.
        id: String,
        /// Amount of money that moved.
        amount: Nanousd,
    },
    /// Money is held for a call in flight. The entry of its end replaces this one.
    Hold,
    /// A call was charged.
    Settlement {
        /// Amount paid by the customer.
        charged: Nanousd,
        /// Debt: the part that the account could not pay.
        owed: Nanousd,
        /// Amount borne by the operator.
        written_off: Nanousd,
        /// Usage of the call, by unit.
        usage: Usage,
        /// Source of the usage figures.
        usage_source: UsageSource,
    },
    /// A call was not charged.
    Void {
        /// Reason why the call was not charged.
        reason: VoidReason,
    },
    /// An operator refunded a call.
    Refund {
        /// Id chosen by the caller.
        id: String,
        /// Hold whose charge is refunded.
        hold: HoldId,
        /// Amount of money that moved.
        amount: Nanousd,
    },
    /// Money that became available paid a debt, wholly or in part.
    DebtPayment {
        /// Amount of money that moved.
        amount: Nanousd,
    },
    /// The credit line of the account was set.
    CreditLine {
        /// The new credit line.
        limit: Nanousd,
        /// Amount that was lent in addition.
        lent: Nanousd,
        /// Amount withdrawn from the available money.
        withdrawn: Nanousd,
        /// Amount withdrawn after it had been spent, now owed.
        owed: Nanousd,
    },
    /// An operator wrote off a debt, wholly or in part.
    WriteOff {
        /// Id chosen by the caller.
        id: String,
        /// Amount of money that moved.
        amount: Nanousd,
        /// Reason for the write-off, chosen by the operator.
        note: String,
    },
    /// A crash interrupted a call whose cost is unknown.
    InDoubt {
        /// Amount paid by the customer under the recovery policy.
        charged: Nanousd,
    },
    /// A fleet node fell silent, and an operator counted its leases as spent.
    SuspenseCharged {
        /// Node that had the lease.
        node: u16,
        /// Amount of money that moved.
        amount: Nanousd,
    },
    /// The node came back. The charge for its silence is returned, and its calls are charged instead. Costs
    /// beyond money that was released and spent meanwhile are also returned, at the operator's expense.
    SuspenseReturned {
        /// Node that had the lease.
        node: u16,
        /// Amount of money that moved.
        amount: Nanousd,
    },
}

/// A call that was in flight when the process died.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InDoubt {
    /// Account of the call.
    pub account: AccountId,
    /// The call whose outcome is unknown.
    pub call: StatementCall,
    /// Time of the hold.
    pub reserved_at: UnixMs,
    /// Time at which the hold was ended, at the start after the crash.
    pub resolved_at: UnixMs,
    /// Amount paid by the customer under the recovery policy.
    pub charged: Nanousd,
}

impl Ledger {
    /// At most `limit` (and at most 1,000) entries of an account before `before`, newest first. Includes
    /// everything that happened before this query. Open holds are listed; the entry of a hold's end contains
    /// the amount of the hold.
    ///
    /// In a fleet these are the entries of all nodes, in the order in which they were reported: within
    /// a second, unless a node is cut off. Holds that are open, of which only their own nodes know, are
    /// not listed there.
    ///
    /// # Errors
    /// [`LedgerError::UnknownAccount`], [`LedgerError::Store`] and [`LedgerError::Stopped`]; in a fleet
    /// [`LedgerError::Unavailable`].
    pub async fn entries(
        &self,
        account: AccountId,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Vec<StatementEntry>, LedgerError> {
        self.account(account).ok_or(LedgerError::UnknownAccount(account))?;
        let limit = limit.min(ENTRIES_MAX);
        let before = before.unwrap_or(Seq::MAX);
        let StatementLines { open, ended } = self.books.lines(self, account, before, limit).await?;
        let open = open.into_iter().map(|(id, hold)| open_entry(id, &hold));
        let mut entries: Vec<_> = ended.into_iter().filter_map(entry).collect();
        // A hold may have ended since it was found open.
        let has_ended = |hold: &StatementEntry| entries.iter().any(|entry| entry.ends(hold));
        let open: Vec<_> = open.filter(|hold| !has_ended(hold)).collect();
        entries.extend(open);
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.seq));
        entries.truncate(limit);
        Ok(entries)
    }

    /// The holds of an account that are open here, of those from before `before`.
    pub(crate) fn open_holds_of(&self, account: AccountId, before: Seq) -> Vec<(HoldId, OpenHold)> {
        let core = self.shard(account).lock();
        core.holds()
            .filter(|(id, hold)| hold.reservation.account == account && id.number() < before)
            .map(|(id, hold)| (id, hold.clone()))
            .collect()
    }

    /// The calls that were in flight in crashes, of any node, oldest first.
    ///
    /// # Errors
    /// [`LedgerError::Store`] and [`LedgerError::Stopped`]; in a fleet [`LedgerError::Unavailable`].
    pub async fn in_doubt(&self) -> Result<Vec<InDoubt>, LedgerError> {
        let found = self.books.in_doubt(self).await?;
        Ok(found.iter().filter_map(in_doubt).collect())
    }

    /// Asks sled, off the async threads, once it has everything that was recorded before the call.
    pub(crate) async fn query<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let seq = self.journal.last_seq();
        self.journal.durable(seq).await?;
        self.backlog.applied(seq).await?;
        self.ask(ask).await
    }

    /// Queries sled in its current state, outside the async threads.
    pub(crate) async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, LedgerError> {
        let projected = Arc::clone(&self.projected);
        let answer = tokio::task::spawn_blocking(move || projected.ask(ask)).await;
        let answer = answer.unwrap_or_else(|error| Err(LedgerError::Store(error.to_string())));
        if let Err(LedgerError::Store(_)) = answer {
            self.backlog.suspect();
        }
        answer
    }
}

impl StatementEntry {
    /// True if this entry ends `hold`.
    fn ends(&self, hold: &Self) -> bool {
        let id = |entry: &Self| entry.call.as_ref().map(|call| call.hold);
        self.seq != hold.seq && id(self) == id(hold)
    }
}

fn open_entry(id: HoldId, hold: &OpenHold) -> StatementEntry {
    let (at, call) = (hold.reservation.at, Some(call_of(id, hold)));
    StatementEntry { seq: id.number(), at, call, kind: EntryKind::Hold }
}

pub(crate) fn entry(journaled: JournaledRecord) -> Option<StatementEntry> {
    let JournaledRecord { seq, record, hold } = journaled;
    let at = record.at();
    let call = record.open_hold().zip(hold.as_ref()).map(|(id, hold)| call_of(id, hold));
    if let Some(Charge { charged, owed, written_off, usage, source }) = record.charge() {
        let kind =
            EntryKind::Settlement { charged, owed, written_off, usage, usage_source: source };
        return Some(StatementEntry { seq, at, call, kind });
    }
    let kind = match record {
        Record::Central(record) => {
            return entry(JournaledRecord { seq, record: (*record).clone(), hold });
        }
        Record::Granted { id, amount, .. } => EntryKind::Grant { id, amount },
        Record::Refunded { id, hold, amount, .. } => EntryKind::Refund { id, hold, amount },
        Record::DebtPaid { amount, .. } => EntryKind::DebtPayment { amount },
        Record::WrittenOff { id, amount, note, .. } => EntryKind::WriteOff { id, amount, note },
        Record::CreditSet { limit, lent, withdrawn, owed, .. } => {
            EntryKind::CreditLine { limit, lent, withdrawn, owed }
        }
        Record::Voided { reason, .. } => EntryKind::Void { reason },
        Record::Recovered { charged, .. } => EntryKind::InDoubt { charged },
        // What a statement says of suspense is what was charged, and what was given back of it.
        Record::SuspenseResolved { node, amount, end, .. } => {
            let node = node.number();
            match end {
                SuspenseEnd::Charge => EntryKind::SuspenseCharged { node, amount },
                SuspenseEnd::Release => EntryKind::SuspenseReturned { node, amount },
            }
        }
        _ => return None,
    };
    Some(StatementEntry { seq, at, call, kind })
}

pub(crate) fn call_of(id: HoldId, hold: &OpenHold) -> StatementCall {
    StatementCall {
        hold: id,
        request: hold.reservation.request,
        key: hold.reservation.key,
        model: Arc::clone(&hold.reservation.model),
        price: hold.reservation.price,
        held: hold.amount,
    }
}

/// Call in doubt of a [`Record::Recovered`].
pub(crate) fn in_doubt(journaled: &JournaledRecord) -> Option<InDoubt> {
    let hold = journaled.hold.as_ref()?;
    let Record::Recovered { hold: id, charged, at, .. } = &journaled.record else { return None };
    Some(InDoubt {
        account: hold.reservation.account,
        call: call_of(*id, hold),
        reserved_at: hold.reservation.at,
        resolved_at: *at,
        charged: *charged,
    })
}
