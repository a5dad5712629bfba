//! Recovery of the ledger: torn and flipped bytes, a lost sled, and kill -9.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tollgate::ledger::{
    AccountId, AccountPatch, Actor, EntryKind, Ledger, OpenError, Options, RecoveryPolicy,
    RecoveryReport, RequestId, Reserve, VoidReason, verify,
};
use tollgate::money::Nanousd;

use crate::harness;
use crate::harness::child::kill_after;
use crate::harness::ledger::{
    copy, frame_bounds, only_segment, remove_sled, reserve, runtime, settlement,
};

fn open(dir: &Path) -> Result<(Arc<Ledger>, RecoveryReport), OpenError> {
    Ledger::open(Options::new(dir))
}

/// A call that costs at least a tenth of what it can cost.
fn reserve_with_floor(account: AccountId, nanousd: i64) -> Reserve {
    Reserve { floor: Nanousd::new(nanousd / 10), ..reserve(account, nanousd) }
}

/// A closed ledger with some history, one durable group after the other.
fn history(dir: &Path, grants: i64) -> AccountId {
    let (ledger, _) = open(dir).expect("opens");
    runtime().block_on(async {
        let account = ledger.create_account("test").await.expect("account").id;
        for n in 1..=grants {
            ledger.grant(account, &n.to_string(), Nanousd::new(100)).await.expect("grant");
            ledger.reserve(reserve_with_floor(account, 50)).expect("hold").post(settlement(n));
        }
        ledger.close();
        account
    })
}

/// Removes the note of a clean stop, which a crash does not leave.
fn as_crashed(dir: &Path) {
    fs::remove_file(dir.join("head.json")).expect("removed");
    fs::remove_file(dir.join("journal/identity.json")).expect("removed");
}

#[test]
fn a_torn_tail_is_cut_at_every_byte() {
    let dir = TempDir::new().expect("directory");
    history(dir.path(), 3);
    as_crashed(dir.path());
    let segment = only_segment(dir.path());
    let whole = fs::read(&segment).expect("readable");
    let bounds = frame_bounds(&whole);
    let (begin, end) = (bounds[bounds.len() - 2], bounds[bounds.len() - 1]);
    assert_eq!(end, whole.len(), "the frames fill the segment");
    remove_sled(dir.path());
    for length in begin + 1..end {
        fs::write(&segment, &whole[..length]).expect("written");
        let report = verify(dir.path()).expect("reads");
        let torn = (length - begin) as u64;
        assert_eq!((report.torn_bytes, report.violations.len()), (torn, 0), "cut at {length}");
    }
    // A sector that never arrived reads as zeros though the file has its full length.
    for zeros_from in [begin, (begin / 512 + 1) * 512] {
        if zeros_from >= end {
            continue;
        }
        let mut bytes = whole.clone();
        bytes[zeros_from..].fill(0);
        fs::write(&segment, &bytes).expect("written");
        let report = verify(dir.path()).expect("reads");
        let torn = (end - begin) as u64;
        assert_eq!((report.torn_bytes, report.violations.len()), (torn, 0), "from {zeros_from}");
    }
    // And the ledger goes on behind the cut.
    fs::write(&segment, &whole[..end - 1]).expect("written");
    let (ledger, recovery) = open(dir.path()).expect("opens");
    assert_eq!(recovery.torn_bytes_cut, (end - 1 - begin) as u64);
    assert_eq!(recovery.torn_at, Some((segment.clone(), begin as u64)), "it is said where");
    let account = ledger.accounts()[0].id;
    runtime().block_on(async {
        ledger.grant(account, "after", Nanousd::new(1)).await.expect("grant");
        ledger.close();
    });
    drop(ledger);
    let report = verify(dir.path()).expect("reads");
    assert_eq!((report.torn_bytes, report.violations), (0, vec![]), "after going on");
}

#[test]
fn a_flipped_bit_anywhere_is_refused() {
    let dir = TempDir::new().expect("directory");
    history(dir.path(), 20);
    as_crashed(dir.path());
    let segment = only_segment(dir.path());
    let whole = fs::read(&segment).expect("readable");
    remove_sled(dir.path());
    let mut flips = 0;
    for at in (0..whole.len()).step_by(3) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&segment, &bytes).expect("written");
        let report = verify(dir.path()).expect("reads");
        assert_eq!(report.torn_bytes, 0, "a flip at {at} was taken for an unfinished write");
        assert!(!report.violations.is_empty(), "a flip at {at} was not seen");
        flips += 1;
    }
    assert!(flips > 500, "only {flips} flips were tried");
    let text = open(dir.path()).expect_err("the last flip is still there").to_string();
    assert!(text.contains(".seg: damaged at byte"), "the message says file and place: {text}");
    assert!(text.contains("backup"), "the message says what to do: {text}");
}

#[test]
fn a_journal_that_lost_what_was_applied_is_refused() {
    let dir = TempDir::new().expect("directory");
    history(dir.path(), 5);
    let segment = only_segment(dir.path());
    let whole = fs::read(&segment).expect("readable");
    let bounds = frame_bounds(&whole);
    fs::write(&segment, &whole[..bounds[bounds.len() - 2]]).expect("written");
    let lost = open(dir.path()).expect_err("the last frame is missing");
    assert!(matches!(lost, OpenError::JournalBehind { .. }), "{lost}");
    fs::remove_file(&segment).expect("removed");
    let lost = open(dir.path()).expect_err("the journal is gone");
    assert!(matches!(lost, OpenError::JournalBehind { journal: 0, .. }), "{lost}");
}

/// The operator says that it may go on.
fn open_copy(dir: &Path) -> Result<(Arc<Ledger>, RecoveryReport), OpenError> {
    Ledger::open(Options { accept_fork: true, ..Options::new(dir) })
}

/// Two ledgers that go on from the same copy have records of the same numbers. Beside each other's
/// journals their sleds look as if they belonged there.
#[test]
fn a_sled_beside_another_ledgers_journal_is_refused() {
    for ids in [["one", "two"], ["a", "a-much-longer-name-of-a-grant"]] {
        let dirs = [TempDir::new().expect("directory"), TempDir::new().expect("directory")];
        history(dirs[0].path(), 3);
        let two = dirs[1].path().join("copy");
        copy(dirs[0].path(), &two);
        let one = dirs[0].path();
        for (dir, id) in [(one, ids[0]), (&*two, ids[1])] {
            let (ledger, _) = open_copy(dir).expect("opens");
            let account = ledger.accounts()[0].id;
            runtime().block_on(ledger.grant(account, id, Nanousd::new(1))).expect("grant");
            ledger.close();
        }
        for (sled_of, journal_of) in [(one, &*two), (&*two, one)] {
            let mixed = TempDir::new().expect("directory");
            copy(&sled_of.join("sled"), &mixed.path().join("sled"));
            copy(&journal_of.join("journal"), &mixed.path().join("journal"));
            let before = fs::read(only_segment(mixed.path())).expect("readable");
            let refused = open(mixed.path()).expect_err("the journal was put there");
            assert!(matches!(refused, OpenError::Forked { .. }), "{refused}");
            let refused = open_copy(mixed.path()).expect_err("they are of different ledgers");
            let is_reported =
                matches!(refused, OpenError::OtherJournal { .. } | OpenError::JournalBehind { .. });
            assert!(is_reported, "{refused}");
            assert!(refused.to_string().contains("Nothing was changed"), "{refused}");
            let after = fs::read(only_segment(mixed.path())).expect("readable");
            assert!(before == after, "the journal was changed: {refused}");
        }
    }
}

#[test]
fn a_missing_or_corrupt_sled_is_rebuilt() {
    let dir = TempDir::new().expect("directory");
    let account = history(dir.path(), 50);
    let hash = verify(dir.path()).expect("reads").state_hash;
    // With some of these sled still opens, with all or less of what it had: then the rest is replayed.
    type Damage = fn(&Path);
    let damages: [(&str, Damage); 6] = [
        ("deleted", |dir| fs::remove_dir_all(dir).expect("removed")),
        ("conf overwritten", |dir| fs::write(dir.join("conf"), b"nonsense").expect("written")),
        ("log cut", |dir| {
            let log = fs::OpenOptions::new().write(true).open(dir.join("db")).expect("opens");
            log.set_len(1000).expect("cut");
        }),
        ("snapshots removed", |dir| {
            for entry in fs::read_dir(dir).expect("readable") {
                let path = entry.expect("readable").path();
                if path.to_string_lossy().contains("snap.") {
                    fs::remove_file(path).expect("removed");
                }
            }
        }),
        ("log overwritten", |dir| fs::write(dir.join("db"), vec![0x5a; 100_000]).expect("written")),
        ("a file in its place", |dir| {
            fs::remove_dir_all(dir).expect("removed");
            fs::write(dir, b"x").expect("written");
        }),
    ];
    let mut rebuilt = 0;
    for (what, damage) in damages {
        damage(&dir.path().join("sled"));
        let (ledger, recovery) = open(dir.path()).unwrap_or_else(|error| panic!("{what}: {error}"));
        rebuilt += usize::from(recovery.sled_rebuilt);
        let entries = runtime().block_on(async {
            let entries = ledger.entries(account, None, 1000).await.expect("entries");
            ledger.close();
            entries
        });
        assert_eq!(entries.len(), 100, "sled was {what}: grants and settlements");
        drop(ledger);
        let report = verify(dir.path()).expect("reads");
        assert_eq!(report.violations, Vec::<String>::new(), "sled was {what}");
        assert_eq!((&report.state_hash, report.sled_hash.as_ref()), (&hash, Some(&hash)));
    }
    assert!(rebuilt >= 3, "deleted, overwritten and replaced: rebuilt {rebuilt} times only");
}

#[test]
fn a_second_process_is_refused() {
    let dir = TempDir::new().expect("directory");
    let (ledger, _) = open(dir.path()).expect("opens");
    let refused = open(dir.path()).expect_err("it is open already");
    assert!(matches!(refused, OpenError::InUse(_)), "{refused}");
    assert!(matches!(verify(dir.path()), Err(OpenError::InUse(_))), "verify must not run either");
    fs::remove_file(dir.path().join("lock")).expect("removed");
    let refused = open(dir.path()).expect_err("it is open still");
    assert!(matches!(refused, OpenError::InUse(_)), "without the file `lock`: {refused}");
    drop(ledger);
    open(dir.path()).expect("it is free again");
}

#[test]
fn a_clean_stop_leaves_nothing_to_replay() {
    let dir = TempDir::new().expect("directory");
    history(dir.path(), 10);
    for closing in ["closed", "dropped"] {
        let (ledger, recovery) = open(dir.path()).expect("opens");
        assert_eq!((recovery.records_replayed, recovery.torn_bytes_cut), (0, 0), "{closing}");
        let account = ledger.accounts()[0].id;
        ledger.reserve(reserve_with_floor(account, 10)).expect("hold").post(settlement(1));
        drop(ledger);
    }
}

#[test]
fn open_holds_are_ended_by_the_policy_and_listed() {
    for (policy, charged) in [(RecoveryPolicy::Void, 0), (RecoveryPolicy::Floor, 4)] {
        let dir = TempDir::new().expect("directory");
        let account = history(dir.path(), 5);
        let before = {
            let (ledger, _) = open(dir.path()).expect("opens");
            let hold = ledger.reserve(reserve_with_floor(account, 40)).expect("hold");
            // A stopped ledger cannot end a hold, as a dead process cannot.
            ledger.close();
            hold.void(VoidReason::Unreached);
            verify_closed(ledger, dir.path()).total
        };
        assert_eq!(before.held, Nanousd::new(40), "the hold is open in the journal");
        let options = || Options { recovery: policy, ..Options::new(dir.path()) };
        let (ledger, recovery) = Ledger::open(options()).expect("opens");
        assert_eq!(recovery.in_doubt.len(), 1, "in doubt");
        assert_eq!(recovery.in_doubt[0].charged, Nanousd::new(charged), "{policy:?}");
        let listed = runtime().block_on(async {
            let listed = ledger.in_doubt().await.expect("listed");
            ledger.close();
            listed
        });
        assert_eq!(listed, recovery.in_doubt);
        let after = verify_closed(ledger, dir.path());
        assert_eq!(after.violations, Vec::<String>::new());
        assert_eq!(after.total.held, Nanousd::ZERO);
        assert_eq!(after.total.spent.get(), before.spent.get() + charged);
        let (ledger, recovery) = Ledger::open(options()).expect("opens");
        assert_eq!(recovery.in_doubt, vec![], "they are ended once");
        assert_eq!(runtime().block_on(ledger.in_doubt()).expect("listed"), listed);
    }
}

fn verify_closed(ledger: Arc<Ledger>, dir: &Path) -> tollgate::ledger::VerificationReport {
    drop(ledger);
    verify(dir).expect("reads")
}

/// The variable that makes this test binary the process that is killed.
const VICTIM: &str = "LEDGER_TEST_VICTIM";
const KILLS: usize = 12;

/// Acknowledges on its standard output whatever the ledger said is durable, until it is killed.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test tells its own child where to work")]
fn victim() {
    let Ok(dir) = std::env::var(VICTIM) else { return };
    let (ledger, _) = open(Path::new(&dir)).expect("opens");
    runtime().block_on(async {
        let tasks: Vec<_> = (0..16)
            .map(|_| {
                let ledger = Arc::clone(&ledger);
                tokio::spawn(async move {
                    let account = ledger.create_account("v").await.expect("account").id;
                    for n in 0.. {
                        let id = n.to_string();
                        ledger.grant(account, &id, Nanousd::new(100)).await.expect("grant");
                        let credit_limit = Some(Nanousd::new(n % 3 * 50));
                        let line = AccountPatch { credit_limit, ..AccountPatch::default() };
                        ledger
                            .by(&Actor::Gateway)
                            .update_account(account, line)
                            .await
                            .expect("a line");
                        let hold = ledger.reserve(reserve_with_floor(account, 100)).expect("hold");
                        hold.durable().await.expect("durable");
                        // One write, so that lines of the tasks do not mix.
                        println!("ack {account} {} {}", n + 1, hold.id());
                        hold.post(settlement(60));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("never ends");
        }
    });
}

/// The variable that makes this test binary the process that sends calls upstream.
const SENDER: &str = "LEDGER_TEST_SENDER";

/// Writes on its standard output what an upstream would get, and does not wait for any disk.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test tells its own child where to work")]
fn sender() {
    let Ok(dir) = std::env::var(SENDER) else { return };
    let (ledger, _) = open(Path::new(&dir)).expect("opens");
    let account = ledger.accounts()[0].id;
    runtime().block_on(async {
        for _ in 0..20_000 {
            let hold = ledger.reserve(reserve_with_floor(account, 1)).expect("hold");
            hold.note_sent().await.expect("a trace");
            println!("sent {} {}", hold.id(), RequestId::new());
            if fastrand::u8(..2) == 0 {
                hold.post(settlement(1));
            } else {
                // It stays open, as while an upstream works on it.
                std::mem::forget(hold);
            }
        }
    });
    // Until it is killed.
    harness::hang();
}

/// Whatever an upstream was sent is in the books after a crash: settled, or in doubt.
#[test]
fn no_call_that_was_sent_is_without_a_trace() {
    let dir = TempDir::new().expect("directory");
    let account = history(dir.path(), 3);
    {
        let (ledger, _) = open(dir.path()).expect("opens");
        runtime().block_on(ledger.grant(account, "much", Nanousd::new(1 << 40))).expect("grant");
    }
    let mut unrecorded = 0;
    for round in 0..KILLS {
        let (before, in_doubt_before) = ended(dir.path(), account);
        let mut child = harness::test_process(module_path!(), "sender")
            .env(SENDER, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("spawns");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let reader = std::thread::spawn(move || {
            let words = |line: &String| line.split_whitespace().any(|word| word == "sent");
            lines.map_while(Result::ok).filter(words).count()
        });
        kill_after(&mut child, Duration::from_millis(150 + 20 * round as u64));
        let sent = reader.join().expect("reads");
        let (ledger, recovery) = open(dir.path()).unwrap_or_else(|e| panic!("round {round}: {e}"));
        unrecorded += recovery.unrecorded;
        drop(ledger);
        let (after, in_doubt) = ended(dir.path(), account);
        let traced = after + in_doubt - before - in_doubt_before;
        assert!(traced >= sent, "round {round}: {sent} were sent, {traced} have a trace");
        // One may have been noted whose line was not written, and one may have been cut.
        assert!(traced <= sent + 2, "round {round}: {sent} were sent, {traced} have a trace");
        let report = verify(dir.path()).expect("reads");
        assert_eq!(report.violations, Vec::<String>::new(), "round {round}");
        assert_eq!(report.total.held, Nanousd::ZERO);
    }
    assert!(unrecorded > 0, "the kills came at no moment that matters");
    println!("{unrecorded} calls had no record");
}

/// Calls of an account that are settled, and those that are in doubt.
fn ended(dir: &Path, account: AccountId) -> (usize, usize) {
    let (ledger, _) = open(dir).expect("opens");
    runtime().block_on(async {
        let (mut settled, mut before) = (0, None);
        loop {
            let page = ledger.entries(account, before, 1_000).await.expect("entries");
            settled += page
                .iter()
                .filter(|entry| matches!(entry.kind, EntryKind::Settlement { .. }))
                .count();
            let Some(last) = page.last() else { break };
            before = Some(last.seq);
        }
        (settled, ledger.in_doubt().await.expect("listed").len())
    })
}

#[test]
fn acknowledged_writes_survive_kill_9() {
    let dir = TempDir::new().expect("directory");
    let mut rng = u64::try_from(RequestId::new().number() >> 80).expect("48 bits");
    println!("seed {rng}");
    let (mut acknowledged, mut doubted) = (std::collections::BTreeMap::<AccountId, i64>::new(), 0);
    for round in 0..KILLS {
        rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut child = harness::test_process(module_path!(), "victim")
            .env(VICTIM, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("spawns");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let reader = std::thread::spawn(move || {
            let mut acks = Vec::new();
            while let Some(Ok(line)) = lines.next() {
                let mut words = line.split_whitespace().skip_while(|word| *word != "ack").skip(1);
                // The last line may be cut by the kill.
                if let (Some(account), Some(grants), Some(hold)) =
                    (words.next(), words.next(), words.next())
                    && hold.len() == "hold_".len() + 16
                {
                    let account: AccountId = account.parse().expect("an account");
                    acks.push((account, grants.parse::<i64>().expect("a count")));
                }
            }
            acks
        });
        kill_after(&mut child, Duration::from_millis(60 + rng % 400));
        for (account, grants) in reader.join().expect("reads") {
            let most = acknowledged.entry(account).or_default();
            *most = grants.max(*most);
        }
        let (ledger, recovery) = open(dir.path()).unwrap_or_else(|e| panic!("round {round}: {e}"));
        doubted += recovery.in_doubt.len();
        for (account, grants) in &acknowledged {
            let balance = ledger.account(*account).expect("acknowledged").balance;
            assert_eq!(balance.credit.get() % 50, 0, "round {round}: half a line");
            let granted = balance.paid_in().get();
            assert!(granted >= grants * 100, "round {round}: {account} lost a grant: {granted}");
            let spent = balance.spent.get();
            assert_eq!(spent % 60, 0, "round {round}: half a settlement");
        }
        drop(ledger);
        let report = verify(dir.path()).expect("reads");
        assert_eq!(report.violations, Vec::<String>::new(), "round {round}");
        assert_eq!(report.sled_hash.as_ref(), Some(&report.state_hash), "round {round}");
    }
    assert!(acknowledged.len() > KILLS, "too little was acknowledged: {}", acknowledged.len());
    println!("{} accounts acknowledged, {doubted} calls in doubt", acknowledged.len());
}
