//! Connections of the admin address, each bounded in number, time and idleness.

use std::convert::Infallible;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use http_body_util::BodyExt as _;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

use super::connections::{ConnectionSlot, ConnectionSlots};
use tollgate_web_kit::Client;

/// The time within which a request's header must have arrived, counted from the answer before.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// The time for the TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Lifetime of a connection; a request in progress then has [`LAST_REQUEST_TIMEOUT`] to finish.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(600);
/// The time that a connection's last request gets.
const LAST_REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// A pause after a failed accept, which is most often a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves the admin API and the operators' console on a socket that is bound and non-blocking, for ever,
/// over at most so many connections at a time; dropping the future cuts them. When there are as many, one
/// that is idle gives way to whoever comes, or one of a stranger.
///
/// # Errors
/// When the socket cannot be used with this runtime.
pub async fn serve(
    listener: TcpListener,
    app: Router,
    connections_max: usize,
    tls: Option<TlsAcceptor>,
) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let slots = ConnectionSlots::new(connections_max);
    let mut connections = tokio::task::JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // The slot is taken behind the accept: a client in the backlog would not make an idle
                // connection give way.
                let (app, tls, taken) = (app.clone(), tls.clone(), slots.take().await);
                connections.spawn(async move {
                    let slot = taken.slot();
                    tokio::select! {
                        () = open(stream, peer.ip(), slot, app, tls) => {}
                        () = slot.wait_to_leave() => {}
                    }
                });
            }
            Err(error) => {
                log::warn!("the admin address cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
        // A JoinSet keeps the results of ended tasks until they are taken.
        while connections.try_join_next().is_some() {}
    }
}

/// Shakes hands, where TLS is spoken, and serves.
async fn open(
    stream: TcpStream,
    address: IpAddr,
    slot: &Arc<ConnectionSlot>,
    app: Router,
    tls: Option<TlsAcceptor>,
) {
    let client = Client { address: Some(address), tls: tls.is_some() };
    let Some(tls) = tls else { return connection(stream, client, slot, app).await };
    match tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => connection(stream, client, slot, app).await,
        // Scanners fail all day long.
        Ok(Err(error)) => log::debug!("TLS handshake at the admin address: {error}"),
        Err(_) => log::debug!("no TLS handshake at the admin address in time"),
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    client: Client,
    slot: &Arc<ConnectionSlot>,
    app: Router,
) {
    let slot = Arc::clone(slot);
    let service = tower::service_fn(move |mut request: Request<hyper::body::Incoming>| {
        let busy = slot.begin();
        request.extensions_mut().insert(client);
        request.extensions_mut().insert(Arc::clone(&slot));
        let answered = app.clone().oneshot(request.map(Body::new));
        async move {
            let answer: Response<Body> = answered.await?;
            // It is under way until the answer has been taken.
            Ok::<_, Infallible>(answer.map(|body| {
                body.map_frame(move |frame| {
                    let _busy = &busy;
                    frame
                })
            }))
        }
    });
    let service = TowerToHyperService::new(service);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // How a connection ends is the client's affair; every request on it was logged.
    if tokio::time::timeout(CONNECTION_LIFETIME, connection.as_mut()).await.is_err() {
        // The response under way is completed; keep-alive ends, and the client connects anew.
        connection.as_mut().graceful_shutdown();
        drop(tokio::time::timeout(LAST_REQUEST_TIMEOUT, connection).await);
    }
}
