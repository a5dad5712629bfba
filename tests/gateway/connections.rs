//! Connections to upstreams that are kept, and that upstreams close while a request goes out.

use std::time::{Duration, Instant};

use crate::harness::{Act, Answer, Gateway, Scripted, ask, chat_model, let_pass};
use serde_json::json;

const WHOLE: &str = r#"{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}"#;
const EVENTS: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}]}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":1}}\n\n\
    data: [DONE]\n\n";
const VECTORS: &str = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[1.0]},{"object":"embedding","index":1,"embedding":[2.0]}],"model":"m","usage":{"prompt_tokens":4,"total_tokens":4}}"#;

fn reply(kind: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}")
        .into()
}

/// An answer of the kind that the path asks for.
fn good(begun: &str, is_stream: bool) -> Act {
    Act::Answer(if begun.contains("/embeddings") {
        reply("application/json", VECTORS)
    } else if is_stream {
        reply("text/event-stream", EVENTS)
    } else {
        reply("application/json", WHOLE)
    })
}

fn gateway(upstream: &Scripted, more: &str) -> Gateway {
    let at = upstream.address;
    let upstreams = format!(
        "  a: {{ protocol: openai, base_url: 'http://{at}/v1'{more} }}\n\
         routes:\n  - {{ path: /v1/chat/completions, operation: chat }}\n  \
         - {{ path: /v1/embeddings, operation: embeddings }}\n"
    );
    let models = format!(
        "models:\n{}  vectors:\n    operations: [embeddings]\n    targets: [{{ upstream: a }}]\n    \
         prices: {{ input_per_1m_tokens: 1 }}\n    \
         limits: {{ context_tokens_max: 100000, batch_inputs_max: 2 }}\n",
        chat_model("m", "a")
    );
    Gateway::serving(&upstreams, &models)
}

fn chat(gateway: &Gateway, stream: bool) -> Answer {
    let messages = json!([{"role": "user", "content": "hi"}]);
    let body = json!({"model": "m", "stream": stream, "messages": messages}).to_string();
    ask(gateway.address, &gateway.chat_json(body))
}

fn embed(gateway: &Gateway, inputs: &[&str]) -> Answer {
    let body = json!({"model": "vectors", "input": inputs}).to_string();
    let lines = format!("Content-Length: {}\r\n", body.len());
    ask(gateway.address, &gateway.post("/v1/embeddings", &lines, body))
}

fn spent(gateway: &Gateway) -> String {
    gateway.settled()["spent"].as_str().expect("dollars").to_owned()
}

const RECONNECTS: &str = "tollgate_upstream_reconnects_total{upstream=\"a\"}";

/// F10 of the review: an upstream that closes idle connections after 50 ms, asked every 48 ms.
#[test]
fn requests_that_meet_the_close_of_an_idle_connection_are_all_served() {
    const CALLS: usize = 100;
    let idle = Duration::from_millis(50);
    let upstream = Scripted::start(Some(idle), |_, _, begun| good(begun, false));
    let gateway = gateway(&upstream, "");
    let begun = Instant::now();
    for call in 0..CALLS {
        let due = Duration::from_millis(48) * u32::try_from(call).expect("few");
        let_pass(due.saturating_sub(begun.elapsed()), "a call comes every 48 ms");
        let answer = chat(&gateway, false);
        assert_eq!(answer.status(), 200, "call {call}: {answer:?}");
    }
    assert_eq!(upstream.requests().len(), CALLS, "none was read twice");
    assert_eq!(spent(&gateway), "0.0015", "each is charged once");
}

/// The same without the luck of the race: every kept connection is closed with the request unread.
#[test]
fn a_request_that_nobody_has_read_is_sent_again_over_a_new_connection() {
    for stream in [false, true] {
        let upstream = Scripted::start(None, move |_, request, begun| match request {
            0 => good(begun, stream),
            _ => Act::CloseUnread,
        });
        let gateway = gateway(&upstream, "");
        for call in 0..4 {
            let answer = chat(&gateway, stream);
            assert_eq!(answer.status(), 200, "call {call}: {answer:?}");
        }
        assert_eq!((upstream.requests().len(), upstream.connections()), (4, 4));
        assert_eq!(gateway.metric(RECONNECTS), 3.0);
        assert_eq!(spent(&gateway), "0.00006", "each is charged once");
        let outcomes = "tollgate_upstream_requests_total{outcome=\"broken\",upstream=\"a\"}";
        assert_eq!(gateway.metric(outcomes), 0.0, "that is no failure of the upstream's");
    }
}

#[test]
fn a_part_of_an_answer_that_is_put_together_is_sent_again_as_well() {
    let upstream = Scripted::start(None, |_, request, begun| match request {
        0 => good(begun, false),
        _ => Act::CloseUnread,
    });
    let gateway = gateway(&upstream, "");
    for call in 0..3 {
        let answer = embed(&gateway, &["a", "b", "c", "d"]);
        assert_eq!(answer.status(), 200, "call {call}: {answer:?}");
        assert_eq!(answer.json()["data"].as_array().map(Vec::len), Some(4), "{answer:?}");
    }
    assert_eq!(upstream.requests().len(), 6, "each part is read once");
    assert!(gateway.metric(RECONNECTS) >= 2.0, "kept connections were closed");
}

/// A request that the upstream has read or its machine has acknowledged is not sent again.
#[test]
fn a_request_that_may_have_been_read_is_not_sent_again() {
    for acknowledged in [false, true] {
        let upstream =
            Scripted::start(None, move |connection, request, begun| match (connection, request) {
                (0, 0) => good(begun, false),
                (0, _) if acknowledged => Act::ResetAcknowledged,
                (0, _) => Act::CloseRead,
                _ => good(begun, false),
            });
        let gateway = gateway(&upstream, "");
        assert_eq!(chat(&gateway, false).status(), 200);
        let answer = chat(&gateway, false);
        assert_eq!(answer.status(), 502, "{acknowledged}: {answer:?}");
        assert_eq!((upstream.requests().len(), upstream.connections()), (2, 1), "{acknowledged}");
        assert_eq!(gateway.metric(RECONNECTS), 0.0);
    }
}

#[test]
fn a_request_is_sent_again_once() {
    let upstream =
        Scripted::start(None, |connection, request, begun| match (connection, request) {
            (0, 0) => good(begun, false),
            _ => Act::CloseUnread,
        });
    let gateway = gateway(&upstream, "");
    assert_eq!(chat(&gateway, false).status(), 200);
    let answer = chat(&gateway, false);
    assert_eq!(answer.status(), 502, "{answer:?}");
    assert_eq!(upstream.connections(), 2, "the kept one and a new one");
    assert_eq!(spent(&gateway), "0.000015");
}

#[test]
fn connections_are_kept_for_as_long_as_is_configured() {
    for (more, expected) in [
        (", timeouts: { idle: 100ms }", 3),
        (", timeouts: { idle: none }", 3),
        (", timeouts: { idle: 30s }", 1),
        ("", 1),
    ] {
        let upstream = Scripted::start(None, |_, _, begun| good(begun, false));
        let gateway = gateway(&upstream, more);
        for _ in 0..3 {
            assert_eq!(chat(&gateway, false).status(), 200);
            let_pass(Duration::from_millis(250), "the connection is idle");
        }
        assert_eq!(upstream.connections(), expected, "{more}");
    }
}
