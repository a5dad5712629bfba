//! Compaction of sled: it is rewritten without old statement lines, its size stays constant, and all queries
//! return the same.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate::ledger::{
    self, AccountId, CallName, EntryKind, Ledger, MaintenanceOptions, OfflineRecords, Options,
    Pruning, StatementEntry, VoidReason, verify,
};
use tollgate::money::Nanousd;

use crate::harness;
use crate::harness::child::kill_after;
use crate::harness::ledger::{reserve, runtime, settlement, small_segments, statements};

const PATIENCE: Duration = Duration::from_secs(60);
/// Sled as it was before it was ever packed.
const NEVER: Pruning = Pruning { keep: Duration::MAX, lines_max: u64::MAX, growth_min: u64::MAX };
/// Nothing stays that is in a sealed segment.
const AT_ONCE: Pruning = Pruning { keep: Duration::ZERO, lines_max: 0, growth_min: 0 };

fn options(dir: &Path, archive: Option<&Path>, pruning: Pruning) -> Options {
    Options { pruning, ..small_segments(dir, archive) }
}

/// Without more checkpoints, files in the archive or packing.
fn open(dir: &Path) -> Arc<Ledger> {
    let maintenance = MaintenanceOptions {
        checkpoint_interval: Duration::MAX,
        ..options(dir, None, NEVER).maintenance
    };
    let options = Options { maintenance, ..options(dir, None, NEVER) };
    Ledger::open(options).unwrap_or_else(|error| panic!("{error}")).0
}

/// A closed ledger of many segments, the first of which is in the archive.
fn history(dir: &Path, archive: &Path) -> Vec<AccountId> {
    let (ledger, _) = Ledger::open(options(dir, Some(archive), NEVER)).expect("opens");
    let mut accounts = Vec::new();
    runtime().block_on(async {
        for _ in 0..4 {
            let id = ledger.create_account("one").await.expect("an account").id;
            ledger.grant(id, "g", Nanousd::new(1 << 40)).await.expect("a grant");
            accounts.push(id);
        }
        let (begun, mut calls) = (Instant::now(), 0_usize);
        let first = dir.join("journal/0000000000000001.seg");
        // A call that lasts from the first segment to the last.
        let mut long = Some(ledger.reserve(reserve(accounts[0], 100)).expect("a hold"));
        while calls < 600 || first.exists() {
            let hold = ledger.reserve(reserve(accounts[calls % 4], 100)).expect("a hold");
            if calls % 5 == 0 {
                hold.void(VoidReason::Unreached);
            } else {
                hold.post(settlement(i64::try_from(calls % 97).expect("small")));
            }
            if calls % 10 == 0 {
                let (account, id) = (accounts[calls % 4], calls.to_string());
                ledger.grant(account, &id, Nanousd::new(5)).await.expect("a grant");
            }
            if calls == 400 {
                long.take().expect("one").post(settlement(99));
            }
            calls += 1;
            // From here on it is waited for the archive, with some calls to give it reason.
            if calls > 600 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert!(begun.elapsed() < PATIENCE, "nothing is archived");
        }
        ledger.close();
    });
    accounts
}

/// Everything that queries tell of some accounts.
fn queried(ledger: &Arc<Ledger>, accounts: &[AccountId]) -> String {
    runtime().block_on(async {
        let queried = statements(ledger, accounts).await;
        for account in accounts {
            let entries = ledger.entries(*account, None, 1000).await.expect("entries");
            for entry in entries.iter().rev().step_by(5) {
                let Some(call) = &entry.call else { continue };
                let by_hold = CallName::Hold(call.hold, None);
                let found = ledger.call_money(*account, by_hold).await.expect("read");
                assert_eq!(found.and_then(|found| found.end).as_ref(), Some(entry));
                // A search by the request reads a few files only, and these here are very small.
                if entry.seq >= 60 {
                    continue;
                }
                let by_request = CallName::Request(call.request, entry.at);
                let found = ledger.call_money(*account, by_request).await.expect("read");
                assert_eq!(found.and_then(|found| found.end).as_ref(), Some(entry));
            }
        }
        queried
    })
}

fn queried_once(dir: &Path, accounts: &[AccountId]) -> String {
    let ledger = open(dir);
    let queried = queried(&ledger, accounts);
    ledger.close();
    queried
}

/// Opens it as `options` say until sled was made anew, and does something meanwhile.
fn pack(options: Options) {
    let (ledger, _) = Ledger::open(options).expect("opens");
    runtime().block_on(async {
        let other = ledger.create_account("another").await.expect("an account").id;
        let (begun, mut count) = (Instant::now(), 0_u32);
        while ledger.projection_state().packed == 0 {
            ledger.grant(other, &count.to_string(), Nanousd::new(1)).await.expect("a grant");
            ledger.entries(other, None, 1).await.expect("entries");
            count += 1;
            assert!(begun.elapsed() < PATIENCE, "{:?}", ledger.projection_state());
        }
        assert_eq!(ledger.projection_state().away, None);
        ledger.close();
    });
}

fn away(path: &Path) -> std::path::PathBuf {
    path.with_extension("away")
}

#[test]
fn statements_and_usage_tell_the_same_across_the_bound() {
    let (dir, archive) = (TempDir::new().expect("one"), TempDir::new().expect("another"));
    let accounts = history(dir.path(), archive.path());
    let expected = queried_once(dir.path(), &accounts);
    pack(options(dir.path(), Some(archive.path()), AT_ONCE));
    assert_eq!(queried_once(dir.path(), &accounts), expected);

    // What was left behind is in the journal only.
    fs::rename(archive.path(), away(archive.path())).expect("renamed");
    let ledger = open(dir.path());
    let account = accounts[0];
    runtime().block_on(async {
        let newest = ledger.entries(account, None, 1).await.expect("sled's");
        assert_eq!(newest.len(), 1);
        let error = ledger.entries(account, Some(60), 7).await.expect_err("the archive's");
        assert!(error.to_string().contains(".seg.zst"), "{error}");
    });
    ledger.close();
    drop(ledger);
    fs::rename(away(archive.path()), archive.path()).expect("renamed");

    // A refund of a call that only the journal knows.
    let ledger = open(dir.path());
    runtime().block_on(async {
        let old = ledger.entries(account, Some(200), 50).await.expect("the archive's");
        let charged = |kind: &EntryKind| match kind {
            EntryKind::Settlement { charged, .. } => Some(*charged),
            _ => None,
        };
        let mut oldest_first = old.iter().rev();
        let paid = |entry: &StatementEntry| Some((entry.call.clone()?, charged(&entry.kind)?));
        let (call, charged) = oldest_first.find_map(paid).expect("a call");
        let too_much = charged.checked_add(Nanousd::new(1)).expect("small");
        ledger.refund(account, "more", call.hold, too_much).await.expect_err("more than was paid");
        ledger.refund(account, "all", call.hold, charged).await.expect("refunded");
    });
    ledger.close();
    drop(ledger);

    let report = verify(dir.path()).expect("readable");
    assert_eq!(report.violations, Vec::<String>::new());
    assert_eq!(report.sled_hash.as_ref(), Some(&report.state_hash));
    let records = OfflineRecords::open(dir.path(), 0).expect("a ledger").count();
    assert_eq!(records as u64, report.records);
    let copies = TempDir::new().expect("one");
    let (copy, restored) = (copies.path().join("copy"), copies.path().join("restored"));
    ledger::backup(dir.path(), &copy).expect("a backup");
    ledger::restore(&copy, &restored, None).expect("restored");
    let again = open(&restored);
    let found = queried(&again, &accounts);
    again.close();
    assert_eq!(found, queried_once(dir.path(), &accounts));
}

#[test]
fn nothing_is_let_go_that_could_not_be_read() {
    let (dir, archive) = (TempDir::new().expect("one"), TempDir::new().expect("another"));
    let accounts = history(dir.path(), archive.path());
    let expected = queried_once(dir.path(), &accounts);
    fs::rename(archive.path(), away(archive.path())).expect("renamed");
    pack(options(dir.path(), None, AT_ONCE));
    assert_eq!(queried_once(dir.path(), &accounts), expected, "without the archive");
    fs::rename(away(archive.path()), archive.path()).expect("renamed");
    pack(options(dir.path(), None, AT_ONCE));
    assert_eq!(queried_once(dir.path(), &accounts), expected);
    fs::rename(archive.path(), away(archive.path())).expect("renamed");
    let ledger = open(dir.path());
    let old = runtime().block_on(ledger.entries(accounts[0], Some(60), 7));
    old.expect_err("it was let go once it could be read");
    ledger.close();
}

/// The variable that makes this test binary the process that is killed.
const KILLED: &str = "TOLLGATE_TEST_PRUNE_DIR";

#[test]
#[ignore = "the process that `a_kill_while_sled_is_packed_loses_nothing` kills"]
#[expect(clippy::disallowed_methods, reason = "the test tells its own child where to work")]
fn packs_until_it_is_killed() {
    let Ok(dir) = std::env::var(KILLED) else { return };
    let (ledger, _) = Ledger::open(options(Path::new(&dir), None, AT_ONCE)).expect("opens");
    runtime().block_on(async {
        let account = ledger.create_account("killed").await.expect("an account").id;
        for count in 0_u32.. {
            ledger.grant(account, &count.to_string(), Nanousd::new(1)).await.expect("a grant");
            if count % 20 == 0 {
                ledger.entries(account, None, 1).await.expect("entries");
            }
            println!("\ngranted {account}");
        }
    });
}

#[test]
fn a_kill_while_sled_is_packed_loses_nothing() {
    let (dir, archive) = (TempDir::new().expect("one"), TempDir::new().expect("another"));
    let accounts = history(dir.path(), archive.path());
    let expected = queried_once(dir.path(), &accounts);
    for round in 0..12 {
        let mut child = harness::test_process(module_path!(), "packs_until_it_is_killed")
            .env(KILLED, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let is_grant = |line: &std::io::Result<String>| {
            line.as_ref().is_ok_and(|line| line.starts_with("granted "))
        };
        let first = lines.by_ref().find(is_grant).expect("a grant").expect("a line");
        kill_after(&mut child, Duration::from_millis(fastrand::u64(..400)));
        let acknowledged = 1 + lines.filter(is_grant).count() as u64;
        let ledger = open(dir.path());
        let killed: AccountId = first["granted ".len()..].parse().expect("an account");
        let granted = ledger.account(killed).expect("known").balance.granted.get();
        assert!(granted >= i64::try_from(acknowledged).expect("few"), "round {round}");
        let found = runtime().block_on(ledger.entries(killed, None, 1000)).expect("entries");
        assert_eq!(found.len() as i64, granted.min(1000), "round {round}");
        assert_eq!(queried(&ledger, &accounts), expected, "round {round}");
        ledger.close();
        drop(ledger);
        for left in ["sled.new", "sled.packed", "sled.old"] {
            assert!(!dir.path().join(left).exists(), "{left}, round {round}");
        }
    }
    let report = verify(dir.path()).expect("readable");
    assert_eq!(report.violations, Vec::<String>::new());
    assert_eq!(report.sled_hash.as_ref(), Some(&report.state_hash));
}
