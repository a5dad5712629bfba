//! Nodes that look after tasks: one asks the upstream, all of them answer, and one that dies is
//! replaced.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate::clock::UnixMs;
use tollgate::config::{ConfigHandle, Overrides, Sources};
use tollgate::ledger::{AccountId, Intent, REPEATED_WITHIN, Task, TaskPhase, Webhook};
use tollgate::metrics::Metrics;
use tollgate::money::Rate;
use tollgate::outbound::Outbound;
use tollgate::price::Usage;
use tollgate::protocols::task::TaskFacts;
use tollgate::request_log::RequestLog;
use tollgate::tasks::Tasks;

use super::member::{FleetDatabase, HELD, TIMEOUT, customer, hold, opened, submitted, task, until};
use crate::harness::fleet::Member;
use crate::harness::let_pass_async;

/// An upstream of the family S, and a receiver of announcements.
#[derive(Default)]
struct Outside {
    is_done: AtomicBool,
    polls: AtomicU32,
    asking: AtomicU32,
    asking_max: AtomicU32,
    /// So many announcements are not taken.
    refuses: AtomicU32,
    announced: Mutex<Vec<(String, Value)>>,
}

impl Outside {
    async fn start() -> (Arc<Self>, SocketAddr) {
        let outside = Arc::new(Self::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let app = Router::new()
            .route("/v1/videos/{id}", get(look))
            .route("/hook", post(announced))
            .with_state(Arc::clone(&outside));
        tokio::spawn(async move { axum::serve(listener, app).await });
        (outside, address)
    }

    fn announcements(&self) -> Vec<(String, Value)> {
        self.announced.lock().clone()
    }
}

async fn look(State(outside): State<Arc<Outside>>) -> Json<Value> {
    outside.polls.fetch_add(1, Ordering::Relaxed);
    let asking = outside.asking.fetch_add(1, Ordering::Relaxed) + 1;
    outside.asking_max.fetch_max(asking, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(30)).await;
    outside.asking.fetch_sub(1, Ordering::Relaxed);
    Json(match outside.is_done.load(Ordering::Relaxed) {
        false => json!({"status": "pending"}),
        true => json!({"status": "done", "video": {"url": "https://cdn/x.mp4", "duration": 4}}),
    })
}

async fn announced(
    State(outside): State<Arc<Outside>>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> StatusCode {
    let id = headers["webhook-id"].to_str().expect("text").to_owned();
    outside.announced.lock().push((id, body));
    let left = outside.refuses.load(Ordering::Relaxed);
    if left > 0 {
        outside.refuses.store(left - 1, Ordering::Relaxed);
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    StatusCode::OK
}

/// A node's part in looking after tasks.
fn works(member: &Member, outside: SocketAddr) -> (Arc<Tasks>, TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let (routes, models) = (dir.path().join("routes.yaml"), dir.path().join("models.yaml"));
    let text = format!(
        "listeners: [{{ address: 127.0.0.1:1 }}]
store: {{ data_dir: {} }}
upstreams:
  films: {{ protocol: xai, base_url: 'http://{outside}', credential: x }}
tasks: {{ repeat_window: none, poll_min: 50ms, poll_max: 100ms, webhook_hosts: ['127.0.0.1:*'] }}
",
        dir.path().display()
    );
    std::fs::write(&routes, text).expect("written");
    let model = "models:
  video:
    operations: [video]
    targets: [{ upstream: films, model: grok }]
    prices: { per_second: 0.07 }
    limits: { resolutions: [480p], seconds_min: 1, seconds_max: 15, reference_images_max: 1 }
";
    std::fs::write(&models, model).expect("written");
    // The nodes of a fleet sign with one key.
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    std::fs::write(dir.path().join("webhook-key"), key).expect("written");
    let (sources, overrides) = (Sources::Files { routes, models }, Overrides::default());
    let loaded = tollgate::config::load(&sources, &overrides);
    let (snapshot, _) = loaded.unwrap_or_else(|errors| panic!("{errors:?}"));
    let config = Arc::new(ConfigHandle::new(snapshot, sources, overrides));
    let metrics = Arc::new(Metrics::new());
    let tasks = Tasks::start(
        Arc::clone(&member.ledger),
        config,
        Outbound::new(&metrics, Arc::default()),
        metrics,
        RequestLog::off(),
        dir.path(),
    );
    (tasks.expect("tasks"), dir)
}

/// A task of four seconds whose end is announced.
fn announced_at(task: &Task, outside: SocketAddr) -> Arc<Task> {
    let mut intent = (*task.intent).clone();
    // Ten nano-dollars a second.
    intent.prices.second = Rate::from_femtousd(10_000_000);
    let bound = Usage { seconds: 4, ..Usage::ZERO };
    intent.facts = TaskFacts { max_usage: bound, seconds: 4, ..TaskFacts::default() }.encode();
    intent.webhook_url = Some(format!("http://{outside}/hook"));
    let webhook = Webhook::Due { tries: 0, at: UnixMs::now() };
    Arc::new(Task { intent: Arc::new(intent), webhook, ..task.clone() })
}

/// A task that the upstream has, and whose end is announced there.
async fn announced_task(member: &Member, account: AccountId, hook: SocketAddr) -> Arc<Task> {
    let hold = hold(member, account, HELD).await;
    let task = announced_at(&task(&hold, account, None), hook);
    member.ledger.open_task(hold, Arc::clone(&task), REPEATED_WITHIN).await.expect("opened");
    let stage = TaskPhase::Submitted { upstream_id: format!("up-{}", task.id()).as_str().into() };
    let change = |task: &Task| Task { stage: stage.clone(), ..task.clone() };
    let changed = member.ledger.change_task((account, task.id()), change).await;
    changed.expect("written").expect("changed")
}

/// A record as JSON.
fn document(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn one_node_asks_all_answer_and_the_end_is_announced_with_one_id() {
    let database = FleetDatabase::new("work").await;
    let (outside, address) = Outside::start().await;
    outside.refuses.store(1, Ordering::Relaxed);
    let [a, b, c] = [
        Member::join(&database.url, "a").await,
        Member::join(&database.url, "b").await,
        Member::join(&database.url, "c").await,
    ];
    let account = customer(&a, &[&b, &c]).await;
    let nodes = [works(&a, address), works(&b, address), works(&c, address)];
    let taken = announced_task(&a, account, address).await;
    nodes[0].0.follow(&taken).await;
    let id = taken.id().to_string();
    for (tasks, _) in &nodes {
        let record = document(&tasks.record(account, &id).await.expect("read").expect("a record"));
        assert!(
            ["processing", "running", "pending"]
                .contains(&record["status"].as_str().expect("text")),
            "{record}"
        );
    }
    until("a few questions", || outside.polls.load(Ordering::Relaxed) > 3).await;
    assert_eq!(outside.asking_max.load(Ordering::Relaxed), 1, "one node asks at a time");
    let waited = {
        let (tasks, taken) = (Arc::clone(&nodes[2].0), Arc::clone(&taken));
        tokio::spawn(async move { tasks.wait(&taken).await })
    };
    let_pass_async(Duration::from_millis(100), "nothing shows that the other task waits").await;
    outside.is_done.store(true, Ordering::Relaxed);
    let waited = tokio::time::timeout(TIMEOUT, waited).await.expect("in time").expect("no panic");
    let waited = document(&waited.expect("a place"));
    assert_eq!(waited["content"][0]["video_url"], "https://cdn/x.mp4");
    for (tasks, _) in &nodes {
        let record = document(&tasks.record(account, &id).await.expect("read").expect("a record"));
        assert_eq!(record["content"][0]["video_url"], "https://cdn/x.mp4", "{record}");
        assert_eq!(tasks.record(account, "gt_0").await.expect("read"), None);
    }
    let row = database.account(account);
    assert_eq!((row.held, row.spent), (0, 40), "four seconds");

    until("the announcements", || outside.announcements().len() >= 2).await;
    let announcements = outside.announcements();
    for (message, body) in &announcements {
        assert_eq!(*message, format!("msg_{}", taken.id()), "one id for all tries");
        assert_eq!(body["type"], "video.task.succeeded");
    }
    let secrets = nodes.each_ref().map(|(tasks, _)| tasks.webhook_secret(account));
    assert!(secrets.iter().all(|secret| *secret == secrets[0]));
    let due = "SELECT count(*) FROM tollgate.tasks WHERE due_at IS NOT NULL";
    until("the end of all work", || database.sql(due) == "0").await;
    let tried = b.ledger.tried(taken.id()).await.expect("read").expect("a try");
    assert_eq!(tried.status, Some(200));
    assert_eq!(outside.announcements().len(), 2, "what was taken is not announced again");
}

/// At every node a task reads as expired once its time is over; its money stays held, and it is charged
/// when its upstream makes it all the same.
#[tokio::test(flavor = "multi_thread")]
async fn an_overdue_task_reads_expired_at_every_node() {
    let database = FleetDatabase::new("overdue").await;
    let (outside, address) = Outside::start().await;
    let [a, b] = [Member::join(&database.url, "a").await, Member::join(&database.url, "b").await];
    let account = customer(&a, &[&b]).await;
    let nodes = [works(&a, address), works(&b, address)];
    let hold = hold(&a, account, HELD).await;
    let plain = announced_at(&task(&hold, account, None), address);
    let expires_at = UnixMs(plain.intent.at.0 - 60_000);
    let intent = Arc::new(Intent { expires_at, ..(*plain.intent).clone() });
    let task = Arc::new(Task { intent, ..Task::clone(&plain) });
    a.ledger.open_task(hold, Arc::clone(&task), REPEATED_WITHIN).await.expect("opened");
    let stage = TaskPhase::Submitted { upstream_id: "up-overdue".into() };
    let change = |task: &Task| Task { stage: stage.clone(), ..task.clone() };
    let id = (account, task.id());
    a.ledger.change_task(id, change).await.expect("written").expect("changed");
    nodes[0].0.follow(&task).await;
    until("a few questions", || outside.polls.load(Ordering::Relaxed) > 3).await;
    for (tasks, _) in &nodes {
        let record = tasks.record(account, &task.id().to_string()).await.expect("read");
        let record = document(&record.expect("a record"));
        assert_eq!(
            (&record["status"], &record["error"]["code"]),
            (&json!("expired"), &json!("Expired"))
        );
    }
    assert_eq!(database.account(account).held, HELD, "it may yet be made");
    assert!(outside.announcements().is_empty(), "that is not its end");
    outside.is_done.store(true, Ordering::Relaxed);
    until("the announcement", || !outside.announcements().is_empty()).await;
    assert_eq!(outside.announcements()[0].1["type"], "video.task.succeeded");
    let row = database.account(account);
    assert_eq!((row.held, row.spent), (0, 40), "four seconds");
}

#[test]
fn tasks_of_a_killed_node_are_ended_by_another() {
    let own = tokio::runtime::Runtime::new().expect("a runtime");
    let others = tokio::runtime::Runtime::new().expect("a runtime");
    let database = others.block_on(FleetDatabase::new("killed"));
    let (outside, address) = others.block_on(Outside::start());
    let (b, account) = others.block_on(async {
        let b = Member::join(&database.url, "b").await;
        let account = customer(&b, &[]).await;
        (b, account)
    });
    let url = database.url.clone();
    let (taken, under_way) = own.block_on(async {
        let a = Member::join(&url, "a").await;
        a.ledger.catch_up().await.expect("followed");
        let taken = submitted(&a, account, "up-1").await;
        let under_way = opened(&a, account).await;
        std::mem::forget(a);
        (taken, under_way)
    });
    // Everything of that node stops at once; it had claimed its task to ask.
    own.shutdown_background();
    database.sql("UPDATE tollgate.tasks SET due_at = 0, held_until = now() + interval '2 seconds'");
    database.sql("UPDATE tollgate.nodes SET term_ends = now() WHERE name = 'a'");
    outside.is_done.store(true, Ordering::Relaxed);
    others.block_on(async {
        let (tasks, _dir) = works(&b, address);
        let ended = format!("SELECT stage FROM tollgate.tasks WHERE id = '{}'", taken.id());
        until("the end", || database.sql(&ended) == "ended").await;
        assert_eq!(database.account(account).held, HELD, "that of the submit that nobody knows of");
        let record = tasks.record(account, &taken.id().to_string()).await;
        let record = document(&record.expect("read").expect("a record"));
        assert_eq!(record["content"][0]["video_url"], "https://cdn/x.mp4", "{record}");

        let doubt = format!("SELECT stage FROM tollgate.tasks WHERE id = '{}'", under_way.id());
        until("the doubt", || database.sql(&doubt) == "in_doubt").await;
        let in_doubt = b.ledger.tasks_in_doubt().await.expect("read");
        assert_eq!(in_doubt.len(), 1, "nobody submits it again");
        assert_eq!(outside.polls.load(Ordering::Relaxed), 1, "only the other was asked about");
    });
}
