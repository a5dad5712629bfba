//! What reaches the upstream and what reaches the customer, whatever the framing and whatever
//! breaks. Drives the running binary with curl and with raw requests.

mod harness;

use std::io::Write as _;
use std::process::{Command, Stdio};

use harness::Demo;
use sha2::{Digest, Sha256};

const CHAT: &str = "/v1/chat/completions";

/// A chat request of exactly `bytes` bytes.
fn body_of(bytes: usize) -> Vec<u8> {
    let frame = r#"{"model":"gpt-4o-mini","max_tokens":8,"messages":[{"role":"user","content":""}]}"#;
    let padding = bytes.checked_sub(frame.len()).expect("room for the frame");
    frame.replace(r#""content":"""#, &format!(r#""content":"{}""#, "x".repeat(padding))).into_bytes()
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
    for size in [100, 65_535, 65_536, 65_537, 70_000, 5_000_000, 30_000_000] {
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
    let body = br#"{"model":"gpt-4o-mini","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    for fault in ["cut-after=3", "no-done", "garbage"] {
        let fault_header = format!("x-sim-fault: {fault}");
        let answer = curl(&demo, CHAT, &["-H", &fault_header], body);
        if fault == "no-done" {
            assert!(answer.contains("\"finish_reason\":\"stop\""), "{fault}: {answer}");
            continue;
        }
        let last = answer.trim_end().rsplit("\n\n").next().unwrap_or_default();
        assert!(last.starts_with("data: {\"error\":"), "{fault} ended in {last:?}\n{answer}");
    }
    let whole = curl(&demo, CHAT, &[], body);
    assert!(whole.trim_end().ends_with("data: [DONE]"), "{whole}");
    assert_eq!(header(&whole, "x-accel-buffering"), Some("no"), "{whole}");
}

#[test]
fn credentials_stay_on_their_side() {
    let demo = Demo::start();
    let arguments = [
        "-H", "Cookie: session=customer-canary",
        "-H", "x-api-key: customer-canary",
        "-H", "X-Forwarded-For: 203.0.113.9",
        "-H", "Connection: x-nominated",
        "-H", "x-nominated: customer-canary",
        "-H", "x-kept: yes",
        "-H", "x-sim-fault: leak-headers",
    ];
    let answer = curl(&demo, CHAT, &arguments, &body_of(200));
    assert!(answer.contains("HTTP/1.1 200"), "{answer}");
    for line in ["set-cookie", "authorization", "openai-organization"] {
        assert_eq!(header(&answer, line), None, "{line} reached the customer: {answer}");
    }
    // The simulator lists the headers that it got at an address of its own; it is behind the
    // gateway, so it tells through an answer's header what it saw.
    let seen = header(&answer, "x-sim-request-headers").expect("the simulator tells what it got");
    assert!(seen.contains("x-kept"), "unknown headers pass: {seen}");
    for name in ["cookie", "x-api-key", "x-forwarded-for", "x-nominated"] {
        assert!(!seen.split(',').any(|header| header == name), "{name} reached the upstream: {seen}");
    }
}
