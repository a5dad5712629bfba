//! The life of a ledger, attacked: kill -9 while segments are sealed, checkpoints written, copies made for
//! the archive, and backups under way; copies that are made of what is damaged or of themselves.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate::ledger::{self, AccountId, Ledger, OpenError, Options, verify};
use tollgate::money::Nanousd;

use crate::harness::child::kill_after;
use crate::harness::ledger::{files, runtime, small_segments};
use crate::harness::within;

const PATIENCE: Duration = Duration::from_secs(60);

/// A ledger in use, with so many grants of 1.
fn granted(dir: &Path, grants: i64) -> (Arc<Ledger>, AccountId) {
    let (ledger, _) = Ledger::open(small_segments(dir, None)).expect("opens");
    let account = runtime().block_on(async {
        let account = ledger.create_account("one").await.expect("an account").id;
        for n in 0..grants {
            ledger.grant(account, &n.to_string(), Nanousd::new(1)).await.expect("a grant");
        }
        account
    });
    (ledger, account)
}

/// Copied onto itself the journal would be exchanged under the hands of who writes it, and everything
/// that is acknowledged from then on would be in a file without a name.
#[test]
fn a_backup_never_goes_where_a_ledger_is_in_use() {
    let place = TempDir::new().expect("a directory");
    let (dir, other) = (place.path().join("data"), place.path().join("other"));
    let (ledger, account) = granted(&dir, 5);
    let link = place.path().join("link");
    std::os::unix::fs::symlink(&dir, &link).expect("linked");
    for to in [&dir, &link] {
        let refused = ledger::backup(&dir, to).expect_err("the ledger is there");
        assert!(matches!(refused, OpenError::InUse(_)), "{refused}");
    }
    let (others, _) = granted(&other, 1);
    let refused = ledger::backup(&dir, &other).expect_err("another ledger is there");
    assert!(matches!(refused, OpenError::InUse(_)), "{refused}");
    drop(others);
    let later = runtime().block_on(ledger.grant(account, "later", Nanousd::new(1)));
    later.expect("a grant");
    ledger.close();
    drop(ledger);
    let refused = ledger::backup(&dir, &link).expect_err("it is the same").to_string();
    assert!(refused.contains("name another one"), "{refused}");
    let (ledger, _) = Ledger::open(small_segments(&dir, None)).expect("opens");
    assert_eq!(ledger.account(account).expect("there").balance.granted.get(), 6);
    // A directory within it is another one.
    ledger::backup(&dir, &dir.join("backup")).expect("a backup");
}

/// A backup that was broken off, wherever, is brought up to date by the next one.
#[test]
fn an_interrupted_backup_is_resumed() {
    let place = TempDir::new().expect("a directory");
    let (dir, whole) = (place.path().join("data"), place.path().join("whole"));
    let (ledger, _) = granted(&dir, 300);
    let checkpoints = dir.join("checkpoints");
    let has_one = || checkpoints.exists() && !files(&checkpoints, ".ckp").is_empty();
    within(PATIENCE, has_one, || "no checkpoint".to_owned());
    ledger.close();
    drop(ledger);
    let made = ledger::backup(&dir, &whole).expect("a backup");
    let killed = place.path().join("killed");
    let mut broken_off = 0;
    for after in 0..40_u32 {
        drop(fs::remove_dir_all(&killed));
        let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["backup", "--data"])
            .arg(&dir)
            .arg("--to")
            .arg(&killed)
            .stdout(Stdio::null())
            .spawn()
            .expect("spawns");
        let begun = Instant::now();
        let is_far = || killed.join("journal").exists() && files(&killed, "").len() > 1;
        while !is_far() && child.try_wait().expect("a child").is_none() {
            assert!(begun.elapsed() < PATIENCE, "it does not begin");
        }
        let ended = kill_after(&mut child, Duration::from_micros(u64::from(after) * 200));
        broken_off += usize::from(!ended.success());
        let again = ledger::backup(&dir, &killed).unwrap_or_else(|e| panic!("{after}: {e}"));
        assert_eq!((again.last_seq, &again.chain), (made.last_seq, &made.chain));
        let report = verify(&killed).expect("readable");
        assert_eq!(report.violations, Vec::<String>::new(), "{after}");
        let left =
            files(&killed, ".copying").len() + files(&killed.join("checkpoints"), ".copying").len();
        assert_eq!(left, 0, "{after}: half a file is left");
    }
    // Neither is one that does not say whose it is.
    fs::remove_file(killed.join("head.json")).expect("removed");
    for file in
        [files(&killed.join("journal"), ".seal"), files(&killed.join("journal"), ".json")].concat()
    {
        fs::remove_file(file).expect("removed");
    }
    ledger::backup(&dir, &killed).expect("it is how the ledger begins");
    println!("{broken_off} of 40 were broken off");
}

/// An unfinished restore is taken neither for the ledger nor for a new one.
#[test]
fn a_restore_that_was_broken_off_does_not_start() {
    let place = TempDir::new().expect("a directory");
    let (dir, to) = (place.path().join("data"), place.path().join("to"));
    let (ledger, account) = granted(&dir, 100);
    ledger.close();
    drop(ledger);
    let mut refused = 0;
    for after in 0..40_u32 {
        drop(fs::remove_dir_all(&to));
        let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["restore", "--from"])
            .arg(&dir)
            .arg("--data")
            .arg(&to)
            .stdout(Stdio::null())
            .spawn()
            .expect("spawns");
        let has_some = || fs::read_dir(&to).is_ok_and(|mut entries| entries.next().is_some());
        let begun = Instant::now();
        while !has_some() && child.try_wait().expect("a child").is_none() {
            assert!(begun.elapsed() < PATIENCE, "it does not begin");
        }
        kill_after(&mut child, Duration::from_micros(u64::from(after) * 200));
        match Ledger::open(Options::new(&to)) {
            Ok((ledger, _)) => {
                let granted = ledger.account(account).map(|found| found.balance.granted.get());
                assert_eq!(granted, Some(100), "{after}: it was not finished");
                ledger.close();
            }
            Err(error) => {
                assert!(error.to_string().contains("being restored"), "{after}: {error}");
                refused += 1;
            }
        }
    }
    println!("{refused} of 40 were broken off");
}

/// Unreadable data is never left out silently.
#[test]
fn a_copy_of_a_damaged_ledger_says_so() {
    let place = TempDir::new().expect("a directory");
    let (dir, to) = (place.path().join("data"), place.path().join("to"));
    let (ledger, _) = Ledger::open(Options::new(&dir)).expect("opens");
    runtime().block_on(async {
        let account = ledger.create_account("one").await.expect("an account").id;
        for n in 0..20 {
            ledger.grant(account, &n.to_string(), Nanousd::new(1)).await.expect("a grant");
        }
    });
    ledger.close();
    drop(ledger);
    let [segment] = files(&dir.join("journal"), ".seg").try_into().expect("one segment");
    let whole = fs::read(&segment).expect("readable");
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    fs::write(&segment, damaged).expect("written");
    let refused = ledger::restore(&dir, &to, None).expect_err("it is damaged");
    assert!(matches!(refused, OpenError::Damaged { .. }), "{refused}");
    assert!(!to.exists(), "nothing was made");
    let refused = ledger::backup(&dir, &place.path().join("backup")).expect_err("it is damaged");
    assert!(matches!(refused, OpenError::Damaged { .. }), "{refused}");
    // As it was at a moment: what is before the damage.
    let now = tollgate::clock::UnixMs::now();
    let restored = ledger::restore(&dir, &to, Some(now)).expect("what stands before it");
    assert!(restored.left_out.unreadable && restored.last_seq > 3, "{restored:?}");
    drop(Ledger::open(Options::new(&to)).expect("it starts"));
    // An end that is gone is told as well, and one that was never finished is not.
    for (cut, is_reported) in [(whole.len() / 2, true), (whole.len() + 7, false)] {
        let mut bytes = whole.clone();
        bytes.resize(cut, 0x54);
        fs::write(&segment, bytes).expect("written");
        let to = place.path().join(format!("cut-{cut}"));
        let restored = ledger::restore(&dir, &to, None).expect("what there is");
        assert_eq!(restored.left_out.unreadable, is_reported, "{restored:?}");
    }
}

/// Backups into one place again and again have the checkpoints that count, and no others.
#[test]
fn a_backup_keeps_no_checkpoints_that_have_had_their_time() {
    let place = TempDir::new().expect("a directory");
    let (dir, backup) = (place.path().join("data"), place.path().join("backup"));
    let (ledger, account) = granted(&dir, 10);
    let runtime = runtime();
    let begun = Instant::now();
    let mut seen = std::collections::BTreeSet::new();
    let mut n = 1_000;
    while seen.len() < 5 {
        for _ in 0..50 {
            n += 1;
            let id = n.to_string();
            let granted = ledger.grant(account, &id, Nanousd::new(1));
            runtime.block_on(granted).expect("a grant");
        }
        ledger::backup(&dir, &backup).expect("a backup");
        let kept = files(&backup.join("checkpoints"), ".ckp");
        assert!(kept.len() <= 2, "{kept:?}");
        seen.extend(kept);
        assert!(begun.elapsed() < PATIENCE, "{} checkpoints", seen.len());
    }
}
