//! kill -9 of a ledger while its files are sealed, archived and backed up.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tollgate::ledger::{self, AccountId, Ledger, VoidReason, verify};
use tollgate::money::Nanousd;

use crate::harness::child::kill_after;
use crate::harness::ledger::{reserve, runtime, settlement, small_segments};
use crate::harness::{let_pass, rounds, test_process};

/// The variables that make this test binary the process that is killed: where, and with what archive.
const VICTIM: &str = "LEDGER_LIFE_VICTIM";
const ARCHIVE: &str = "LEDGER_LIFE_ARCHIVE";
/// Kills in one run.
const ROUNDS: u64 = 6;

#[expect(clippy::disallowed_methods, reason = "the test tells its own child where to work")]
fn directory(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).map(PathBuf::from)
}

/// Acknowledges what is durable on its standard output, until it is killed.
#[test]
#[ignore = "the process that `what_was_acknowledged_outlives_kill_9_while_the_ledger_is_kept` kills"]
fn victim() {
    let (Some(dir), Some(archive)) = (directory(VICTIM), directory(ARCHIVE)) else { return };
    let (ledger, _) = Ledger::open(small_segments(&dir, Some(&archive))).expect("opens");
    runtime().block_on(async {
        let customers: Vec<_> = (0..4)
            .map(|_| {
                let ledger = Arc::clone(&ledger);
                tokio::spawn(async move {
                    let account = ledger.create_account("v").await.expect("account").id;
                    for n in 1.. {
                        let id = format!("grant-{n}");
                        ledger.grant(account, &id, Nanousd::new(100)).await.expect("grant");
                        println!("ack {account} {n} .");
                        let hold = ledger.reserve(reserve(account, 100)).expect("hold");
                        if n % 3 == 0 {
                            hold.durable().await.expect("durable");
                        }
                        match n % 5 {
                            0 => hold.void(VoidReason::Unreached),
                            _ => drop(hold.post(settlement(60))),
                        }
                        // So much that many files are closed, and not so much that reading takes long.
                        tokio::time::sleep(Duration::from_millis(4)).await;
                    }
                })
            })
            .collect();
        for customer in customers {
            customer.await.expect("never ends");
        }
    });
}

/// A victim at work, and what it acknowledges.
fn start(dir: &Path, archive: &Path) -> (Child, std::thread::JoinHandle<Vec<(AccountId, i64)>>) {
    let mut child = test_process(module_path!(), "victim")
        .env(VICTIM, dir)
        .env(ARCHIVE, archive)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("spawns");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let acknowledged = |line: String| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "ack").skip(1);
        let (account, grants, end) = (words.next()?, words.next()?, words.next()?);
        // The last line may be cut.
        (end == ".").then(|| Some((account.parse().ok()?, grants.parse().ok()?)))?
    };
    let reader =
        std::thread::spawn(move || lines.map_while(Result::ok).filter_map(acknowledged).collect());
    (child, reader)
}

/// Segments are sealed, checkpoints written and files archived many times a second, and a backup is made
/// beside it; then everything ends at once. What was acknowledged is there, in the ledger as in what is
/// restored of the backup as far as that reaches, and nothing contradicts itself.
#[test]
#[ignore = "kills a ledger again and again"]
fn acknowledged_writes_survive_kill_9_during_maintenance() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let place = TempDir::new().expect("a directory");
    let [dir, archive, backup] = ["data", "archive", "backup"].map(|name| place.path().join(name));
    fs::create_dir(&archive).expect("made");
    let mut acknowledged = std::collections::BTreeMap::<AccountId, i64>::new();
    let archived = || fs::read_dir(&archive).expect("readable").count();
    // In a short form a few more, until an archive has something to lose.
    for round in
        (0..rounds(ROUNDS) * 10).take_while(|round| *round < rounds(ROUNDS) || archived() == 0)
    {
        let (mut child, reader) = start(&dir, &archive);
        let_pass(Duration::from_millis(random.u64(900..2_400)), "it writes for a while");
        let mut until_kill = Duration::ZERO;
        if random.bool() && dir.join("head.json").exists() {
            ledger::backup(&dir, &backup).unwrap_or_else(|e| panic!("seed {seed} {round}: {e}"));
            until_kill = Duration::from_millis(random.u64(..50));
        }
        kill_after(&mut child, until_kill);
        for (account, grants) in reader.join().expect("reads") {
            let most = acknowledged.entry(account).or_default();
            *most = grants.max(*most);
        }
        if random.u8(..3) == 0 {
            drop(fs::remove_dir_all(dir.join("sled")));
        }
        let (ledger, _) = Ledger::open(small_segments(&dir, Some(&archive)))
            .unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
        for (account, grants) in &acknowledged {
            let balance = ledger.account(*account).expect("acknowledged").balance;
            assert!(balance.granted.get() >= grants * 100, "seed {seed}, {round}: {balance:?}");
            assert_eq!(balance.spent.get() % 60, 0, "seed {seed}, {round}: half a settlement");
            assert_eq!(balance.held, Nanousd::ZERO, "seed {seed}, {round}");
        }
        ledger.close();
        drop(ledger);
        let report = verify(&dir).expect("reads");
        assert_eq!(report.violations, Vec::<String>::new(), "seed {seed}, round {round}");
        assert_eq!(report.sled_hash.as_ref(), Some(&report.state_hash), "seed {seed}, {round}");
        if backup.exists() {
            let restored = TempDir::new_in(place.path()).expect("a directory");
            let copied = ledger::restore(&backup, restored.path(), None)
                .unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
            assert!(!copied.left_out.unreadable, "seed {seed}, round {round}: {copied:?}");
            drop(Ledger::open(small_segments(restored.path(), None)).expect("it starts"));
            let report = verify(restored.path()).expect("reads");
            assert_eq!(report.violations, Vec::<String>::new(), "seed {seed}, round {round}");
        }
    }
    assert!(archived() > 0, "seed {seed}: nothing was archived");
    println!("{} accounts acknowledged", acknowledged.len());
}
