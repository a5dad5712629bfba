//! A service of the gateway's own on the customers' listeners: what it gets, and how its answers
//! leave. Drives the gateway of the library with a service made for it, over real sockets.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::harness::tls::{TestCertificate, connect_tls};
use crate::harness::{ask, connect, eventually, http, http_builder, simulator};
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Json, Router};
use futures_util::{StreamExt as _, stream};
use pingora::apps::ServerApp as _;
use pingora::protocols::l4::stream::Stream;
use pingora::protocols::{GetSocketDigest as _, SocketDigest};
use serde_json::{Value, json};
use tokio::sync::watch;
use tollgate::balance::Balancer;
use tollgate::config::{ConfigHandle, Overrides, Sources};
use tollgate::finished::FinishedRequest;
use tollgate::gateway::{
    Certificates, Deadline, Descriptors, Downstream, Gateway, GatewayParts, HostedService,
    LoopbackClient, LoopbackRequest, Transport,
};
use tollgate::ledger::{Ledger, NewKey, Options};
use tollgate::metrics::{LedgerFigures, Metrics};
use tollgate::outbound::Outbound;
use tollgate::request_log::{self, RequestLog};
use tollgate::sim::Sim;
use tollgate::tasks::Tasks;
use tollgate::traces::{AttributeValue, RequestSpan};
use tollgate_telemetry::report::install_span_export;

/// The largest body that the service takes.
const BODY_BYTES_MAX: usize = 256 * 1024;
/// Pieces of an answer come so far apart.
const APART: Duration = Duration::from_millis(200);

const MODELS: &str = "models:
  m:
    operations: [chat]
    targets: [{ upstream: sim }]
    free: true
    limits: { context_tokens_max: 1000, output_tokens_max: 16 }
";

/// A gateway that hosts the service at `/own`.
struct Serving {
    plain: SocketAddr,
    tls: SocketAddr,
    certificate: TestCertificate,
    metrics: Arc<Metrics>,
    deadline: Arc<Deadline>,
    /// Answers without an end that nobody has dropped.
    endless: Arc<AtomicUsize>,
    /// The way to the gateway from inside, and a key to take it with.
    loopback: LoopbackClient,
    key: String,
    _sim: Sim,
    _shutdown: watch::Sender<bool>,
    runtime: tokio::runtime::Runtime,
    _directory: tempfile::TempDir,
}

impl Serving {
    fn start() -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let directory = tempfile::tempdir().expect("a directory");
        let certificate = TestCertificate::new();
        let endless = Arc::new(AtomicUsize::new(0));
        let service = service(Arc::clone(&endless));
        let hosted = vec![HostedService::new("/own", "/own", BODY_BYTES_MAX, service)];
        let (shutdown, watched) = watch::channel(false);
        let sim = simulator(&["chunks=3", "interval-ms=200"]);
        let (parts, addresses) = {
            let _runtime = runtime.enter();
            let parts = parts(directory.path(), &certificate, sim.addr(), hosted);
            let gateway = Gateway::new(parts.clone());
            let listeners = parts.config.load().listeners.clone();
            let serve = |(index, listener)| {
                let certificates = Certificates::for_listener(&parts.config, index, listener);
                let transport = Transport::new(false, certificates).expect("TLS");
                let app = gateway.clone().behind(transport, true);
                accept(Arc::new(app), watched.clone())
            };
            let addresses: Vec<_> = listeners.iter().enumerate().map(serve).collect();
            (parts, addresses)
        };
        let [plain, tls] = addresses[..] else { panic!("two listeners: {addresses:?}") };
        let key = runtime.block_on(async {
            let account = parts.ledger.create_account("test").await.expect("an account").id;
            let new = NewKey { name: "test".to_owned(), ..NewKey::default() };
            let (secret, _) = parts.ledger.create_key(account, new).await.expect("a key");
            secret.expose().to_owned()
        });
        let (metrics, deadline, loopback) = (parts.metrics, parts.deadline, parts.loopback);
        let (_shutdown, _directory, _sim) = (shutdown, directory, sim);
        Self {
            loopback,
            key,
            _sim,
            plain,
            tls,
            certificate,
            metrics,
            deadline,
            endless,
            _shutdown,
            runtime,
            _directory,
        }
    }
}

fn parts(
    directory: &std::path::Path,
    certificate: &TestCertificate,
    upstream: SocketAddr,
    hosted: Vec<HostedService>,
) -> GatewayParts {
    let (routes, models) = (directory.join("routes.yaml"), directory.join("models.yaml"));
    let text = format!(
        "listeners:
  - {{ address: 127.0.0.1:1, h2c: true }}
  - {{ address: 127.0.0.1:2, tls: {} }}
trusted_proxies: [127.0.0.0/8]
store: {{ data_dir: {} }}
limits: {{ body_max: 1MiB, body_memory_max: 64MiB, body_timeout: 2s }}
upstreams:
  sim: {{ protocol: openai, base_url: http://{upstream}/v1, credential: x }}
routes:
  - {{ path: /v1/chat/completions, operation: chat }}
",
        certificate.yaml(),
        directory.join("data").display(),
    );
    std::fs::write(&routes, text).expect("written");
    std::fs::write(&models, MODELS).expect("written");
    let (sources, overrides) = (Sources::Files { routes, models }, Overrides::default());
    let loaded = tollgate::config::load(&sources, &overrides);
    let (snapshot, _) = loaded.unwrap_or_else(|errors| panic!("{errors:?}"));
    let (ledger, _) = Ledger::open(Options::new(&snapshot.store.data_dir)).expect("a ledger");
    let data_dir = snapshot.store.data_dir.clone();
    let config = Arc::new(ConfigHandle::new(snapshot, sources, overrides));
    let metrics = Arc::new(Metrics::new());
    let outbound = Outbound::new(&metrics, Arc::default());
    let (own, tasks_config) = (Arc::clone(&ledger), Arc::clone(&config));
    let tasks = Tasks::start(
        own,
        tasks_config,
        outbound.clone(),
        Arc::clone(&metrics),
        RequestLog::off(),
        &data_dir,
    );
    GatewayParts {
        balancer: Balancer::new(&config.load()),
        tasks: tasks.expect("tasks"),
        config,
        ledger,
        metrics,
        requests: RequestLog::off(),
        connectors: Arc::default(),
        outbound,
        limits: Arc::default(),
        deadline: Arc::default(),
        hosted,
        loopback: LoopbackClient::default(),
        descriptors: Descriptors::from_limit(1024),
        open: Arc::default(),
    }
}

/// Serves what comes to a free port.
fn accept(
    app: Arc<tollgate::gateway::Connections<Gateway>>,
    shutdown: watch::Receiver<bool>,
) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a non-blocking listener");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
        while let Ok((connection, _)) = listener.accept().await {
            connection.set_nodelay(true).expect("no delay");
            let digest = SocketDigest::from_raw_fd(connection.as_raw_fd());
            let mut stream = Stream::from(connection);
            stream.set_socket_digest(digest);
            let (app, shutdown) = (Arc::clone(&app), shutdown.clone());
            tokio::spawn(async move { app.process_new(Box::new(stream), &shutdown).await });
        }
    });
    address
}

/// Counts an answer without an end for as long as somebody wants it.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn service(endless: Arc<AtomicUsize>) -> Router {
    let silent = Arc::clone(&endless);
    Router::new()
        .route("/own", any(echo))
        .route("/own/echo", any(echo))
        .route("/own/pieces", get(|| async { pieces(3) }))
        .route("/own/broken", get(broken))
        .route("/own/nothing", get(|| async { axum::http::StatusCode::NO_CONTENT }))
        .route(
            "/own/endless",
            get(async move || {
                let expected = Counted::new(&endless);
                let pieces = stream::repeat(()).then(move |()| {
                    let _counted = &expected;
                    tokio::time::sleep(Duration::from_millis(10))
                });
                Body::from_stream(pieces.map(|()| Ok::<_, std::io::Error>("more\n")))
            }),
        )
        .route(
            "/own/silent",
            get(async move || {
                let _counted = Counted::new(&silent);
                std::future::pending::<()>().await;
            }),
        )
}

/// Echoes the request to the service, with some headers that it may not set.
async fn echo(request: Request) -> Response {
    let downstream = request.extensions().get::<Downstream>().cloned().expect("whose request");
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
    let text = |name: &str| head.headers.get(name).map(|value| value.to_str().expect("text"));
    let document = json!({
        "method": head.method.as_str(),
        "uri": head.uri.to_string(),
        "host": text("host"),
        "bytes": body.len(),
        "sum": body.iter().map(|byte| u64::from(*byte)).sum::<u64>(),
        "address": downstream.address.map(|address| address.to_string()),
        "tls": downstream.tls,
    });
    let headers = [
        ("set-cookie", "a=1"),
        ("content-security-policy", "default-src 'none'"),
        ("connection", "x-hop"),
        ("keep-alive", "timeout=1"),
        ("x-request-id", "not-ours-to-say"),
    ];
    (headers, axum::response::AppendHeaders([("set-cookie", "b=2")]), Json(document))
        .into_response()
}

/// So many events, each some time after the one before.
fn pieces(count: usize) -> Response {
    let events = stream::iter(0..count).then(|number| async move {
        if number > 0 {
            tokio::time::sleep(APART).await;
        }
        Ok::<_, std::io::Error>(Bytes::from(format!("data: {number}\n\n")))
    });
    ([("content-type", "text/event-stream")], Body::from_stream(events)).into_response()
}

async fn broken() -> Body {
    let pieces = [Ok("half"), Err(std::io::Error::other("the rest is gone"))];
    Body::from_stream(stream::iter(pieces))
}

fn get_request(path: &str, lines: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: own.test\r\n{lines}\r\n").into_bytes()
}

#[test]
fn a_service_answers_at_its_path_and_below() {
    let serving = Serving::start();
    for path in ["/own", "/own/echo", "/own/echo?x=%2F"] {
        let answer = ask(serving.plain, &get_request(path, ""));
        assert_eq!(answer.status(), 200, "{path}: {answer:?}");
        let echo = answer.json();
        assert_eq!(echo["uri"], path);
        assert_eq!((&echo["host"], &echo["bytes"]), (&json!("own.test"), &json!(0)));
        assert_eq!((&echo["address"], &echo["tls"]), (&json!("127.0.0.1"), &json!(false)));
        let head = answer.head().to_ascii_lowercase();
        assert_eq!(head.matches("set-cookie:").count(), 2, "{head}");
        assert!(head.contains("content-security-policy: default-src 'none'"), "{head}");
        assert!(!head.contains("x-hop") && !head.contains("keep-alive: timeout"), "{head}");
        let id = answer.header("x-request-id").expect("a request id");
        assert_ne!(id, "not-ours-to-say");
        assert!(!head.contains("access-control"), "{head}");
        assert!(!answer.is_closed, "the connection stays open");
    }
    let missing = ask(serving.plain, &get_request("/own/else", ""));
    assert_eq!(missing.status(), 404, "the service's own: {missing:?}");
    assert!(missing.json().is_null(), "{missing:?}");
    let beside = ask(serving.plain, &get_request("/owned", ""));
    assert_eq!(beside.json()["error"]["code"], "not_found", "the gateway's: {beside:?}");
    let text =
        serving.metrics.encode(&LedgerFigures::default(), request_log::LogFigures::default());
    assert!(text.contains(r#"route="/own""#), "{text}");
    assert!(!text.contains("/own/e"), "no path that was asked for: {text}");
}

#[test]
fn a_page_that_asks_is_answered_by_the_service() {
    let serving = Serving::start();
    let request = b"OPTIONS /own/echo HTTP/1.1\r\nHost: own.test\r\nOrigin: http://evil.test\r\n\
        Access-Control-Request-Method: POST\r\n\r\n";
    let answer = ask(serving.plain, request);
    assert_eq!(answer.json()["method"], "OPTIONS", "{answer:?}");
    assert_eq!(answer.header("access-control-allow-origin"), None);
}

#[test]
fn trusted_proxies_are_believed() {
    let serving = Serving::start();
    let lines = "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\n";
    let echo = ask(serving.plain, &get_request("/own", lines)).json();
    assert_eq!((&echo["address"], &echo["tls"]), (&json!("203.0.113.9"), &json!(true)));
}

#[test]
fn bodies_arrive_whole_and_have_a_cap() {
    let serving = Serving::start();
    let post = |lines: &str, body: &[u8]| {
        let head = format!("POST /own HTTP/1.1\r\nHost: own.test\r\n{lines}\r\n");
        ask(serving.plain, &[head.as_bytes(), body].concat())
    };
    for size in [1, 65_535, 65_537, BODY_BYTES_MAX] {
        let body = vec![3; size];
        let answer = post(&format!("Content-Length: {size}\r\n"), &body);
        assert_eq!(answer.json()["sum"], 3 * size, "{size} bytes: {:?}", answer.head());
        let chunk = [format!("{size:x}\r\n").as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
        let answer = post("Transfer-Encoding: chunked\r\n", &chunk);
        assert_eq!(answer.json()["sum"], 3 * size, "{size} bytes in a chunk: {:?}", answer.head());
    }
    let size = BODY_BYTES_MAX + 1;
    let answer = post(&format!("Content-Length: {size}\r\n"), b"");
    assert_eq!(answer.status(), 413, "{answer:?}");
    assert_eq!(answer.json()["error"]["code"], "request_too_large");
    let chunk = [format!("{size:x}\r\n").as_bytes(), &vec![3; size], b"\r\n0\r\n\r\n"].concat();
    let answer = post("Transfer-Encoding: chunked\r\n", &chunk);
    assert_eq!(answer.status(), 413, "{:?}", answer.head());
    // One who never sends the rest is not waited for.
    assert_eq!(post("Content-Length: 10\r\n", b"half").status(), 408);
}

#[test]
fn expect_100_continue_is_answered() {
    let serving = Serving::start();
    let mut stream = connect(serving.plain);
    let head =
        b"POST /own HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n";
    stream.write_all(head).expect("the head leaves");
    let mut chunk = [0; 4096];
    let count = stream.read(&mut chunk).expect("a word");
    let word = String::from_utf8_lossy(&chunk[..count]).into_owned();
    assert!(word.starts_with("HTTP/1.1 100"), "{word}");
    stream.write_all(b"body").expect("the body leaves");
    let count = stream.read(&mut chunk).expect("an answer");
    let answer = String::from_utf8_lossy(&chunk[..count]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn head_and_empty_answers_have_no_body() {
    let serving = Serving::start();
    let head = b"HEAD /own/echo HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut both = head.to_vec();
    both.extend(get_request("/own/nothing", ""));
    both.extend(get_request("/own/echo", "Connection: close\r\n"));
    let mut stream = connect(serving.plain);
    let mut text = String::new();
    for request in [head.to_vec(), get_request("/own/nothing", "")] {
        stream.write_all(&request).expect("a request leaves");
        let mut chunk = [0; 4096];
        let count = stream.read(&mut chunk).expect("an answer");
        text.push_str(&String::from_utf8_lossy(&chunk[..count]));
    }
    stream.write_all(&get_request("/own/echo", "Connection: close\r\n")).expect("a last one");
    stream.read_to_string(&mut text).expect("the rest");
    let statuses: Vec<&str> =
        text.match_indices("HTTP/1.1 ").map(|(at, _)| &text[at + 9..at + 12]).collect();
    assert_eq!(statuses, ["200", "204", "200"], "{text}");
    assert_eq!(text.matches('{').count(), 1, "one body: {text}");
}

/// The times at which the pieces of an answer came, over `stream`.
fn arrivals(stream: &mut impl std::io::Read, count: usize) -> Vec<Duration> {
    let (begun, mut text, mut times) = (Instant::now(), String::new(), Vec::new());
    let mut chunk = [0; 4096];
    while times.len() < count {
        let read = stream.read(&mut chunk).expect("a piece");
        assert!(read > 0, "it ended after {text}");
        text.push_str(&String::from_utf8_lossy(&chunk[..read]));
        times.resize(text.matches("data: ").count(), begun.elapsed());
    }
    times
}

fn assert_apart(times: &[Duration], how: &str) {
    for pair in times.windows(2) {
        assert!(pair[1] - pair[0] > APART / 2, "{how}: pieces came at {times:?}");
    }
    assert_eq!(times.len(), 3, "{how}");
}

#[test]
fn pieces_leave_as_they_come_over_every_protocol() {
    let serving = Serving::start();
    let mut stream = connect(serving.plain);
    stream.write_all(&get_request("/own/pieces", "")).expect("a request leaves");
    assert_apart(&arrivals(&mut stream, 3), "HTTP/1.1");
    let der = serving.certificate.der();
    let mut stream = connect_tls(serving.tls, der, &["http/1.1"]).expect("TLS");
    stream.write_all(&get_request("/own/pieces", "")).expect("a request leaves");
    assert_apart(&arrivals(&mut stream, 3), "HTTP/1.1 over TLS");
    let client = http_builder().http2_prior_knowledge().build().expect("a client");
    serving.runtime.block_on(async {
        let answer = client.get(format!("http://{}/own/pieces", serving.plain)).send().await;
        let mut pieces = answer.expect("an answer").bytes_stream();
        let (begun, mut times) = (Instant::now(), Vec::new());
        while let Some(piece) = pieces.next().await {
            if !piece.expect("a piece").is_empty() {
                times.push(begun.elapsed());
            }
        }
        assert_apart(&times, "HTTP/2");
    });
}

#[test]
fn http_2_and_tls_are_the_same_to_a_service() {
    let serving = Serving::start();
    let pem = std::fs::read(&serving.certificate.certificate).expect("a certificate");
    let pem = reqwest::Certificate::from_pem(&pem).expect("a certificate");
    let secure = http_builder().tls_certs_only([pem]).build().expect("a client");
    let h2c = http_builder().http2_prior_knowledge().build().expect("a client");
    let plain = format!("http://{}/own", serving.plain);
    let tls = format!("https://localhost:{}/own", serving.tls.port());
    serving.runtime.block_on(async {
        for (client, url, is_tls) in [(h2c, plain, false), (secure, tls, true)] {
            let body = vec![3; 100_000];
            let answer = client.post(&url).body(body).send().await.expect("an answer");
            assert_eq!(answer.version(), reqwest::Version::HTTP_2, "{url}");
            assert!(answer.headers().contains_key("x-request-id"), "{url}");
            let echo: Value = answer.json().await.expect("JSON");
            assert_eq!((&echo["sum"], &echo["tls"]), (&json!(300_000), &json!(is_tls)), "{url}");
            let host = url.split('/').nth(2).expect("a host");
            assert_eq!((&echo["host"], &echo["uri"]), (&json!(host), &json!("/own")), "{url}");
        }
    });
}

#[test]
fn nothing_goes_on_for_a_customer_who_left() {
    let serving = Serving::start();
    let client = http_builder().http2_prior_knowledge().build().expect("a client");
    let expected = || serving.endless.load(Ordering::SeqCst);
    for path in ["/own/endless", "/own/silent"] {
        let mut stream = connect(serving.plain);
        stream.write_all(&get_request(path, "")).expect("a request leaves");
        eventually("the answer begins", || expected() == 1);
        drop(stream);
        eventually("the answer is dropped", || expected() == 0);
        let url = format!("http://{}{path}", serving.plain);
        let query = client.get(url).send();
        let leaving = serving.runtime.spawn(async move {
            let answer = query.await;
            std::future::pending::<()>().await;
            drop(answer);
        });
        eventually("the answer begins over HTTP/2", || expected() == 1);
        leaving.abort();
        eventually("the answer is dropped over HTTP/2", || expected() == 0);
    }
}

#[test]
fn the_deadline_cuts_what_has_no_end() {
    let serving = Serving::start();
    let mut stream = connect(serving.plain);
    stream.write_all(&get_request("/own/endless", "")).expect("a request leaves");
    eventually("the answer begins", || serving.endless.load(Ordering::SeqCst) == 1);
    serving.deadline.end();
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it ends");
    assert!(!text.ends_with("0\r\n\r\n"), "nobody takes it for a whole answer");
    eventually("the answer is dropped", || serving.endless.load(Ordering::SeqCst) == 0);
}

#[test]
fn an_answer_that_breaks_off_does_not_look_whole() {
    let serving = Serving::start();
    let answer = ask(serving.plain, &get_request("/own/broken", ""));
    assert_eq!(answer.status(), 200);
    assert!(answer.is_closed && !answer.bytes.ends_with(b"0\r\n\r\n"), "{answer:?}");
    let text =
        serving.metrics.encode(&LedgerFigures::default(), request_log::LogFigures::default());
    assert!(text.contains("internal"), "the metrics say what was wrong: {text}");
}

/// A chat from inside.
fn inner(serving: &Serving, key: &str, stream: bool) -> LoopbackRequest {
    let body = json!({
        "model": "m",
        "stream": stream,
        "max_tokens": 16,
        "messages": [{"role": "user", "content": "Hi"}],
    });
    let mut headers = http::HeaderMap::new();
    let bearer = format!("Bearer {key}").parse().expect("a value");
    headers.insert(http::header::AUTHORIZATION, bearer);
    // What a stranger may have written says nothing about whose request it is.
    headers.insert("content-length", "1".parse().expect("a value"));
    assert!(!serving.key.is_empty());
    LoopbackRequest {
        method: http::Method::POST,
        path: "/v1/chat/completions".to_owned(),
        headers,
        body: body.to_string().into(),
        address: Some("203.0.113.9".parse().expect("an address")),
        origin: None,
    }
}

#[test]
fn a_request_from_inside_passes_every_stage_and_streams() {
    let serving = Serving::start();
    let query = |key: &str, stream: bool| serving.loopback.send(inner(&serving, key, stream));
    serving.runtime.block_on(async {
        let mut refused = query("sk-unknown", false).await.expect("an answer");
        assert_eq!(refused.status, 401, "the key is looked at");
        let text = refused.chunk().await.expect("a piece").expect("an error");
        assert!(String::from_utf8_lossy(&text).contains("unauthorized"));
        assert_eq!(refused.chunk().await.expect("an end"), None);

        let mut whole = query(&serving.key, false).await.expect("an answer");
        assert_eq!((whole.status, whole.headers.contains_key("x-request-id")), (200, true));
        while whole.chunk().await.expect("a piece").is_some() {}
        let settled = whole.settled().await.expect("it was settled");
        assert!(settled.usage.output_tokens > 0, "{settled:?}");

        let mut stream = query(&serving.key, true).await.expect("an answer");
        let (begun, mut times, mut text) = (Instant::now(), Vec::new(), String::new());
        while let Some(piece) = stream.chunk().await.expect("a piece") {
            times.push(begun.elapsed());
            text.push_str(&String::from_utf8_lossy(&piece));
        }
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
        let (first, last) = (times[0], times[times.len() - 1]);
        assert!(last - first > APART, "pieces came at {times:?}");

        // Its services are for those outside.
        let request =
            LoopbackRequest { path: "/own".to_owned(), ..inner(&serving, &serving.key, false) };
        assert_eq!(serving.loopback.send(request).await.expect("an answer").status, 404);
    });
}

#[test]
fn an_in_process_request_ends_with_its_caller_and_with_the_gateway() {
    let serving = Serving::start();
    let ask = |stream| serving.loopback.send(inner(&serving, &serving.key, stream));
    serving.runtime.block_on(async {
        let mut left = ask(true).await.expect("an answer");
        left.chunk().await.expect("a piece");
        drop(left);
    });
    eventually("nothing is under way", || serving.metrics.in_flight() == 0);
    serving.runtime.block_on(async {
        let mut cut = ask(true).await.expect("an answer");
        cut.chunk().await.expect("a piece");
        serving.deadline.end();
        let mut text = String::new();
        while let Ok(Some(piece)) = cut.chunk().await {
            text.push_str(&String::from_utf8_lossy(&piece));
        }
        assert!(text.contains("stopping") && !text.contains("[DONE]"), "{text}");
    });
    eventually("nothing is under way", || serving.metrics.in_flight() == 0);
}

/// The client's trace of the requests whose spans are looked at: other tests of this process make spans too.
const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
static SPANS: Mutex<Vec<RequestSpan>> = Mutex::new(Vec::new());

fn keep_span(finished: &FinishedRequest<'_>) {
    if finished.traceparent == Some(TRACE) {
        SPANS.lock().expect("no poison").push(finished.into());
    }
}

#[test]
fn spans_have_the_names_of_the_conventions_and_no_prompt_or_key() {
    install_span_export(keep_span);
    let serving = Serving::start();
    let url = format!("http://{}/v1/chat/completions", serving.plain);
    for (model, status) in [("m", 200), ("no-such-model", 404)] {
        let message = json!({"role": "user", "content": "canary-prompt"});
        let call = http()
            .post(&url)
            .bearer_auth(&serving.key)
            .header("traceparent", TRACE)
            .json(&json!({"model": model, "messages": [message]}));
        let answered = serving.runtime.block_on(async {
            let answer = call.send().await.expect("an answer");
            (answer.status().as_u16(), answer.bytes().await.is_ok())
        });
        assert_eq!(answered, (status, true), "{model}");
    }
    let spans = || SPANS.lock().expect("no poison").clone();
    eventually("both requests have a span", || spans().len() == 2);
    let spans = spans();
    let [served, refused] = &spans[..] else { panic!("two spans: {spans:?}") };
    assert_eq!((served.name.as_str(), refused.name.as_str()), ("chat m", "chat"));
    assert!(served.first_byte.is_some_and(|first| first >= served.began && first <= served.ended));
    assert_eq!(
        (served.error, refused.error),
        (None, None),
        "the client's error is none of the server"
    );
    let names: Vec<_> = served.attributes.iter().map(|(name, _)| *name).collect();
    for name in [
        "http.request.method",
        "http.route",
        "http.response.status_code",
        "gen_ai.operation.name",
        "gen_ai.provider.name",
        "gen_ai.request.model",
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
        "tollgate.request_id",
        "tollgate.account_id",
        "tollgate.key_id",
        "tollgate.usage_source",
        "tollgate.cost_usd",
    ] {
        assert!(names.contains(&name), "no {name} in {served:?}");
    }
    let not_found = ("error.type", AttributeValue::Text("model_not_found".to_owned()));
    assert!(refused.attributes.contains(&not_found), "{refused:?}");
    let all = format!("{spans:?}");
    for secret in ["canary-prompt", &serving.key, "no-such-model"] {
        assert!(!all.contains(secret), "{secret} is in a span: {all}");
    }
}
