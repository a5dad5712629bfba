//! Limits of a fleet on a real database, in one process: what a key may spend is spent once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::harness::fleet;
use crate::harness::let_pass_async;
use crate::harness::postgres::{Cut, Postgres};
use tollgate::fleet::HasFleet;
use tollgate::fleet::node;
use tollgate::ledger::{
    AccountId, KeyId, KeyLimits, KeyLimitsPatch, KeyPatch, Ledger, NewKey, Refusal, Reserve,
};
use tollgate::limits::Limiter;

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
        let limits = Arc::new(Limiter::new().shared());
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
    crate::harness::eventually("the end of the calls is told", || {
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
    crate::harness::eventually("all is reported", || {
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
    crate::harness::eventually("the treasury is back", || {
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
    let_pass_async(
        Duration::from_millis(2500),
        "the key is idle for long enough, and the node reports it in vain",
    )
    .await;
    Postgres::shared().accept_connections(&database, true);
    let sums = "SELECT sum(share), sum(spent), sum(held) FROM tollgate.cap_shares";
    crate::harness::eventually("the node has told what it spent, and keeps no more", || {
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
        let limits = Arc::new(Limiter::new().shared());
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
