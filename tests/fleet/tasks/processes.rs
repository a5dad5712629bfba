//! Three gateways, each a process of its own, that share tasks.

use std::time::Duration;

use serde_json::{Value, json};
use tollgate::sim::{Sim, SimOptions};

use super::member::TIMEOUT;
use crate::harness::fleet::make_schema;
use crate::harness::postgres::{Postgres, Stop};
use crate::harness::{Answer, Gateway, ask, let_pass, poll, videos};

const PATH: &str = "/v1/videos/generations";

/// A gateway that is a node of the fleet.
fn start(url: &str, sim: &Sim) -> Gateway {
    let (upstreams, models) = videos(sim, "task-pending-ms=20;task-running-ms=1500");
    Gateway::node(url, &upstreams, models)
}

fn send(node: &Gateway, head: &str, key: &str, body: &str) -> Answer {
    let mark = if body.contains("marked") { "Idempotency-Key: one\r\n" } else { "" };
    let request = format!(
        "{head} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {key}\r\n{mark}\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    ask(node.address, request.as_bytes())
}

fn submit(node: &Gateway, key: &str, prompt: &str) -> Answer {
    let body = json!({"model": "gif-video", "prompt": prompt, "duration": 2});
    send(node, &format!("POST {PATH}"), key, &body.to_string())
}

fn record(node: &Gateway, key: &str, id: &str) -> Answer {
    send(node, &format!("GET {PATH}/{id}"), key, "")
}

/// Repeats a request until its answer is as expected.
fn until<T: std::fmt::Debug>(
    what: &str,
    mut look: impl FnMut() -> T,
    is_so: impl Fn(&T) -> bool,
) -> T {
    poll(what, TIMEOUT, || {
        let seen = look();
        if is_so(&seen) { Ok(seen) } else { Err(seen) }
    })
}

#[test]
fn a_fleet_answers_for_its_tasks_and_ends_those_of_a_killed_node() {
    let server = Postgres::start();
    let (name, url) = server.database("processes");
    tokio::runtime::Runtime::new().expect("a runtime").block_on(make_schema(&url));
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let [mut a, b, c] = [(); 3].map(|()| start(&url, &sim));
    let (account, key) = (a.account.clone(), a.key.clone());
    let stranger = &b.key;

    let taken =
        until("money", || submit(&a, &key, "a lighthouse"), |answer| answer.status() == 202);
    let id = taken.json()["id"].as_str().expect("an id").to_owned();
    for node in [&b, &c] {
        let existing = |answer: &Answer| answer.status() != 401;
        let own = until("the key", || record(node, &key, &id), existing);
        assert_eq!(own.status(), 200, "{own:?}");
        assert_eq!(own.json()["id"], json!(id));
        let theirs = until("the key", || record(node, stranger, &id), existing);
        let unknown = record(node, stranger, "gt_00000000000000000000000000000000");
        assert_eq!(
            (theirs.status(), theirs.body()),
            (404, unknown.body()),
            "as if there were none"
        );
    }
    a.kill();
    let ended = |answer: &Answer| answer.status() == 200 && answer.json()["status"] == "succeeded";
    for node in [&b, &c] {
        until("the end", || record(node, &key, &id), ended);
    }
    // What the killed node had out beside is in suspense.
    let sums = format!("SELECT held, spent FROM tollgate.accounts WHERE id = '{account}'");
    until("the money", || server.sql(&name, &sums), |sums| sums == "0|140000000");
    let statement = format!("/admin/v1/accounts/{account}/entries");
    let statement = c.admin("GET", &statement, &Value::Null).to_string();
    assert!(statement.contains("settlement"), "{statement}");

    // The same submit to two nodes at one time.
    let both = std::thread::scope(|scope| {
        let submits = [&b, &c].map(|node| scope.spawn(|| submit(node, &key, "marked")));
        submits.map(|submit| submit.join().expect("no panic"))
    });
    let [one, other] = &both;
    assert_eq!((one.status(), one.body()), (202, other.body()), "the first answer twice: {both:?}");
    assert_eq!(sim.tasks().len(), 2, "one task more");

    server.stop(Stop::Fast);
    let refused = submit(&b, &key, "a lighthouse");
    assert_eq!(refused.status(), 503, "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert_eq!(record(&b, &key, &id).status(), 503);
    assert_eq!(sim.tasks().len(), 2, "the upstream was not asked");
    server.start_again();
    until("a submit", || submit(&b, &key, "a lighthouse"), |answer| answer.status() == 202);
    until("the money", || server.sql(&name, &sums), |sums| sums == "0|420000000");
    let account = c.admin("GET", &format!("/admin/v1/accounts/{account}"), &Value::Null);
    assert_eq!(account["balance"]["spent"], "0.42");
}

/// A wish that comes again at another node, or behind the death of the node that it was told first.
#[test]
fn one_wish_is_one_video_at_any_node() {
    let server = Postgres::start();
    let (name, url) = server.database("wishes");
    tokio::runtime::Runtime::new().expect("a runtime").block_on(make_schema(&url));
    let sim = Sim::start(SimOptions::default()).expect("a simulator");
    let with = |behaviour: &str| {
        let (upstreams, models) = videos(&sim, behaviour);
        let upstreams = upstreams.replace("repeat_window: none", "repeat_window: 1s");
        Gateway::node(&url, &upstreams, models)
    };
    let slow = "task-running-ms=60000;delay-ms=2500";
    let [mut a, b] = [with(slow), with(slow)];
    let lost = with("fault=submit-reset");
    let key = a.key.clone();
    for node in [&b, &lost] {
        until("the key", || record(node, &key, "gt_none").status(), |status| *status == 404);
    }
    let id = |answer: &Answer| answer.json()["id"].as_str().unwrap_or_default().to_owned();
    let names = |answer: &Answer, id: &str| {
        let text = String::from_utf8_lossy(&answer.body()).into_owned();
        assert_eq!(answer.status(), 409, "{text}");
        assert!(text.contains(&format!("as the task {id}")), "{id}: {text}");
    };

    let paid = |node: &Gateway, prompt: &str| {
        let has_money = |answer: &Answer| ![402, 503].contains(&answer.status());
        until("money", || submit(node, &key, prompt), has_money)
    };
    assert_eq!(paid(&a, "a calm").status(), 202);

    // While it is under way for longer than the window, and right behind it.
    let (second, first) = std::thread::scope(|scope| {
        let first = scope.spawn(|| paid(&a, "a tide"));
        let_pass(Duration::from_millis(1800), "the window, counted from the submit, is over");
        (submit(&b, &key, "a tide"), first.join().expect("no panic"))
    });
    assert_eq!(first.status(), 202, "{first:?}");
    names(&second, &id(&first));
    names(&submit(&b, &key, "a tide"), &id(&first));
    assert_eq!(sim.tasks().len(), 2, "one video");
    until("the end of the window", || paid(&b, "a tide"), |answer| answer.status() == 202);
    assert_eq!(sim.tasks().len(), 3, "wanted once more");

    // The answer was lost.
    assert_eq!(paid(&lost, "a gale").status(), 504);
    let_pass(Duration::from_millis(1200), "a doubt outlasts the window");
    names(&submit(&b, &key, "a gale"), "gt_");
    assert_eq!(sim.tasks().len(), 4);

    // The node is gone in the middle of it, which the others find out when its term is over.
    let body = json!({"model": "gif-video", "prompt": "a wreck", "duration": 2}).to_string();
    let request = a.post(PATH, &format!("Content-Length: {}\r\n", body.len()), &body);
    let mut stream = std::net::TcpStream::connect(a.address).expect("a node");
    std::io::Write::write_all(&mut stream, &request).expect("sent");
    let marks = format!("SELECT count(*) FROM tollgate.submits WHERE account = '{}'", a.account);
    until("the record of the submit", || server.sql(&name, &marks), |count| count == "4");
    let_pass(Duration::from_secs(1), "the submit has reached its upstream, which shows nowhere");
    a.kill();
    let again = submit(&b, &key, "a wreck");
    names(&again, "gt_");
    // The simulator forgets a submit whose connection ends before its answer: a second one would be the
    // fifth task.
    assert_eq!(sim.tasks().len(), 4, "nobody sends it again");
    assert_eq!(server.sql(&name, &marks), "4", "one for each wish");
}
