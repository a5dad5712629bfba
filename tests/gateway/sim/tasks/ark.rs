//! Videos of Ark's.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tollgate::sim::{SimulatedTaskState, TaskEnd, TaskProtocol};

use super::super::json_of;
use super::{TIMEOUT, ask, get, record, sim, statuses, submit, video};

pub(super) const TASKS: &str = "/api/v3/contents/generations/tasks";

pub(super) fn order(fields: Value) -> Value {
    let content = json!([{"type": "text", "text": "A toll."}]);
    let mut body = json!({"model": "doubao-seedance-2-0-260128", "content": content});
    let fields = fields.as_object().expect("an object").clone();
    body.as_object_mut().expect("an object").extend(fields);
    body
}

#[tokio::test]
async fn a_video_is_queued_runs_and_has_succeeded() {
    let sim = sim(&["task-pending-ms=500", "task-running-ms=500"]);
    let order = order(json!({"return_last_frame": true, "duration": 4, "seed": 11}));
    let answer = json_of(ask(&sim, Method::POST, "chunks=1", TASKS, &order).await).await;
    let id = answer["id"].as_str().expect("an id").to_owned();
    assert_eq!(answer, json!({"id": id}), "the id and nothing else");
    let shape: Vec<usize> = id.split('-').map(str::len).collect();
    assert!(id.starts_with("cgt-") && shape == [3, 14, 5], "{id}");
    let path = format!("{TASKS}/{id}");
    let (_, queued) = get(&sim, &path).await;
    assert!(queued.get("content").is_none() && queued.get("usage").is_none(), "{queued}");
    let seen = statuses(&sim, &path, "/status", "succeeded").await;
    assert_eq!(seen, ["queued", "running", "succeeded"]);

    let (_, done) = get(&sim, &path).await;
    let content = &done["content"];
    let (url, frame) = (&content["video_url"], &content["last_frame_url"]);
    let times = (&done["created_at"], &done["updated_at"]);
    assert!(times.0.as_u64() > Some(1_700_000_000) && times.0.as_u64() <= times.1.as_u64());
    let expected = json!({
        "id": id, "model": "doubao-seedance-2-0-260128", "status": "succeeded",
        "content": {"video_url": url, "last_frame_url": frame},
        "usage": {"completion_tokens": 86_400, "total_tokens": 86_400},
        "created_at": times.0, "updated_at": times.1, "seed": 11, "resolution": "720p",
        "ratio": "16:9", "duration": 4, "framespersecond": 24, "service_tier": "default",
        "execution_expires_after": 172_800, "draft": false, "error": null,
    });
    assert_eq!(done, expected, "4 × 24 × 1280 × 720 / 1024 tokens");
    assert_eq!(&video(url.as_str().expect("a URL")).await[4..8], b"ftyp", "an MP4");
    assert!(frame.as_str().is_some_and(|url| url.ends_with(".png")), "{frame}");
}

#[tokio::test]
async fn tokens_follow_the_size_and_the_length() {
    let sim = sim(&[]);
    for (fields, tokens) in [
        (json!({}), 5 * 24 * 1280 * 720 / 1024),
        (json!({"resolution": "480p"}), 5 * 24 * 864 * 496 / 1024),
        (json!({"resolution": "1080p", "duration": 10}), 10 * 24 * 1920 * 1080 / 1024),
        (json!({"resolution": "1080p", "ratio": "1:1"}), 5 * 24 * 1440 * 1440 / 1024),
        (json!({"resolution": "1080p", "draft": true}), 5 * 24 * 864 * 496 / 1024),
        (json!({"frames": 29, "ratio": "adaptive"}), 29 * 1280 * 720 / 1024),
        (json!({"duration": -1}), 5 * 24 * 1280 * 720 / 1024),
    ] {
        let record = record(&sim, TaskProtocol::Ark, "", &order(fields.clone())).await;
        assert_eq!(record["usage"]["completion_tokens"], tokens, "{fields}: {record}");
        assert!(record["content"].get("last_frame_url").is_none(), "not asked for: {record}");
    }
    let usage = async |settings| {
        record(&sim, TaskProtocol::Ark, settings, &order(json!({}))).await["usage"].clone()
    };
    let reply = usage("usage=completion=99").await;
    assert_eq!(reply, json!({"completion_tokens": 99, "total_tokens": 99}));
    assert_eq!(usage("fault=usage-missing").await, json!(null));
    assert_eq!(usage("fault=usage-string").await["total_tokens"], 108_000, "DashScope's alone");
}

#[tokio::test]
async fn unknown_fields_and_wrong_values_are_refused_by_name() {
    let sim = sim(&[]);
    for (fields, param) in [
        (json!({"wait": false}), "wait"),
        (json!({"webhook_url": "https://a.test/"}), "webhook_url"),
        (json!({"model": null}), "model"),
        (json!({"content": []}), "content"),
        (json!({"content": [{"type": "poem", "poem": "A toll."}]}), "content.type"),
        (json!({"content": [{"type": "image_url", "text": "A toll."}]}), "content.image_url"),
        (json!({"duration": 16}), "duration"),
        (json!({"resolution": "720P"}), "resolution"),
        (json!({"ratio": "2:1"}), "ratio"),
        (json!({"frames": 30}), "frames"),
        (json!({"seed": 4_294_967_296_u64}), "seed"),
        (json!({"execution_expires_after": 60}), "execution_expires_after"),
        (json!({"watermark": "no"}), "watermark"),
    ] {
        let refused = ask(&sim, Method::POST, "chunks=1", TASKS, &order(fields)).await;
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{param}");
        let error = json_of(refused).await["error"].clone();
        assert_eq!((&error["param"], &error["type"]), (&json!(param), &json!("BadRequest")));
        assert_eq!(error["code"], "InvalidParameter", "{param}");
        assert!(error["message"].as_str().is_some_and(|text| text.contains(param)), "{error}");
    }
    assert_eq!(sim.tasks_total(), 0, "what is refused is not taken in");
    let reply = ask(&sim, Method::POST, "fault=status=429", TASKS, &order(json!({}))).await;
    let expected = json!({"code": "RateLimitExceeded", "type": "TooManyRequests"});
    let error = json_of(reply).await["error"].clone();
    assert_eq!(json!({"code": error["code"], "type": error["type"]}), expected);
    let (status, error) = get(&sim, &format!("{TASKS}/nobody")).await;
    assert_eq!((status, &error["error"]["type"]), (StatusCode::NOT_FOUND, &json!("NotFound")));
}

#[tokio::test]
async fn ends_come_in_arks_words() {
    let sim = sim(&[]);
    for (settings, status, code) in [
        ("task-end=failed", "failed", Some("InternalServiceError")),
        ("task-end=failed;error-code=Own", "failed", Some("Own")),
        ("task-end=moderated", "failed", Some("OutputVideoSensitiveContentDetected")),
        ("task-end=expired", "expired", None),
        ("task-end=cancelled", "cancelled", None),
    ] {
        let record = record(&sim, TaskProtocol::Ark, settings, &order(json!({}))).await;
        assert_eq!(record["status"], status, "{settings}");
        assert_eq!(record["error"]["code"].as_str(), code, "{settings}");
        assert!(record.get("content").is_none() && record.get("usage").is_none(), "{settings}");
    }
}

#[tokio::test]
async fn tasks_are_listed_in_pages_and_a_queued_one_is_cancelled() {
    let sim = sim(&[]);
    let queued = submit(&sim, "task-pending-ms=3600000", TASKS, &order(json!({}))).await;
    let running = "task-pending-ms=0;task-running-ms=3600000";
    let running = submit(&sim, running, TASKS, &order(json!({}))).await;
    let done = submit(&sim, super::AT_ONCE, TASKS, &order(json!({}))).await;
    let page = async |query: &str| {
        let (status, page) = get(&sim, &format!("{TASKS}{query}")).await;
        let ids = page["items"].as_array().map(|items| {
            items.iter().map(|item| item["id"].as_str().expect("an id").to_owned()).collect()
        });
        (status.as_u16(), page["total"].as_u64(), ids)
    };
    let all = vec![done.clone(), running.clone(), queued.clone()];
    assert_eq!(page("").await, (200, Some(3), Some(all.clone())), "newest first");
    let second = page("?page_num=2&page_size=2").await;
    assert_eq!(second, (200, Some(3), Some(all[2..].to_vec())));
    assert_eq!(page("?page_size=501").await, (400, None, None));

    let delete = async |id: &str| {
        let path = format!("{TASKS}/{id}");
        let status = ask(&sim, Method::DELETE, "chunks=1", &path, &json!({})).await.status();
        let (_, record) = get(&sim, &path).await;
        (status.as_u16(), record["status"].as_str().map(str::to_owned))
    };
    assert_eq!(delete(&queued).await, (200, Some("cancelled".to_owned())));
    assert_eq!(sim.tasks()[0].state, SimulatedTaskState::Ended(TaskEnd::Cancelled));
    assert_eq!(delete(&queued).await, (409, Some("cancelled".to_owned())), "only once");
    assert_eq!(delete(&running).await, (409, Some("running".to_owned())), "too late");
    assert_eq!(delete(&done).await, (200, None), "its record is deleted");
    assert_eq!(delete(&done).await, (404, None));
    assert_eq!(page("").await.1, Some(2));
}

/// Takes callbacks on a thread and answers them with the statuses, the last one from then on. Each
/// body comes out with what was answered.
fn callbacks(statuses: &'static [u16]) -> (String, Receiver<(u16, Value)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}/told?of=it", listener.local_addr().expect("an address"));
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut statuses = statuses.iter();
        let mut status = 200;
        for mut stream in listener.incoming().flatten() {
            status = statuses.next().copied().unwrap_or(status);
            let mut bytes = Vec::new();
            let mut piece = [0; 4096];
            let body = loop {
                let count = stream.read(&mut piece).expect("a request");
                bytes.extend_from_slice(&piece[..count]);
                let text = String::from_utf8_lossy(&bytes);
                let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
                // The record is whole once it is JSON.
                if let Some(Ok(body)) = body.map(|body| serde_json::from_str::<Value>(&body)) {
                    assert!(text.starts_with("POST /told?of=it HTTP/1.1\r\n"), "{text}");
                    break body;
                }
            };
            let answer = format!("HTTP/1.1 {status} \r\ncontent-length: 0\r\n\r\n");
            stream.write_all(answer.as_bytes()).expect("an answer is taken");
            if sender.send((status, body)).is_err() {
                return;
            }
        }
    });
    (url, receiver)
}

fn callback(callbacks: &Receiver<(u16, Value)>) -> (u16, String) {
    let (status, record) = callbacks.recv_timeout(TIMEOUT).expect("a callback");
    (status, record["status"].as_str().expect("a status").to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_state_is_called_back_three_times_at_most() {
    let sim = sim(&[]);
    let (url, callbacks) = callbacks(&[500, 404, 204, 500, 500, 500, 200]);
    let id = submit(&sim, "chunks=1", TASKS, &order(json!({"callback_url": url}))).await;
    for expected in [
        (500, "queued"),
        (404, "queued"),
        (204, "queued"),
        (500, "running"),
        (500, "running"),
        (500, "running"),
    ] {
        assert_eq!(callback(&callbacks), (expected.0, expected.1.to_owned()));
    }
    let (_, last) = callbacks.recv_timeout(TIMEOUT).expect("a callback");
    let (_, shown) = get(&sim, &format!("{TASKS}/{id}")).await;
    assert_eq!(last, shown, "the record that a query shows");
    assert_eq!(last["status"], "succeeded", "it goes on after what nobody took");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_task_is_called_back_and_no_more() {
    let sim = sim(&["task-pending-ms=1000", "task-running-ms=0"]);
    let (url, callbacks) = callbacks(&[200]);
    let id = submit(&sim, "chunks=1", TASKS, &order(json!({"callback_url": url}))).await;
    assert_eq!(callback(&callbacks), (200, "queued".to_owned()));
    let path = format!("{TASKS}/{id}");
    let deleted = ask(&sim, Method::DELETE, "chunks=1", &path, &json!({})).await;
    assert_eq!(deleted.status(), StatusCode::OK);
    assert_eq!(callback(&callbacks), (200, "cancelled".to_owned()));
    let more = callbacks.recv_timeout(std::time::Duration::from_millis(1500));
    assert!(more.is_err(), "it neither runs nor ends any more: {more:?}");
}
