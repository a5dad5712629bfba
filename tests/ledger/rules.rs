//! The ledger's rules against a model that is too simple to be wrong: random histories, compared
//! after every step.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use tollgate::clock::UnixMs;
use tollgate::ledger::audit::{state_hash, violations};
use tollgate::ledger::core::{Core, Decision};
use tollgate::ledger::{
    AccountId, BookState, CodeId, GeneralLedger, HoldId, KeyId, Record, RecoveryPolicy, Refusal,
    RequestId, Reservation, VoidReason,
};
use tollgate::money::Nanousd;
use tollgate::price::{Usage, UsageSource};

const CASES: u32 = 1000;
const ACCOUNTS: u64 = 3;
const AT: UnixMs = UnixMs(1_000);

/// Number 0 is the house's.
fn account_id(number: u64) -> AccountId {
    AccountId::from_number(number + 1)
}

#[derive(Clone, Debug)]
enum Step {
    Grant {
        account: u64,
        id: u8,
        amount: i64,
    },
    Reserve {
        account: u64,
        amount: i64,
        floor: i64,
    },
    /// The rest name a hold by its place among all that were ever made, ended or not.
    Extend {
        hold: usize,
        amount: i64,
    },
    Post {
        hold: usize,
        charge: i64,
    },
    Void {
        hold: usize,
    },
    Recover {
        hold: usize,
        floor: bool,
    },
    WriteOff {
        account: u64,
        id: u8,
        amount: i64,
    },
    Refund {
        hold: usize,
        id: u8,
        amount: i64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let account = 0..ACCOUNTS + 1; // one of them does not exist
    let amount = prop_oneof![8 => -2_i64..200, 1 => Just(i64::MAX), 1 => Just(i64::MIN)];
    let hold = 0_usize..12;
    prop_oneof![
        2 => (account.clone(), 0_u8..6, amount.clone())
            .prop_map(|(account, id, amount)| Step::Grant { account, id, amount }),
        4 => (account.clone(), 0_i64..150, 0_i64..150)
            .prop_map(|(account, amount, floor)| Step::Reserve { account, amount, floor }),
        1 => (hold.clone(), 1_i64..150).prop_map(|(hold, amount)| Step::Extend { hold, amount }),
        3 => (hold.clone(), amount.clone()).prop_map(|(hold, charge)| Step::Post { hold, charge }),
        1 => hold.clone().prop_map(|hold| Step::Void { hold }),
        1 => (hold.clone(), any::<bool>()).prop_map(|(hold, floor)| Step::Recover { hold, floor }),
        2 => (hold, 0_u8..6, amount.clone())
            .prop_map(|(hold, id, amount)| Step::Refund { hold, id, amount }),
        1 => (account, 0_u8..6, amount)
            .prop_map(|(account, id, amount)| Step::WriteOff { account, id, amount }),
    ]
}

/// Reference model of the ledger, in wide arithmetic and without regard to speed.
#[derive(Default)]
struct Model {
    granted: BTreeMap<u64, i128>,
    spent: BTreeMap<u64, i128>,
    debt: BTreeMap<u64, i128>,
    written_off: BTreeMap<u64, i128>,
    write_offs: BTreeMap<(u64, u8), i64>,
    holds: Vec<ModelHold>,
    grants: BTreeMap<(u64, u8), i64>,
    refunds: BTreeMap<(u64, u8), (usize, i64)>,
}

struct ModelHold {
    account: u64,
    amount: i128,
    floor: i128,
    charged: Option<i128>,
    is_open: bool,
    refunded: i128,
}

impl Model {
    fn held(&self, account: u64) -> i128 {
        let open = self.holds.iter().filter(|hold| hold.is_open && hold.account == account);
        open.map(|hold| hold.amount).sum()
    }

    fn available(&self, account: u64) -> i128 {
        self.granted.get(&account).copied().unwrap_or(0)
            - self.spent.get(&account).copied().unwrap_or(0)
            - self.held(account)
    }

    fn debt(&self, account: u64) -> i128 {
        self.debt.get(&account).copied().unwrap_or(0)
    }

    fn end(&mut self, hold: usize, charged: i128) {
        let hold = &mut self.holds[hold];
        (hold.is_open, hold.charged) = (false, Some(charged));
        *self.spent.entry(hold.account).or_default() += charged;
    }
}

/// The ledger's core beside the model, and the records that it made.
struct Pair {
    core: Core,
    model: Model,
    journal: Vec<Record>,
    books: GeneralLedger,
    ids: Vec<HoldId>,
}

impl Pair {
    fn new() -> Self {
        let mut pair = Self {
            core: Core::default(),
            model: Model::default(),
            journal: vec![],
            books: GeneralLedger::default(),
            ids: vec![],
        };
        for account in (0..ACCOUNTS).map(account_id) {
            pair.apply(Record::AccountCreated { account, name: account.to_string(), at: AT });
        }
        pair
    }

    fn apply(&mut self, record: Record) -> u64 {
        let seq = self.journal.len() as u64 + 1;
        self.core.apply(seq, &record).expect("what was decided is allowed");
        self.books.enter(seq, &record);
        self.journal.push(record);
        seq
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Grant { account, id, amount } => self.grant(account, id, amount),
            Step::Reserve { account, amount, floor } => self.reserve(account, amount, floor),
            Step::Extend { hold, amount } if self.is_open(hold) => self.extend(hold, amount),
            Step::Post { hold, charge } => self.post(hold, charge),
            Step::Void { hold } if self.is_open(hold) => {
                let account = account_id(self.model.holds[hold].account);
                let (hold_id, reason) = (self.ids[hold], VoidReason::Unreached);
                self.apply(Record::Voided { account, hold: hold_id, reason, at: AT });
                self.model.end(hold, 0);
                self.model.holds[hold].charged = None;
            }
            Step::Recover { hold, floor } if self.is_open(hold) => {
                let policy = if floor { RecoveryPolicy::Floor } else { RecoveryPolicy::Void };
                let record = self.core.decide_recovery(self.ids[hold], policy, AT).expect("open");
                self.apply(record);
                self.model.end(hold, if floor { self.model.holds[hold].floor } else { 0 });
            }
            Step::Refund { hold, id, amount } => self.refund(hold, id, amount),
            Step::WriteOff { account, id, amount } => self.write_off(account, id, amount),
            _ => {}
        }
        (0..ACCOUNTS).for_each(|account| self.pay(account));
    }

    /// Whatever became available pays what is owed, and nothing else does.
    fn pay(&mut self, account: u64) {
        let paid = self.model.available(account).min(self.model.debt(account));
        let payment = self.core.decide_payment(account_id(account), || AT);
        assert_eq!(payment.is_some(), paid > 0, "{paid} of account {account} can be paid");
        let Some(record) = payment else { return };
        let Record::DebtPaid { amount, .. } = &record else { panic!("{record:?}") };
        assert_eq!(i128::from(amount.get()), paid, "all that can be");
        self.apply(record);
        *self.model.spent.entry(account).or_default() += paid;
        *self.model.debt.entry(account).or_default() -= paid;
    }

    fn write_off(&mut self, account: u64, id: u8, amount: i64) {
        let (named, money) = (account_id(account), Nanousd::new(amount));
        let decision = self.core.decide_write_off((named, &id.to_string()), money, "why", AT);
        let before = self.model.write_offs.get(&(account, id)).copied();
        let fits = amount > 0 && i128::from(amount) <= self.model.debt(account);
        match decision {
            Ok(Decision::Repeated(_)) => assert_eq!(before, Some(amount), "repeated: same body"),
            Ok(Decision::New(record)) => {
                assert!(before.is_none() && fits && account < ACCOUNTS, "gave up {amount}");
                self.apply(record);
                *self.model.debt.entry(account).or_default() -= i128::from(amount);
                let sum = self.model.written_off.entry(account).or_default();
                *sum += i128::from(amount);
                self.model.write_offs.insert((account, id), amount);
            }
            Err(error) => assert!(
                account >= ACCOUNTS || before.is_some_and(|before| before != amount) || !fits,
                "a good write-off of {amount} was refused: {error}"
            ),
        }
    }

    fn is_open(&self, hold: usize) -> bool {
        self.model.holds.get(hold).is_some_and(|hold| hold.is_open)
    }

    fn grant(&mut self, account: u64, id: u8, amount: i64) {
        let decision =
            self.core.decide_grant(account_id(account), &id.to_string(), Nanousd::new(amount), AT);
        let before = self.model.grants.get(&(account, id)).copied();
        let granted = self.model.granted.get(&account).copied().unwrap_or(0);
        let fits = amount > 0 && granted + i128::from(amount) <= i128::from(i64::MAX);
        match decision {
            Ok(Decision::Repeated(_)) => assert_eq!(before, Some(amount), "repeated: same body"),
            Ok(Decision::New(record)) => {
                assert!(
                    before.is_none() && fits && account < ACCOUNTS,
                    "granted {step:?}",
                    step = record
                );
                self.apply(record);
                *self.model.granted.entry(account).or_default() += i128::from(amount);
                self.model.grants.insert((account, id), amount);
            }
            Err(error) => assert!(
                account >= ACCOUNTS || before.is_some_and(|before| before != amount) || !fits,
                "a good grant of {amount} was refused: {error}"
            ),
        }
    }

    fn reserve(&mut self, account: u64, amount: i64, floor: i64) {
        let (amount_wide, floor) = (i128::from(amount), floor.min(amount));
        let reservation = Reservation {
            account: account_id(account),
            key: KeyId::from_number(1),
            model: "m".into(),
            price: None,
            request: RequestId::from_number(1),
            amount: Nanousd::new(amount),
            floor: Nanousd::new(floor),
            at: AT,
        };
        let (available, held) = (self.model.available(account), self.model.held(account));
        match self.core.decide_reserve(Arc::new(reservation)) {
            Ok(record) => {
                assert!(amount_wide <= available, "held {amount} of {available}");
                assert_eq!(self.model.debt(account), 0, "nothing is held for who owes");
                let seq = self.apply(record);
                self.ids.push(HoldId::from_number(seq));
                self.model.holds.push(ModelHold {
                    account,
                    amount: amount_wide,
                    floor: i128::from(floor),
                    charged: None,
                    is_open: true,
                    refunded: 0,
                });
            }
            Err(Refusal::UnknownAccount) => assert_eq!(account, ACCOUNTS, "it exists"),
            Err(Refusal::InDebt { debt, .. }) => {
                assert!(debt > Nanousd::ZERO, "who owes nothing can call");
                assert_eq!(i128::from(debt.get()), self.model.debt(account), "owed");
            }
            Err(Refusal::Held { .. }) => {
                assert!(available < amount_wide && amount_wide <= available + held, "held");
            }
            Err(Refusal::Insufficient { .. }) => {
                assert!(available + held < amount_wide, "{amount} of {available} + {held}");
            }
            Err(refusal) => panic!("{refusal}"),
        }
    }

    fn extend(&mut self, hold: usize, amount: i64) {
        let account = self.model.holds[hold].account;
        let (id, more) = (account_id(account), Nanousd::new(amount));
        let is_covered =
            i128::from(amount) <= self.model.available(account) && self.model.debt(account) == 0;
        let decision = self.core.decide_extend(id, self.ids[hold], more, AT);
        assert_eq!(decision.is_ok(), is_covered, "an extension by {amount}");
        if let Ok(record) = decision {
            self.apply(record);
            self.model.holds[hold].amount += i128::from(amount);
        }
    }

    fn post(&mut self, hold: usize, charge: i64) {
        let Some(&id) = self.ids.get(hold) else { return };
        let used = (Usage::default(), UsageSource::Upstream);
        let Some(post) = self.core.decide_post(id, Nanousd::new(charge), used, AT) else {
            assert!(!self.is_open(hold), "an open hold was not posted");
            return;
        };
        assert!(self.is_open(hold), "a hold was posted twice");
        let reach =
            self.model.holds[hold].amount + self.model.available(self.model.holds[hold].account);
        let charge = i128::from(charge).max(0);
        let charged = charge.min(reach);
        assert_eq!(i128::from(post.charged.get()), charged, "charged of {charge}");
        post.extension.into_iter().for_each(|record| {
            self.apply(record);
        });
        self.apply(post.record);
        self.model.end(hold, charged);
        let account = self.model.holds[hold].account;
        let before = self.model.debt(account);
        let debt = (before + charge - charged).min(i128::from(i64::MAX));
        assert_eq!(i128::from(post.owed.get()), debt - before, "owed of {charge}");
        self.model.debt.insert(account, debt);
    }

    fn refund(&mut self, hold: usize, id: u8, amount: i64) {
        let Some(existing) = self.model.holds.get(hold) else { return };
        let (account, Some(charged)) = (existing.account, existing.charged) else { return };
        let fits = amount > 0 && existing.refunded + i128::from(amount) <= charged;
        let before = self.model.refunds.get(&(account, id)).copied();
        let decision = self.core.decide_refund(
            (account_id(account), &id.to_string()),
            (self.ids[hold], Nanousd::new(i64::try_from(charged).expect("an amount"))),
            Nanousd::new(amount),
            AT,
        );
        match decision {
            Ok(Decision::Repeated(_)) => assert_eq!(before, Some((hold, amount)), "same body"),
            Ok(Decision::New(record)) => {
                assert!(before.is_none() && fits, "refunded {amount} of {charged}");
                self.apply(record);
                self.model.holds[hold].refunded += i128::from(amount);
                *self.model.spent.entry(account).or_default() -= i128::from(amount);
                self.model.refunds.insert((account, id), (hold, amount));
            }
            Err(error) => assert!(
                !fits || before.is_some_and(|before| before != (hold, amount)),
                "a good refund of {amount} was refused: {error}"
            ),
        }
    }

    fn compare(&self) {
        assert_eq!(violations(std::iter::once(&self.core)), Vec::<String>::new());
        for account in 0..ACCOUNTS {
            let state = self.core.account(account_id(account)).expect("exists");
            let balance = state.balance;
            let written_off = self.model.written_off.get(&account).copied().unwrap_or(0);
            assert_eq!(i128::from(state.written_off.get()), written_off, "written off");
            let model = [
                self.model.granted.get(&account).copied().unwrap_or(0),
                self.model.available(account),
                self.model.held(account),
                self.model.spent.get(&account).copied().unwrap_or(0),
                self.model.debt(account),
            ];
            let core =
                [balance.granted, balance.available, balance.held, balance.spent, balance.debt]
                    .map(|part| i128::from(part.get()));
            assert_eq!(core, model, "granted, available, held, spent, debt of account {account}");
            assert!(balance.payable().is_zero(), "what can be paid is paid");
        }
        let cores = std::slice::from_ref(&self.core);
        let differences = self.books.differences(&BookState { cores, ..BookState::default() });
        assert_eq!(differences, Vec::<String>::new(), "the books agree with the rules");
        assert!(self.books.trial_balance().adds_up, "debits are credits");
        let open = self.model.holds.iter().filter(|hold| hold.is_open).count();
        assert_eq!(self.core.open_holds(), open, "open holds");
    }
}

#[test]
fn random_histories_agree_with_the_model() {
    let seed = u64::try_from(RequestId::new().number() & u128::from(u64::MAX)).expect("masked");
    println!("seed {seed}");
    let config = Config {
        cases: CASES,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    };
    let histories = proptest::collection::vec(step(), 1..60);
    let outcome = TestRunner::new(config).run(&histories, |steps| {
        let mut pair = Pair::new();
        for step in &steps {
            pair.take(step);
            pair.compare();
        }
        let mut replayed = Core::default();
        for (record, seq) in pair.journal.iter().zip(1..) {
            replayed.apply(seq, record).expect("a replay allows what happened");
        }
        let hashes = [&pair.core, &replayed].map(|core| state_hash(std::iter::once(core)));
        assert_eq!(hashes[0], hashes[1], "a replay gives the same state");
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("with seed {seed}: {failure}"));
}

/// Records that an account without a debt cannot have written.
fn broken_debts(account: AccountId, hold: HoldId) -> [(&'static str, Record); 3] {
    [
        (
            "a debt of nothing",
            Record::PostedOwing {
                account,
                hold,
                charged: Nanousd::new(1),
                owed: Nanousd::ZERO,
                written_off: Nanousd::ZERO,
                usage: Usage::default(),
                source: UsageSource::None,
                at: AT,
            },
        ),
        ("a payment of no debt", Record::DebtPaid { account, amount: Nanousd::new(1), at: AT }),
        (
            "a write-off of no debt",
            Record::WrittenOff {
                account,
                id: "w".into(),
                amount: Nanousd::new(1),
                note: "n".into(),
                at: AT,
            },
        ),
    ]
}

#[test]
fn records_that_break_a_rule_change_nothing() {
    let mut pair = Pair::new();
    pair.grant(0, 1, 100);
    pair.grant(1, 1, 100);
    pair.reserve(0, 60, 10);
    let (account, stranger) = (account_id(0), account_id(1));
    let hold = pair.ids[0];
    let posted = |account, hold, charged, written_off| Record::Posted {
        account,
        hold,
        charged: Nanousd::new(charged),
        written_off: Nanousd::new(written_off),
        usage: Usage::default(),
        source: UsageSource::None,
        at: AT,
    };
    let amount = Nanousd::new(41);
    let ended = HoldId::from_number(99);
    let refund = Record::Refunded {
        account,
        id: "r".into(),
        hold: ended,
        amount,
        charged: Nanousd::new(40),
        at: AT,
    };
    let broken = [
        ("an account made twice", Record::AccountCreated { account, name: "x".into(), at: AT }),
        (
            "an account in the house's place",
            Record::AccountCreated { account: AccountId::OPERATOR, name: "x".into(), at: AT },
        ),
        (
            "money for the house",
            Record::Granted { account: AccountId::OPERATOR, id: "2".into(), amount, at: AT },
        ),
        (
            "a doubt that is none",
            Record::DoubtResolved { account, hold, note: String::new(), at: AT },
        ),
        (
            "a use of no code",
            Record::CodeUsed { code: CodeId::from_number(1), by: account, at: AT },
        ),
        ("a grant made twice", Record::Granted { account, id: "1".into(), amount, at: AT }),
        ("a charge above the hold", posted(account, hold, 61, 0)),
        ("a negative charge", posted(account, hold, -1, 0)),
        ("a negative write-off", posted(account, hold, 1, -1)),
        ("another account's hold", posted(stranger, hold, 1, 0)),
        ("a hold that is not open", posted(account, ended, 1, 0)),
        ("an extension that overdraws", Record::Extended { account, hold, amount, at: AT }),
        ("a refund above the charge", refund),
    ];
    let before = state_hash(std::iter::once(&pair.core));
    for (what, record) in broken.into_iter().chain(broken_debts(account, hold)) {
        assert!(pair.core.apply(1_000, &record).is_err(), "{what} was taken");
        assert_eq!(state_hash(std::iter::once(&pair.core)), before, "{what} changed the state");
    }
    assert!(pair.core.apply(1_000, &posted(account, hold, 60, 0)).is_ok(), "the whole hold");
}

/// Two such replies once ended the process: what they leave owing is past the range.
#[test]
fn absurd_usage_twice_does_not_overflow_the_debt() {
    let mut pair = Pair::new();
    pair.grant(0, 1, 100);
    for _ in 0..3 {
        pair.reserve(0, 1, 0);
    }
    for hold in 0..3 {
        pair.post(hold, i64::MAX);
        pair.compare();
    }
    let account = pair.core.account(account_id(0)).expect("exists");
    assert_eq!(account.balance.debt, Nanousd::MAX, "the end of the range");
}
