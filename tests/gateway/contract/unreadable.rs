//! Upstreams that say that all is well, and nothing that could be read; and upstreams that are busy.

use serde_json::json;

use super::upstream::{Upstream, answer, json};
use super::{VIDEOS, family_g, family_s, family_v, gateway, post};

const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
const STREAM: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
const EMBED: &str = r#"{"model":"m","input":"hi"}"#;
const IMAGE: &str = r#"{"model":"qf-image-2.0","input":{"messages":[{"role":"user","content":[{"text":"a cat"}]}]}}"#;

/// A request of each family.
fn requests() -> Vec<(&'static str, String)> {
    vec![
        ("/v1/chat/completions", CHAT.to_owned()),
        ("/v1/embeddings", EMBED.to_owned()),
        ("/v1/images/generations", IMAGE.to_owned()),
        (VIDEOS, family_v().to_string()),
        (VIDEOS, family_s().to_string()),
        (VIDEOS, family_g().to_string()),
    ]
}

#[test]
fn a_good_answer_that_is_none_is_a_bad_gateway_in_every_family() {
    let html = "Content-Type: text/html\r\n";
    let typed = "Content-Type: application/json\r\n";
    for (lines, body) in [
        (html, "<html>"),
        (typed, "<html>"),
        (typed, "hello"),
        (typed, ""),
        (typed, " \n"),
        (typed, r#"{"choices":[{"message":"#),
        (typed, "data: {}\n\n"),
        (typed, "[]"),
    ] {
        for (path, request) in requests() {
            let upstream = Upstream::start(move |_| answer(200, lines, body));
            let gateway = gateway(&upstream);
            let answer = post(&gateway, path, &request);
            let reply = answer.json();
            assert_eq!(answer.status(), 502, "{request} {body:?}: {answer:?}");
            assert_eq!(reply["error"]["code"], "BadGateway", "{request} {body:?}: {reply}");
            assert_eq!(upstream.posts().len(), 1, "what may have been done is not sent again");
        }
    }
    let upstream = Upstream::start(move |_| answer(200, typed, "hello"));
    let gateway = gateway(&upstream);
    assert_eq!(post(&gateway, "/v1/chat/completions", STREAM).status(), 502);
    assert_eq!(gateway.settled()["spent"], "0.00");
}

/// A document that has begun cannot be taken back: the connection ends before the document does.
#[test]
fn a_document_that_breaks_is_cut() {
    let text = "x".repeat(200_000);
    let half = format!(r#"{{"choices":[{{"message":{{"content":"{text}""#);
    for is_chunked in [false, true] {
        let half = half.clone();
        let upstream = Upstream::start(move |_| {
            if !is_chunked {
                return json(200, &half);
            }
            format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
                 Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{half}\r\n0\r\n\r\n",
                half.len()
            )
        });
        let gateway = gateway(&upstream);
        let answer = post(&gateway, "/v1/chat/completions", CHAT);
        let text = String::from_utf8_lossy(&answer.bytes).into_owned();
        assert!(answer.is_closed, "the connection is closed");
        let is_whole = text.ends_with("\r\n0\r\n\r\n") || text.contains(&"x".repeat(200_000));
        assert!(answer.status() == 502 || !is_whole, "it looks whole: {}", text.len());
    }
}

#[test]
fn when_to_come_again_is_passed_on_in_every_family() {
    for (path, request) in requests() {
        let upstream = Upstream::start(move |_| {
            let lines = "Content-Type: application/json\r\nRetry-After: 7\r\n";
            answer(429, lines, r#"{"code":"Throttling.RateQuota","error":{"code":"Throttling"}}"#)
        });
        let gateway = gateway(&upstream);
        let refused = post(&gateway, path, &request);
        assert_eq!(refused.status(), 429, "{request}: {refused:?}");
        assert_eq!(refused.header("retry-after").as_deref(), Some("7"), "{request}");
        // And it is obeyed: nobody asks before that.
        let again = post(&gateway, path, &request);
        assert_eq!(again.status(), 429, "{request}: {again:?}");
        let left: u64 = again.header("retry-after").expect("told").parse().expect("seconds");
        assert!((5..=7).contains(&left), "{request}: {left}");
        assert_eq!(upstream.posts().len(), 1, "{request}: the upstream has asked for time");
        assert_eq!(json!(gateway.settled()["spent"]), json!("0.00"));
    }
}
