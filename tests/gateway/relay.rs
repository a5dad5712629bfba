//! Requests as they reach the upstream and answers as they reach the customer, with every framing and
//! failure. Drives the running binary with curl and raw requests.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::harness::{Demo, Gateway, Recorder, UPSTREAM_KEY, ask};
use sha2::{Digest, Sha256};

const CHAT: &str = "/v1/chat/completions";

/// A chat request of exactly `bytes` bytes, with a picture: so much text would fit into no context.
fn body_of(bytes: usize) -> Vec<u8> {
    let frame = r#"{"model":"gpt-4o-mini","max_tokens":8,"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,"}}]}]}"#;
    let padding = bytes.checked_sub(frame.len()).expect("room for the frame");
    frame.replace("base64,", &format!("base64,{}", "x".repeat(padding))).into_bytes()
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sends `body` with curl and returns everything it printed, headers included.
fn curl(demo: &Demo, path: &str, arguments: &[&str], body: &[u8]) -> String {
    let mut child = Command::new("curl")
        .args(["-sS", "-i", "-N", "--max-time", "60", "--data-binary", "@-"])
        .args(["-H", &format!("Authorization: Bearer {}", demo.api_key)])
        .args(["-H", "Content-Type: application/json"])
        .args(arguments)
        .arg(format!("{}{path}", demo.base_url))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("curl is installed (Debian: apt-get install curl)");
    child.stdin.take().expect("stdin").write_all(body).expect("curl reads the body");
    let output = child.wait_with_output().expect("curl ends");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The header's value in what curl printed.
fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    answer.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

#[test]
fn a_body_of_any_size_and_framing_arrives_byte_for_byte() {
    let demo = Demo::start();
    let framings: [(&str, &[&str]); 3] = [
        ("content-length", &[]),
        ("chunked", &["-H", "Transfer-Encoding: chunked"]),
        ("h2c", &["--http2-prior-knowledge"]),
    ];
    let mut runs = 0;
    for size in [200, 65_535, 65_536, 65_537, 70_000, 5_000_000, 30_000_000] {
        let body = body_of(size);
        for (framing, arguments) in framings {
            let answer = curl(&demo, CHAT, arguments, &body);
            let what = format!("{size} bytes, {framing}: {}", answer.lines().next().unwrap_or(""));
            assert_eq!(header(&answer, "x-sim-body-sha256"), Some(hex(&body).as_str()), "{what}");
            assert!(answer.contains("chat.completion"), "{what}");
            runs += 1;
        }
    }
    assert_eq!(runs, 21, "every size in every framing");
}

#[test]
fn a_body_above_the_cap_is_refused_before_it_is_read() {
    let demo = Demo::start();
    for arguments in [&[][..], &["-H", "Transfer-Encoding: chunked"]] {
        let answer = curl(&demo, CHAT, arguments, &body_of(64 * 1024 * 1024 + 1));
        assert!(answer.contains("request_too_large"), "{arguments:?}: {answer}");
        assert!(answer.contains("HTTP/1.1 413"), "{arguments:?}: {answer}");
    }
}

#[test]
fn a_stream_that_breaks_ends_in_an_error_event() {
    let demo = Demo::start();
    let body =
        br#"{"model":"gpt-4o-mini","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    for fault in ["cut-after=3", "eof-after=3", "cut-after=0"] {
        let fault_header = format!("x-sim-fault: {fault}");
        let answer = curl(&demo, CHAT, &["-H", &fault_header], body);
        let answer = answer.replace('\r', "");
        let last = answer.trim_end().rsplit("\n\n").next().unwrap_or_default();
        assert!(last.starts_with("data: {\"error\":"), "{fault} ended in {last:?}\n{answer}");
    }
    let whole = curl(&demo, CHAT, &[], body);
    assert!(whole.trim_end().ends_with("data: [DONE]"), "{whole}");
    assert_eq!(header(&whole, "x-accel-buffering"), Some("no"), "{whole}");
}

#[test]
fn the_operators_credentials_stay_here() {
    let demo = Demo::start();
    let answer = curl(&demo, CHAT, &["-H", "x-sim-fault: leak"], &body_of(200));
    assert!(answer.contains("HTTP/1.1 200"), "{answer}");
    for name in ["set-cookie", "authorization", "x-api-key", "openai-organization"] {
        assert_eq!(header(&answer, name), None, "{name} reached the customer: {answer}");
    }
}

#[test]
fn the_customers_credentials_stay_here() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(recorder.address);
    let lines = "Cookie: customer-canary\r\nx-api-key: customer-canary\r\n\
                 X-Forwarded-For: customer-canary\r\nConnection: x-nominated, close\r\n\
                 x-nominated: customer-canary\r\nx-kept: yes\r\nx-dear: customer-canary\r\n";
    let body =
        r#"{"model":"m","messages":[{"role":"user","content":"hi"}],"x_unknown":{"a":[1.50]}}"#;
    let length = format!("{lines}Content-Length: {}\r\n", body.len());
    let answer = ask(gateway.address, &gateway.chat(&length, body));
    assert_eq!(answer.status(), 200, "{answer:?}");
    let requests = recorder.requests();
    let [request] = requests.as_slice() else { panic!("one request: {requests:?}") };
    assert!(!request.head.contains("customer-canary"), "{}", request.head);
    assert!(!request.head.contains(&gateway.key), "{}", request.head);
    assert!(
        request.head.contains("x-kept: yes"),
        "what the operator lets through: {}",
        request.head
    );
    assert!(request.head.contains(&format!("Bearer {UPSTREAM_KEY}")), "{}", request.head);
    assert_eq!(request.body, body.as_bytes(), "byte for byte");
}

/// RFC 9110, section 15.5.6: a 405 says in `Allow` what the path takes.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_method_gets_an_allow_header() {
    let demo = Demo::start();
    for (method, path, allow) in [
        ("GET", "/v1/chat/completions", "POST"),
        ("DELETE", "/v1/videos/generations", "POST"),
        ("PUT", "/v1/messages", "POST"),
        ("HEAD", "/v1/images/edits", "POST"),
        ("DELETE", "/v1/videos/generations/gt_1", "GET, HEAD"),
        ("POST", "/v1/models", "GET, HEAD"),
        ("POST", "/v1/balance", "GET, HEAD"),
    ] {
        let method = reqwest::Method::from_bytes(method.as_bytes()).expect("a method");
        let call =
            crate::harness::http().request(method.clone(), format!("{}{path}", demo.base_url));
        let answer = call.bearer_auth(&demo.api_key).send().await.expect("an answer");
        let found = answer.headers().get("allow").and_then(|value| value.to_str().ok());
        assert_eq!((answer.status().as_u16(), found), (405, Some(allow)), "{method} {path}");
    }
}

/// Codex asks for WebSockets first, and goes on over HTTP at once after this status only.
#[test]
fn who_asks_for_websockets_is_sent_to_http() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(recorder.address);
    let handshake = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                     Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for path in ["/v1/chat/completions", "/v1/messages", "/v1/models", "/v1/realtime"] {
        for key in [gateway.key.as_str(), "sk-wrong"] {
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {key}\r\n\
                 OpenAI-Beta: responses_websockets=2026-02-06\r\n{handshake}\r\n"
            );
            let answer = ask(gateway.address, request.as_bytes());
            assert_eq!(answer.status(), 426, "{path}: {answer:?}");
            assert_eq!(answer.header("upgrade").as_deref(), Some("HTTP/1.1"), "{answer:?}");
            let error = answer.json()["error"].to_string();
            assert!(error.contains("POST over HTTP"), "{error}");
            assert!(answer.took.as_millis() < 1000, "{answer:?}");
        }
    }
    assert!(recorder.requests().is_empty(), "no upstream hears of it");
}

/// SDKs encode a name that goes into a path.
#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_found_by_its_name_in_a_path() {
    let demo = Demo::start();
    for (name, status, id) in [
        ("gpt-4o", 200, "gpt-4o"),
        ("gpt%2D4o", 200, "gpt-4o"),
        ("claude-sonnet-4-5-20a%2Fb", 200, "claude-sonnet-4-5-20a/b"),
        ("claude-sonnet-4-5-20a/b", 200, "claude-sonnet-4-5-20a/b"),
        ("%ff", 404, ""),
    ] {
        let call = crate::harness::http().get(format!("{}/v1/models/{name}", demo.base_url));
        let answer = call.bearer_auth(&demo.api_key).send().await.expect("an answer");
        assert_eq!(answer.status(), status, "{name}");
        let found: serde_json::Value = answer.json().await.expect("JSON");
        assert_eq!(found["id"].as_str().unwrap_or_default(), id, "{name}");
    }
}

/// A browser asks first, without the key; then it may read the answer and the headers that SDKs use.
#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_origins_may_call() {
    let demo = Demo::start();
    let client = crate::harness::http();
    let url = format!("{}/v1/chat/completions", demo.base_url);
    let query = "authorization,content-type,x-stainless-lang";
    let preflight = client
        .request(reqwest::Method::OPTIONS, &url)
        .header("origin", "https://page.example")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", query);
    let answer = preflight.send().await.expect("an answer");
    let of = |answer: &reqwest::Response, name: &str| {
        answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    assert_eq!(answer.status(), 204);
    assert_eq!(of(&answer, "access-control-allow-origin").as_deref(), Some("*"));
    assert_eq!(of(&answer, "access-control-allow-headers").as_deref(), Some(query));
    assert!(of(&answer, "access-control-allow-methods").is_some_and(|all| all.contains("POST")));

    let body = serde_json::json!({"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hi"}]});
    for (key, origin, status) in [
        (demo.api_key.as_str(), "https://page.example", 200),
        ("sk-wrong", "https://page.example", 401),
        (&demo.api_key, "", 200),
    ] {
        let mut call = client.post(&url).bearer_auth(key).json(&body);
        if !origin.is_empty() {
            call = call.header("origin", origin);
        }
        let answer = call.send().await.expect("an answer");
        assert_eq!(answer.status(), status, "{key} {origin}");
        let (allowed, exposed) = (
            of(&answer, "access-control-allow-origin"),
            of(&answer, "access-control-expose-headers").unwrap_or_default(),
        );
        assert_eq!(allowed.is_some(), !origin.is_empty(), "{status} {origin:?}");
        let readable = exposed.contains("x-request-id") && exposed.contains("retry-after");
        assert_eq!(readable, !origin.is_empty(), "{status} {origin:?}: {exposed}");
    }
    let options = client.request(reqwest::Method::OPTIONS, &url).send().await.expect("an answer");
    assert_eq!(options.status(), 405, "without an origin it is a request like others");
}

/// Buffers of large bodies are used again, by whoever comes next: nobody gets anything of another's.
#[test]
fn large_bodies_that_come_together_reach_the_upstream_apart() {
    const CUSTOMERS: u8 = 6;
    const TURNS: usize = 8;
    let upstream = Recorder::start();
    let gateway = Gateway::start(upstream.address);
    let body = |customer: u8, turn: usize| {
        // Short ones follow long ones into the same buffer, and the other way round.
        let length = 70_000 + 11_003 * ((usize::from(customer) * 5 + turn * 7) % 16);
        let letter = char::from(b'A' + customer).to_string();
        let url = format!("data:image/png;base64,{turn}{}", letter.repeat(length));
        let picture = format!(r#"[{{"type":"image_url","image_url":{{"url":"{url}"}}}}]"#);
        format!(r#"{{"model":"m","messages":[{{"role":"user","content":{picture}}}]}}"#)
    };
    std::thread::scope(|scope| {
        for customer in 0..CUSTOMERS {
            let (gateway, body) = (&gateway, &body);
            scope.spawn(move || {
                for turn in 0..TURNS {
                    let request = gateway.chat_json(body(customer, turn));
                    assert_eq!(ask(gateway.address, &request).status(), 200);
                }
            });
        }
    });
    let mut arrived: Vec<_> =
        upstream.requests().into_iter().map(|request| hex(&request.body)).collect();
    let turns = (0..CUSTOMERS).flat_map(|customer| (0..TURNS).map(move |turn| (customer, turn)));
    let mut sent: Vec<_> =
        turns.map(|(customer, turn)| hex(body(customer, turn).as_bytes())).collect();
    arrived.sort_unstable();
    sent.sort_unstable();
    assert_eq!(arrived, sent);
}
