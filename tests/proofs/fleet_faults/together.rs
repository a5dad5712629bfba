//! Several nodes that serve one customer at the same time.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use serde_json::json;

use super::books::{Books, amount, settlements};
use super::place::{EXACT, EXACT_PRICE, Fleet, PLENTY, Rounds, Tally, VIDEO_PRICE, pass, shared};
use crate::harness::load::{Call, Calling, Load, all_at_once};
use crate::harness::{ask, eventually};

#[test]
#[ignore = "puts a fleet under load and breaks it"]
fn of_a_thousand_calls_over_three_nodes_on_money_for_ten_exactly_ten_succeed() {
    let (server, database, url) = shared("thousand");
    let books = Books { server, database: &database };
    let mut fleet = Fleet::start(&url, None, "2s");
    Rounds::of("a thousand calls", 1).play(|_| {
        let credit = tollgate::money::Nanousd::new(EXACT_PRICE * 10).to_string();
        let customer = fleet.nodes.customer(&credit);
        let to = vec![fleet.nodes.front];
        let body = EXACT.to_owned();
        let calling = Calling { to, body, ..fleet.calling(&[&customer.key]) };
        let mut calls = all_at_once(&calling, 1000);
        // On a busy machine the treasury may be too late for some, who are told so and ask again.
        for _ in 0..5 {
            let before = calls.len();
            calls.retain(|call| call.status != 503);
            calls.extend(all_at_once(&calling, before - calls.len()));
        }
        let count = |status| calls.iter().filter(|call| call.status == status).count();
        assert_eq!((count(200), count(402)), (10, 990), "{}", Tally(&calls));
        eventually("ten on the statement", || {
            settlements(&fleet.nodes, &customer.account).len() == 10
        });
        let settled = settlements(&fleet.nodes, &customer.account);
        assert!(settled.values().all(|charged| *charged == EXACT_PRICE), "{settled:?}");
        let row = books.account(&customer.account);
        assert_eq!((row.spent, row.written_off), (EXACT_PRICE * 10, 0), "{row:?}");
    });
    fleet.nodes.stop();
    books.all_is_back();
}

#[test]
#[ignore = "puts a fleet under load and breaks it"]
fn the_same_submit_at_two_nodes_at_once_is_one_task_and_one_charge() {
    let (server, database, url) = shared("same_submit");
    let books = Books { server, database: &database };
    let mut fleet = Fleet::start(&url, None, "2s");
    let customer = fleet.nodes.customer("1000.00");
    let body = json!({
        "model": "vf2.7-t2v", "duration": 5, "resolution": "720p",
        "input": {"prompt": "a lighthouse"},
        "parameters": {"resolution": "720P", "duration": 5},
    });
    let (body, mut submitted) = (body.to_string(), 0);
    Rounds::of("same submit", 5).play(|random| {
        let request = format!(
            "POST /v1/videos/generations HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nIdempotency-Key: order-{submitted}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            customer.key,
            body.len()
        );
        submitted += 1;
        let barrier = Barrier::new(2);
        let nodes = [random.usize(0..3), random.usize(0..3)];
        let answers = std::thread::scope(|scope| {
            let asking = nodes.map(|node| {
                let (address, request) = (fleet.nodes.nodes[node].listen, request.as_bytes());
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    ask(address, request)
                })
            });
            asking.map(|query| query.join().expect("no panic"))
        });
        let taken = answers.iter().find(|answer| answer.status() == 202);
        let id = taken.unwrap_or_else(|| panic!("{answers:?}")).json()["id"].clone();
        for answer in &answers {
            let is_same = answer.status() == 202 && answer.json()["id"] == id;
            // The other one is told that it is under way.
            assert!(is_same || answer.status() == 409, "{answers:?}");
        }
        let again = ask(fleet.nodes.nodes[2].listen, request.as_bytes());
        assert_eq!((again.status(), &again.json()["id"]), (202, &id), "{again:?}");
        assert_eq!(fleet.upstream.tasks_total(), submitted, "submits at the upstream");
        let spent = i64::try_from(submitted).expect("few") * VIDEO_PRICE;
        eventually("its end", || {
            let row = books.account(&customer.account);
            row.held == 0 && row.spent == spent
        });
    });
    let charges = fleet.nodes.entries(&customer.account);
    let charges = charges.iter().filter(|entry| entry["kind"] == "settlement");
    let charges: Vec<i64> = charges.map(|entry| amount(&entry["charged"])).collect();
    assert_eq!(charges.len(), usize::try_from(submitted).expect("few"));
    assert!(charges.iter().all(|charged| *charged == VIDEO_PRICE), "{charges:?}");
    fleet.nodes.stop();
    books.all_is_back();
}

#[test]
#[ignore = "puts a fleet under load and breaks it"]
fn a_key_that_is_revoked_at_one_node_is_refused_by_all_within_a_second() {
    let (server, database, url) = shared("revoked");
    let books = Books { server, database: &database };
    let mut fleet = Fleet::start(&url, None, "2s");
    let mut worst = Duration::ZERO;
    Rounds::of("revoked", 3).play(|random| {
        let customer = fleet.nodes.customer(PLENTY);
        let (id, key) = fleet.nodes.key_of(&customer.account);
        let load = Load::start(&fleet.calling(&[&customer.key]));
        let with_key = Load::start(&fleet.calling(&[&key]));
        pass(200 + random.u64(0..500));
        let revoked = json!({"disabled": true, "expires_at": "2026-01-31T12:00:00Z"});
        let answer = fleet.nodes.nodes[0].admin("PATCH", &format!("/keys/{id}"), &revoked);
        assert_eq!(answer.status(), 200, "{answer:?}");
        let from = Instant::now();
        pass(1200);
        let calls = with_key.stop();
        let mut last: BTreeMap<usize, Instant> = BTreeMap::new();
        for call in calls.iter().filter(|call| call.status == 200) {
            let latest = last.entry(call.node).or_insert(call.at);
            *latest = (*latest).max(call.at);
        }
        assert_eq!(last.len(), 3, "all served it before: {}", Tally(&calls));
        for at in last.values() {
            worst = worst.max(at.saturating_duration_since(from));
        }
        let refused = calls.iter().filter(|call| call.status == 401).count();
        assert!(refused > 10, "{}", Tally(&calls));
        assert!(worst < Duration::from_secs(1), "{worst:?}: {}", Tally(&calls));
        let all: Vec<_> = calls.into_iter().chain(load.stop()).collect();
        books.balanced(&fleet.nodes, &customer.account, &all);
    });
    println!("revoked: the last call began {worst:?} after the answer");
    fleet.nodes.stop();
    books.all_is_back();
}

#[test]
#[ignore = "puts a fleet under load and breaks it"]
fn all_nodes_restart_one_after_the_other_and_no_customer_notices() {
    let (server, database, url) = shared("rolling");
    let books = Books { server, database: &database };
    let mut fleet = Fleet::start(&url, None, "2s");
    Rounds::of("rolling", 1).play(|_| {
        let customer = fleet.nodes.customer(PLENTY);
        let calling = Calling { to: vec![fleet.nodes.front], ..fleet.calling(&[&customer.key]) };
        let load = Load::start(&calling);
        let mut happened = Vec::new();
        for number in 0..3 {
            pass(300);
            let node = &mut fleet.nodes.nodes[number];
            happened.push((Instant::now(), format!("SIGTERM to node {number}")));
            node.signal("TERM");
            assert!(node.wait().success(), "exit 0: {}", node.log());
            happened.push((Instant::now(), format!("node {number} has ended")));
            node.verify();
            happened.push((Instant::now(), format!("node {number} starts")));
            node.start();
            node.await_ready();
            happened.push((Instant::now(), format!("node {number} is ready")));
            // HAProxy takes it in again.
            pass(1200);
        }
        let calls = load.stop();
        if let Some(failed) = calls.iter().find(|call| call.status != 200) {
            let traces = fleet.nodes.traces_of(failed.request.as_deref());
            let when = when(failed, &happened);
            panic!("{failed:?} of {}\n{when}\n{traces}", Tally(&calls));
        }
        assert!(calls.len() > 200, "there was load: {}", calls.len());
        books.balanced(&fleet.nodes, &customer.account, &calls);
    });
    fleet.nodes.stop();
    books.all_is_back();
}

/// When a call was sent and answered, between what happened meanwhile.
fn when(call: &Call, happened: &[(Instant, String)]) -> String {
    let own = [(call.at, "the call is sent".to_owned()), (call.until, "it is answered".to_owned())];
    let mut all: Vec<_> = happened.iter().chain(&own).collect();
    all.sort();
    let began = all[0].0;
    let line = |(at, what): &&(Instant, String)| format!("{:?} {what}", at.duration_since(began));
    all.iter().map(line).collect::<Vec<_>>().join("\n")
}
