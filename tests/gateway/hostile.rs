//! Requests of hostile customers: each is refused in the gateway's words, nothing reaches an upstream,
//! nothing is charged, and honest requests are served as before.

mod amplification;
mod attacks;
mod form_rows;
mod http1_rows;
mod http2;
mod idle_sockets;
mod json_rows;
mod model_shares;
mod origins;
mod places;
mod texts;
mod turns;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use crate::harness::tls::{TestCertificate, connect_tls};
use crate::harness::{Admin, Answer, Demo, Gateway, Recorder, ask, ask_over, connect};
use http2::End;

const GOOD: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;

/// A request and how it must be refused.
struct Row {
    name: &'static str,
    request: Vec<u8>,
    status: u16,
    code: &'static str,
    closes: bool,
}

impl Row {
    /// Broken framing: 400, and nothing more is read from the connection.
    fn framing(name: &'static str, request: impl Into<Vec<u8>>) -> Self {
        Self::closing(name, request, 400, "invalid_request_error")
    }

    fn closing(
        name: &'static str,
        request: impl Into<Vec<u8>>,
        status: u16,
        code: &'static str,
    ) -> Self {
        Self { closes: true, ..Self::any(name, request, status, code) }
    }

    /// The connection may stay open.
    fn any(
        name: &'static str,
        request: impl Into<Vec<u8>>,
        status: u16,
        code: &'static str,
    ) -> Self {
        Self { name, request: request.into(), status, code, closes: false }
    }

    fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// A fault of the answer, if there is one.
    fn fault(&self, answer: &Answer) -> Option<String> {
        let error = &answer.json()["error"];
        let keys: Vec<_> = error.as_object().map(|o| o.keys().collect()).unwrap_or_default();
        let retry = answer.header("x-should-retry");
        let has_request_id = answer.header("x-request-id").is_some_and(|id| !id.is_empty());
        let has_no_retry = matches!(self.status, 401 | 402 | 403 | 404 | 409);
        let fault = if answer.status() != self.status {
            format!("status {}, expected {}", answer.status(), self.status)
        } else if error["code"] != self.code {
            format!("code {}, expected {}", error["code"], self.code)
        } else if keys.len() != 4
            || ["message", "type", "param", "code"].iter().any(|key| error.get(key).is_none())
        {
            format!("error keys {keys:?}, expected message, type, param, code")
        } else if error["message"].as_str().is_none_or(|message| message.len() <= 10) {
            format!("message {}, expected a sentence", error["message"])
        } else if !has_request_id {
            "no x-request-id".to_owned()
        } else if has_no_retry && retry.as_deref() != Some("false") {
            format!("x-should-retry {retry:?}, expected false")
        } else if answer.responses() != 1 {
            format!("{} responses, expected one", answer.responses())
        } else if self.closes && !answer.is_closed {
            "the connection stayed open".to_owned()
        } else if self.closes && answer.header("connection").as_deref() != Some("close") {
            format!("connection {:?}, expected close", answer.header("connection"))
        } else if answer.took > Duration::from_secs(2) {
            format!("took {:?}, expected an answer at once", answer.took)
        } else {
            return None;
        };
        Some(format!(
            "{}: {fault}; read {:.300}",
            self.name,
            answer.bytes.escape_ascii().to_string()
        ))
    }
}

/// A gateway with a plain listener and one with TLS.
fn start_both(certificate: &TestCertificate, recorder: &Recorder) -> Gateway {
    let listeners = format!("  - {{ address: '127.0.0.1:0', tls: {} }}\n", certificate.yaml());
    Gateway::listening(&listeners, "", recorder.address)
}

/// Sends a request over TLS.
fn ask_tls(gateway: &Gateway, certificate: &TestCertificate, request: &[u8]) -> Answer {
    let opened = connect_tls(gateway.listeners[1], certificate.der(), &["http/1.1"]);
    let mut stream = opened.expect("a handshake");
    let socket = stream.sock.try_clone().expect("a second handle");
    ask_over(&mut stream, &socket, request)
}

/// An honest request, which must be served and paid for.
fn assert_serves(gateway: &Gateway, recorder: &Recorder) {
    let before = recorder.requests().len();
    let answer = ask(gateway.address, &gateway.chat_json(GOOD));
    assert_eq!(answer.status(), 200, "an honest request is served: {answer:?}");
    assert_eq!(recorder.requests().len(), before + 1, "it reached the upstream");
}

#[test]
fn hostile_requests_are_refused_and_cost_nothing() {
    let (recorder, certificate) = (Recorder::start(), TestCertificate::new());
    let gateway = start_both(&certificate, &recorder);
    assert_serves(&gateway, &recorder);
    let (balance, reached) = (gateway.settled(), recorder.requests().len());

    let mut rows = http1_rows::rows(&gateway);
    rows.extend(json_rows::rows(&gateway));
    let mut faults = Vec::new();
    for row in &rows {
        faults.extend(row.fault(&ask(gateway.address, &row.request)));
        let over_tls = row.fault(&ask_tls(&gateway, &certificate, &row.request));
        faults.extend(over_tls.map(|fault| format!("over TLS, {fault}")));
        if recorder.requests().len() != reached {
            faults.push(format!("{}: the upstream saw it", row.name));
            break;
        }
    }
    assert!(faults.is_empty(), "{} of {} rows:\n{}", faults.len(), rows.len(), faults.join("\n"));
    assert_eq!(rows.len(), ROWS, "rows that ran");
    assert_eq!(gateway.settled(), balance, "nothing was charged");
    assert_serves(&gateway, &recorder);
    let answer = ask_tls(&gateway, &certificate, &gateway.chat_json(GOOD));
    assert_eq!(answer.status(), 200, "an honest request over TLS: {answer:?}");
}

/// The rows of the table: a run that finds fewer has lost some.
const ROWS: usize = 182;

#[test]
fn hostile_http2_is_refused_and_costs_nothing() {
    let (recorder, certificate) = (Recorder::start(), TestCertificate::new());
    let gateway = start_both(&certificate, &recorder);
    let ask_tls = |frames: &[u8]| {
        let opened = connect_tls(gateway.listeners[1], certificate.der(), &["h2"]);
        http2::ask_over(&mut opened.expect("a handshake"), frames)
    };
    let good = http2::good(&gateway.key, GOOD);
    assert_eq!(http2::ask(gateway.address, &good), End::Answered, "an honest request");
    assert_eq!(ask_tls(&good), End::Answered, "an honest request over TLS");
    let (balance, reached) = (gateway.settled(), recorder.requests().len());
    let rows = http2::rows(&gateway.key, GOOD);
    let ran = rows.len();
    for (name, frames, ends) in rows {
        let end = http2::ask(gateway.address, &frames);
        assert!(ends.contains(&end), "{name}: {end:?}, expected {ends:?}");
        let end = ask_tls(&frames);
        assert!(ends.contains(&end), "{name} over TLS: {end:?}, expected {ends:?}");
        assert_eq!(recorder.requests().len(), reached, "{name}: the upstream saw it");
    }
    assert_eq!(ran, 26, "rows that ran");
    assert_eq!(gateway.settled(), balance, "nothing was charged");
    assert_serves(&gateway, &recorder);
}

/// Streams that are opened and reset at once, over many connections: each is given up, and who asks
/// honestly meanwhile is answered at once.
#[test]
fn a_flood_of_resets_ends_in_closed_connections() {
    const CONNECTIONS: usize = 32;
    let (recorder, certificate) = (Recorder::start(), TestCertificate::new());
    let gateway = start_both(&certificate, &recorder);
    let balance = gateway.settled();
    let flood = http2::flood(&gateway.key);
    std::thread::scope(|scope| {
        let floods: Vec<_> = (0..CONNECTIONS)
            .map(|index| {
                let (gateway, certificate, flood) = (&gateway, &certificate, &flood);
                scope.spawn(move || match index % 2 {
                    0 => http2::ask(gateway.address, flood),
                    _ => {
                        let opened = connect_tls(gateway.listeners[1], certificate.der(), &["h2"]);
                        http2::ask_over(&mut opened.expect("a handshake"), flood)
                    }
                })
            })
            .collect();
        while !floods.iter().all(|flood| flood.is_finished()) {
            let answer = ask(gateway.address, &gateway.get("/v1/models"));
            assert_eq!(answer.status(), 200, "{answer:?}");
            assert!(answer.took < Duration::from_secs(1), "took {:?}", answer.took);
        }
        for flood in floods {
            assert_eq!(flood.join().expect("no panic"), End::GoAway, "a flood is cut");
        }
    });
    assert!(recorder.requests().is_empty(), "nothing reached the upstream");
    assert_eq!(gateway.settled(), balance, "nothing was charged");
    assert_serves(&gateway, &recorder);
}

#[test]
fn customers_cannot_speak_to_the_upstream_over_the_operator() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(recorder.address);
    let lines = format!(
        "Connection: authorization, x-canary-hop, keep-alive\r\nX-Canary-Hop: canary\r\n\
         X-Forwarded-For: canary\r\nX-Forwarded-Host: canary\r\nForwarded: for=canary\r\n\
         X-Real-IP: canary\r\nX-Api-Key: canary\r\nApi-Key: canary\r\nX-Goog-Api-Key: canary\r\n\
         Cookie: canary\r\nProxy-Authorization: canary\r\nOpenAI-Organization: canary\r\n\
         Upgrade: canary\r\nTE: canary\r\nTrailer: canary\r\nExpect: canary\r\n\
         Content-Length: {}\r\n",
        GOOD.len()
    );
    let answer = ask(gateway.address, &gateway.chat(&lines, GOOD));
    assert_eq!(answer.status(), 200, "{answer:?}");
    let requests = recorder.requests();
    let [request] = requests.as_slice() else {
        panic!("{} requests, expected one", requests.len())
    };
    let head = request.head.to_ascii_lowercase();
    assert!(!head.contains("canary"), "what the customer set stays here:\n{head}");
    assert!(!head.contains(&gateway.key), "the customer's key stays here:\n{head}");
    let credentials = head.matches("authorization: bearer sk-upstream-of-a-test\r\n").count();
    assert_eq!(credentials, 1, "the operator's key, once:\n{head}");
    assert_eq!(head.matches("content-length:").count(), 1, "one length:\n{head}");
    assert!(!head.contains("transfer-encoding"), "a length only:\n{head}");
}

#[test]
fn whatever_key_is_wrong_the_answer_is_the_same() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(recorder.address);
    let message = |key: &str| {
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n\
             Content-Length: {}\r\n\r\n{GOOD}",
            GOOD.len()
        );
        let answer = ask(gateway.address, request.as_bytes());
        (answer.status(), answer.json())
    };
    let unknown = message("sk-unknown");
    assert_eq!(unknown.0, 401, "{unknown:?}");
    let mut near = gateway.key.clone();
    near.pop();
    for key in
        [near.as_str(), &format!("{}x", gateway.key), &gateway.key.to_uppercase(), "sk-", "x"]
    {
        assert_eq!(message(key), unknown, "{key} is told apart from an unknown key");
    }
}

#[test]
fn slow_customers_are_cut_and_harm_nobody() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(recorder.address);
    let address = gateway.address;
    let idle: Vec<_> = (0..500).map(|_| connect(address)).collect();
    let body = gateway.chat("Content-Length: 1000\r\n", "{");
    let cases: Vec<(&str, Vec<u8>, &[u8], u16)> = vec![
        ("a head, line by line", b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec(), b"X: y\r\n", 408),
        ("a head, then silence", b"GET / HTTP/1.1\r\nHost".to_vec(), b"", 408),
        ("nothing", Vec::new(), b"", 0),
        ("a body, byte by byte", body.clone(), b" ", 408),
        ("a body, then silence", body, b"", 408),
        ("half of HTTP/2's beginning", b"PRI * HTTP/2.0\r\n\r\n".to_vec(), b"", 408),
    ];
    let slow: Vec<_> = cases
        .into_iter()
        .map(|(name, first, drip, status)| {
            std::thread::spawn(move || (name, status, drip_feed(address, &first, drip)))
        })
        .collect();
    while slow.iter().any(|case| !case.is_finished()) {
        assert_serves(&gateway, &recorder);
    }
    for case in slow {
        let (name, status, answer) = case.join().expect("the case runs");
        assert!(answer.is_closed, "{name}: still open after {:?}", answer.took);
        assert_eq!(answer.status(), status, "{name}: {answer:?}");
    }
    for mut stream in idle {
        assert_eq!(stream.read(&mut [0]).ok(), Some(0), "an idle connection is closed");
    }
    gateway.settled();
}

/// Sends `first`, then `drip` five times a second, until the other end closes or 15 s are over.
fn drip_feed(address: std::net::SocketAddr, first: &[u8], drip: &[u8]) -> Answer {
    let mut stream = connect(address);
    stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
    let begun = Instant::now();
    let mut answer = Answer::default();
    let mut chunk = [0; 4096];
    stream.write_all(first).expect("the beginning leaves");
    while !answer.is_closed && begun.elapsed() < Duration::from_secs(15) {
        match stream.read(&mut chunk) {
            Ok(0) => answer.is_closed = true,
            Ok(count) => answer.bytes.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                answer.is_closed = true;
            }
            // Nothing yet: the next drop. That it cannot be sent any more, the next read shows.
            Err(_) => drop(stream.write_all(drip)),
        }
    }
    answer.took = begun.elapsed();
    answer
}

#[test]
fn a_customer_who_does_not_read_is_cut_and_fills_no_memory() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(recorder.address);
    let stream = GOOD.replacen("\"m\"", "\"endless\",\"stream\":true", 1);
    let mut customers: Vec<_> = (0..8).map(|_| connect(gateway.address)).collect();
    for customer in &mut customers {
        customer.write_all(&gateway.chat_json(&stream)).expect("the request leaves");
    }
    // The upstream sends without end; once every customer is cut, nothing is held any more.
    crate::harness::within(
        Duration::from_secs(15),
        || recorder.requests().len() >= customers.len(),
        || format!("{} requests arrived", recorder.requests().len()),
    );
    gateway.settled();
    let rss_bytes = gateway.rss_bytes_max();
    assert!(rss_bytes < 128 << 20, "{rss_bytes} bytes resident, expected less than 128 MiB");
    assert_serves(&gateway, &recorder);
}

/// The same over HTTP/2, where one connection can ask for much and grant every window.
#[test]
fn a_customer_who_grants_every_window_and_reads_nothing_is_cut() {
    const CONNECTIONS: usize = 8;
    const STREAMS: u32 = 20;
    let (recorder, certificate) = (Recorder::start(), TestCertificate::new());
    let gateway = start_both(&certificate, &recorder);
    gateway.grant("1000.00", "more");
    let stream = GOOD.replacen("\"m\"", "\"endless\",\"stream\":true", 1);
    let greedy = http2::greedy(&gateway.key, &stream, STREAMS);
    let mut plain: Vec<_> = (0..CONNECTIONS / 2).map(|_| connect(gateway.address)).collect();
    let open_tls = |_| {
        let opened = connect_tls(gateway.listeners[1], certificate.der(), &["h2"]);
        opened.expect("a handshake")
    };
    let mut tls: Vec<_> = (0..CONNECTIONS / 2).map(open_tls).collect();
    for customer in &mut plain {
        customer.write_all(&greedy).expect("the requests leave");
    }
    for customer in &mut tls {
        customer.write_all(&greedy).and_then(|()| customer.flush()).expect("the requests leave");
    }
    let streams = usize::try_from(STREAMS).expect("a number");
    crate::harness::within(
        Duration::from_secs(15),
        || recorder.requests().len() >= CONNECTIONS * streams,
        || format!("{} requests arrived", recorder.requests().len()),
    );
    gateway.settled();
    let rss_bytes = gateway.rss_bytes_max();
    assert!(rss_bytes < 160 << 20, "{rss_bytes} bytes resident, expected less than 160 MiB");
    assert_serves(&gateway, &recorder);
}

/// The attack that takes every place and much memory for a few bytes: streams of strangers that ask for
/// what needs no key, and grant no window for the answer.
#[test]
fn strangers_without_windows_take_neither_places_nor_memory() {
    const CONNECTIONS: usize = 100;
    let wide = "y".repeat(15_000);
    let fields: Vec<_> = ["a", "b", "c", "d"].map(|name| (name, wide.as_str())).into();
    let get =
        |path, fields| http2::Request { method: "GET", path, key: None, fields, has_body: false };
    let form = http2::Request {
        method: "POST",
        path: "/console/login",
        key: None,
        fields: &[("content-length", "1000")],
        has_body: true,
    };
    let attacks = [
        ("nothing there", 100, get("/nowhere", &[])),
        ("large headers", 20, get("/nowhere", &fields)),
        ("a form that never comes", 100, form),
    ];
    let recorder = Recorder::start();
    for (name, count, request) in attacks {
        let timeouts = "  body_timeout: 60s\n  write_timeout: 60s\n";
        let gateway = Gateway::bounded(None, "", timeouts, "", recorder.address);
        assert_serves(&gateway, &recorder);
        let rss_bytes_before = gateway.rss_bytes_max();
        let frames = http2::without_windows(&request, count);
        let mut streams: Vec<_> = (0..CONNECTIONS).map(|_| connect(gateway.address)).collect();
        for stream in &mut streams {
            // One that is refused too often is closed while it goes on sending.
            let _sent = stream.write_all(&frames);
        }
        let mut ends = vec![http2::Ends::default(); CONNECTIONS];
        let expected = (count - 8) * 100;
        let until = Instant::now() + Duration::from_secs(20);
        let mut refused = 0;
        while refused < expected && Instant::now() < until {
            for (stream, ends) in streams.iter_mut().zip(&mut ends) {
                stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
                ends.read(stream);
            }
            refused = ends.iter().map(|ends| ends.refused).sum();
        }
        assert!(refused >= expected, "{name}: {refused} were refused, expected {expected}");
        let in_flight = gateway.metric("tollgate_requests_in_flight");
        assert!(in_flight <= 128.0, "{name}: {in_flight} of one address are in flight");
        let began = Instant::now();
        assert_serves(&gateway, &recorder);
        let good = http2::good(&gateway.key, GOOD);
        assert_eq!(
            http2::ask(gateway.address, &good),
            End::Answered,
            "{name}: a customer's stream"
        );
        assert!(began.elapsed() < Duration::from_secs(2), "{name}: {:?}", began.elapsed());
        let grown = gateway.rss_bytes_max() - rss_bytes_before;
        assert!(grown < 48 << 20, "{name}: {grown} bytes more");
    }
}

/// Whoever takes no answer of the gateway's own is given up after 10 s, whatever `write_timeout` is.
#[test]
fn an_answer_of_the_gateways_own_is_waited_for_ten_seconds() {
    let recorder = Recorder::start();
    let timeouts = "  body_timeout: 60s\n  write_timeout: 60s\n";
    let gateway = Gateway::bounded(None, "", timeouts, "", recorder.address);
    let key = gateway.key.clone();
    let request = http2::Request {
        method: "GET",
        path: "/nowhere",
        key: Some(&key),
        fields: &[],
        has_body: false,
    };
    let mut stream = connect(gateway.address);
    stream.write_all(&http2::without_windows(&request, 30)).expect("the requests leave");
    stream.set_read_timeout(Some(Duration::from_secs(1))).expect("a timeout");
    let (mut ends, began) = (http2::Ends::default(), Instant::now());
    ends.read(&mut stream);
    let waiting = http2::Ends { answered: 30, ..http2::Ends::default() };
    assert_eq!(ends, waiting, "a customer's requests are answered, and none is refused");
    while ends.reset < 30 && began.elapsed() < Duration::from_secs(20) {
        ends.read(&mut stream);
    }
    assert_eq!(ends.reset, 30, "all are given up: {ends:?}");
    let took = began.elapsed();
    let expected = Duration::from_secs(9)..Duration::from_secs(14);
    assert!(expected.contains(&took), "given up after {took:?}");
    assert_eq!(gateway.metric("tollgate_requests_in_flight"), 0.0);
}

/// JSON that parsers read differently is refused on every route, in the words of its clients, and costs
/// nothing.
#[tokio::test(flavor = "multi_thread")]
async fn json_with_two_readings_is_refused_on_every_route() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("1.00").await;
    let client = crate::harness::http();
    for (path, good) in [
        (
            "chat/completions",
            r#"{"model":"gpt-4o-mini","messages":[{"role":"user","content":"hi"}]}"#,
        ),
        ("responses", r#"{"model":"gpt-4o-mini","input":"hi"}"#),
        (
            "messages",
            r#"{"model":"claude-haiku-4-5","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}"#,
        ),
        (
            "messages/count_tokens",
            r#"{"model":"claude-haiku-4-5","messages":[{"role":"user","content":"hi"}]}"#,
        ),
        ("embeddings", r#"{"model":"text-embedding-3-small","input":"hi"}"#),
        ("images/generations", r#"{"model":"grok-2-image","prompt":"hi"}"#),
        (
            "images/generations",
            r#"{"model":"qf-image-2.0","input":{"messages":[{"role":"user","content":[{"text":"hi"}]}]}}"#,
        ),
        ("audio/speech", r#"{"model":"tts-1","input":"hi","voice":"alloy"}"#),
        ("audio/speech", r#"{"model":"qf3-tts-flash","input":"hi"}"#),
    ] {
        let with = |member: &str| good.replacen('{', &format!("{{{member},"), 1);
        let deep = format!("\"x\":{}1{}", "[".repeat(100), "]".repeat(100));
        let hostile = [
            with("\"model\":\"other\""),
            with("\"Model\":\"other\""),
            with("\"x\":\"\\u0000\""),
            with("\"x\":\"\\ud800\""),
            with("\"x\":1e999"),
            with(&deep),
            format!("\u{feff}{good}"),
            format!("{good}{good}"),
            good.replace('}', ""),
            "null".to_owned(),
            String::new(),
        ];
        for body in hostile {
            let call =
                client.post(format!("{}/v1/{path}", demo.base_url)).bearer_auth(&customer.key);
            let answer = call.body(body.clone()).send().await.expect("an answer");
            assert_eq!(answer.status(), 400, "{path}: {body:.200}");
            let error: serde_json::Value = answer.json().await.expect("JSON");
            let is_anthropics = error["type"] == "error";
            assert_eq!(is_anthropics, path.starts_with("messages"), "{path}: {error}");
            assert_eq!(error["error"]["type"], "invalid_request_error", "{path}: {error}");
        }
        let call = client.post(format!("{}/v1/{path}", demo.base_url)).bearer_auth(&customer.key);
        let answer = call.body(good).send().await.expect("an answer");
        assert_eq!(answer.status(), 200, "{path} serves an honest request");
    }
    // $0.07 and $0.035 for an image, and next to nothing for the rest.
    let spent = admin.settled(&customer.account).await.spent;
    assert!((105_000_000..106_000_000).contains(&spent), "honest requests alone: {spent}");
}

/// Forms that parsers read differently are refused and cost nothing.
#[tokio::test(flavor = "multi_thread")]
async fn forms_with_two_readings_are_refused() {
    let demo = Demo::start();
    let admin = Admin::of(&demo);
    let customer = admin.customer("9.00").await;
    let address = demo.base_url.trim_start_matches("http://").parse().expect("an address");
    let rows = form_rows::rows();
    for (name, content_type, body, status) in &rows {
        let head = format!(
            "POST /v1/images/edits HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {}\r\n\
             Content-Type: {content_type}\r\nContent-Length: {}\r\n\r\n",
            customer.key,
            body.len()
        );
        let answer = ask(address, &[head.as_bytes(), body].concat());
        assert_eq!(answer.status(), *status, "{name}: {answer:?}");
        let error = &answer.json()["error"];
        assert!(*status == 200 || error["message"].is_string(), "{name}: {error}");
        assert!(answer.took < Duration::from_secs(2), "{name} took {:?}", answer.took);
    }
    assert_eq!(rows.len(), 26, "rows that ran");
    let balance = admin.settled(&customer.account).await;
    assert!(balance.spent > 0 && balance.spent < 200_000_000, "the honest one alone: {balance:?}");
}
