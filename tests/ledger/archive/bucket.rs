//! The archive in a bucket: nothing is lost whatever the store does, and everything is read as if it were
//! here.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tollgate::ledger::{
    self, Archive, ArchiveTo, BucketOptions, Ledger, MaintenanceEvent, MaintenanceOptions,
    OfflineRecords, Options, verify,
};
use tollgate::money::Nanousd;
use tollgate::secret::Secret;

use super::store::{Fault, SECRET_KEY, Store};
use super::{PATIENCE, copy_of, history, opened};
use crate::harness::ledger::{files, remove_sled, runtime, segments};
use crate::harness::{free_address, let_pass, poll, python, within};

/// A name that no other test of this process uses.
fn name(of: &str) -> String {
    format!("{of}-{:08x}", fastrand::u32(..))
}

/// Opens it with an archive and no more checkpoints, and counts what was moved and what failed.
fn open(dir: &Path, archive: Archive) -> (Arc<Ledger>, Arc<[AtomicUsize; 2]>) {
    let counts: Arc<[AtomicUsize; 2]> = Arc::default();
    let seen = Arc::clone(&counts);
    let on_event = Box::new(move |kept| match kept {
        MaintenanceEvent::Archived { .. } => drop(seen[0].fetch_add(1, Ordering::SeqCst)),
        MaintenanceEvent::Failed => drop(seen[1].fetch_add(1, Ordering::SeqCst)),
        _ => {}
    });
    let checkpoint_interval = Duration::MAX;
    let maintenance = MaintenanceOptions {
        checkpoint_interval,
        archive: Some(archive),
        on_event: Some(on_event),
    };
    let options = Options { maintenance, segment_bytes_max: 4 << 10, ..Options::new(dir) };
    (Ledger::open(options).unwrap_or_else(|error| panic!("{error}")).0, counts)
}

fn wait_for(count: &AtomicUsize, at_least: usize, what: &str) {
    within(PATIENCE, || count.load(Ordering::SeqCst) >= at_least, || what.to_owned());
}

/// Moves some segments and closes the ledger.
fn move_some(dir: &Path, archive: Archive, count: usize) {
    let (ledger, counts) = open(dir, archive);
    wait_for(&counts[0], count, "nothing is moved");
    ledger.close();
}

fn records(dir: &Path) -> Result<Vec<u64>, String> {
    let records = OfflineRecords::open(dir, 0).map_err(|error| error.to_string())?;
    records.map(|record| Ok(record.map_err(|error| error.to_string())?.0)).collect()
}

#[test]
fn segments_in_a_bucket_are_read_as_if_they_were_here() {
    let dir = TempDir::new().expect("a directory");
    let accounts = history(dir.path(), None, 21);
    let (expected, _) = opened(dir.path(), &accounts);
    let whole = verify(dir.path()).expect("readable");
    let store = Store::start(&name("archive"));
    move_some(dir.path(), store.archive(), 3);
    assert_eq!(store.wrong(), Vec::<String>::new(), "a signature or a checksum is wrong");
    let keys = store.keys();
    assert!(keys.len() >= 6 && keys.iter().all(|key| key.starts_with("tollgate/a=b/")), "{keys:?}");
    assert_eq!(
        keys.iter().filter(|key| key.ends_with(".seal")).count() * 2,
        keys.len(),
        "{keys:?}"
    );
    assert!(!dir.path().join("journal/0000000000000001.seg").exists(), "it was moved");

    let report = verify(dir.path()).expect("readable");
    assert_eq!((report.violations.clone(), report.archived >= 3), (Vec::new(), true));
    assert!(report.records >= whole.records);
    let all: Vec<u64> = (1..=report.records).collect();
    assert_eq!(records(dir.path()).expect("readable"), all);
    remove_sled(dir.path());
    let (found, recovery) = opened(dir.path(), &accounts);
    assert!(recovery.sled_rebuilt && recovery.records_replayed < report.records, "{recovery:?}");
    assert_eq!(found, expected, "statements go on in the bucket");
    let fetched = fs::read_dir(dir.path().join("fetched")).expect("a directory").count();
    assert!((1..=4).contains(&fetched), "{fetched} files are kept here");
    // A start without a checkpoint, too, and a moment in the past.
    remove_sled(dir.path());
    fs::remove_dir_all(dir.path().join("checkpoints")).expect("removed");
    assert_eq!(opened(dir.path(), &accounts).0, expected);
    let past = dir.path().with_extension("past");
    // What was written together is restored together: a group that has something later is left out.
    let first = OfflineRecords::open(dir.path(), 0).expect("a ledger").take(20);
    let at = first.map(|record| record.expect("a record").1.at()).max();
    let restored = ledger::restore(dir.path(), &past, at);
    assert!(restored.expect("restored").last_seq >= 5);
    assert_eq!(verify(&past).expect("readable").violations, Vec::<String>::new());
    fs::remove_dir_all(past).expect("removed");
}

/// A page after the other asks the store once.
#[test]
fn what_was_fetched_serves_the_next_pages() {
    let dir = TempDir::new().expect("a directory");
    let accounts = history(dir.path(), None, 22);
    let store = Store::start(&name("near"));
    move_some(dir.path(), store.archive(), 2);
    remove_sled(dir.path());
    let (ledger, _) = super::open(dir.path()).expect("opens");
    let page = |before| runtime().block_on(ledger.entries(accounts[0], Some(before), 3));
    let first = page(12).expect("entries");
    assert!(!first.is_empty(), "the account has nothing that is so old");
    let request = store.gets();
    assert_eq!(page(12).expect("entries"), first);
    assert_eq!(store.gets(), request, "it was asked again");
    store.does(Fault::Away);
    assert_eq!(page(12).expect("entries"), first, "it is away, and what was fetched is here");
    ledger.close();
}

#[test]
fn nothing_is_lost_whatever_the_store_does() {
    let dir = TempDir::new().expect("a directory");
    let accounts = history(dir.path(), None, 23);
    let store = Store::start(&name("faulty"));
    let files = segments(dir.path());
    for fault in [
        Fault::Away,
        Fault::Silent,
        Fault::Full,
        Fault::Garbage,
        Fault::Page,
        Fault::Broken,
        Fault::Half,
        Fault::Flipped,
        Fault::Forgets,
        Fault::Redirects,
        Fault::Refuses,
    ] {
        store.does(fault);
        let (ledger, counts) = open(dir.path(), store.archive());
        wait_for(&counts[1], 1, "the failure is not told");
        assert_eq!(counts[0].load(Ordering::SeqCst), 0, "{fault:?}: moved");
        // It goes on serving.
        let id = format!("{fault:?}");
        let granted = ledger.grant(accounts[0], &id, Nanousd::new(1));
        runtime().block_on(granted).expect("a grant");
        ledger.close();
        drop(ledger);
        assert!(files.iter().all(|file| file.exists()), "{fault:?}: a file is gone");
        let report = verify(dir.path()).expect("readable");
        assert_eq!((report.violations, report.archived), (Vec::new(), 0), "{fault:?}");
    }
    store.does(Fault::None);
    move_some(dir.path(), store.archive(), 2);
    assert_eq!(verify(dir.path()).expect("readable").violations, Vec::<String>::new());
}

/// An unreadable archived object is opened with its bucket and key, and without a secret.
#[test]
fn a_missing_object_is_named() {
    let dir = TempDir::new().expect("a directory");
    history(dir.path(), None, 24);
    let bucket = name("unread");
    let store = Store::start(&bucket);
    move_some(dir.path(), store.archive(), 2);
    for (fault, says) in [
        (Fault::Away, "the store at http://127.0.0.1"),
        (Fault::Silent, "did not answer in time"),
        (Fault::Garbage, "the connection broke"),
        (Fault::Page, "bytes, and"),
        (Fault::Broken, "the connection broke"),
        (Fault::Half, "bytes, and"),
        (Fault::Flipped, "s3://"),
        (Fault::Forgets, "it does not have the object"),
        (Fault::Redirects, "another `region`, or at another `endpoint`"),
        (Fault::Refuses, "`secret_key` is not the one of `access_key`"),
        (Fault::Trickles, "did not answer in time"),
    ] {
        store.does(fault);
        let error = records(dir.path()).expect_err("it cannot be read");
        println!("{fault:?}: {error}");
        assert!(error.contains(&format!("s3://{bucket}/tollgate/a=b/")), "{fault:?}: {error}");
        assert!(error.contains("0000000000000001.seg.zst"), "{fault:?}: {error}");
        assert!(error.contains(says), "{fault:?}: {error}");
        for secret in [SECRET_KEY, "Signature=", "canary"] {
            assert!(!error.contains(secret), "{fault:?}: {error}");
        }
        let report = verify(dir.path()).expect("readable");
        assert!(report.violations.iter().any(|what| what.contains("s3://")), "{report:?}");
        drop(super::open(dir.path()).expect("a start needs no archive"));
    }
    store.does(Fault::None);
    assert!(!records(dir.path()).expect("readable").is_empty());
}

/// Objects of another gateway that continues the same ledger are not overwritten.
#[test]
fn two_that_go_on_with_one_ledger_overwrite_nothing() {
    let (dir, directory) = (TempDir::new().expect("a directory"), TempDir::new().expect("another"));
    history(dir.path(), None, 28);
    let store = Store::start(&name("forked"));
    move_some(dir.path(), store.archive(), 1);
    let next = segments(dir.path())[0].file_stem().expect("a name").to_string_lossy().into_owned();
    let keys = store.keys();
    let existing = keys.iter().find(|key| key.ends_with(".seal")).expect("a seal");
    let (of_ledger, _) = existing.rsplit_once('/').expect("a prefix");
    store.copy(existing, &format!("{of_ledger}/{next}.seal"));
    let (ledger, counts) = open(dir.path(), store.archive());
    wait_for(&counts[1], 1, "it is not told");
    ledger.close();
    drop(ledger);
    assert_eq!(counts[0].load(Ordering::SeqCst), 0, "it was overwritten");
    assert_eq!(store.keys().len(), keys.len() + 1, "nothing was put there");
    assert!(segments(dir.path())[0].to_string_lossy().contains(&next), "it is still here");
    // In a directory as well.
    let to = directory.path().join(of_ledger.rsplit('/').next().expect("a name"));
    fs::create_dir(&to).expect("made");
    let own = dir.path().join(format!("journal/{next}.seal"));
    let text = fs::read_to_string(own).expect("a seal");
    fs::write(to.join(format!("{next}.seal")), of_other_records(&text)).expect("written");
    let archive =
        || Archive { to: ArchiveTo::Directory(directory.path().to_owned()), keep: Duration::ZERO };
    let (ledger, counts) = open(dir.path(), archive());
    wait_for(&counts[1], 1, "it is not told");
    ledger.close();
    drop(ledger);
    assert_eq!(fs::read_dir(&to).expect("readable").count(), 1, "something was written");
    fs::remove_dir_all(&to).expect("removed");
    move_some(dir.path(), archive(), 1);
    assert!(!segments(dir.path())[0].to_string_lossy().contains(&next), "it was moved");
}

/// A seal of the same number, and of other records.
fn of_other_records(seal: &str) -> String {
    let mut says: serde_json::Value = serde_json::from_str(seal).expect("JSON");
    let mut says = says["says"].take();
    says["sha256"] = "00".repeat(32).into();
    let says = says.to_string();
    let sum: String = Sha256::digest(&says).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{{\"says\":{says},\"sha256\":\"{sum}\"}}")
}

/// A process that ends waits for no store.
#[test]
fn a_silent_store_holds_up_no_end() {
    let dir = TempDir::new().expect("a directory");
    history(dir.path(), None, 25);
    let store = Store::start(&name("silent"));
    store.does(Fault::Silent);
    let patient = BucketOptions { timeout: Duration::from_secs(60), ..store.options() };
    let archive = Archive { to: ArchiveTo::Bucket(Box::new(patient)), keep: Duration::ZERO };
    let (ledger, counts) = open(dir.path(), archive);
    let_pass(Duration::from_secs(2), "the archive must have no answer");
    assert_eq!(counts[1].load(Ordering::SeqCst), 0, "it is still waited for");
    let begun = Instant::now();
    ledger.close();
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

const MODELS: &str = "models:
  m:
    operations: [chat]
    targets: [{ upstream: here }]
    free: true
    limits: { context_tokens_max: 1000, output_tokens_max: 10 }
";

/// Commands read the bucket with what `routes.yaml` says of it, and say so where nothing does.
#[test]
fn commands_read_the_bucket() {
    let dir = TempDir::new().expect("a directory");
    history(dir.path(), None, 26);
    let (bucket, files) = (name("commands"), TempDir::new().expect("another"));
    let store = Store::start(&bucket);
    move_some(dir.path(), store.archive(), 2);
    let routes = files.path().join("routes.yaml");
    let with = |archive: &str| {
        let upstreams =
            "upstreams:\n  here:\n    protocol: openai\n    base_url: http://127.0.0.1:1/v1\n";
        fs::write(&routes, format!("{upstreams}{archive}")).expect("written");
    };
    fs::write(files.path().join("models.yaml"), MODELS).expect("written");
    let tollgate = |command: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(["ledger", command[0], "--data"])
            .arg(dir.path())
            .arg("--routes")
            .arg(&routes)
            .env("ARCHIVE_KEY", SECRET_KEY)
            .output()
            .expect("it runs");
        let message = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&message).into_owned())
    };
    with("");
    for command in ["verify", "export", "repair"] {
        let (done, message) = tollgate(&[command]);
        assert!(!done && message.contains("store.journal.archive.s3"), "{command}: {message}");
        assert!(message.contains(&bucket), "{command}: {message}");
    }
    with(&format!(
        "store:\n  journal:\n    archive:\n      s3:\n        bucket: {bucket}\n        endpoint: {}\n        \
         region: eu-central-1\n        prefix: tollgate/a=b\n        access_key: AKIDTOLLGATE\n        \
         secret_key: ${{ARCHIVE_KEY}}\n        timeout: 5s\n",
        store.endpoint()
    ));
    let (done, message) = tollgate(&["verify"]);
    assert!(done && message.contains("the ledger is sound"), "{message}");
    let (done, message) = tollgate(&["export"]);
    assert!(done && message.lines().count() > 600, "{} lines", message.lines().count());
    let (done, message) = tollgate(&["repair"]);
    assert!(done && message.contains("needs no repair"), "{message}");
}

/// A server that others wrote: moto's, which the suite installs.
#[test]
fn a_real_server_takes_it() {
    let venv = python::environment_of("s3-venv", "tests/s3/requirements.txt");
    let port = free_address().port();
    let server = Command::new(venv.join("bin/python"))
        .args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _server = crate::harness::child::Running(server.expect("it runs"));
    poll("the server listens", PATIENCE, || std::net::TcpStream::connect(("127.0.0.1", port)));
    let bucket = name("moto");
    let python = |script: &str| {
        let setup = format!(
            "import boto3\ns3 = boto3.client('s3', endpoint_url='http://127.0.0.1:{port}', \
             aws_access_key_id='a', aws_secret_access_key='b', region_name='us-east-1')\n"
        );
        let output = Command::new(venv.join("bin/python")).args(["-c", &(setup + script)]).output();
        let output = output.expect("python runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    python(&format!("s3.create_bucket(Bucket='{bucket}')"));
    let dir = TempDir::new().expect("a directory");
    let accounts = history(dir.path(), None, 27);
    let (expected, _) = opened(dir.path(), &accounts);
    let options = BucketOptions {
        endpoint: format!("http://127.0.0.1:{port}").parse().expect("a URL"),
        region: "us-east-1".to_owned(),
        bucket: bucket.clone(),
        prefix: String::new(),
        path_style: true,
        access_key: Secret::new("a".to_owned()),
        secret_key: Secret::new("b".to_owned()),
        timeout: Duration::from_secs(20),
        proxy: None,
    };
    let archive = Archive { to: ArchiveTo::Bucket(Box::new(options)), keep: Duration::ZERO };
    move_some(dir.path(), archive, 2);
    let listed = python(&format!(
        "print([o['Key'] for o in s3.list_objects_v2(Bucket='{bucket}')['Contents']])"
    ));
    assert!(listed.matches(".seg.zst").count() >= 2, "{listed}");
    assert_eq!(verify(dir.path()).expect("readable").violations, Vec::<String>::new());
    remove_sled(dir.path());
    assert_eq!(opened(dir.path(), &accounts).0, expected);
    // An object that is removed there is told of.
    let copy = copy_of(dir.path());
    let first = listed.split('\'').find(|key| key.ends_with("01.seg.zst")).expect("the first");
    python(&format!("s3.delete_object(Bucket='{bucket}', Key='{first}')"));
    let error = records(copy.path()).expect_err("it is gone");
    assert!(error.contains(&format!("s3://{bucket}/{first}")), "{error}");
    assert!(error.contains("404 NoSuchKey"), "{error}");
    let existing = files(&dir.path().join("journal"), ".seal");
    assert!(!existing.is_empty());
}
