//! The rules of money as a pure state machine: no I/O, no clock, no randomness.
//!
//! `decide_…`, in `decide`, looks at the state and gives the record of what may happen, or why it
//! may not; [`Core::apply`] makes it so and checks every rule again. The running ledger keeps one
//! `Core` per shard of accounts; replay and tests use the same type, so what a journal means is
//! written once.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

mod decide;
mod submits;

use std::collections::HashMap;
use std::sync::Arc;

use crate::records::error::{LedgerError, Violation};
use crate::records::id_map::IdMap;
use crate::records::key::Key;
use crate::records::loss::{LossSum, LossSums};
use crate::records::record::Record;
use crate::records::reservation::OpenHold;
use crate::records::task::Task;
use crate::rules::account::{Account, Movement};
use crate::rules::customers::CustomerState;
use crate::rules::operator::OperatorState;
use crate::rules::spend::AccountSpend;
use crate::rules::submit::{SubmitMemo, check_task, submit_of};
use crate::rules::sums::AccountSums;
use tollgate_money::money::Nanousd;
use tollgate_types::ids::{AccountId, HoldId, KeyId, Seq, TaskId};
use tollgate_types::limit::Rates;

pub(crate) use decide::OtherFunds;
pub use decide::{Decision, Post};
pub use decide::{UNFIT_CREDIT, UNFIT_GRANT, UNPAID_REFUND};

/// The state of some accounts: all of them, or a shard.
#[derive(Debug, Default)]
pub struct Core {
    pub(crate) accounts: IdMap<AccountId, AccountState>,
    /// Sums over these accounts.
    pub(crate) sums: AccountSums,
    /// Sums of the losses of these accounts, by cause.
    pub(crate) losses: LossSums,
    pub(crate) holds: IdMap<HoldId, OpenHold>,
    /// Tasks for which something remains to be done.
    pub(crate) tasks: IdMap<TaskId, Arc<Task>>,
    /// State that belongs to the operator; empty in all shards but the operator's.
    pub(crate) operator: OperatorState,
    /// True if other nodes share the accounts and the spending limits.
    pub(crate) is_shared: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct AccountState {
    pub(crate) account: Account,
    pub(crate) keys: IdMap<KeyId, Arc<Key>>,
    pub(crate) grants: HashMap<String, GrantMemo>,
    pub(crate) refunds: HashMap<String, Refund>,
    /// Debts that were written off, by the callers' ids.
    pub(crate) write_offs: HashMap<String, GrantMemo>,
    /// Possible losses from its calls, by cause.
    pub(crate) losses: LossSums,
    /// Sum of refunds per hold.
    refunded: IdMap<HoldId, Nanousd>,
    /// The tasks in work that an upstream has given an id, by that id.
    native_tasks: HashMap<String, TaskId>,
    /// Recent submits, by the caller's idempotency key or body, to recognise repeated ones.
    pub(crate) submits: HashMap<[u8; 32], SubmitMemo>,
    /// Rate limits that all keys share.
    pub(crate) rates: Rates,
    /// Limits and spending of each key.
    pub(crate) spendings: AccountSpend,
    /// State of the customer.
    pub(crate) customers: CustomerState,
    /// Rate of spending on this node of a fleet.
    pub(crate) pace: Pace,
}

/// Rate of reservations, by which a node of a fleet borrows. Not kept across restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    /// The sum of all that was set aside.
    pub(crate) reserved: Nanousd,
    /// Amount of available money below which the borrower is notified, once.
    pub(crate) low: Nanousd,
}

/// A past grant or write-off, remembered so that its id is applied once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct GrantMemo {
    pub(crate) seq: Seq,
    pub(crate) amount: Nanousd,
}

/// A completed refund, kept so that its id is refunded only once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Refund {
    pub(crate) seq: Seq,
    pub(crate) hold: HoldId,
    pub(crate) amount: Nanousd,
}

impl Core {
    /// The empty state of a node of a fleet: other nodes have parts of the same accounts, and what
    /// these owe is known where the fleet's money is.
    #[must_use]
    pub fn of_node() -> Self {
        Self { is_shared: true, ..Self::default() }
    }

    /// The account, if it is here.
    #[must_use]
    pub fn account(&self, id: AccountId) -> Option<&Account> {
        self.accounts.get(&id).map(|state| &state.account)
    }

    /// All accounts of this core, in no order.
    pub fn accounts(&self) -> impl Iterator<Item = &Account> {
        self.accounts.values().map(|state| &state.account)
    }

    /// The keys of an account, in no order.
    pub fn keys(&self, account: AccountId) -> impl Iterator<Item = &Arc<Key>> {
        self.accounts.get(&account).into_iter().flat_map(|state| state.keys.values())
    }

    /// Number of an account's keys.
    pub(crate) fn key_count(&self, account: AccountId) -> usize {
        self.accounts.get(&account).map_or(0, |state| state.keys.len())
    }

    /// The hold, while it is open.
    #[must_use]
    pub fn hold(&self, id: HoldId) -> Option<&OpenHold> {
        self.holds.get(&id)
    }

    /// All open holds, in no order.
    pub fn holds(&self) -> impl Iterator<Item = (HoldId, &OpenHold)> {
        self.holds.iter().map(|(id, hold)| (*id, hold))
    }

    /// Number of open holds.
    #[must_use]
    pub fn open_holds(&self) -> usize {
        self.holds.len()
    }

    /// The task, while something remains to be done for it.
    #[must_use]
    pub fn task(&self, id: TaskId) -> Option<&Arc<Task>> {
        self.tasks.get(&id)
    }

    /// The account's task of this upstream's id, while something remains to be done for it.
    #[must_use]
    pub fn native_task(&self, account: AccountId, upstream_id: &str) -> Option<&Arc<Task>> {
        let state = self.accounts.get(&account)?;
        self.task(*state.native_tasks.get(upstream_id)?)
    }

    /// All such tasks, in no order.
    pub fn tasks(&self) -> impl Iterator<Item = &Arc<Task>> {
        self.tasks.values()
    }

    /// Hold, amount and sequence number of an account's refund `id`, if it exists.
    pub(crate) fn refund(&self, account: AccountId, id: &str) -> Option<Refund> {
        self.accounts.get(&account)?.refunds.get(id).copied()
    }

    /// The places of the refunds of an account's hold, in no order.
    pub(crate) fn refunds_of(&self, account: AccountId, hold: HoldId) -> Vec<Seq> {
        let refunds = self.accounts.get(&account).map(|state| state.refunds.values());
        let refunds = refunds.into_iter().flatten();
        refunds.filter(|refund| refund.hold == hold).map(|refund| refund.seq).collect()
    }

    /// Makes `record`, which stands at `seq`, so.
    ///
    /// # Errors
    /// The rule that it breaks; the state is then as it was.
    pub fn apply(&mut self, seq: Seq, record: &Record) -> Result<(), Violation> {
        let violation = |rule| Violation::new(seq, record, rule);
        if record.account() == AccountId::OPERATOR {
            return self.operator.apply(record).map_err(violation);
        }
        if let Record::AccountCreated { account, name, at } = record {
            if self.accounts.contains_key(account) {
                return Err(violation("the account exists already"));
            }
            self.restore_account(Account::new(*account, name.clone(), *at));
            return Ok(());
        }
        let account = record.account();
        let state =
            self.accounts.get_mut(&account).ok_or_else(|| violation("there is no such account"))?;
        let hold = match record.open_hold() {
            None => None,
            Some(id) => {
                let open = self.holds.get(&id).filter(|hold| hold.reservation.account == account);
                Some(open.ok_or_else(|| violation("the hold is not open, or another account's"))?)
            }
        };
        check_amounts(record).map_err(violation)?;
        state.check(record).map_err(violation)?;
        if let Record::Task(task) = record {
            check_task(task, self.tasks.get(&task.id()), &self.holds).map_err(violation)?;
        }
        let (balance, written_off) = Movement::of(record, hold)
            .and_then(|movement| state.account.after(&movement))
            .map_err(violation)?;
        self.sums.update(&state.account, &balance, written_off);
        state.account.balance = balance;
        state.account.written_off = written_off;
        state.spendings.apply(record, hold);
        state.remember(seq, record);
        match record {
            Record::Reserved(reservation) => {
                let hold =
                    OpenHold { reservation: Arc::clone(reservation), amount: reservation.amount };
                self.holds.insert(HoldId::from_number(seq), hold);
            }
            Record::Extended { hold, amount, .. } => {
                if let Some(open) = self.holds.get_mut(hold) {
                    // `held` has just taken the same sum without overflow.
                    open.amount = open.amount.saturating_add(*amount);
                }
            }
            Record::Posted { hold, .. }
            | Record::PostedOwing { hold, .. }
            | Record::Voided { hold, .. }
            | Record::Recovered { hold, .. }
            | Record::HandedOver { hold, .. } => {
                self.holds.remove(hold);
            }
            Record::Task(task) => self.restore_task(Arc::clone(task)),
            _ => {}
        }
        if let Record::Lost(lost) = record.inner() {
            lost.add_to(&mut self.losses);
        }
        Ok(())
    }

    pub(crate) fn restore_account(&mut self, account: Account) {
        self.sums.insert(&account);
        if let Some(before) = self.accounts.insert(account.id, AccountState::new(account)) {
            self.sums.remove(&before.account);
        }
    }

    /// Stores the sum of an account's losses of one cause. `None` without the account.
    pub(crate) fn restore_loss(
        &mut self,
        account: AccountId,
        cause: String,
        sum: LossSum,
    ) -> Option<()> {
        let state = self.accounts.get_mut(&account)?;
        self.losses.entry(cause.clone()).or_default().add(sum);
        state.losses.insert(cause, sum);
        Some(())
    }

    /// Stores the current state of a task, or removes it if nothing remains to be done.
    pub(crate) fn restore_task(&mut self, task: Arc<Task>) {
        let id = task.id();
        let state = self.accounts.get_mut(&task.intent.account);
        if let Some((state, native)) = state.zip(task.upstream_id()) {
            if !task.is_done() {
                state.native_tasks.insert(native.to_owned(), id);
            } else if state.native_tasks.get(native) == Some(&id) {
                state.native_tasks.remove(native);
            }
        }
        if task.is_done() {
            self.tasks.remove(&id);
        } else {
            self.tasks.insert(id, task);
        }
    }

    pub(crate) fn restore_hold(&mut self, id: HoldId, hold: OpenHold) {
        if let Some(state) = self.accounts.get_mut(&hold.reservation.account) {
            state.spendings.restore_held(hold.reservation.key, hold.amount);
        }
        self.holds.insert(id, hold);
    }

    /// Rate of spending of an account on this node.
    pub(crate) fn pace(&self, account: AccountId) -> Pace {
        self.accounts.get(&account).map(|state| state.pace).unwrap_or_default()
    }

    /// Requests a notification when less than `below` is available.
    pub(crate) fn watch(&mut self, account: AccountId, below: Nanousd) {
        if let Some(state) = self.accounts.get_mut(&account) {
            state.pace.low = below;
        }
    }

    /// Counts a hold. Returns true once when the account falls below its threshold.
    pub(crate) fn passed(&mut self, account: AccountId, amount: Nanousd) -> bool {
        let Some(state) = self.accounts.get_mut(&account) else { return false };
        let pace = &mut state.pace;
        pace.reserved = pace.reserved.saturating_add(amount);
        let is_low = state.account.balance.available < pace.low;
        if is_low {
            pace.low = Nanousd::ZERO;
        }
        is_low
    }

    pub(crate) fn state_mut(&mut self, account: AccountId) -> Option<&mut AccountState> {
        self.accounts.get_mut(&account)
    }

    fn state(&self, account: AccountId) -> Result<&AccountState, LedgerError> {
        self.accounts.get(&account).ok_or(LedgerError::UnknownAccount(account))
    }
}

impl AccountState {
    fn new(account: Account) -> Self {
        Self {
            account,
            keys: IdMap::default(),
            grants: HashMap::new(),
            refunds: HashMap::new(),
            write_offs: HashMap::new(),
            losses: LossSums::new(),
            refunded: IdMap::default(),
            native_tasks: HashMap::new(),
            submits: HashMap::new(),
            rates: Rates::NONE,
            spendings: AccountSpend::default(),
            customers: CustomerState::default(),
            pace: Pace::default(),
        }
    }

    /// The part of the state that the rules need for these directory records, independent of its size.
    pub(crate) fn excerpt(&self, records: &[Record]) -> Self {
        let mut excerpt = Self {
            rates: self.rates,
            customers: self.customers.excerpt(),
            pace: self.pace,
            ..Self::new(self.account.clone())
        };
        for record in records {
            match record.inner() {
                Record::Granted { id, .. } => {
                    let found = self.grants.get_key_value(id);
                    excerpt.grants.extend(found.map(|(id, grant)| (id.clone(), *grant)));
                }
                Record::WrittenOff { id, .. } => {
                    let found = self.write_offs.get_key_value(id);
                    excerpt.write_offs.extend(found.map(|(id, found)| (id.clone(), *found)));
                }
                Record::Refunded { id, hold, .. } => {
                    let found = self.refunds.get_key_value(id);
                    excerpt.refunds.extend(found.map(|(id, refund)| (id.clone(), *refund)));
                    let refunded = self.refunded.get(hold);
                    excerpt.refunded.extend(refunded.map(|refunded| (*hold, *refunded)));
                }
                Record::KeyCreated(key) | Record::KeyUpdated(key) => {
                    let found = self.keys.get(&key.id);
                    excerpt.keys.extend(found.map(|found| (key.id, Arc::clone(found))));
                }
                Record::KeyLimited { key, .. } => {
                    let found = self.keys.get(key);
                    excerpt.keys.extend(found.map(|found| (*key, Arc::clone(found))));
                }
                _ => {}
            }
        }
        excerpt
    }

    fn can_refund(&self, hold: HoldId, charged: Nanousd, amount: Nanousd) -> bool {
        let before = self.refunded.get(&hold).copied().unwrap_or_default();
        before.checked_add(amount).is_some_and(|sum| sum <= charged)
    }

    /// Rules beyond the movement of money.
    fn check(&self, record: &Record) -> Result<(), &'static str> {
        match record.inner() {
            Record::Granted { id, .. } if self.grants.contains_key(id) => {
                Err("the grant was made before")
            }
            Record::WrittenOff { id, .. } if self.write_offs.contains_key(id) => {
                Err("the write-off was made before")
            }
            Record::Refunded { id, .. } if self.refunds.contains_key(id) => {
                Err("the refund was made before")
            }
            Record::Refunded { hold, charged, amount, .. }
                if !self.can_refund(*hold, *charged, *amount) =>
            {
                Err("the refunds of a hold exceed its charge")
            }
            Record::KeyCreated(key) if self.keys.contains_key(&key.id) => {
                Err("the key exists already")
            }
            Record::KeyUpdated(key) => match self.keys.get(&key.id) {
                Some(found) if found.hash == key.hash => Ok(()),
                _ => Err("there is no such key"),
            },
            Record::KeyLimited { key, .. } if !self.keys.contains_key(key) => {
                Err("there is no such key")
            }
            // What moved in the treasury is not known here.
            Record::CreditSet { .. } if matches!(record, Record::Central(_)) => Ok(()),
            Record::CreditSet { limit, lent, withdrawn, owed, .. } => {
                let before = self.account.balance.credit.checked_add(*lent);
                let after = before.and_then(|sum| sum.checked_sub(*withdrawn));
                match after.and_then(|sum| sum.checked_sub(*owed)) {
                    Some(after) if after == *limit => Ok(()),
                    _ => Err("the credit line does not become what the record says"),
                }
            }
            // The crash that left it in doubt may have been another node's.
            Record::DoubtResolved { .. } if matches!(record, Record::Central(_)) => Ok(()),
            record => self.customers.check(record),
        }
    }

    fn remember(&mut self, seq: Seq, record: &Record) {
        match record.inner() {
            Record::Granted { id, amount, .. } => {
                self.grants.insert(id.clone(), GrantMemo { seq, amount: *amount });
            }
            Record::WrittenOff { id, amount, .. } => {
                self.write_offs.insert(id.clone(), GrantMemo { seq, amount: *amount });
            }
            Record::Lost(lost) => lost.add_to(&mut self.losses),
            Record::Refunded { id, hold, amount, .. } => {
                self.restore_refund(id.clone(), Refund { seq, hold: *hold, amount: *amount });
            }
            Record::KeyCreated(key) | Record::KeyUpdated(key) => {
                self.keys.insert(key.id, Arc::clone(key));
            }
            Record::AccountLimited { rates, .. } => self.rates = *rates,
            Record::Task(task) => {
                if let Some((key, submit)) = submit_of(task) {
                    self.remember_submit(key, task, submit);
                }
            }
            record => self.customers.apply(record, &mut self.account),
        }
    }

    /// Remembers the submit of a task, or forgets it where no upstream took that.
    fn remember_submit(&mut self, key: [u8; 32], task: &Task, submit: Option<SubmitMemo>) {
        let found = self.submits.get(&key).copied();
        match (found, submit) {
            // When it was answered stands in memory alone, and the same body may have been taken again
            // since: the end of the older task says nothing of the newer one.
            (Some(found), Some(submit)) if found.task == submit.task || found.at > submit.at => {}
            (Some(found), None) if found.task != task.id() => {}
            (_, Some(submit)) => {
                self.submits.insert(key, submit);
            }
            (_, None) => {
                self.submits.remove(&key);
            }
        }
    }

    pub(crate) fn restore_refund(&mut self, id: String, refund: Refund) {
        let sum = self.refunded.entry(refund.hold).or_default();
        // Bounded by the hold's charge, which is an amount itself.
        *sum = sum.saturating_add(refund.amount);
        self.refunds.insert(id, refund);
    }
}

/// Amounts that are given must be positive; amounts that are set aside or charged, not negative.
fn check_amounts(record: &Record) -> Result<(), &'static str> {
    let sound = match record.inner() {
        Record::Granted { amount, .. }
        | Record::Refunded { amount, .. }
        | Record::Leased { amount, .. }
        | Record::Returned { amount, .. }
        | Record::DebtPaid { amount, .. }
        | Record::WrittenOff { amount, .. }
        | Record::Extended { amount, .. } => *amount > Nanousd::ZERO,
        Record::CreditSet { limit, lent, withdrawn, owed, .. } => {
            let is_raised = withdrawn.is_zero() && owed.is_zero();
            [limit, lent, withdrawn, owed].iter().all(|amount| !amount.is_negative())
                && (lent.is_zero() || is_raised)
        }
        Record::Lost(lost) => lost.is_sound(),
        Record::Costed(costed) => costed.is_sound(),
        Record::PostedOwing { charged, owed, written_off, .. } => {
            !charged.is_negative() && *owed > Nanousd::ZERO && !written_off.is_negative()
        }
        Record::Reserved(reservation) => {
            Nanousd::ZERO <= reservation.floor && reservation.floor <= reservation.amount
        }
        Record::Posted { charged, written_off, .. } => {
            !charged.is_negative() && !written_off.is_negative()
        }
        Record::Recovered { charged, .. } => !charged.is_negative(),
        Record::KeyLimited { limits, .. } => limits.are_sound(),
        _ => true,
    };
    if sound { Ok(()) } else { Err("the amount is out of range") }
}
