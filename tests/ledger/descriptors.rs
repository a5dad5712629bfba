//! The journal when the process has no file descriptor left. In a process of its own, whose limit it
//! lowers.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tollgate::ledger::{AccountId, KeyId, Ledger, Options, RequestId, Reserve, verify};
use tollgate::money::Nanousd;

use crate::harness::alone;
use crate::harness::eventually_async;

/// A file of the journal is full of some 250 holds.
const SEGMENT_BYTES_MAX: u64 = 1 << 20;
const MODEL_BYTES: usize = 4_000;

fn reserve(account: AccountId) -> Reserve {
    Reserve {
        account,
        key: KeyId::from_number(1),
        model: "m".repeat(MODEL_BYTES).into(),
        price: None,
        request: RequestId::new(),
        amount: Nanousd::new(10),
        floor: Nanousd::ZERO,
    }
}

fn segments(data: &Path) -> usize {
    let names = fs::read_dir(data.join("journal")).expect("the journal");
    let names = names.map(|entry| entry.expect("an entry").file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".seg")).count()
}

/// Opens files until there are no more descriptors.
fn take_all() -> Vec<File> {
    let mut taken = Vec::new();
    loop {
        match File::open("/dev/null") {
            Ok(file) => taken.push(file),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(24), "EMFILE, not {error}");
                return taken;
            }
        }
    }
}

#[test]
fn the_journal_goes_on_without_descriptors_and_then_waits_for_one() {
    const THIS: &str = "the_journal_goes_on_without_descriptors_and_then_waits_for_one";
    if alone(module_path!(), THIS) {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(goes_on_and_then_waits());
    }
}

async fn goes_on_and_then_waits() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let options = Options { segment_bytes_max: SEGMENT_BYTES_MAX, ..Options::new(&data) };
    let (ledger, _) = Ledger::open(options).expect("opens");
    let account = ledger.create_account("test").await.expect("account").id;
    ledger.grant(account, "g", Nanousd::new(1 << 50)).await.expect("grant");
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = |current| {
        let limits = Rlimit { current: Some(current), maximum };
        setrlimit(Resource::Nofile, limits).expect("a lower limit");
    };
    limit(128);
    assert_eq!(segments(&data), 1, "segments so far");

    // What is opened ahead takes the place of the segment before it.
    let taken = take_all();
    for _ in 0..800 {
        let hold = ledger.reserve(reserve(account)).expect("a hold");
        hold.durable().await.expect("durable, with all descriptors taken");
    }
    // From now on none can be opened, whatever is closed: the one after the next has to wait.
    limit(3);
    let waiting = {
        let ledger = Arc::clone(&ledger);
        tokio::spawn(async move {
            // What two more files have room for, one after the other: a group is never divided.
            for _ in 0..600 {
                let Ok(hold) = ledger.reserve(reserve(account)) else { break };
                hold.durable().await.expect("durable in the end");
            }
            ledger.grant(account, "waits", Nanousd::new(1)).await.expect("grant");
        })
    };
    let is_refused = async || ledger.reserve(reserve(account)).is_err();
    eventually_async("holds are refused", is_refused).await;
    assert!(!waiting.is_finished(), "a grant waits");
    drop(taken);
    limit(128);
    tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("goes on").expect("ends");
    assert!(segments(&data) >= 5, "{} segments", segments(&data));
    let spent = ledger.account(account).expect("account").balance.spent;
    ledger.close();
    drop(ledger);
    let report = verify(&data).expect("reads");
    assert_eq!((report.violations, report.total.spent), (Vec::<String>::new(), spent));
}
