//! `tollgate ledger repair`: what is saved of a damaged journal, and what it costs.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate::ledger::{
    Account, AccountId, Archive, ArchiveTo, Ledger, MaintenanceOptions, NewKey, OpenError, Options,
    repair, verify,
};
use tollgate::money::Nanousd;

use crate::harness::ledger::{
    copy, files, frame_bounds, only_segment, reserve, runtime, settlement,
};

fn open(dir: &Path) -> Result<Arc<Ledger>, OpenError> {
    Ledger::open(Options::new(dir)).map(|(ledger, _)| ledger)
}

/// A closed ledger of two customers with keys, each write a group of its own.
fn history(dir: &Path, rounds: i64) -> Vec<Account> {
    let ledger = open(dir).expect("opens");
    runtime().block_on(async {
        for name in ["one", "two"] {
            let account = ledger.create_account(name).await.expect("account").id;
            let key = NewKey { name: "k".to_owned(), ..NewKey::default() };
            ledger.create_key(account, key).await.expect("key");
            for n in 1..=rounds {
                ledger.grant(account, &n.to_string(), Nanousd::new(100)).await.expect("grant");
                call(&ledger, account, n).await;
            }
        }
        ledger.close();
    });
    ledger.accounts()
}

async fn call(ledger: &Arc<Ledger>, account: AccountId, charge: i64) {
    let hold = ledger.reserve(reserve(account, 50)).expect("hold");
    hold.durable().await.expect("durable");
    hold.post(settlement(charge));
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).expect("readable").map(|entry| entry.expect("readable"));
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn is_sound(dir: &Path) {
    let report = verify(dir).expect("reads");
    assert_eq!(report.violations, Vec::<String>::new());
}

/// Flips a bit of the content of the frame `at` of `of`, or of its header.
fn flip(dir: &Path, (at, of): (usize, usize), of_header: bool) {
    let segment = only_segment(dir);
    let mut bytes = fs::read(&segment).expect("readable");
    let bounds = frame_bounds(&bytes);
    let begin = bounds[(bounds.len() - 1) * at / of];
    bytes[begin + if of_header { 5 } else { 62 }] ^= 4;
    fs::write(&segment, &bytes).expect("written");
}

#[test]
fn what_sled_knows_of_lost_records_is_put_back() {
    for (place, of_header) in [((1, 2), false), ((1, 2), true), ((0, 1), true), ((9, 10), false)] {
        let dir = TempDir::new().expect("directory");
        let before = history(dir.path(), 20);
        flip(dir.path(), place, of_header);
        let damaged = fs::read(only_segment(dir.path())).expect("readable");

        let found = repair(dir.path(), false, false).expect("reads");
        assert!(!found.is_sound && found.damages.len() == 1, "{place:?}: {found:?}");
        assert!(found.behind > 0 && found.restored > 0, "{place:?}: {found:?}");
        assert_eq!(
            (found.unrecoverable, found.dropped, found.kept_in.is_some()),
            (0, 0, false),
            "{found:?}"
        );
        assert!(found.accounts.is_empty(), "nobody gains or loses: {found:?}");
        let same = fs::read(only_segment(dir.path())).expect("readable");
        assert!(same == damaged, "a look changes nothing");

        let done = repair(dir.path(), true, false).expect("repairs");
        let kept = done.kept_in.expect("the damaged journal is kept");
        let name = only_segment(dir.path());
        let kept = fs::read(kept.join(name.file_name().expect("a name")));
        assert!(kept.expect("readable") == damaged);
        is_sound(dir.path());
        let ledger = open(dir.path()).unwrap_or_else(|error| panic!("{place:?}: {error}"));
        assert_eq!(ledger.accounts(), before, "{place:?}");
        for account in &before {
            assert_eq!(ledger.keys_of(account.id).len(), 1, "{place:?}");
            runtime().block_on(call(&ledger, account.id, 1));
        }
        ledger.close();
        drop(ledger);
        is_sound(dir.path());
        let again = repair(dir.path(), false, false).expect("reads");
        assert!(again.is_sound, "{again:?}");
    }
}

#[test]
fn a_repair_without_sled_reports_losses_and_their_cost() {
    let dir = TempDir::new().expect("directory");
    let before = history(dir.path(), 20);
    fs::remove_dir_all(dir.path().join("sled")).expect("removed");
    // The first customer's third call, or so: its hold and its charge are in two frames.
    flip(dir.path(), (1, 8), false);
    let found = repair(dir.path(), true, false).expect("repairs");
    assert!(found.unrecoverable > 0 && found.restored == 0, "{found:?}");
    assert_eq!(found.behind, found.behind_proven, "the header tells how the chain goes on");
    is_sound(dir.path());
    let ledger = open(dir.path()).expect("opens");
    let after = ledger.accounts();
    assert_eq!(after[1], before[1], "the other customer's are whole");
    assert!(after[0].balance.spent <= before[0].balance.spent, "nobody pays more");
    let acts = runtime().block_on(ledger.acts(None, None, 100)).expect("acts");
    let noted = acts.iter().filter(|listed| listed.act.what.starts_with("ledger.repair")).count();
    assert_eq!(noted as u64, found.unrecoverable + found.dropped, "what is missing is noted");
    ledger.close();
}

#[test]
fn a_journal_behind_sled_gets_its_last_records_back_or_does_without() {
    for without_sled in [false, true] {
        let dir = TempDir::new().expect("directory");
        let before = history(dir.path(), 5);
        let segment = only_segment(dir.path());
        let bytes = fs::read(&segment).expect("readable");
        let bounds = frame_bounds(&bytes);
        fs::write(&segment, &bytes[..bounds[bounds.len() - 3]]).expect("cut");
        let refused = open(dir.path()).expect_err("records are missing");
        assert!(matches!(refused, OpenError::JournalBehind { .. }), "{refused}");
        assert!(refused.to_string().contains("ledger repair"), "{refused}");

        let found = repair(dir.path(), false, without_sled).expect("reads");
        assert!(!found.is_sound && found.lost.len() == 1, "{found:?}");
        let done = repair(dir.path(), true, without_sled).expect("repairs");
        assert_eq!(done.restored > 0, !without_sled, "{done:?}");
        is_sound(dir.path());
        let ledger = open(dir.path()).expect("opens");
        assert_eq!(ledger.accounts() == before, !without_sled);
        ledger.close();
    }
}

#[test]
fn another_ledgers_sled_is_put_aside() {
    let dirs = [TempDir::new().expect("directory"), TempDir::new().expect("directory")];
    for (dir, rounds) in [(&dirs[0], 3), (&dirs[1], 4)] {
        history(dir.path(), rounds);
    }
    fs::remove_dir_all(dirs[1].path().join("sled")).expect("removed");
    copy(&dirs[0].path().join("sled"), &dirs[1].path().join("sled"));
    let dir = dirs[1].path();
    open(dir).expect_err("it is another ledger's");
    let found = repair(dir, true, false).expect("repairs");
    assert!(found.sled.contains("another journal"), "{found:?}");
    assert_eq!((found.damages.len(), found.kept_in), (0, None), "the journal stays");
    assert!(names(dir).iter().any(|name| name.starts_with("sled.before-repair")), "it is kept");
    open(dir).expect("opens").close();
    is_sound(dir);
}

#[test]
fn the_command_says_what_it_finds() {
    let dir = TempDir::new().expect("directory");
    history(dir.path(), 10);
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["ledger", "repair", "--data"])
            .arg(dir.path())
            .args(arguments)
            .output()
            .expect("the binary runs");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let (code, message) = run(&[]);
    assert_eq!(code, Some(0), "{message}");
    assert!(message.contains("needs no repair"), "{message}");
    flip(dir.path(), (1, 2), false);
    let (code, message) = run(&[]);
    assert_eq!(code, Some(1), "{message}");
    for part in [".seg: bytes ", "checksum", "are lost", "put back", "nothing was changed"] {
        assert!(message.contains(part), "{part} is missing: {message}");
    }
    let (code, message) = run(&["--apply", "--json"]);
    assert_eq!(code, Some(0), "{message}");
    let message: serde_json::Value = serde_json::from_str(&message).expect("JSON");
    assert!(message["kept_in"].is_string(), "{message}");
    is_sound(dir.path());
}

/// A closed ledger of many segments, all but the last of them sealed, some in the archive.
fn long_history(dir: &Path, archive: Option<&Path>) -> Vec<Account> {
    let archive = archive
        .map(|path| Archive { to: ArchiveTo::Directory(path.to_owned()), keep: Duration::ZERO });
    let is_archived = |dir: &Path| !dir.join("journal/0000000000000001.seg").exists();
    let is_done = |dir: &Path| archive.is_none() || is_archived(dir);
    let maintenance = MaintenanceOptions {
        checkpoint_interval: Duration::ZERO,
        archive: archive.clone(),
        on_event: None,
    };
    let options = Options { maintenance, segment_bytes_max: 4 << 10, ..Options::new(dir) };
    let (ledger, _) = Ledger::open(options).expect("opens");
    runtime().block_on(async {
        let account = ledger.create_account("one").await.expect("account").id;
        let (begun, mut n) = (Instant::now(), 0);
        while n < 120 || files(&dir.join("journal"), ".seal").len() < 4 || !is_done(dir) {
            n += 1;
            ledger.grant(account, &n.to_string(), Nanousd::new(100)).await.expect("grant");
            call(&ledger, account, n % 50).await;
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "{} seals",
                files(&dir.join("journal"), ".seal").len()
            );
        }
        // Behind the last seal there is something that is not sealed.
        while files(&dir.join("journal"), ".seg")
            .last()
            .is_some_and(|last| last.with_extension("seal").exists())
        {
            call(&ledger, account, 1).await;
        }
        ledger.close();
    });
    ledger.accounts()
}

/// Damage to a directory of many segments.
type Harm = fn(&Path);

fn flip_in(path: &Path) {
    let mut bytes = fs::read(path).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(path, &bytes).expect("written");
}

/// Whatever a start refuses of seals, files and what is noted, a repair ends in a ledger that starts, and
/// that every check finds sound.
#[test]
fn a_journal_with_seals_and_an_archive_is_repaired() {
    let harms: [(&str, Harm); 7] = [
        ("a bit of a sealed file", |dir| flip_in(&files(&dir.join("journal"), ".seg")[1])),
        ("a sealed file is gone", |dir| {
            fs::remove_file(&files(&dir.join("journal"), ".seg")[1]).expect("removed")
        }),
        ("a sealed file is shorter", |dir| {
            let file = &files(&dir.join("journal"), ".seg")[1];
            let bytes = fs::read(file).expect("readable");
            fs::write(file, &bytes[..bytes.len() - 1]).expect("written");
        }),
        ("a sealed file is longer", |dir| {
            let file = &files(&dir.join("journal"), ".seg")[1];
            let mut bytes = fs::read(file).expect("readable");
            bytes.extend([7; 100]);
            fs::write(file, &bytes).expect("written");
        }),
        ("a seal", |dir| flip_in(&files(&dir.join("journal"), ".seg")[1].with_extension("seal"))),
        ("the last file is gone", |dir| {
            fs::remove_file(files(&dir.join("journal"), ".seg").last().expect("one"))
                .expect("removed");
        }),
        ("head.json", |dir| flip_in(&dir.join("head.json"))),
    ];
    let (whole, archive) = (TempDir::new().expect("one"), TempDir::new().expect("another"));
    let before = long_history(whole.path(), Some(archive.path()));
    let archived = verify(whole.path()).expect("reads").archived;
    assert!(
        archived > 0 && files(&whole.path().join("journal"), ".seg").len() > 2,
        "{archived} are archived"
    );
    for (what, harm) in harms {
        for keeps_sled in [true, false] {
            let copies = TempDir::new().expect("directory");
            let dir = &copies.path().join("copy");
            copy(whole.path(), dir);
            harm(dir);
            if !keeps_sled {
                fs::remove_dir_all(dir.join("sled")).expect("removed");
            }
            let found = repair(dir, false, false).expect("reads");
            println!("{what}, with sled: {keeps_sled}: {found:?}");
            assert!(!found.is_sound, "{what}: nothing was found");
            repair(dir, true, false).unwrap_or_else(|error| panic!("{what}: {error}"));
            is_sound(dir);
            assert_eq!(verify(dir).expect("reads").archived, archived, "{what}: the archive stays");
            let ledger = open(dir).unwrap_or_else(|error| panic!("{what}: {error}"));
            if keeps_sled {
                assert_eq!(ledger.accounts(), before, "{what}");
            }
            let account = before[0].id;
            runtime().block_on(async {
                ledger.grant(account, "later", Nanousd::new(100)).await.expect("grant");
                call(&ledger, account, 1).await;
            });
            ledger.close();
            drop(ledger);
            is_sound(dir);
            assert!(repair(dir, false, false).expect("reads").is_sound, "{what}");
        }
    }
}

/// Only an archive that is there is read: one that is away is no damage.
#[test]
fn nothing_is_repaired_while_the_archive_is_away() {
    let (dir, archive) = (TempDir::new().expect("one"), TempDir::new().expect("another"));
    long_history(dir.path(), Some(archive.path()));
    flip_in(&files(&dir.path().join("journal"), ".seg")[1]);
    let away = archive.path().with_extension("away");
    fs::rename(archive.path(), &away).expect("renamed");
    let refused = repair(dir.path(), true, false).expect_err("the archive is away").to_string();
    assert!(refused.contains(".seg.zst") && refused.contains("archive"), "{refused}");
    assert!(!names(dir.path()).iter().any(|name| name.contains("repair")), "nothing was changed");
    fs::rename(&away, archive.path()).expect("renamed");
    repair(dir.path(), true, false).expect("repairs");
    is_sound(dir.path());
}

/// A `head.json` that names a longer journal does not block the start.
#[test]
fn a_journal_behind_what_is_noted_goes_on_without_it() {
    let dir = TempDir::new().expect("directory");
    let dir = dir.path();
    long_history(dir, None);
    fs::remove_file(files(&dir.join("journal"), ".seg").last().expect("one")).expect("removed");
    fs::remove_dir_all(dir.join("sled")).expect("removed");
    let refused = open(dir).expect_err("records are missing");
    assert!(matches!(refused, OpenError::JournalBehind { .. }), "{refused}");
    let done = repair(dir, true, true).expect("repairs");
    assert!(done.kept_in.is_none() && done.lost.len() == 1, "the journal stays: {done:?}");
    open(dir).expect("opens").close();
    is_sound(dir);
}

/// A refund cannot stand without the charge that it gives back.
#[test]
fn a_refund_of_a_lost_charge_is_dropped_with_it() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(dir.path()).expect("opens");
    runtime().block_on(async {
        let account = ledger.create_account("one").await.expect("account").id;
        ledger.grant(account, "g", Nanousd::new(1_000)).await.expect("grant");
        call(&ledger, account, 7).await;
        ledger.grant(account, "behind", Nanousd::new(1)).await.expect("grant");
        let entries = ledger.entries(account, None, 10).await.expect("entries");
        let charged = entries.iter().find_map(|entry| entry.call.as_ref()).expect("a charge");
        ledger.refund(account, "r", charged.hold, Nanousd::new(7)).await.expect("a refund");
        ledger.close();
    });
    drop(ledger);
    let segment = only_segment(dir.path());
    let whole = fs::read(&segment).expect("readable");
    let bounds = frame_bounds(&whole);
    fs::remove_dir_all(dir.path().join("sled")).expect("removed");
    let mut dropped = 0;
    for begin in &bounds[..bounds.len() - 1] {
        let damaged = TempDir::new().expect("directory");
        copy(&dir.path().join("journal"), damaged.path());
        let mut bytes = whole.clone();
        bytes[begin + 62] ^= 4;
        fs::write(only_segment(damaged.path()), bytes).expect("written");
        let repaired = repair(damaged.path(), true, false);
        let repaired = repaired.unwrap_or_else(|error| panic!("byte {begin}: {error}"));
        let why = repaired.dropped_why.iter().filter(|why| why.contains("that is lost"));
        dropped += why.count();
        is_sound(damaged.path());
    }
    assert!(dropped > 0, "no charge was lost");
}
