//! Memory of a ledger that goes on and on. Takes minutes: `cargo test --test proofs -- --ignored
//! --nocapture ledger_memory`.

use std::fs;
use std::sync::Arc;

use tollgate::ledger::{AccountId, KeyId, Ledger, Options, RequestId, Reserve, Settlement};
use tollgate::money::Nanousd;
use tollgate::price::{Usage, UsageSource};

use crate::harness::{alone, rounds};

/// The gateway's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Customers, of which one makes half of all calls.
const ACCOUNTS: usize = 200;
/// Calls between two waits for the disk.
const BURST: usize = 500;
/// Calls between two readings of a statement, up to which sled is brought then: so many as a busy gateway
/// has in the five seconds after which it is brought up to the journal anyway.
const WINDOW: usize = 2_500;
/// Records of a call: its hold and its charge.
const RECORDS_PER_CALL: usize = 2;

fn resident_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("resident memory");
    let kib: f64 = line.split_whitespace().nth(1).expect("a number").parse().expect("a number");
    kib / 1024.0
}

async fn calls(ledger: &Arc<Ledger>, accounts: &[AccountId], count: usize) {
    let model: Arc<str> = "model-with-a-usual-name".into();
    let usage = Usage { input_tokens: 1_234, output_tokens: 567, ..Usage::default() };
    for call in 0..count {
        let account =
            if call % 2 == 0 { accounts[0] } else { accounts[fastrand::usize(..ACCOUNTS)] };
        let hold = ledger.reserve(Reserve {
            account,
            key: KeyId::from_number(account.number()),
            model: Arc::clone(&model),
            price: None,
            request: RequestId::new(),
            amount: Nanousd::new(1_234_567),
            floor: Nanousd::new(1_000),
        });
        let hold = hold.expect("hold");
        hold.note_sent().await.expect("a trace");
        if call % BURST == 0 {
            hold.durable().await.expect("durable");
        }
        let charge = Nanousd::new(654_321);
        hold.post(Settlement { charge, usage, source: UsageSource::Upstream });
        if call % WINDOW == 0 {
            let read = ledger.entries(accounts[fastrand::usize(..ACCOUNTS)], None, 100).await;
            read.expect("entries");
        }
    }
}

/// Memory does not grow with what was written.
#[test]
#[ignore = "takes minutes"]
fn memory_stands_still_over_millions_of_records() {
    if alone(module_path!(), "memory_stands_still_over_millions_of_records") {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
        runtime.block_on(memory_over_millions_of_records());
    }
}

async fn memory_over_millions_of_records() {
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (ledger, _) = Ledger::open(Options::new(dir.path())).expect("opens");
    let mut accounts = Vec::new();
    for _ in 0..ACCOUNTS {
        let id = ledger.create_account("soak").await.expect("account").id;
        ledger.grant(id, "g", Nanousd::new(1 << 55)).await.expect("grant");
        accounts.push(id);
    }
    println!("{:>10} {:>8} {:>8}", "records", "MiB", "sled");
    let mut measured = Vec::new();
    let parts = rounds(20).max(4);
    for part in 1..=parts {
        // The most of what is seen over a tenth counts, not the moment after sled was opened again.
        let mut most: f64 = 0.0;
        for _ in 0..10 {
            calls(&ledger, &accounts, 500_000 / RECORDS_PER_CALL / 10).await;
            most = most.max(resident_mib());
        }
        let sled = dir.path().join("sled/db");
        let sled = fs::metadata(sled).map_or(0, |found| found.len()) >> 20;
        println!("{:>10} {most:>8.1} {sled:>8}", part * 500_000);
        measured.push(most);
    }
    // Half a million requests are a million records.
    let (half_a_million, last) = (measured[1], measured[measured.len() - 1]);
    // The goal is 80 MiB, and a tenth more at most than after half a million: at full load sled is nearly
    // always being made anew, and there are two then.
    assert!(last < 180.0, "{last} MiB");
    let most = half_a_million * 1.6;
    assert!(last <= most, "{half_a_million} MiB after half a million requests, {last} now");
    ledger.close();
}
