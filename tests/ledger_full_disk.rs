//! A disk that fills up under the ledger. Mounts a small file system, which only root may do:
//! `cargo test --test ledger_full_disk -- --ignored`.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tollgate::ledger::{
    AccountId, KeyId, Ledger, Options, Refusal, RequestId, Reserve, Settlement, verify,
};
use tollgate::money::Nanousd;
use tollgate::price::{Usage, UsageSource};

/// Unmounts when the test is over, also when it failed.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Self {
        let dir = tempfile::TempDir::new().expect("directory");
        let mount = ["-t", "tmpfs", "-o", "size=64m", "tmpfs"];
        let status = Command::new("mount").args(mount).arg(dir.path()).status().expect("mount");
        assert!(status.success(), "a tmpfs could not be mounted: this test needs root");
        Self(dir)
    }

    fn fill(&self) {
        let mut file = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.0.path().join("filler"))
            .expect("opens");
        while file.write_all(&[1; 4096]).is_ok() {}
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.0.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "still mounted");
    }
}

/// One call; false if it was refused for want of room.
async fn call(ledger: &Arc<Ledger>, account: AccountId) -> bool {
    let reserve = Reserve {
        account,
        key: KeyId::from_number(1),
        model: "m".into(),
        request: RequestId::new(),
        amount: Nanousd::new(10),
        floor: Nanousd::ZERO,
    };
    let hold = match ledger.reserve(reserve) {
        Ok(hold) => hold,
        Err(Refusal::DiskFull) => return false,
        Err(refusal) => panic!("{refusal}"),
    };
    hold.durable().await.expect("durable");
    let charge = Nanousd::new(7);
    hold.post(Settlement { charge, usage: Usage::default(), source: UsageSource::None });
    true
}

fn totals(dir: &Path) -> (Vec<String>, i64) {
    let report = verify(dir).expect("reads");
    (report.violations, report.total.spent.get())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "mounts a file system, which needs root"]
async fn a_full_disk_gives_up_the_ballast_and_then_waits_for_room() {
    let disk = SmallDisk::new();
    let dir = disk.0.path().join("data");
    let options = Options { disk_free_bytes_min: 0, ..Options::new(&dir) };
    let (ledger, _) = Ledger::open(options).expect("opens");
    let account = ledger.create_account("test").await.expect("account").id;
    ledger.grant(account, "g", Nanousd::new(1 << 50)).await.expect("grant");
    let ballast = dir.join("ballast");
    assert!(ballast.exists(), "room is set aside");

    disk.fill();
    let mut calls = 0;
    while ballast.exists() {
        call(&ledger, account).await;
        calls += 1;
        assert!(calls < 10_000, "the disk never filled up");
    }
    // The ballast's room is taken as well: what comes now waits, and loses nothing.
    disk.fill();
    let waiting = {
        let ledger = Arc::clone(&ledger);
        tokio::spawn(async move {
            for n in 0..1_000 {
                ledger.grant(account, &n.to_string(), Nanousd::new(1)).await.expect("grant");
            }
        })
    };
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!waiting.is_finished(), "a thousand grants were written to a full disk");
    assert!(!call(&ledger, account).await, "a hold was taken on a full disk");
    fs::remove_file(disk.0.path().join("filler")).expect("removed");
    tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("goes on").expect("ends");
    let spent = ledger.account(account).expect("account").balance.spent.get();
    ledger.close();
    drop(ledger);
    assert_eq!(totals(&dir), (vec![], spent), "what memory had is in the journal");
}
