//! What the ledger finds again: torn and flipped bytes, a lost sled, and kill -9.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tollgate::ledger::{
    AccountId, KeyId, Ledger, OpenError, Options, Recovery, RecoveryPolicy, RequestId, Reserve,
    Settlement, VoidReason, verify,
};
use tollgate::money::Nanousd;
use tollgate::price::{Usage, UsageSource};

fn open(dir: &Path) -> Result<(Arc<Ledger>, Recovery), OpenError> {
    Ledger::open(Options::new(dir))
}

fn ask(account: AccountId, amount: i64) -> Reserve {
    Reserve {
        account,
        key: KeyId::from_number(7),
        model: "model-a".into(),
        request: RequestId::new(),
        amount: Nanousd::new(amount),
        floor: Nanousd::new(amount / 10),
    }
}

fn cost(nanousd: i64) -> Settlement {
    let usage = Usage { input_tokens: 3, ..Usage::default() };
    Settlement { charge: Nanousd::new(nanousd), usage, source: UsageSource::Upstream }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("runtime")
}

/// A closed ledger with some history, one durable group after the other.
fn history(dir: &Path, grants: i64) -> AccountId {
    let (ledger, _) = open(dir).expect("opens");
    runtime().block_on(async {
        let account = ledger.create_account("test").await.expect("account").id;
        for n in 1..=grants {
            ledger.grant(account, &n.to_string(), Nanousd::new(100)).await.expect("grant");
            ledger.reserve(ask(account, 50)).expect("hold").post(cost(n));
        }
        ledger.close();
        account
    })
}

fn only_segment(dir: &Path) -> PathBuf {
    let files: Vec<_> = fs::read_dir(dir.join("journal")).expect("readable").collect();
    assert_eq!(files.len(), 1, "segments");
    files.into_iter().next().expect("one").expect("readable").path()
}

fn without_sled(dir: &Path) {
    fs::remove_dir_all(dir.join("sled")).expect("removed");
}

/// Where each frame begins in a segment, and where the last one ends.
fn frame_bounds(bytes: &[u8]) -> Vec<usize> {
    let mut bounds = vec![56];
    while let Some(length) = bytes.get(bounds[bounds.len() - 1] + 4..).and_then(|b| b.first_chunk())
    {
        let content = u32::from_le_bytes(*length) as usize;
        bounds.push(bounds[bounds.len() - 1] + 60 + content + 1);
    }
    bounds
}

#[test]
fn a_torn_tail_is_cut_at_every_byte() {
    let dir = TempDir::new().expect("directory");
    history(dir.path(), 3);
    let segment = only_segment(dir.path());
    let whole = fs::read(&segment).expect("readable");
    let bounds = frame_bounds(&whole);
    let (begin, end) = (bounds[bounds.len() - 2], bounds[bounds.len() - 1]);
    assert_eq!(end, whole.len(), "the frames fill the segment");
    without_sled(dir.path());
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
    let segment = only_segment(dir.path());
    let whole = fs::read(&segment).expect("readable");
    without_sled(dir.path());
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

#[test]
fn a_sled_that_is_gone_or_corrupt_is_rebuilt() {
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
        ledger.reserve(ask(account, 10)).expect("hold").post(cost(1));
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
            let hold = ledger.reserve(ask(account, 40)).expect("hold");
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

fn verify_closed(ledger: Arc<Ledger>, dir: &Path) -> tollgate::ledger::Report {
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
                        let hold = ledger.reserve(ask(account, 100)).expect("hold");
                        hold.durable().await.expect("durable");
                        // One write, so that lines of the tasks do not mix.
                        println!("ack {account} {} {}", n + 1, hold.id());
                        hold.post(cost(60));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("never ends");
        }
    });
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let dir = TempDir::new().expect("directory");
    let mut rng = u64::try_from(RequestId::new().number() >> 80).expect("48 bits");
    println!("seed {rng}");
    let (mut acknowledged, mut doubted) = (std::collections::BTreeMap::<AccountId, i64>::new(), 0);
    for round in 0..KILLS {
        rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "victim", "--nocapture"])
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
        std::thread::sleep(Duration::from_millis(60 + rng % 400));
        child.kill().expect("killed");
        child.wait().expect("gone");
        for (account, grants) in reader.join().expect("reads") {
            let most = acknowledged.entry(account).or_default();
            *most = grants.max(*most);
        }
        let (ledger, recovery) = open(dir.path()).unwrap_or_else(|e| panic!("round {round}: {e}"));
        doubted += recovery.in_doubt.len();
        for (account, grants) in &acknowledged {
            let granted = ledger.account(*account).expect("acknowledged").balance.granted.get();
            assert!(granted >= grants * 100, "round {round}: {account} lost a grant: {granted}");
            let spent = ledger.account(*account).expect("acknowledged").balance.spent.get();
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
