//! Connections to several addresses, through proxies and over TLS, on this machine's own addresses.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use rustls::pki_types::PrivateKeyDer;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tollgate_options::network::{ClientTls, Destination, Proxy};

use super::*;

/// Resolver that returns the same addresses for every name.
struct FixedResolver(Vec<IpAddr>);

impl Resolve for FixedResolver {
    fn resolve<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        let addresses = self.0.clone();
        Box::pin(async move { Ok(addresses) })
    }
}

fn dialer(addresses: &[&str]) -> Dialer {
    let addresses = addresses.iter().map(|text| text.parse().expect("an address")).collect();
    Dialer::with_resolver(Arc::new(FixedResolver(addresses)))
}

fn to(host: &str, port: u16) -> Destination {
    Destination { host: host.to_owned(), port, tls: None, proxy: None }
}

async fn dial(dialer: &Dialer, to: &Destination) -> Result<DialedConnection, DialError> {
    dialer.dial(to, AllowedAddresses::All, Duration::from_secs(2)).await
}

/// Listens on one port of several addresses.
async fn listen(addresses: &[&str]) -> (Vec<TcpListener>, u16) {
    let mut listeners: Vec<TcpListener> = Vec::new();
    let mut port = 0;
    for address in addresses {
        let listener = TcpListener::bind((*address, port)).await.expect("a port");
        port = listener.local_addr().expect("an address").port();
        listeners.push(listener);
    }
    (listeners, port)
}

/// Sends `words` to each client that connects.
fn says(listener: TcpListener, words: &'static [u8]) {
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            // Reading first keeps the words from being lost with a reset.
            drop(stream.read(&mut [0; 1024]).await);
            drop(stream.write_all(words).await);
        }
    });
}

/// A certificate of a server or client, the authority that has signed it, and its key.
struct TestCertificate {
    authority: Arc<RootCertStore>,
    certificate: rcgen::Certificate,
    key: rcgen::KeyPair,
}

/// A certificate for these names, valid from one year to another.
fn issued(names: &[&str], years: (i32, i32)) -> TestCertificate {
    let mut authority = rcgen::CertificateParams::new(Vec::new()).expect("no names");
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = rcgen::KeyPair::generate().expect("a key");
    let signed = authority.self_signed(&authority_key).expect("an authority");
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = rcgen::CertificateParams::new(names).expect("names");
    params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
    params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, &issuer).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(signed.der().clone()).expect("an authority");
    TestCertificate { authority: Arc::new(roots), certificate, key }
}

impl TestCertificate {
    /// TLS settings of a client that trusts the test authority.
    fn trusted(&self, number: u8) -> ClientTls {
        let authorities = Some(Arc::clone(&self.authority));
        ClientTls { authorities, fingerprint: [number; 32], ..ClientTls::default() }
    }

    /// Speaks TLS at `listener`, with clients that this authority vouches for if one is given, and sends
    /// back what comes.
    fn serve(&self, listener: TcpListener, clients: Option<&TestCertificate>) {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .expect("versions");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(clients) => {
                let roots = Arc::clone(&clients.authority);
                let verifier =
                    rustls::server::WebPkiClientVerifier::builder_with_provider(roots, provider);
                builder.with_client_cert_verifier(verifier.build().expect("a verifier"))
            }
        };
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).expect("a key");
        let chain = vec![self.certificate.der().clone()];
        let config = builder.with_single_cert(chain, key).expect("a certificate");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let mut bytes = [0; 64];
                    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
                        drop(stream.write_all(&bytes[..count]).await);
                    }
                });
            }
        });
    }

    fn certified(&self) -> Arc<rustls::sign::CertifiedKey> {
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).expect("a key");
        let provider = rustls::crypto::ring::default_provider();
        let chain = vec![self.certificate.der().clone()];
        let certified = rustls::sign::CertifiedKey::from_der(chain, key, &provider);
        Arc::new(certified.expect("a key of the certificate"))
    }
}

async fn echoes(connection: &mut DialedConnection) -> io::Result<()> {
    connection.write_all(b"ping").await?;
    connection.flush().await?;
    let mut bytes = [0; 4];
    connection.read_exact(&mut bytes).await?;
    assert_eq!(&bytes, b"ping");
    Ok(())
}

#[tokio::test]
async fn a_dead_address_costs_a_connection_nothing_but_a_moment() {
    let (_listeners, port) = listen(&["127.0.0.3"]).await;
    // Refused, not routed or silent, and one that serves.
    let dialer = dialer(&["::1", "127.0.0.2", "192.0.2.1", "127.0.0.3"]);
    let began = Instant::now();
    let made = dial(&dialer, &to("many.test", port)).await.expect("a connection");
    assert_eq!(made.address().ip().to_string(), "127.0.0.3");
    assert!(began.elapsed() < Duration::from_millis(1500), "{:?}", began.elapsed());
    for _ in 0..8 {
        let began = Instant::now();
        let made = dial(&dialer, &to("many.test", port)).await.expect("a connection");
        assert_eq!(made.address().ip().to_string(), "127.0.0.3");
        assert!(began.elapsed() < Duration::from_millis(200), "what failed is remembered");
    }
}

#[tokio::test]
async fn connections_are_spread_over_the_addresses_of_a_name() {
    let addresses = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];
    let (_listeners, port) = listen(&addresses).await;
    let dialer = dialer(&addresses);
    let mut counts = std::collections::HashMap::new();
    for _ in 0..9 {
        let made = dial(&dialer, &to("pods.test", port)).await.expect("a connection");
        *counts.entry(made.address().ip().to_string()).or_insert(0) += 1;
    }
    assert_eq!(counts.values().copied().collect::<Vec<_>>(), [3, 3, 3], "{counts:?}");
}

#[tokio::test]
async fn families_alternate_and_what_failed_comes_last() {
    let dialer = dialer(&["::1", "::2", "::3", "10.0.0.1", "10.0.0.2"]);
    let name = dialer.names.find("both.test").await.expect("addresses");
    let order = || {
        let all = dialer.names.in_order(&name, 1);
        all.iter().map(|at| at.ip().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(name.spread(), 3, "one family");
    assert_eq!(order(), ["::1", "10.0.0.1", "::2", "10.0.0.2", "::3"]);
    assert_eq!(order(), ["::2", "10.0.0.2", "::3", "10.0.0.1", "::1"], "another one begins");
    dialer.names.note_failed("[::3]:1".parse().expect("an address"));
    assert_eq!(order(), ["::1", "10.0.0.1", "::2", "10.0.0.2", "::3"]);
    assert_eq!(name.spread(), 2, "without the one that failed");
}

#[tokio::test]
async fn all_addresses_have_their_turn_within_a_short_time() {
    let (_listeners, port) = listen(&["127.0.0.3"]).await;
    let silent: Vec<String> = (1..=8).map(|number| format!("192.0.2.{number}")).collect();
    let mut all: Vec<&str> = silent.iter().map(String::as_str).collect();
    all.push("127.0.0.3");
    let (dialer, place) = (dialer(&all), to("many.test", port));
    let made = dialer.dial(&place, AllowedAddresses::All, Duration::from_millis(600)).await;
    assert_eq!(made.expect("a connection").address().ip().to_string(), "127.0.0.3");
}

#[tokio::test]
async fn a_failure_names_the_server_the_addresses_and_the_reason() {
    let (listeners, port) = listen(&["127.0.0.1", "127.0.0.2"]).await;
    drop(listeners);
    let dialer = dialer(&["127.0.0.1", "127.0.0.2"]);
    let error = dial(&dialer, &to("down.test", port)).await.expect_err("nobody listens");
    assert_eq!(error.fault, DialFault::Refused);
    let expected = format!("down.test:{port}: connection refused at 127.0.0.1, 127.0.0.2");
    assert_eq!(error.to_string(), expected);
    let unknown = Dialer::with_resolver(Arc::new(FixedResolver(Vec::new())));
    let error = dial(&unknown, &to("nowhere.test", 1)).await.expect_err("no address");
    assert_eq!(error.fault, DialFault::NameNotFound, "{error}");
}

#[test]
fn every_reason_stands_in_the_reference() {
    let page = include_str!("../../../../docs/metrics.md");
    let start = "| `tollgate_upstream_connect_failures_total` |";
    let row = page.lines().find(|line| line.starts_with(start)).expect("its row");
    for fault in DialFault::ALL {
        assert!(row.contains(&format!("`{}`", fault.as_str())), "{}", fault.as_str());
    }
}

#[tokio::test]
async fn a_failed_handshake_at_one_address_leads_to_the_next() {
    let (mut listeners, port) = listen(&["127.0.0.1", "127.0.0.2", "127.0.0.3"]).await;
    let server = issued(&["pods.test"], (2020, 2100));
    server.serve(listeners.pop().expect("three"), None);
    // One closes, one says nothing at all.
    let (closing, silent) = (listeners.remove(0), listeners.remove(0));
    tokio::spawn(async move { while closing.accept().await.is_ok() {} });
    let held = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = silent.accept().await {
            held.push(stream);
        }
    });
    let dialer = dialer(&["127.0.0.1", "127.0.0.2", "127.0.0.3"]);
    let place = Destination { tls: Some(server.trusted(1)), ..to("pods.test", port) };
    for _ in 0..3 {
        let mut made = dial(&dialer, &place).await.expect("a connection");
        assert_eq!(made.address().ip().to_string(), "127.0.0.3");
        echoes(&mut made).await.expect("TLS");
    }
    held.abort();
}

#[tokio::test]
async fn a_failed_handshake_says_why() {
    let good = issued(&["pods.test"], (2020, 2100));
    let dialer = dialer(&["127.0.0.1"]);
    for (number, (server, trusted, fault, word)) in (0_u8..).zip([
        (issued(&["pods.test"], (2020, 2100)), Some(&good), DialFault::TlsUntrusted, "authority"),
        (issued(&["other.test"], (2020, 2100)), None, DialFault::TlsName, "other.test, not for"),
        (issued(&["pods.test"], (2019, 2020)), None, DialFault::TlsExpired, "expired 2020"),
        (issued(&["pods.test"], (2090, 2100)), None, DialFault::TlsNotYetValid, "before 2090"),
    ]) {
        let (mut listeners, port) = listen(&["127.0.0.1"]).await;
        server.serve(listeners.remove(0), None);
        let tls = trusted.unwrap_or(&server).trusted(number);
        let place = Destination { tls: Some(tls), ..to("pods.test", port) };
        let error = dial(&dialer, &place).await.expect_err("no handshake");
        assert_eq!(error.fault, fault, "{error}");
        let text = error.to_string();
        assert!(text.contains(word) && text.contains("at 127.0.0.1"), "{text}");
    }
    let (mut listeners, port) = listen(&["127.0.0.1"]).await;
    says(listeners.remove(0), b"HTTP/1.1 400 Bad Request\r\n\r\n");
    let place = Destination { tls: Some(good.trusted(99)), ..to("pods.test", port) };
    let error = dial(&dialer, &place).await.expect_err("no TLS there");
    assert_eq!(error.fault, DialFault::TlsPlainPort, "{error}");
}

#[tokio::test]
async fn client_certificates_are_sent_and_their_absence_is_reported() {
    let (server, client) = (issued(&["pods.test"], (2020, 2100)), issued(&["me"], (2020, 2100)));
    let (mut listeners, port) = listen(&["127.0.0.1"]).await;
    server.serve(listeners.remove(0), Some(&client));
    let dialer = dialer(&["127.0.0.1"]);
    let mut tls = ClientTls { certificate: Some(client.certified()), ..server.trusted(1) };
    let place = Destination { tls: Some(tls.clone()), ..to("pods.test", port) };
    let mut made = dial(&dialer, &place).await.expect("a connection");
    echoes(&mut made).await.expect("it is let in");
    tls = server.trusted(2);
    let place = Destination { tls: Some(tls), ..to("pods.test", port) };
    let mut made = dial(&dialer, &place).await.expect("a handshake");
    let error = echoes(&mut made).await.expect_err("it is not let in");
    let received = certificate_refusal("pods.test", &error).expect("the reason");
    assert_eq!(received.fault, DialFault::TlsClientCertificate);
    assert!(received.to_string().contains("wants a client certificate"), "{received}");
}

/// A proxy that answers every `CONNECT` with this head, and then sends back what comes. What it was sent
/// is told.
async fn connect_proxy(
    answer: &'static str,
) -> (u16, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let (mut listeners, port) = listen(&["127.0.0.1"]).await;
    let listener = listeners.remove(0);
    let (tell, received) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = vec![0; 4096];
            let count = stream.read(&mut bytes).await.expect("a request");
            drop(tell.send(String::from_utf8_lossy(&bytes[..count]).into_owned()));
            drop(stream.write_all(answer.as_bytes()).await);
            tokio::spawn(echo(stream));
        }
    });
    (port, received)
}

async fn echo(mut stream: TcpStream) {
    let (mut read, mut write) = stream.split();
    drop(tokio::io::copy(&mut read, &mut write).await);
}

fn through(proxy: &str, host: &str) -> Destination {
    let proxy = Proxy::parse(proxy).expect("a proxy");
    Destination { proxy: Some(Arc::new(proxy)), ..to(host, 443) }
}

#[tokio::test]
async fn a_proxy_receives_the_host_name_and_credentials() {
    let (port, mut received) = connect_proxy("HTTP/1.1 200 OK\r\nVia: x\r\n\r\n").await;
    let dialer = dialer(&["127.0.0.1"]);
    let place = through(&format!("http://me:s%40cret@proxy.test:{port}"), "api.example.com");
    let mut made = dial(&dialer, &place).await.expect("a tunnel");
    echoes(&mut made).await.expect("a tunnel");
    let request = received.recv().await.expect("a request");
    assert!(request.starts_with("CONNECT api.example.com:443 HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("Proxy-Authorization: Basic bWU6c0BjcmV0\r\n"), "{request}");
    // Somebody else's name is looked up and checked here.
    let checked = AllowedAddresses::Checked(|address| address.to_string() == "127.0.0.1");
    let made = dialer.dial(&place, checked, Duration::from_secs(2)).await;
    drop(made.expect("a tunnel"));
    let request = received.recv().await.expect("a request");
    assert!(request.starts_with("CONNECT 127.0.0.1:443 HTTP/1.1\r\n"), "{request}");
    let refused = AllowedAddresses::Checked(|_| false);
    let error = dialer.dial(&place, refused, Duration::from_secs(2)).await.expect_err("refused");
    assert_eq!(error.fault, DialFault::Forbidden, "{error}");
}

#[tokio::test]
async fn a_proxy_that_does_not_connect_is_named_without_its_credentials() {
    let dialer = dialer(&["127.0.0.1"]);
    for (answer, fault, word) in [
        ("HTTP/1.1 407 No\r\n\r\n", DialFault::ProxyCredentials, "407"),
        ("HTTP/1.1 502 Bad Gateway\r\n\r\n", DialFault::ProxyRefused, "502 Bad Gateway"),
        ("HTTP/1.1 403 Forbidden\r\n\r\n", DialFault::ProxyRefused, "403 Forbidden"),
        ("SSH-2.0-x\r\n\r\n", DialFault::ProxyRefused, "not an answer"),
        ("", DialFault::ProxyUnreachable, "in time"),
    ] {
        let (port, _received) = connect_proxy(answer).await;
        let place = through(&format!("http://me:canary@127.0.0.1:{port}"), "api.example.com");
        let dialed = dialer.dial(&place, AllowedAddresses::All, Duration::from_millis(500)).await;
        let error = dialed.expect_err("no tunnel");
        assert_eq!(error.fault, fault, "{error}");
        assert!(error.fault.is_of_proxy());
        let text = error.to_string();
        assert!(text.contains(&format!("the proxy http://127.0.0.1:{port}")), "{text}");
        assert!(text.contains(word) && !text.contains("canary"), "{text}");
    }
    let (listeners, port) = listen(&["127.0.0.1"]).await;
    drop(listeners);
    let place = through(&format!("http://127.0.0.1:{port}"), "api.example.com");
    let error = dial(&dialer, &place).await.expect_err("no proxy");
    assert_eq!(error.fault, DialFault::ProxyUnreachable, "{error}");
}

#[tokio::test]
async fn tls_with_the_server_goes_through_the_tunnel() {
    let server = issued(&["api.example.com"], (2020, 2100));
    let (mut listeners, port) = listen(&["127.0.0.1"]).await;
    server.serve(listeners.remove(0), None);
    let (mut proxies, proxy_port) = listen(&["127.0.0.1"]).await;
    let proxy = proxies.remove(0);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = proxy.accept().await {
            drop(stream.read(&mut [0; 4096]).await);
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await);
            let mut server = TcpStream::connect(("127.0.0.1", port)).await.expect("the server");
            drop(tokio::io::copy_bidirectional(&mut stream, &mut server).await);
        }
    });
    let place = through(&format!("http://127.0.0.1:{proxy_port}"), "api.example.com");
    let place = Destination { tls: Some(server.trusted(1)), ..place };
    let mut made = dial(&dialer(&[]), &place).await.expect("a tunnel");
    echoes(&mut made).await.expect("TLS");
}

/// A SOCKS proxy that takes one password and connects nobody but to itself: it sends back what comes.
async fn socks_proxy(status: u8) -> (u16, tokio::sync::mpsc::UnboundedReceiver<Vec<u8>>) {
    let (mut listeners, port) = listen(&["127.0.0.1"]).await;
    let listener = listeners.remove(0);
    let (tell, received) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut bytes = [0; 512];
            let count = stream.read(&mut bytes).await.expect("a greeting");
            if bytes[..count].contains(&2) {
                drop(stream.write_all(&[5, 2]).await);
                let count = stream.read(&mut bytes).await.expect("a password");
                let is_right = &bytes[..count] == b"\x01\x02me\x06secret";
                drop(stream.write_all(&[1, u8::from(!is_right)]).await);
            } else {
                drop(stream.write_all(&[5, 255]).await);
            }
            let count = stream.read(&mut bytes).await.unwrap_or(0);
            drop(tell.send(bytes[..count].to_vec()));
            drop(stream.write_all(&[5, status, 0, 1, 0, 0, 0, 0, 0, 0]).await);
            tokio::spawn(echo(stream));
        }
    });
    (port, received)
}

#[tokio::test]
async fn socks_is_spoken_by_name_and_by_address() {
    let dialer = dialer(&["10.1.2.3"]);
    let (port, mut received) = socks_proxy(0).await;
    for (scheme, expected) in [
        ("socks5h", b"\x05\x01\x00\x03\x08api.test\x01\xbb".as_slice()),
        ("socks5", b"\x05\x01\x00\x01\x0a\x01\x02\x03\x01\xbb"),
    ] {
        let place = through(&format!("{scheme}://me:secret@127.0.0.1:{port}"), "api.test");
        let mut made = dial(&dialer, &place).await.expect(scheme);
        echoes(&mut made).await.expect("a tunnel");
        assert_eq!(received.recv().await.as_deref(), Some(expected), "{scheme}");
    }
    for (proxy, fault) in [
        (format!("socks5h://me:wrong@127.0.0.1:{port}"), DialFault::ProxyCredentials),
        (format!("socks5h://127.0.0.1:{port}"), DialFault::ProxyCredentials),
        (
            format!("socks5h://me:secret@127.0.0.1:{}", socks_proxy(5).await.0),
            DialFault::ProxyRefused,
        ),
    ] {
        let error = dial(&dialer, &through(&proxy, "api.test")).await.expect_err("no tunnel");
        assert_eq!(error.fault, fault, "{error}");
        assert!(!error.to_string().contains("wrong"), "{error}");
    }
}
