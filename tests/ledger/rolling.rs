//! Holds that grow while an answer streams: what pays for bytes while an extension is being written, and
//! what a kill in the middle of one leaves.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tollgate::ledger::{
    AccountId, HoldId, Ledger, OfflineRecords, Options, Record, RecoveryPolicy, Refusal, Reserve,
    verify,
};
use tollgate::money::Nanousd;

use crate::harness;
use crate::harness::child::kill_after;
use crate::harness::ledger::{close_and_verify, reserve, runtime, settlement};

const KILLS: u64 = 10;
const BALANCE: i64 = 1 << 40;

/// The variable that makes this test binary the process that is killed.
const ROLLER: &str = "LEDGER_TEST_ROLLER";

fn open(dir: &Path) -> Arc<Ledger> {
    Ledger::open(Options::new(dir)).expect("opens").0
}

fn account_with(ledger: &Arc<Ledger>, balance: i64) -> AccountId {
    runtime().block_on(async {
        let account = ledger.create_account("rolls").await.expect("account").id;
        ledger.grant(account, "first", Nanousd::new(balance)).await.expect("grant");
        account
    })
}

#[test]
fn what_was_held_before_pays_until_the_extension_is_on_disk() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(dir.path());
    let account = account_with(&ledger, 1_000);
    let runtime = runtime();
    let mut hold = ledger.reserve(reserve(account, 100)).expect("hold");
    assert!([0, 100].contains(&hold.durable_amount().get()), "{hold:?}");
    runtime.block_on(hold.durable()).expect("durable");
    assert_eq!(hold.durable_amount(), Nanousd::new(100));
    assert_eq!(hold.available(), Nanousd::new(900));
    for amount in [200_i64, 300] {
        let before = hold.durable_amount();
        hold.extend(Nanousd::new(amount)).expect("extends");
        let meanwhile = hold.durable_amount();
        assert!(meanwhile == before || meanwhile == hold.amount(), "{meanwhile} of {hold:?}");
        // A refused extension leaves the hold, and what pays for bytes, as they were.
        let refusal = hold.extend(Nanousd::new(900)).expect_err("more than is available");
        assert!(matches!(refusal, Refusal::Held { .. }), "{refusal}");
        runtime.block_on(hold.durable()).expect("durable");
        assert_eq!(hold.durable_amount(), hold.amount());
    }
    assert!(hold.fetch(Nanousd::new(1)).is_none(), "all of the money is here");
    assert_eq!(hold.post(settlement(50)).charged, Nanousd::new(50));
    let balance = ledger.account(account).expect("there").balance;
    assert_eq!((balance.available.get(), balance.held.get()), (950, 0), "the rest is free at once");
    close_and_verify(ledger, dir.path());
}

#[test]
fn extensions_of_parallel_streams_never_pass_the_balance() {
    let dir = TempDir::new().expect("directory");
    let ledger = open(dir.path());
    let account = account_with(&ledger, 10_000);
    std::thread::scope(|threads| {
        for thread in 0..8_u64 {
            let ledger = &ledger;
            threads.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                for _ in 0..200 {
                    let Ok(mut hold) = ledger.reserve(reserve(account, random.i64(1..400))) else {
                        continue;
                    };
                    while hold.extend(Nanousd::new(random.i64(1..700))).is_ok() {}
                    // It never costs more than what is held: extensions come before bytes.
                    let cost = random.i64(0..=hold.amount().get()) / 1_000;
                    let posted = hold.post(settlement(cost));
                    assert_eq!(posted.owed, Nanousd::ZERO, "nothing is owed");
                }
            });
        }
    });
    let balance = ledger.account(account).expect("there").balance;
    assert_eq!(balance.held, Nanousd::ZERO, "{balance:?}");
    assert_eq!(balance.granted.get(), balance.available.get() + balance.spent.get(), "{balance:?}");
    close_and_verify(ledger, dir.path());
}

/// Writes on its standard output what a hold pays for on disk, as a gateway that sends bytes, until it is
/// killed.
#[test]
#[expect(clippy::disallowed_methods, reason = "the test tells its own child where to work")]
fn roller() {
    let Ok(dir) = std::env::var(ROLLER) else { return };
    let ledger = open(Path::new(&dir));
    let account = ledger.accounts()[0].id;
    runtime().block_on(async {
        let streams: Vec<_> = (0..16)
            .map(|_| {
                let ledger = Arc::clone(&ledger);
                tokio::spawn(async move {
                    // Until the process is killed.
                    for _ in 0..u64::MAX {
                        let floor = Nanousd::new(10);
                        let request = Reserve { floor, ..reserve(account, 100) };
                        let mut hold = ledger.reserve(request).expect("hold");
                        for _ in 0..5 {
                            hold.extend(Nanousd::new(fastrand::i64(50..500))).expect("extends");
                            if fastrand::bool() {
                                hold.durable().await.expect("durable");
                            } else {
                                tokio::task::yield_now().await;
                            }
                            // One write, so that lines of the tasks do not mix.
                            println!("sent {} {} .", hold.id(), hold.durable_amount().get());
                        }
                        let cost = fastrand::i64(0..=hold.amount().get());
                        hold.post(settlement(cost));
                    }
                })
            })
            .collect();
        for stream in streams {
            stream.await.expect("never ends");
        }
    });
}

/// Amount on disk of each hold, extensions included.
fn held_on_disk(dir: &Path) -> BTreeMap<HoldId, i64> {
    let mut held = BTreeMap::new();
    for record in OfflineRecords::open(dir, 0).expect("opens") {
        match record.expect("reads") {
            (seq, Record::Reserved(reservation)) => {
                held.insert(HoldId::from_number(seq), reservation.amount.get());
            }
            (_, Record::Extended { hold, amount, .. }) => {
                *held.entry(hold).or_default() += amount.get();
            }
            _ => {}
        }
    }
    held
}

#[test]
fn a_kill_in_the_middle_of_an_extension_leaves_what_bytes_were_sent_under() {
    let dir = TempDir::new().expect("directory");
    {
        let ledger = open(dir.path());
        account_with(&ledger, BALANCE);
        ledger.close();
    }
    let (mut lines, mut in_doubt) = (0, 0);
    for round in 0..KILLS {
        let mut child = harness::test_process(module_path!(), "roller")
            .env(ROLLER, dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("spawns");
        let output = BufReader::new(child.stdout.take().expect("piped")).lines();
        let reader = std::thread::spawn(move || {
            let sent = |line: String| {
                let words: Vec<_> = line.split_whitespace().collect();
                let at = words.iter().position(|word| *word == "sent")?;
                // The last line may be cut by the kill.
                let [hold, amount, "."] = *words.get(at + 1..at + 4)? else { return None };
                Some((hold.parse::<HoldId>().ok()?, amount.parse::<i64>().ok()?))
            };
            output.map_while(Result::ok).filter_map(sent).collect::<Vec<_>>()
        });
        kill_after(&mut child, Duration::from_millis(200 + 37 * round));
        let sent = reader.join().expect("reads");
        let held = held_on_disk(dir.path());
        for (hold, amount) in &sent {
            let on_disk = held.get(hold).copied().unwrap_or_default();
            assert!(
                on_disk >= *amount,
                "round {round}: {amount} sent under {hold}, {on_disk} held"
            );
        }
        lines += sent.len();
        // The recovery charges the floor, and gives the rest back.
        let policy = RecoveryPolicy::Floor;
        let options = Options { recovery: policy, ..Options::new(dir.path()) };
        let (ledger, recovery) = Ledger::open(options).expect("opens");
        for call in &recovery.in_doubt {
            assert_eq!(call.charged, Nanousd::new(10), "round {round}: {call:?}");
        }
        in_doubt += recovery.in_doubt.len();
        drop(ledger);
        let report = verify(dir.path()).expect("reads");
        assert_eq!(report.violations, Vec::<String>::new(), "round {round}");
        assert_eq!(report.total.held, Nanousd::ZERO, "round {round}");
        let (spent, available) = (report.total.spent.get(), report.total.available.get());
        assert_eq!(spent + available, BALANCE, "round {round}");
    }
    println!("{lines} lines, {in_doubt} calls in doubt");
    assert!(lines > 100 && in_doubt > 10, "{lines} lines, {in_doubt} calls in doubt");
}
