//! Requests that the gateway makes on behalf of a connection: turns over a WebSocket and calls of MCP
//! tools count for the account whose they are, also when it has hung up.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tungstenite::client::IntoClientRequest as _;
use tungstenite::{Message, WebSocket};

use crate::harness::{Gateway, ask, connect, eventually, simulator};

const CALLS: &str = "tollgate_upstream_calls";
const SHED_ACCOUNT: &str = r#"tollgate_requests_shed_total{reason="account_upstream_calls"}"#;
const SHED_ALL: &str = r#"tollgate_requests_shed_total{reason="upstream_calls"}"#;
/// An upstream's time for an answer: longer than any of these tests.
const SLOW: &str = "delay-ms=60000";

/// A gateway with a fast model and slow ones of each dialect, and a second account of its own: the hostile
/// one.
struct Arena {
    gateway: Gateway,
    hostile: String,
    sims: [tollgate::sim::Sim; 2],
}

impl Arena {
    fn new(limits: &str) -> Self {
        let sims = [simulator(&[]), simulator(&[SLOW])];
        let upstreams = format!(
            "  fast: {{ protocol: openai, base_url: 'http://{}/v1' }}
  slow: {{ protocol: openai, base_url: 'http://{}/v1' }}\n",
            sims[0].addr(),
            sims[1].addr(),
        );
        let model = |name: &str, upstream: &str, operation: &str| {
            format!(
                "  {name}:
    operations: [{operation}]
    targets: [{{ upstream: {upstream} }}]
    prices: {{ input_per_1m_tokens: 3, output_per_1m_tokens: 15 }}
    limits: {{ context_tokens_max: 100000, output_tokens_max: 1000 }}
    on_disconnect: {{ time: 1h, bytes: 10MiB }}\n"
            )
        };
        let models = [
            model("fast", "fast", "chat"),
            model("slow", "slow", "responses"),
            model("slow-chat", "slow", "chat"),
        ];
        let models = format!("models:\n{}", models.concat());
        let gateway = Gateway::limited(limits, &upstreams, &models);
        let hostile = gateway.customer("hostile", Some("1000.00"));
        Self { gateway, hostile, sims }
    }

    /// An honest customer's call, which must be served at once.
    fn assert_serves(&self) {
        let body = r#"{"model":"fast","messages":[{"role":"user","content":"hi"}]}"#;
        let answer = ask(self.gateway.address, &self.gateway.chat_json(body));
        assert_eq!(answer.status(), 200, "an honest customer is served: {answer:?}");
        assert!(answer.took < Duration::from_secs(2), "within {:?}", answer.took);
    }

    /// Waits until so many slow calls are at work upstream: one that its customer leaves before is not made.
    fn wait_for_calls(&self, count: u32) {
        let arrived = || self.sims[1].requests_total() == u64::from(count);
        eventually("the upstream works at it", arrived);
        eventually("they are counted", || (self.calls() - f64::from(count)).abs() < 0.5);
    }

    fn calls(&self) -> f64 {
        self.gateway.metric(CALLS)
    }

    /// A WebSocket of the hostile account.
    fn socket(&self) -> WebSocket<TcpStream> {
        let url = format!("ws://{}/v1/responses", self.gateway.address);
        let mut request = url.into_client_request().expect("a request");
        let bearer = format!("Bearer {}", self.hostile);
        request.headers_mut().insert("authorization", bearer.parse().expect("a value"));
        let stream = connect(self.gateway.address);
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        tungstenite::client(request, stream).expect("a WebSocket").0
    }

    /// The call of a tool that takes long, as HTTP/1.1.
    fn tool_call(&self) -> Vec<u8> {
        let arguments = json!({"model": "slow-chat", "prompt": "hi"});
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
            "params": {"name": "chat", "arguments": arguments}});
        let body = body.to_string();
        format!(
            "POST /mcp HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             MCP-Protocol-Version: 2025-06-18\r\nContent-Length: {}\r\n\r\n{body}",
            self.hostile,
            body.len()
        )
        .into_bytes()
    }
}

fn begin_turn(socket: &mut WebSocket<TcpStream>) {
    let message = json!({"type": "response.create", "model": "slow", "input": "hi"});
    socket.send(Message::text(message.to_string())).expect("a message leaves");
}

/// The status in the error that answers a turn.
fn refused_with(socket: &mut WebSocket<TcpStream>) -> Value {
    loop {
        let Message::Text(text) = socket.read().expect("an event") else { continue };
        let event: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(event["type"], "error", "{event}");
        return event["status"].clone();
    }
}

#[test]
fn abandoned_turns_keep_their_part_of_the_calls_to_upstreams() {
    let arena =
        Arena::new("  upstream_calls_max: 16\n  per_account: { requests_in_flight_percent: 25 }\n");
    for turn in 1..=12 {
        let mut socket = arena.socket();
        begin_turn(&mut socket);
        if turn <= 4 {
            arena.wait_for_calls(turn);
        } else {
            assert_eq!(refused_with(&mut socket), 429, "turn {turn}");
        }
        drop(socket);
        arena.assert_serves();
    }
    assert!((arena.calls() - 4.0).abs() < 0.5, "a quarter of 16: {}", arena.calls());
    assert!((arena.gateway.metric(SHED_ACCOUNT) - 8.0).abs() < 0.5);
    assert!(arena.gateway.metric(SHED_ALL) < 0.5);
}

#[test]
fn abandoned_tool_calls_keep_their_part_of_the_calls_to_upstreams() {
    let arena =
        Arena::new("  upstream_calls_max: 16\n  per_account: { requests_in_flight_percent: 25 }\n");
    for call in 1..=4 {
        let mut stream = connect(arena.gateway.address);
        stream.write_all(&arena.tool_call()).expect("sent");
        arena.wait_for_calls(call);
    }
    for _ in 0..8 {
        let answer = ask(arena.gateway.address, &arena.tool_call());
        let body = String::from_utf8_lossy(&answer.body()).into_owned();
        assert!(body.contains("ConcurrencyExceeded"), "{body}");
        arena.assert_serves();
    }
    assert!((arena.calls() - 4.0).abs() < 0.5, "a quarter of 16: {}", arena.calls());
}

/// The share of connections, as for requests that come over them.
#[test]
fn turns_under_way_hold_their_accounts_share_of_the_connections() {
    let arena =
        Arena::new("  connections_max: 20\n  per_account: { requests_in_flight_percent: 25 }\n");
    let mut sockets: Vec<_> = (0..8).map(|_| arena.socket()).collect();
    for (number, socket) in (1..).zip(&mut sockets) {
        begin_turn(socket);
        if number <= 5 {
            arena.wait_for_calls(number);
        } else {
            assert_eq!(refused_with(socket), 429, "turn {number}");
        }
    }
    arena.assert_serves();
    // Turns that were abandoned hold it too, until the upstream has ended them.
    drop(sockets);
    let answer = ask(arena.gateway.address, &arena.tool_call());
    assert_eq!(answer.status(), 429, "{answer:?}");
    arena.assert_serves();
}

/// All slots are taken by several accounts, in the shares of each: others read 503 and when to come again,
/// and are served as soon as a call ends.
#[test]
fn when_all_calls_are_in_use_others_get_retry_after() {
    let arena =
        Arena::new("  upstream_calls_max: 4\n  per_account: { requests_in_flight_percent: 100 }\n");
    let mut sockets: Vec<_> = (0..4).map(|_| arena.socket()).collect();
    sockets.iter_mut().for_each(begin_turn);
    arena.wait_for_calls(4);
    let body = r#"{"model":"fast","messages":[{"role":"user","content":"hi"}]}"#;
    let began = Instant::now();
    let answer = ask(arena.gateway.address, &arena.gateway.chat_json(body));
    assert_eq!(answer.status(), 503, "{answer:?}");
    assert_eq!(answer.header("retry-after").as_deref(), Some("1"), "{answer:?}");
    assert!(began.elapsed() < Duration::from_secs(1), "at once");
    assert!(arena.gateway.metric(SHED_ALL) > 0.5);
    // Nothing was held or charged for it.
    assert_eq!(arena.gateway.balance()["held"], "0.00");
}
