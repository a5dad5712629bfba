//! Videos, which are tasks: submitted, asked after, and over at some time.

mod ark;
mod dashscope;
mod xai;

use std::io::ErrorKind;
use std::time::Duration;

use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tollgate::sim::{Behaviour, Sim, SimulatedTaskState, TaskEnd, TaskProtocol};

use super::{TIMEOUT, client, json_of, raw_at, sim};
use crate::harness::within_async;

/// The settings of a task that is over as soon as it is submitted.
const AT_ONCE: &str = "task-pending-ms=0;task-running-ms=0";
/// For each protocol, where its tasks are submitted, and where they are below.
const PROTOCOLS: [(TaskProtocol, &str, &str); 3] = [
    (TaskProtocol::Dashscope, dashscope::SUBMIT, dashscope::TASKS),
    (TaskProtocol::Ark, ark::TASKS, ark::TASKS),
    (TaskProtocol::Xai, xai::SUBMIT, xai::VIDEOS),
];

fn order(protocol: TaskProtocol) -> Value {
    match protocol {
        TaskProtocol::Dashscope => dashscope::order(json!({"duration": 5, "resolution": "720P"})),
        TaskProtocol::Ark => ark::order(json!({})),
        TaskProtocol::Xai => xai::order(json!({})),
    }
}

/// Asks a simulator that is told `settings` in the path. DashScope's header does no harm elsewhere.
async fn ask(sim: &Sim, method: Method, settings: &str, path: &str, body: &Value) -> Response {
    let url = format!("http://{}/sim:{settings}{path}", sim.addr());
    let request = client().request(method, url).header("x-dashscope-async", "enable");
    request.json(body).send().await.expect("an answer")
}

/// Submits a task and gives its id.
async fn submit(sim: &Sim, settings: &str, path: &str, body: &Value) -> String {
    let response = ask(sim, Method::POST, settings, path, body).await;
    assert_eq!(response.status(), StatusCode::OK, "{settings} {body}");
    let answer = json_of(response).await;
    let id = [&answer["output"]["task_id"], &answer["id"], &answer["request_id"]];
    id.into_iter().find_map(Value::as_str).expect("an id").to_owned()
}

/// Asks after something, with its status.
async fn get(sim: &Sim, path: &str) -> (StatusCode, Value) {
    let response = client().get(format!("http://{}{path}", sim.addr())).send().await;
    let response = response.expect("an answer");
    (response.status(), json_of(response).await)
}

/// Submits a task that is over at once, and gives its record.
async fn record(sim: &Sim, protocol: TaskProtocol, settings: &str, body: &Value) -> Value {
    let settings = format!("{AT_ONCE};{settings}");
    let settings = settings.trim_end_matches(';');
    let (_, at, below) = PROTOCOLS.iter().find(|row| row.0 == protocol).expect("a protocol");
    let id = submit(sim, settings, at, body).await;
    let (status, record) = get(sim, &format!("{below}/{id}")).await;
    assert_eq!(status, StatusCode::OK, "{settings}");
    record
}

/// The different values of a status, in the order in which they were seen, until `last`.
async fn statuses(sim: &Sim, path: &str, pointer: &str, last: &str) -> Vec<String> {
    let mut seen: Vec<String> = Vec::new();
    within_async(TIMEOUT, &format!("{last} is reached"), async || {
        let (_, record) = get(sim, path).await;
        let status = record.pointer(pointer).and_then(Value::as_str).expect("a status");
        if seen.last().is_none_or(|last| last != status) {
            seen.push(status.to_owned());
        }
        status == last
    })
    .await;
    seen
}

/// Fetches a video and gives its bytes.
async fn video(url: &str) -> Vec<u8> {
    let file = client().get(url).send().await.expect("a file");
    assert_eq!(file.status(), StatusCode::OK, "{url}");
    assert_eq!(file.headers()["content-type"], "video/mp4", "{url}");
    file.bytes().await.expect("bytes").to_vec()
}

#[tokio::test]
async fn tasks_are_listed_and_queries_counted() {
    let sim = sim(&["task-pending-ms=0", "task-running-ms=3600000"]);
    for (protocol, at, below) in PROTOCOLS {
        let id = submit(&sim, "chunks=1", at, &order(protocol)).await;
        for _ in 0..3 {
            get(&sim, &format!("{below}/{id}")).await;
        }
        let task = sim.tasks().pop().expect("a task");
        let body = order(protocol);
        let hash = Sha256::digest(body.to_string());
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((task.protocol, task.id, task.queries), (protocol, id, 3), "{protocol:?}");
        assert_eq!(
            (task.body_sha256, task.state),
            (hash, SimulatedTaskState::Running),
            "{protocol:?}"
        );
        assert_eq!(body["model"], task.model.as_str(), "{protocol:?}");
    }
    let requests = sim.requests_total();
    let (_, shown) = get(&sim, "/sim/tasks").await;
    assert_eq!(sim.requests_total(), requests, "looking at tasks is no request");
    let all = shown.as_array().expect("a list");
    assert_eq!((all.len(), sim.tasks_total()), (3, 3));
    for (shown, task) in all.iter().zip(sim.tasks()) {
        assert_eq!((&shown["id"], &shown["queries"]), (&json!(task.id), &json!(3)));
        assert_eq!(shown["protocol"], task.protocol.as_str());
        assert_eq!(shown["body_sha256"], task.body_sha256);
        assert_eq!(shown["state"], "running");
        assert!(shown["model"].is_string() && shown["submitted"].is_string(), "{shown}");
    }
}

#[test]
fn a_submit_without_an_answer_has_been_taken_in() {
    for (protocol, at, _) in PROTOCOLS {
        let sim = sim(&[]);
        let body = order(protocol);
        for (fault, answer, end, taken) in [
            ("submit-hang", "", Err(ErrorKind::WouldBlock), 1),
            ("submit-reset", "", Err(ErrorKind::ConnectionReset), 2),
            ("garbage", "HTTP/1.1 200", Ok(()), 3),
            ("cut-after=0", "HTTP/1.1 200", Ok(()), 4),
            ("hang", "", Err(ErrorKind::WouldBlock), 4),
            ("reset-after-body", "", Err(ErrorKind::ConnectionReset), 4),
            ("status=503", "HTTP/1.1 503", Ok(()), 4),
            ("status=503,submit-hang", "HTTP/1.1 503", Ok(()), 4),
            ("error-in-200", "HTTP/1.1 200", Ok(()), 4),
        ] {
            // The header of DashScope's comes with the name of the fault.
            let fault = format!("{fault}\r\nx-dashscope-async: enable");
            let (got, ended) = raw_at(&sim, at, &fault, &body);
            assert_eq!((&got[..got.len().min(12)], ended), (answer, end), "{protocol:?}: {fault}");
            assert_eq!(sim.tasks().len(), taken, "{protocol:?}: tasks after {fault}");
        }
    }
}

#[tokio::test]
async fn queries_alone_have_their_fault() {
    let sim = sim(&[]);
    for (protocol, at, below) in PROTOCOLS {
        let id = submit(&sim, "task-query-fault=status=500", at, &order(protocol)).await;
        let ask = async |fault: &str| {
            let path = format!("/sim:task-query-fault={fault}{below}/{id}");
            let url = format!("http://{}{path}", sim.addr());
            client().get(url).timeout(Duration::from_millis(200)).send().await
        };
        let refused = ask("status=429").await.expect("an answer");
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS, "{protocol:?}");
        let garbage = ask("garbage").await.expect("an answer").bytes().await.expect("bytes");
        assert!(std::str::from_utf8(&garbage).is_err(), "{protocol:?}: not even text");
        assert!(ask("hang").await.expect_err("no answer").is_timeout(), "{protocol:?}");
        let reset = ask("reset").await.expect_err("no answer");
        assert!(!reset.is_timeout(), "{protocol:?}: {reset}");
        assert_eq!(ask("none").await.expect("an answer").status(), StatusCode::OK, "{protocol:?}");
        let task = sim.tasks().pop().expect("a task");
        assert_eq!(task.queries, 5, "{protocol:?}: those that failed are counted too");
    }
}

#[tokio::test]
async fn simulated_upstreams_require_keys() {
    let sim = sim(&["key=sk-1"]);
    for (protocol, at, below) in PROTOCOLS {
        let refused = ask(&sim, Method::POST, "chunks=1", at, &order(protocol)).await;
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED, "{protocol:?}");
        let (status, _) = get(&sim, &format!("{below}/1")).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{protocol:?}");
    }
    assert_eq!(sim.tasks_total(), 0);
    let sent = client().post(format!("http://{}{}", sim.addr(), xai::SUBMIT)).bearer_auth("sk-1");
    let sent = sent.json(&order(TaskProtocol::Xai)).send().await.expect("an answer");
    assert_eq!(sent.status(), StatusCode::OK);
    let watched = client().get(format!("http://{}/sim/tasks", sim.addr())).send().await;
    assert_eq!(watched.expect("an answer").status(), StatusCode::OK, "whoever watches has no key");
}

#[tokio::test]
async fn the_submit_decides_what_becomes_of_a_task() {
    let sim = sim(&["task-pending-ms=0", "task-running-ms=100", "task-end=failed"]);
    let mut paths = Vec::new();
    for (protocol, at, below) in PROTOCOLS {
        let id = submit(&sim, "chunks=1", at, &order(protocol)).await;
        paths.push(format!("{below}/{id}"));
    }
    let mut later = Behaviour::default();
    later.set_pair("task-running-ms=3600000").expect("a setting");
    sim.set_behaviour(later);
    within_async(TIMEOUT, "all tasks fail", async || {
        sim.tasks().iter().all(|task| task.state == SimulatedTaskState::Ended(TaskEnd::Failed))
    })
    .await;
    for path in paths {
        let (_, record) = get(&sim, &path).await;
        assert!(record.to_string().to_lowercase().contains("failed"), "{path}: {record}");
    }
}

#[tokio::test]
async fn a_lost_task_is_unknown_though_it_was_taken_in() {
    let sim = sim(&[]);
    let unknown = |protocol, status: StatusCode, record: &Value| match protocol {
        TaskProtocol::Dashscope => record["output"]["task_status"] == "UNKNOWN",
        TaskProtocol::Ark | TaskProtocol::Xai => status == StatusCode::NOT_FOUND,
    };
    for (protocol, at, below) in PROTOCOLS {
        let lost = submit(&sim, "fault=task-lost", at, &order(protocol)).await;
        let (status, record) = get(&sim, &format!("{below}/{lost}")).await;
        assert!(unknown(protocol, status, &record), "lost from the start: {record}");
        let existing = submit(&sim, "chunks=1", at, &order(protocol)).await;
        let (status, record) = get(&sim, &format!("{below}/{existing}")).await;
        assert!(!unknown(protocol, status, &record), "known: {record}");
        let (status, record) = get(&sim, &format!("/sim:fault=task-lost{below}/{existing}")).await;
        assert!(unknown(protocol, status, &record), "lost for this query: {record}");
        for (other, _, below) in PROTOCOLS.iter().filter(|row| row.0 != protocol) {
            let (status, record) = get(&sim, &format!("{below}/{existing}")).await;
            assert!(unknown(*other, status, &record), "another protocol's: {record}");
        }
    }
    assert_eq!(sim.tasks_total(), 6, "all were taken in");
}
