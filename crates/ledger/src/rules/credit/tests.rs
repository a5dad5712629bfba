//! Tests of credit lines: single movements, and random histories of accounts.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use super::*;
use crate::records::error::{LedgerError, Refusal};
use crate::records::hold_end::VoidReason;
use crate::records::reservation::Reservation;
use crate::rules::audit::{state_hash, violations};
use crate::rules::core::{Core, Decision, UNPAID_REFUND};
use crate::rules::general_ledger::{BookState, GeneralLedger};
use tollgate_money::price::{Usage, UsageSource};
use tollgate_types::ids::{HoldId, KeyId, RequestId};

fn usd(nanousd: i64) -> Nanousd {
    Nanousd::new(nanousd)
}

fn state(credit: i64, available: i64, in_flight: i64) -> CreditState {
    CreditState {
        granted: usd(credit),
        available: usd(available),
        in_flight: usd(in_flight),
        credit: usd(credit),
        debt: usd(0),
    }
}

fn change(limit: i64, state: CreditState) -> Result<(i64, i64, i64), CreditFault> {
    let change = CreditChange::new(usd(limit), state)?;
    assert_eq!(change.limit, usd(limit));
    Ok((change.lent.get(), change.withdrawn.get(), change.owed.get()))
}

#[test]
fn a_lower_line_takes_what_is_available_and_the_rest_is_owed() {
    assert_eq!(change(100, state(0, 0, 0)), Ok((100, 0, 0)), "lent");
    assert_eq!(change(130, state(100, 5, 7)), Ok((30, 0, 0)), "raised");
    assert_eq!(change(100, state(100, 5, 7)), Ok((0, 0, 0)), "as it was");
    assert_eq!(change(90, state(100, 20, 0)), Ok((0, 10, 0)), "80 drawn, 10 of 20 left");
    assert_eq!(change(50, state(100, 20, 0)), Ok((0, 20, 30)), "30 of the 80 are owed");
    assert_eq!(change(0, state(100, 0, 0)), Ok((0, 0, 100)), "all is owed");
    assert_eq!(change(60, state(100, 0, 50)), Ok((0, 0, 40)), "50 drawn, 50 in flight");
}

#[test]
fn what_calls_hold_of_a_line_cannot_be_taken_back() {
    let fault = |least| Err(CreditFault::InFlight(usd(least)));
    assert_eq!(change(49, state(100, 0, 50)), fault(50));
    assert_eq!(change(50, state(100, 0, 50)), Ok((0, 0, 50)));
    assert_eq!(change(0, state(100, 30, 500)), fault(70));
    assert_eq!(change(70, state(100, 30, 500)), Ok((0, 30, 0)));
    assert_eq!(change(0, state(100, 130, 500)), Ok((0, 100, 0)), "own money is in flight");
}

#[test]
fn a_line_that_fits_no_account_is_refused() {
    assert_eq!(change(-1, state(0, 0, 0)), Err(CreditFault::Unfit));
    let full = CreditState { granted: Nanousd::MAX, ..state(0, 5, 0) };
    assert_eq!(change(1, full), Err(CreditFault::Unfit));
    assert_eq!(change(i64::MAX, state(0, 0, 0)), Ok((i64::MAX, 0, 0)));
}

const CASES: u32 = 2000;
const AT: UnixMs = UnixMs(1_000);

#[derive(Clone, Debug)]
enum LineStep {
    Grant(i64),
    Line(i64),
    Reserve(i64),
    Extend(usize, i64),
    Post(usize, i64),
    Void(usize),
    Refund(usize, i64),
    WriteOff(i64),
}

fn step() -> impl Strategy<Value = LineStep> {
    let amount = || prop_oneof![12 => 0_i64..200, 1 => Just(i64::MAX), 1 => Just(-1_i64)];
    let hold = || 0_usize..8;
    prop_oneof![
        2 => amount().prop_map(LineStep::Grant),
        3 => amount().prop_map(LineStep::Line),
        1 => Just(LineStep::Line(0)),
        5 => (0_i64..150).prop_map(LineStep::Reserve),
        1 => (hold(), 1_i64..100).prop_map(|(hold, amount)| LineStep::Extend(hold, amount)),
        4 => (hold(), amount()).prop_map(|(hold, charge)| LineStep::Post(hold, charge)),
        1 => hold().prop_map(LineStep::Void),
        1 => (hold(), amount()).prop_map(|(hold, amount)| LineStep::Refund(hold, amount)),
        1 => amount().prop_map(LineStep::WriteOff),
    ]
}

/// One account, and what must bound it.
#[derive(Default)]
struct AccountHistory {
    core: Core,
    books: GeneralLedger,
    journal: Vec<Record>,
    /// All holds that were made, with what they were charged in the end.
    holds: Vec<(HoldId, Option<Nanousd>)>,
    paid_in: i128,
    /// The largest line so far.
    line_max: i128,
    /// Bills beyond what their holds covered.
    beyond: i128,
}

impl AccountHistory {
    fn new() -> Self {
        let mut history = Self::default();
        let created = Record::AccountCreated { account: account(), name: "a".into(), at: AT };
        history.commit(created);
        history
    }

    fn balance(&self) -> Balance {
        self.core.account(account()).expect("the account").balance
    }

    fn commit(&mut self, record: Record) -> u64 {
        let seq = self.journal.len() as u64 + 1;
        let applied = self.core.apply(seq, &record);
        applied.unwrap_or_else(|violation| panic!("{violation}: {record:?}"));
        self.books.enter(seq, &record);
        self.journal.push(record);
        seq
    }

    fn take(&mut self, step: &LineStep) {
        match *step {
            LineStep::Grant(amount) => self.grant(amount),
            LineStep::Line(limit) => self.line(limit),
            LineStep::Reserve(amount) => self.reserve(amount),
            LineStep::Extend(hold, amount) => {
                let Some(hold) = self.open(hold) else { return };
                if let Ok(record) = self.core.decide_extend(account(), hold, usd(amount), AT) {
                    self.commit(record);
                }
            }
            LineStep::Post(hold, charge) => self.post(hold, charge),
            LineStep::Void(hold) => {
                let Some(hold) = self.open(hold) else { return };
                let reason = VoidReason::Unreached;
                self.commit(Record::Voided { account: account(), hold, reason, at: AT });
            }
            LineStep::Refund(hold, amount) => self.refund(hold, amount),
            LineStep::WriteOff(amount) => {
                let id = self.journal.len().to_string();
                let decided = self.core.decide_write_off((account(), &id), usd(amount), "n", AT);
                if let Ok(Decision::New(record)) = decided {
                    self.commit(record);
                }
            }
        }
        if let Some(payment) = self.core.decide_payment(account(), || AT) {
            self.commit(payment);
        }
    }

    fn open(&self, hold: usize) -> Option<HoldId> {
        let (hold, charged) = *self.holds.get(hold)?;
        charged.is_none().then_some(hold).filter(|hold| self.core.hold(*hold).is_some())
    }

    fn grant(&mut self, amount: i64) {
        let id = self.journal.len().to_string();
        if let Ok(Decision::New(record)) = self.core.decide_grant(account(), &id, usd(amount), AT) {
            self.paid_in += i128::from(amount);
            self.commit(record);
        }
    }

    /// A line changes nothing of what was paid in, is held, and was used in all.
    fn line(&mut self, limit: i64) {
        let before = self.balance();
        let lent_in_flight = bound(before.credit, before.available, before.held);
        match self.core.decide_credit(account(), usd(limit), AT) {
            Ok(record) => {
                assert!(usd(limit) >= lent_in_flight, "{limit} is below {lent_in_flight}");
                assert_eq!(record.is_none(), usd(limit) == before.credit);
                record.map(|record| self.commit(record));
            }
            Err(LedgerError::CreditInFlight(least)) => {
                assert_eq!(least, lent_in_flight);
                assert!(usd(limit) < least && least <= before.held);
                let named = self.core.decide_credit(account(), least, AT);
                // A debt at the end of its range takes no more.
                let owed = before.debt.checked_add(before.credit_used());
                assert!(named.is_ok() || owed.is_none(), "{least}: {named:?}");
                return;
            }
            Err(error) => {
                let sums = [before.paid_in(), before.debt].map(|sum| sum.checked_add(usd(limit)));
                let owed = before.debt.checked_add(before.credit_used());
                assert!(limit < 0 || sums.contains(&None) || owed.is_none(), "{error}");
                return;
            }
        }
        let after = self.balance();
        let cost = |balance: Balance| balance.spent.checked_add(balance.debt);
        assert_eq!((after.credit, after.held), (usd(limit), before.held));
        assert_eq!((after.paid_in(), cost(after)), (before.paid_in(), cost(before)));
        self.line_max = self.line_max.max(i128::from(limit));
    }

    fn reserve(&mut self, amount: i64) {
        let reservation = Reservation {
            account: account(),
            key: KeyId::from_number(2),
            model: "m".into(),
            price: None,
            request: RequestId::from_number(3),
            amount: usd(amount),
            floor: usd(0),
            at: AT,
        };
        let before = self.balance();
        match self.core.decide_reserve(Arc::new(reservation)) {
            Ok(record) => {
                assert!(before.debt.is_zero(), "nothing is held for who owes");
                let seq = self.commit(record);
                self.holds.push((HoldId::from_number(seq), None));
            }
            Err(Refusal::InDebt { .. }) => assert!(!before.debt.is_zero()),
            Err(_) => assert!(usd(amount) > before.available),
        }
    }

    fn post(&mut self, place: usize, charge: i64) {
        let Some(hold) = self.open(place) else { return };
        let covered = self.core.hold(hold).expect("an open hold").amount;
        let used = (Usage::ZERO, UsageSource::Upstream);
        let post = self.core.decide_post(hold, usd(charge), used, AT).expect("an open hold");
        self.beyond += i128::from(charge.max(0)).saturating_sub(i128::from(covered.get())).max(0);
        if let Some(extension) = post.extension {
            self.commit(extension);
        }
        self.commit(post.record);
        self.holds[place].1 = Some(post.charged);
    }

    fn refund(&mut self, place: usize, amount: i64) {
        let Some((hold, Some(charged))) = self.holds.get(place).copied() else { return };
        let id = self.journal.len().to_string();
        let decided = self.core.decide_refund((account(), &id), (hold, charged), usd(amount), AT);
        match decided {
            Ok(Decision::New(record)) => {
                self.commit(record);
            }
            Err(UNPAID_REFUND) => assert!(usd(amount) > self.balance().spent),
            _ => {}
        }
    }

    fn check(&self) {
        let balance = self.balance();
        assert!(balance.is_sound(), "{balance:?}");
        assert_eq!(violations(std::iter::once(&self.core)), [""; 0]);
        assert!(balance.credit_used() <= balance.credit);
        assert_eq!(i128::from(balance.paid_in().get()), self.paid_in);
        let wide = |amount: Nanousd| i128::from(amount.get());
        let used = wide(balance.spent) + wide(balance.debt) + wide(balance.held);
        assert!(used <= self.paid_in + self.line_max + self.beyond, "{balance:?}");
        assert_eq!(
            balance.own_available().checked_add(balance.credit_available()),
            Some(balance.available)
        );
    }
}

fn account() -> AccountId {
    AccountId::from_number(1)
}

/// Grants, lines, holds, bills above their holds and refunds in any order: nothing is overdrawn, a line
/// moves nothing but itself, the books agree, and the journal gives the same state again.
#[test]
fn random_histories_stay_within_what_was_paid_in_and_lent() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let config = Config {
        cases: CASES,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    };
    let steps = proptest::collection::vec(step(), 1..40);
    let ran = TestRunner::new(config).run(&steps, |steps| {
        let mut history = AccountHistory::new();
        for step in &steps {
            history.take(step);
            history.check();
        }
        let mut again = Core::default();
        for (record, seq) in history.journal.iter().zip(1..) {
            let bytes = postcard::to_stdvec(record).expect("encoded");
            let read: Record = postcard::from_bytes(&bytes).expect("decoded");
            again.apply(seq, &read).expect("allowed before");
        }
        let hash = |core: &Core| state_hash(std::iter::once(core));
        assert_eq!(hash(&again), hash(&history.core));
        let margins = std::collections::BTreeMap::new();
        let found = history.books.differences(&BookState { cores: &[again], margins });
        assert_eq!(found, [""; 0]);
        Ok(())
    });
    ran.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_record_that_moves_another_line_than_it_says_is_refused() {
    let mut history = AccountHistory::new();
    history.line(100);
    let line = |limit, lent, withdrawn, owed| {
        let [limit, lent, withdrawn, owed] = [limit, lent, withdrawn, owed].map(usd);
        Record::CreditSet { account: account(), limit, lent, withdrawn, owed, at: AT }
    };
    for (record, why) in [
        (line(120, 10, 0, 0), "less than the line is raised by"),
        (line(90, 0, 0, 0), "nothing is taken back"),
        (line(110, 20, 10, 0), "raised and lowered in one"),
        (line(0, 0, 0, 100), "nothing of it was spent"),
        (line(-10, 0, 110, 0), "below zero"),
    ] {
        assert!(history.core.apply(9, &record).is_err(), "{why}");
    }
    history.core.apply(9, &line(40, 0, 60, 0)).expect("lowered");
}

/// A grant restores the line before anything is the account's own again.
#[test]
fn a_grant_pays_the_line_back_first() {
    let mut history = AccountHistory::new();
    history.line(100);
    history.reserve(80);
    history.post(0, 80);
    assert_eq!(history.balance().credit_used(), usd(80));
    history.grant(50);
    let balance = history.balance();
    assert_eq!((balance.credit_used(), balance.own_available()), (usd(30), usd(0)));
    history.grant(50);
    let balance = history.balance();
    assert_eq!((balance.credit_used(), balance.own_available()), (usd(0), usd(20)));
    assert_eq!(balance.available, usd(120));
}
