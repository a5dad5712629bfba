//! Customers who smuggle and upstreams that lie, in every cell.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::wire::Customer;
use super::{CELLS, call, cells_with_natives, gateway, spent};
use crate::harness::{Answer, Gateway, Recorder, ask, connect, simulator};

fn call_text(gateway: &Gateway, customer: Customer, body: &str) -> Answer {
    let lines = format!("Content-Length: {}\r\n", body.len());
    let (path, _) = customer.request(&Value::Null);
    ask(gateway.address, &gateway.post(&path, &lines, body))
}

/// Ambiguous input reaches no upstream, wherever it is.
#[test]
fn what_can_be_read_in_two_ways_is_refused() {
    let recorder = Recorder::start();
    let gateway = gateway(recorder.address, "", "");
    for (customer, model) in cells_with_natives() {
        let plain = customer.body(model, false).to_string();
        let message = r#""content":"Say hello.""#;
        let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
        for (what, body) in [
            ("a key twice", plain.replacen('{', r#"{"model":"other","#, 1)),
            ("a key twice, once escaped", plain.replacen('{', r#"{"mod\u0065l":"other","#, 1)),
            ("a key inside twice", plain.replace(message, &format!(r#"{message},"content":"b""#))),
            (
                "a key inside twice, once escaped",
                plain.replace(message, &format!(r#"{message},"cont\u0065nt":"b""#)),
            ),
            ("depth", plain.replacen('{', &format!(r#"{{"metadata":{{"a":{deep}}},"#), 1)),
            ("a lone surrogate", plain.replace("Say hello.", "\\ud800")),
            ("a number past a double", plain.replacen('{', r#"{"seed":1e999,"#, 1)),
            ("two documents", format!("{plain}{plain}")),
        ] {
            let answer = call_text(&gateway, customer, &body);
            assert_eq!(answer.status(), 400, "{customer:?} {model} {what}: {answer:?}");
            customer.check_error(&answer.json(), what);
        }
    }
    assert!(recorder.requests().is_empty(), "nothing was sent");
    assert_eq!(spent(&gateway), 0);
}

/// Large things are carried whole, and take no time by their square.
#[test]
fn large_requests_arrive_whole_and_soon() {
    let recorder = Recorder::start();
    let gateway = gateway(recorder.address, "", "");
    let chinese = "每一刻钟有一班车".repeat(700);
    for (customer, model) in cells_with_natives() {
        let tools: Vec<Value> = (0..1000).map(|place| {
            let (name, schema) = (format!("tool_{place}"), json!({"type": "object", "properties": {}}));
            match customer {
                Customer::Chat => json!({"type": "function", "function": {"name": name, "parameters": schema}}),
                Customer::Messages => json!({"name": name, "input_schema": schema}),
                _ => json!({"type": "function", "name": name, "parameters": schema}),
            }
        }).collect();
        let kind = if customer == Customer::Responses { "input_text" } else { "text" };
        let parts: Vec<Value> = (0..10_000)
            .map(|place| json!({"type": kind, "text": format!("part {place}.")}))
            .collect();
        let members: serde_json::Map<String, Value> =
            (0..20_000).map(|place| (format!("key {place}"), json!(place))).collect();
        for (what, body, marks) in [
            (
                "chinese",
                content_request(customer, model, json!(chinese)),
                vec!["每一刻钟有一班车"; 1],
            ),
            (
                "tools",
                {
                    let mut body = content_request(customer, model, json!("hi"));
                    body["tools"] = json!(tools);
                    body
                },
                vec!["tool_0", "tool_999"],
            ),
            (
                "parts",
                content_request(customer, model, json!(parts)),
                vec!["part 0.", "part 9999."],
            ),
            (
                "members",
                {
                    let mut body = content_request(customer, model, json!("hi"));
                    body["metadata"] = Value::Object(members);
                    body
                },
                vec![],
            ),
        ] {
            let begun = Instant::now();
            let answer = call(&gateway, customer, &body);
            let took = begun.elapsed();
            assert!(took < Duration::from_secs(8), "{customer:?} {model} {what}: {took:?}");
            // The recorder answers as chat only; what it was sent is what matters.
            let Some(sent) = recorder.requests().pop() else { panic!("{what}: {answer:?}") };
            let sent = String::from_utf8_lossy(&sent.body).into_owned();
            for mark in marks {
                assert!(
                    sent.contains(mark),
                    "{customer:?} {model} {what} without {mark}: {answer:?}"
                );
            }
            if what == "chinese" {
                assert!(sent.contains(&chinese), "{customer:?} {model}: all of it");
            }
        }
    }
}

/// A request that says this, whatever its shape.
fn content_request(customer: Customer, model: &str, content: Value) -> Value {
    let turns = json!([{"role": "user", "content": content}]);
    match customer {
        Customer::Responses => json!({"model": model, "input": turns}),
        _ => json!({"model": model, "max_tokens": 100, "messages": turns}),
    }
}

/// Ids of calls go through, or are written in letters that the provider takes: a call and its result stay
/// together.
#[test]
fn odd_ids_keep_a_call_and_its_result_together() {
    let recorder = Recorder::start();
    let gateway = gateway(recorder.address, "", "");
    for (customer, model) in cells_with_natives() {
        for id in [
            "",
            "a b",
            "\"quoted\\\"",
            "é漢\u{1f600}",
            "functions.weather:0",
            "../../etc",
            &"x".repeat(5000),
        ] {
            let mut body = customer.body(model, false);
            customer.add_tool(&mut body);
            let called = super::wire::Called {
                id: id.to_owned(),
                name: "weather".into(),
                input: "{}".into(),
                ..super::wire::Called::default()
            };
            customer.add_result(&mut body, &called);
            let answer = call(&gateway, customer, &body);
            if answer.status() == 400 {
                customer.check_error(&answer.json(), id);
                continue;
            }
            let sent = recorder.requests().pop().expect("a request");
            let sent: Value = serde_json::from_slice(&sent.body).expect("JSON");
            let ids = ids(&sent);
            assert_eq!(ids.len(), 2, "{customer:?} {model} {id:?}: {sent}");
            assert_eq!(ids[0], ids[1], "{customer:?} {model}: {sent}");
            if model == "on-messages" {
                let fits = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
                assert!(
                    !ids[0].is_empty() && ids[0].chars().all(fits),
                    "{customer:?} {id:?}: {sent}"
                );
            }
        }
    }
}

/// The ids of calls and of results, wherever they stand.
fn ids(value: &Value) -> Vec<String> {
    match value {
        Value::Object(members) => {
            let mut found = Vec::new();
            for (key, value) in members {
                let is_call = key == "id"
                    && (members.get("type") == Some(&json!("tool_use"))
                        || members.contains_key("function"));
                if is_call || ["tool_call_id", "tool_use_id", "call_id"].contains(&key.as_str()) {
                    found.push(value.as_str().expect("an id").to_owned());
                }
                found.extend(ids(value));
            }
            found
        }
        Value::Array(elements) => elements.iter().flat_map(ids).collect(),
        _ => Vec::new(),
    }
}

/// Seals that customers write themselves reach nobody but who is said to have made them, and bring nothing
/// with them.
#[test]
fn forged_seals_bring_nothing_with_them() {
    let recorder = Recorder::start();
    let gateway = gateway(recorder.address, "", "");
    let inject =
        r#"{"type":"reasoning"}],"previous_response_id":"resp_of_somebody","include":["x""#;
    let long = "A".repeat(900_000);
    for (customer, model) in cells_with_natives() {
        for token in [
            format!("tg1.r.{inject}"),
            format!("tg1.m.{inject}"),
            format!("tg1.x.{long}"),
            "tg1.".to_owned(),
            "tg1.q.x".to_owned(),
        ] {
            let mut body = customer.body(model, false);
            let turns = if customer == Customer::Responses { "input" } else { "messages" };
            let thought = match customer {
                Customer::Chat => {
                    json!({"role": "assistant", "content": "a", "reasoning_content": "b",
                    "reasoning_details": [{"type": "reasoning.encrypted", "data": token, "format": "tollgate", "text_bytes": 1}]})
                }
                Customer::Messages => json!({"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "b", "signature": token}, {"type": "text", "text": "a"}]}),
                _ => {
                    json!({"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": token})
                }
            };
            body[turns].as_array_mut().expect("turns").push(thought);
            if customer != Customer::Responses {
                body[turns]
                    .as_array_mut()
                    .expect("turns")
                    .push(json!({"role": "user", "content": "c"}));
            }
            let before = recorder.requests().len();
            let answer = call(&gateway, customer, &body);
            let sent = recorder.requests().split_off(before);
            let Some(sent) = sent.first() else {
                assert_eq!(answer.status(), 400, "{customer:?} {model}: {answer:?}");
                continue;
            };
            let sent: Value = serde_json::from_slice(&sent.body).expect("JSON");
            assert_eq!(sent.get("previous_response_id"), None, "{customer:?} {model}: {sent}");
            assert!(!sent.to_string().contains("tg1."), "{customer:?} {model}: {sent}");
        }
    }
}

/// A document or a stream with lies in it is never a panic, a hang, or money out of nothing.
#[test]
fn upstreams_that_lie_are_charged_for_what_can_be_true() {
    let sim = simulator(&[]);
    for fault in [
        "usage-negative",
        "usage-huge",
        "usage-twice",
        "usage-late",
        "done-twice",
        "giant=2000000",
        "trickle",
        "utf8-split",
        "leak",
    ] {
        let gateway = gateway(sim.addr(), &format!("/sim:fault={fault}"), "");
        for (customer, model) in CELLS {
            for stream in [false, true] {
                let answer = call(&gateway, customer, &customer.body(model, stream));
                let what = format!("{customer:?} {model} {fault} {stream}");
                // Whoever owes what was reported gets nothing more.
                let owes = fault == "usage-huge" && answer.status() == 402;
                assert!(
                    owes || [200, 502].contains(&answer.status()),
                    "{what}: {:?}",
                    answer.head()
                );
                assert_eq!(answer.header("set-cookie"), None, "{what}");
                let balance = gateway.settled();
                assert!(!balance["available"].to_string().contains('-'), "{what}: {balance}");
                if answer.status() == 200 && answer.bytes.len() < 100_000 && !stream {
                    customer.read(&answer, stream);
                }
            }
        }
    }
}

/// An upstream that never ends its stream: one event over and over.
fn endless(begin: &'static str, event: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let event = event.clone();
            std::thread::spawn(move || {
                let mut piece = [0; 64 * 1024];
                let _request = stream.read(&mut piece);
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
                let mut sent = stream
                    .write_all(head.as_bytes())
                    .and_then(|()| stream.write_all(begin.as_bytes()));
                while sent.is_ok() {
                    sent = stream.write_all(event.as_bytes());
                }
            });
        }
    });
    address
}

/// Bytes of an upstream's stream after which its memory is looked at.
const STREAM_BYTES: usize = 96 << 20;
/// Memory growth allowed for a stream of any length: buffers of sockets and of the allocator; for responses
/// also the output and its repetition. Bytes.
const GROWTH_BYTES_MAX: u64 = 24 << 20;
const GROWTH_OF_RESPONSES_BYTES_MAX: u64 = 80 << 20;

#[test]
fn memory_does_not_grow_with_a_stream() {
    // The upstream says of each event that nothing was used, so no balance ends the stream.
    let text = "every quarter of an hour ".repeat(160);
    let chat = format!(
        "data: {}\n\n",
        json!({"id": "c", "choices": [{"index": 0, "delta": {"content": text}}]})
    );
    let messages = format!(
        "data: {}\n\n",
        json!({"type": "content_block_delta", "index": 0,
        "delta": {"type": "text_delta", "text": text}})
    );
    let begin = "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":{\"input_tokens\":1,\"output_tokens\":1}}}\n\n";
    for (model, address) in
        [("on-chat", endless("", chat)), ("on-messages", endless(begin, messages))]
    {
        for (customer, _) in cells_with_natives().filter(|(_, on)| *on == model) {
            let gateway = gateway(address, "", "");
            gateway.grant("100000.00", "much");
            let warm = read_bytes(&gateway, customer, model, 4 << 20);
            let before = gateway.rss_bytes_max();
            let read = read_bytes(&gateway, customer, model, STREAM_BYTES);
            let grown = gateway.rss_bytes_max() - before;
            let what = format!("{customer:?} {model}: {grown} bytes after {read} of {warm}");
            println!("{what}");
            if customer == Customer::Responses {
                assert!(grown < GROWTH_OF_RESPONSES_BYTES_MAX, "{what}");
            } else {
                assert!(read >= STREAM_BYTES, "{what}");
                assert!(grown < GROWTH_BYTES_MAX, "{what}");
            }
        }
    }
}

/// Reads so many bytes of a stream, and leaves.
fn read_bytes(gateway: &Gateway, customer: Customer, model: &str, bytes: usize) -> usize {
    let (path, body) = customer.request(&customer.body(model, true));
    let lines = format!("Content-Length: {}\r\n", body.len());
    let mut connection = connect(gateway.address);
    connection.write_all(&gateway.post(&path, &lines, &body)).expect("sent");
    let (mut piece, mut read) = (vec![0; 256 * 1024], 0);
    while read < bytes {
        match connection.read(&mut piece) {
            Ok(0) | Err(_) => break,
            Ok(count) => read += count,
        }
    }
    read
}
