//! A disk that fills up under the ledger. Mounts a small file system, which only root may do:
//! `cargo test --test proofs -- --ignored ledger_full_disk::`.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::harness::{Gateway, Recorder, connect, let_pass_async, poll_async, within};
use tollgate::ledger::{
    AccountId, KeyId, Ledger, LedgerError, Options, Refusal, RequestId, Reserve, Settlement, verify,
};
use tollgate::money::Nanousd;
use tollgate::price::{Usage, UsageSource};

/// Unmounts when the test is over, also when it failed.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Self {
        Self::of("size=64m")
    }

    fn of(size: &str) -> Self {
        let dir = tempfile::TempDir::new().expect("directory");
        let mount = ["-t", "tmpfs", "-o", size, "tmpfs"];
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

fn ask(account: AccountId) -> Reserve {
    Reserve {
        account,
        key: KeyId::from_number(1),
        model: "m".into(),
        price: None,
        request: RequestId::new(),
        amount: Nanousd::new(10),
        floor: Nanousd::ZERO,
    }
}

fn settlement() -> Settlement {
    Settlement { charge: Nanousd::new(7), usage: Usage::default(), source: UsageSource::None }
}

/// One call; false if it was refused for want of room.
async fn call(ledger: &Arc<Ledger>, account: AccountId) -> bool {
    let hold = match ledger.reserve(ask(account)) {
        Ok(hold) => hold,
        Err(Refusal::DiskFull) => return false,
        Err(refusal) => panic!("{refusal}"),
    };
    hold.durable().await.expect("durable");
    hold.post(settlement());
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
    let_pass_async(Duration::from_millis(500), "a thousand grants must not be written").await;
    assert!(!waiting.is_finished(), "a thousand grants were written to a full disk");
    assert!(!call(&ledger, account).await, "a hold was taken on a full disk");
    fs::remove_file(disk.0.path().join("filler")).expect("removed");
    tokio::time::timeout(Duration::from_secs(20), waiting).await.expect("goes on").expect("ends");
    let spent = ledger.account(account).expect("account").balance.spent.get();
    ledger.close();
    drop(ledger);
    assert_eq!(totals(&dir), (vec![], spent), "what memory had is in the journal");
}

/// Waits until statements can be read, and gives how many entries there are of the last thousand.
async fn readable(ledger: &Ledger, account: AccountId) -> usize {
    poll_async("entries are readable", Duration::from_secs(30), async || {
        match ledger.entries(account, None, 1_000).await {
            Ok(entries) => Ok(entries.len()),
            Err(LedgerError::Store(_)) => Err(ledger.projection_state()),
            Err(error) => panic!("{error}"),
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "mounts a file system, which needs root"]
async fn sled_is_back_by_itself_when_there_is_room_again() {
    let disk = SmallDisk::new();
    let dir = disk.0.path().join("data");
    let options = Options { disk_free_bytes_min: 0, ..Options::new(&dir) };
    let (ledger, _) = Ledger::open(options).expect("opens");
    let account = ledger.create_account("test").await.expect("account").id;
    ledger.grant(account, "g", Nanousd::new(1 << 50)).await.expect("grant");
    disk.fill();
    let begun = Instant::now();
    while ledger.projection_state().away.is_none() {
        let calling = Arc::clone(&ledger);
        let called = async move { call(&calling, account).await };
        // The journal waits for room when all of the disk is taken.
        let waited = tokio::time::timeout(Duration::from_secs(1), called).await;
        if waited.is_err() {
            let room = fs::OpenOptions::new().write(true).open(disk.0.path().join("filler"));
            let room = room.expect("opens");
            let length = room.metadata().expect("known").len();
            room.set_len(length - (256 << 10)).expect("shorter");
        }
        let read = ledger.entries(account, None, 10);
        drop(tokio::time::timeout(Duration::from_millis(20), read).await);
        assert!(begun.elapsed() < Duration::from_secs(120), "sled never failed");
    }
    let refused = ledger.entries(account, None, 10).await;
    assert!(matches!(refused, Err(LedgerError::Store(_))), "{refused:?}");
    fs::remove_file(disk.0.path().join("filler")).expect("removed");
    let entries = readable(&ledger, account).await;
    assert!(entries > 1, "{entries} entries");
    assert!(ledger.projection_state().mended > 0);
    call(&ledger, account).await;
    assert!(readable(&ledger, account).await >= entries, "it goes on");
    ledger.close();
    drop(ledger);
    let report = verify(&dir).expect("reads");
    assert_eq!(report.violations, Vec::<String>::new());
    assert_eq!(report.sled_hash.as_ref(), Some(&report.state_hash), "sled has all of it");
}

/// A crashed ledger: open holds, and sled far behind the journal.
async fn crashed(dir: &Path, aside: &Path) -> AccountId {
    let options = || Options { disk_free_bytes_min: 0, ..Options::new(dir) };
    let (ledger, _) = Ledger::open(options()).expect("opens");
    let account = ledger.create_account("test").await.expect("account").id;
    ledger.grant(account, "g", Nanousd::new(1 << 50)).await.expect("grant");
    call(&ledger, account).await;
    ledger.close();
    drop(ledger);
    copy(&dir.join("sled"), &aside.join("sled"));
    let (ledger, _) = Ledger::open(options()).expect("opens");
    for _ in 0..5_000 {
        let hold = ledger.reserve(ask(account)).expect("hold");
        hold.post(settlement());
    }
    let open = ledger.reserve(ask(account)).expect("hold");
    ledger.close();
    drop(open);
    drop(ledger);
    copy(&aside.join("sled"), &dir.join("sled"));
    account
}

fn copy(from: &Path, to: &Path) {
    if to.exists() {
        fs::remove_dir_all(to).expect("removed");
    }
    let copied = Command::new("cp").arg("-r").args([from, to]).status().expect("cp");
    assert!(copied.success());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "mounts a file system, which needs root"]
async fn a_crash_on_a_full_disk_starts_again() {
    // With nothing left of sled, and nothing set aside, there is no room to make one.
    for has_ballast in [true, false] {
        let disk = SmallDisk::new();
        let aside = tempfile::tempdir().expect("a directory");
        let dir = disk.0.path().join("data");
        let account = crashed(&dir, aside.path()).await;
        if !has_ballast {
            fs::remove_file(dir.join("ballast")).expect("removed");
            fs::remove_dir_all(dir.join("sled")).expect("removed");
        }
        disk.fill();
        let options = Options { disk_free_bytes_min: 0, ..Options::new(&dir) };
        let (ledger, recovery) = Ledger::open(options).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(recovery.in_doubt.len(), 1, "ballast {has_ballast}: the open hold");
        let balance = ledger.account(account).expect("account").balance;
        assert_eq!((balance.spent.get(), balance.held), (7 * 5_001, Nanousd::ZERO));
        let names: Vec<_> = fs::read_dir(&dir).expect("readable").collect();
        let names: Vec<_> =
            names.into_iter().map(|entry| entry.expect("readable").file_name()).collect();
        assert!(
            !names.iter().any(|name| name.to_string_lossy().starts_with("sled.broken")),
            "a good sled was put aside: {names:?}"
        );
        assert_eq!(ledger.projection_state().away.is_some(), !has_ballast, "room for sled");
        fs::remove_file(disk.0.path().join("filler")).expect("removed");
        assert_eq!(readable(&ledger, account).await, 1_000);
        assert!(call(&ledger, account).await, "calls are taken");
        assert_eq!(ledger.in_doubt().await.expect("listed").len(), 1);
        ledger.close();
        drop(ledger);
        let report = verify(&dir).expect("reads");
        assert_eq!(report.violations, Vec::<String>::new());
        assert_eq!(report.sled_hash.as_ref(), Some(&report.state_hash), "ballast {has_ballast}");
    }
}

/// Someone else fills the disk, also the room that the ledger had kept, while requests wait for it.
#[test]
#[ignore = "mounts a file system, which needs root"]
fn sigterm_ends_a_gateway_on_a_full_disk() {
    let disk = SmallDisk::of("size=200m");
    let recorder = Recorder::start();
    let more = "shutdown: { grace: 2s }\n";
    let mut gateway = Gateway::below(disk.0.path(), recorder.address, more);
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
    let ballast = gateway.path("data").join("ledger").join("ballast");
    let ballast = if ballast.exists() { ballast } else { gateway.path("data").join("ballast") };
    assert!(ballast.exists(), "room is set aside");
    disk.fill();
    // Until the ballast is given up, and its room is taken as well.
    let mut waiting = Vec::new();
    let begun = Instant::now();
    while waiting.len() < 20 || ballast.exists() {
        let mut stream = connect(gateway.admin_address());
        let path = format!("/admin/v1/accounts/{}/grants", gateway.account);
        let grant = format!(r#"{{"amount":"0.01","id":"{}"}}"#, waiting.len());
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: admin\r\nAuthorization: Bearer admin-token-of-a-test\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{grant}",
            grant.len()
        );
        stream.write_all(request.as_bytes()).expect("written");
        disk.fill();
        waiting.push(stream);
        std::thread::sleep(Duration::from_millis(20));
        assert!(begun.elapsed() < Duration::from_secs(60), "the disk never filled up");
    }
    let mut refused = connect(gateway.address);
    refused.write_all(&gateway.chat_json(body)).expect("written");
    gateway.signal("TERM");
    within(Duration::from_secs(30), || !gateway.is_running(), || "it does not end".to_owned());
    for mut stream in waiting {
        // Who waited was told nothing, or that it was not written.
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
    }
    fs::remove_file(disk.0.path().join("filler")).expect("removed");
    gateway.kill_and_restart();
    assert_eq!(gateway.balance()["held"], "0.00", "it goes on from what was written");
}

/// Failures that the thread for closed segments has reported.
fn maintenance(
    archive: Option<&Path>,
) -> (
    tollgate::ledger::MaintenanceOptions,
    std::sync::mpsc::Receiver<tollgate::ledger::MaintenanceEvent>,
) {
    let (tell, message) = std::sync::mpsc::channel();
    let archive = archive.map(|path| tollgate::ledger::Archive {
        to: tollgate::ledger::ArchiveTo::Directory(path.to_owned()),
        keep: Duration::ZERO,
    });
    let on_event: tollgate::ledger::OnMaintenance = Box::new(move |kept| drop(tell.send(kept)));
    let checkpoint_interval = Duration::ZERO;
    (
        tollgate::ledger::MaintenanceOptions {
            checkpoint_interval,
            archive,
            on_event: Some(on_event),
        },
        message,
    )
}

/// Writes some records, and waits until it is told that they cannot be looked after. Their number is
/// bounded: a disk that they fill would have them wait for room, and nobody would listen.
fn grant_and_fail(
    options: Options,
    grants: usize,
    message: &std::sync::mpsc::Receiver<tollgate::ledger::MaintenanceEvent>,
) {
    let runtime = tokio::runtime::Runtime::new().expect("one");
    let (ledger, _) = Ledger::open(options).expect("opens");
    runtime.block_on(async {
        let account = ledger.create_account("test").await.expect("account").id;
        for n in 0..grants {
            ledger.grant(account, &n.to_string(), Nanousd::new(1)).await.expect("grant");
        }
    });
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let kept = message.recv_timeout(left).expect("it is told within a minute");
        if matches!(kept, tollgate::ledger::MaintenanceEvent::Failed) {
            break;
        }
    }
    ledger.close();
}

/// Half a file would hold the room that others wait for.
#[test]
#[ignore = "mounts a file system, which needs root"]
fn a_full_archive_keeps_nothing_that_is_half_written() {
    let disk = SmallDisk::of("size=64k");
    let place = tempfile::TempDir::new().expect("a directory");
    let (maintenance, message) = maintenance(Some(disk.0.path()));
    let options = Options {
        maintenance,
        segment_bytes_max: 64 << 10,
        ..Options::new(place.path().join("data"))
    };
    // Ten segments, of which the archive has room for some.
    grant_and_fail(options, 8_000, &message);
    let of_ledger = fs::read_dir(disk.0.path()).expect("readable").next().expect("one");
    let archived = fs::read_dir(of_ledger.expect("one").path()).expect("readable");
    let names: Vec<_> =
        archived.filter_map(|file| file.expect("one").file_name().into_string().ok()).collect();
    assert!(names.iter().any(|name| name.ends_with(".seg.zst")), "something was moved: {names:?}");
    assert!(!names.iter().any(|name| name.ends_with(".new")), "{names:?}");
    let (violations, _) = totals(&place.path().join("data"));
    assert_eq!(violations, Vec::<String>::new());
}

/// The room that is left on a nearly full disk is for settlements.
#[test]
#[ignore = "mounts a file system, which needs root"]
fn a_nearly_full_disk_is_not_filled_with_checkpoints() {
    let disk = SmallDisk::of("size=60m");
    let dir = disk.0.path().join("data");
    let (maintenance, message) = maintenance(None);
    let options = Options {
        maintenance,
        segment_bytes_max: 4 << 10,
        disk_free_bytes_min: 0,
        ..Options::new(&dir)
    };
    grant_and_fail(options, 500, &message);
    assert!(!dir.join("checkpoints").exists(), "a checkpoint was begun");
    assert_eq!(totals(&dir).0, Vec::<String>::new());
}
