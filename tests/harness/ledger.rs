//! Ledgers in this process: calls on them, what their queries say, and the files that they leave.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tollgate::clock::UnixMs;
use tollgate::ledger::{
    AccountId, Archive, ArchiveTo, KeyId, Ledger, MaintenanceOptions, Options, RequestId, Reserve,
    Settlement, verify,
};
use tollgate::money::Nanousd;
use tollgate::price::{Usage, UsageSource};

/// The bytes of a segment before its first frame.
const SEGMENT_HEADER: usize = 56;
/// Bytes of a frame beside its content.
const FRAME_HEADER: usize = 60;

/// A runtime with two threads.
pub(crate) fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// A call that can cost so many nano-dollars, and may cost nothing.
pub(crate) fn reserve(account: AccountId, nanousd: i64) -> Reserve {
    Reserve {
        account,
        key: KeyId::from_number(7),
        model: "model-a".into(),
        price: None,
        request: RequestId::new(),
        amount: Nanousd::new(nanousd),
        floor: Nanousd::ZERO,
    }
}

/// The end of a call that costs so many nano-dollars.
pub(crate) fn settlement(nanousd: i64) -> Settlement {
    let usage = Usage { input_tokens: 3, ..Usage::default() };
    Settlement { charge: Nanousd::new(nanousd), usage, source: UsageSource::Upstream }
}

/// Segments of 4 KiB, a checkpoint whenever one can be made, and closed segments moved to `archive` at
/// once.
pub(crate) fn small_segments(dir: &Path, archive: Option<&Path>) -> Options {
    let archive = archive
        .map(|path| Archive { to: ArchiveTo::Directory(path.to_owned()), keep: Duration::ZERO });
    let maintenance =
        MaintenanceOptions { checkpoint_interval: Duration::ZERO, archive, on_event: None };
    Options { maintenance, segment_bytes_max: 4 << 10, ..Options::new(dir) }
}

/// The entries of some accounts, their usage and their balances, as text.
pub(crate) async fn statements(ledger: &Arc<Ledger>, accounts: &[AccountId]) -> String {
    let mut text = String::new();
    for account in accounts {
        let mut before = None;
        // In pages, so that some begin in sled and go on in the journal.
        loop {
            let page = ledger.entries(*account, before, 7).await.expect("entries");
            let Some(last) = page.last() else { break };
            before = Some(last.seq);
            writeln!(text, "{page:?}").expect("text");
        }
        let usage = ledger.usage(*account, UnixMs(0)..UnixMs(u64::MAX / 2)).await.expect("usage");
        writeln!(text, "{:?} {usage:?}", ledger.account(*account)).expect("text");
    }
    text
}

/// The files of a directory whose names end like this, in order.
pub(crate) fn files(dir: &Path, end: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("a directory");
    let mut found: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    found.retain(|path| path.to_string_lossy().ends_with(end));
    found.sort();
    found
}

/// The segments of a data directory's journal.
pub(crate) fn segments(data: &Path) -> Vec<PathBuf> {
    files(&data.join("journal"), ".seg")
}

/// The segment of a journal that has one.
pub(crate) fn only_segment(data: &Path) -> PathBuf {
    let mut segments = segments(data);
    assert_eq!(segments.len(), 1, "segments");
    segments.remove(0)
}

/// Where each frame begins in a segment, and where the last one ends.
pub(crate) fn frame_bounds(bytes: &[u8]) -> Vec<usize> {
    let (mut at, mut bounds) = (SEGMENT_HEADER, vec![SEGMENT_HEADER]);
    while let Some(length) = bytes.get(at + 4..).and_then(|rest| rest.first_chunk()) {
        at += FRAME_HEADER + u32::from_le_bytes(*length) as usize + 1;
        bounds.push(at);
    }
    bounds
}

/// Copies a directory with all that is in it.
pub(crate) fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-r").args([from, to]).status();
    assert!(copied.expect("cp runs").success());
}

/// Removes sled, which is made anew at the next start.
pub(crate) fn remove_sled(data: &Path) {
    fs::remove_dir_all(data.join("sled")).expect("removed");
}

/// Closes a ledger: its journal breaks no rule, and replayed gives the state that memory and sled had.
pub(crate) fn close_and_verify(ledger: Arc<Ledger>, data: &Path) {
    let hash: String = ledger.state_hash().iter().map(|byte| format!("{byte:02x}")).collect();
    ledger.close();
    drop(ledger);
    let report = verify(data).expect("readable");
    assert_eq!(report.violations, Vec::<String>::new(), "violations of the invariants");
    assert!(report.books.adds_up, "the books do not add up: {:?}", report.books);
    assert_eq!(report.state_hash, hash, "replay gives another state than memory had");
    assert_eq!(report.sled_hash, Some(hash), "sled gives another state than memory had");
}
