//! `POST /v1/messages`: Anthropic's protocol end to end, on the wire and in the ledger.

use crate::harness::{Admin, Customer, Demo, Gateway, Recorder, UPSTREAM_KEY, ask};
use serde_json::{Value, json};

const MODEL: &str = "claude-sonnet-4-5";

fn hello(extra: Value) -> Value {
    let messages = json!([{"role": "user", "content": "hi"}]);
    let mut body = json!({"model": MODEL, "max_tokens": 100, "messages": messages});
    let members = extra.as_object().expect("an object").clone();
    body.as_object_mut().expect("an object").extend(members);
    body
}

async fn call(demo: &Demo, customer: &Customer, body: &Value, sim: &str) -> reqwest::Response {
    let call = demo.post("/v1/messages?beta=true", body, sim).header("x-api-key", &customer.key);
    call.header("anthropic-version", "2023-06-01").send().await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_charged_to_the_nano_dollar() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    for stream in [false, true] {
        let customer = admin.customer("1.00").await;
        let sim = "usage:prompt=1000,cached=500,completion=20";
        let answer = call(&demo, &customer, &hello(json!({"stream": stream})), sim).await;
        assert_eq!(answer.status(), 200);
        answer.bytes().await.expect("a whole answer");
        // $3 a million for input, $0.30 for cache reads, $15 for output.
        let spent = admin.settled(&customer.account).await.spent;
        assert_eq!(spent, 1000 * 3_000 + 500 * 300 + 20 * 15_000, "stream {stream}");
    }
}

#[test]
fn the_upstream_sees_what_was_sent_and_no_key_of_the_customers() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(recorder.address);
    let body = r#"{"model":"claude", "max_tokens":9,"messages":[{}],"x_unknown":{"a":[1.50]}}"#;
    let lines = format!(
        "x-api-key: {}\r\nanthropic-version: 2023-06-01\r\nanthropic-beta: effort-1,compact-2,context-1m-3\r\n\
         anthropic-workspace-id: customer-canary\r\nContent-Length: {}\r\n",
        gateway.key,
        body.len()
    );
    let answer = ask(gateway.address, &gateway.post("/v1/messages?beta=true", &lines, body));
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert!(answer.header("request-id").is_some_and(|id| id.starts_with("req_")), "{answer:?}");
    let requests = recorder.requests();
    let [request] = requests.as_slice() else { panic!("one request: {requests:?}") };
    let head = request.head.to_lowercase();
    assert!(head.starts_with("post /v1/messages?beta=true http/1.1"), "{head}");
    let key = format!("x-api-key: {UPSTREAM_KEY}");
    for kept in ["anthropic-version: 2023-06-01", "anthropic-beta: effort-1,compact-2", &key] {
        assert!(head.contains(kept), "{kept} in {head}");
    }
    for removed in ["authorization", "customer-canary", "context-1m", &gateway.key.to_lowercase()] {
        assert!(!head.contains(removed), "{removed} in {head}");
    }
    assert_eq!(request.body, body.as_bytes(), "byte for byte");
}

/// An agent's prompt of 100,000 bytes holds what it can cost, by how it is cached, where its provider
/// does not count it.
#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_is_held_as_dear_as_it_can_be() {
    let demo = Demo::start();
    let customer = Admin::of(&demo).customer("0.10").await;
    let text = "x".repeat(99_000);
    let cached = |control: Value| json!([{"type": "text", "text": text, "cache_control": control}]);
    // $3, $3.75 and $6 for a million tokens of which each has a byte at least.
    for (system, cents) in [
        (json!(text), "up to $0.2"),
        (cached(json!({"type": "ephemeral"})), "up to $0.37"),
        (cached(json!({"type": "ephemeral", "ttl": "1h"})), "up to $0.59"),
    ] {
        let uncounted = "count-fault:status=404";
        let answer = call(&demo, &customer, &hello(json!({"system": system})), uncounted).await;
        let status = answer.status();
        let text = answer.text().await.expect("a whole answer");
        assert!(status == 402 && text.contains(cents), "{cents}: {text}");
    }
}

#[test]
fn a_pattern_serves_the_names_that_begin_like_it() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(recorder.address);
    for (name, status) in [
        ("claude-x-1-20260101", 200),
        ("claude-x-*", 404),
        ("claude-x-a b", 404),
        ("claude-y-1", 404),
    ] {
        let body = json!({"model": name, "max_tokens": 9, "messages": [{}]}).to_string();
        let lines = format!("Content-Length: {}\r\n", body.len());
        let answer = ask(gateway.address, &gateway.post("/v1/messages", &lines, &body));
        assert_eq!(answer.status(), status, "{name}: {answer:?}");
        if status == 200 {
            let seen = recorder.requests().pop().expect("a request");
            assert_eq!(seen.body, body.as_bytes(), "the name goes on as it is");
        }
    }
    let listed = ask(gateway.address, &gateway.get("/v1/models"));
    let ids = String::from_utf8_lossy(&listed.body()).into_owned();
    assert!(ids.contains("claude") && !ids.contains('*'), "patterns are not listed: {ids}");
    let one = ask(gateway.address, &gateway.get("/v1/models/claude-x-7"));
    assert_eq!((one.status(), &one.json()["id"]), (200, &json!("claude-x-7")), "{one:?}");
}

#[test]
fn either_header_may_hold_the_key() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(recorder.address);
    let body = r#"{"model":"claude","max_tokens":9,"messages":[{}]}"#;
    let key = &gateway.key;
    for (lines, status) in [
        (format!("x-api-key: {key}\r\n"), 200),
        (format!("Authorization: Bearer {key}\r\n"), 200),
        (format!("Authorization: Bearer junk\r\nx-api-key: {key}\r\n"), 200),
        (format!("Authorization: Bearer {key}\r\nx-api-key: junk\r\n"), 200),
        ("Authorization: Bearer junk\r\nx-api-key: junk\r\n".to_owned(), 401),
        (String::new(), 401),
    ] {
        let request = format!(
            "POST /v1/messages HTTP/1.1\r\nHost: a\r\n{lines}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = ask(gateway.address, request.as_bytes());
        assert_eq!(answer.status(), status, "{lines}{answer:?}");
        if status == 401 {
            assert_eq!(answer.json()["error"]["type"], "authentication_error", "{answer:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_cost_nothing_and_come_in_the_right_envelope() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("1.00").await;
    for (sim, status, kind) in [
        ("fault:status=400", 400, "invalid_request_error"),
        ("fault:status=401", 502, "api_error"),
        ("fault:status=404", 502, "api_error"),
        ("fault:status=413", 413, "request_too_large"),
        ("fault:status=500", 500, "api_error"),
        ("fault:status=529", 529, "overloaded_error"),
        ("fault:reset", 502, "api_error"),
        // Behind it the target is left alone for as long as it has asked.
        ("fault:status=429", 429, "rate_limit_error"),
    ] {
        let answer = call(&demo, &customer, &hello(json!({})), sim).await;
        assert_eq!(answer.status(), status, "{sim}");
        assert!(answer.headers().contains_key("request-id"), "{sim}");
        let body: Value = answer.json().await.expect("JSON");
        let what = (&body["type"], &body["error"]["type"]);
        assert_eq!(what, (&json!("error"), &json!(kind)), "{sim}: {body}");
    }
    let streamed =
        call(&demo, &customer, &hello(json!({"stream": true})), "fault:error-after=0").await;
    // Nothing has been delivered, so there is a status for it.
    assert_eq!(streamed.status(), 529);
    let body: Value = streamed.json().await.expect("JSON");
    assert_eq!(body["error"]["type"], "overloaded_error", "{body}");
    assert_eq!(admin.settled(&customer.account).await.spent, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_ends_in_an_error_event_and_is_paid_as_far_as_it_came() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    for fault in ["cut-after=3", "eof-after=3"] {
        let customer = admin.customer("1.00").await;
        let sim = format!("fault:{fault} usage:prompt=1000");
        let answer = call(&demo, &customer, &hello(json!({"stream": true})), &sim).await;
        let text = answer.text().await.expect("text");
        let last = text.trim_end().rsplit("\n\n").next().unwrap_or_default();
        assert!(last.starts_with("event: error\ndata: {"), "{fault} ended in {last:?}");
        let spent = admin.settled(&customer.account).await.spent;
        let input = 1000 * 3_000;
        assert!((input + 1..input + 100 * 15_000).contains(&spent), "{fault}: {spent}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hello_needs_no_key() {
    let demo = Demo::start();
    let client = crate::harness::http();
    for path in ["/", "/api/hello"] {
        let url = format!("{}{path}", demo.base_url);
        let answer = client.head(&url).send().await.expect("an answer");
        assert_eq!(answer.status(), 200, "HEAD {path}");
        assert_eq!(client.get(&url).send().await.expect("one").status(), 404, "GET {path}");
    }
}

/// An upstream that ignores `max_tokens`: the hold grows as long as there is money, then the stream
/// ends in words that the client understands, and nobody pays more than there was.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_runs_away_ends_with_the_money() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("0.002").await;
    let body = hello(json!({"stream": true, "max_tokens": 10}));
    let sim = "max-tokens:ignore chunks:300 words:20 interval-ms:1";
    let answer = call(&demo, &customer, &body, sim).await;
    assert_eq!(answer.status(), 200);
    let text = answer.text().await.expect("text");
    let last = text.trim_end().rsplit("\n\n").next().unwrap_or_default();
    let data = last.strip_prefix("event: error\ndata: ").expect(last);
    let error: Value = serde_json::from_str(data).expect("JSON");
    assert_eq!(error["error"]["type"], "billing_error", "{error}");
    let balance = admin.settled(&customer.account).await;
    assert!(balance.spent > 1_000_000 && balance.spent <= 2_000_000, "{balance:?}");
    assert!(balance.available >= 0, "{balance:?}");
}
