//! Certificates made for one test, and TLS by hand over them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};

use super::wire::connect;

/// TLS over a socket.
pub(crate) type TlsStream = StreamOwned<ClientConnection, TcpStream>;

/// A certificate for `localhost` and 127.0.0.1, signed by itself, and its key, as PEM files.
pub(crate) struct TestCertificate {
    /// Where the certificate is.
    pub(crate) certificate: PathBuf,
    /// Where the key is.
    pub(crate) key: PathBuf,
    _directory: Option<tempfile::TempDir>,
}

impl TestCertificate {
    /// One that is valid now, in a directory of its own.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let made = Self::write(directory.path(), (2020, 2100));
        Self { _directory: Some(directory), ..made }
    }

    /// Writes one that is valid from the first year to the second into `directory`.
    pub(crate) fn write(directory: &Path, (from, to): (i32, i32)) -> Self {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = rcgen::CertificateParams::new(names).expect("names");
        params.not_before = rcgen::date_time_ymd(from, 1, 1);
        params.not_after = rcgen::date_time_ymd(to, 1, 1);
        let pair = rcgen::KeyPair::generate().expect("a key");
        let made = params.self_signed(&pair).expect("a certificate");
        let (certificate, key) = (directory.join("cert.pem"), directory.join("key.pem"));
        std::fs::write(&certificate, made.pem()).expect("written");
        std::fs::write(&key, pair.serialize_pem()).expect("written");
        Self { certificate, key, _directory: None }
    }

    /// Another certificate in the same files.
    pub(crate) fn replace(&self) {
        Self::write(self.certificate.parent().expect("a directory"), (2020, 2100));
    }

    /// The `tls` field of a listener.
    pub(crate) fn yaml(&self) -> String {
        let (certificate, key) = (self.certificate.display(), self.key.display());
        format!("{{ certificate: {certificate}, key: {key} }}")
    }

    /// The certificate in the file.
    pub(crate) fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(&self.certificate).expect("a certificate")
    }
}

/// An answer to a chat over TLS, on a free port, with this certificate. Lives as long as the process. Those who
/// connect show a certificate that `clients` has signed, if it is given.
pub(crate) fn serve_chat_over_tls(
    server: &TestCertificate,
    clients: Option<&TestCertificate>,
) -> SocketAddr {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("versions");
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(clients) => {
            let mut roots = RootCertStore::empty();
            roots.add(clients.der()).expect("a certificate");
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.expect("a verifier"))
        }
    };
    let key = PrivateKeyDer::from_pem_file(&server.key).expect("a key");
    let config = builder.with_single_cert(vec![server.der()], key).expect("a certificate");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (address, config) = (listener.local_addr().expect("an address"), Arc::new(config));
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let session = ServerConnection::new(Arc::clone(&config)).expect("a session");
            std::thread::spawn(move || {
                // Who refuses the certificate ends it.
                let _ended = answer_chats(StreamOwned::new(session, socket));
            });
        }
    });
    address
}

fn answer_chats(stream: StreamOwned<ServerConnection, TcpStream>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            let begun = head.len();
            if stream.read_line(&mut head)? == 0 {
                return Ok(());
            }
            let line = head[begun..].to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        stream.read_exact(&mut vec![0; length])?;
        let body = r#"{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;
        let length = body.len();
        let out = stream.get_mut();
        write!(
            out,
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )?;
        out.flush()?;
    }
}

/// A handshake with whom `certificate` proves, offering `alpn`.
///
/// # Errors
/// What the handshake failed with.
pub(crate) fn connect_tls(
    address: SocketAddr,
    certificate: CertificateDer<'static>,
    alpn: &[&str],
) -> std::io::Result<TlsStream> {
    handshake(connect(address), certificate, alpn)
}

/// The same over a connection on which something was said before.
///
/// # Errors
/// What the handshake failed with.
pub(crate) fn handshake(
    mut socket: TcpStream,
    certificate: CertificateDer<'static>,
    alpn: &[&str],
) -> std::io::Result<TlsStream> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let name = ServerName::try_from("localhost").expect("a name");
    let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
    while client.is_handshaking() {
        client.complete_io(&mut socket)?;
    }
    Ok(StreamOwned::new(client, socket))
}
