//! Requests that get a line in the access log.

use std::time::Duration;

use crate::harness::{Gateway, UPSTREAM_KEY, ask, chat_model, eventually, poll, simulator};
use serde_json::Value;

const GOOD: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
const UNKNOWN: &str = r#"{"model":"none","messages":[{"role":"user","content":"hi"}]}"#;

/// The lines of finished requests, once there are this many.
fn access_lines(gateway: &Gateway, expected: usize) -> Vec<Value> {
    poll("the lines are in the access log", Duration::from_secs(10), || {
        let text = std::fs::read_to_string(gateway.path("log")).expect("the log");
        // The last line may not be whole yet.
        let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        let lines: Vec<Value> = lines.filter(|line: &Value| line["target"] == "access").collect();
        if lines.len() >= expected { Ok(lines) } else { Err(text) }
    })
}

fn count(lines: &[Value], field: &str, value: &Value) -> usize {
    lines.iter().filter(|line| line[field] == *value).count()
}

/// The metric's value on `/metrics`.
fn metric(gateway: &Gateway, series: &str) -> u64 {
    let request = "GET /metrics HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n";
    let text = String::from_utf8(ask(gateway.admin, request.as_bytes()).body()).expect("text");
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {series} in:\n{text}")).parse().expect("a count")
}

#[test]
fn successes_are_sampled_failures_are_logged_and_all_are_counted() {
    let (quick, slow) = (simulator(&[]), simulator(&["delay-ms=600"]));
    let upstreams = format!(
        "  local: {{ protocol: openai, base_url: 'http://{}/v1', credential: {UPSTREAM_KEY} }}
  slow: {{ protocol: openai, base_url: 'http://{}/v1', credential: {UPSTREAM_KEY} }}
access_log: {{ sample: 0, slow: 500ms }}
",
        quick.addr(),
        slow.addr()
    );
    let models = format!("models:\n{}{}", chat_model("m", "local"), chat_model("slow", "slow"));
    let gateway = Gateway::logging(&upstreams, &models);
    for _ in 0..20 {
        assert_eq!(ask(gateway.address, &gateway.chat_json(GOOD)).status(), 200);
    }
    for _ in 0..3 {
        assert_eq!(ask(gateway.address, &gateway.chat_json(UNKNOWN)).status(), 404);
    }
    let patient = GOOD.replace("\"m\"", "\"slow\"");
    assert_eq!(ask(gateway.address, &gateway.chat_json(&patient)).status(), 200);
    let lines = access_lines(&gateway, 4);
    assert_eq!(lines.len(), 4, "three errors and a slow one: {lines:?}");
    assert_eq!(count(&lines, "status", &404.into()), 3, "{lines:?}");
    assert_eq!(count(&lines, "model", &"slow".into()), 1, "{lines:?}");
    let series = r#"tollgate_requests_total{code="",model="m",route="/v1/chat/completions",status="2xx",upstream="local"}"#;
    assert_eq!(metric(&gateway, series), 20, "metrics count what is not logged");

    // A reload changes the share for the requests that begin after it.
    let routes = gateway.path("routes.yaml");
    let text = std::fs::read_to_string(&routes).expect("the file");
    std::fs::write(&routes, text.replace("sample: 0,", "sample: 1,")).expect("written");
    gateway.signal("HUP");
    eventually("the reload makes successes logged", || {
        assert_eq!(ask(gateway.address, &gateway.chat_json(GOOD)).status(), 200);
        count(&access_lines(&gateway, 4), "status", &200.into()) >= 2
    });
    let before = access_lines(&gateway, 0).len();
    for _ in 0..10 {
        assert_eq!(ask(gateway.address, &gateway.chat_json(GOOD)).status(), 200);
    }
    access_lines(&gateway, before + 10);
}
