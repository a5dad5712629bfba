//! Strangers who try to take the places of customers: with forms that never arrive, with answers that
//! they do not take, over HTTP/2 and HTTP/1.1.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::{GOOD, http2};
use crate::harness::{Answer, Gateway, Recorder, ask, connect, let_pass, poll};

const CUSTOMERS: &str = r#"tollgate_places_taken{pool="customers"}"#;
const STRANGERS: &str = r#"tollgate_places_taken{pool="unauthenticated"}"#;
const SHED: &str = r#"tollgate_requests_shed_total{reason="unauthenticated"}"#;
const SHED_ADDRESS: &str = r#"tollgate_requests_shed_total{reason="unauthenticated_address"}"#;
/// A form of which only the head comes.
const FORM: (&str, &str) = ("POST", "/console/login");

/// A gateway with the times that are shipped.
fn start(recorder: &Recorder, limits: &str, more: &str) -> Gateway {
    let gateway = Gateway::start_with(recorder.address, more);
    let path = gateway.path("routes.yaml");
    let mut text = std::fs::read_to_string(&path).expect("the file");
    for field in ["body_timeout", "read_timeout", "write_timeout"] {
        text = text.replace(&format!("{field}: 2s"), &format!("{field}: 60s"));
    }
    text = text.replace("limits:\n  body_max", &format!("limits:\n{limits}  body_max"));
    std::fs::write(&path, text).expect("written");
    gateway.admin("POST", "/admin/v1/reload", &serde_json::Value::Null);
    gateway
}

/// An honest customer, who must be served at once.
fn assert_serves(gateway: &Gateway) {
    let answer = ask(gateway.address, &gateway.chat_json(GOOD));
    assert_eq!(answer.status(), 200, "an honest customer is served: {answer:?}");
    assert!(answer.took < Duration::from_secs(2), "an honest customer waited {:?}", answer.took);
}

/// Waits until strangers have so many places.
fn wait_for_strangers(gateway: &Gateway, within: Duration, is_so: impl Fn(f64) -> bool) {
    poll("strangers' places", within, || {
        let taken = gateway.metric(STRANGERS);
        if is_so(taken) { Ok(()) } else { Err(taken) }
    });
}

/// Opens connections that send this and read nothing.
fn open(gateway: &Gateway, connections: usize, bytes: &[u8]) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = connect(gateway.address);
        // The gateway may have enough before all is sent.
        let _sent = stream.write_all(bytes);
        stream
    };
    (0..connections).map(open).collect()
}

/// The head of a form of which the body never comes.
fn form(forwarded_for: &str) -> Vec<u8> {
    let (method, path) = FORM;
    format!(
        "{method} {path} HTTP/1.1\r\nHost: gateway\r\nX-Forwarded-For: {forwarded_for}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\n"
    )
    .into_bytes()
}

/// More forms than there are places for customers, and no body to any of them.
#[test]
fn forms_that_never_arrive_take_no_place_of_customers() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "", "");
    let began = Instant::now();
    let held = open(&gateway, 101, &http2::withheld(FORM, Some("1000"), 100));
    wait_for_strangers(&gateway, Duration::from_secs(5), |taken| taken > 0.0);
    while began.elapsed() < Duration::from_secs(9) {
        assert_serves(&gateway);
        let (strangers, customers) = (gateway.metric(STRANGERS), gateway.metric(CUSTOMERS));
        assert!(strangers <= 32.0, "one address has {strangers} places");
        assert!(customers <= 1.0, "{customers} places of customers are taken");
        let_pass(Duration::from_millis(200), "the pace of honest calls");
    }
    let streams = ["connection", "address"]
        .map(|reason| format!("tollgate_streams_refused_total{{reason=\"{reason}\"}}"))
        .map(|series| gateway.metric(&series));
    let turned_away = gateway.metric(SHED_ADDRESS) + streams.iter().sum::<f64>();
    assert!(turned_away > 1000.0, "the others were turned away: {turned_away}");
    wait_for_strangers(&gateway, Duration::from_secs(30), |taken| taken == 0.0);
    drop(held);
}

/// Answers of our own that nobody takes: whatever they say, they wait for 10 s and not for a minute.
#[test]
fn answers_that_are_not_taken_take_no_place_of_customers() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "  requests_in_flight_max: 8\n", "");
    for request in [
        ("GET", "/nowhere"),
        ("POST", "/v1/chat/completions"),
        ("GET", "/v1/models"),
        ("GET", "/v1/videos/generations/x"),
        ("GET", "/console/login"),
        ("POST", "/mcp"),
        ("DELETE", "/v1/chat/completions"),
    ] {
        let before = gateway.metric(SHED_ADDRESS);
        let began = Instant::now();
        // A connection of strangers has 8 streams at a time.
        let held = open(&gateway, 8, &http2::withheld(request, None, 50));
        wait_for_strangers(&gateway, Duration::from_secs(5), |taken| taken >= 32.0);
        assert_serves(&gateway);
        assert!(gateway.metric(SHED_ADDRESS) > before, "{request:?}: the others were turned away");
        assert!(gateway.metric(CUSTOMERS) <= 1.0, "{request:?}");
        if request.1 == "/nowhere" {
            wait_for_strangers(&gateway, Duration::from_secs(15), |taken| taken == 0.0);
            let took = began.elapsed();
            assert!(took > Duration::from_secs(5), "they were given time: {took:?}");
        }
        drop(held);
        wait_for_strangers(&gateway, Duration::from_secs(15), |taken| taken == 0.0);
    }
}

/// Over HTTP/1.1 a place costs a connection; what is shared is the same.
#[test]
fn each_address_has_a_share_of_what_strangers_have() {
    let recorder = Recorder::start();
    let proxies = "trusted_proxies: [127.0.0.0/8]\n";
    let limits = "  requests_in_flight_max: 8\n  unauthenticated: { requests_in_flight_max: 80 }\n";
    let gateway = start(&recorder, limits, proxies);
    let page = |from: &str| {
        let request = format!(
            "GET /console/login HTTP/1.1\r\nHost: gateway\r\nX-Forwarded-For: {from}\r\n\r\n"
        );
        ask(gateway.address, request.as_bytes())
    };
    let mut held = Vec::new();
    for (from, taken) in [("192.0.2.1", 32.0), ("2001:db8::1", 64.0)] {
        held.extend(open(&gateway, 40, &form(from)));
        wait_for_strangers(&gateway, Duration::from_secs(5), |strangers| strangers == taken);
        assert_serves(&gateway);
    }
    assert_eq!(gateway.metric(SHED_ADDRESS), 16.0, "eight of each were turned away");
    for (from, status) in [("192.0.2.1", 429), ("2001:db8::2", 429), ("192.0.2.2", 200)] {
        let answer = page(from);
        assert_eq!(answer.status(), status, "{from}: {answer:?}");
    }
    let refused = page("2001:db8::ffff");
    assert_eq!(refused.header("retry-after").as_deref(), Some("1"), "{refused:?}");
    held.extend(open(&gateway, 40, &form("192.0.2.3")));
    wait_for_strangers(&gateway, Duration::from_secs(5), |strangers| strangers == 80.0);
    assert_eq!(page("192.0.2.4").status(), 429, "all are taken");
    assert!(gateway.metric(SHED) > 0.0);
    assert_serves(&gateway);
    // The bodies were due within 10 s, whatever `body_timeout` says.
    let statuses = held.drain(..40).map(|mut form| {
        form.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        let mut answer = Answer::default();
        form.read_to_end(&mut answer.bytes).expect("an answer");
        answer.status()
    });
    // Which of them were turned away is chance.
    let mut statuses: Vec<_> = statuses.collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [[408; 32].as_slice(), [429; 8].as_slice()].concat());
    wait_for_strangers(&gateway, Duration::from_secs(15), |taken| taken == 0.0);
    assert_eq!(page("192.0.2.4").status(), 200, "free again");
}

/// A wrong key is a stranger's, and a key that was switched off as well.
#[test]
fn a_key_that_opens_nothing_takes_no_place_of_customers() {
    let recorder = Recorder::start();
    let gateway = start(&recorder, "  requests_in_flight_max: 2\n", "");
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer sk-wrong\r\n\
         Content-Length: {}\r\n\r\n",
        70_000
    );
    let held = open(&gateway, 64, request.as_bytes());
    for _ in 0..10 {
        assert_serves(&gateway);
    }
    drop(held);
    wait_for_strangers(&gateway, Duration::from_secs(15), |taken| taken == 0.0);
}

/// A page could not call without a preflight, which nobody has to be known for.
#[test]
fn preflights_are_answered_whatever_strangers_do() {
    let recorder = Recorder::start();
    let limits = "  unauthenticated: { requests_in_flight_max: 4, per_address_max: 4 }\n";
    let gateway = start(&recorder, limits, "");
    let held = open(&gateway, 8, &form("192.0.2.1"));
    wait_for_strangers(&gateway, Duration::from_secs(5), |taken| taken == 4.0);
    let page = ask(gateway.address, b"GET /console/login HTTP/1.1\r\nHost: gateway\r\n\r\n");
    assert_eq!(page.status(), 429, "all are taken: {page:?}");
    let preflight = b"OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\n\
        Origin: https://app.example\r\nAccess-Control-Request-Method: POST\r\n\r\n";
    let answer = ask(gateway.address, preflight);
    assert_eq!(answer.status(), 204, "{answer:?}");
    drop(held);
}

/// Streams have a bound for all who are known; one account has a quarter of them.
#[test]
fn one_account_leaves_streams_to_the_others() {
    const SHED: &str = r#"tollgate_requests_shed_total{reason="account_connections"}"#;
    let recorder = Recorder::start();
    // There are some 150 streams with so many descriptors.
    let gateway = Gateway::bounded(Some(1024), "", "", "", recorder.address);
    let key = gateway.stranger();
    let request = http2::Request {
        method: "POST",
        path: "/v1/chat/completions",
        key: Some(&key),
        fields: &[("content-type", "application/json"), ("content-length", "1000")],
        has_body: true,
    };
    let held = open(&gateway, 4, &http2::without_windows(&request, 100));
    let are_shed = || gateway.metric(SHED) >= 100.0;
    let message = || "the account has a share of streams".to_owned();
    crate::harness::within(Duration::from_secs(2), are_shed, message);
    let good = http2::good(&gateway.key, GOOD);
    // Those that are turned away take their room for a second.
    crate::harness::within(
        Duration::from_secs(5),
        || http2::ask(gateway.address, &good) == http2::End::Answered,
        || "another account is served".to_owned(),
    );
    for _ in 0..5 {
        assert_eq!(http2::ask(gateway.address, &good), http2::End::Answered, "another account");
    }
    drop(held);
}
