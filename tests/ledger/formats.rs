//! A data directory that an earlier version has left: it opens, adds up to what that version told, and
//! goes on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate::clock::UnixMs;
use tollgate::ledger::{
    self, ExportFormat, Exporter, Grain, Ledger, MaintenanceOptions, OfflineRecords, Options,
    RecoveryReport, RequestId, Reserve, Settlement, TaskPhase, TaskSettlement, verify,
};
use tollgate::money::Nanousd;
use tollgate::price::{PLACED, Unit, Usage, UsageSource};
use tollgate::protocols::task::TaskFacts;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ledger_format_1").join(name)
}

/// The directory as it was left.
fn unpacked() -> TempDir {
    let dir = TempDir::new().expect("a directory");
    let tar = Command::new("tar")
        .arg("-xzf")
        .arg(fixture("data.tar.gz"))
        .arg("-C")
        .arg(dir.path())
        .status();
    assert!(tar.expect("tar runs").success());
    dir
}

fn expected() -> Value {
    let text = fs::read_to_string(fixture("expected.json")).expect("there");
    serde_json::from_str(&text).expect("JSON")
}

/// Opens a copy, which goes on under a name of its own.
fn open(dir: &Path) -> (Arc<Ledger>, RecoveryReport) {
    let maintenance =
        MaintenanceOptions { checkpoint_interval: Duration::MAX, archive: None, on_event: None };
    let options =
        Options { accept_fork: true, maintenance, disk_free_bytes_min: 0, ..Options::new(dir) };
    Ledger::open(options).unwrap_or_else(|error| panic!("{error}"))
}

/// When the directory was left, in Unix milliseconds.
const LEFT_AT_MS: u64 = 1_795_414_240_000;

/// Counts the calls that a start resolves, which stand in today's hour, where they stood in the hour in which
/// the directory was left.
fn count_then(rows: &mut Vec<Value>, when: &str) {
    let is_then = |row: &Value| row[when].as_u64() <= Some(LEFT_AT_MS);
    let (then, now): (Vec<Value>, Vec<Value>) = std::mem::take(rows).into_iter().partition(is_then);
    *rows = then;
    for late in now {
        let is_same = |row: &&mut Value| row["key"] == late["key"] && row["model"] == late["model"];
        let Some(row) = rows.iter_mut().rfind(is_same) else { continue };
        let calls = |row: &Value| row["total"]["calls"].as_u64().unwrap_or_default();
        row["total"]["calls"] = json!(calls(row) + calls(&late));
    }
}

/// Everything that queries told of all accounts of the records up to `last`, as the program beside the
/// fixture asked it.
async fn queried(ledger: &Arc<Ledger>, last: u64) -> Value {
    let mut accounts = ledger.accounts();
    accounts.sort_by_key(|account| account.id);
    let range = || UnixMs(0)..UnixMs(4_000_000_000_000);
    let mut found = Vec::new();
    for account in accounts {
        let mut lines = ledger.entries(account.id, None, 1000).await.expect("lines");
        lines.retain(|line| line.seq <= last);
        let mut usage = Vec::new();
        for row in ledger.usage(account.id, range()).await.expect("usage") {
            let (hour, model) = (row.begin.0, &*row.model);
            usage.push(json!({"hour": hour, "key": row.key, "model": model, "total": row.total}));
        }
        count_then(&mut usage, "hour");
        let page = ledger.tasks(Some(account.id), None, None, 1000).await.expect("tasks");
        let tasks = page.expect("a page").tasks.into_iter().map(|listed| {
            let (intent, ended) = (&listed.task.intent, listed.task.ended());
            let costs = |usage: Usage| intent.prices.cost(&usage);
            json!({
                "id": intent.id,
                "upstream_id": listed.task.upstream_id(),
                "expires_at": intent.expires_at.0,
                "costs_a_second": costs(Usage { seconds: 1, ..Usage::ZERO }),
                "costs_a_character": costs(Usage { characters: 1, ..Usage::ZERO }),
                "facts": intent.facts,
                "state": ended.map(|ended| &ended.state),
                "usage": ended.map(|ended| ended.usage),
                "charged": ended.map(|ended| ended.charged),
                "tried": listed.tried.is_some(),
            })
        });
        found.push(json!({
            "id": account.id,
            "name": account.name,
            "suspended": account.suspended,
            "balance": account.balance,
            "written_off": account.written_off,
            "entries": lines,
            "usage": usage,
            "tasks": tasks.collect::<Vec<_>>(),
            "keys": ledger.keys_of(account.id).len(),
            "login": ledger.login(account.id).map(|login| login.email.clone()),
        }));
    }
    let all = ledger
        .usage_of_all(Grain::Day, range())
        .await
        .expect("usage")
        .into_iter()
        .map(|row| json!({"day": row.begin.0, "model": &*row.model, "total": row.total}));
    let mut all: Vec<_> = all.collect();
    count_then(&mut all, "day");
    let codes = ledger.codes().into_iter().map(|code| {
        let revoked = code.revoked_at.is_some();
        json!({"id": code.code.id, "used": code.used, "revoked": revoked})
    });
    json!({
        "accounts": found,
        "usage_of_all": all,
        "open_holds": ledger.open_holds(),
        "codes": codes.collect::<Vec<_>>(),
        "losses": ledger.loss_sums(),
        "operators_session_is_over": ledger.is_operators_session_over(&[8; 16]),
    })
}

/// Panics at the first place where two values differ (whole ones are too long to look at), but for units of
/// later versions.
fn assert_same(found: &Value, expected: &Value, at: &str) {
    match (found, expected) {
        (Value::Object(a), Value::Object(b)) => {
            // Units that there were not yet were not used.
            let is_added = |name: &&String| !b.contains_key(*name) && a[*name] == json!(0);
            let names: Vec<_> = a.keys().filter(|name| !is_added(name)).collect();
            assert_eq!(names, b.keys().collect::<Vec<_>>(), "{at}");
            b.iter()
                .for_each(|(name, value)| assert_same(&a[name], value, &format!("{at}/{name}")));
        }
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{at}");
            let pairs = a.iter().zip(b).enumerate();
            pairs.for_each(|(place, (a, b))| assert_same(a, b, &format!("{at}/{place}")));
        }
        _ => assert_eq!(found, expected, "{at}"),
    }
}

fn last_record() -> u64 {
    expected()["as_it_is"]["records"].as_u64().expect("a number")
}

/// Checks of a directory that nobody has opened since.
fn assert_as_it_was(dir: &Path) {
    let report = verify(dir).expect("readable");
    assert_eq!(report.violations, Vec::<String>::new());
    let found = json!({
        "records": report.records, "segments": report.segments, "checkpoints": report.checkpoints,
        "chain": report.chain, "state_hash": report.state_hash, "open_holds": report.open_holds,
        "total": report.total, "accounts": report.accounts.len(),
    });
    assert_same(&found, &expected()["as_it_is"], "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_format_1_verifies_and_adds_up() {
    let dir = unpacked();
    assert_as_it_was(dir.path());
    let (ledger, recovery) = open(dir.path());
    assert!(!recovery.sled_rebuilt, "sled is read as it is");
    let expected = &expected()["opened"];
    assert_eq!(json!(recovery.in_doubt.len()), expected["in_doubt"]);
    assert_same(&queried(&ledger, last_record()).await, &expected["told"], "");
    ledger.close();
}

/// Where sled is lost, a start goes from the checkpoint, and without that from the first segment on.
#[tokio::test(flavor = "multi_thread")]
async fn sled_is_made_anew_from_a_checkpoint_and_from_the_journal_of_format_1() {
    let expected = &expected()["opened"]["told"];
    for has_checkpoint in [true, false] {
        let dir = unpacked();
        fs::remove_dir_all(dir.path().join("sled")).expect("removed");
        if !has_checkpoint {
            fs::remove_dir_all(dir.path().join("checkpoints")).expect("removed");
        }
        let (ledger, recovery) = open(dir.path());
        assert!(recovery.sled_rebuilt);
        assert_eq!(recovery.records_replayed < last_record(), has_checkpoint);
        assert_same(&queried(&ledger, last_record()).await, expected, "");
        ledger.close();
    }
}

#[test]
fn records_of_format_1_are_exported_as_they_were() {
    let dir = unpacked();
    let mut found = String::new();
    let mut exporter = Exporter::new(ExportFormat::Jsonl, None, 0);
    for record in OfflineRecords::open(dir.path(), 0).expect("opens") {
        let (seq, record) = record.expect("readable");
        found.push_str(&String::from_utf8(exporter.line(seq, &record)).expect("text"));
    }
    let gzip = Command::new("gzip").arg("-dc").arg(fixture("export.jsonl.gz")).output();
    let expected = String::from_utf8(gzip.expect("gzip runs").stdout).expect("text");
    for (found, expected) in found.lines().zip(expected.lines()) {
        // Byte for byte, as long as there is no unit more.
        if Unit::COUNT == PLACED {
            assert_eq!(found, expected);
        }
        let [found, expected] = [found, expected].map(serde_json::from_str::<Value>);
        assert_same(&found.expect("JSON"), &expected.expect("JSON"), "");
    }
    assert_eq!(found.lines().count(), expected.lines().count());
}

/// A backup and what is restored of it are the same journal, checkpoint and state.
#[test]
fn a_directory_of_format_1_is_backed_up_and_restored() {
    let (dir, backup, restored) = (unpacked(), TempDir::new(), TempDir::new());
    let (backup, restored) = (backup.expect("a directory"), restored.expect("a directory"));
    let [backup, restored] = [&backup, &restored].map(|dir| dir.path().join("ledger"));
    ledger::backup(dir.path(), &backup).unwrap_or_else(|error| panic!("{error}"));
    assert_as_it_was(&backup);
    ledger::restore(&backup, &restored, None).unwrap_or_else(|error| panic!("{error}"));
    let report = verify(&restored).expect("readable");
    assert_eq!(report.violations, Vec::<String>::new());
    assert_eq!(json!(report.state_hash), expected()["as_it_is"]["state_hash"]);
}

/// Calls are held and charged, and tasks of before end at their own prices; and a journal that an
/// earlier version has begun and this one has gone on with says all of it when it is read again.
#[tokio::test(flavor = "multi_thread")]
async fn a_journal_of_format_1_is_continued_and_read_again() {
    let dir = unpacked();
    let (ledger, _) = open(dir.path());
    let first = ledger.accounts().into_iter().find(|account| account.name == "first");
    let account = first.expect("there").id;
    let key = ledger.keys_of(account)[0].clone();
    assert_eq!(key.name, "key of first");
    let spent = || ledger.account(account).expect("there").balance.spent.get();
    let before = spent();
    for count in 0..50 {
        let reserve = Reserve {
            account,
            key: key.id,
            model: "chat".into(),
            price: None,
            request: RequestId::new(),
            amount: Nanousd::new(1_000),
            floor: Nanousd::ZERO,
        };
        let hold = ledger.reserve(reserve).expect("a hold");
        let usage = Usage { input_tokens: count, output_tokens: 7, ..Usage::ZERO };
        let charge = Nanousd::new(900);
        hold.post(Settlement { charge, usage, source: UsageSource::Upstream });
    }
    assert_eq!(spent() - before, 50 * 900);
    let task = ledger.task(account, "up-4w").await.expect("read").expect("there");
    assert!(matches!(task.stage, TaskPhase::Submitted { .. }), "{task:?}");
    let facts = TaskFacts::decode(&task.intent.facts).expect("readable");
    assert_eq!(facts.max_usage, Usage { output_tokens: 90_000, seconds: 6, ..Usage::ZERO });
    let settlement =
        TaskSettlement::post(&task.intent.prices, facts.max_usage, UsageSource::Estimated);
    let end = ("succeeded", "{}".to_owned());
    let ended = ledger.end_task((account, task.id()), end, settlement).await.expect("open");
    let ended = ended.and_then(|task| task.ended().cloned()).expect("ended");
    assert_eq!(ended.charged, Nanousd::new(1_500_000_000), "0.90 for tokens and 0.60 for seconds");
    let found = queried(&ledger, u64::MAX).await;
    ledger.close();
    drop(ledger);

    let report = verify(dir.path()).expect("readable");
    assert_eq!(report.violations, Vec::<String>::new());
    assert!(report.records > last_record());
    fs::remove_dir_all(dir.path().join("sled")).expect("removed");
    fs::remove_dir_all(dir.path().join("checkpoints")).expect("removed");
    let (ledger, recovery) = open(dir.path());
    assert!(recovery.sled_rebuilt && recovery.records_replayed >= report.records);
    assert_same(&queried(&ledger, u64::MAX).await, &found, "");
    ledger.close();
}
