//! The load over TLS and HTTP/2: a few connections, each with several requests at a time, as the
//! pools of clients and load balancers have them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use crate::gateway::{Gateway, PATH};
use crate::requests::CONNECTIONS;
use crate::rig::load::Throughput;

/// Requests at a time on one connection.
const STREAMS: usize = 8;
/// Longest time for any response.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The requests, and their connections.
pub(crate) struct Client {
    connector: TlsConnector,
    address: SocketAddr,
    connections: Vec<SendRequest<Full<Bytes>>>,
    requests: Arc<[hyper::Request<Full<Bytes>>]>,
}

impl Client {
    /// A client without connections.
    pub(crate) fn new(gateway: &Gateway) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(gateway.files.certificate.clone())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let connector = TlsConnector::from(Arc::new(config));
        let requests = gateway.chats(false).map(|(key, body)| {
            let request = hyper::Request::post(format!("https://localhost{PATH}"))
                .header("authorization", format!("Bearer {key}"))
                .header("content-type", "application/json")
                .header("accept", "application/json")
                .header("user-agent", "bench-load");
            request.body(Full::from(body))
        });
        let requests = requests.collect::<Result<_, _>>()?;
        Ok(Self { connector, address: gateway.tls, connections: Vec::new(), requests })
    }

    /// Opens connections in the place of those before: the gateway closes each after 10,000
    /// requests. As many as there is room for requests that HTTP/1.1 has connections for.
    pub(crate) async fn connect(&mut self) -> anyhow::Result<()> {
        self.connections.clear();
        for _ in 0..CONNECTIONS / STREAMS {
            let socket = TcpStream::connect(self.address).await?;
            socket.set_nodelay(true)?;
            let name = ServerName::try_from("localhost")?;
            let stream = self.connector.connect(name, socket).await?;
            ensure!(stream.get_ref().1.alpn_protocol() == Some(b"h2"), "HTTP/2 was not agreed on");
            let (sender, connection) =
                http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
            // How a connection ends is seen by the requests on it.
            tokio::spawn(async move { drop(connection.await) });
            self.connections.push(sender);
        }
        Ok(())
    }

    /// Each place for a request sends its next one when the answer to the last has come.
    pub(crate) async fn closed(&self, duration: Duration) -> anyhow::Result<Throughput> {
        let begin = Instant::now();
        let end = begin + duration;
        let mut clients = JoinSet::new();
        let places = self.connections.iter().cycle().take(CONNECTIONS);
        for (first, connection) in places.enumerate() {
            let (mut connection, requests) = (connection.clone(), Arc::clone(&self.requests));
            clients.spawn(async move {
                let mut sent: u64 = 0;
                let mut turns = requests.iter().cycle().skip(first % requests.len());
                while Instant::now() < end {
                    let request = turns.next().context("no request")?.clone();
                    let exchange = exchange(&mut connection, request);
                    tokio::time::timeout(TIMEOUT, exchange).await.context("no answer")??;
                    sent += 1;
                }
                anyhow::Ok(sent)
            });
        }
        let mut requests = 0;
        while let Some(client) = clients.join_next().await {
            requests += client??;
        }
        Ok(Throughput { requests, took: begin.elapsed() })
    }
}

async fn exchange(
    connection: &mut SendRequest<Full<Bytes>>,
    request: hyper::Request<Full<Bytes>>,
) -> anyhow::Result<()> {
    connection.ready().await?;
    let response = connection.send_request(request).await?;
    ensure!(response.status() == 200, "not a 200: {}", response.status());
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(())
}
