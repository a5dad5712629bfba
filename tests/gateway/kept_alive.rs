//! Streams that are kept alive while their upstream thinks: what the customer reads, and what is paid.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::harness::{Answer, Gateway, ask, connect, http_builder, simulator};
use serde_json::json;
use tollgate::sim::Sim;

const COMMENT: &str = ": keep-alive\n\n";

/// A gateway over two upstreams, the first with these settings and always tried first.
fn gateway(sim: &Sim, first: &str, timeouts: &str) -> Gateway {
    let at = sim.addr();
    let upstreams = format!(
        "  a: {{ protocol: openai, base_url: 'http://{at}/sim:{first}/v1', timeouts: {{ {timeouts} }} }}
  b: {{ protocol: openai, base_url: 'http://{at}/v1' }}
"
    );
    let models = "models:
  m:
    operations: [chat]
    targets: [{ upstream: a }, { upstream: b, priority: 1 }]
    prices: { input_per_1m_tokens: 1, output_per_1m_tokens: 1000 }
    limits: { context_tokens_max: 10000, output_tokens_max: 100 }
    reasoning: false
  alone:
    operations: [chat]
    targets: [{ upstream: a }]
    prices: { input_per_1m_tokens: 1, output_per_1m_tokens: 1000 }
    limits: { context_tokens_max: 10000, output_tokens_max: 100 }
    reasoning: false
";
    Gateway::limited("  sse_keepalive: 200ms\n", &upstreams, models)
}

fn request(gateway: &Gateway, model: &str) -> Vec<u8> {
    let messages = json!([{"role": "user", "content": "hi"}]);
    gateway.chat_json(json!({"model": model, "stream": true, "messages": messages}).to_string())
}

fn stream(gateway: &Gateway, model: &str) -> (Answer, String) {
    let answer = ask(gateway.address, &request(gateway, model));
    let body = String::from_utf8(answer.content()).expect("text");
    (answer, body)
}

#[test]
fn comments_come_while_the_upstream_thinks_and_the_answer_is_whole() {
    let sim = simulator(&[]);
    let quick = gateway(&sim, "delay-ms=0", "");
    let (_, expected) = stream(&quick, "m");
    let slow = gateway(&sim, "delay-ms=1100", "");
    let (answer, body) = stream(&slow, "m");
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert_eq!(answer.header("content-type").as_deref(), Some("text/event-stream"));
    assert!(answer.header("x-request-id").is_some(), "{answer:?}");
    let comments = body.matches(COMMENT).count();
    assert!((3..=6).contains(&comments), "{comments} comments in 1.1 s at 200 ms: {body}");
    let words = |body: &str| {
        let chunks = body.lines().filter_map(|line| line.strip_prefix("data: {"));
        chunks
            .map(|chunk| chunk.split("\"choices\"").nth(1).unwrap_or_default().to_owned())
            .collect()
    };
    let (expected, found): (Vec<String>, Vec<String>) = (words(&expected), words(&body));
    assert_eq!(found, expected, "the events");
    assert!(body.ends_with("data: [DONE]\n\n"), "{body}");
    assert_eq!(slow.settled()["spent"], quick.settled()["spent"]);
}

#[test]
fn comments_come_between_events_too() {
    let sim = simulator(&[]);
    for settings in ["chunks=3;interval-ms=500", "chunks=3;interval-ms=500;fault=split"] {
        let gateway = gateway(&sim, settings, "");
        let (_, body) = stream(&gateway, "m");
        assert!(body.matches(": keep-alive\n").count() >= 2, "{settings}: {body}");
        for event in body.split("\n\n").filter(|event| !event.is_empty()) {
            let data = event.trim_start_matches(": keep-alive\n").strip_prefix("data: ");
            let is_sound = event == ": keep-alive"
                || data.is_some_and(|data| {
                    data == "[DONE]" || serde_json::from_str::<serde_json::Value>(data).is_ok()
                });
            assert!(is_sound, "{settings}: {event:?} in {body}");
        }
    }
}

/// The head has gone out; the next target answers all the same.
#[test]
fn a_late_failure_goes_to_the_next_target_and_a_late_refusal_is_an_event() {
    let sim = simulator(&[]);
    let failing = gateway(&sim, "delay-ms=500;fault=status=503", "");
    let (answer, body) = stream(&failing, "m");
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert!(body.starts_with(COMMENT) && body.ends_with("data: [DONE]\n\n"), "{body}");
    assert!(!body.contains("error"), "{body}");
    for (settings, code) in [
        ("delay-ms=500;fault=status=503", "service_unavailable"),
        ("delay-ms=500;fault=status=400", "invalid_request_error"),
        ("delay-ms=500;fault=reset-after-body", "service_unavailable"),
        ("fault=hang", "RequestTimeout"),
    ] {
        let gateway = gateway(&sim, settings, "read: 700ms");
        let (answer, body) = stream(&gateway, "alone");
        assert_eq!(answer.status(), 200, "{settings}: {answer:?}");
        let event = body.trim_end().rsplit("data: ").next().expect("an event");
        let event: serde_json::Value = serde_json::from_str(event).expect("JSON");
        assert_eq!(event["error"]["code"], code, "{settings}: {body}");
        // An upstream that has not answered in time may have read the prompt.
        let is_free = gateway.settled()["spent"] == "0.00";
        assert_eq!(is_free, settings != "fault=hang", "{settings}: {}", gateway.balance());
    }
}

/// A failure before the first comment keeps its real status.
#[test]
fn an_early_refusal_has_its_status() {
    let sim = simulator(&[]);
    for (fault, status) in [("status=400", 400), ("status=500", 502), ("status=429", 429)] {
        let gateway = gateway(&sim, &format!("fault={fault}"), "");
        let (answer, _) = stream(&gateway, "alone");
        assert_eq!(answer.status(), status, "{fault}: {answer:?}");
    }
}

#[test]
fn silent_and_endless_streams_end_in_an_error_event() {
    let sim = simulator(&[]);
    for (settings, timeouts) in
        [("fault=hang-after=2", "read: 700ms"), ("chunks=200;interval-ms=50", "total: 1s")]
    {
        let gateway = gateway(&sim, settings, timeouts);
        let began = Instant::now();
        let (answer, body) = stream(&gateway, "m");
        assert_eq!(answer.status(), 200, "{answer:?}");
        assert!(began.elapsed() < Duration::from_secs(4), "{settings}: {:?}", began.elapsed());
        assert!(body.contains("\"content\"") && body.contains("\"error\""), "{settings}: {body}");
        assert_ne!(gateway.settled()["spent"], "0.00", "{settings}: what was delivered is paid");
    }
}

/// Nobody knows what it has cost, so the upstream is waited for; the customer is not kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_falls_silent_in_the_middle_is_broken_off_at_once() {
    let upstream = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let base = upstream.local_addr().expect("an address");
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for connection in upstream.incoming() {
            let mut connection = connection.expect("a connection");
            let _request = connection.read(&mut [0; 4096]).expect("a request");
            let begun = format!(r#"{{"choices":[{{"message":{{"content":"{}"#, "x".repeat(20_000));
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 90000";
            connection.write_all(format!("{head}\r\n\r\n{begun}").as_bytes()).expect("sent");
            held.push(connection);
        }
    });
    let upstreams = format!(
        "  a: {{ protocol: openai, base_url: 'http://{base}/v1', timeouts: {{ read: 400ms }} }}\n"
    );
    let models = "models:
  m:
    operations: [chat]
    targets: [{ upstream: a }]
    prices: { input_per_1m_tokens: 1, output_per_1m_tokens: 1000 }
    limits: { context_tokens_max: 10000, output_tokens_max: 100 }
";
    let gateway = Gateway::limited("", &upstreams, models);
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
    let mut connection = connect(gateway.address);
    connection.write_all(&gateway.chat_json(body)).expect("sent");
    let mut answer = Vec::new();
    // Within 5 s of silence.
    connection.read_to_end(&mut answer).expect("the connection ends");
    let text = String::from_utf8_lossy(&answer);
    assert!(text.starts_with("HTTP/1.1 200 ") && text.len() > 20_000, "{}", text.len());

    let client = http_builder().http2_prior_knowledge().build().expect("a client");
    let url = format!("http://{}/v1/chat/completions", gateway.address);
    let call = client.post(url).bearer_auth(&gateway.key).body(body);
    let answer = call.header("content-type", "application/json").send().await.expect("a head");
    let read = tokio::time::timeout(Duration::from_secs(5), answer.bytes()).await;
    assert!(read.expect("it ends").is_err(), "and not as if it were whole");

    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "chat", "arguments": {"model": "m", "prompt": "hi"}}});
    let agent =
        http_builder().build().expect("a client").post(format!("http://{}/mcp", gateway.address));
    let agent = agent.bearer_auth(&gateway.key).header("mcp-protocol-version", "2025-06-18");
    let agent = agent.header("accept", "application/json, text/event-stream").json(&call).send();
    let reply = tokio::time::timeout(Duration::from_secs(5), agent).await.expect("it ends");
    let reply = reply.expect("an answer").text().await.expect("text");
    assert!(reply.contains("The answer broke off."), "{reply}");
    assert_ne!(gateway.balance()["held"], "0.00", "the upstreams are waited for");
}

#[test]
fn a_customer_who_leaves_is_noticed_at_once() {
    let sim = simulator(&[]);
    let gateway = gateway(&sim, "delay-ms=20000", "");
    let mut connection = connect(gateway.address);
    connection.write_all(&request(&gateway, "m")).expect("sent");
    let mut first = [0; 512];
    assert!(connection.read(&mut first).is_ok_and(|bytes| bytes > 0), "the head comes early");
    drop(connection);
    crate::harness::within(
        Duration::from_secs(3),
        || gateway.balance()["held"] == "0.00",
        || format!("the hold stays open: {}", gateway.balance()),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn comments_come_over_http2_as_well() {
    let sim = simulator(&[]);
    let gateway = gateway(&sim, "delay-ms=700", "");
    let client = http_builder().http2_prior_knowledge().build().expect("a client");
    let body =
        json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "hi"}]});
    let url = format!("http://{}/v1/chat/completions", gateway.address);
    let answer = client.post(url).bearer_auth(&gateway.key).json(&body).send().await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.version(), reqwest::Version::HTTP_2);
    let text = answer.text().await.expect("a whole body");
    assert!(text.starts_with(COMMENT) && text.ends_with("data: [DONE]\n\n"), "{text}");
}
