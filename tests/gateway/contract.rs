//! The contract with customers, where upstreams answer what simulated ones do not: byte for byte, in
//! their own codes, with texts of any length, or with nothing that could be read.

mod bounds;
mod family_s;
mod kept;
mod page;
mod overdue;
mod polling;
mod repeats;
mod secrets;
mod unreadable;
mod upstream;

use std::time::Duration;

use crate::harness::{Answer, Gateway, VIDEO_MODELS, ask, poll};
use serde_json::{Value, json};
use upstream::Upstream;

const VIDEOS: &str = "/v1/videos/generations";

/// A gateway whose upstreams of all protocols are this one. Tasks are asked about often.
fn gateway(upstream: &Upstream) -> Gateway {
    gateway_with(upstream, "repeat_window: none")
}

/// The same with these settings of `tasks`.
fn gateway_with(upstream: &Upstream, tasks: &str) -> Gateway {
    let at = upstream.address;
    let upstreams: String = ["openai", "dashscope", "ark", "xai"]
        .map(|protocol| {
            format!("  {protocol}: {{ protocol: {protocol}, base_url: 'http://{at}', credential: sk-credential-of-the-operator }}\n")
        })
        .concat();
    let upstreams = format!(
        "{upstreams}tasks: {{ poll_min: 20ms, poll_max: 50ms, webhook_hosts: ['127.0.0.1:*'], {tasks} }}\n"
    );
    Gateway::serving(&upstreams, &format!("{MODELS}{VIDEO_MODELS}"))
}

const MODELS: &str = "models:
  m:
    operations: [chat, embeddings]
    targets: [{ upstream: openai }]
    prices: { input_per_1m_tokens: 1.00, output_per_1m_tokens: 2.00 }
    limits: { context_tokens_max: 100000, output_tokens_max: 1000 }
  qf-image-2.0:
    operations: [image_generation]
    targets: [{ upstream: dashscope }]
    prices: { per_image: 0.04 }
";

fn post(gateway: &Gateway, path: &str, body: &str) -> Answer {
    let lines = format!("Content-Length: {}\r\n", body.len());
    ask(gateway.address, &gateway.post(path, &lines, body))
}

/// A submit under such an `Idempotency-Key`.
fn submit_under(gateway: &Gateway, key: &str, body: &Value) -> Answer {
    let body = body.to_string();
    let lines = format!("Content-Length: {}\r\nIdempotency-Key: {key}\r\n", body.len());
    ask(gateway.address, &gateway.post(VIDEOS, &lines, &body))
}

fn submit(gateway: &Gateway, body: &Value) -> Answer {
    post(gateway, VIDEOS, &body.to_string())
}

fn record(gateway: &Gateway, id: &str) -> Answer {
    ask(gateway.address, &gateway.get(&format!("{VIDEOS}/{id}")))
}

/// The record once the task has ended.
fn ended(gateway: &Gateway, id: &str) -> Answer {
    poll("the task ends", Duration::from_secs(10), || {
        let record = record(gateway, id);
        let status = record.json()["status"].as_str().unwrap_or_default().to_owned();
        let has_ended = ["succeeded", "failed", "expired", "cancelled"].contains(&&*status);
        if has_ended { Ok(record) } else { Err(record) }
    })
}

fn family_v() -> Value {
    json!({
        "model": "vf2.7-t2v",
        "duration": 5,
        "resolution": "720p",
        "input": {"prompt": "a lighthouse"},
        "parameters": {"resolution": "720P", "duration": 5},
    })
}

fn family_s() -> Value {
    json!({
        "model": "sf-1-5-pro-251215",
        "content": [{"type": "text", "text": "a lighthouse"}],
        "duration": 5,
        "resolution": "720p",
    })
}

fn family_g() -> Value {
    json!({"model": "gif-video", "prompt": "a lighthouse", "duration": 2})
}
