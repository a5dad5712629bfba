//! Limits of a fleet: three gateways on a real database let through what one would, and no more.

mod harness;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use harness::postgres::{Cut, Postgres};
use harness::{Answer, Gateway, ask, chat_model, fleet};
use serde_json::{Value, json};
use tollgate::fleet::node;
use tollgate::ledger::{
    AccountId, KeyId, KeyLimits, KeyLimitsPatch, KeyPatch, Ledger, NewKey, Refusal, Reserve,
};
use tollgate::limits::Limits;
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
struct Fleet {
    nodes: Vec<Gateway>,
    database: String,
}

impl Fleet {
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
            harness::eventually("the key is known", || {
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
    fleet: &Fleet,
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
fn requests_a_minute_hold_over_three_nodes_and_are_used() {
    const LIMIT: usize = 120;
    const TIME: Duration = Duration::from_secs(30);
    let upstream = Upstream::start(Duration::ZERO);
    let fleet = Fleet::start("requests", upstream.address);
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
fn tokens_a_minute_hold_over_three_nodes() {
    let upstream = Upstream::start(Duration::ZERO);
    let fleet = Fleet::start("tokens", upstream.address);
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
fn places_are_shared_by_three_nodes() {
    for places in [3, 5] {
        let upstream = Upstream::start(Duration::from_millis(100));
        let fleet = Fleet::start("places", upstream.address);
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
fn a_first_request_is_let_through_wherever_it_comes() {
    let upstream = Upstream::start(Duration::ZERO);
    let fleet = Fleet::start("first", upstream.address);
    for round in 0..5 {
        let key = fleet.key(&json!({"requests_per_minute": 60, "concurrent_requests": 3}));
        for node in [0, 1, 2, 0, 1, 2] {
            let answer = fleet.ask(node, &key);
            assert_eq!(answer.status(), 200, "round {round}, node {node}: {answer:?}");
        }
    }
}

#[test]
fn what_a_dead_node_had_comes_back_after_its_terms() {
    let upstream = Upstream::start(Duration::ZERO);
    let mut fleet = Fleet::start("dead", upstream.address);
    let key = fleet.key(&json!({"requests_per_minute": 6000}));
    let time = Duration::from_secs(3);
    load(&fleet, &key, [4, 0, 0], Duration::ZERO, time);
    let shares = "SELECT coalesce(sum(share), 0) FROM tollgate.limit_shares \
                  WHERE node = 1 AND until > now()";
    let has = |fleet: &Fleet| -> u32 {
        Postgres::shared().sql(&fleet.database, shares).parse().expect("a number")
    };
    assert!(has(&fleet) > 0, "the first node has some of it");
    let killed = Instant::now();
    fleet.nodes[0].kill();
    assert!(has(&fleet) > 0, "nobody knows yet");
    // Twice a lease of two seconds, and what the database took.
    while has(&fleet) > 0 {
        assert!(killed.elapsed() < Duration::from_secs(8), "{} are lost", has(&fleet));
        std::thread::sleep(Duration::from_millis(50));
    }
    let statuses = load(&fleet, &key, [0, 4, 0], Duration::ZERO, time);
    assert!(count(&statuses, 200) > 100, "{} were let through", count(&statuses, 200));
    let all = "SELECT sum(share) + (SELECT sum(units) FROM tollgate.limits) \
               FROM tollgate.limit_shares WHERE until > now()";
    assert_eq!(Postgres::shared().sql(&fleet.database, all), "6000", "nothing is lost");
}

#[test]
fn a_daily_limit_for_ten_calls_lets_exactly_ten_through() {
    let upstream = Upstream::start(Duration::from_millis(30));
    let fleet = Fleet::start("cap", upstream.address);
    let free = fleet.key(&json!({}));
    let spent = || -> i64 {
        let balance = fleet.nodes[0].balance();
        let spent = balance["spent"].as_str().expect("a text");
        spent.parse::<Nanousd>().expect("an amount").get()
    };
    let before = spent();
    assert_eq!(fleet.ask(0, &free).status(), 200);
    harness::eventually("the call is charged", || spent() > before);
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

// Below, ledgers in this process.

async fn limited(nodes: &fleet::InProcess, per_day: i64) -> (AccountId, KeyId) {
    let account = nodes.account_with(1_000_000).await;
    let limits = KeyLimits { spend_per_day: Some(fleet::money(per_day)), ..KeyLimits::default() };
    let new = NewKey { name: "limited".into(), limits, ..NewKey::default() };
    let key = nodes.ledgers[0].create_key(account, new).await.expect("a key").1.id;
    for ledger in &nodes.ledgers {
        ledger.catch_up().await.expect("follows");
    }
    (account, key)
}

/// Nodes whose shares of limits are exchanged.
async fn sharing(url: &str, count: usize) -> (fleet::InProcess, tokio::sync::watch::Sender<bool>) {
    let nodes = fleet::InProcess::start(url, count).await;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    for ledger in &nodes.ledgers {
        let limits = Arc::new(Limits::new().shared());
        tokio::spawn(node::share::share(Arc::clone(ledger), limits, stopped.clone()));
    }
    (nodes, stop)
}

fn call((account, key): (AccountId, KeyId), amount: i64) -> Reserve {
    Reserve { key, ..fleet::reserve(account, amount) }
}

async fn pays(ledger: &Arc<Ledger>, of: (AccountId, KeyId), amount: i64) -> bool {
    match ledger.admit(call(of, amount)).await {
        Ok(hold) => {
            hold.post(fleet::cost(amount));
            true
        }
        Err(Refusal::Capped(_)) => false,
        Err(other) => panic!("a call was refused with {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn exactly_what_a_key_may_spend_is_spent_however_it_comes() {
    let (_, url) = Postgres::shared().database("caps");
    let (nodes, stop) = sharing(&url, 3).await;
    for round in 0..5 {
        let of = limited(&nodes, 10_000).await;
        let calls: Vec<_> = (0..90)
            .map(|n| {
                let ledger = Arc::clone(&nodes.ledgers[n % 3]);
                tokio::spawn(async move { pays(&ledger, of, 1000).await })
            })
            .collect();
        let mut passed = 0;
        for call in calls {
            passed += usize::from(call.await.expect("no panic"));
        }
        assert_eq!(passed, 10, "calls let through in round {round}");
    }
    stop.send_replace(true);
    nodes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_a_node_does_not_use_of_a_limit_is_spent_elsewhere() {
    let (database, url) = Postgres::shared().database("moves");
    let (nodes, stop) = sharing(&url, 3).await;
    let of = limited(&nodes, 10_000).await;
    let [first, second, third] = &nodes.ledgers[..] else { panic!("three") };
    let mut holds = Vec::new();
    for _ in 0..5 {
        holds.push(first.admit(call(of, 2000)).await.expect("five of them fit"));
    }
    let refused = second.admit(call(of, 1)).await.expect_err("all of it is held");
    assert!(
        matches!(refused, Refusal::Capped(capped) if capped.held.get() >= 9_999),
        "{refused:?}"
    );
    for hold in holds {
        hold.post(fleet::cost(1000));
    }
    // Half of it was not needed after all, as the others hear half a second later.
    let held = "SELECT sum(held) FROM tollgate.cap_shares";
    harness::eventually("the end of the calls is told", || {
        Postgres::shared().sql(&database, held) == "0"
    });
    for n in 0..5 {
        let ledger = if n % 2 == 0 { second } else { third };
        assert!(pays(ledger, of, 1000).await, "call {n}");
    }
    for ledger in &nodes.ledgers {
        assert!(!pays(ledger, of, 1).await, "nothing is left");
    }
    // A higher limit counts at once, and a lower one for what comes.
    let raise = |to| {
        let limits = KeyLimitsPatch {
            spend_per_day: Some(Some(fleet::money(to))),
            ..KeyLimitsPatch::default()
        };
        KeyPatch { limits, ..KeyPatch::default() }
    };
    first.update_key(of.1, raise(12_000)).await.expect("raised");
    second.catch_up().await.expect("follows");
    assert!(pays(second, of, 2000).await, "of two more");
    assert!(!pays(second, of, 1).await);
    let sums = "SELECT sum(share), sum(spent) FROM tollgate.cap_shares";
    harness::eventually("all is reported", || {
        Postgres::shared().sql(&database, sums) == "12000|12000"
    });
    stop.send_replace(true);
    nodes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn without_the_database_a_key_spends_what_its_node_has_and_no_more() {
    let postgres = Postgres::start();
    let cut = Cut::before(postgres.port());
    let url = cut.url(&postgres.url());
    let (nodes, stop) = sharing(&url, 2).await;
    let of = limited(&nodes, 10_000).await;
    let ledger = &nodes.ledgers[0];
    // Some of what was held comes back, and is this node's for the moment.
    let hold = ledger.admit(call(of, 4000)).await.expect("it fits");
    cut.cut();
    hold.post(fleet::cost(1000));
    assert!(pays(ledger, of, 1000).await, "the node has it");
    let begun = Instant::now();
    let refused = ledger.admit(call(of, 4000)).await.expect_err("nobody can say");
    assert!(matches!(refused, Refusal::CutOff), "{refused:?}: 503 rather than 429");
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    cut.resume();
    harness::eventually("the treasury is back", || {
        ledger.fleet().is_some_and(|fleet| fleet.may_spend())
    });
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        match ledger.admit(call(of, 4000)).await {
            Ok(hold) => {
                hold.post(fleet::cost(4000));
                break;
            }
            Err(Refusal::CutOff) if Instant::now() < until => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    stop.send_replace(true);
    nodes.stop().await;
}

/// The database is away just when a key's calls end, and nobody uses it any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_a_node_gives_up_while_nobody_hears_is_spent_elsewhere_later() {
    let (database, url) = Postgres::shared().database("unheard");
    let (nodes, stop) = sharing(&url, 2).await;
    let of = limited(&nodes, 10_000).await;
    let [first, second] = &nodes.ledgers[..] else { panic!("two") };
    let mut holds = Vec::new();
    for _ in 0..5 {
        holds.push(first.admit(call(of, 2000)).await.expect("five of them fit"));
    }
    Postgres::shared().accept_connections(&database, false);
    for hold in holds {
        hold.post(fleet::cost(1000));
    }
    // Long enough for the key to be idle, and for the node to say so in vain.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    Postgres::shared().accept_connections(&database, true);
    let sums = "SELECT sum(share), sum(spent), sum(held) FROM tollgate.cap_shares";
    harness::eventually("the node has told what it spent, and keeps no more", || {
        Postgres::shared().sql(&database, sums) == "5000|5000|0"
    });
    for n in 0..5 {
        assert!(pays(second, of, 1000).await, "call {n}");
    }
    assert!(!pays(second, of, 1).await, "nothing is left");
    stop.send_replace(true);
    nodes.stop().await;
}

/// A node is stopped right after a key's calls: it did not need all that it had of the key's limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_a_node_that_stops_has_left_of_a_limit_is_spent_elsewhere() {
    let (database, url) = Postgres::shared().database("stops");
    let nodes = fleet::InProcess::start(&url, 2).await;
    let share = |ledger: &Arc<Ledger>| {
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let limits = Arc::new(Limits::new().shared());
        (stop, tokio::spawn(node::share::share(Arc::clone(ledger), limits, stopped)))
    };
    let [first, second] = &nodes.ledgers[..] else { panic!("two") };
    let ((stop, sharing), (stop_second, _)) = (share(first), share(second));
    let of = limited(&nodes, 10_000).await;
    let mut holds = Vec::new();
    for _ in 0..5 {
        holds.push(first.admit(call(of, 2000)).await.expect("five of them fit"));
    }
    for hold in holds {
        hold.post(fleet::cost(1000));
    }
    stop.send_replace(true);
    sharing.await.expect("it ends");
    let sums = "SELECT sum(share), sum(spent), sum(held) FROM tollgate.cap_shares";
    assert_eq!(Postgres::shared().sql(&database, sums), "5000|5000|0");
    for n in 0..5 {
        assert!(pays(second, of, 1000).await, "call {n}");
    }
    assert!(!pays(second, of, 1).await, "nothing is left");
    stop_second.send_replace(true);
    nodes.stop().await;
}
