//! Double entry: what each record enters into the books of the operator.
//!
//! It is written beside the rules that move balances, and uses nothing of them: `reading::verify`
//! compares both, so an error in either shows.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::sync::Arc;

use crate::records::cost::{CallCost, CostKind};
use crate::records::loss::LossRecord;
use crate::records::record::Record;
use tollgate_money::money::Nanousd;

/// A book account. An asset or an expense has its balance on the debit side, what is owed to others
/// and income on the credit side.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BookAccount {
    /// Grants to customers: payments received, or credit granted by the operator.
    Cash,
    /// Loans from a fleet's treasury to this node, less returns.
    Treasury,
    /// Credit lines: money lent to customers, drawn or not.
    CreditLines,
    /// Customers' debts for settled calls.
    Receivable,
    /// Customers' available money.
    Available,
    /// Money in open holds.
    Held,
    /// Charges of calls, debts included, less refunds.
    Revenue,
    /// Cost of calls beyond all that their customers had, and never claimed.
    Unclaimed,
    /// Amount that the operator has given up or never claimed.
    WrittenOff,
    /// Cost of upstreams by kind.
    UpstreamCost {
        /// Kind of cost to the operator.
        kind: CostKind,
    },
    /// Liability to an upstream for a credential's use.
    Payable {
        /// Upstream that was called.
        upstream: Arc<str>,
        /// Name of the credential; empty if the upstream has only one.
        credential: Arc<str>,
    },
    /// Upper bound of call costs that no customer pays. A memorandum account: nobody has billed them.
    ExpectedLoss {
        /// Name of the cause.
        cause: String,
    },
    /// The other side of expected losses: what upstreams may bill.
    ContingentLiability {
        /// Name of the cause.
        cause: String,
    },
}

/// One side of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posting {
    /// Account of the posting.
    pub account: BookAccount,
    /// Amount in nano-dollars: a debit above zero, a credit below.
    pub amount: i128,
}

/// Postings of `record`; `held` is the amount of the hold that it ends. Zero postings are omitted.
#[must_use]
pub fn postings(record: &Record, held: Nanousd) -> Vec<Posting> {
    let mut entry = JournalEntry(Vec::new());
    match record {
        Record::Granted { amount, .. } => {
            entry.transfer(BookAccount::Cash, BookAccount::Available, *amount);
        }
        Record::Leased { amount, .. } => {
            entry.transfer(BookAccount::Treasury, BookAccount::Available, *amount);
        }
        Record::Returned { amount, .. } => {
            entry.transfer(BookAccount::Available, BookAccount::Treasury, *amount);
        }
        Record::HandedOver { .. } => {
            entry.transfer(BookAccount::Held, BookAccount::Treasury, held);
        }
        Record::Refunded { amount, .. } => {
            entry.transfer(BookAccount::Revenue, BookAccount::Available, *amount);
        }
        Record::Reserved(reservation) => {
            entry.transfer(BookAccount::Available, BookAccount::Held, reservation.amount);
        }
        Record::Extended { amount, .. } => {
            entry.transfer(BookAccount::Available, BookAccount::Held, *amount);
        }
        Record::Posted { charged, written_off, .. } => {
            entry.settle(held, *charged, Nanousd::ZERO, *written_off);
        }
        Record::PostedOwing { charged, owed, written_off, .. } => {
            entry.settle(held, *charged, *owed, *written_off);
        }
        Record::Recovered { charged, .. } => {
            entry.settle(held, *charged, Nanousd::ZERO, Nanousd::ZERO);
        }
        Record::Voided { .. } => {
            entry.transfer(BookAccount::Held, BookAccount::Available, held);
        }
        Record::DebtPaid { amount, .. } => {
            entry.transfer(BookAccount::Available, BookAccount::Receivable, *amount);
        }
        Record::WrittenOff { amount, .. } => {
            entry.transfer(BookAccount::WrittenOff, BookAccount::Receivable, *amount);
        }
        Record::CreditSet { lent, withdrawn, owed, .. } => entry.lend(*lent, *withdrawn, *owed),
        Record::Costed(costed) => entry.cost(costed),
        Record::Lost(lost) => entry.lose(lost),
        // What was given elsewhere in a fleet stands in the books there.
        Record::Central(_) | Record::SuspenseResolved { .. } | Record::Followed { .. } => {}
        // No money.
        Record::AccountCreated { .. }
        | Record::KeyCreated(_)
        | Record::KeyUpdated(_)
        | Record::Task(_)
        | Record::KeyLimited { .. }
        | Record::AccountLimited { .. }
        | Record::Acted(_)
        | Record::AccountRenamed { .. }
        | Record::AccountSuspended { .. }
        | Record::LoginSet(_)
        | Record::SessionEnded { .. }
        | Record::CodeCreated(_)
        | Record::CodeRevoked { .. }
        | Record::CodeUsed { .. }
        | Record::DoubtResolved { .. }
        | Record::Announced { .. }
        | Record::AccountPriced { .. }
        | Record::AccountHolds { .. }
        | Record::GroupPriced(_)
        | Record::PriceNoted(_)
        | Record::Checkpointed(_) => {}
    }
    entry.0
}

/// The postings of one record.
struct JournalEntry(Vec<Posting>);

impl JournalEntry {
    fn debit(&mut self, account: BookAccount, amount: Nanousd) {
        self.post(account, i128::from(amount.get()));
    }

    fn credit(&mut self, account: BookAccount, amount: Nanousd) {
        // An amount has 64 bits.
        self.post(account, i128::from(amount.get()).saturating_neg());
    }

    fn post(&mut self, account: BookAccount, amount: i128) {
        if amount != 0 {
            self.0.push(Posting { account, amount });
        }
    }

    fn transfer(&mut self, debit: BookAccount, credit: BookAccount, amount: Nanousd) {
        self.debit(debit, amount);
        self.credit(credit, amount);
    }

    /// Ends a hold: charge and debt are revenue, the rest of the hold becomes available.
    fn settle(&mut self, held: Nanousd, charged: Nanousd, owed: Nanousd, written_off: Nanousd) {
        let released = i128::from(held.get()).saturating_sub(i128::from(charged.get()));
        self.debit(BookAccount::Held, held);
        self.post(BookAccount::Available, released.saturating_neg());
        self.credit(BookAccount::Revenue, charged);
        self.transfer(BookAccount::Receivable, BookAccount::Revenue, owed);
        self.transfer(BookAccount::WrittenOff, BookAccount::Unclaimed, written_off);
    }

    /// Raises or lowers a credit line.
    fn lend(&mut self, lent: Nanousd, withdrawn: Nanousd, owed: Nanousd) {
        self.transfer(BookAccount::CreditLines, BookAccount::Available, lent);
        self.transfer(BookAccount::Available, BookAccount::CreditLines, withdrawn);
        self.transfer(BookAccount::Receivable, BookAccount::CreditLines, owed);
    }

    fn cost(&mut self, costed: &CallCost) {
        let payable = BookAccount::Payable {
            upstream: Arc::clone(&costed.upstream),
            credential: Arc::clone(&costed.credential),
        };
        self.transfer(BookAccount::UpstreamCost { kind: costed.kind }, payable, costed.cost);
    }

    fn lose(&mut self, lost: &LossRecord) {
        let expected = BookAccount::ExpectedLoss { cause: lost.cause.clone() };
        let contingent = BookAccount::ContingentLiability { cause: lost.cause.clone() };
        self.transfer(expected, contingent, lost.amount);
    }
}

#[cfg(test)]
mod tests;
