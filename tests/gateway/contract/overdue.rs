//! Tasks whose time is over while their upstreams say that they are at work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tollgate::clock::UnixMs;
use tollgate::ledger::{
    AccountId, Intent, KeyId, Ledger, Options, REPEATED_WITHIN, RequestId, Reserve, Task, TaskId,
    TaskPhase, Webhook,
};
use tollgate::money::{Nanousd, Rate};
use tollgate::price::{Prices, Usage};
use tollgate::protocols::task::TaskFacts;

use super::upstream::{Upstream, json};
use super::{gateway, record};
use crate::harness::{Gateway, eventually};

/// The upstream's id of the task.
const NATIVE: &str = "cgt-20261127-overdue";
/// How long ago the time of the task was over, in seconds.
const OVERDUE_S: u64 = 3600;

/// The upstream's answer about the task.
fn upstream_record(protocol: &str, is_done: bool) -> String {
    let url = "https://a.example/v.mp4";
    let document = match (protocol, is_done) {
        ("dashscope", false) => json!({"output": {"task_id": NATIVE, "task_status": "RUNNING"}}),
        ("dashscope", true) => json!({
            "output": {"task_id": NATIVE, "task_status": "SUCCEEDED", "video_url": url},
            "usage": {"duration": 5, "video_count": 1, "SR": 720},
        }),
        ("ark", false) => json!({"id": NATIVE, "status": "running", "updated_at": 1}),
        ("ark", true) => json!({
            "id": NATIVE, "status": "succeeded", "content": {"video_url": url}, "duration": 5,
            "usage": {"completion_tokens": 1, "total_tokens": 1},
        }),
        (_, false) => json!({"status": "pending"}),
        (_, true) => json!({"status": "done", "video": {"url": url, "duration": 5}}),
    };
    json(200, &document.to_string())
}

/// Puts a task of five seconds at $0.10 into the ledger of a gateway that does not run, and gives its
/// id and when its time was over, in seconds.
async fn put_overdue(gateway: &Gateway, protocol: &str) -> (TaskId, u64) {
    let data = gateway.path("data");
    let options = Options { disk_free_bytes_min: 0, ..Options::new(&data) };
    let (ledger, _) = Ledger::open(options).expect("a ledger");
    let account: AccountId = gateway.account.parse().expect("an account");
    let reserve = Reserve {
        account,
        key: KeyId::from_number(7),
        model: "video".into(),
        price: None,
        request: RequestId::new(),
        amount: Nanousd::new(500_000_000),
        floor: Nanousd::ZERO,
    };
    let hold = ledger.admit(reserve).await.expect("a hold");
    let bound = Usage { seconds: 5, ..Usage::ZERO };
    let expires_at = UnixMs(UnixMs::now().0 - OVERDUE_S * 1000);
    let intent = Intent {
        id: TaskId::random(),
        account,
        key: KeyId::from_number(7),
        hold: hold.id(),
        model: "video".into(),
        protocol: protocol.to_owned(),
        prices: Prices {
            second: Rate::from_femtousd(100_000_000 * 1_000_000),
            ..Prices::default()
        },
        facts: TaskFacts { max_usage: bound, seconds: 5, ..TaskFacts::default() }.encode(),
        webhook_url: None,
        repeat: None,
        at: UnixMs(expires_at.0 - 172_800_000),
        expires_at,
    };
    let task = Task {
        intent: Arc::new(intent),
        upstream: protocol.to_owned(),
        upstream_model: "m".to_owned(),
        stage: TaskPhase::Submitting,
        webhook: Webhook::None,
    };
    let id = task.id();
    ledger.open_task(hold, Arc::new(task), REPEATED_WITHIN).await.expect("opened");
    let stage = TaskPhase::Submitted { upstream_id: NATIVE.into() };
    let taken = |task: &Task| Task { stage: stage.clone(), ..task.clone() };
    ledger.change_task((account, id), taken).await.expect("written").expect("changed");
    ledger.close();
    (id, expires_at.0 / 1000)
}

/// It reads as expired and can be asked for. Its money stays held, since it may yet be made and billed;
/// if it is, the customer has the video and pays for it.
#[test]
fn an_overdue_task_reads_expired_and_its_upstreams_word_still_counts() {
    for protocol in ["dashscope", "ark", "xai"] {
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        let upstream =
            Upstream::start(move |_| upstream_record(protocol, done.load(Ordering::Relaxed)));
        let mut gateway = gateway(&upstream);
        gateway.kill();
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let (task, expired_at) = runtime.block_on(put_overdue(&gateway, protocol));
        gateway.kill_and_restart();
        let id = if protocol == "ark" { NATIVE.to_owned() } else { task.to_string() };
        for looks in [0, 3] {
            eventually("it is asked about", || upstream.looks().len() > looks);
            let shown = record(&gateway, &id);
            assert_eq!(shown.status(), 200, "{shown:?}");
            let shown = shown.json();
            assert_eq!(
                (&shown["id"], &shown["status"]),
                (&json!(id), &json!("expired")),
                "{shown}"
            );
            assert_eq!(shown["error"]["code"], "Expired", "{shown}");
            assert_eq!(shown["updated_at"], json!(expired_at), "{shown}");
            let balance = gateway.balance();
            assert_eq!((&balance["held"], &balance["spent"]), (&json!("0.50"), &json!("0.00")));
        }
        is_done.store(true, Ordering::Relaxed);
        let is_made = || record(&gateway, &id).json()["status"] == "succeeded";
        eventually("the video is there", is_made);
        let shown = record(&gateway, &id).json();
        assert!(shown.to_string().contains("https://a.example/v.mp4"), "{shown}");
        assert!(shown["error"].is_null(), "{shown}");
        let balance = gateway.settled();
        assert_eq!((&balance["held"], &balance["spent"]), (&json!("0.00"), &json!("0.50")));
    }
}
