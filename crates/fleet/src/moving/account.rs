//! The money of one account, rewritten in an order that a single gateway could have produced: grants, calls
//! and refunds.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::MoveError;
use super::calls::CallLines;
use tollgate_ledger::moving::{MoveTarget, MovedTask};
use tollgate_ledger::{
    AccountId, HoldId, Intent, JournaledRecord, KeyId, OpenError, OpenHold, Record, RequestId,
    Reservation, Task, TaskPhase,
};
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Usage, UsageSource};
use tollgate_types::clock::UnixMs;

/// The model of a call in place of money that was lost with a node and counts as spent.
const LOST: &str = "suspense";

/// State of an account while its records are written.
pub(super) struct AccountTransfer {
    id: AccountId,
    /// Unwritten grants, refunds and resolved doubts, oldest first.
    money: VecDeque<Record>,
    /// Holds that these are about.
    named: BTreeSet<HoldId>,
    /// The new ids of holds, by their ids in the fleet.
    holds: HashMap<HoldId, HoldId>,
    /// Calls that the account could not pay when it was their turn: clocks of nodes differ.
    late: VecDeque<JournaledRecord>,
    /// Part of the charges that the operator bore in the end.
    borne: Nanousd,
    /// Unwritten payments of debts, oldest first.
    payments: VecDeque<(UnixMs, Nanousd)>,
    /// The number of calls and debt payments.
    lines: u64,
}

impl AccountTransfer {
    /// An account with the directory's writes about its money, and the holds of its tasks.
    pub(super) fn new(id: AccountId, money: VecDeque<Record>, mut named: BTreeSet<HoldId>) -> Self {
        named.extend(money.iter().filter_map(|record| match record {
            Record::Refunded { hold, .. } | Record::DoubtResolved { hold, .. } => Some(*hold),
            _ => None,
        }));
        Self {
            id,
            money,
            named,
            holds: HashMap::new(),
            late: VecDeque::new(),
            borne: Nanousd::ZERO,
            payments: VecDeque::new(),
            lines: 0,
        }
    }

    /// The number of calls and debt payments.
    pub(super) fn lines(&self) -> u64 {
        self.lines
    }

    /// Adds a call after all earlier events.
    pub(super) fn add(
        &mut self,
        target: &mut MoveTarget,
        call: JournaledRecord,
    ) -> Result<(), MoveError> {
        while self.money.front().is_some_and(|record| record.at() <= call.record.at())
            && self.add_money(target)?
        {}
        while self.payments.front().is_some_and(|(at, _)| *at <= call.record.at())
            && self.add_payment(target)?
        {}
        self.add_call(target, call)
    }

    /// Adds what happened after the last call. Nothing is left then.
    pub(super) fn add_the_rest(&mut self, target: &mut MoveTarget) -> Result<(), MoveError> {
        while self.add_money(target)? {}
        while self.add_payment(target)? {}
        let late = self
            .late
            .front()
            .map(|call| format!("{}: nothing pays for the call of {}", self.id, call.seq));
        let unpaid = self.payments.front();
        let unpaid = unpaid.map(|(at, _)| format!("{}: nothing was owed at {}", self.id, at.0));
        let left = self.money.front().map(|record| {
            format!("{}: what was given back at {} is of no call", self.id, record.at().0)
        });
        match late.or(left).or(unpaid) {
            None => Ok(()),
            Some(why) => Err(MoveError::Differs(vec![why])),
        }
    }

    /// Compares the charges of calls with the treasury's sum of spending. The sum is smaller if money was
    /// taken back from a node that had spent it: the operator bore that. It is larger if money was lost with
    /// a node and counts as spent; the difference is returned then.
    pub(super) async fn weigh(
        &mut self,
        mut calls: CallLines<'_>,
        in_directory: &[(UnixMs, Nanousd)],
        spent: Nanousd,
        debt: Nanousd,
        unaccounted: Nanousd,
    ) -> Result<Nanousd, MoveError> {
        let (mut sum, mut owed) = (Nanousd::ZERO, Nanousd::ZERO);
        let mut payments: Vec<_> = in_directory.iter().map(|(at, amount)| (*at, *amount)).collect();
        while let Some(call) = calls.next().await? {
            if let Record::DebtPaid { amount, at, .. } = call.record {
                payments.push((at, amount));
                continue;
            }
            sum = sum.saturating_add(charged(&call.record));
            let more = call.record.charge().map(|charge| charge.owed).unwrap_or_default();
            owed = owed.saturating_add(more);
            self.lines = self.lines.saturating_add(1);
        }
        let mut given_up = Nanousd::ZERO;
        for record in &self.money {
            match record {
                Record::Refunded { amount, .. } => sum = sum.saturating_sub(*amount),
                // What a lower line took back after it was spent is spent no more, and owed.
                Record::CreditSet { owed: more, .. } => {
                    sum = sum.saturating_sub(*more);
                    owed = owed.saturating_add(*more);
                    self.lines = self.lines.saturating_add(1);
                }
                Record::WrittenOff { amount, .. } => {
                    given_up = given_up.saturating_add(*amount);
                }
                _ => {}
            }
        }
        // What was owed and is not any more was given up, or paid.
        let paid = owed.saturating_sub(given_up).saturating_sub(debt).max(Nanousd::ZERO);
        sum = sum.saturating_add(paid);
        payments.sort();
        let recorded = payments.iter().map(|(_, amount)| *amount);
        let recorded =
            recorded.fold(Nanousd::ZERO, |sum, more| sum.checked_add(more).unwrap_or(sum));
        if paid > recorded {
            payments.push((UnixMs::now(), paid.saturating_sub(recorded)));
        }
        self.lines = self.lines.saturating_add(payments.len() as u64);
        self.payments = payments.into();
        // Where both are in one account, only what is known tells them apart.
        let lost = unaccounted.max(spent.saturating_sub(sum));
        self.borne = sum.saturating_add(lost).saturating_sub(spent);
        Ok(lost)
    }

    /// Adds the oldest grant, refund or resolved doubt that can be written, and then the calls that waited
    /// for its money. Returns false if there was none.
    fn add_money(&mut self, target: &mut MoveTarget) -> Result<bool, MoveError> {
        let is_writable = |record: &Record| match record {
            Record::Refunded { hold, .. } | Record::DoubtResolved { hold, .. } => {
                self.holds.contains_key(hold)
            }
            Record::WrittenOff { amount, .. } => *amount <= target.balance(self.id).debt,
            Record::CreditSet { .. } => target.allows(record),
            _ => true,
        };
        let Some(at) = self.money.iter().position(is_writable) else { return Ok(false) };
        let Some(record) = self.money.remove(at) else { return Ok(false) };
        target.add(self.renamed(record))?;
        for _ in 0..self.late.len() {
            if let Some(call) = self.late.pop_front() {
                self.add_call_now(target, call)?;
            }
        }
        Ok(true)
    }

    /// A record with the current ids of its holds.
    fn renamed(&self, record: Record) -> Record {
        let now = |hold: HoldId| self.holds.get(&hold).copied().unwrap_or(hold);
        match record {
            Record::Refunded { account, id, hold, amount, charged, at } => {
                Record::Refunded { account, id, hold: now(hold), amount, charged, at }
            }
            Record::DoubtResolved { account, hold, note, at } => {
                Record::DoubtResolved { account, hold: now(hold), note, at }
            }
            record => record,
        }
    }

    /// Adds a call, after the credits that pay for it.
    fn add_call(
        &mut self,
        target: &mut MoveTarget,
        call: JournaledRecord,
    ) -> Result<(), MoveError> {
        while charged(&call.record) > target.balance(self.id).available && self.add_money(target)? {
        }
        self.add_call_now(target, call)
    }

    fn add_call_now(
        &mut self,
        target: &mut MoveTarget,
        call: JournaledRecord,
    ) -> Result<(), MoveError> {
        let JournaledRecord { seq, mut record, hold } = call;
        let unreadable = || OpenError::Store(format!("the line of {seq} has no hold"));
        let (old, open) = record.open_hold().zip(hold.clone()).ok_or_else(unreadable)?;
        let available = target.balance(self.id).available;
        if charged(&record) > available {
            self.late.push_back(JournaledRecord { seq, record, hold });
            return Ok(());
        }
        if !self.named.contains(&old) {
            self.bear(&mut record);
        }
        let amount = open.amount.min(available);
        let reservation = &open.reservation;
        let reservation = Reservation {
            amount,
            floor: reservation.floor.min(amount),
            ..Reservation::clone(reservation)
        };
        let new = target.add(Record::Reserved(Arc::new(reservation)))?;
        let new = HoldId::from_number(new);
        target.add(with_hold(record, new))?;
        if self.named.contains(&old) {
            self.holds.insert(old, new);
        }
        Ok(())
    }

    /// Charges the operator with what the treasury did not take.
    fn bear(&mut self, record: &mut Record) {
        if let Record::Posted { charged, written_off, .. }
        | Record::PostedOwing { charged, written_off, .. } = record
        {
            let borne = self.borne.min(*charged);
            self.borne = self.borne.saturating_sub(borne);
            *charged = charged.saturating_sub(borne);
            *written_off = written_off.saturating_add(borne);
        }
    }

    /// Adds a task: with what it holds, or as it ended.
    pub(super) fn add_task(
        &mut self,
        target: &mut MoveTarget,
        moved: MovedTask,
    ) -> Result<(), MoveError> {
        let MovedTask { task, hold, tried } = moved;
        let (account, id) = (self.id, task.id());
        let paid = self.holds.get(&task.intent.hold).copied();
        let new = match hold.filter(|_| task.ended().is_none()) {
            None => paid.unwrap_or(task.intent.hold),
            Some(OpenHold { reservation, amount }) => {
                let floor = reservation.floor.min(amount);
                let reservation = Reservation { amount, floor, ..Reservation::clone(&reservation) };
                HoldId::from_number(target.add(Record::Reserved(Arc::new(reservation)))?)
            }
        };
        let intent = Arc::new(Intent { hold: new, ..Intent::clone(&task.intent) });
        let task = Task { intent, ..Task::clone(&task) };
        // A journal's first record of a task is its submit, whatever has become of it.
        if task.ended().is_none() && task.stage != TaskPhase::Submitting {
            let begun = Task { stage: TaskPhase::Submitting, ..task.clone() };
            target.add(Record::Task(Arc::new(begun)))?;
        }
        target.add(Record::Task(Arc::new(task)))?;
        if let Some(tried) = tried {
            target.add(Record::Announced { account, task: id, tried })?;
        }
        Ok(())
    }

    /// Adds the oldest payment of a debt, if the debt and the money for it are there by now: clocks of
    /// nodes differ. Says whether it was added.
    fn add_payment(&mut self, target: &mut MoveTarget) -> Result<bool, MoveError> {
        let Some((at, amount)) = self.payments.front().copied() else { return Ok(false) };
        let account = self.id;
        if amount > target.balance(account).payable() {
            return Ok(false);
        }
        self.payments.pop_front();
        target.add(Record::DebtPaid { account, amount, at })?;
        Ok(true)
    }

    /// Adds a call in place of money that was lost with a node and counts as spent.
    pub(super) fn add_lost(
        &mut self,
        target: &mut MoveTarget,
        lost: Nanousd,
    ) -> Result<(), MoveError> {
        let at = UnixMs::now();
        let hold = target.add(Record::Reserved(Arc::new(Reservation {
            account: self.id,
            key: KeyId::from_number(0),
            model: LOST.into(),
            price: None,
            request: RequestId::new(),
            amount: lost,
            floor: Nanousd::ZERO,
            at,
        })))?;
        target.add(Record::Posted {
            account: self.id,
            hold: HoldId::from_number(hold),
            charged: lost,
            written_off: Nanousd::ZERO,
            usage: Usage::ZERO,
            source: UsageSource::Estimated,
            at,
        })?;
        self.lines = self.lines.saturating_add(1);
        Ok(())
    }
}

fn charged(record: &Record) -> Nanousd {
    record.charged().unwrap_or_default()
}

/// A record of the end of a hold, as the end of the hold `new`.
fn with_hold(mut record: Record, new: HoldId) -> Record {
    if let Record::Posted { hold, .. }
    | Record::PostedOwing { hold, .. }
    | Record::Voided { hold, .. }
    | Record::Recovered { hold, .. } = &mut record
    {
        *hold = new;
    }
    record
}
