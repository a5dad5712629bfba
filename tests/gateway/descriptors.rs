//! Strangers who take every connection that there is: customers are served, and the operator's address
//! answers.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::harness::{Gateway, Recorder, ask, ask_over, connect, eventually, let_pass};
use serde_json::json;

const GOOD: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
const HELLO: &[u8] = b"HEAD / HTTP/1.1\r\nHost: gateway\r\n\r\n";

/// A connection on which a stranger has asked whether anybody is there, and stays.
fn stranger(gateway: &Gateway) -> TcpStream {
    let mut stream = connect(gateway.address);
    // It may have to give way to the next one before it is answered.
    let _sent = stream.write_all(HELLO);
    stream
}

/// True if the other end has closed it.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
    let mut chunk = [0; 4096];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => {
                let is_open = matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                );
                return !is_open;
            }
        }
    }
}

fn count_closed(streams: &mut [TcpStream]) -> usize {
    streams.iter_mut().filter_map(|stream| is_closed(stream).then_some(())).count()
}

/// A request over a connection that may have been used before, which must be served.
fn assert_serves_over(gateway: &Gateway, kept: &mut TcpStream, who: &str) {
    let socket = kept.try_clone().expect("a second handle");
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    let answer = ask_over(kept, &socket, &gateway.chat_json(GOOD));
    assert_eq!(answer.status(), 200, "{who}: {answer:?}");
}

#[test]
fn with_256_descriptors_and_400_idle_strangers_everybody_is_served() {
    let recorder = Recorder::start();
    let gateway = Gateway::bounded(Some(256), "", "", "", recorder.address);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.id()));
    let limits = limits.expect("the process lives");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("the line");
    let soft = line.split_ascii_whitespace().nth(3);
    assert_eq!(soft, Some("256"), "the soft limit is raised to the hard one: {line}");

    let mut kept = connect(gateway.address);
    assert_serves_over(&gateway, &mut kept, "a customer's first request");
    let mut strangers: Vec<_> = (0..400).map(|_| stranger(&gateway)).collect();
    let began = Instant::now();
    assert_eq!(gateway.ready(), 200, "the operator's probe");
    gateway.admin("POST", "/admin/v1/accounts", &json!({"name": "another"}));
    let answer = ask(gateway.address, &gateway.chat_json(GOOD));
    assert_eq!(answer.status(), 200, "a new customer: {answer:?}");
    assert!(began.elapsed() < Duration::from_secs(3), "all within {:?}", began.elapsed());
    assert_serves_over(&gateway, &mut kept, "whoever has shown a key stays, strangers give way");

    let (max, open) =
        (gateway.metric("tollgate_connections_max"), gateway.metric("tollgate_connections"));
    assert!((40.0..100.0).contains(&max) && open <= max, "{open} connections of {max}");
    assert!(gateway.descriptors() < 200, "{} descriptors are open", gateway.descriptors());
    let closed = count_closed(&mut strangers);
    assert!(closed >= 400 - 100, "{closed} of 400 gave way");
    let gave_way = ["gave_way", "address_gave_way"].map(|reason| {
        gateway.metric(&format!("tollgate_connections_shed_total{{reason=\"{reason}\"}}"))
    });
    assert!(gave_way.iter().sum::<f64>() >= 300.0, "counted: {gave_way:?}");
    let strange = gateway.metric("tollgate_connections_unauthenticated");
    assert!(strange > 0.0 && strange < open, "{strange} of {open} have shown no key");
    drop(strangers);
    eventually("all but one are gone", || gateway.metric("tollgate_connections") == 1.0);
    assert_eq!(gateway.metric("tollgate_connections_unauthenticated"), 0.0, "no stranger is left");
}

#[test]
fn connections_with_requests_are_kept_and_new_ones_refused() {
    let recorder = Recorder::start();
    let limits = "  connections_max: 4\n  per_account: { requests_in_flight_percent: 100 }\n";
    let gateway = Gateway::bounded(None, "", limits, "", recorder.address);
    // Half of four may come from one address; this one has them all from here.
    let half = gateway.chat("Content-Length: 1000\r\n", "{");
    let mut busy: Vec<_> = (0..2).map(|_| connect(gateway.address)).collect();
    for customer in &mut busy {
        customer.write_all(&half).expect("half of a request leaves");
    }
    eventually("both have shown their key", || {
        gateway.metric("tollgate_connections") == 2.0
            && gateway.metric("tollgate_connections_unauthenticated") == 0.0
    });
    let mut refused = connect(gateway.address);
    let _sent = refused.write_all(HELLO);
    assert!(is_closed(&mut refused), "nobody can give way to it");
    assert_eq!(gateway.metric("tollgate_connections_shed_total{reason=\"address_full\"}"), 1.0);
    assert_eq!(count_closed(&mut busy), 0, "customers' requests go on");
}

/// Addresses that a load balancer tells are counted, not its own.
#[test]
fn each_address_makes_room_for_itself_behind_a_load_balancer() {
    let recorder = Recorder::start();
    let listener = "  - { address: '127.0.0.1:0', proxy_protocol: true }\n";
    let limits = "  connections_max: 100\n  connections_per_address_max: 4\n";
    let gateway = Gateway::bounded(None, listener, limits, "", recorder.address);
    let from = |address: &str, request: &[u8]| {
        let mut stream = connect(gateway.listeners[1]);
        let family = if address.contains(':') { "TCP6 {} ::1" } else { "TCP4 {} 127.0.0.1" };
        let header = format!("PROXY {} 56324 443\r\n", family.replace("{}", address));
        // Both at once: it may be refused between them.
        let _sent = stream.write_all(&[header.as_bytes(), request].concat());
        stream
    };
    let mut others: Vec<_> = (1..=9).map(|n| from(&format!("192.0.2.{n}"), HELLO)).collect();
    let mut flood: Vec<_> = (0..30).map(|_| from("198.51.100.7", HELLO)).collect();
    let mut wide: Vec<_> = (0..10).map(|n| from(&format!("2001:db8:1:2::{n}"), HELLO)).collect();
    assert_eq!(count_closed(&mut others), 0, "other addresses are left alone");
    assert_eq!(count_closed(&mut flood), 26, "four of one address stay");
    assert_eq!(count_closed(&mut wide), 6, "64 bits of IPv6 are one address");
    let mut customer = from("198.51.100.7", &gateway.chat_json(GOOD));
    assert!(!is_closed(&mut customer), "a customer comes through from there all the same");
    assert_eq!(recorder.requests().len(), 1, "and is served");
}

#[test]
fn a_proxy_that_is_trusted_has_as_many_connections_as_there_are() {
    let recorder = Recorder::start();
    let limits = "  connections_max: 40\n  connections_per_address_max: 2\n";
    for (more, closed) in [("", 8), ("trusted_proxies: [127.0.0.1]\n", 0)] {
        let gateway = Gateway::bounded(None, "", limits, more, recorder.address);
        let mut streams: Vec<_> = (0..10).map(|_| stranger(&gateway)).collect();
        assert_eq!(count_closed(&mut streams), closed, "closed with `{more}`");
    }
}

/// An account has a quarter of the connections for requests under way, whatever it may have of requests;
/// what is turned away keeps no connection.
#[test]
fn one_account_leaves_connections_to_the_others() {
    const SHED: &str = "tollgate_requests_shed_total{reason=\"account_connections\"}";
    let recorder = Recorder::start();
    let limits = "  connections_max: 16\n  connections_per_address_max: 16\n";
    let gateway = Gateway::bounded(None, "", limits, "", recorder.address);
    let other = gateway.stranger();
    let models = format!(
        "GET /v1/models HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {other}\r\n\r\n"
    );
    let half = gateway.chat("Content-Length: 1000\r\n", "{");
    let began = Instant::now();
    let mut busy = Vec::new();
    // Their bodies are due within 2 s.
    while began.elapsed() < Duration::from_millis(1500) {
        for _ in 0..20 {
            let mut customer = connect(gateway.address);
            // One that was turned away may have to give way to the next.
            let _sent = customer.write_all(&half);
            busy.push(customer);
        }
        let answer = ask(gateway.address, models.as_bytes());
        assert_eq!(answer.status(), 200, "another account is served: {answer:?}");
        assert!(answer.took < Duration::from_secs(1), "at once: {:?}", answer.took);
        let_pass(Duration::from_millis(100), "the attack goes on for more than a second");
    }
    assert!(gateway.metric(SHED) >= 12.0, "{} were turned away", gateway.metric(SHED));
}

/// Connections to the admin address on which nothing is asked, and such on which answers are asked for
/// and not taken: both give way to a probe and to an operator.
#[test]
fn a_flooded_admin_address_still_answers_probes() {
    let recorder = Recorder::start();
    // Sixteen of 256 are for the admin address.
    let gateway = Gateway::bounded(Some(256), "", "", "", recorder.address);
    let flood = b"GET /metrics HTTP/1.1\r\nHost: admin\r\n\r\n".repeat(300);
    for (what, sent) in
        [("silence", b"".as_slice()), ("a head's half", b"GET /"), ("flood", &flood)]
    {
        let held: Vec<_> = (0..40)
            .map(|_| {
                let mut stream = connect(gateway.admin_address());
                stream.set_write_timeout(Some(Duration::from_millis(200))).expect("a timeout");
                // It may have given way already.
                let _sent = stream.write_all(sent);
                stream
            })
            .collect();
        for _ in 0..5 {
            let began = Instant::now();
            assert_eq!(gateway.ready(), 200, "{what}: the probe");
            gateway.admin("GET", "/admin/v1/accounts", &serde_json::Value::Null);
            assert!(began.elapsed() < Duration::from_secs(2), "{what}: {:?}", began.elapsed());
        }
        drop(held);
    }
}
