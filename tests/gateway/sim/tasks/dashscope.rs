//! Videos in DashScope's own protocol.

use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tollgate::sim::TaskProtocol;

use super::super::{json_of, post};
use super::{ask, get, record, sim, statuses, submit, video};

pub(super) const SUBMIT: &str = "/api/v1/services/aigc/video-generation/video-synthesis";
pub(super) const TASKS: &str = "/api/v1/tasks";

pub(super) fn order(parameters: Value) -> Value {
    json!({"model": "wan2.6-t2v", "input": {"prompt": "A toll."}, "parameters": parameters})
}

#[tokio::test]
async fn a_video_waits_is_worked_on_and_is_there() {
    let (sim, begin) = (sim(&[]), Instant::now());
    let settings = "task-pending-ms=500;task-running-ms=500";
    let id = submit(&sim, settings, SUBMIT, &order(json!({"size": "1280*720"}))).await;
    let path = format!("{TASKS}/{id}");
    let (_, pending) = get(&sim, &path).await;
    assert_eq!(pending["output"]["task_status"], "PENDING", "{pending}");
    assert!(pending.get("usage").is_none(), "there is nothing to bill: {pending}");
    let seen = statuses(&sim, &path, "/output/task_status", "SUCCEEDED").await;
    assert_eq!(seen, ["PENDING", "RUNNING", "SUCCEEDED"]);
    assert!(begin.elapsed() >= Duration::from_millis(1000), "it took {:?}", begin.elapsed());

    let (_, done) = get(&sim, &path).await;
    let usage = json!({
        "duration": 5, "input_video_duration": 0, "output_video_duration": 5,
        "SR": 720, "size": "1280*720", "video_count": 1,
    });
    assert_eq!(done["usage"], usage);
    let output = &done["output"];
    assert_eq!((&output["task_id"], &output["orig_prompt"]), (&json!(id), &json!("A toll.")));
    assert!(done["request_id"].is_string(), "{done}");
    let times = ["submit_time", "scheduled_time", "end_time"];
    let times = times.map(|name| output[name].as_str().expect("a time").to_owned());
    assert!(times.is_sorted() && times[0] < times[2], "{times:?}");
    let local = times[0].replace(' ', "T") + "+08:00";
    let submitted = tollgate::clock::UnixMs::parse_rfc3339(&local);
    assert_eq!(submitted, sim.tasks().first().map(|task| task.submitted), "Beijing's time");
    let url = output["video_url"].as_str().expect("a URL");
    let start = format!("http://{}/sim:{settings}/sim/results/", sim.addr());
    assert!(url.starts_with(&start), "{url}");
    assert_eq!(&video(url).await[4..8], b"ftyp", "an MP4");
}

#[tokio::test]
async fn usage_follows_the_parameters_unless_configured() {
    let sim = sim(&[]);
    let usage = async |settings: &str, parameters: Value| {
        record(&sim, TaskProtocol::Dashscope, settings, &order(parameters)).await["usage"].clone()
    };
    for (parameters, duration, lines, size) in [
        (json!({}), 5, 1080, "1920*1080"),
        (json!({"duration": 10, "resolution": "720P"}), 10, 720, "1280*720"),
        (json!({"duration": 15, "resolution": "480P"}), 15, 480, "832*480"),
        (json!({"duration": 2, "size": "1440*1440"}), 2, 1080, "1440*1440"),
        (json!({"size": "624*624"}), 5, 480, "624*624"),
    ] {
        let usage = usage("", parameters.clone()).await;
        assert_eq!(usage["duration"], duration, "{parameters}: {usage}");
        assert_eq!((&usage["SR"], &usage["size"]), (&json!(lines), &json!(size)), "{parameters}");
    }
    let reply = usage("usage=completion=7", json!({})).await;
    assert_eq!((&reply["duration"], &reply["output_video_duration"]), (&json!(7), &json!(5)));
    let reply = usage("usage=prompt=3", json!({})).await;
    assert_eq!((&reply["duration"], &reply["input_video_duration"]), (&json!(8), &json!(3)));
    assert_eq!(usage("fault=usage-missing", json!({})).await, Value::Null);
    assert_eq!(usage("fault=usage-negative", json!({})).await["duration"], -200);
    let text = usage("fault=usage-string", json!({})).await;
    let text: Value = serde_json::from_str(text.as_str().expect("a string")).expect("JSON");
    assert_eq!(text["duration"], 5, "{text}");
}

#[tokio::test]
async fn what_the_real_one_refuses_is_refused() {
    let sim = sim(&[]);
    let refused = post(&sim, SUBMIT, &order(json!({}))).await;
    assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "without the header");
    let error = json_of(refused).await;
    assert_eq!(error["message"], "current user api does not support synchronous calls");
    assert_eq!(error["code"], "InvalidParameter");

    let mut bodies = Vec::new();
    for name in ["duration", "resolution", "aspect_ratio", "webhook_url", "wait"] {
        let mut body = order(json!({}));
        body[name] = json!(null);
        bodies.push((body, name));
    }
    bodies.push((json!({"model": "m", "input": {}}), "input"));
    bodies.push((json!({"model": "m", "parameters": {}}), "input"));
    bodies.push((order(json!({"duration": 16})), "duration"));
    bodies.push((order(json!({"resolution": "720p"})), "resolution"));
    bodies.push((order(json!({"size": "1280x720"})), "size"));
    for (body, named) in bodies {
        let refused = ask(&sim, Method::POST, "chunks=1", SUBMIT, &body).await;
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST, "{body}");
        let error = json_of(refused).await;
        assert_eq!(error["code"], "InvalidParameter", "{body}");
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains(named), "{message} does not name {named}");
    }
    assert_eq!(sim.tasks_total(), 0, "what is refused is not taken in");
}

#[tokio::test]
async fn ends_come_with_status_200_in_dashscopes_words() {
    let sim = sim(&[]);
    for (settings, status, code) in [
        ("task-end=succeeded", "SUCCEEDED", None),
        ("task-end=failed", "FAILED", Some("InternalError.Algo")),
        ("task-end=failed;error-code=Arrearage", "FAILED", Some("Arrearage")),
        ("task-end=moderated", "FAILED", Some("DataInspectionFailed")),
        ("task-end=cancelled", "CANCELED", None),
        ("task-end=expired", "UNKNOWN", None),
    ] {
        let record = record(&sim, TaskProtocol::Dashscope, settings, &order(json!({}))).await;
        let output = &record["output"];
        assert_eq!(output["task_status"], status, "{settings}");
        assert_eq!(output["code"].as_str(), code, "{settings}");
        assert_eq!(output["message"].is_string(), code.is_some(), "{settings}: {record}");
        let has_video = output["video_url"].is_string() && record["usage"].is_object();
        assert_eq!(has_video, status == "SUCCEEDED", "{settings}: {record}");
    }
    let (status, unknown) = get(&sim, &format!("{TASKS}/nobody")).await;
    assert_eq!(status, StatusCode::OK, "what is unknown is no error");
    assert_eq!(unknown["output"], json!({"task_id": "nobody", "task_status": "UNKNOWN"}));
}
