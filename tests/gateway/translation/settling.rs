//! Translated calls end as untranslated ones do: the same upstream, the same script, the same entry in the
//! ledger, whatever breaks and whoever leaves.

use std::io::Write as _;

use serde_json::{Value, json};
use tollgate::sim::Sim;

use super::wire::Customer;
use super::{call, cells_with_natives, gateway};
use crate::harness::{Answer, Gateway, ask, connect, eventually, read_events, simulator};

/// The customer whose own dialect the model's upstream speaks.
pub(super) fn native(model: &str) -> Customer {
    match model {
        "on-chat" => Customer::Chat,
        "on-messages" => Customer::Messages,
        _ => Customer::Responses,
    }
}

/// How the last call ended, without what differs between two prompts that say the same: the kind of its
/// entry, how its usage is known, and what it put out.
fn ending(gateway: &Gateway) -> (String, String, u64) {
    gateway.settled();
    let path = format!("/admin/v1/accounts/{}/entries?limit=100", gateway.account);
    let entries = gateway.admin("GET", &path, &Value::Null)["data"].clone();
    let ends = ["settlement", "void", "in_doubt"];
    let is_end = |entry: &&Value| ends.contains(&entry["kind"].as_str().unwrap_or_default());
    let entries = entries.as_array().expect("entries");
    let last = entries.iter().filter(is_end).max_by_key(|entry| entry["seq"].as_u64());
    let last = last.unwrap_or_else(|| panic!("no end in {entries:?}"));
    let word = |field: &str| last[field].as_str().unwrap_or_default().to_owned();
    (word("kind"), word("usage_source"), last["usage"]["output_tokens"].as_u64().unwrap_or(0))
}

/// Faults of upstreams, with further fields of the models: models without hidden reasoning are billed by what
/// was seen.
const BREAKS: [(&str, &str); 18] = [
    ("cut-after=1", ""),
    ("cut-after=11", ""),
    ("cut-after=4", SHOWS_ALL),
    ("eof-after=1", ""),
    ("eof-after=7", SHOWS_ALL),
    ("error-after=1", SHOWS_ALL),
    ("error-after=6", ""),
    ("garbage", ""),
    ("usage-missing", ""),
    ("usage-missing", SHOWS_ALL),
    ("usage-negative", SHOWS_ALL),
    ("usage-twice", ""),
    ("usage-early", ""),
    ("usage-late", ""),
    ("done-missing", ""),
    ("error-in-200", ""),
    ("reset-after-body", ""),
    ("status=500", ""),
];
const SHOWS_ALL: &str = "    reasoning: false\n";

#[test]
fn an_upstream_that_breaks_off_is_settled_as_for_its_own_customers() {
    let sim = simulator(&["chunks=12"]);
    for (fault, more) in BREAKS {
        for (customer, model) in cells_with_natives() {
            // One for each cell: after some failures an upstream is left alone.
            let gateway = gateway(sim.addr(), &format!("/sim:chunks=12;fault={fault}"), more);
            for stream in [true, false] {
                let native = native(model);
                let answer = call(&gateway, native, &native.body(model, stream));
                let expected = (answer.status(), ending(&gateway));
                let answer = call(&gateway, customer, &customer.body(model, stream));
                let ended = (answer.status(), ending(&gateway));
                let what = format!("{customer:?} {model} {fault} {stream} {more}: {answer:?}");
                let breaks = ["cut", "eof", "garbage"].iter().any(|it| fault.starts_with(it));
                if breaks && !stream {
                    // Its own customers may be passed a beginning; others have got nothing by then.
                    assert_eq!((ended.0, ended.1), (502, expected.1), "{what}");
                } else if fault == "error-in-200" {
                    // Whether the head has gone out when the body shows it is a matter of moments.
                    assert_eq!(ended.1, expected.1, "{what}");
                } else if fault == "status=500" {
                    // Its own customers read the upstream's status.
                    assert_eq!((ended.0, ended.1), (502, expected.1), "{what}");
                } else {
                    assert_eq!(ended, expected, "{what}");
                }
            }
        }
    }
}

/// Sends a call and disconnects after so many events, at the earliest when the upstream has the call.
fn call_and_leave(
    (gateway, sim): (&Gateway, &Sim),
    customer: Customer,
    body: &Value,
    events: usize,
) {
    let before = sim.requests_total();
    let (path, body) = customer.request(body);
    let lines = format!("Content-Length: {}\r\n", body.len());
    let mut connection = connect(gateway.address);
    connection.write_all(&gateway.post(&path, &lines, &body)).expect("sent");
    eventually("the upstream has the call", || sim.requests_total() > before);
    read_events(&mut connection, events);
}

#[test]
fn a_customer_who_leaves_is_charged_as_in_the_upstreams_own_dialect() {
    let sim = simulator(&[]);
    for (more, is_shown) in [("", false), ("    reasoning: false\n", true)] {
        let gateway = gateway(sim.addr(), "/sim:delay-ms=150;chunks=20;interval-ms=10", more);
        for (customer, model) in cells_with_natives() {
            for events in [0, 1, 9] {
                let native = native(model);
                call_and_leave((&gateway, &sim), native, &native.body(model, true), events);
                let expected = ending(&gateway);
                call_and_leave((&gateway, &sim), customer, &customer.body(model, true), events);
                let ended = ending(&gateway);
                let what =
                    format!("{customer:?} {model} after {events} {more}: {ended:?}, {expected:?}");
                assert_eq!((&ended.0, &ended.1), (&expected.0, &expected.1), "{what}");
                // What is seen of a model that shows all depends on the moment.
                let apart = ended.2.abs_diff(expected.2);
                assert!(apart == 0 || is_shown && events > 0 && apart <= 20, "{what}");
            }
        }
    }
}

/// A key of an account with this much.
fn poor(gateway: &Gateway, credit: &str) -> (String, String) {
    let account = gateway.admin("POST", "/admin/v1/accounts", &json!({"name": "poor"}));
    let account = account["id"].as_str().expect("an id").to_owned();
    let path = format!("/admin/v1/accounts/{account}");
    gateway.admin("POST", &format!("{path}/grants"), &json!({"amount": credit, "id": "first"}));
    let key = gateway.admin("POST", &format!("{path}/keys"), &json!({"name": "poor"}));
    (account, key["key"].as_str().expect("a key").to_owned())
}

fn call_as(gateway: &Gateway, key: &str, customer: Customer, body: &Value) -> Answer {
    let (path, body) = customer.request(body);
    let lines = format!("Content-Length: {}\r\n", body.len());
    let request = gateway.post(&path, &lines, &body);
    let request = String::from_utf8(request).expect("text").replace(&gateway.key, key);
    ask(gateway.address, request.as_bytes())
}

#[test]
fn a_balance_that_runs_out_ends_a_translated_stream_in_the_customers_words() {
    let sim = simulator(&[]);
    let script = "/sim:chunks=400;words=1;interval-ms=1;max-tokens=ignore";
    let gateway = gateway(sim.addr(), script, "    reasoning: false\n");
    for (customer, model) in cells_with_natives() {
        let mut body = customer.body(model, true);
        let limit =
            if customer == Customer::Responses { "max_output_tokens" } else { "max_tokens" };
        body[limit] = json!(16);
        let (account, key) = poor(&gateway, "0.0020");
        let answer = call_as(&gateway, &key, customer, &body);
        let what = format!("{customer:?} {model}: {answer:?}");
        assert_eq!(answer.status(), 200, "{what}");
        customer.check_broken(&answer, &what);
        let text = String::from_utf8(answer.content()).expect("text");
        let last = text.trim_end().rsplit("\n\n").next().unwrap_or_default();
        assert!(last.to_lowercase().contains("balance"), "{what}");
        let balance = gateway.admin("GET", &format!("/admin/v1/accounts/{account}"), &Value::Null);
        assert_ne!(balance["balance"]["spent"], "0.00", "{what}");
        assert!(!balance["balance"]["available"].to_string().contains('-'), "{balance}");

        let (_, key) = poor(&gateway, "0.000001");
        for stream in [false, true] {
            let answer = call_as(&gateway, &key, customer, &customer.body(model, stream));
            let what = format!("{customer:?} {model}: {answer:?}");
            assert_eq!(answer.status(), 402, "{what}");
            customer.check_error(&answer.json(), &what);
        }
    }
}

#[test]
fn a_crash_in_the_middle_leaves_a_translated_call_in_doubt_and_nothing_held() {
    let sim = simulator(&[]);
    for (customer, model) in cells_with_natives() {
        let mut gateway = gateway(sim.addr(), "/sim:chunks=100;interval-ms=20", "");
        call_and_leave_open(&mut gateway, customer, &customer.body(model, true));
        let balance = gateway.settled();
        assert_eq!(
            (&balance["held"], &balance["spent"]),
            (&json!("0.00"), &json!("0.00")),
            "{balance}"
        );
        let doubts = gateway.admin("GET", "/admin/v1/holds/in-doubt?limit=10", &Value::Null);
        assert_eq!(
            doubts["data"].as_array().map(Vec::len),
            Some(1),
            "{customer:?} {model}: {doubts}"
        );
    }
}

/// Reads some events of a call, and kills the gateway.
fn call_and_leave_open(gateway: &mut Gateway, customer: Customer, body: &Value) {
    let (path, body) = customer.request(body);
    let lines = format!("Content-Length: {}\r\n", body.len());
    let mut connection = connect(gateway.address);
    connection.write_all(&gateway.post(&path, &lines, &body)).expect("sent");
    read_events(&mut connection, 5);
    gateway.kill_and_restart();
}
