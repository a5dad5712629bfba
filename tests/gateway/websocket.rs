//! The Responses API over WebSockets: turns on one connection, what they cost, and what a connection may
//! not do.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tollgate::sim::Sim;
use tungstenite::client::IntoClientRequest as _;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Message, WebSocket};

use crate::harness::{Answer, Gateway, ask, connect, eventually, simulator};

/// A gateway with a model for responses, and two whose upstreams speak other dialects. They cost $3 for a
/// million tokens of input and $15 for a million of output.
fn gateway(sim: &Sim, limits: &str) -> Gateway {
    let at = sim.addr();
    let upstreams = format!(
        "  o: {{ protocol: openai, base_url: 'http://{at}/v1' }}
  a: {{ protocol: anthropic, base_url: 'http://{at}' }}\n"
    );
    let model = |name: &str, operation: &str, upstream: &str, more: &str| {
        format!(
            "  {name}:
    operations: [{operation}]
    targets: [{{ upstream: {upstream} }}]
    prices: {{ input_per_1m_tokens: 3, output_per_1m_tokens: 15 }}
    limits: {{ context_tokens_max: 100000, output_tokens_max: 1000 }}
{more}"
        )
    };
    let models = [
        model("m", "responses", "o", "    reasoning: false\n"),
        model("thinker", "responses", "o", ""),
        model("claude", "messages", "a", ""),
        model("chatty", "chat", "o", ""),
    ];
    Gateway::limited(limits, &upstreams, &format!("models:\n{}", models.concat()))
}

/// The types of events that end a turn.
const ENDS: [&str; 4] = ["response.completed", "response.incomplete", "response.failed", "error"];

/// A WebSocket of a customer.
pub(crate) struct Socket(pub(crate) WebSocket<TcpStream>);

impl Socket {
    /// One that is open, with this key and further headers.
    pub(crate) fn open(gateway: &Gateway, key: &str, headers: &[(&'static str, &str)]) -> Self {
        let url = format!("ws://{}/v1/responses", gateway.address);
        let mut request = url.into_client_request().expect("a request");
        let bearer = format!("Bearer {key}");
        for (name, value) in headers.iter().chain(&[("authorization", bearer.as_str())]) {
            request.headers_mut().insert(*name, value.parse().expect("a value"));
        }
        let stream = connect(gateway.address);
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        let (socket, answer) = tungstenite::client(request, stream).expect("a WebSocket");
        assert!(answer.headers().get("sec-websocket-extensions").is_none(), "{answer:?}");
        Self(socket)
    }

    fn send(&mut self, message: &Value) {
        self.0.send(Message::text(message.to_string())).expect("a message leaves");
    }

    /// The next event; an error where the connection has ended.
    fn next(&mut self) -> Result<Value, Option<CloseCode>> {
        loop {
            match self.0.read() {
                Ok(Message::Text(text)) => return Ok(serde_json::from_str(&text).expect("JSON")),
                Ok(Message::Close(frame)) => return Err(frame.map(|frame| frame.code)),
                Ok(_) => {}
                Err(error) => panic!("no event and no close: {error}"),
            }
        }
    }

    /// The events up to the one that ends a turn.
    fn events(&mut self) -> Vec<Value> {
        let mut events = Vec::new();
        loop {
            let event = self.next().unwrap_or_else(|code| panic!("{code:?} after {events:?}"));
            let kind = event["type"].as_str().unwrap_or_default().to_owned();
            events.push(event);
            if ENDS.contains(&kind.as_str()) {
                return events;
            }
        }
    }

    /// The event that ends a turn; an error where the connection has ended.
    pub(crate) fn last_event(&mut self) -> Result<Value, Option<CloseCode>> {
        loop {
            let event = self.next()?;
            let kind = event["type"].as_str().unwrap_or_default();
            if ENDS.contains(&kind) {
                return Ok(event);
            }
        }
    }

    /// The code with which the gateway has closed the connection; `None` where nothing comes in time.
    pub(crate) fn close_code(&mut self) -> Option<CloseCode> {
        loop {
            match self.0.read() {
                Ok(Message::Close(frame)) => return frame.map(|frame| frame.code),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
    }

    /// Waits no longer than this for what comes.
    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.0.get_ref().set_read_timeout(Some(timeout)).expect("a timeout");
    }

    /// The last event of a turn.
    fn turn(&mut self, message: &Value) -> Value {
        self.send(message);
        self.events().pop().expect("an event")
    }

    /// With which code the gateway closes.
    fn closed(mut self) -> Option<CloseCode> {
        loop {
            if let Err(code) = self.next() {
                return code;
            }
        }
    }
}

fn create(model: &str, more: &Value) -> Value {
    let mut message = json!({"type": "response.create", "model": model, "store": false});
    more.as_object()
        .expect("fields")
        .iter()
        .for_each(|(name, value)| message[name] = value.clone());
    message
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// The last request to an upstream.
fn last_request(sim: &Sim) -> Value {
    let last = sim.requests().pop().expect("a request");
    serde_json::from_slice(last.body.as_deref().expect("a body")).expect("JSON")
}

#[test]
fn each_turn_is_a_request_like_any_other() {
    let sim = simulator(&["usage=prompt=1000,completion=20"]);
    let gateway = gateway(&sim, "");
    let mut socket = Socket::open(&gateway, &gateway.key, &[("session-id", "s-1")]);
    let tools = json!([{"type": "function", "name": "weather", "parameters": {}}]);
    let fields = json!({"input": [user("How is it?")], "tools": tools});
    socket.send(&create("m", &fields));
    let events = socket.events();
    let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(
        kinds[..3],
        ["response.created", "response.in_progress", "response.output_item.added"]
    );
    let done = &events[events.len() - 1]["response"];
    assert_eq!(done["usage"]["input_tokens"], 1000, "{done}");
    let over_http = sim.requests().pop().expect("a request");
    assert_eq!((over_http.method.as_str(), over_http.header("session-id")), ("POST", Some("s-1")));
    assert!(
        over_http.header("upgrade").is_none() && over_http.header("sec-websocket-key").is_none()
    );
    let expected = json!({"stream": true, "model": "m", "store": false, "input": [user("How is it?")],
        "tools": tools});
    assert_eq!(last_request(&sim), expected);
    assert_eq!(gateway.settled()["spent"], "0.0033");

    // The next turn brings what is new alone, and the upstream reads all of it.
    let called = done["output"][0].clone();
    let result =
        json!({"type": "function_call_output", "call_id": called["call_id"], "output": "x"});
    let fields = json!({"input": [result], "tools": tools, "previous_response_id": done["id"]});
    let answered = socket.turn(&create("m", &fields));
    assert_eq!(answered["response"]["output"][0]["type"], "message", "{answered}");
    let query = last_request(&sim);
    assert_eq!(query["input"], json!([user("How is it?"), called, result]));
    assert_eq!(query["previous_response_id"], Value::Null);
    let spent = gateway.settled()["spent"].clone();
    assert_eq!(spent, "0.0066", "two turns");

    // A response that the connection does not have in mind is looked for where upstreams keep them.
    let fields = json!({"input": [], "previous_response_id": done["id"]});
    let unknown = socket.turn(&create("m", &fields));
    assert_eq!((&unknown["type"], &unknown["status"]), (&json!("error"), &json!(400)), "{unknown}");
    assert_eq!(unknown["error"]["code"], "previous_response_not_found", "{unknown}");
    // What headers say over HTTP is told as well.
    socket.send(&create("claude", &json!({"input": "hi", "top_logprobs": 1})));
    let reply = socket.next().expect("a message");
    assert_eq!(reply["headers"]["x-tollgate-left-out"], "top_logprobs", "{reply}");
    assert_eq!(socket.events()[0]["type"], "response.created");
    let spent = gateway.settled()["spent"].clone();
    let bad = socket.turn(&create("m", &json!({"input": "hi", "background": true})));
    assert_eq!((&bad["status"], &bad["error"]["param"]), (&json!(400), &json!("background")));
    assert!(bad["headers"]["x-request-id"].as_str().is_some(), "{bad}");
    let steered = socket.turn(&json!({"type": "response.steer"}));
    assert_eq!(steered["error"]["param"], "type", "{steered}");
    assert_eq!(gateway.settled()["spent"], spent);
    let log = gateway.admin("GET", "/admin/v1/requests?limit=20", &Value::Null).to_string();
    assert!(
        log.matches("\"operation\":\"responses\"").count() >= 4,
        "each has its own line: {log}"
    );
}

#[test]
fn a_warm_up_costs_nothing_and_the_next_turn_goes_on_from_it() {
    let sim = simulator(&[]);
    let gateway = gateway(&sim, "");
    let mut socket = Socket::open(&gateway, &gateway.key, &[]);
    let fields = json!({"input": [user("a")], "generate": false, "instructions": "Be brief."});
    let warm = socket.turn(&create("m", &fields));
    assert_eq!(warm["response"]["usage"]["total_tokens"], 0, "{warm}");
    assert_eq!((sim.requests_total(), &gateway.settled()["spent"]), (0, &json!("0.00")));
    let id = &warm["response"]["id"];
    let fields = json!({"input": [user("b")], "previous_response_id": id});
    let done = socket.turn(&create("m", &fields));
    assert_eq!(done["type"], "response.completed", "{done}");
    assert_eq!(last_request(&sim)["input"], json!([user("a"), user("b")]));
    // It is this connection's: another one does not know it.
    let mut other = Socket::open(&gateway, &gateway.key, &[]);
    let unknown = other.turn(&create("m", &fields));
    assert_eq!(unknown["error"]["code"], "previous_response_not_found", "{unknown}");
}

#[test]
fn agents_finish_their_tool_loops_over_translated_models() {
    let sim = simulator(&[]);
    let gateway = gateway(&sim, "");
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let tools = json!([{"type": "function", "name": "weather", "parameters": schema}]);
    for model in ["m", "thinker", "claude", "chatty"] {
        let mut socket = Socket::open(&gateway, &gateway.key, &[]);
        let mut fields = json!({"input": [user("hi")], "tools": tools});
        for turn in 0..3 {
            let called = socket.turn(&create(model, &fields))["response"].clone();
            let item = &called["output"][0];
            assert_eq!(item["type"], "function_call", "{model} {turn}: {called}");
            let result =
                json!({"type": "function_call_output", "call_id": item["call_id"], "output": "x"});
            fields["input"] = json!([result]);
            fields["previous_response_id"] = called["id"].clone();
            let text_found = socket.turn(&create(model, &fields))["response"].clone();
            assert_eq!(text_found["output"][0]["type"], "message", "{model} {turn}: {text_found}");
            fields["input"] = json!([user("and now?")]);
            fields["previous_response_id"] = text_found["id"].clone();
        }
    }
    let sealed = sim.requests().into_iter().filter(|request| {
        let body =
            String::from_utf8_lossy(request.body.as_deref().unwrap_or_default()).into_owned();
        body.contains("reasoning.encrypted_content")
    });
    assert_eq!(sealed.count(), 6, "reasoning is asked for where it would be lost");
}

#[test]
fn an_empty_balance_is_reported_on_the_connection() {
    let sim = simulator(&[
        "chunks=400",
        "words=5",
        "interval-ms=2",
        "max-tokens=ignore",
        "fault=usage-missing",
    ]);
    let gateway = gateway(&sim, "");
    let account = gateway.admin("POST", "/admin/v1/accounts", &json!({"name": "poor"}));
    let account = format!("/admin/v1/accounts/{}", account["id"].as_str().expect("an id"));
    let key = gateway.admin("POST", &format!("{account}/keys"), &json!({"name": "poor"}));
    let mut socket = Socket::open(&gateway, key["key"].as_str().expect("a key"), &[]);
    let fields = json!({"input": "hi", "max_output_tokens": 100});
    let refused = socket.turn(&create("m", &fields));
    assert_eq!((&refused["type"], &refused["status"]), (&json!("error"), &json!(402)), "{refused}");
    assert_eq!(refused["error"]["code"], "insufficient_balance", "{refused}");
    // Some money comes: the connection goes on, and a stream that reaches its end is cut with an event.
    let grant = json!({"amount": "0.0025", "id": "first"});
    gateway.admin("POST", &format!("{account}/grants"), &grant);
    let cut = socket.turn(&create("m", &fields));
    assert_eq!(cut["type"], "response.failed", "{cut}");
    assert_eq!(cut["response"]["error"]["code"], "insufficient_quota", "{cut}");
    let balance = || gateway.admin("GET", &account, &Value::Null)["balance"].clone();
    eventually("the hold ends", || balance()["held"] == "0.00");
    let left = balance()["available"].as_str().and_then(|left| left.parse::<f64>().ok());
    assert!(left.is_some_and(|left| left < 0.0001), "it is used up: {left:?}");
    assert_eq!(balance()["debt"], "0.00");
    let refused = socket.turn(&create("m", &fields));
    assert_eq!(refused["status"], 402, "{refused}");
    // A key that is withdrawn opens nothing any more, here either.
    let id = key["id"].as_str().expect("an id");
    let revoked = json!({"disabled": true, "expires_at": "2026-01-31T12:00:00Z"});
    gateway.admin("PATCH", &format!("/admin/v1/keys/{id}"), &revoked);
    let refused = socket.turn(&create("m", &fields));
    assert_eq!(refused["status"], 401, "{refused}");
}

#[test]
fn a_disconnect_during_a_turn_is_charged_as_a_stream() {
    let sim = simulator(&["chunks=50", "words=2", "interval-ms=40"]);
    let spent = [false, true].map(|over_websocket| {
        let gateway = gateway(&sim, "");
        let message = create("m", &json!({"input": "hi", "stream": true}));
        if over_websocket {
            let mut socket = Socket::open(&gateway, &gateway.key, &[]);
            socket.send(&message);
            for _ in 0..8 {
                socket.next().expect("an event");
            }
            drop(socket);
        } else {
            let mut body = message;
            body.as_object_mut().expect("fields").remove("type");
            let body = body.to_string();
            let mut stream = connect(gateway.address);
            let lines = format!("Content-Length: {}\r\n", body.len());
            stream.write_all(&gateway.post("/v1/responses", &lines, body)).expect("it leaves");
            let (mut read, mut bytes) = (Vec::new(), [0; 1024]);
            while String::from_utf8_lossy(&read).matches("event: ").count() < 8 {
                let count = stream.read(&mut bytes).expect("events");
                read.extend_from_slice(&bytes[..count]);
            }
        }
        let spent = gateway.settled()["spent"].as_str().expect("an amount").to_owned();
        spent.parse::<f64>().expect("a number")
    });
    // Two tokens come each 40 ms, for $15 a million; a customer who has left is noticed within a few.
    assert!(spent[0] > 0.0 && (spent[0] - spent[1]).abs() < 0.0003, "{spent:?}");
    assert!(spent[1] < 0.0015, "not all of it: {spent:?}");
}

#[test]
fn messages_wait_while_a_turn_is_answered_and_not_too_many() {
    let sim = simulator(&["interval-ms=20"]);
    let gateway = gateway(&sim, "");
    let mut socket = Socket::open(&gateway, &gateway.key, &[]);
    for text in ["a", "b", "c"] {
        socket.send(&create("m", &json!({"input": text})));
        socket.send(&json!({"type": "response.processed", "response_id": "resp_1"}));
    }
    socket.0.send(Message::Ping("alive?".into())).expect("a ping leaves");
    for text in ["a", "b", "c"] {
        let done = socket.events().pop().expect("an event");
        assert_eq!(done["type"], "response.completed", "{text}: {done}");
    }
    let query: Vec<String> = sim
        .requests()
        .iter()
        .map(|request| {
            String::from_utf8_lossy(request.body.as_deref().unwrap_or_default()).into_owned()
        })
        .collect();
    for (query, text) in query.iter().zip(["a", "b", "c"]) {
        assert!(query.contains(&format!("\"input\":\"{text}\"")), "one after the other: {query}");
    }
    for _ in 0..40 {
        socket.send(&create("m", &json!({"input": "too many"})));
    }
    assert_eq!(socket.closed(), Some(CloseCode::Policy));
    gateway.settled();
}

/// The answer to a request for a WebSocket with these header lines.
fn upgrade(gateway: &Gateway, path: &str, key: &str, lines: &str) -> Answer {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {key}\r\n\
         Connection: Upgrade\r\nUpgrade: websocket\r\n{lines}\r\n"
    );
    ask(gateway.address, request.as_bytes())
}

const GOOD: &str = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

#[test]
fn only_a_sound_request_with_a_key_becomes_a_websocket() {
    let sim = simulator(&[]);
    let gateway = gateway(&sim, "");
    let key = gateway.key.as_str();
    for (path, key, lines, status) in [
        ("/v1/responses", "sk-wrong", GOOD.to_owned(), 401),
        ("/v1/chat/completions", key, GOOD.to_owned(), 426),
        ("/v1/responses/compact", key, GOOD.to_owned(), 426),
        ("/v1/responses", key, GOOD.replace("13", "8"), 400),
        ("/v1/responses", key, GOOD.replace("dGhl", ""), 400),
        ("/v1/responses", key, format!("{GOOD}Content-Length: 5\r\n"), 400),
        ("/v1/responses", key, format!("{GOOD}Transfer-Encoding: chunked\r\n"), 400),
    ] {
        let answer = upgrade(&gateway, path, key, &lines);
        assert_eq!(answer.status(), status, "{path} {lines}: {answer:?}");
    }
    // A proxy that does not pass it on leaves the key in: the customer is sent to HTTP at once.
    let lines = format!("Connection: close\r\n{GOOD}");
    let request = format!(
        "GET /v1/responses HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {key}\r\n{lines}\r\n"
    );
    assert_eq!(ask(gateway.address, request.as_bytes()).status(), 426);
    assert_eq!(sim.requests_total(), 0);
}

/// A frame as a customer sends it, but for what `first` and the mask's bit say.
pub(crate) fn frame(first: u8, masked: bool, payload: &[u8]) -> Vec<u8> {
    let mask = [7, 1, 9, 4];
    let bit = if masked { 0x80 } else { 0 };
    let mut bytes = vec![first];
    match payload.len() {
        short @ 0..=125 => bytes.push(bit | u8::try_from(short).expect("short")),
        long @ 126..=65535 => {
            bytes.push(bit | 126);
            bytes.extend(u16::try_from(long).expect("fits").to_be_bytes());
        }
        long => {
            bytes.push(bit | 127);
            bytes.extend((long as u64).to_be_bytes());
        }
    }
    if !masked {
        bytes.extend(payload);
        return bytes;
    }
    bytes.extend(mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    bytes
}

/// Close code of a connection that received `bytes`; 0 without one.
fn close_code(gateway: &Gateway, bytes: &[u8]) -> u16 {
    let mut stream = connect(gateway.address);
    let head = format!(
        "GET /v1/responses HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {}\r\n\
         Connection: Upgrade\r\nUpgrade: websocket\r\n{GOOD}\r\n",
        gateway.key
    );
    stream.write_all(head.as_bytes()).expect("the head leaves");
    // It may close before all is sent.
    let _sent = stream.write_all(bytes);
    let mut all = Vec::new();
    let _read = stream.read_to_end(&mut all);
    let end = all.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
    let mut rest = &all[end..];
    while let [first, length, after @ ..] = rest {
        let length = usize::from(*length);
        if *first == 0x88 && length >= 2 {
            return u16::from_be_bytes([after[0], after[1]]);
        }
        rest = after.get(length..).unwrap_or_default();
    }
    0
}

#[test]
fn what_is_against_the_protocol_ends_its_connection_and_nothing_else() {
    let sim = simulator(&[]);
    let gateway = gateway(&sim, "");
    let text = create("m", &json!({"input": "hi"})).to_string();
    let large = vec![b' '; (1 << 20) + 1];
    let half = &large[..600_000];
    for (what, bytes, code) in [
        ("not masked", frame(0x81, false, text.as_bytes()), 1002),
        ("compressed", frame(0xc1, true, text.as_bytes()), 1002),
        ("a long ping", frame(0x89, true, &[0; 126]), 1002),
        ("a ping in parts", frame(0x09, true, b"x"), 1002),
        ("no beginning", frame(0x80, true, b"x"), 1002),
        ("binary", frame(0x82, true, text.as_bytes()), 1003),
        ("no text", frame(0x81, true, &[0xff]), 1007),
        ("too large", frame(0x81, true, &large), 1009),
        ("too large in parts", [frame(0x01, true, half), frame(0x80, true, half)].concat(), 1009),
        ("8 EiB to come", [&[0x81, 0xff, 0x7f][..], &[0xff; 7], &[0; 4]].concat(), 1009),
        ("never whole", frame(0x01, true, b"{"), 1008),
        ("closed", frame(0x88, true, &1000_u16.to_be_bytes()), 1000),
    ] {
        let begun = Instant::now();
        assert_eq!(close_code(&gateway, &bytes), code, "{what}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{what} took {:?}", begun.elapsed());
    }
    assert_eq!(sim.requests_total(), 0, "no upstream hears of it");
    eventually("the memory is free again", || gateway.metric("tollgate_request_body_bytes") == 0.0);
    let mut socket = Socket::open(&gateway, &gateway.key, &[]);
    let done = socket.turn(&create("m", &json!({"input": "hi"})));
    assert_eq!(done["type"], "response.completed", "others are served: {done}");
    eventually("what it has in mind is counted", || {
        gateway.metric("tollgate_request_body_bytes") > 0.0
    });
    let counts = ["tollgate_websockets", "tollgate_requests_in_flight"];
    eventually("an idle connection is no request", || {
        counts.map(|name| gateway.metric(name)) == [1.0, 0.0]
    });
    drop(socket);
    eventually("and given back", || gateway.metric("tollgate_request_body_bytes") == 0.0);
}

#[test]
fn an_account_has_so_many_websockets_and_they_take_nothing_from_its_requests() {
    let sim = simulator(&[]);
    let limits = "  requests_in_flight_max: 6\n  per_account: { requests_in_flight_percent: 50 }\n";
    let gateway = gateway(&sim, limits);
    let mut sockets: Vec<_> = (0..3).map(|_| Socket::open(&gateway, &gateway.key, &[])).collect();
    let refused = upgrade(&gateway, "/v1/responses", &gateway.key, GOOD);
    assert_eq!(
        (refused.status(), &refused.json()["error"]["code"]),
        (429, &json!("ConcurrencyExceeded"))
    );
    let body = json!({"model": "m", "input": "hi"}).to_string();
    let lines = format!("Content-Length: {}\r\n", body.len());
    let answer = ask(gateway.address, &gateway.post("/v1/responses", &lines, body));
    assert_eq!(answer.status(), 200, "{answer:?}");
    for socket in &mut sockets {
        let done = socket.turn(&create("m", &json!({"input": "hi"})));
        assert_eq!(done["type"], "response.completed", "{done}");
    }
    drop(sockets);
    eventually("there is room again", || {
        upgrade(&gateway, "/v1/responses", &gateway.key, GOOD).status() != 429
    });
}

/// On shutdown a turn is answered to its end, and connections without one are closed at once.
#[test]
fn a_gateway_that_stops_closes_what_is_idle_and_finishes_what_is_not() {
    let sim = simulator(&["interval-ms=100"]);
    let mut gateway = gateway(&sim, "");
    let idle = Socket::open(&gateway, &gateway.key, &[]);
    let mut busy = Socket::open(&gateway, &gateway.key, &[]);
    busy.send(&create("m", &json!({"input": "hi"})));
    busy.next().expect("an event");
    gateway.signal("TERM");
    let begun = Instant::now();
    assert_eq!(idle.closed(), Some(CloseCode::Away));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    let done = busy.events().pop().expect("an event");
    assert_eq!(done["type"], "response.completed", "{done}");
    assert_eq!(busy.closed(), Some(CloseCode::Away));
    assert!(gateway.wait().success());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}
