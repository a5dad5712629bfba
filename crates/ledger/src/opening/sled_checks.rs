//! Tests of the sled check on an open ledger, next to that of a stopped one. They are in the top
//! layer because they open ledgers, spend and read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{
    Actor, Hold, Ledger, Options, Reserve, Settlement, VerificationReport, VoidReason, verify,
};
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Usage, UsageSource};
use tollgate_types::ids::{AccountId, KeyId, RequestId};

const ACCOUNTS: usize = 12;
/// Trials with flipped bits: so many at least, and then until two of them were damage that both checks
/// can find.
const TRIALS_MIN: u32 = 6;
const TRIALS_MAX: u32 = 60;

fn open(dir: &Path) -> Arc<Ledger> {
    // Trials have copies.
    Ledger::open(Options { accept_fork: true, ..Options::new(dir) }).expect("opens").0
}

/// A ledger with rows of most kinds, all of them in sled: `grants` for each account, some at a time.
async fn history(dir: &Path, grants: usize) -> Vec<AccountId> {
    let ledger = open(dir);
    let mut accounts = Vec::new();
    for number in 0..ACCOUNTS {
        let by = ledger.by(&Actor::operator("ada"));
        let account = by.create_account(&format!("customer {number}")).await.expect("made").value;
        accounts.push(account.id);
    }
    for first in (0..grants).step_by(10) {
        let mut writes = tokio::task::JoinSet::new();
        for (account, number) in accounts.iter().zip(0_usize..).flat_map(|(account, place)| {
            (first..grants.min(first + 10)).map(move |grant| (*account, place * 1_000 + grant))
        }) {
            let ledger = Arc::clone(&ledger);
            writes.spawn(async move {
                let by = ledger.by(&Actor::operator("ada"));
                let id = format!("invoice {number:0>100}");
                by.grant(account, &id, Nanousd::new(1_000)).await.expect("a grant");
            });
        }
        writes.join_all().await;
        // Sled takes what it has not: rows are replaced, and older ones stay in its file.
        ledger.entries(accounts[0], None, 1).await.expect("entries");
    }
    ledger.close();
    accounts
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("readable") {
        let entry = entry.expect("readable");
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).expect("copied");
        }
    }
}

/// Flips bits of sled's file, among those that are not zero: the rest of a segment is padding.
fn flip(dir: &Path, random: &mut fastrand::Rng, bits: usize) {
    let path = dir.join("sled").join("db");
    let mut bytes = fs::read(&path).expect("readable");
    let written: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    for _ in 0..bits {
        bytes[written[random.usize(..written.len())]] ^= 1 << random.u32(..8);
    }
    // In place: a running ledger has it open.
    let file = fs::OpenOptions::new().write(true).open(&path).expect("opens");
    file.write_all_at(&bytes, 0).expect("written");
}

fn offline(dir: &Path) -> Vec<String> {
    verify(dir).expect("reads").violations
}

async fn online(ledger: &Ledger) -> VerificationReport {
    ledger.verify().await.expect("reads")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_ledger_is_compared_whole() {
    let dir = tempfile::tempdir().expect("a directory");
    history(dir.path(), 6).await;
    let of_file = verify(dir.path()).expect("reads");
    let ledger = open(dir.path());
    let report = online(&ledger).await;
    assert_eq!(report.violations, Vec::<String>::new());
    let sled = &report.sled;
    assert!(sled.compared && sled.rows > 100 && sled.bytes > sled.rows, "{sled:?}");
    assert_eq!(sled.record, report.records);
    assert_eq!(report.sled_hash.as_ref(), Some(&report.state_hash));
    assert_eq!((of_file.sled.compared, of_file.sled.rows), (true, sled.rows));
    // The next one finds the turn free.
    assert!(online(&ledger).await.sled.compared);
}

/// Whatever the check of a stopped gateway finds in sled, the check of a running one finds.
#[tokio::test(flavor = "multi_thread")]
async fn flipped_bits_of_sled_are_found_while_the_ledger_is_open() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let whole = tempfile::tempdir().expect("a directory");
    history(whole.path(), 300).await;
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    let found_in_both =
        |seen: &BTreeMap<&str, u32>| seen.get("found in both").copied().unwrap_or(0);
    for trial in 0.. {
        if trial >= TRIALS_MIN && found_in_both(&seen) >= 2 {
            break;
        }
        assert!(trial < TRIALS_MAX, "{seen:?}");
        let dir = tempfile::tempdir().expect("a directory");
        copy(whole.path(), dir.path());
        let is_open_before = trial % 2 == 0;
        let mut ledger = None;
        if is_open_before {
            ledger = Some(open(dir.path()));
        }
        flip(dir.path(), &mut random, 8);
        let beside = tempfile::tempdir().expect("a directory");
        copy(dir.path(), beside.path());
        let by_file = offline(beside.path());
        let ledger = match ledger {
            Some(ledger) => ledger,
            // A start that finds damage makes sled anew by itself.
            None => open(dir.path()),
        };
        let report = online(&ledger).await;
        ledger.close();
        drop(ledger);
        let left = offline(dir.path());
        let found = !report.violations.is_empty();
        if is_open_before {
            assert!(found || by_file.is_empty(), "trial {trial}: {by_file:?}, and open {report:?}");
        }
        assert!(found || left.is_empty(), "trial {trial}: {left:?} is left, and open {report:?}");
        let what = match (is_open_before, by_file.is_empty(), found) {
            (true, false, _) => "found in both",
            (true, true, true) => "found while open alone",
            (true, true, false) => "not to be found",
            (false, _, true) => "found after a start",
            (false, false, false) => "mended by a start",
            (false, true, false) => "not to be found after a start",
        };
        *seen.entry(what).or_default() += 1;
    }
    println!("{seen:?}");
}

/// Lost and altered rows of sled are found if every page is readable.
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_say_something_else_are_found_while_the_ledger_is_open() {
    let other_state = "sled and the journal give different states";
    for (prefix, expected) in [
        (b'g', other_state),
        (b'k', ""),
        (b'e', ""),
        (b'A', "sled and the journal tell differently who did what"),
        (b'a', "a row belongs to no account"),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        history(dir.path(), 6).await;
        let ledger = open(dir.path());
        let removed = ledger.projected.inspect(|store| store.remove_first(prefix));
        assert_eq!(removed.expect("written"), prefix != b'k', "there are no keys");
        let report = online(&ledger).await;
        ledger.close();
        drop(ledger);
        let by_file = offline(dir.path());
        for found in [&report.violations, &by_file] {
            let is_found = found.iter().any(|violation| violation.contains(expected));
            assert_eq!(found.is_empty(), expected.is_empty(), "{}: {found:?}", char::from(prefix));
            assert!(is_found || expected.is_empty(), "{}: {found:?}", char::from(prefix));
        }
    }
}

/// A call that is held, and then posted, voided or left open for a while.
fn spend(
    ledger: &Arc<Ledger>,
    account: AccountId,
    open: &mut Vec<Hold>,
    random: &mut fastrand::Rng,
) {
    let reserve = Reserve {
        account,
        key: KeyId::from_number(random.u64(1..4)),
        model: "m".into(),
        price: None,
        request: RequestId::from_number(random.u128(..)),
        amount: Nanousd::new(500),
        floor: Nanousd::ZERO,
    };
    open.extend(ledger.reserve(reserve));
    while open.len() > random.usize(..20) {
        let hold = open.swap_remove(random.usize(..open.len()));
        let charge = Nanousd::new(random.i64(..500));
        let (usage, source) = (Usage::default(), UsageSource::Upstream);
        match random.u8(..4) {
            0 => hold.void(VoidReason::UpstreamError),
            _ => drop(hold.post(Settlement { charge, usage, source })),
        }
    }
}

/// Writes never look like damage: calls, grants and queries, which have sled write at once, go on while
/// it is read a row at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_found_in_a_sound_ledger_under_load() {
    let dir = tempfile::tempdir().expect("a directory");
    let accounts = history(dir.path(), 6).await;
    let ledger = open(dir.path());
    let is_over = AtomicBool::new(false);
    let (mut compared, mut records) = (0, BTreeSet::new());
    let load = async {
        let (mut random, mut open) = (fastrand::Rng::new(), Vec::new());
        for number in 0_u64.. {
            if is_over.load(Ordering::Relaxed) {
                break;
            }
            let account = accounts[random.usize(..accounts.len())];
            let by = ledger.by(&Actor::operator("ada"));
            let id = format!("more {number}");
            by.grant(account, &id, Nanousd::new(5_000)).await.expect("a grant");
            spend(&ledger, account, &mut open, &mut random);
            if number % 3 == 0 {
                ledger.entries(account, None, 1).await.expect("entries");
            }
            if number % 17 == 0 {
                let by = ledger.by(&Actor::operator("ada"));
                by.create_account(&format!("late {number}")).await.expect("made");
            }
        }
    };
    let checks = async {
        for _ in 0..25 {
            let report = online(&ledger).await;
            assert_eq!(report.violations, Vec::<String>::new());
            compared += u32::from(report.sled.compared);
            records.insert(report.sled.record);
        }
        is_over.store(true, Ordering::Relaxed);
    };
    let ((), ()) = tokio::join!(load, checks);
    assert_eq!(compared, 25);
    assert!(records.len() > 10, "sled was read at {records:?}");
    ledger.close();
    drop(ledger);
    assert_eq!(offline(dir.path()), Vec::<String>::new());
}
