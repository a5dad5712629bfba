//! Credit lines and hold rules of an open ledger: over restarts, from sled, from a checkpoint and from the
//! journal alone.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tollgate::ledger::{
    AccountId, AccountPatch, Actor, EntryKind, HoldsPatch, IdempotencyKey, KeyId, Ledger,
    LedgerError, MaintenanceOptions, Options, RequestId, Reserve, Settlement, VoidReason, verify,
};
use tollgate::money::Nanousd;
use tollgate::options::holds::{HoldOverrides, Means};
use tollgate::price::{Usage, UsageSource};

use crate::harness::within;

const PATIENCE: Duration = Duration::from_secs(60);

fn usd(nanousd: i64) -> Nanousd {
    Nanousd::new(nanousd)
}

fn open(dir: &Path, checkpoint_interval: Duration) -> Arc<Ledger> {
    let maintenance = MaintenanceOptions { checkpoint_interval, archive: None, on_event: None };
    let options = Options {
        maintenance,
        segment_bytes_max: 4 << 10,
        disk_free_bytes_min: 0,
        ..Options::new(dir)
    };
    Ledger::open(options).unwrap_or_else(|error| panic!("{error}")).0
}

fn line(limit: i64) -> AccountPatch {
    AccountPatch { credit_limit: Some(usd(limit)), ..AccountPatch::default() }
}

fn reserve(account: AccountId, amount: i64) -> Reserve {
    Reserve {
        account,
        key: KeyId::from_number(7),
        model: "m".into(),
        price: None,
        request: RequestId::new(),
        amount: usd(amount),
        floor: Nanousd::ZERO,
    }
}

fn settlement(charge: i64) -> Settlement {
    Settlement { charge: usd(charge), usage: Usage::ZERO, source: UsageSource::Upstream }
}

async fn set(ledger: &Ledger, account: AccountId, limit: i64) -> Result<(), LedgerError> {
    ledger.by(&Actor::Gateway).update_account(account, line(limit)).await.map(drop)
}

/// The figures of an account: granted, available, held, spent, debt, credit.
fn figures(ledger: &Ledger, account: AccountId) -> [i64; 6] {
    let balance = ledger.account(account).expect("the account").balance;
    [balance.granted, balance.available, balance.held, balance.spent, balance.debt, balance.credit]
        .map(Nanousd::get)
}

#[tokio::test]
async fn a_line_is_lent_drawn_paid_back_and_withdrawn() {
    let dir = TempDir::new().expect("a directory");
    let ledger = open(dir.path(), Duration::MAX);
    let account = ledger.create_account("a").await.expect("an account").id;
    ledger.grant(account, "g", usd(10)).await.expect("a grant");
    set(&ledger, account, 100).await.expect("a line");
    assert_eq!(figures(&ledger, account), [110, 110, 0, 0, 0, 100]);
    let hold = ledger.reserve(reserve(account, 60)).expect("a hold");
    let refused = set(&ledger, account, 0).await.expect_err("10 of the line are in flight");
    assert_eq!(refused, LedgerError::CreditInFlight(usd(50)));
    assert!(refused.to_string().contains("at least 0.00000005"), "{refused}");
    set(&ledger, account, 50).await.expect("as much as is not in flight");
    set(&ledger, account, 100).await.expect("raised again");
    hold.post(settlement(60));
    assert_eq!(figures(&ledger, account), [110, 50, 0, 60, 0, 100]);
    set(&ledger, account, 20).await.expect("a lower line");
    assert_eq!(figures(&ledger, account), [30, 0, 0, 30, 30, 20]);
    assert!(ledger.reserve(reserve(account, 1)).is_err(), "who owes gets nothing");
    ledger.grant(account, "h", usd(35)).await.expect("a grant");
    assert_eq!(figures(&ledger, account), [65, 5, 0, 60, 0, 20], "the debt is paid first");
    let lines = ledger.entries(account, None, 10).await.expect("entries");
    let of_line = |kind: &EntryKind| matches!(kind, EntryKind::CreditLine { .. });
    assert_eq!(lines.iter().filter(|entry| of_line(&entry.kind)).count(), 4);
    let lowered =
        EntryKind::CreditLine { limit: usd(20), lent: usd(0), withdrawn: usd(50), owed: usd(30) };
    assert!(lines.iter().any(|entry| entry.kind == lowered), "{lines:?}");
    ledger.close();
    drop(ledger);
    let report = verify(dir.path()).expect("readable");
    assert_eq!((report.violations, report.total.credit), (Vec::new(), usd(20)));
    let lines = report.books.lines.iter().find(|line| line.account == "credit_lines");
    assert_eq!(lines.map(|line| line.debit), Some(usd(20)));
}

#[tokio::test]
async fn a_line_that_cannot_be_set_changes_nothing_of_the_same_write() {
    let dir = TempDir::new().expect("a directory");
    let ledger = open(dir.path(), Duration::MAX);
    let account = ledger.create_account("a").await.expect("an account").id;
    set(&ledger, account, 10).await.expect("a line");
    let hold = ledger.reserve(reserve(account, 10)).expect("a hold");
    for (limit, is_held) in [(9, true), (-1, false), (i64::MIN, false)] {
        let name = Some("b".to_owned());
        let patch = AccountPatch { name, ..line(limit) };
        let refused = ledger.by(&Actor::Gateway).update_account(account, patch).await;
        let refused = refused.expect_err("it cannot be set");
        assert_eq!(matches!(refused, LedgerError::CreditInFlight(_)), is_held, "{refused}");
        assert_eq!(ledger.account(account).expect("there").name, "a");
    }
    hold.void(VoidReason::Unreached);
    ledger.grant(account, "g", usd(1)).await.expect("a grant");
    let refused = set(&ledger, account, i64::MAX).await.expect_err("it does not fit");
    assert!(matches!(refused, LedgerError::Invalid(_)), "{refused}");
    assert_eq!(figures(&ledger, account), [11, 11, 0, 0, 0, 10]);
}

/// A repeated write, and its figure with another id: the line is lent once.
#[tokio::test]
async fn a_repeated_write_lends_once() {
    let dir = TempDir::new().expect("a directory");
    let ledger = open(dir.path(), Duration::MAX);
    let account = ledger.create_account("a").await.expect("an account").id;
    let patch = AccountPatch { suspended: Some(true), ..line(30) };
    for (id, repeated) in [("one", false), ("one", true), ("two", false)] {
        let key = IdempotencyKey { id: Some(id.to_owned()), digest: [1; 32] };
        let by = ledger.by(&Actor::Gateway).with_idempotency_key(key);
        let written = by.update_account(account, patch.clone()).await.expect("written");
        assert_eq!(written.repeated, repeated, "{id}");
    }
    assert_eq!(figures(&ledger, account), [30, 30, 0, 0, 0, 30], "also of a suspended account");
    for limit in [0, 30, 0, 30, 0] {
        set(&ledger, account, limit).await.expect("a line");
    }
    assert_eq!(figures(&ledger, account), [0; 6]);
}

#[tokio::test]
async fn hold_rules_of_an_account_are_read_and_changed_field_by_field() {
    let dir = TempDir::new().expect("a directory");
    let ledger = open(dir.path(), Duration::MAX);
    let account = ledger.create_account("a").await.expect("an account").id;
    assert_eq!(ledger.hold_overrides(account), None);
    let hold_by = async |holds: HoldsPatch| {
        let patch = AccountPatch { holds, ..AccountPatch::default() };
        ledger.by(&Actor::Gateway).update_account(account, patch).await.map(drop)
    };
    let means = vec![Means::Clamp];
    let some = HoldsPatch { means: Some(Some(means.clone())), ..HoldsPatch::default() };
    hold_by(some).await.expect("set");
    let more = HoldsPatch { output_floor: Some(Some(9)), ..HoldsPatch::default() };
    hold_by(more).await.expect("set");
    let both =
        HoldOverrides { means: Some(means), output_floor: Some(9), ..HoldOverrides::default() };
    assert_eq!(ledger.hold_overrides(account).as_deref(), Some(&both));
    let none = HoldsPatch { slice: Some(Some(0)), ..HoldsPatch::default() };
    hold_by(none).await.expect_err("no slice");
    let hash = ledger.state_hash();
    ledger.close();
    drop(ledger);
    let ledger = open(dir.path(), Duration::MAX);
    assert_eq!(ledger.hold_overrides(account).as_deref(), Some(&both));
    assert_eq!(ledger.state_hash(), hash);
    let back = HoldsPatch { means: Some(None), output_floor: Some(None), ..HoldsPatch::default() };
    let patch = AccountPatch { holds: back, ..AccountPatch::default() };
    ledger.by(&Actor::Gateway).update_account(account, patch).await.expect("set");
    assert_eq!(ledger.hold_overrides(account), None);
}

/// Random calls, grants and lines, and then every way in which a start finds the state.
#[test]
fn every_start_gives_the_state_that_there_was() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let dir = TempDir::new().expect("a directory");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let mut ledger = open(dir.path(), Duration::ZERO);
    let accounts: Vec<_> = runtime.block_on(async {
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(ledger.create_account("a").await.expect("an account").id);
        }
        ids
    });
    let checkpoints = || {
        let files = fs::read_dir(dir.path().join("checkpoints")).into_iter().flatten().flatten();
        files.filter(|file| file.path().extension().is_some_and(|end| end == "ckp")).count()
    };
    for round in 0..6 {
        runtime.block_on(async {
            for step in 0..60 {
                let account = accounts[random.usize(..3)];
                match random.u8(..6) {
                    0 => {
                        let id = format!("{round}-{step}");
                        ledger.grant(account, &id, usd(random.i64(1..50))).await.expect("a grant");
                    }
                    1 | 2 => drop(set(&ledger, account, random.i64(0..200)).await),
                    _ => {
                        let Ok(hold) = ledger.reserve(reserve(account, random.i64(0..80))) else {
                            continue;
                        };
                        hold.post(settlement(random.i64(0..120)));
                    }
                }
            }
        });
        within(PATIENCE, || round != 4 || checkpoints() > 0, || "no checkpoint".to_owned());
        let hash = ledger.state_hash();
        ledger.close();
        drop(ledger);
        let report = verify(dir.path()).expect("readable");
        assert_eq!(report.violations, Vec::<String>::new(), "seed {seed}");
        if round % 3 == 1 {
            fs::remove_dir_all(dir.path().join("sled")).expect("removed");
        }
        ledger = open(dir.path(), Duration::ZERO);
        assert_eq!(ledger.state_hash(), hash, "seed {seed}, round {round}");
    }
    let hash = ledger.state_hash();
    ledger.close();
    drop(ledger);
    for missing in ["sled", "checkpoints"] {
        // Without sled a start takes the checkpoint, and without both the journal.
        drop(fs::remove_dir_all(dir.path().join("sled")));
        drop(fs::remove_dir_all(dir.path().join(missing)));
        let ledger = open(dir.path(), Duration::MAX);
        assert_eq!(ledger.state_hash(), hash, "seed {seed}, without {missing}");
        ledger.close();
        assert!(missing == "checkpoints" || checkpoints() > 0, "there was one to start from");
    }
}
