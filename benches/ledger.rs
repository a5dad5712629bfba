//! The cost of the ledger: `cargo bench --bench ledger`. Prints tables; takes about two minutes.
//!
//! Each caller reserves, waits until its hold is on disk as a gateway does before the first byte,
//! and posts. Numbers depend on the disk's flush above all.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tollgate::ledger::{AccountId, Commit, KeyId, Ledger, Options, RequestId, Reserve, Settlement};
use tollgate::money::Nanousd;
use tollgate::price::{Usage, UsageSource};

#[path = "rig/machine.rs"]
mod machine;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Duration of the measurement of each line of the first table.
const ROUND: Duration = Duration::from_secs(4);
/// Clock ticks per second in `/proc`, fixed on Linux.
const TICKS_PER_SECOND: f64 = 100.0;

fn main() {
    println!("{}\n", machine::Machine::here("ledger"));
    println!("callers wait for the durability of their hold, then post\n");
    println!(
        "{:>8} {:>8} {:>12} {:>12} {:>12} {:>12} {:>12} {:>10}",
        "accounts", "callers", "calls/s", "p50 µs", "p99 µs", "commit p50", "commit p99", "CPU µs"
    );
    for accounts in [1, 10_000] {
        for callers in [1, 16, 256, 1024] {
            contend(accounts, callers);
        }
    }
    println!("\nno caller waits for the disk (CPU of the whole ledger per hold and settlement)\n");
    for accounts in [1, 10_000] {
        relaxed(accounts);
    }
    start_up();
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("runtime")
}

fn data_dir() -> tempfile::TempDir {
    tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("directory")
}

async fn fill(ledger: &Arc<Ledger>, count: usize) -> Vec<AccountId> {
    let mut accounts = Vec::new();
    let pending: Vec<_> = (0..count)
        .map(|_| {
            let ledger = Arc::clone(ledger);
            tokio::spawn(async move {
                let id = ledger.create_account("bench").await.expect("account").id;
                ledger.grant(id, "g", Nanousd::new(1 << 55)).await.expect("grant");
                id
            })
        })
        .collect();
    for account in pending {
        accounts.push(account.await.expect("task"));
    }
    accounts
}

fn ask(account: AccountId, model: &Arc<str>) -> Reserve {
    Reserve {
        account,
        key: KeyId::from_number(account.number()),
        model: Arc::clone(model),
        price: None,
        request: RequestId::new(),
        amount: Nanousd::new(1_234_567),
        floor: Nanousd::new(1_000),
    }
}

fn settlement() -> Settlement {
    let usage = Usage { input_tokens: 1_234, output_tokens: 567, ..Usage::default() };
    Settlement { charge: Nanousd::new(654_321), usage, source: UsageSource::Upstream }
}

fn contend(account_count: usize, callers: usize) {
    let dir = data_dir();
    let commits = Arc::new(Mutex::new(histogram()));
    let recorded = Arc::clone(&commits);
    let on_commit = move |commit: Commit| recorded.lock().saturating_record(micros(commit.took));
    let options = Options { on_commit: Some(Box::new(on_commit)), ..Options::new(dir.path()) };
    let (ledger, _) = Ledger::open(options).expect("opens");
    let latencies = Arc::new(Mutex::new(histogram()));
    let (calls, took, cpu) = runtime().block_on(async {
        let accounts = Arc::new(fill(&ledger, account_count).await);
        commits.lock().reset();
        let (began, cpu) = (Instant::now(), cpu_seconds());
        let tasks: Vec<_> = (0..callers)
            .map(|caller| {
                let (ledger, accounts) = (Arc::clone(&ledger), Arc::clone(&accounts));
                let latencies = Arc::clone(&latencies);
                tokio::spawn(async move {
                    let model: Arc<str> = "model-with-a-usual-name".into();
                    let mut own = histogram();
                    let (mut calls, mut at) = (0_u64, caller * 7919);
                    while began.elapsed() < ROUND {
                        at += 1;
                        let account = accounts[at % accounts.len()];
                        let sent = Instant::now();
                        let hold = ledger.reserve(ask(account, &model)).expect("hold");
                        hold.durable().await.expect("durable");
                        own.saturating_record(micros(sent.elapsed()));
                        hold.post(settlement());
                        calls += 1;
                    }
                    latencies.lock().add(own).expect("same precision");
                    calls
                })
            })
            .collect();
        let mut calls = 0;
        for task in tasks {
            calls += task.await.expect("task");
        }
        let took = began.elapsed();
        ledger.close();
        (calls, took, cpu_seconds() - cpu)
    });
    let (latencies, commits) = (latencies.lock(), commits.lock());
    println!(
        "{account_count:>8} {callers:>8} {:>12.0} {:>12} {:>12} {:>12} {:>12} {:>10.2}",
        calls as f64 / took.as_secs_f64(),
        latencies.value_at_quantile(0.5),
        latencies.value_at_quantile(0.99),
        commits.value_at_quantile(0.5),
        commits.value_at_quantile(0.99),
        cpu * 1e6 / calls as f64,
    );
}

fn relaxed(account_count: usize) {
    const CALLS: usize = 400_000;
    let dir = data_dir();
    let (ledger, _) = Ledger::open(Options::new(dir.path())).expect("opens");
    let accounts = runtime().block_on(fill(&ledger, account_count));
    let model: Arc<str> = "model-with-a-usual-name".into();
    let (began, cpu) = (Instant::now(), cpu_seconds());
    // Twenty thousand calls a second, as a busy gateway has them.
    for burst in 0..CALLS / 200 {
        for call in 0..200 {
            let account = accounts[(burst * 200 + call) % accounts.len()];
            ledger.reserve(ask(account, &model)).expect("hold").post(settlement());
        }
        let due = Duration::from_millis(10) * u32::try_from(burst).expect("fits");
        std::thread::sleep(due.saturating_sub(began.elapsed()));
    }
    let in_memory = cpu_seconds() - cpu;
    ledger.close();
    println!(
        "{account_count:>8} accounts: {:.2} µs CPU per call, closing included {:.2}; {} MB in the directory",
        in_memory * 1e6 / CALLS as f64,
        (cpu_seconds() - cpu) * 1e6 / CALLS as f64,
        bytes_under(dir.path()) >> 20,
    );
}

fn start_up() {
    /// Holds and settlements: a million entries.
    const CALLS: usize = 500_000;
    let dir = data_dir();
    let (ledger, _) = Ledger::open(Options::new(dir.path())).expect("opens");
    runtime().block_on(async {
        let accounts = fill(&ledger, 1_000).await;
        let model: Arc<str> = "model-with-a-usual-name".into();
        for call in 0..CALLS {
            let account = accounts[call % accounts.len()];
            ledger.reserve(ask(account, &model)).expect("hold").post(settlement());
            if call % 10_000 == 0 {
                ledger.grant(account, &format!("g{call}"), Nanousd::new(1)).await.expect("grant");
            }
        }
        ledger.close();
    });
    drop(ledger);
    println!(
        "\n1,000,000 entries in 1,000 accounts, {} MB journal, {} MB sled\n",
        bytes_under(&dir.path().join("journal")) >> 20,
        bytes_under(&dir.path().join("sled")) >> 20
    );
    for _ in 0..3 {
        let (ledger, recovery) = Ledger::open(Options::new(dir.path())).expect("opens");
        println!(
            "start after a clean stop  {:>10.1} ms, {} replayed",
            recovery.took.as_secs_f64() * 1e3,
            recovery.records_replayed
        );
        ledger.close();
    }
    fs::remove_dir_all(dir.path().join("sled")).expect("removed");
    let cpu = cpu_seconds();
    let (_ledger, recovery) = Ledger::open(Options::new(dir.path())).expect("opens");
    println!(
        "rebuild from the journal  {:>10.1} ms, {} replayed, {:.2} s CPU",
        recovery.took.as_secs_f64() * 1e3,
        recovery.records_replayed,
        cpu_seconds() - cpu
    );
}

/// Microseconds, up to a minute.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("histogram")
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// User and system time of this process so far.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> =
        stat.rsplit(')').next().expect("a name in brackets").split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
    (ticks(11) + ticks(12)) / TICKS_PER_SECOND
}

fn bytes_under(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).expect("readable").map(|entry| entry.expect("readable"));
    entries
        .map(|entry| {
            let data = entry.metadata().expect("readable");
            if data.is_dir() { bytes_under(&entry.path()) } else { data.len() }
        })
        .sum()
}
