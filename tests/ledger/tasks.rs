//! Tasks in the ledger: a hold that outlives the process, one end whoever sees it, and nothing lost
//! in a crash.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tollgate::clock::UnixMs;
use tollgate::ledger::{
    self, AccountId, DeliveryAttempt, Hold, Intent, KeyId, Ledger, LedgerError, Options,
    REPEATED_WITHIN, RepeatKey, RepeatLookup, RequestId, Reserve, Task, TaskId, TaskPhase,
    TaskSettlement, Webhook,
};
use tollgate::money::{Nanousd, Rate};
use tollgate::price::{Prices, Usage, UsageSource};

use crate::harness::ledger::frame_bounds;

const SECOND: i64 = 100_000_000;

fn open(dir: &Path) -> Arc<Ledger> {
    let options = Options { disk_free_bytes_min: 0, ..Options::new(dir) };
    Ledger::open(options).expect("the ledger opens").0
}

/// A copy of the disk, opened as after a crash.
fn after_crash(dir: &Path) -> (tempfile::TempDir, Arc<Ledger>) {
    let copy = tempfile::tempdir().expect("a directory");
    copy_all(dir, copy.path());
    let ledger = open(copy.path());
    (copy, ledger)
}

/// Files that a crash does not leave, but a copy of the directory has.
const OF_THE_ORIGINAL: [&str; 3] = ["ballast", "head.json", "identity.json"];

fn copy_all(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            std::fs::create_dir_all(&target).expect("made");
            copy_all(&entry.path(), &target);
        } else if !OF_THE_ORIGINAL.iter().any(|name| entry.file_name() == *name) {
            // What sled is writing just now can be gone by then.
            drop(std::fs::copy(entry.path(), target));
        }
    }
}

async fn account(ledger: &Ledger) -> AccountId {
    let account = ledger.create_account("test").await.expect("an account").id;
    ledger.grant(account, "first", Nanousd::new(100 * SECOND)).await.expect("a grant");
    account
}

fn hold(ledger: &Arc<Ledger>, account: AccountId) -> Hold {
    let reserve = Reserve {
        account,
        key: KeyId::random(),
        model: "video".into(),
        price: None,
        request: RequestId::new(),
        amount: Nanousd::new(10 * SECOND),
        floor: Nanousd::ZERO,
    };
    ledger.reserve(reserve).expect("a hold")
}

fn task(hold: &Hold, account: AccountId, repeat: Option<RepeatKey>) -> Arc<Task> {
    let intent = Intent {
        id: TaskId::random(),
        account,
        key: KeyId::random(),
        hold: hold.id(),
        model: "video".into(),
        protocol: "xai".to_owned(),
        prices: Prices { second: Rate::from_femtousd(SECOND * 1_000_000), ..Prices::default() },
        facts: Vec::new(),
        webhook_url: None,
        repeat,
        at: UnixMs::now(),
        expires_at: UnixMs(u64::MAX),
    };
    Arc::new(Task {
        intent: Arc::new(intent),
        upstream: "xai".to_owned(),
        upstream_model: "grok".to_owned(),
        stage: TaskPhase::Submitting,
        webhook: Webhook::None,
    })
}

fn seconds(task: &Task, seconds: u64) -> TaskSettlement {
    TaskSettlement::post(
        &task.intent.prices,
        Usage { seconds, ..Usage::ZERO },
        UsageSource::Upstream,
    )
}

async fn opened(ledger: &Arc<Ledger>, account: AccountId) -> Arc<Task> {
    let hold = hold(ledger, account);
    let task = task(&hold, account, None);
    ledger.open_task(hold, Arc::clone(&task), REPEATED_WITHIN).await.expect("opened");
    task
}

async fn submitted(ledger: &Arc<Ledger>, account: AccountId, upstream_id: &str) -> Arc<Task> {
    let task = opened(ledger, account).await;
    let stage = TaskPhase::Submitted { upstream_id: upstream_id.into() };
    let change = |task: &Task| Task { stage: stage.clone(), ..task.clone() };
    ledger.change_task((account, task.id()), change).await.expect("open").expect("changed");
    task
}

fn balance(ledger: &Ledger, account: AccountId) -> (i64, i64) {
    let balance = ledger.account(account).expect("the account").balance;
    (balance.held.get() / SECOND, balance.spent.get() / SECOND)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_and_its_hold_outlive_the_process_and_end_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let ledger = open(dir.path());
    let account = account(&ledger).await;
    let open_task = opened(&ledger, account).await;
    let taken = submitted(&ledger, account, "up-1").await;
    let plain = hold(&ledger, account);
    plain.durable().await.expect("on disk");

    let (copy, restarted) = after_crash(dir.path());
    assert_eq!(balance(&restarted, account), (20, 0), "the plain hold is voided, the tasks' stay");
    let found = restarted.task(account, &open_task.id().to_string()).await.expect("read");
    assert_eq!(found.expect("there").stage, TaskPhase::Submitting, "in doubt");
    let by_upstream = restarted.task(account, "up-1").await.expect("read").expect("there");
    assert_eq!(by_upstream.id(), taken.id());

    let end = async |ledger: &Arc<Ledger>| {
        let what = ("succeeded", "{\"video_url\":\"u\"}".to_owned());
        ledger.end_task((account, taken.id()), what, seconds(&taken, 4)).await.expect("open")
    };
    assert!(end(&restarted).await.is_some(), "the first ends it");
    assert!(end(&restarted).await.is_none(), "the second finds it ended");
    assert_eq!(balance(&restarted, account), (10, 4));

    let (_copy, again) = after_crash(copy.path());
    assert_eq!(balance(&again, account), (10, 4), "settled once");
    let ended = again.task(account, "up-1").await.expect("read").expect("kept");
    let ended = ended.ended().expect("over").clone();
    assert_eq!((ended.state.as_str(), ended.charged.get()), ("succeeded", 4 * SECOND));
    assert!(again.tasks_in_work().iter().all(|task| task.id() != taken.id()));
    let stranger = self::account(&again).await;
    for id in [taken.id().to_string(), "up-1".to_owned(), "up-2".to_owned()] {
        assert_eq!(again.task(stranger, &id).await.expect("read"), None, "{id} is not theirs");
    }
    plain.void(ledger::VoidReason::Unreached);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_see_the_end_settle_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let ledger = open(dir.path());
    let account = account(&ledger).await;
    for round in 0..50 {
        let taken = submitted(&ledger, account, &format!("up-{round}")).await;
        let ends = (0..8).map(|_| {
            let (ledger, taken) = (Arc::clone(&ledger), Arc::clone(&taken));
            tokio::spawn(async move {
                let what = ("succeeded", "null".to_owned());
                let end = ledger.end_task((account, taken.id()), what, seconds(&taken, 1));
                end.await.expect("open").is_some()
            })
        });
        let mut firsts = 0;
        for end in ends.collect::<Vec<_>>() {
            firsts += u32::from(end.await.expect("no panic"));
        }
        assert_eq!(firsts, 1, "round {round}");
    }
    assert_eq!(balance(&ledger, account), (0, 50));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_moment_leaves_task_and_hold_together() {
    let dir = tempfile::tempdir().expect("a directory");
    let ledger = open(dir.path());
    let account = account(&ledger).await;
    let enough = Arc::new(AtomicBool::new(false));
    let writer = {
        let (ledger, enough) = (Arc::clone(&ledger), Arc::clone(&enough));
        tokio::spawn(async move {
            // An end of its own, should the test fail meanwhile.
            for round in 0..5_000 {
                if enough.load(Ordering::Relaxed) {
                    return;
                }
                let taken = submitted(&ledger, account, &format!("up-{round}")).await;
                let end = if round % 3 == 0 { TaskSettlement::Void } else { seconds(&taken, 0) };
                let what = ("failed", "null".to_owned());
                ledger.end_task((account, taken.id()), what, end).await.expect("open");
                // Each image is replayed from the beginning: what is written must not outgrow that.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
    };
    for _ in 0..25 {
        // Images of moments that have nothing in common.
        tokio::time::sleep(Duration::from_millis(7)).await;
        let copy = tempfile::tempdir().expect("a directory");
        // The journal is the truth: sled is made anew from it, so the image is one moment's.
        std::fs::create_dir(copy.path().join("journal")).expect("made");
        copy_all(&dir.path().join("journal"), &copy.path().join("journal"));
        let restarted = open(copy.path());
        let in_work = restarted.tasks_in_work().len() as i64;
        assert_eq!(balance(&restarted, account).0, in_work * 10, "a hold for each open task");
        restarted.close();
        drop(restarted);
        let report = ledger::verify(copy.path()).expect("readable");
        assert_eq!(report.violations, Vec::<String>::new());
    }
    enough.store(true, Ordering::Relaxed);
    writer.await.expect("no panic");
    assert!(ledger.tasks_in_work().is_empty(), "all have ended");
}

/// Tries to announce once had the place of debts that were given up, and no start could read sled then.
#[tokio::test(flavor = "multi_thread")]
async fn a_try_to_announce_does_not_cost_sled() {
    let dir = tempfile::tempdir().expect("a directory");
    let ledger = open(dir.path());
    let account = account(&ledger).await;
    let hold = hold(&ledger, account);
    let webhook = Webhook::Due { tries: 0, at: UnixMs(0) };
    let due = Arc::new(Task { webhook, ..Task::clone(&task(&hold, account, None)) });
    ledger.open_task(hold, Arc::clone(&due), REPEATED_WITHIN).await.expect("opened");
    let id = (account, due.id());
    let ended = ("failed", "null".to_owned());
    ledger.end_task(id, ended, TaskSettlement::Void).await.expect("open");
    let given_up = |task: &Task| Task { webhook: Webhook::GivenUp, ..task.clone() };
    let tried = DeliveryAttempt::now(Err("nobody listens".to_owned()));
    ledger.announced(id, tried, given_up).await.expect("noted").expect("it was due");
    ledger.close();
    drop(ledger);
    let (ledger, recovery) = Ledger::open(Options::new(dir.path())).expect("opens");
    assert_eq!((recovery.records_replayed, recovery.sled_rebuilt), (0, false));
    ledger.close();
}

#[tokio::test(flavor = "multi_thread")]
async fn stages_go_one_way_only() {
    let dir = tempfile::tempdir().expect("a directory");
    let ledger = open(dir.path());
    let account = account(&ledger).await;
    let taken = submitted(&ledger, account, "up-1").await;
    let to = async |stage: TaskPhase| {
        let change = |task: &Task| Task { stage: stage.clone(), ..task.clone() };
        ledger.change_task((account, taken.id()), change).await.expect("open")
    };
    let submitted_anew = TaskPhase::Submitted { upstream_id: "up-2".into() };
    for stage in [TaskPhase::Submitting, TaskPhase::InDoubt, submitted_anew] {
        assert_eq!(to(stage.clone()).await, None, "{stage:?}");
    }
    let unknown = ledger.change_task((account, TaskId::random()), Task::clone).await;
    assert_eq!(unknown.expect("open"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_submit_is_recognised_also_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let ledger = open(dir.path());
    let account = account(&ledger).await;
    let repeat = RepeatKey { key: [1; 32], body: [2; 32] };
    let first = hold(&ledger, account);
    let existing = task(&first, account, Some(repeat));
    ledger.open_task(first, Arc::clone(&existing), REPEATED_WITHIN).await.expect("opened");
    let second = hold(&ledger, account);
    let twin = task(&second, account, Some(repeat));
    let again = ledger.open_task(second, twin, REPEATED_WITHIN).await;
    assert!(matches!(again, Err(LedgerError::Conflict)), "{again:?}");
    assert_eq!(balance(&ledger, account), (10, 0), "the second hold is given back");
    let (_copy, restarted) = after_crash(dir.path());
    let (now, other) = (UnixMs::now(), RepeatKey { body: [3; 32], ..repeat });
    let repeated = async |repeat, at| {
        restarted.repeated(account, repeat, (at, REPEATED_WITHIN)).await.expect("read")
    };
    assert_eq!(repeated(&repeat, now).await, RepeatLookup::Same(existing.id()));
    assert_eq!(repeated(&other, now).await, RepeatLookup::Other);
    let later = UnixMs(now.0 + 25 * 3600 * 1000);
    let same = RepeatLookup::Same(existing.id());
    assert_eq!(repeated(&repeat, later).await, same, "nobody knows what came of it");
    let taken = |task: &Task| Task {
        stage: TaskPhase::Submitted { upstream_id: "up".into() },
        ..task.clone()
    };
    restarted.change_task((account, existing.id()), taken).await.expect("open").expect("changed");
    assert_eq!(repeated(&repeat, later).await, RepeatLookup::New, "a day after its answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ended_long_ago_is_forgotten() {
    let dir = tempfile::tempdir().expect("a directory");
    let ledger = open(dir.path());
    let account = account(&ledger).await;
    let mut ids = Vec::new();
    for round in 0..3 {
        let taken = submitted(&ledger, account, &format!("up-{round}")).await;
        let what = ("failed", "null".to_owned());
        ledger.end_task((account, taken.id()), what, TaskSettlement::Void).await.expect("open");
        ids.push(taken.id().to_string());
    }
    let open_one = submitted(&ledger, account, "up-open").await;
    assert_eq!(ledger.forget_tasks(UnixMs(1), 10).await.expect("read"), 0, "nothing is that old");
    let future = UnixMs(UnixMs::now().0 + 1000);
    assert_eq!(ledger.forget_tasks(future, 2).await.expect("read"), 2, "at most so many");
    assert_eq!(ledger.forget_tasks(future, 2).await.expect("read"), 1);
    for id in ids.iter().map(String::as_str).chain(["up-0", "up-1", "up-2"]) {
        assert_eq!(ledger.task(account, id).await.expect("read"), None, "{id}");
    }
    assert!(ledger.task(account, "up-open").await.expect("read").is_some());
    assert_eq!(ledger.tasks_in_work().len(), 1, "{open_one:?} is in work");
}

/// Whichever group of a journal with tasks is lost, what is left can be repaired: a task and its hold
/// are open together, or have ended together.
#[tokio::test(flavor = "multi_thread")]
async fn a_journal_with_tasks_is_repaired_whatever_is_lost() {
    let dir = tempfile::tempdir().expect("a directory");
    let ledger = open(dir.path());
    let account = account(&ledger).await;
    for round in 0..4 {
        let taken = submitted(&ledger, account, &format!("up-{round}")).await;
        if round % 2 == 0 {
            let what = ("succeeded", "null".to_owned());
            let end = ledger.end_task((account, taken.id()), what, seconds(&taken, 1));
            end.await.expect("open").expect("the first");
        }
    }
    opened(&ledger, account).await;
    ledger.close();
    drop(ledger);
    let segment = "journal/0000000000000001.seg";
    let whole = std::fs::read(dir.path().join(segment)).expect("readable");
    let mut frames = frame_bounds(&whole);
    frames.pop();
    assert!(frames.len() > 10, "{} frames", frames.len());
    for begin in frames {
        let damaged = tempfile::tempdir().expect("a directory");
        copy_all(dir.path(), damaged.path());
        let mut bytes = whole.clone();
        bytes[begin + 62] ^= 4;
        std::fs::write(damaged.path().join(segment), bytes).expect("written");
        let repaired = ledger::repair(damaged.path(), true, false);
        let repaired = repaired.unwrap_or_else(|error| panic!("byte {begin}: {error}"));
        assert!(!repaired.is_sound, "byte {begin}");
        let again = open(damaged.path());
        again.close();
        drop(again);
        let report = ledger::verify(damaged.path()).expect("readable");
        assert_eq!(report.violations, Vec::<String>::new(), "byte {begin}");
    }
}
