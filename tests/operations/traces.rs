//! Traces over OTLP, as a collector gets them. `cargo test --features otlp --test operations
//! traces`

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::sync::{Arc, Mutex};

use crate::harness::child::Running;
use crate::harness::{http, spawn_demo};
use serde_json::{Value, json};

/// The head and the body of a request.
type Taken = (String, Vec<u8>);

/// A collector that takes everything. Lives as long as the process.
struct Collector {
    address: SocketAddr,
    taken: Arc<Mutex<Vec<Taken>>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let taken = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&taken);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut lines = BufReader::new(stream.try_clone().expect("a second handle"));
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") && lines.read_line(&mut head).unwrap_or(0) > 0 {}
                let length = head
                    .lines()
                    .filter_map(|line| line.split_once(':'))
                    .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
                    .map_or(0, |(_, value)| value.trim().parse().expect("a length"));
                let mut body = vec![0; length];
                lines.read_exact(&mut body).expect("the body");
                log.lock().expect("no poison").push((head, body));
                let mut stream = stream;
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                stream.write_all(answer).expect("an answer");
            }
        });
        Self { address, taken }
    }
}

fn has(bytes: &[u8], wanted: &[u8]) -> bool {
    memchr::memmem::find(bytes, wanted).is_some()
}

/// Starts a demo that sends its traces to `endpoint`, and gives what it says when it is ready.
fn demo(endpoint: &str, data: &std::path::Path) -> (Running, Value) {
    let (process, ready, _) = spawn_demo(data, &[("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)]);
    (process, ready)
}

async fn ask(ready: &Value, model: &str) -> u16 {
    let url = format!("{}/v1/chat/completions", ready["base_url"].as_str().expect("a URL"));
    let body = json!({"model": model, "messages": [{"role": "user", "content": "canary-prompt"}]});
    http()
        .post(url)
        .bearer_auth(ready["api_key"].as_str().expect("a key"))
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .json(&body)
        .send()
        .await
        .expect("an answer")
        .status()
        .as_u16()
}

/// SIGTERM, and the end.
fn drained(mut process: Running) {
    let sent = Command::new("kill").arg(process.0.id().to_string()).status();
    assert!(sent.is_ok_and(|status| status.success()), "SIGTERM is sent");
    let ended = process.0.wait().expect("it ends");
    assert!(ended.success(), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_is_a_span_in_the_words_of_the_conventions() {
    let (collector, data) = (Collector::start(), tempfile::tempdir().expect("a directory"));
    let (process, ready) = demo(&format!("http://{}", collector.address), data.path());
    assert_eq!(ask(&ready, "gpt-4o-mini").await, 200);
    assert_eq!(ask(&ready, "no-such-model").await, 404);
    drained(process);
    let taken = collector.taken.lock().expect("no poison").clone();
    assert!(!taken.is_empty(), "nothing reached the collector");
    let mut all = Vec::new();
    for (head, body) in taken {
        assert!(head.starts_with("POST /v1/traces "), "{head}");
        assert!(head.to_lowercase().contains("content-type: application/x-protobuf"), "{head}");
        all.extend(body);
    }
    for wanted in [
        "chat gpt-4o-mini",
        "gen_ai.operation.name",
        "gen_ai.provider.name",
        "gen_ai.request.model",
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
        "tollgate.cost_usd",
        "tollgate.request_id",
        "model_not_found",
        "first byte",
        "service.name",
    ] {
        assert!(has(&all, wanted.as_bytes()), "no {wanted:?} in {}", String::from_utf8_lossy(&all));
    }
    let trace = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128.to_be_bytes();
    assert!(has(&all, &trace), "the span belongs to the customer's trace");
    let key = ready["api_key"].as_str().expect("a key");
    for secret in ["canary-prompt", key, "no-such-model"] {
        assert!(!has(&all, secret.as_bytes()), "{secret} is in a span");
    }
}

/// A collector that is away costs neither an answer nor the end of the process.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_is_not_missed() {
    let data = tempfile::tempdir().expect("a directory");
    let (process, ready) = demo("http://127.0.0.1:9", data.path());
    let begun = std::time::Instant::now();
    for _ in 0..20 {
        assert_eq!(ask(&ready, "gpt-4o-mini").await, 200);
    }
    drained(process);
    assert!(begun.elapsed() < std::time::Duration::from_secs(8), "{:?}", begun.elapsed());
}
