//! Cost of seals, checkpoints and the archive, for docs/adr/0022.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tollgate::ledger::{
    AccountId, Archive, ArchiveTo, Ledger, MaintenanceEvent, MaintenanceOptions, Options,
};
use tollgate::money::Nanousd;

use crate::harness::alone;
use crate::harness::ledger::{files, remove_sled, reserve, runtime, segments, settlement};

const ACCOUNTS: usize = 100_000;
/// Calls that close the first segment (64 MiB) and begin the second.
const CALLS: usize = 760_000;

/// Prints, as the log does: a checkpoint's bytes and time, a move's, a seal's.
struct Print;

impl log::Log for Print {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.target().starts_with("tollgate") {
            println!("{}", record.args());
        }
    }

    fn flush(&self) {}
}

fn make(dir: &Path) -> Vec<AccountId> {
    let maintenance =
        MaintenanceOptions { checkpoint_interval: Duration::MAX, ..MaintenanceOptions::default() };
    let (ledger, _) = Ledger::open(Options { maintenance, ..Options::new(dir) }).expect("opens");
    let accounts = runtime().block_on(async {
        let made = (0..ACCOUNTS).map(|_| {
            let ledger = std::sync::Arc::clone(&ledger);
            async move { ledger.create_account("one").await.expect("an account").id }
        });
        let accounts = futures_util::future::join_all(made).await;
        let granted = accounts.iter().map(|id| ledger.grant(*id, "a", Nanousd::new(1_000_000)));
        futures_util::future::join_all(granted).await;
        accounts
    });
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..CALLS {
        // A tenth of the accounts make nine of ten calls.
        let most = if random.u8(..10) == 0 { ACCOUNTS } else { ACCOUNTS / 10 };
        let account = accounts[random.usize(..most)];
        if let Ok(hold) = ledger.reserve(reserve(account, 200)) {
            hold.post(settlement(100));
        }
    }
    ledger.close();
    accounts
}

#[test]
#[ignore = "it takes minutes, and prints figures instead of checking any"]
fn what_seals_checkpoints_and_the_archive_cost() {
    if !alone(module_path!(), "what_seals_checkpoints_and_the_archive_cost") {
        return;
    }
    log::set_logger(&Print).expect("the first");
    log::set_max_level(log::LevelFilter::Debug);
    let (dir, archive) = (TempDir::new().expect("one"), TempDir::new().expect("another"));
    let accounts = make(dir.path());
    let length = |path: &Path| fs::metadata(path).expect("a file").len();
    for file in segments(dir.path()) {
        println!("{}: {} bytes", file.display(), length(&file));
    }
    // The first is full: whatever comes is in the next.
    let to = Archive { to: ArchiveTo::Directory(archive.path().to_owned()), keep: Duration::ZERO };
    let (tell, message) = std::sync::mpsc::channel();
    let on_event = Box::new(move |kept| drop(tell.send(kept)));
    let maintenance = MaintenanceOptions {
        checkpoint_interval: Duration::ZERO,
        archive: Some(to),
        on_event: Some(on_event),
    };
    let (ledger, _) =
        Ledger::open(Options { maintenance, ..Options::new(dir.path()) }).expect("opens");
    runtime().block_on(ledger.create_account("the last")).expect("an account");
    loop {
        match message.recv_timeout(Duration::from_secs(300)).expect("something is done") {
            MaintenanceEvent::Archived { .. } => break,
            kept => println!("{kept:?}"),
        }
    }
    for end in [".seal", ".accounts"] {
        for file in files(&dir.path().join("journal"), end) {
            println!("{}: {} bytes", file.display(), length(&file));
        }
    }
    ledger.close();
    drop(ledger);
    remove_sled(dir.path());
    let maintenance =
        MaintenanceOptions { checkpoint_interval: Duration::MAX, ..MaintenanceOptions::default() };
    let options = Options { maintenance, ..Options::new(dir.path()) };
    let (ledger, recovery) = Ledger::open(options).expect("opens");
    println!("a start from the checkpoint: {recovery:?}");
    for account in accounts.iter().take(3) {
        let begun = Instant::now();
        let page = runtime().block_on(ledger.entries(*account, None, 50)).expect("entries");
        println!("a page of {} lines from the archive: {:?}", page.len(), begun.elapsed());
    }
    ledger.close();
}
