//! Upstreams that the gateway signs in to: Azure's keys and Entra's tokens, Google's service accounts,
//! AWS's signatures and roles. Whoever issues tokens and whoever takes them checks what comes.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{
    Answer, Gateway, Recorded, Reply, Responder, ask, ask_over, chat_model, connect, eventually,
    hang,
};

mod aws;
mod azure;
mod google;

const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;

/// A chat completion.
fn completion() -> Reply {
    let body = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{
            "index": 0, "message": { "role": "assistant", "content": "Hi" }, "finish_reason": "stop",
        }],
        "usage": { "prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6 },
    });
    (200, "content-type: application/json\r\n".to_owned(), body.to_string())
}

/// A refusal in OpenAI's words.
fn refusal(status: u16, message: &str) -> Reply {
    let body = json!({ "error": { "message": message, "type": "x", "code": "x" } });
    (status, "content-type: application/json\r\n".to_owned(), body.to_string())
}

/// An upstream that takes this value of `Authorization`, and refuses others.
fn taking(bearer: &'static str) -> Responder {
    Responder::start(move |_, request| match request.header("authorization") == bearer {
        true => completion(),
        false => refusal(401, "no such token"),
    })
}

fn chat(gateway: &Gateway) -> Answer {
    ask(gateway.address, &gateway.chat_json(CHAT))
}

/// A model `m` at the upstream `u`.
fn models() -> String {
    format!("models:\n{}", chat_model("m", "u"))
}

/// A token of OAuth 2.0.
fn token(name: &str, seconds: u64) -> Reply {
    let body = json!({ "token_type": "Bearer", "access_token": name, "expires_in": seconds });
    (200, "content-type: application/json\r\n".to_owned(), body.to_string())
}

/// An upstream `u` that Entra's tokens are for.
fn entra(upstream: &Responder, issuer: &Responder) -> String {
    format!(
        "  u:
    protocol: azure
    base_url: http://{}/openai/v1
    auth:
      entra:
        tenant_id: example.onmicrosoft.com
        client_id: client-of-a-test
        client_secret: secret-canary-of-a-test
        token_url: http://{}/oauth2/v2.0/token
",
        upstream.address, issuer.address
    )
}

#[test]
fn a_hundred_requests_at_one_moment_fetch_one_token_of_entras() {
    let issuer = Responder::start(|call, request| {
        assert_eq!(request.target(), ("POST", "/oauth2/v2.0/token"));
        assert_eq!(request.header("content-type"), "application/x-www-form-urlencoded");
        let fields = ["grant_type", "client_id", "client_secret", "scope"];
        let fields = fields.map(|name| request.field(name));
        let expected = [
            "client_credentials",
            "client-of-a-test",
            "secret-canary-of-a-test",
            "https://cognitiveservices.azure.com/.default",
        ];
        assert_eq!(fields, expected);
        std::thread::sleep(Duration::from_millis(300));
        token(&format!("token-{call}"), 3600)
    });
    let upstream = taking("Bearer token-0");
    let gateway = Arc::new(Gateway::serving(&entra(&upstream, &issuer), &models()));
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let gateway = Arc::clone(&gateway);
            std::thread::spawn(move || chat(&gateway).status())
        })
        .collect();
    for call in calls {
        assert_eq!(call.join().expect("an answer"), 200);
    }
    assert_eq!((issuer.requests().len(), upstream.requests().len()), (1, 100));
    assert!(upstream.requests().iter().all(|request| request.header("api-key").is_empty()));
    let refreshes = r#"tollgate_credential_refreshes_total{outcome="ok",upstream="u"}"#;
    assert_eq!(gateway.metric(refreshes), 1.0);
    let left =
        gateway.metric(r#"tollgate_credential_expires_in_seconds{credential="",upstream="u"}"#);
    assert!((3400.0..3600.0).contains(&left), "{left}");
    let seen = gateway.admin("GET", "/admin/v1/upstreams", &Value::Null);
    let target = &seen["upstreams"][0]["targets"][0];
    assert!(target["token_seconds"].as_u64().is_some_and(|left| left > 3400), "{seen}");
    assert_eq!(seen["upstreams"][0]["protocol"], "azure");
}

#[test]
fn a_refused_token_is_renewed_once_and_the_call_succeeds() {
    let issuer = Responder::start(|call, _| token(&format!("token-{call}"), 3600));
    // The first is revoked at once.
    let upstream = taking("Bearer token-1");
    let gateway = Gateway::serving(&entra(&upstream, &issuer), &models());
    for _ in 0..3 {
        let answer = chat(&gateway);
        assert_eq!(answer.status(), 200, "{answer:?}");
    }
    assert_eq!((issuer.requests().len(), upstream.requests().len()), (2, 4));
    assert_eq!(
        gateway.settled()["spent"],
        "0.000045",
        "three answers, and nothing for the refusal"
    );
    // One that refuses all of them gets no further tokens.
    let none = taking("Bearer of-nobody");
    let gateway = Gateway::serving(&entra(&none, &issuer), &models());
    for _ in 0..4 {
        let answer = chat(&gateway);
        assert_eq!(answer.status(), 502, "the operator's trouble is no 401: {answer:?}");
        assert!(!format!("{answer:?}").contains("token-"), "{answer:?}");
    }
    assert_eq!(issuer.requests().len(), 4, "two more");
    assert_eq!(gateway.settled()["spent"], "0.00");
}

#[test]
fn without_a_token_the_next_target_serves() {
    let issuer = Responder::start(|_, _| {
        let message = "AADSTS7000215: Invalid client secret provided: secret-canary-of-a-test";
        let body = json!({ "error": "invalid_client", "error_description": message });
        (401, String::new(), body.to_string())
    });
    let (upstream, other) = (taking("Bearer nothing"), taking("Bearer key-of-another"));
    let more = format!(
        "  other: {{ protocol: openai, base_url: 'http://{}/v1', credential: key-of-another }}\n",
        other.address
    );
    let both = chat_model("both", "u")
        .replace("{ upstream: u }", "{ upstream: u }, { upstream: other, priority: 1 }");
    let models = format!("models:\n{}{}{both}", chat_model("m", "u"), chat_model("n", "other"));
    let gateway = Gateway::logging(&format!("{}{more}", entra(&upstream, &issuer)), &models);
    let call = |model: &str| {
        let body = CHAT.replace("\"m\"", &format!("\"{model}\""));
        ask(gateway.address, &gateway.chat_json(body))
    };
    let answer = call("m");
    assert_eq!(
        (answer.status(), answer.json()["error"]["code"].as_str()),
        (502, Some("service_unavailable")),
        "{answer:?}"
    );
    for _ in 0..5 {
        assert_eq!(call("both").status(), 200, "the next target");
        assert_eq!(call("n").status(), 200, "another upstream");
    }
    assert_eq!(upstream.requests().len(), 0, "nothing goes there without a token");
    assert!(issuer.requests().len() <= 2, "it is left alone: {}", issuer.requests().len());
    let refused = r#"tollgate_credential_refreshes_total{outcome="refused",upstream="u"}"#;
    assert!(gateway.metric(refused) >= 1.0);
    let log = std::fs::read_to_string(gateway.path("log")).expect("the log");
    assert!(log.contains("the credential of u got no token"), "{log}");
    assert!(!log.contains("canary"), "{log}");
}

#[test]
fn an_issuer_that_hangs_holds_up_nobody_else() {
    let issuer = Responder::start(|_, _| hang());
    let (upstream, other) = (taking("Bearer late"), taking("Bearer key-of-another"));
    let more = format!(
        "  other: {{ protocol: openai, base_url: 'http://{}/v1', credential: key-of-another }}\n",
        other.address
    );
    let models = format!("models:\n{}{}", chat_model("m", "u"), chat_model("n", "other"));
    let gateway = Gateway::serving(&format!("{}{more}", entra(&upstream, &issuer)), &models);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut stream = connect(gateway.address);
            let socket = stream.try_clone().expect("a second handle");
            socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
            ask_over(&mut stream, &socket, &gateway.chat_json(CHAT))
        });
        eventually("the issuer is called", || issuer.requests().len() == 1);
        let body = CHAT.replace("\"m\"", "\"n\"");
        let answer = ask(gateway.address, &gateway.chat_json(body));
        assert!(answer.status() == 200 && answer.took < Duration::from_secs(2), "{answer:?}");
        let reloaded = gateway.admin("POST", "/admin/v1/reload", &Value::Null);
        assert_eq!(reloaded["in_force"], true, "{reloaded}");
        let answer = waiting.join().expect("an answer");
        assert_eq!(answer.status(), 502, "{answer:?}");
        assert!(answer.took < Duration::from_secs(15), "{answer:?}");
    });
}

#[test]
fn a_token_is_renewed_under_load_and_survives_a_reload() {
    let issuer = Responder::start(|call, _| token(&format!("token-{call}"), 4));
    let upstream = Responder::start(|_, request| {
        match request.header("authorization").starts_with("Bearer token-") {
            true => completion(),
            false => refusal(401, "no such token"),
        }
    });
    let gateway = Gateway::serving(&entra(&upstream, &issuer), &models());
    let begun = std::time::Instant::now();
    let mut calls = 0;
    while begun.elapsed() < Duration::from_secs(9) {
        assert_eq!(chat(&gateway).status(), 200);
        calls += 1;
        if calls % 50 == 0 {
            gateway.admin("POST", "/admin/v1/reload", &Value::Null);
        }
    }
    // Each lasts four seconds and is renewed after three.
    let fetched = issuer.requests().len();
    assert!((3..=4).contains(&fetched), "{fetched} tokens for {calls} calls");
}

#[test]
fn an_upstream_that_repeats_its_token_tells_the_customer_nothing() {
    let issuer = Responder::start(|_, _| token("token-canary-of-a-test", 3600));
    let upstream = Responder::start(|_, request| {
        refusal(400, &format!("bad request with {}", request.header("authorization")))
    });
    let gateway = Gateway::logging(&entra(&upstream, &issuer), &models());
    let answer = chat(&gateway);
    assert_eq!(answer.status(), 400, "{answer:?}");
    assert!(!format!("{answer:?}").contains("canary"), "{answer:?}");
    let log = || std::fs::read_to_string(gateway.path("log")).expect("the log");
    eventually("the line of the log", || log().contains("\"status\":400"));
    assert!(!log().contains("canary"), "{}", log());
}

/// The customer's own headers do not take the place of those that sign a request.
fn only_ours(request: &Recorded, name: &str) {
    let lines = request.head.lines().filter(|line| {
        line.split_once(':').is_some_and(|(found, _)| found.eq_ignore_ascii_case(name))
    });
    assert_eq!(lines.count(), 1, "{name} once: {}", request.head);
}
