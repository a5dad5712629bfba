//! A journal that lasts: segments are sealed, checkpoints make old ones unnecessary for a start, and the
//! archive has them when they are asked for.

mod bucket;
mod store;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tollgate::ledger::{
    self, AccountId, CallName, Ledger, MaintenanceOptions, OfflineRecords, OpenError, Options,
    Record, RecoveryReport, VoidReason, verify,
};
use tollgate::money::Nanousd;

use crate::harness::ledger::{
    files, remove_sled, reserve, runtime, segments, settlement, small_segments, statements,
};
use crate::harness::within;
use crate::harness::within_async;

const PATIENCE: Duration = Duration::from_secs(60);

/// Without more checkpoints than there are.
fn open(dir: &Path) -> Result<(Arc<Ledger>, RecoveryReport), OpenError> {
    let maintenance = MaintenanceOptions {
        checkpoint_interval: Duration::MAX,
        ..small_segments(dir, None).maintenance
    };
    Ledger::open(Options { maintenance, ..Options::new(dir) })
}

/// A copy that goes on under a name of its own.
fn copy_of(dir: &Path) -> TempDir {
    let copy = TempDir::new().expect("a directory");
    let from = dir.join(".");
    let copied = std::process::Command::new("cp").arg("-a").arg(from).arg(copy.path()).status();
    assert!(copied.expect("cp runs").success());
    let maintenance = MaintenanceOptions {
        checkpoint_interval: Duration::MAX,
        ..small_segments(dir, None).maintenance
    };
    let accepted = Options { accept_fork: true, maintenance, ..Options::new(copy.path()) };
    Ledger::open(accepted).expect("it goes on").0.close();
    copy
}

/// Does something that is allowed, now and then something that waits for the disk.
async fn act(ledger: &Arc<Ledger>, accounts: &mut Vec<AccountId>, random: &mut fastrand::Rng) {
    let any = accounts.get(random.usize(..accounts.len().max(1))).copied();
    match (random.u8(..20), any) {
        (0, _) | (_, None) => {
            accounts.push(ledger.create_account("one").await.expect("an account").id);
        }
        (1..=3, Some(account)) => {
            let (id, amount) = (random.u64(..).to_string(), random.i64(1..10_000));
            ledger.grant(account, &id, Nanousd::new(amount)).await.expect("a grant");
        }
        (_, Some(account)) => {
            let Ok(hold) = ledger.reserve(reserve(account, random.i64(..200))) else { return };
            match random.u8(..4) {
                0 => hold.void(VoidReason::Unreached),
                // More than was held: the account pays it or owes it.
                1 => drop(hold.post(settlement(500))),
                _ => drop(hold.post(settlement(random.i64(..100)))),
            }
        }
    }
}

/// A closed ledger of many segments, with two checkpoints at least.
fn history(dir: &Path, archive: Option<&Path>, seed: u64) -> Vec<AccountId> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (ledger, _) = Ledger::open(small_segments(dir, archive)).expect("opens");
    let mut accounts = Vec::new();
    runtime().block_on(async {
        let checkpoints = || {
            let head = fs::read_to_string(dir.join("head.json")).unwrap_or_default();
            head.matches("told_at").count()
        };
        let mut acts = 0;
        let is_archived = || {
            archive.is_none()
                || !files(&dir.join("journal"), "01.seal").is_empty()
                    && !dir.join("journal/0000000000000001.seg").exists()
        };
        while acts < 600 {
            act(&ledger, &mut accounts, &mut random).await;
            acts += 1;
        }
        within_async(
            PATIENCE,
            "two checkpoints are made, and the archive has the rest",
            async || {
                // Files are closed, and checkpoints made, when something is written.
                act(&ledger, &mut accounts, &mut random).await;
                checkpoints() >= 2 && is_archived()
            },
        )
        .await;
        ledger.close();
    });
    accounts
}

/// Everything that queries tell of some accounts.
fn opened(dir: &Path, accounts: &[AccountId]) -> (String, RecoveryReport) {
    let (ledger, recovery) = open(dir).unwrap_or_else(|error| panic!("{error}"));
    let opened = runtime().block_on(async {
        let mut opened = statements(&ledger, accounts).await;
        for account in accounts {
            opened.push_str(&format!("{:?}\n", ledger.keys_last_used(*account).await));
        }
        ledger.close();
        opened
    });
    (opened, recovery)
}

/// A checkpoint and what follows give the state, the statements and the usage of the whole journal.
#[test]
fn a_start_from_a_checkpoint_gives_what_the_whole_journal_gives() {
    for _ in 0..4 {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let dir = TempDir::new().expect("a directory");
        let accounts = history(dir.path(), None, seed);
        let report = verify(dir.path()).expect("readable");
        assert_eq!(report.violations, Vec::<String>::new(), "seed {seed}");
        assert_eq!(report.checkpoints, 2, "seed {seed}");
        let (expected, clean) = opened(dir.path(), &accounts);
        assert_eq!(clean.records_replayed, 0, "seed {seed}");
        remove_sled(dir.path());
        let (from_checkpoint, recovery) = opened(dir.path(), &accounts);
        assert!(recovery.sled_rebuilt, "seed {seed}");
        assert!(recovery.records_replayed < report.records, "a checkpoint was used, seed {seed}");
        assert_eq!(from_checkpoint, expected, "seed {seed}");
        let again = verify(dir.path()).expect("readable");
        assert_eq!(again.state_hash, report.state_hash, "seed {seed}");
        assert_eq!(again.sled_hash.as_ref(), Some(&report.state_hash), "seed {seed}");
        remove_sled(dir.path());
        fs::remove_dir_all(dir.path().join("checkpoints")).expect("removed");
        let (from_all, recovery) = opened(dir.path(), &accounts);
        assert!(recovery.records_replayed >= report.records, "all was read, seed {seed}");
        assert_eq!(from_all, expected, "seed {seed}");
    }
}

/// A partial checkpoint, or one that somebody replaced, is used by no start.
#[test]
fn a_checkpoint_that_the_journal_does_not_tell_of_is_not_used() {
    let dir = TempDir::new().expect("a directory");
    let accounts = history(dir.path(), None, 5);
    let (expected, _) = opened(dir.path(), &accounts);
    let checkpoints = files(&dir.path().join("checkpoints"), ".ckp");
    let [older, newer] = checkpoints.as_slice() else { panic!("{checkpoints:?}") };
    fs::write(dir.path().join("checkpoints/new"), b"half of one").expect("written");
    let kept = fs::read(newer).expect("readable");
    type Damage = fn(&Path, &Path);
    let damages: [(&str, Damage); 3] = [
        ("flipped", |_, newer| {
            let mut bytes = fs::read(newer).expect("readable");
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(newer, bytes).expect("written");
        }),
        ("exchanged", |older, newer| {
            fs::copy(older, newer).expect("copied");
        }),
        ("gone", |_, newer| fs::remove_file(newer).expect("removed")),
    ];
    for (what, damage) in damages {
        fs::write(newer, &kept).expect("written");
        damage(older, newer);
        let report = verify(dir.path()).expect("readable");
        assert!(!report.violations.is_empty(), "{what}: nothing was noticed");
        remove_sled(dir.path());
        let (found, recovery) = opened(dir.path(), &accounts);
        assert!(recovery.sled_rebuilt && recovery.records_replayed < report.records, "{what}");
        assert_eq!(found, expected, "{what}");
    }
}

/// A segment that is missing, cut or exchanged is noticed by every start, whether there is sled or not.
#[test]
fn a_missing_segment_is_noticed_at_the_start() {
    type Damage = fn(&[PathBuf]);
    let damages: [(&str, Damage); 6] = [
        ("the first is gone", |files| fs::remove_file(&files[0]).expect("removed")),
        ("a middle one is gone", |files| fs::remove_file(&files[2]).expect("removed")),
        ("a middle one is gone with its seal", |files| {
            fs::remove_file(&files[2]).expect("removed");
            fs::remove_file(files[2].with_extension("seal")).expect("removed");
        }),
        ("the last is gone", |files| {
            fs::remove_file(files.last().expect("one")).expect("removed");
        }),
        ("the last two are gone with their seals", |files| {
            for file in files.iter().rev().take(2) {
                fs::remove_file(file).expect("removed");
                drop(fs::remove_file(file.with_extension("seal")));
            }
        }),
        ("a middle one is shorter", |files| {
            let bytes = fs::read(&files[1]).expect("readable");
            fs::write(&files[1], &bytes[..bytes.len() - 1]).expect("written");
        }),
    ];
    let whole = TempDir::new().expect("a directory");
    history(whole.path(), None, 9);
    for (what, damage) in damages {
        for keeps_sled in [true, false] {
            let dir = copy_of(whole.path());
            let files = segments(dir.path());
            assert!(files.len() > 4, "{} segments", files.len());
            damage(&files);
            if !keeps_sled {
                remove_sled(dir.path());
            }
            let refused = open(dir.path()).map(|_| ()).expect_err(what);
            println!("{what}, with sled: {keeps_sled}: {refused}");
            let report = verify(dir.path()).expect("readable");
            assert!(!report.violations.is_empty(), "{what}: verify has not noticed");
        }
    }
}

/// Without what is noted beside the journal, a directory of an earlier version opens as it did, and is
/// sealed then.
#[test]
fn a_directory_without_seals_is_sealed_when_it_is_opened() {
    let dir = TempDir::new().expect("a directory");
    let accounts = history(dir.path(), None, 3);
    let (expected, _) = opened(dir.path(), &accounts);
    fs::remove_file(dir.path().join("head.json")).expect("removed");
    fs::remove_file(dir.path().join("journal/identity.json")).expect("removed");
    fs::remove_dir_all(dir.path().join("checkpoints")).expect("removed");
    for end in [".seal", ".accounts"] {
        let noted = files(&dir.path().join("journal"), end);
        assert!(noted.len() > 3, "{} of {end}", noted.len());
        noted.iter().for_each(|path| fs::remove_file(path).expect("removed"));
    }
    let (ledger, recovery) = open(dir.path()).expect("opens");
    assert_eq!(recovery.records_replayed, 0);
    let closed = segments(dir.path()).len() - 1;
    let are_sealed = || files(&dir.path().join("journal"), ".seal").len() >= closed;
    within(PATIENCE, are_sealed, || "not sealed".to_owned());
    ledger.close();
    drop(ledger);
    assert_eq!(opened(dir.path(), &accounts).0, expected);
}

/// Segments are moved once a copy was read back; statements, exports and checks go on as before.
#[test]
fn archived_segments_are_read_as_if_they_were_here() {
    let (dir, archive) = (TempDir::new().expect("one"), TempDir::new().expect("another"));
    let accounts = history(dir.path(), Some(archive.path()), 11);
    let report = verify(dir.path()).expect("readable");
    assert_eq!(report.violations, Vec::<String>::new());
    assert!(report.archived > 0 && report.archived < report.segments, "{}", report.archived);
    let of_ledger = fs::read_dir(archive.path()).expect("readable").next().expect("one");
    let moved = files(&of_ledger.expect("one").path(), ".seg.zst");
    assert_eq!(moved.len(), report.archived);
    let records = |from| -> Vec<u64> {
        let records = OfflineRecords::open(dir.path(), from).expect("a ledger");
        records.map(|record| record.expect("a record").0).collect()
    };
    let all: Vec<u64> = (1..=report.records).collect();
    assert_eq!(records(0), all);
    assert_eq!(records(20), all[19..]);
    let (expected, _) = opened(dir.path(), &accounts);
    remove_sled(dir.path());
    let (found, recovery) = opened(dir.path(), &accounts);
    assert!(recovery.records_replayed < report.records);
    assert_eq!(found, expected);
    // A list of accounts that was changed hides none of their lines.
    for list in files(&dir.path().join("journal"), ".accounts") {
        let mut bytes = fs::read(&list).expect("readable");
        bytes.iter_mut().for_each(|byte| *byte ^= 1);
        fs::write(&list, bytes).expect("written");
    }
    assert_eq!(opened(dir.path(), &accounts).0, expected);
    // Every way to a statement's line that is in the archive only.
    let (ledger, _) = open(dir.path()).expect("opens");
    runtime().block_on(async {
        let mut calls = 0;
        for account in &accounts {
            let entries = ledger.entries(*account, None, 1000).await.expect("entries");
            for entry in entries.iter().filter(|entry| entry.seq < 40) {
                let Some(call) = &entry.call else { continue };
                let by_hold = CallName::Hold(call.hold, None);
                let found = ledger.call_money(*account, by_hold).await.expect("read");
                assert_eq!(found.and_then(|found| found.end).as_ref(), Some(entry));
                let by_request = CallName::Request(call.request, entry.at);
                let found = ledger.call_money(*account, by_request).await.expect("read");
                assert_eq!(found.and_then(|found| found.end).as_ref(), Some(entry));
                calls += 1;
            }
        }
        assert!(calls > 0, "no call is old enough");
        ledger.close();
    });
    drop(ledger);
    // The archive is away: a start does not need it, and says nothing that is not so.
    remove_sled(dir.path());
    let away = archive.path().with_extension("away");
    fs::rename(archive.path(), &away).expect("renamed");
    drop(open(dir.path()).expect("a start needs no archive"));
    let report = verify(dir.path()).expect("readable");
    assert!(report.violations.iter().any(|v| v.contains(".seg.zst")), "{:?}", report.violations);
    fs::rename(&away, archive.path()).expect("renamed");
    let mut bytes = fs::read(&moved[0]).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&moved[0], bytes).expect("written");
    let report = verify(dir.path()).expect("readable");
    assert!(!report.violations.is_empty(), "a changed archive was not noticed");
}

/// A directory that is a copy is refused, and goes on under another name when it is told to.
#[test]
fn a_copy_is_opened_only_with_accept_fork() {
    let (dir, copies) = (TempDir::new().expect("one"), TempDir::new().expect("another"));
    let accounts = history(dir.path(), None, 13);
    let copy = copies.path().join("copy");
    let copied = std::process::Command::new("cp").arg("-a").arg(dir.path()).arg(&copy).status();
    assert!(copied.expect("cp runs").success());
    let refused = open(&copy).map(|_| ()).expect_err("it is a copy").to_string();
    assert!(refused.contains("--accept-fork"), "{refused}");
    let report = verify(&copy).expect("readable");
    assert_eq!(report.violations, Vec::<String>::new(), "a copy is sound");
    let accepted = Options { accept_fork: true, ..small_segments(&copy, None) };
    drop(Ledger::open(accepted).expect("it was told to"));
    let (found, _) = opened(&copy, &accounts);
    assert_eq!(found, opened(dir.path(), &accounts).0, "it goes on where the other was");
    // A journal alone is a copy too, and so is one that was put beside another's head.
    let alone = copies.path().join("alone");
    fs::create_dir(&alone).expect("made");
    let journal = dir.path().join("journal");
    let copied = std::process::Command::new("cp").arg("-a").arg(&journal).arg(&alone).status();
    assert!(copied.expect("cp runs").success());
    let refused = open(&alone).map(|_| ()).expect_err("it is a copy");
    assert!(matches!(refused, OpenError::Forked { .. }), "{refused}");
}

/// A backup of a ledger in use is sound and can be brought up to date; what is restored of it starts,
/// and goes back to a moment.
#[test]
fn a_ledger_is_restored_as_it_was_at_a_moment() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let (dir, archive) = (TempDir::new().expect("one"), TempDir::new().expect("another"));
    let (data, copy) = (dir.path().join("data"), dir.path().join("copy"));
    history(&data, Some(archive.path()), seed);
    let mut random = fastrand::Rng::with_seed(seed);
    // No checkpoint comes between the last backup and the end.
    let maintenance = MaintenanceOptions {
        checkpoint_interval: Duration::MAX,
        ..small_segments(&data, Some(archive.path())).maintenance
    };
    let fewer = Options { maintenance, ..small_segments(&data, None) };
    let (ledger, _) = Ledger::open(fewer).expect("opens");
    let mut accounts: Vec<_> = ledger.accounts().iter().map(|account| account.id).collect();
    let (early, late) = runtime().block_on(async {
        let early = ledger::backup(&data, &copy).expect("a backup");
        for _ in 0..200 {
            act(&ledger, &mut accounts, &mut random).await;
        }
        ledger.create_account("the last").await.expect("an account");
        let late = ledger::backup(&data, &copy).expect("brought up to date");
        ledger.close();
        (early, late)
    });
    drop(ledger);
    assert!(early.last_seq < late.last_seq && late.archived > 0, "{early:?} {late:?}");
    let report = verify(&copy).expect("readable");
    assert_eq!(report.violations, Vec::<String>::new(), "seed {seed}");
    assert_eq!((report.records, &report.chain), (late.last_seq, &late.chain));
    assert!(ledger::backup(archive.path(), &copy).is_err(), "an archive is no ledger");

    let whole = dir.path().join("whole");
    let restored = ledger::restore(&copy, &whole, None).expect("restored");
    assert_eq!((restored.left_out.records, &restored.chain), (0, &late.chain));
    let original = verify(&data).expect("readable");
    assert_eq!(original.records, late.last_seq, "nothing came after the backup");
    let again = ledger::restore(&copy, &whole, None).expect_err("it is there already");
    assert!(again.to_string().contains("not empty"), "{again}");
    drop(Ledger::open(small_segments(&whole, None)).expect("it starts without being told to"));
    let report = verify(&whole).expect("readable");
    assert_eq!(report.violations, Vec::<String>::new());
    assert_eq!(report.state_hash, original.state_hash, "seed {seed}");

    // At any moment: what is kept and what was left out is everything, and it starts.
    let records: Vec<_> = OfflineRecords::open(&data, 0)
        .expect("a ledger")
        .map(|record| record.expect("a record"))
        .collect();
    for round in 0..6 {
        let (_, picked) = &records[random.usize(1..records.len())];
        let at = picked.at();
        let past = dir.path().join(format!("past-{round}"));
        let restored = ledger::restore(&copy, &past, Some(at)).expect("restored");
        let kept = usize::try_from(restored.last_seq).expect("few");
        assert_eq!(kept as u64 + restored.left_out.records, late.last_seq, "seed {seed}");
        assert!(records[..kept].iter().all(|(_, record)| record.at() <= at), "seed {seed}");
        let grants = |record: &Record| match record {
            Record::Granted { amount, .. } => amount.get(),
            _ => 0,
        };
        let left_out: i64 = records[kept..].iter().map(|(_, record)| grants(record)).sum();
        assert_eq!(restored.left_out.granted.get(), left_out, "seed {seed}");
        let (ledger, _) = Ledger::open(small_segments(&past, None)).expect("it starts");
        ledger.close();
        drop(ledger);
        let report = verify(&past).expect("readable");
        assert_eq!(report.violations, Vec::<String>::new(), "seed {seed}, until {at:?}");
        let granted: i64 = records[..kept].iter().map(|(_, record)| grants(record)).sum();
        assert_eq!(report.total.granted.get(), granted, "seed {seed}");
    }
}
