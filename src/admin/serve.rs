//! Connections of the admin address, each bounded in number, time and idleness.

use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tower::ServiceExt as _;

use crate::web::Client;

/// Connections at one time. Operators, probes and Prometheus need a handful.
const CONNECTIONS_MAX: usize = 256;
/// The time within which a request's header must have arrived, counted from the answer before.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// The life of a connection; the request that is under way then gets [`LAST_REQUEST_TIMEOUT`].
const CONNECTION_LIFETIME: Duration = Duration::from_secs(600);
/// The time that a connection's last request gets.
const LAST_REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// A pause after a failed accept, which is most often a lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves the admin API and the operators' console on a socket that is bound and non-blocking, for ever; dropping the future
/// cuts its connections.
///
/// # Errors
/// When the socket cannot be used with this runtime.
pub async fn serve(listener: TcpListener, app: Router) -> std::io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = tokio::task::JoinSet::new();
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return Ok(()) };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let app = app.clone();
                connections.spawn(async move {
                    connection(stream, peer.ip(), app).await;
                    drop(place);
                });
            }
            Err(error) => {
                log::warn!("the admin address cannot accept a connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(stream: TcpStream, address: IpAddr, app: Router) {
    let client = Client { address: Some(address), tls: false };
    let service = TowerToHyperService::new(app.map_request(move |mut request: Request<_>| {
        request.extensions_mut().insert(client);
        request
    }));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // How a connection ends is the client's affair; every request on it was logged.
    if tokio::time::timeout(CONNECTION_LIFETIME, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        drop(tokio::time::timeout(LAST_REQUEST_TIMEOUT, connection).await);
    }
}
