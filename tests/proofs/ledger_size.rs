//! The size of sled under a ledger that goes on and on.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tollgate::clock::UnixMs;
use tollgate::ledger::{Ledger, Options, Pruning, verify};
use tollgate::money::Nanousd;

use crate::harness::ledger::{reserve, runtime, settlement, small_segments};
use crate::harness::rounds;
use crate::harness::within_async;

/// Longer than sled is packed on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn bytes_of(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    let length = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => bytes_of(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.flatten().map(length).sum()
}

/// So many calls, as fast as they go, but none while sled is packed. After each tenth of them sled's file
/// has less than `most` bytes, and nothing of what queries tell is missing.
fn run(calls: usize, pruning: Pruning, segment_bytes_max: u64, most: u64) {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("one");
    let all = Options { segment_bytes_max, pruning, ..small_segments(dir.path(), None) };
    let (ledger, _) = Ledger::open(all).expect("opens");
    let sled = || bytes_of(&dir.path().join("sled"));
    runtime().block_on(async {
        let mut accounts = Vec::new();
        for _ in 0..20 {
            let id = ledger.create_account("one").await.expect("an account").id;
            ledger.grant(id, "g", Nanousd::new(1 << 50)).await.expect("a grant");
            accounts.push(id);
        }
        for _ in 0..10 {
            for call in 0..calls / 10 {
                let hold =
                    ledger.reserve(reserve(accounts[call % accounts.len()], 100)).expect("a hold");
                if call % 500 == 0 {
                    hold.durable().await.expect("durable");
                    // How much comes while sled is packed depends on the machine.
                    let is_packed = async || !dir.path().join("sled.new").exists();
                    within_async(PATIENCE, "sled is packed", is_packed).await;
                }
                hold.post(settlement(7));
                if call % 2_000 == 0 {
                    ledger.entries(accounts[0], None, 1).await.expect("entries");
                }
            }
            let packed = ledger.projection_state().packed;
            assert!(sled() < most, "{} bytes, packed {packed:?}", sled());
        }
        let (mut used, mut lines) = (0, 0);
        for account in &accounts {
            let usage = ledger.usage(*account, UnixMs(0)..UnixMs(u64::MAX / 2)).await;
            used += usage.expect("usage").iter().map(|row| row.total.calls).sum::<u64>();
        }
        assert_eq!(used, calls as u64);
        let mut before = None;
        loop {
            let page = ledger.entries(accounts[3], before, 1000).await.expect("entries");
            let Some(last) = page.last() else { break };
            before = Some(last.seq);
            lines += page.len();
        }
        assert_eq!(lines, calls / accounts.len() + 1, "every call has one line, and the grant");
        ledger.close();
    });
    drop(ledger);
    let report = verify(dir.path()).expect("readable");
    assert_eq!(report.violations, Vec::<String>::new());
}

#[test]
#[ignore = "takes a minute"]
fn the_size_of_sled_stands_still() {
    let small = Pruning { keep: Duration::ZERO, lines_max: 1 << 20, growth_min: 4 << 20 };
    // Without packing it has some 147 bytes a call.
    run(400_000, small, 256 << 10, 32 << 20);
}

/// The default bounds.
#[test]
#[ignore = "takes many minutes"]
fn the_size_of_sled_stands_still_over_millions_of_calls() {
    let calls = usize::try_from(rounds(6_000_000)).expect("few");
    run(calls, Pruning::default(), Options::new("").segment_bytes_max, 512 << 20);
}
