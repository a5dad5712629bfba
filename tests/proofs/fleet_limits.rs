//! Limits of a fleet: three gateways on a real database let through what one would, and no more.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::harness::postgres::Postgres;
use crate::harness::{Answer, Gateway, ask, chat_model, fleet, within};
use serde_json::{Value, json};
use tollgate::money::Nanousd;

const BODY: &str = r#"{"model":"m","max_tokens":10,"messages":[{"role":"user","content":"hi"}]}"#;

/// An upstream that takes its time, and counts.
struct Upstream {
    address: SocketAddr,
    arrived: Arc<Mutex<Vec<Instant>>>,
    most: Arc<AtomicUsize>,
}

impl Upstream {
    fn start(takes: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (arrived, most) = (Arc::default(), Arc::default());
        let upstream = Self { address, arrived, most };
        let (arrived, most) = (Arc::clone(&upstream.arrived), Arc::clone(&upstream.most));
        let in_flight = Arc::new(AtomicUsize::new(0));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (arrived, most) = (Arc::clone(&arrived), Arc::clone(&most));
                let in_flight = Arc::clone(&in_flight);
                std::thread::spawn(move || {
                    let count = || {
                        arrived.lock().expect("no poison").push(Instant::now());
                        most.fetch_max(
                            in_flight.fetch_add(1, Ordering::SeqCst) + 1,
                            Ordering::SeqCst,
                        );
                        std::thread::sleep(takes);
                        in_flight.fetch_sub(1, Ordering::SeqCst);
                    };
                    // The gateway closing a connection ends it.
                    serve(stream, count).ok();
                });
            }
        });
        upstream
    }

    fn arrived(&self) -> Vec<Instant> {
        self.arrived.lock().expect("no poison").clone()
    }
}

fn serve(stream: TcpStream, count: impl Fn()) -> std::io::Result<()> {
    let mut out = stream.try_clone()?;
    let mut lines = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if lines.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
            if line == "\r\n" {
                break;
            }
        }
        lines.read_exact(&mut vec![0; length])?;
        count();
        let body = r#"{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":10,"total_tokens":20}}"#;
        write!(
            out,
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
    }
}

/// Three gateways on one database.
struct ThreeGateways {
    nodes: Vec<Gateway>,
    database: String,
}

impl ThreeGateways {
    fn start(name: &str, upstream: SocketAddr) -> Self {
        let (database, url) = runtime().block_on(fleet::database(name));
        let upstreams = format!("  u: {{ protocol: openai, base_url: 'http://{upstream}/v1' }}\n");
        let models = format!("models:\n{}", chat_model("m", "u"));
        let node = || Gateway::node(&url, &upstreams, &models);
        Self { nodes: vec![node(), node(), node()], database }
    }

    /// A key of the first node's account with these limits, which all nodes know.
    fn key(&self, limits: &Value) -> String {
        let first = &self.nodes[0];
        let path = format!("/admin/v1/accounts/{}/keys", first.account);
        let made = first.admin("POST", &path, &json!({"name": "limited", "limits": limits}));
        let id = made["id"].as_str().expect("an id");
        for node in &self.nodes {
            crate::harness::eventually("the key is known", || {
                node.try_admin("GET", &format!("/admin/v1/keys/{id}"), &Value::Null).0 == 200
            });
        }
        made["key"].as_str().expect("a key").to_owned()
    }

    fn ask(&self, node: usize, key: &str) -> Answer {
        self.ask_with(node, key, BODY)
    }

    fn ask_with(&self, node: usize, key: &str, body: &str) -> Answer {
        let node = &self.nodes[node];
        let request = String::from_utf8(node.chat_json(body)).expect("text");
        ask(node.address, request.replace(&node.key, key).as_bytes())
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().expect("a runtime")
}

/// The most that arrived within any such span.
fn most_within(span: Duration, arrived: &[Instant]) -> usize {
    let mut sorted = arrived.to_vec();
    sorted.sort();
    let within = |(at, begun): (usize, &Instant)| {
        sorted[at..].iter().take_while(|it| it.duration_since(*begun) < span).count()
    };
    sorted.iter().enumerate().map(within).max().unwrap_or(0)
}

/// Asks with as many threads per node, each as often as it can with such a pause, until the time is
/// over. Says what was answered.
fn load(
    fleet: &ThreeGateways,
    key: &str,
    threads: [usize; 3],
    pause: Duration,
    time: Duration,
) -> Vec<u16> {
    let until = Instant::now() + time;
    std::thread::scope(|scope| {
        let mut calls = Vec::new();
        for (node, count) in threads.into_iter().enumerate() {
            for _ in 0..count {
                calls.push(scope.spawn(move || {
                    let mut statuses = Vec::new();
                    while Instant::now() < until {
                        statuses.push(fleet.ask(node, key).status());
                        std::thread::sleep(pause);
                    }
                    statuses
                }));
            }
        }
        calls.into_iter().flat_map(|call| call.join().expect("no panic")).collect()
    })
}

fn count(statuses: &[u16], status: u16) -> usize {
    statuses.iter().filter(|it| **it == status).count()
}

fn only_200_and_429(statuses: &[u16]) {
    let others: Vec<_> = statuses.iter().filter(|it| ![200, 429].contains(*it)).collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
#[ignore = "puts three gateways under load for a while"]
fn requests_a_minute_hold_over_three_nodes_and_are_used() {
    const LIMIT: usize = 120;
    const TIME: Duration = Duration::from_secs(30);
    let upstream = Upstream::start(Duration::ZERO);
    let fleet = ThreeGateways::start("requests", upstream.address);
    let key = fleet.key(&json!({"requests_per_minute": LIMIT}));
    // Nearly all come to one node.
    let statuses = load(&fleet, &key, [4, 1, 1], Duration::from_millis(150), TIME);
    only_200_and_429(&statuses);
    let arrived = upstream.arrived();
    let (passed, bound) = (arrived.len(), LIMIT + LIMIT / 2);
    println!("{passed} of {bound} were let through, {} refused", count(&statuses, 429));
    assert_eq!(count(&statuses, 200), passed);
    assert!(passed * 10 >= bound * 9, "{passed} of {bound}");
    for seconds in [1, 5, 10, 20, 30] {
        let most = most_within(Duration::from_secs(seconds), &arrived);
        let bound = LIMIT + LIMIT * usize::try_from(seconds).expect("few") / 60 + 1;
        assert!(most <= bound, "{most} within {seconds} s, {bound} is one bucket's");
    }
    assert!(count(&statuses, 429) > 0, "more was wanted than there is");
}

#[test]
#[ignore = "puts three gateways under load for a while"]
fn tokens_a_minute_hold_over_three_nodes() {
    let upstream = Upstream::start(Duration::ZERO);
    let fleet = ThreeGateways::start("tokens", upstream.address);
    // Each call is found to have used 20.
    let key = fleet.key(&json!({"tokens_per_minute": 1200}));
    let time = Duration::from_secs(20);
    let statuses = load(&fleet, &key, [1, 3, 1], Duration::from_millis(150), time);
    only_200_and_429(&statuses);
    // 1,200 at once and 20 a second: 80 calls, and those in flight when the tokens ran out.
    let passed = count(&statuses, 200);
    println!("{passed} of 80 were let through, {} refused", count(&statuses, 429));
    assert!((72..=86).contains(&passed), "{passed}");
}

#[test]
#[ignore = "puts three gateways under load for a while"]
fn places_are_shared_by_three_nodes() {
    for places in [3, 5] {
        let upstream = Upstream::start(Duration::from_millis(100));
        let fleet = ThreeGateways::start("places", upstream.address);
        let key = fleet.key(&json!({"concurrent_requests": places}));
        let time = Duration::from_secs(8);
        let statuses = load(&fleet, &key, [17, 17, 16], Duration::from_millis(20), time);
        only_200_and_429(&statuses);
        let (most, passed) = (upstream.most.load(Ordering::SeqCst), count(&statuses, 200));
        println!("{most} of {places} at one time, {passed} let through");
        assert!(most <= places, "{most} of {places}");
        assert!(passed >= places * 8 * 10 / 2, "half of the time they are taken: {passed}");
    }
}

#[test]
#[ignore = "puts three gateways under load for a while"]
fn a_first_request_is_let_through_wherever_it_comes() {
    let upstream = Upstream::start(Duration::ZERO);
    let fleet = ThreeGateways::start("first", upstream.address);
    for round in 0..5 {
        let key = fleet.key(&json!({"requests_per_minute": 60, "concurrent_requests": 3}));
        for node in [0, 1, 2, 0, 1, 2] {
            let answer = fleet.ask(node, &key);
            assert_eq!(answer.status(), 200, "round {round}, node {node}: {answer:?}");
        }
    }
}

#[test]
#[ignore = "puts three gateways under load for a while"]
fn limits_of_a_dead_node_return_after_its_terms() {
    let upstream = Upstream::start(Duration::ZERO);
    let mut fleet = ThreeGateways::start("dead", upstream.address);
    let key = fleet.key(&json!({"requests_per_minute": 6000}));
    let time = Duration::from_secs(3);
    load(&fleet, &key, [4, 0, 0], Duration::ZERO, time);
    let shares = "SELECT coalesce(sum(share), 0) FROM tollgate.limit_shares \
                  WHERE node = 1 AND until > now()";
    let has = |fleet: &ThreeGateways| -> u32 {
        Postgres::shared().sql(&fleet.database, shares).parse().expect("a number")
    };
    assert!(has(&fleet) > 0, "the first node has some of it");
    fleet.nodes[0].kill();
    assert!(has(&fleet) > 0, "nobody knows yet");
    // Twice a lease of two seconds, and what the database took.
    let message = || format!("{} are lost", has(&fleet));
    within(Duration::from_secs(8), || has(&fleet) == 0, message);
    let statuses = load(&fleet, &key, [0, 4, 0], Duration::ZERO, time);
    assert!(count(&statuses, 200) > 100, "{} were let through", count(&statuses, 200));
    let all = "SELECT sum(share) + (SELECT sum(units) FROM tollgate.limits) \
               FROM tollgate.limit_shares WHERE until > now()";
    assert_eq!(Postgres::shared().sql(&fleet.database, all), "6000", "nothing is lost");
}

#[test]
#[ignore = "puts three gateways under load for a while"]
fn a_daily_limit_for_ten_calls_lets_exactly_ten_through() {
    let upstream = Upstream::start(Duration::from_millis(30));
    let fleet = ThreeGateways::start("cap", upstream.address);
    let free = fleet.key(&json!({}));
    let spent = || -> i64 {
        let balance = fleet.nodes[0].balance();
        let spent = balance["spent"].as_str().expect("a text");
        spent.parse::<Nanousd>().expect("an amount").get()
    };
    let before = spent();
    assert_eq!(fleet.ask(0, &free).status(), 200);
    crate::harness::eventually("the call is charged", || spent() > before);
    let each = spent() - before;
    // What a call holds is more than it costs; the refusal says how much.
    let poor = fleet.key(&json!({"spend_per_day": "0.000000001"}));
    let refused = fleet.ask(0, &poor).json()["error"]["message"].to_string();
    let holds = refused.split("can cost up to $").nth(1).and_then(|rest| rest.split(". ").next());
    let holds: Nanousd = holds.expect("an amount").parse().expect("an amount");
    let cap = Nanousd::new(each * 9 + holds.get()).to_string();
    let key = fleet.key(&json!({"spend_per_day": cap}));
    // Those that come while others hold more than they will cost are told to come again.
    let mut passed = 0;
    for _ in 0..40 {
        passed += count(
            &load(&fleet, &key, [2, 1, 1], Duration::from_millis(50), Duration::from_millis(400)),
            200,
        );
    }
    assert_eq!(passed, 10, "of a limit for ten");
    let answer = fleet.ask(1, &key);
    assert_eq!(answer.status(), 429, "{answer:?}");
}
