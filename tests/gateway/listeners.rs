//! TLS, the PROXY protocol and trusted proxies: real clients over real listeners.

mod load;

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::harness::tls::{TestCertificate, TlsStream, connect_tls, handshake};
use crate::harness::{
    Answer, Gateway, Recorder, ask, ask_over, connect, eventually, simulator, tool,
};

const GOOD: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;

/// The listener with TLS, behind the plain one that every gateway has.
const TLS: usize = 1;

/// A gateway whose second listener speaks TLS.
fn start_tls(certificate: &TestCertificate, upstream: SocketAddr) -> Gateway {
    let listeners = format!("  - address: 127.0.0.1:0\n    tls: {}\n", certificate.yaml());
    Gateway::listening(&listeners, "", upstream)
}

/// Runs a tool that must be there and must succeed, and gives what it printed.
fn run(name: &str, arguments: &[&str]) -> String {
    let ran = tool(name).args(arguments).output().expect("it runs");
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{name} {arguments:?}: {:?}\n{text}\n{errors}", ran.status);
    text
}

/// Asks over a TLS connection that is open.
fn ask_tls(stream: &mut TlsStream, request: &[u8]) -> Answer {
    let socket = stream.sock.try_clone().expect("a second handle");
    let timeout = Some(Duration::from_secs(5));
    socket.set_read_timeout(timeout).expect("a timeout");
    ask_over(stream, &socket, request)
}

/// The gateway's log.
fn log(gateway: &Gateway) -> String {
    std::fs::read_to_string(gateway.path("log")).expect("the log")
}

/// The `client` of the answer's line in the access log.
fn client(gateway: &Gateway, answer: &Answer) -> String {
    assert_eq!(answer.status(), 200, "{answer:?}");
    let id = answer.header("x-request-id").expect("an id");
    let mut found = String::new();
    eventually("the line in the access log", || {
        let log = log(gateway);
        let lines = log.lines().filter_map(|line| serde_json::from_str(line).ok());
        let line = lines.into_iter().find(|line: &serde_json::Value| line["request_id"] == id);
        line.inspect(|line| found = line["client"].as_str().unwrap_or_default().to_owned())
            .is_some()
    });
    found
}

#[test]
fn curl_speaks_both_versions_over_tls() {
    let recorder = Recorder::start();
    let certificate = TestCertificate::new();
    let gateway = start_tls(&certificate, recorder.address);
    let url = format!("https://localhost:{}/v1/chat/completions", gateway.listeners[TLS].port());
    let bearer = format!("Authorization: Bearer {}", gateway.key);
    let authority = certificate.certificate.display().to_string();
    // Longer than any buffer on the way, and than one window of HTTP/2.
    let words = "word ".repeat(60_000);
    let body = GOOD.replace("hi", &words);
    let file = gateway.path("body.json");
    std::fs::write(&file, &body).expect("written");
    let data = format!("@{}", file.display());
    let cases: [(&[&str], &str); 4] = [
        (&["--http1.1"], "1.1"),
        (&["--http2"], "2"),
        (&["--http2", "--tls-max", "1.2"], "2"),
        (&["--no-alpn", "--http1.1"], "1.1"),
    ];
    for (flags, version) in cases {
        let always = ["-sS", "--max-time", "10", "--cacert", &authority, "-H", &bearer];
        let call = ["--data-binary", &data, "-w", "\n%{http_code} %{http_version}", &url];
        let printed = run("curl", &[flags, &always, &call].concat());
        let (answer, written) = printed.rsplit_once('\n').expect("two parts");
        assert_eq!(written, format!("200 {version}"), "{flags:?}: {printed}");
        assert!(answer.contains("chat.completion"), "{flags:?}: {answer}");
        let reached = recorder.requests().pop().expect("a request");
        let whole = memchr::memmem::find(&reached.body, words.as_bytes()).is_some();
        assert!(whole, "{flags:?}: {} bytes arrived", reached.body.len());
    }
    assert_eq!(recorder.requests().len(), cases.len(), "each reached the upstream");
}

#[test]
fn a_certificate_that_changes_on_disk_is_shown_without_a_restart() {
    let recorder = Recorder::start();
    let certificate = TestCertificate::new();
    let gateway = start_tls(&certificate, recorder.address);
    let address = gateway.listeners[TLS];
    let request = gateway.chat_json(GOOD);
    let first = certificate.der();
    let mut open = connect_tls(address, first.clone(), &["http/1.1"]).expect("a handshake");
    assert_eq!(ask_tls(&mut open, &request).status(), 200, "before");

    certificate.replace();
    let second = certificate.der();
    eventually("the new certificate", || {
        connect_tls(address, second.clone(), &["http/1.1"]).is_ok()
    });
    assert!(connect_tls(address, first, &[]).is_err(), "the old one is not shown any more");
    assert_eq!(ask_tls(&mut open, &request).status(), 200, "what was open goes on");

    let expires = "tollgate_certificate_expiry_timestamp_seconds{listener=\"127.0.0.1:0\"}";
    assert!(gateway.metrics().contains(&format!("{expires} 4102444800")), "2100-01-01");

    // Another pair's key: what is shown stays, and the log says why.
    let other = TestCertificate::new();
    std::fs::copy(&other.key, &certificate.key).expect("copied");
    eventually("the refusal", || log(&gateway).contains("does not belong to the certificate"));
    assert!(log(&gateway).contains("the certificate shown stays"), "{}", log(&gateway));
    connect_tls(address, second, &["h2"]).expect("a handshake with the one before");
    std::fs::copy(&other.certificate, &certificate.certificate).expect("copied");
    eventually("the whole pair", || connect_tls(address, certificate.der(), &["h2"]).is_ok());
    assert_eq!(log(&gateway).matches("the certificate shown stays").count(), 1, "said once");
}

#[test]
fn a_reload_reads_certificates_again_or_keeps_the_last_good_one() {
    let recorder = Recorder::start();
    let (first, second) = (TestCertificate::new(), TestCertificate::new());
    let gateway = start_tls(&first, recorder.address);
    let address = gateway.listeners[TLS];
    let shows = |certificate: &TestCertificate| {
        connect_tls(address, certificate.der(), &["http/1.1"]).is_ok()
    };
    let routes = gateway.path("routes.yaml");
    let text = std::fs::read_to_string(&routes).expect("the file");
    let key_of = |certificate: &TestCertificate| certificate.key.display().to_string();

    let mismatched = text.replace(&key_of(&first), &key_of(&second));
    std::fs::write(&routes, mismatched).expect("written");
    gateway.signal("HUP");
    eventually("the refusal", || log(&gateway).contains("configuration not reloaded"));
    let log_text = log(&gateway);
    assert!(log_text.contains("this key does not belong to the certificate"), "{log_text}");
    assert!(log_text.contains("routes.yaml:5:"), "says where: {log_text}");
    assert!(shows(&first), "the last good certificate is shown");

    std::fs::write(&routes, text.replace(&first.yaml(), &second.yaml())).expect("written");
    gateway.signal("HUP");
    eventually("the reload", || log(&gateway).contains("configuration reloaded"));
    assert!(shows(&second) && !shows(&first), "another pair of files, without a restart");
    assert!(!log(&gateway).contains("listeners has changed"), "nothing waits for a restart");
    let answer = ask(gateway.address, &gateway.chat_json(GOOD));
    assert_eq!(answer.status(), 200, "{answer:?}");
}

#[test]
fn stalled_clients_are_disconnected() {
    let recorder = Recorder::start();
    let certificate = TestCertificate::new();
    let listeners = format!(
        "  - {{ address: '127.0.0.1:0', tls: {0} }}
  - {{ address: '127.0.0.1:0', tls: {0}, proxy_protocol: true }}
  - {{ address: '127.0.0.1:0', proxy_protocol: true }}
",
        certificate.yaml()
    );
    let gateway = Gateway::listening(&listeners, "", recorder.address);
    let [plain, tls, both, proxied] = gateway.listeners[..] else { panic!("four listeners") };
    let began = Instant::now();
    let begun = |address: SocketAddr, first: &[u8]| {
        let mut stream = connect(address);
        stream.write_all(first).expect("the beginning leaves");
        stream
    };
    let mut sockets = vec![
        ("no handshake", begun(tls, b"")),
        ("half of a handshake", begun(tls, b"\x16\x03\x01\x02\x00")),
        ("no PROXY header", begun(proxied, b"")),
        ("half of a PROXY header", begun(proxied, b"PROXY TCP4 192.0.2.1")),
        ("half of a binary one", begun(both, b"\r\n\r\n\0\r\nQUIT\n\x21\x11")),
        ("a PROXY header, but no handshake", begun(both, b"PROXY UNKNOWN\r\n")),
    ];
    for alpn in ["h2", "http/1.1"] {
        let stream = connect_tls(tls, certificate.der(), &[alpn]).expect("a handshake");
        sockets.push((alpn, stream.sock));
    }
    // HTTP/2 that begins as it should and then asks for nothing.
    let hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    sockets.push(("HTTP/2 without a request", begun(plain, hello)));
    for (name, mut socket) in sockets {
        socket.set_read_timeout(Some(Duration::from_secs(25))).expect("a timeout");
        let mut rest = Vec::new();
        let ended = socket.read_to_end(&mut rest);
        assert!(ended.is_ok(), "{name}: still open after {:?}: {ended:?}", began.elapsed());
    }
    assert!(began.elapsed() < Duration::from_secs(20), "took {:?}", began.elapsed());
    for (name, address, wrong) in [
        ("HTTP where TLS is spoken", tls, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("HTTP where a PROXY header belongs", proxied, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("a wrong PROXY header", proxied, "PROXY TCP4 a b 1 2\r\nGET / HTTP/1.1\r\n\r\n"),
    ] {
        let answer = ask(address, wrong.as_bytes());
        assert!(answer.is_closed && answer.status() == 0, "{name}: {answer:?}");
        assert!(answer.took < Duration::from_secs(2), "{name}: at once, not {:?}", answer.took);
    }
    let log_text = log(&gateway);
    assert!(!log_text.contains("\"level\":\"error\""), "strangers fill no log:\n{log_text}");
    assert_eq!(ask(plain, &gateway.chat_json(GOOD)).status(), 200, "honest traffic");
}

/// A PROXY header of version 2 for a client at 198.51.100.7 over TCP.
fn binary_header() -> Vec<u8> {
    let addresses = [198, 51, 100, 7, 192, 0, 2, 1, 0x12, 0x67, 0x01, 0xbb];
    let more = [0x04, 0, 2, 0, 0];
    let head = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x11";
    [head.as_slice(), &addresses, &more].concat()
}

#[test]
fn the_proxy_header_names_the_client() {
    let recorder = Recorder::start();
    let certificate = TestCertificate::new();
    let listeners = format!(
        "  - {{ address: '127.0.0.1:0', proxy_protocol: true, tls: {} }}
  - {{ address: '127.0.0.1:0', proxy_protocol: true }}
",
        certificate.yaml()
    );
    let gateway = Gateway::listening(&listeners, "", recorder.address);
    let [plain, tls, proxied] = gateway.listeners[..] else { panic!("three listeners") };
    let request = gateway.chat_json(GOOD);
    let headers: [(&[u8], &str); 5] = [
        (b"PROXY TCP4 198.51.100.7 192.0.2.1 4711 443\r\n", "198.51.100.7"),
        (b"PROXY TCP6 2001:db8::7 2001:db8::1 4711 443\r\n", "2001:db8::7"),
        (b"PROXY UNKNOWN\r\n", "127.0.0.1"),
        (&binary_header(), "198.51.100.7"),
        (b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0", "127.0.0.1"),
    ];
    for (header, address) in headers {
        let shown = header.escape_ascii();
        // Header and request in one piece, and the header alone, byte by byte.
        let answer = ask(proxied, &[header, &request].concat());
        assert_eq!(client(&gateway, &answer), address, "{shown}");
        let mut socket = connect(proxied);
        for byte in header {
            socket.write_all(&[*byte]).expect("a byte leaves");
        }
        let handle = socket.try_clone().expect("a second handle");
        let answer = ask_over(&mut socket, &handle, &request);
        assert_eq!(client(&gateway, &answer), address, "{shown}, slowly");

        let mut socket = connect(tls);
        socket.write_all(header).expect("the header leaves");
        let mut stream = handshake(socket, certificate.der(), &["http/1.1"]).expect("a handshake");
        assert_eq!(client(&gateway, &ask_tls(&mut stream, &request)), address, "{shown}, TLS");
    }
    // Where it is not asked for, it is a head that nobody understands.
    let answer = ask(plain, &[b"PROXY UNKNOWN\r\n".as_slice(), &request].concat());
    assert_eq!(answer.status(), 400, "{answer:?}");
}

#[test]
fn forwarded_addresses_are_believed_of_trusted_proxies_alone() {
    let recorder = Recorder::start();
    let listeners = "  - { address: '127.0.0.1:0', proxy_protocol: true }\n";
    let trusted = "trusted_proxies: [127.0.0.0/8, 10.0.0.0/8]\n";
    let gateway = Gateway::listening(listeners, trusted, recorder.address);
    let [plain, proxied] = gateway.listeners[..] else { panic!("two listeners") };
    let request = |forwarded: &str| {
        let lines = format!("Content-Length: {}\r\n{forwarded}", GOOD.len());
        gateway.chat(&lines, GOOD)
    };
    let twice = "X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-For: 198.51.100.7, 10.0.0.2\r\n";
    for (forwarded, address) in [
        ("", "127.0.0.1"),
        ("X-Forwarded-For: 198.51.100.7\r\n", "198.51.100.7"),
        (twice, "198.51.100.7"),
        ("X-Forwarded-For: 198.51.100.7, nonsense\r\n", "127.0.0.1"),
        ("Forwarded: for=198.51.100.7\r\nX-Real-IP: 198.51.100.7\r\n", "127.0.0.1"),
    ] {
        let answer = ask(plain, &request(forwarded));
        assert_eq!(client(&gateway, &answer), address, "{forwarded}");
    }
    for (peer, address) in [("10.9.9.9", "198.51.100.7"), ("192.0.2.9", "192.0.2.9")] {
        let header = format!("PROXY TCP4 {peer} 192.0.2.1 4711 443\r\n");
        let answer = ask(proxied, &[header.into_bytes(), request(twice)].concat());
        assert_eq!(client(&gateway, &answer), address, "behind {peer}");
    }
    for recorded in recorder.requests() {
        let head = recorded.head.to_ascii_lowercase();
        assert!(!head.contains("forwarded") && !head.contains("198.51"), "stays here:\n{head}");
    }
}

/// HTTP/2 requests in progress finish after SIGTERM, and idle connections receive GOAWAY.
#[test]
fn sigterm_drains_http2_over_tls() {
    let sim = simulator(&["chunks=20", "interval-ms=50"]);
    let certificate = TestCertificate::new();
    let mut gateway = start_tls(&certificate, sim.addr());
    let url = format!("https://localhost:{}/v1/chat/completions", gateway.listeners[TLS].port());
    let bearer = format!("Authorization: Bearer {}", gateway.key);
    let authority = certificate.certificate.display().to_string();
    let body = GOOD.replacen('{', "{\"stream\":true,", 1);
    let stream = std::thread::spawn(move || {
        let call = ["--http2", "-sSN", "--max-time", "10", "--cacert", &authority];
        run("curl", &[&call[..], &["-H", &bearer, "-d", &body, &url]].concat())
    });
    let mut idle =
        connect_tls(gateway.listeners[TLS], certificate.der(), &["h2"]).expect("a handshake");
    let hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    idle.write_all(hello).and_then(|()| idle.flush()).expect("the beginning leaves");
    eventually("the stream is under way beside an idle connection", || {
        sim.requests_in_flight() == 1 && gateway.metric("tollgate_connections") == 2.0
    });
    gateway.signal("TERM");
    assert!(gateway.wait().success(), "exit 0 after a drain");
    let answer = stream.join().expect("no panic");
    assert!(answer.contains("data: [DONE]"), "the stream was cut: {answer}");
    let mut read = Vec::new();
    // It ends without a word of TLS, or with one.
    drop(idle.read_to_end(&mut read));
    assert!(has_frame(&read, 7), "a GOAWAY: {read:?}");
}

/// True if there is a frame of that kind in what was read of HTTP/2.
fn has_frame(mut read: &[u8], kind: u8) -> bool {
    while let [high, middle, low, found, ..] = *read {
        if found == kind {
            return true;
        }
        let length = u32::from_be_bytes([0, high, middle, low]);
        let end = 9 + usize::try_from(length).expect("a length");
        read = read.get(end..).unwrap_or_default();
    }
    false
}

#[test]
fn what_a_listener_speaks_changes_at_a_restart() {
    let recorder = Recorder::start();
    let certificate = TestCertificate::new();
    let gateway = start_tls(&certificate, recorder.address);
    let routes = gateway.path("routes.yaml");
    let text = std::fs::read_to_string(&routes).expect("the file");
    let without = text.replace(&format!("    tls: {}\n", certificate.yaml()), "");
    for changed in [without, text.replace("h2c: true", "proxy_protocol: true")] {
        assert_ne!(changed, text, "something has changed");
        let before = log(&gateway).matches("configuration reloaded").count();
        std::fs::write(&routes, changed).expect("written");
        gateway.signal("HUP");
        eventually("the reload", || {
            log(&gateway).matches("configuration reloaded").count() > before
        });
        let named = log(&gateway).matches("listeners has changed and takes effect").count();
        assert_eq!(named, before + 1, "{}", log(&gateway));
        let answer = ask(gateway.address, &gateway.chat_json(GOOD));
        assert_eq!(answer.status(), 200, "the plain listener stays one: {answer:?}");
        let tls = connect_tls(gateway.listeners[TLS], certificate.der(), &["h2"]);
        assert!(tls.is_ok(), "the other goes on speaking TLS");
    }
}

/// The admin address with a certificate: the API is spoken over TLS only, commands find out from the
/// files and accept no other certificate, and a new one is shown without a restart.
#[test]
fn the_admin_address_speaks_tls() {
    let directory = tempfile::tempdir().expect("a directory");
    let certificate = crate::harness::tls::TestCertificate::new();
    let other = crate::harness::tls::TestCertificate::new();
    let (routes, models) =
        (directory.path().join("routes.yaml"), directory.path().join("models.yaml"));
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::copy(root.join("models.yaml"), &models).expect("copied");
    let shipped = std::fs::read_to_string(root.join("routes.yaml")).expect("the shipped file");
    let rest = &shipped[shipped.find("upstreams:").expect("upstreams")..];
    let address = crate::harness::free_address();
    let text = format!(
        "listeners: [{{ address: '127.0.0.1:0' }}]\nadmin:\n  address: {address}\n  token: \
         a-token-of-this-test-1\n  tls: {}\nstore: {{ data_dir: {} }}\n{rest}",
        certificate.yaml(),
        directory.path().join("data").display()
    );
    std::fs::write(&routes, text).expect("written");
    let tollgate = || std::process::Command::new(env!("CARGO_BIN_EXE_tollgate"));
    let mut child = tollgate()
        .args(["serve", "--ready-json", "--log", "error", "--routes"])
        .arg(&routes)
        .arg("--models")
        .arg(&models)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("the binary starts");
    let out = child.stdout.take().expect("standard output is piped");
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).expect("a line");
    let _running = crate::harness::child::Running(child);
    assert!(line.contains("\"admin_url\":\"https://127.0.0.1:"), "{line}");

    let listed = || {
        let message = tollgate()
            .args(["accounts", "list", "--json", "--routes"])
            .arg(&routes)
            .arg("--models")
            .arg(&models)
            .output()
            .expect("the binary starts");
        (message.status.success(), String::from_utf8_lossy(&message.stderr).into_owned())
    };
    assert!(listed().0, "{}", listed().1);
    let healthy = |certificate: &std::path::Path| {
        let request = tollgate()
            .args(["healthcheck", "--admin", &address.to_string(), "--admin-certificate"])
            .arg(certificate)
            .output();
        request.expect("the binary starts").status.success()
    };
    assert!(healthy(&certificate.certificate));
    assert!(!healthy(&other.certificate), "another certificate is not accepted");
    let plain = ask(address, b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(plain.status(), 0, "nothing is said in clear text: {plain:?}");

    certificate.replace();
    crate::harness::eventually("the new certificate is shown", || listed().0);
    assert!(listed().0, "and stays");
}
