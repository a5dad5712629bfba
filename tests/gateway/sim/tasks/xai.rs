//! Videos of xAI's.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tollgate::sim::TaskProtocol;

use super::super::json_of;
use super::{ask, get, record, sim, statuses, submit, video};

pub(super) const SUBMIT: &str = "/v1/videos/generations";
pub(super) const VIDEOS: &str = "/v1/videos";

pub(super) fn order(fields: Value) -> Value {
    let mut body = json!({"model": "grok-imagine-video", "prompt": "A toll."});
    let fields = fields.as_object().expect("an object").clone();
    body.as_object_mut().expect("an object").extend(fields);
    body
}

#[tokio::test]
async fn a_video_is_pending_and_then_done() {
    let sim = sim(&["task-pending-ms=250", "task-running-ms=250"]);
    let image = json!({"url": "https://a.test/1.png"});
    let order = order(json!({"image": image, "duration": 6, "resolution": "720p"}));
    let id = submit(&sim, "chunks=1", SUBMIT, &order).await;
    let path = format!("{VIDEOS}/{id}");
    assert_eq!(statuses(&sim, &path, "/status", "done").await, ["pending", "done"]);
    let (_, done) = get(&sim, &path).await;
    let url = done["video"]["url"].as_str().expect("a URL");
    let expected = json!({
        "status": "done", "model": "grok-imagine-video", "progress": 100,
        "video": {"url": url, "duration": 6, "respect_moderation": true},
        "usage": {"cost_in_usd_ticks": 4_200_000_000_u64},
    });
    assert_eq!(done, expected, "six seconds at 7 cents");
    assert!(url.starts_with(&format!("http://{}/sim:chunks=1/sim/results/", sim.addr())), "{url}");
    assert_eq!(&video(url).await[4..8], b"ftyp", "an MP4");
}

#[tokio::test]
async fn ends_come_with_status_200_in_xais_words() {
    let sim = sim(&[]);
    let ticks = json!(4_000_000_000_u64);
    for (settings, status, code, cost) in [
        ("task-end=succeeded", "done", None, &ticks),
        ("task-end=moderated", "done", None, &ticks),
        ("task-end=failed", "failed", Some("internal_error"), &json!(null)),
        ("task-end=cancelled", "failed", Some("cancelled"), &json!(null)),
        ("task-end=expired", "expired", None, &json!(null)),
        ("usage=completion=17", "done", None, &json!(17)),
        ("fault=usage-missing", "done", None, &json!(null)),
    ] {
        let record = record(&sim, TaskProtocol::Xai, settings, &order(json!({}))).await;
        assert_eq!(record["status"], status, "{settings}");
        assert_eq!(record["error"]["code"].as_str(), code, "{settings}");
        assert_eq!(record["usage"]["cost_in_usd_ticks"], *cost, "{settings}: 8 seconds at 5 cents");
        let is_moderated = settings == "task-end=moderated";
        if status == "done" {
            assert_eq!(record["video"]["respect_moderation"], !is_moderated, "{settings}");
            assert_eq!(record["video"].get("url").is_none(), is_moderated, "{settings}");
        } else {
            assert!(record.get("video").is_none(), "{settings}: {record}");
        }
    }
}

#[tokio::test]
async fn errors_are_flat() {
    let sim = sim(&[]);
    for wrong in [
        json!({"image": "https://a.test/1.png"}),
        json!({"image": {"uri": "https://a.test/1.png"}}),
        json!({"prompt": ""}),
        json!({"duration": 16}),
        json!({"resolution": "1080p"}),
    ] {
        let refused = ask(&sim, Method::POST, "chunks=1", SUBMIT, &order(wrong.clone())).await;
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{wrong}");
        let error = json_of(refused).await;
        assert!(error["code"].is_string() && error["error"].is_string(), "{wrong}: {error}");
    }
    assert_eq!(sim.tasks_total(), 0, "what is refused is not taken in");
    let (status, error) = get(&sim, &format!("{VIDEOS}/nobody")).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(error["error"], "There is no video nobody.");
    let message = ask(&sim, Method::POST, "fault=status=429", SUBMIT, &order(json!({}))).await;
    assert_eq!(json_of(message).await["code"], "Some resource has been exhausted");
}
