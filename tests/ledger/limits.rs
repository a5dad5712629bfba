//! Limits of keys and accounts in the ledger: a spending limit is never exceeded, whatever happens in
//! whatever order.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use tempfile::TempDir;
use tollgate::clock::UnixMs;
use tollgate::ledger::audit::{state_hash, violations};
use tollgate::ledger::core::{Core, Decision};
use tollgate::ledger::{
    AccountId, HoldId, Key, KeyId, KeyLimits, KeyLimitsPatch, KeyPatch, Ledger, LedgerError,
    LossRecord, NewKey, Options, Period, RatesPatch, Record, RecoveryPolicy, Refusal, RequestId,
    Reservation, Reserve, Settlement, SpendLimitStatus, VoidReason,
};
use tollgate::limits::Rates;
use tollgate::money::Nanousd;
use tollgate::price::{Usage, UsageSource};
use tollgate::secret::KeyHash;

use crate::harness::away_from_midnight;
use crate::harness::ledger::close_and_verify;

fn money(nanousd: i64) -> Nanousd {
    Nanousd::new(nanousd)
}

fn some(limit: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(limit)
}

fn open(dir: &TempDir) -> Arc<Ledger> {
    Ledger::open(Options::new(dir.path())).expect("opens").0
}

fn ask(account: AccountId, key: KeyId, amount: i64) -> Reserve {
    Reserve {
        account,
        key,
        model: "m".into(),
        price: None,
        request: RequestId::new(),
        amount: money(amount),
        floor: money(0),
    }
}

fn cost(nanousd: i64) -> Settlement {
    Settlement { charge: money(nanousd), usage: Usage::default(), source: UsageSource::Upstream }
}

/// A ledger with an account of 1,000,000 and a key that may spend this a day and a month.
async fn limited(dir: &TempDir, day: i64, month: i64) -> (Arc<Ledger>, AccountId, KeyId) {
    let ledger = open(dir);
    let account = ledger.create_account("test").await.expect("account").id;
    ledger.grant(account, "first", money(1_000_000)).await.expect("grant");
    let limits = KeyLimits {
        spend_per_day: Some(money(day)),
        spend_per_month: Some(money(month)),
        ..KeyLimits::default()
    };
    let new = NewKey { name: "test".into(), limits, ..NewKey::default() };
    let key = ledger.create_key(account, new).await.expect("key").1.id;
    (ledger, account, key)
}

#[tokio::test]
async fn limits_are_kept_across_restarts_and_rebuilds() {
    let dir = TempDir::new().expect("directory");
    let (ledger, account, key) = limited(&dir, 100, 1000).await;
    let rates = RatesPatch { requests_per_minute: Some(some(60)), ..RatesPatch::default() };
    let message = ledger.limit_account(account, rates).await.expect("limited");
    assert_eq!(message, Rates { requests_per_minute: some(60), ..Rates::NONE });
    let limits = KeyLimitsPatch {
        rates: RatesPatch { concurrent_requests: Some(some(3)), ..RatesPatch::default() },
        spend_per_month: Some(None),
        ..KeyLimitsPatch::default()
    };
    let patch = KeyPatch { limits, ..KeyPatch::default() };
    ledger.update_key(key, patch).await.expect("changed");
    let expected = KeyLimits {
        rates: Rates { concurrent_requests: some(3), ..Rates::NONE },
        spend_per_day: Some(money(100)),
        spend_per_month: None,
    };
    let unlimited = ledger
        .create_key(account, NewKey { name: "free".into(), ..NewKey::default() })
        .await
        .expect("key")
        .1;
    let check = |ledger: &Ledger| {
        let key = ledger.key_by_id(key).expect("the key");
        assert_eq!(ledger.key_limits(key.id), expected);
        assert_eq!(ledger.rates(&key), (expected.rates, message));
        assert_eq!(ledger.rates(&unlimited), (Rates::NONE, message));
    };
    check(&ledger);
    close_and_verify(ledger, dir.path());
    let ledger = open(&dir);
    check(&ledger);
    close_and_verify(ledger, dir.path());
    std::fs::remove_dir_all(dir.path().join("sled")).expect("removed");
    let ledger = open(&dir);
    check(&ledger);
    let unknown = AccountId::from_number(1);
    let refused = ledger.limit_account(unknown, rates).await;
    assert_eq!(refused, Err(LedgerError::UnknownAccount(unknown)));
    let below = KeyLimitsPatch { spend_per_day: Some(Some(money(-1))), ..Default::default() };
    let refused = ledger.update_key(key, KeyPatch { limits: below, ..KeyPatch::default() }).await;
    assert!(matches!(refused, Err(LedgerError::Invalid(_))), "{refused:?}");
    close_and_verify(ledger, dir.path());
}

#[tokio::test]
async fn a_limit_of_spending_counts_what_is_held_and_what_was_spent() {
    away_from_midnight(Duration::from_secs(20));
    let dir = TempDir::new().expect("directory");
    let (ledger, account, key) = limited(&dir, 1000, 1500).await;
    let mut first = ledger.reserve(ask(account, key, 600)).expect("within both");
    let Err(Refusal::Capped(capped)) = ledger.reserve(ask(account, key, 401)) else {
        panic!("one more than a day");
    };
    assert_eq!((capped.period, capped.limit), (Period::Day, money(1000)));
    assert_eq!((capped.spent, capped.held), (money(0), money(600)));
    let now = UnixMs::now().0;
    assert!(capped.resets_at.0 > now && capped.resets_at.0 <= now + 86_400_000, "at midnight");
    assert!(matches!(first.extend(money(401)), Err(Refusal::Capped(_))), "nor by an extension");
    first.extend(money(100)).expect("700 of 1000");
    // The upstream bills 1200 for what was held with 700: the account pays, whatever the limit.
    let posted = first.post(cost(1200));
    assert_eq!((posted.charged, posted.owed), (money(1200), money(0)));
    assert!(matches!(ledger.reserve(ask(account, key, 1)), Err(Refusal::Capped(_))));
    ledger
        .reserve(ask(account, key, 0))
        .expect("what costs nothing")
        .void(VoidReason::ClientDisconnected);
    let other = KeyId::from_number(9);
    ledger.reserve(ask(account, other, 5000)).expect("another key").post(cost(5000));

    // Another day's limit lets the month's show.
    let limits =
        KeyLimitsPatch { spend_per_day: Some(Some(money(10_000))), ..KeyLimitsPatch::default() };
    let patch = KeyPatch { limits, ..KeyPatch::default() };
    ledger.update_key(key, patch).await.expect("changed");
    let Err(Refusal::Capped(SpendLimitStatus { period, spent, resets_at, .. })) =
        ledger.reserve(ask(account, key, 301))
    else {
        panic!("one more than a month");
    };
    assert_eq!((period, spent), (Period::Month, money(1200)));
    let reset = resets_at.to_rfc3339();
    assert!(reset.ends_with("-01T00:00:00Z"), "the first of a month: {reset}");
    ledger.reserve(ask(account, key, 300)).expect("all of it").post(cost(299));

    // More than the account has is a lack of money, not a limit.
    let refusal = ledger.reserve(ask(account, key, 2_000_000)).expect_err("too much");
    assert!(matches!(refusal, Refusal::Insufficient { .. }), "{refusal}");
    close_and_verify(ledger, dir.path());
    let ledger = open(&dir);
    assert!(matches!(ledger.reserve(ask(account, key, 2)), Err(Refusal::Capped(_))));
    ledger.reserve(ask(account, key, 1)).expect("the last of it").post(cost(1));
    close_and_verify(ledger, dir.path());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_at_a_time_stay_within_the_limit() {
    away_from_midnight(Duration::from_secs(20));
    let dir = TempDir::new().expect("directory");
    let (ledger, account, key) = limited(&dir, 10_000, 1_000_000).await;
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..100_i64 {
        let ledger = Arc::clone(&ledger);
        calls.spawn(async move {
            let mut charged = 0;
            for round in 0..20 {
                let Ok(hold) = ledger.reserve(ask(account, key, 100)) else { continue };
                tokio::task::yield_now().await;
                // Some cost less than was held, and some more.
                charged += hold.post(cost(90 + (number + round) % 20)).charged.get();
            }
            charged
        });
    }
    let charged: i64 = calls.join_all().await.iter().sum();
    let spent = ledger.account(account).expect("account").balance.spent.get();
    assert_eq!(charged, spent);
    // A bill may pass the limit by what it exceeds its hold by: 9 at most, for each call in flight.
    assert!((9_900..=10_000 + 100 * 9).contains(&spent), "all that fits, and no more: {spent}");
    assert!(ledger.reserve(ask(account, key, 100)).is_err());
    close_and_verify(ledger, dir.path());
}

const ACCOUNT: AccountId = AccountId::from_number(1);
const KEY: KeyId = KeyId::from_number(2);
/// 2026-01-31 at 22:00: a day and a month end soon.
const BEGIN: UnixMs = UnixMs(1_769_896_800_000);
const HOUR_MS: i64 = 3_600_000;

#[derive(Clone, Debug)]
enum Step {
    /// Time goes on, or the clock is set back a little.
    Pass(i64),
    Reserve(i64),
    Extend(usize, i64),
    Post(usize, i64),
    Void(usize),
    Recover(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let hold = 0_usize..8;
    let step = prop_oneof![
        2 => (0..30 * HOUR_MS).prop_map(Step::Pass),
        1 => (-3 * HOUR_MS..0).prop_map(Step::Pass),
        6 => (0_i64..400).prop_map(Step::Reserve),
        2 => (hold.clone(), 1_i64..300).prop_map(|(hold, more)| Step::Extend(hold, more)),
        5 => (hold.clone(), 0_i64..600).prop_map(|(hold, charge)| Step::Post(hold, charge)),
        1 => hold.clone().prop_map(Step::Void),
        1 => hold.prop_map(Step::Recover),
    ];
    prop::collection::vec(step, 1..120)
}

/// The ledger's core, its journal, and what was charged by day and month as records say it, without
/// what bills exceeded their holds by: limits bind what is admitted.
struct History {
    core: Core,
    journal: Vec<Record>,
    /// Cost beyond the hold when the next hold ends.
    beyond: i64,
    by_day: BTreeMap<String, i64>,
    by_month: BTreeMap<String, i64>,
    last: UnixMs,
    open: Vec<HoldId>,
}

impl History {
    fn apply(&mut self, record: Record) -> HoldId {
        let seq = u64::try_from(self.journal.len()).expect("few") + 1;
        if let Some(charged) = record.charged() {
            let owed = match &record {
                Record::PostedOwing { owed, .. } => owed.get(),
                _ => 0,
            };
            let cost = charged.get() + owed - std::mem::take(&mut self.beyond);
            // After a clock was set back, the last day goes on.
            self.last = self.last.max(record.at());
            let date = self.last.to_rfc3339();
            *self.by_day.entry(date[..10].to_owned()).or_default() += cost;
            *self.by_month.entry(date[..7].to_owned()).or_default() += cost;
        }
        if record.ends_hold() {
            let ended = record.open_hold();
            self.open.retain(|hold| Some(*hold) != ended);
        }
        self.core.apply(seq, &record).expect("decided is allowed");
        self.journal.push(record);
        HoldId::from_number(seq)
    }

    fn step(&mut self, step: Step, now: &mut UnixMs) {
        let at = *now;
        let chosen = |history: &Self, index: usize| history.open.get(index).copied();
        match step {
            Step::Pass(ms) => now.0 = now.0.saturating_add_signed(ms),
            Step::Reserve(amount) => {
                let reservation = Reservation {
                    account: ACCOUNT,
                    key: KEY,
                    model: "m".into(),
                    price: None,
                    request: RequestId::from_number(1),
                    amount: money(amount),
                    floor: money(amount),
                    at,
                };
                if let Ok(record) = self.core.decide_reserve(Arc::new(reservation)) {
                    let hold = self.apply(record);
                    self.open.push(hold);
                }
            }
            Step::Extend(index, more) => {
                let Some(hold) = chosen(self, index) else { return };
                if let Ok(record) = self.core.decide_extend(ACCOUNT, hold, money(more), at) {
                    self.apply(record);
                }
            }
            Step::Post(index, charge) => {
                let Some(hold) = chosen(self, index) else { return };
                let held = self.core.hold(hold).expect("open").amount.get();
                self.beyond = (charge - held).max(0);
                let used = (Usage::default(), UsageSource::Upstream);
                let post = self.core.decide_post(hold, money(charge), used, at).expect("open");
                assert_eq!(post.charged.get() + post.owed.get(), charge);
                post.extension.into_iter().chain([post.record]).for_each(|record| {
                    self.apply(record);
                });
            }
            Step::Void(index) => {
                let Some(hold) = chosen(self, index) else { return };
                let reason = VoidReason::Unreached;
                self.apply(Record::Voided { account: ACCOUNT, hold, reason, at });
            }
            Step::Recover(index) => {
                let Some(hold) = chosen(self, index) else { return };
                let record = self.core.decide_recovery(hold, RecoveryPolicy::Floor, at);
                self.apply(record.expect("open"));
            }
        }
    }
}

fn key() -> Key {
    Key {
        id: KEY,
        account: ACCOUNT,
        hash: KeyHash::of(b"key"),
        name: "key".into(),
        models: None,
        expires_at: None,
        disabled: false,
        created_at: BEGIN,
        updated_at: BEGIN,
    }
}

/// A history before any step: much money, and a key with these limits.
fn history(day: i64, month: i64) -> History {
    let mut history = History {
        core: Core::default(),
        journal: Vec::new(),
        beyond: 0,
        by_day: BTreeMap::new(),
        by_month: BTreeMap::new(),
        last: BEGIN,
        open: Vec::new(),
    };
    history.apply(Record::AccountCreated { account: ACCOUNT, name: "a".into(), at: BEGIN });
    let grant = history.core.decide_grant(ACCOUNT, "first", money(1_000_000), BEGIN);
    let Ok(Decision::New(grant)) = grant else { panic!("{grant:?}") };
    history.apply(grant);
    history.apply(Record::KeyCreated(Arc::new(key())));
    let limits = KeyLimits {
        rates: Rates::NONE,
        spend_per_day: Some(money(day)),
        spend_per_month: Some(money(month)),
    };
    history.apply(Record::KeyLimited { account: ACCOUNT, key: KEY, limits, at: BEGIN });
    history
}

#[test]
fn no_day_and_no_month_passes_its_limit_in_any_history() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let config = Config {
        cases: 600,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    };
    let run = TestRunner::new(config).run(&(100_i64..900, 300_i64..2000, steps()), |input| {
        let (day, month, steps) = input;
        let (mut history, mut now) = (history(day, month), BEGIN);
        for step in steps {
            history.step(step, &mut now);
            for (date, spent) in &history.by_day {
                prop_assert!(*spent <= day, "{} of {} on {}", spent, day, date);
            }
            for (date, spent) in &history.by_month {
                prop_assert!(*spent <= month, "{} of {} in {}", spent, month, date);
            }
            let found = violations([&history.core].into_iter());
            prop_assert!(found.is_empty(), "{:?}", found);
        }
        let mut replayed = Core::default();
        for (record, seq) in history.journal.iter().zip(1..) {
            replayed.apply(seq, record).expect("replays");
        }
        let hash = |core: &Core| state_hash([core].into_iter());
        prop_assert_eq!(hash(&replayed), hash(&history.core));
        Ok(())
    });
    run.expect("holds");
}

#[test]
fn what_could_not_have_been_decided_is_refused() {
    let mut history = history(100, 100);
    let seq = u64::try_from(history.journal.len()).expect("few") + 1;
    let limits = KeyLimits::default();
    let below = KeyLimits { spend_per_day: Some(money(-1)), ..limits };
    let other = KeyId::from_number(7);
    for (what, record) in [
        ("no such key", Record::KeyLimited { account: ACCOUNT, key: other, limits, at: BEGIN }),
        ("below zero", Record::KeyLimited { account: ACCOUNT, key: KEY, limits: below, at: BEGIN }),
        (
            "no such account",
            Record::AccountLimited {
                account: AccountId::from_number(9),
                rates: Rates::NONE,
                at: BEGIN,
            },
        ),
    ] {
        assert!(history.core.apply(seq, &record).is_err(), "{what} was taken");
    }
}

/// Journals that were written before still mean what they meant: a variant's number, and the bytes of
/// one that were ever written, never change.
#[test]
fn records_are_written_as_they_always_were() {
    let at = UnixMs(5);
    let (account, hold) = (AccountId::from_number(1), HoldId::from_number(3));
    let usage = Usage::default();
    let bytes = |record: &Record| postcard::to_stdvec(record).expect("encodes");
    let voided = Record::Voided { account, hold, reason: VoidReason::ClientDisconnected, at };
    assert_eq!(bytes(&voided), [8, 1, 3, 2, 5]);
    let posted = Record::Posted {
        account,
        hold,
        charged: money(1),
        written_off: money(0),
        usage,
        source: UsageSource::Upstream,
        at,
    };
    assert_eq!(bytes(&posted), [7, 1, 3, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5]);
    let owing = Record::PostedOwing {
        account,
        hold,
        charged: money(1),
        owed: money(2),
        written_off: money(0),
        usage,
        source: UsageSource::Upstream,
        at,
    };
    assert_eq!(bytes(&owing), [29, 1, 3, 2, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5]);
    let paid = Record::DebtPaid { account, amount: money(1), at };
    assert_eq!(bytes(&paid), [30, 1, 2, 5]);
    let (id, note) = ("w".to_owned(), "n".to_owned());
    let given_up = Record::WrittenOff { account, id, amount: money(1), note, at };
    assert_eq!(bytes(&given_up), [31, 1, 1, b'w', 2, 1, b'n', 5]);
    let lost = Record::Lost(Arc::new(LossRecord {
        account,
        key: KEY,
        model: "m".into(),
        upstream: "u".to_owned(),
        request: RequestId::from_number(3),
        cause: "c".to_owned(),
        amount: money(1),
        at,
    }));
    assert_eq!(bytes(&lost), [32, 1, 2, 1, b'm', 1, b'u', 3, 1, b'c', 2, 5]);
    let created =
        bytes(&Record::KeyCreated(Arc::new(Key { created_at: at, updated_at: at, ..key() })));
    assert_eq!((created[0], created.len()), (3, 1 + 2 + 32 + 4 + 1 + 1 + 1 + 2));
    let limited = Record::KeyLimited {
        account,
        key: KEY,
        limits: KeyLimits {
            rates: Rates {
                requests_per_minute: some(60),
                tokens_per_minute: None,
                concurrent_requests: some(2),
            },
            spend_per_day: Some(money(7)),
            spend_per_month: None,
        },
        at,
    };
    assert_eq!(bytes(&limited), [11, 1, 2, 1, 60, 0, 1, 2, 1, 14, 0, 5]);
    let rates = Rates { tokens_per_minute: some(3), ..Rates::NONE };
    assert_eq!(bytes(&Record::AccountLimited { account, rates, at }), [12, 1, 0, 1, 3, 0, 5]);
}
