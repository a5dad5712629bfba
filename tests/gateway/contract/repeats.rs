//! One wish is one video: submits that come again while the first is under way, waits, is in doubt, or
//! was answered a moment ago.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::upstream::{Upstream, UpstreamRequest, json};
use super::{VIDEOS, family_g, family_s, family_v, gateway_with, record, submit, submit_under};
use crate::harness::{Answer, Gateway, TIMEOUT, connect, eventually, let_pass, poll};

/// How long repetitions are recognised here behind the answer to the first submit.
const WINDOW: Duration = Duration::from_millis(600);
/// Longer than that.
const PAST: Duration = Duration::from_millis(900);

fn gateway(upstream: &Upstream) -> Gateway {
    gateway_with(upstream, "repeat_window: 600ms")
}

/// The answer of an upstream of the family that is asked: it takes every task, as `number`, and says of
/// each that it is being made.
fn at_work(request: &UpstreamRequest, number: u32) -> String {
    let line = &request.line;
    let document = if line.contains("/contents/generations") {
        json!({"id": format!("cgt-{number}"), "status": "running"})
    } else if line.contains("/aigc/") || line.contains("/tasks/") {
        let state = if request.is_post() { "PENDING" } else { "RUNNING" };
        json!({"request_id": "r", "output": {"task_id": format!("t-{number}"), "task_status": state}})
    } else if request.is_post() {
        json!({"request_id": format!("x-{number}")})
    } else {
        json!({"status": "pending"})
    };
    json(200, &document.to_string())
}

/// An upstream that takes so long for a submit, and does not end a task.
fn slow(time: Duration) -> Upstream {
    let number = AtomicU32::new(0);
    Upstream::start(move |request| {
        if request.is_post() {
            sleep(time);
        }
        at_work(request, number.fetch_add(u32::from(request.is_post()), Ordering::Relaxed))
    })
}

/// Sends a submit and does not read the answer. The client disconnects when the connection is dropped.
fn begin(gateway: &Gateway, body: &Value) -> TcpStream {
    let body = body.to_string();
    let request = gateway.post(VIDEOS, &format!("Content-Length: {}\r\n", body.len()), &body);
    let mut connection = connect(gateway.address);
    connection.write_all(&request).expect("sent");
    connection
}

/// Repeats a submit until the window is over and it is accepted as another one.
fn submit_after_window(gateway: &Gateway, body: &Value) {
    poll("the window is over", TIMEOUT, || {
        let answer = submit(gateway, body);
        if answer.status() < 300 { Ok(()) } else { Err(answer) }
    });
}

fn conflict(answer: &Answer) -> String {
    let error = &answer.json()["error"];
    let code = &error["code"];
    assert_eq!((answer.status(), code), (409, &json!("idempotency_conflict")), "{answer:?}");
    assert_eq!(answer.header("x-should-retry").as_deref(), Some("false"), "{answer:?}");
    error["message"].as_str().expect("a message").to_owned()
}

/// The id of the task that a conflict names. It is one that its customer can read.
fn named(gateway: &Gateway, answer: &Answer) -> String {
    let message = conflict(answer);
    let rest = message.split_once("as the task ").unwrap_or_else(|| panic!("{message}")).1;
    let id = rest.split([',', ' ', '.']).next().expect("an id").to_owned();
    let read = record(gateway, &id);
    assert_eq!((read.status(), &read.json()["id"]), (200, &json!(id)), "{message}");
    id
}

/// A customer whose patience ends before the upstream has answered.
#[test]
fn a_slow_submit_is_not_begun_again_while_it_is_under_way() {
    for body in [family_v(), family_s(), family_g()] {
        let upstream = slow(Duration::from_millis(2500));
        let gateway = gateway(&upstream);
        let first = begin(&gateway, &body);
        eventually("the first is submitted", || upstream.posts().len() == 1);
        let_pass(PAST, "the window is over while the submit is under way");
        drop(first);
        let again = submit(&gateway, &body);
        let id = named(&gateway, &again);
        assert_eq!(upstream.posts().len(), 1, "one video for one wish: {body}");
        // Counted from the answer to the first, which lies behind it by nothing.
        assert_eq!(named(&gateway, &submit(&gateway, &body)), id);
        let mut other = body.clone();
        other["duration"] = json!(6);
        if !body["parameters"].is_null() {
            other["parameters"]["duration"] = json!(6);
        }
        let answer = submit(&gateway, &other);
        assert!(answer.status() < 300, "another wish: {answer:?}");
        submit_after_window(&gateway, &body);
        assert_eq!(upstream.posts().len(), 3, "wanted once more: {body}");
    }
}

/// A customer who waits for the end has no answer before it: the wait counts, also one that was given up.
#[test]
fn a_submit_that_waits_is_not_begun_again() {
    for body in [family_v(), family_s(), family_g()] {
        let upstream = slow(Duration::ZERO);
        let gateway = gateway(&upstream);
        let mut waiting = body.clone();
        waiting["wait"] = json!(true);
        let first = begin(&gateway, &waiting);
        eventually("the first is submitted", || upstream.posts().len() == 1);
        let_pass(PAST, "the window, counted from the submit and not from the answer, is over");
        named(&gateway, &submit(&gateway, &waiting));
        drop(first);
        // The customer has left just now, and asks again with patience or without.
        named(&gateway, &submit(&gateway, &waiting));
        named(&gateway, &submit(&gateway, &body));
        assert_eq!(upstream.posts().len(), 1, "one video for one wish: {body}");
        submit_after_window(&gateway, &body);
        assert_eq!(upstream.posts().len(), 2, "wanted once more: {body}");
    }
}

/// Whoever meant two clicks as one finds one; all read which task it is.
#[test]
fn of_many_submits_at_one_time_one_is_made() {
    for body in [family_v(), family_s(), family_g()] {
        for name in [None, Some("clicked")] {
            let upstream = slow(Duration::from_millis(300));
            let gateway = gateway(&upstream);
            let answers: Vec<Answer> = thread::scope(|scope| {
                let click = || match name {
                    None => submit(&gateway, &body),
                    Some(name) => submit_under(&gateway, name, &body),
                };
                let clicks: Vec<_> = (0..6).map(|_| scope.spawn(click)).collect();
                clicks.into_iter().map(|click| click.join().expect("no panic")).collect()
            });
            assert_eq!(upstream.posts().len(), 1, "one video: {answers:?}");
            let (taken, refused): (Vec<_>, Vec<_>) =
                answers.iter().partition(|answer| answer.status() < 300);
            if name.is_some() {
                assert!(refused.is_empty(), "the first answer again: {refused:?}");
                assert!(taken.iter().all(|answer| answer.body() == taken[0].body()), "{taken:?}");
                continue;
            }
            assert_eq!(taken.len(), 1, "{answers:?}");
            for answer in refused {
                assert_eq!(json!(named(&gateway, answer)), taken[0].json()["id"]);
            }
        }
    }
}

/// Under a name a repetition waits for the first answer, and gets the same.
#[test]
fn a_name_gets_the_first_answer_also_while_that_is_under_way() {
    for body in [family_v(), family_s(), family_g()] {
        let upstream = slow(Duration::from_millis(1500));
        let gateway = gateway(&upstream);
        let (first, again, other) = thread::scope(|scope| {
            let first = scope.spawn(|| submit_under(&gateway, "order-1", &body));
            eventually("the first is submitted", || upstream.posts().len() == 1);
            let another = json!({"model": "gif-video", "prompt": "another", "duration": 3});
            let other = submit_under(&gateway, "order-1", &another);
            let again = submit_under(&gateway, "order-1", &body);
            (first.join().expect("no panic"), again, other)
        });
        assert!(first.status() < 300, "{first:?}");
        assert_eq!((again.status(), again.body()), (first.status(), first.body()));
        assert!(conflict(&other).contains("another request"), "{other:?}");
        let_pass(PAST, "names outlast the window");
        let late = submit_under(&gateway, "order-1", &body);
        assert_eq!((late.status(), late.body()), (first.status(), first.body()), "a day long");
        assert_eq!(upstream.posts().len(), 1, "{body}");
    }
}

/// Nobody knows whether the upstream took the first: what repeats it could be a second video, until that
/// is known, whatever becomes of the process.
#[test]
fn a_submit_in_doubt_is_not_begun_again() {
    for (body, has_id) in [(family_v(), true), (family_s(), false), (family_g(), true)] {
        let upstream = Upstream::start(|_| String::new());
        let mut gateway = gateway(&upstream);
        assert_eq!(submit(&gateway, &body).status(), 504, "{body}");
        for after in ["at once", "later", "by another process"] {
            let again = submit(&gateway, &body);
            let message = conflict(&again);
            assert!(
                message.contains("not known whether its upstream took it"),
                "{after}: {message}"
            );
            // Family S has an id from its upstream alone.
            assert_eq!(message.contains("gt_"), has_id, "{after}: {message}");
            if has_id {
                named(&gateway, &again);
            }
            match after {
                "at once" => let_pass(PAST, "a doubt outlasts the window"),
                "later" => gateway.kill_and_restart(),
                _ => assert_eq!(upstream.posts().len(), 1, "{body}"),
            }
        }
        for _ in 0..2 {
            let under = submit_under(&gateway, "mine", &body);
            assert_eq!(under.status(), 504, "{under:?}");
            assert_eq!(under.header("x-should-retry").as_deref(), Some("false"), "{under:?}");
        }
        assert_eq!(upstream.posts().len(), 2, "one more that was wanted: {body}");
        assert_eq!(gateway.balance()["spent"], "0.00");
        // The operator finds that it came to nothing.
        let doubts = gateway.admin("GET", "/admin/v1/tasks/in-doubt", &Value::Null);
        for doubt in doubts["data"].as_array().expect("a list") {
            let path = format!("/admin/v1/tasks/{}/resolve", doubt["id"].as_str().expect("an id"));
            gateway.admin("POST", &path, &json!({"action": "void"}));
        }
        assert_eq!(submit(&gateway, &body).status(), 504, "tried again: {body}");
        assert_eq!(upstream.posts().len(), 3, "{body}");
    }
}

/// A submit that no upstream accepted blocks nothing, however many requests wait for it.
#[test]
fn a_submit_that_came_to_nothing_gives_way_to_the_next() {
    let number = AtomicU32::new(0);
    let upstream = Upstream::start(move |request| {
        if !request.is_post() {
            return at_work(request, 0);
        }
        sleep(Duration::from_millis(800));
        match number.fetch_add(1, Ordering::Relaxed) {
            0 => json(400, r#"{"error":{"code":"InvalidParameter","message":"of its own"}}"#),
            number => at_work(request, number),
        }
    });
    let gateway = gateway(&upstream);
    for (name, seed, statuses) in [(None, 1, (400, 200)), (Some("order-2"), 2, (200, 200))] {
        let send = |body: &Value| match name {
            None => submit(&gateway, body),
            Some(name) => submit_under(&gateway, name, body),
        };
        let mut body = family_s();
        body["seed"] = json!(seed);
        let before = upstream.posts().len();
        let (second, first) = thread::scope(|scope| {
            let first = scope.spawn(|| send(&body));
            eventually("the first is submitted", || upstream.posts().len() > before);
            (send(&body), first.join().expect("no panic"))
        });
        assert_eq!((first.status(), second.status()), statuses, "{first:?} {second:?}");
    }
    assert_eq!(upstream.posts().len(), 3);
}

/// `kill -9` while a submit is under way, while it waits, and right behind its answer.
#[test]
fn a_crash_between_a_submit_and_its_repetition_makes_no_second_video() {
    let body = family_g();
    let mut waiting = body.clone();
    waiting["wait"] = json!(true);
    for (time, body) in
        [(Duration::from_secs(60), &body), (Duration::ZERO, &waiting), (Duration::ZERO, &body)]
    {
        let upstream = Arc::new(slow(time));
        let mut gateway = gateway_with(&upstream, "repeat_window: 5s");
        let _first = begin(&gateway, body);
        // A task is polled once its id is on disk.
        eventually("the first is submitted", || match time.is_zero() {
            true => !upstream.looks().is_empty(),
            false => upstream.posts().len() == 1,
        });
        gateway.kill_and_restart();
        named(&gateway, &submit(&gateway, body));
        assert_eq!(upstream.posts().len(), 1, "{body}");
    }
}

/// Without a window only names count.
#[test]
fn without_a_window_every_submit_is_another_video() {
    let upstream = slow(Duration::from_millis(200));
    let gateway = gateway_with(&upstream, "repeat_window: none");
    let began = Instant::now();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert_eq!(submit(&gateway, &family_v()).status(), 202));
        }
    });
    eventually("both are made", || upstream.posts().len() == 2);
    assert!(began.elapsed() < WINDOW * 10, "none waits for the other");
}
