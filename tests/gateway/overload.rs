//! More work than the gateway takes: who is served, who is turned away, and how fast.

use std::io::{Read as _, Write as _};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::harness::{Answer, Gateway, Recorder, ask, connect, eventually, simulator};

const GOOD: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
const SHED: &str = r#"tollgate_requests_shed_total{reason="requests_in_flight"}"#;
const SHED_ACCOUNT: &str = r#"tollgate_requests_shed_total{reason="account_requests_in_flight"}"#;
const SHED_ACCOUNT_BODIES: &str = r#"tollgate_requests_shed_total{reason="account_body_memory"}"#;
const PLACES: &str = r#"tollgate_places_taken{pool="customers"}"#;
const SHED_BODIES: &str = r#"tollgate_requests_shed_total{reason="body_memory"}"#;

/// Sets a field of `limits` of the running gateway.
fn limit(gateway: &Gateway, field: &str) {
    let path = gateway.path("routes.yaml");
    let text = std::fs::read_to_string(&path).expect("the file");
    let text = text.replace("limits:\n", &format!("limits:\n  {field}\n"));
    std::fs::write(&path, text).expect("written");
    gateway.admin("POST", "/admin/v1/reload", &serde_json::Value::Null);
}

/// Sends a request over a connection that stays open, and reads the answer.
fn ask_over(stream: &mut std::net::TcpStream, request: &[u8]) -> Answer {
    let began = Instant::now();
    stream.write_all(request).expect("sent");
    let mut answer = Answer::default();
    let mut chunk = [0; 16 * 1024];
    while !answer.is_whole() {
        let count = stream.read(&mut chunk).expect("an answer");
        assert!(count > 0, "closed before the answer: {answer:?}");
        answer.bytes.extend_from_slice(&chunk[..count]);
    }
    answer.took = began.elapsed();
    answer
}

#[test]
fn requests_above_the_bound_are_shed_and_may_retry_on_the_same_connection() {
    let sim = simulator(&["delay-ms=1500"]);
    let gateway = Gateway::start(sim.addr());
    limit(&gateway, "requests_in_flight_max: 4");
    limit(&gateway, "per_account: { requests_in_flight_percent: 100 }");
    let request = gateway.chat_json(GOOD);
    let barrier = Barrier::new(40);
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..40)
            .map(|_| {
                scope.spawn(|| {
                    let mut stream = connect(gateway.address);
                    barrier.wait();
                    let first = ask_over(&mut stream, &request);
                    if first.status() == 503 {
                        let again = ask_over(&mut stream, &request);
                        assert_eq!(again.status(), 503, "the connection is usable: {again:?}");
                    }
                    (first, stream)
                })
            })
            .collect();
        eventually("all but four are turned away", || gateway.metric(SHED) >= 36.0);
        assert_eq!(gateway.ready(), 200, "the admin address does not care");
        let connections = gateway.metric("tollgate_connections");
        assert_eq!(connections, 40.0, "all are still connected");
        asking.into_iter().map(|asking| asking.join().expect("no panic").0).collect()
    });
    let (served, shed): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| answer.status() == 200);
    assert_eq!((served.len(), shed.len()), (4, 36));
    for answer in &shed {
        assert_eq!(answer.status(), 503, "{answer:?}");
        assert_eq!(answer.header("retry-after").as_deref(), Some("1"), "{answer:?}");
        assert_ne!(answer.header("connection").as_deref(), Some("close"), "{answer:?}");
        assert_eq!(answer.json()["error"]["code"], "ServiceUnavailable", "{answer:?}");
    }
    let mut took: Vec<_> = shed.iter().map(|answer| answer.took).collect();
    took.sort();
    assert!(took[17] < Duration::from_millis(50), "half of them within 50 ms: {took:?}");
    assert!(took[35] < Duration::from_millis(500), "all of them long before the others: {took:?}");
    assert_eq!(gateway.metric(SHED), 72.0, "each is counted");
    assert_eq!(ask(gateway.address, &request).status(), 200, "and the places are free again");
    assert_eq!(gateway.settled()["held"], "0.00");
}

/// The customer waits to be asked for the body, and never is: it was refused by its length alone.
#[test]
fn a_body_that_finds_no_room_is_refused_before_it_is_read() {
    let sim = simulator(&["delay-ms=1500"]);
    let gateway = Gateway::start(sim.addr());
    limit(&gateway, "requests_in_flight_max: 100");
    let text = std::fs::read_to_string(gateway.path("routes.yaml")).expect("the file");
    let text = text.replace("body_memory_max: 64MiB", "body_memory_max: 1MiB");
    std::fs::write(gateway.path("routes.yaml"), text).expect("written");
    gateway.admin("POST", "/admin/v1/reload", &serde_json::Value::Null);
    // So much text would fit into no context.
    let url = format!("data:image/png;base64,{}", "x".repeat(600 * 1024));
    let picture = format!(r#"[{{"type":"image_url","image_url":{{"url":"{url}"}}}}]"#);
    let large = GOOD.replace("\"hi\"", &picture);
    let first = gateway.chat_json(&large);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| ask(gateway.address, &first));
        let is_held = || gateway.metric("tollgate_request_body_bytes") > 600.0 * 1024.0;
        eventually("the first body is held", is_held);
        let lines = format!("Content-Length: {}\r\nExpect: 100-continue\r\n", large.len());
        let answer = ask(gateway.address, &gateway.chat(&lines, ""));
        assert_eq!(answer.status(), 503, "{answer:?}");
        assert!(!answer.bytes.starts_with(b"HTTP/1.1 100"), "it was not asked for: {answer:?}");
        assert!(answer.took < Duration::from_millis(300), "{:?}", answer.took);
        assert_eq!(answer.header("retry-after").as_deref(), Some("1"), "{answer:?}");
        assert_eq!(ask(gateway.address, &gateway.chat_json(GOOD)).status(), 200, "short ones go");
        assert_eq!(first.join().expect("no panic").status(), 200);
    });
    assert_eq!(gateway.metric(SHED_BODIES), 1.0);
}

/// One account asks for more than its share; another is served as if it were alone.
#[test]
fn an_account_has_a_share_of_the_places() {
    let sim = simulator(&["delay-ms=1500"]);
    let gateway = Gateway::start(sim.addr());
    limit(&gateway, "requests_in_flight_max: 8");
    let request = gateway.chat_json(GOOD);
    let other = gateway.stranger();
    let other = format!(
        "GET /v1/models HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {other}\r\n\r\n"
    );
    std::thread::scope(|scope| {
        let first: Vec<_> =
            (0..2).map(|_| scope.spawn(|| ask(gateway.address, &request))).collect();
        eventually("two are in flight", || gateway.metric(PLACES) == 2.0);
        let answer = ask(gateway.address, &request);
        assert_eq!(answer.status(), 429, "{answer:?}");
        assert_eq!(answer.json()["error"]["code"], "ConcurrencyExceeded", "{answer:?}");
        assert_eq!(answer.header("retry-after").as_deref(), Some("1"), "{answer:?}");
        assert_ne!(answer.header("connection").as_deref(), Some("close"), "{answer:?}");
        assert_eq!(ask(gateway.address, other.as_bytes()).status(), 200, "another account");
        for query in first {
            assert_eq!(query.join().expect("no panic").status(), 200);
        }
    });
    assert_eq!(gateway.metric(SHED_ACCOUNT), 1.0);
    assert_eq!(gateway.metric(SHED), 0.0, "there was room");
    eventually("the places are free again", || gateway.metric(PLACES) == 0.0);
    assert_eq!(ask(gateway.address, &request).status(), 200);
}

/// The same of the memory for bodies.
#[test]
fn an_account_has_a_share_of_the_memory_for_bodies() {
    let sim = simulator(&["delay-ms=1500"]);
    let gateway = Gateway::start(sim.addr());
    let path = gateway.path("routes.yaml");
    let text = std::fs::read_to_string(&path).expect("the file");
    let text =
        text.replace("body_memory_max: 64MiB", "body_memory_max: 4MiB\n  json_values_max: 1000");
    std::fs::write(&path, format!("{text}mcp: {{ body_max: 1MiB }}\n")).expect("written");
    gateway.admin("POST", "/admin/v1/reload", &serde_json::Value::Null);
    // While it is read, a body takes twice its size, and 64 bytes for each value that it may have, of
    // the 2 MiB that an account may have here.
    let url = format!("data:image/png;base64,{}", "x".repeat(600 * 1024));
    let picture = format!(r#"[{{"type":"image_url","image_url":{{"url":"{url}"}}}}]"#);
    let large = gateway.chat_json(GOOD.replace("\"hi\"", &picture));
    std::thread::scope(|scope| {
        let first: Vec<_> = (1..=2)
            .map(|count| {
                let caller = scope.spawn(|| ask(gateway.address, &large));
                eventually("it is on its way", || sim.requests_total() == count);
                caller
            })
            .collect();
        assert!(gateway.metric("tollgate_request_body_bytes") > 1_200_000.0);
        let answer = ask(gateway.address, &large);
        assert_eq!(answer.status(), 429, "{answer:?}");
        assert_eq!(answer.header("retry-after").as_deref(), Some("1"), "{answer:?}");
        assert_eq!(ask(gateway.address, &gateway.chat_json(GOOD)).status(), 200, "short ones go");
        for caller in first {
            assert_eq!(caller.join().expect("no panic").status(), 200);
        }
    });
    assert_eq!(gateway.metric(SHED_ACCOUNT_BODIES), 1.0);
    assert_eq!(ask(gateway.address, &large).status(), 200, "and again");
}

/// Reads of usage are made a few at a time for one account, and none is lost.
#[test]
fn reads_of_one_account_take_turns() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(recorder.address);
    limit(&gateway, "per_account: { reads_max: 1 }");
    let usage = gateway.get("/v1/usage?days=366");
    std::thread::scope(|scope| {
        let caller: Vec<_> =
            (0..32).map(|_| scope.spawn(|| ask(gateway.address, &usage))).collect();
        for caller in caller {
            let answer = caller.join().expect("no panic");
            match answer.status() {
                200 => {}
                429 => assert_eq!(answer.json()["error"]["code"], "ConcurrencyExceeded"),
                _ => panic!("{answer:?}"),
            }
        }
    });
    assert_eq!(ask(gateway.address, &usage).status(), 200);
}

#[test]
fn connections_are_counted_while_they_are_open() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(recorder.address);
    let open: Vec<_> = (0..3).map(|_| connect(gateway.address)).collect();
    let eventually = |count: f64| {
        crate::harness::within(
            Duration::from_secs(5),
            || gateway.metric("tollgate_connections") == count,
            || format!("{}", gateway.metric("tollgate_connections")),
        );
    };
    eventually(3.0);
    drop(open);
    eventually(0.0);
}
