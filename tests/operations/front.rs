//! nginx and HAProxy in front of a running gateway, with the configuration that is shipped.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::harness::child::Running;
use crate::harness::tls::{TestCertificate, connect_tls};
use crate::harness::{Gateway, Recorder, Visitor, ask, connect, free_address, simulator, tool};
use tollgate::sim::{Sim, SimOptions};

const GOOD: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
const STREAMED: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;

/// The proxy in front.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Nginx,
    Haproxy,
}

const KINDS: [Kind; 2] = [Kind::Nginx, Kind::Haproxy];

/// A running proxy; ended on drop.
struct Front {
    address: SocketAddr,
    _process: Running,
    _directory: tempfile::TempDir,
}

fn shipped(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(file);
    fs::read_to_string(path).expect("a shipped file")
}

/// Puts `new` in the place of the one `old`.
fn replaced(text: &str, old: &str, new: &str) -> String {
    assert_eq!(text.matches(old).count(), 1, "{old:?} once in:\n{text}");
    text.replace(old, new)
}

fn run(command: &mut Command) -> Running {
    let name = command.get_program().to_owned();
    let started = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    Running(started.unwrap_or_else(|error| panic!("{name:?}: {error}")))
}

impl Front {
    /// Starts a proxy with the shipped configuration, but for the addresses.
    fn start(kind: Kind, gateway: SocketAddr, admin: SocketAddr) -> Self {
        Self::before(kind, &gateway.to_string(), admin)
    }

    /// The same with another text in the place of the gateway's address.
    fn before(kind: Kind, gateway: &str, admin: SocketAddr) -> Self {
        Self::with(kind, gateway, admin, None)
    }

    /// The same, over TLS where there is a certificate.
    fn with(
        kind: Kind,
        gateway: &str,
        admin: SocketAddr,
        certificate: Option<&TestCertificate>,
    ) -> Self {
        Self::shaped(kind, gateway, admin, certificate, |text| text)
    }

    /// The same, with what `shape` makes of nginx's configuration.
    fn shaped(
        kind: Kind,
        gateway: &str,
        admin: SocketAddr,
        certificate: Option<&TestCertificate>,
        shape: impl FnOnce(String) -> String,
    ) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let address = free_address();
        let path = directory.path().join("conf");
        let process = match kind {
            Kind::Nginx => {
                let text = shipped("nginx/nginx.conf");
                let text = replaced(&text, "127.0.0.1:8080", gateway);
                let listen = match certificate {
                    None => format!("listen {address};"),
                    Some(TestCertificate { certificate, key, .. }) => format!(
                        "listen {address} ssl;\nssl_certificate {};\nssl_certificate_key {};",
                        certificate.display(),
                        key.display()
                    ),
                };
                let text = replaced(&text, "listen 80;", &listen);
                // Its own directories may belong to others.
                let mut own = "http {\n    access_log off;\n".to_owned();
                for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"] {
                    let temporary = directory.path().join(kind);
                    own.push_str(&format!("    {kind}_temp_path {};\n", temporary.display()));
                }
                fs::write(&path, shape(replaced(&text, "http {\n", &own))).expect("written");
                let pid = directory.path().join("pid");
                run(tool("nginx")
                    .args(["-e", "stderr", "-c"])
                    .arg(&path)
                    .arg("-g")
                    // One process, so that it ends with the test.
                    .arg(format!("daemon off; master_process off; pid {};", pid.display())))
            }
            Kind::Haproxy => {
                let text = shipped("haproxy/haproxy.cfg");
                let text = replaced(&text, "127.0.0.1:8080", gateway);
                let text = replaced(&text, "port 9090", &format!("port {}", admin.port()));
                let mut bind = format!("bind {address}");
                if let Some(TestCertificate { certificate, key, .. }) = certificate {
                    // Both in one file.
                    let pem = directory.path().join("both.pem");
                    let read = |path: &Path| fs::read_to_string(path).expect("a PEM file");
                    fs::write(&pem, read(certificate) + &read(key)).expect("written");
                    bind.push_str(&format!(" ssl crt {}", pem.display()));
                }
                let text = replaced(&text, "bind :80", &bind);
                fs::write(&path, text).expect("written");
                // Without a master process, so that it ends with the test.
                run(tool("haproxy").arg("-db").arg("-f").arg(&path))
            }
        };
        crate::harness::within(
            Duration::from_secs(10),
            || TcpStream::connect(address).is_ok(),
            || format!("{kind:?} does not listen"),
        );
        Self { address, _process: process, _directory: directory }
    }
}

#[test]
fn streams_pass_event_by_event() {
    let sim = simulator(&["chunks=10", "interval-ms=150"]);
    let gateway = Gateway::start(sim.addr());
    // Without the gateway's own word to nginx, `x-accel-buffering`, the configuration has to do.
    for (kind, behind) in KINDS.into_iter().zip([sim.addr(), gateway.address]) {
        let front = Front::start(kind, behind, gateway.admin);
        let mut stream = connect(front.address);
        stream.write_all(&gateway.chat_json(STREAMED)).expect("sent");
        let (mut bytes, mut arrivals, mut last) = (Vec::new(), 0, Instant::now());
        let mut chunk = [0; 4096];
        while memchr::memmem::find(&bytes, b"data: [DONE]").is_none() {
            let count = stream.read(&mut chunk).expect("more of the stream");
            assert!(count > 0, "{kind:?}: {}", String::from_utf8_lossy(&bytes));
            bytes.extend_from_slice(&chunk[..count]);
            if last.elapsed() > Duration::from_millis(75) {
                arrivals += 1;
            }
            last = Instant::now();
        }
        assert!(arrivals >= 8, "{kind:?}: ten events came in {arrivals} pieces");
    }
}

#[test]
fn customers_cannot_name_their_own_address_and_large_bodies_pass() {
    let recorder = Recorder::start();
    let gateway = Gateway::start(recorder.address);
    // So much text would fit into no context.
    let url = format!("data:image/png;base64,{}", "x".repeat(900_000));
    let picture = format!(r#"[{{"type":"image_url","image_url":{{"url":"{url}"}}}}]"#);
    let large = GOOD.replace("\"hi\"", &picture);
    for kind in KINDS {
        let front = Front::start(kind, gateway.address, gateway.admin);
        let answer = ask(front.address, &gateway.chat_json(&large));
        assert_eq!(answer.status(), 200, "{kind:?}: {:?}", answer.head());
        assert!(answer.header("x-request-id").is_some(), "{kind:?}: {:?}", answer.head());
    }
    // What the gateway is told of the client, seen by an upstream in its place.
    for kind in KINDS {
        let seen = Recorder::start();
        let front = Front::start(kind, seen.address, gateway.admin);
        let lines = format!("X-Forwarded-For: 8.8.8.8\r\nContent-Length: {}\r\n", GOOD.len());
        assert_eq!(ask(front.address, &gateway.chat(&lines, GOOD)).status(), 200, "{kind:?}");
        let head = seen.requests()[0].head.to_lowercase();
        assert!(head.contains("x-forwarded-for: 127.0.0.1\r\n"), "{kind:?}: {head}");
        assert!(!head.contains("8.8.8.8"), "{kind:?}: {head}");
    }
}

const CONSOLE: &str = "console: { sign_up: open }\ntrusted_proxies: [127.0.0.1/32]\n";

/// A form is sent by a page of the same origin: host and port pass through whole.
#[tokio::test(flavor = "multi_thread")]
async fn forms_of_the_console_pass() {
    let gateway = Gateway::start_with(free_address(), CONSOLE);
    for kind in KINDS {
        let front = Front::start(kind, gateway.address, gateway.admin);
        let visitor = Visitor::new(format!("http://{}/console", front.address));
        let page = visitor.get("/signup").await;
        assert_eq!(page.status, 200, "{kind:?}: {page:?}");
        let set = page.headers["set-cookie"].to_str().expect("text");
        assert!(!set.contains("Secure"), "{kind:?}: {set}");
        let email = format!("{kind:?}@example.com");
        let fields = [("name", "Ann"), ("email", &email), ("password", "four words in here")];
        let answer = visitor.post("/signup", &fields).await;
        assert_eq!(answer.status, 303, "{kind:?}: {answer:?}");
    }
}

#[test]
fn over_tls_cookies_are_secure() {
    let gateway = Gateway::start_with(free_address(), CONSOLE);
    let certificate = TestCertificate::new();
    for kind in KINDS {
        let before = gateway.address.to_string();
        let front = Front::with(kind, &before, gateway.admin, Some(&certificate));
        let mut stream =
            connect_tls(front.address, certificate.der(), &["http/1.1"]).expect("a handshake");
        let request = b"GET /console/login HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        stream.write_all(request).expect("sent");
        let mut answer = Vec::new();
        // However it ends the connection.
        drop(stream.read_to_end(&mut answer));
        let answer = String::from_utf8_lossy(&answer).to_lowercase();
        assert!(answer.starts_with("http/1.1 200"), "{kind:?}: {answer}");
        for word in ["; secure", "strict-transport-security: max-age=31536000"] {
            assert!(answer.contains(word), "{kind:?}: {word} in {answer}");
        }
    }
}

/// The configuration that docs/operations.md shows, over TLS: the API and the console below a path.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_lives_below_a_path() {
    let page = include_str!("../../docs/operations.md");
    let (_, section) = page.split_once("### Below a path\n").expect("the section");
    let block = |language: &str| {
        let begin = format!("```{language}\n");
        let (_, rest) = section.split_once(&begin).expect("a block");
        rest.split_once("```").expect("its end").0.to_owned()
    };
    let sim = simulator(&[]);
    let own = block("yaml").replace("console:\n", "console:\n  sign_up: open\n");
    let own = format!("{own}trusted_proxies: [127.0.0.1/32]\n");
    let gateway = Gateway::start_with(sim.addr(), &own);
    let certificate = TestCertificate::new();
    let below = |text: String| {
        let (before, rest) = text.split_once("        location / {\n").expect("the location");
        let (directives, after) = rest.split_once("        }\n").expect("its end");
        let kept = directives.lines().filter(|line| !line.contains("proxy_pass "));
        let kept: String = kept.map(|line| format!("{line}\n")).collect();
        format!("{before}{kept}{}{after}", block("nginx"))
    };
    let before = gateway.address.to_string();
    let front = Front::shaped(Kind::Nginx, &before, gateway.admin, Some(&certificate), below);
    let over_tls = |request: String| {
        let mut stream =
            connect_tls(front.address, certificate.der(), &["http/1.1"]).expect("a handshake");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = Vec::new();
        // However it ends the connection.
        drop(stream.read_to_end(&mut answer));
        String::from_utf8_lossy(&answer).into_owned()
    };
    let call = format!(
        "POST /ai/v1/chat/completions HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\
         Authorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{GOOD}",
        gateway.key,
        GOOD.len()
    );
    let answer = over_tls(call);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let get = |path: &str| {
        over_tls(format!("GET {path} HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n"))
    };
    let page = get("/ai/console/signup");
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    let lower = page.to_lowercase();
    assert!(lower.contains("path=/ai/console") && lower.contains("; secure"), "{page}");
    for (at, _) in page.match_indices("href=\"/").chain(page.match_indices("action=\"/")) {
        let link = page[at..].split('"').nth(1).expect("a link");
        assert!(link.starts_with("/ai/console"), "{link}");
    }
    let styles = page.split('"').find(|text| text.contains(".css")).expect("a style sheet");
    assert!(get(styles).starts_with("HTTP/1.1 200"), "{styles}");
    assert!(get("/elsewhere").starts_with("HTTP/1.1 404"), "nothing is served beside the path");
}

/// An upstream's headers to a proxy of its own do not make this proxy serve its own files.
#[test]
fn an_upstream_does_not_steer_the_proxy() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            drop(stream.read(&mut request));
            let answer = "HTTP/1.1 200 OK\r\nX-Accel-Redirect: /elsewhere\r\n\
                          X-Accel-Limit-Rate: 1\r\nContent-Length: 5\r\n\r\nwords";
            drop(stream.write_all(answer.as_bytes()));
        }
    });
    let well = Gateway::start(free_address());
    let front = Front::start(Kind::Nginx, address, well.admin);
    let answer = ask(front.address, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((answer.status(), answer.body().as_slice()), (200, &b"words"[..]), "{answer:?}");
    assert!(!answer.head().to_lowercase().contains("x-accel"), "{answer:?}");
}

/// A request that may have been begun is not sent a second time by the proxy.
#[test]
fn a_post_is_sent_once() {
    // Its probes say that the target is well.
    let well = Gateway::start(free_address());
    for kind in KINDS {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let posts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&posts);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut request = [0; 4096];
                let count = stream.read(&mut request).unwrap_or(0);
                if request[..count].starts_with(b"POST") {
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                // Closed without an answer.
            }
        });
        // nginx could ask a second server of its group.
        let servers = match kind {
            Kind::Nginx => format!("{address};\n        server {address}"),
            Kind::Haproxy => address.to_string(),
        };
        let front = Front::before(kind, &servers, well.admin);
        let lines = format!("Content-Length: {}\r\n", GOOD.len());
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n{GOOD}");
        let answer = ask(front.address, request.as_bytes());
        assert_eq!(answer.status(), 502, "{kind:?}: {:?}", answer.head());
        assert_eq!(posts.load(Ordering::Relaxed), 1, "{kind:?} sent it again");
    }
}

/// With HAProxy, a gateway that is away for a moment costs customers a wait and no failure.
#[test]
fn requests_wait_behind_haproxy_while_the_gateway_restarts() {
    let well = Gateway::start(free_address());
    let gateway = free_address();
    let front = Front::start(Kind::Haproxy, gateway, well.admin);
    let started = Instant::now();
    let address = front.address;
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{GOOD}",
        GOOD.len()
    );
    let waiting = std::thread::spawn(move || ask(address, request.as_bytes()));
    crate::harness::let_pass(Duration::from_millis(1200), "the gateway is away for as long");
    let options = SimOptions { listen: gateway, ..SimOptions::default() };
    let _back = Sim::start(options).expect("the port is free");
    let answer = waiting.join().expect("no panic");
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert!(started.elapsed() > Duration::from_secs(1), "it waited");
}
