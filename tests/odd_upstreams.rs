//! Upstreams that answer in ways that no specification of theirs knows.

mod harness;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};

use harness::{Answer, Gateway, ask};

const GOOD: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
const WHOLE: &str = "{\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":0}}";

/// An upstream that answers every request with these bytes and closes the connection.
fn upstream_that_says(response: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut request = [0; 64 * 1024];
            // A gateway that has gone away needs no answer.
            if stream.read(&mut request).is_ok_and(|bytes| bytes > 0) {
                drop(stream.write_all(response.as_bytes()));
            }
        }
    });
    address
}

/// What a customer of such an upstream gets, and what the account has paid then.
fn call(response: &str) -> (Answer, String) {
    let gateway = Gateway::start(upstream_that_says(response.to_owned()));
    let answer = ask(gateway.address, &gateway.chat_json(GOOD));
    let balance = gateway.settled();
    (answer, balance["spent"].as_str().expect("dollars").to_owned())
}

fn json_with(head: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{head}\r\n{body}"
    )
}

#[test]
fn an_answer_that_cannot_be_metered_is_not_relayed() {
    let switched =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nfree";
    for response in [&json_with("Content-Encoding: gzip\r\n", WHOLE), switched] {
        let (answer, spent) = call(response);
        assert_eq!((answer.status(), spent.as_str()), (502, "0.00"), "{response}\n{answer:?}");
        assert_eq!(answer.header("connection").as_deref(), Some("close"), "{answer:?}");
        assert!(answer.is_closed, "a connection that is said to be closed is closed");
    }
}

#[test]
fn an_error_with_a_good_status_costs_nothing() {
    let error = r#"{"error":{"message":"overloaded","type":"server_error"}}"#;
    let (answer, spent) = call(&json_with("", error));
    assert_eq!((answer.status(), spent.as_str()), (200, "0.00"), "{answer:?}");
    assert_eq!(answer.body(), error.as_bytes(), "it is relayed as it is");

    let events = format!("data: {error}\n\n");
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    let (answer, spent) = call(&format!("{head}{events}"));
    assert_eq!((answer.status(), spent.as_str()), (200, "0.00"), "{answer:?}");
    let text = String::from_utf8_lossy(&answer.bytes);
    assert_eq!(text.matches("data: ").count(), 1, "the upstream has said it already: {text}");
}

#[test]
fn a_busy_upstreams_words_stay_here_but_for_when_to_come_again() {
    let body = r#"{"error":{"message":"Rate limit reached in organization org-canary"}}"#;
    let response = format!(
        "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nRetry-After: 7\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let (answer, spent) = call(&response);
    assert_eq!((answer.status(), spent.as_str()), (429, "0.00"), "{answer:?}");
    assert_eq!(answer.header("retry-after").as_deref(), Some("7"), "{answer:?}");
    assert_eq!(answer.json()["error"]["code"], "rate_limit_exceeded", "{answer:?}");
    assert!(!String::from_utf8_lossy(&answer.bytes).contains("canary"), "{answer:?}");
}

#[test]
fn hints_come_without_the_operators_cookies() {
    let hints = "HTTP/1.1 103 Early Hints\r\nSet-Cookie: canary=1\r\n\r\n";
    let (answer, spent) = call(&format!("{hints}{}", json_with("", WHOLE)));
    assert_eq!((answer.status(), spent.as_str()), (200, "0.000003"), "{answer:?}");
    assert!(!String::from_utf8_lossy(&answer.bytes).contains("canary"), "{answer:?}");
}
