//! Client for the admin API of a running gateway.
//!
//! Does not use `outbound`: that trusts the machine's root certificates, while these calls trust one
//! certificate at one address; and it hides the cause of a refused connection or certificate, which the
//! operator must see, two errors deep.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

use super::exit::{Failure, UNREACHABLE};
use tollgate_types::secret::Secret;

/// Timeout of a journal check: somewhat longer than the gateway's own.
pub(super) const VERIFY_TIMEOUT: Duration = Duration::from_secs(11 * 60);
/// Largest response, in bytes: configurations are at most 16 MiB a file, and JSON is hardly longer than
/// YAML.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Address of an admin API.
#[derive(Clone, Debug)]
pub(super) struct AdminEndpoint {
    pub(super) address: SocketAddr,
    /// TLS configuration, if the address uses TLS.
    pub(super) tls: Option<Arc<ClientConfig>>,
}

/// A request to the admin API.
#[derive(Debug)]
pub(super) struct AdminRequest {
    method: Method,
    path: String,
    body: Option<serde_json::Value>,
    idempotency_id: Option<String>,
    /// Timeout of the whole call, if it differs from the default.
    pub(super) time: Option<Duration>,
}

/// Address for local calls: loopback for a wildcard address.
#[must_use]
pub fn callable(address: SocketAddr) -> SocketAddr {
    let mut callable = address;
    if address.ip().is_unspecified() {
        // A wildcard is an address to listen on, not one to connect to.
        let loopback = if address.is_ipv4() { "127.0.0.1" } else { "::1" };
        callable.set_ip(loopback.parse().unwrap_or(address.ip()));
    }
    callable
}

impl AdminRequest {
    /// `GET` of a path.
    pub(super) fn get(path: impl Into<String>) -> Self {
        let (path, body) = (path.into(), None);
        Self { method: Method::GET, path, body, idempotency_id: None, time: None }
    }

    /// `POST` to a path, without a body.
    pub(super) fn post(path: impl Into<String>) -> Self {
        Self { method: Method::POST, ..Self::get(path) }
    }

    /// `PATCH` of a path.
    pub(super) fn patch(path: impl Into<String>) -> Self {
        Self { method: Method::PATCH, ..Self::get(path) }
    }

    /// `PUT` of a path.
    pub(super) fn put(path: impl Into<String>) -> Self {
        Self { method: Method::PUT, ..Self::get(path) }
    }

    /// Add a JSON body.
    pub(super) fn with(self, body: serde_json::Value) -> Self {
        Self { body: Some(body), ..self }
    }

    /// Set the timeout of the whole call.
    pub(super) fn within(self, time: Duration) -> Self {
        Self { time: Some(time), ..self }
    }

    /// Add an idempotency id.
    pub(super) fn once(self, id: &str) -> Self {
        Self { idempotency_id: Some(id.to_owned()), ..self }
    }
}

/// Percent-encode a text as one path segment or query value.
pub(super) fn encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}

/// A response: status and body.
#[derive(Debug)]
pub(super) struct AdminAnswer {
    pub(super) status: u16,
    pub(super) body: Bytes,
}

/// Call the admin API at `address`, as configured; the whole call may take `time`.
///
/// # Errors
/// No response. An error response is returned as a response.
pub(super) fn call(
    place: &AdminEndpoint,
    ask: &AdminRequest,
    token: Option<&Secret>,
    time: Duration,
) -> anyhow::Result<AdminAnswer> {
    within(place, async move |place| {
        let answer = async {
            // Kept until the body was read: dropping it aborts the task that reads the socket.
            let (answer, _connection) = begin(place, ask, token).await?;
            whole(answer).await
        };
        let response = tokio::time::timeout(time, answer).await;
        response.unwrap_or_else(|_| Err(anyhow!("no response within {time:?}")))
    })
}

/// Stream a long response of the admin API in chunks, each at most `silence` after the previous one. An
/// error response is returned instead.
///
/// # Errors
/// No response, a broken response, or an error of `each`.
pub(super) fn stream(
    place: &AdminEndpoint,
    ask: &AdminRequest,
    token: Option<&Secret>,
    silence: Duration,
    each: &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
) -> anyhow::Result<Option<AdminAnswer>> {
    let begun = within(place, async move |place| {
        let begun = tokio::time::timeout(silence, begin(place, ask, token)).await;
        let (answer, connection) =
            begun.unwrap_or_else(|_| Err(anyhow!("no response within {silence:?}")))?;
        if !answer.status().is_success() {
            return whole(answer).await.map(|answer| (Some(answer), Ok(())));
        }
        let copied = copy(answer.into_body(), silence, each).await;
        drop(connection);
        Ok((None, copied))
    });
    let (refused, copied) = begun?;
    copied?;
    Ok(refused)
}

/// Run a call with a timeout; an expired one is an unreachable gateway.
fn within<T>(
    place: &AdminEndpoint,
    call: impl AsyncFnOnce(AdminEndpoint) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let address = callable(place.address);
    let place = AdminEndpoint { address, ..place.clone() };
    // One thread suffices for one call, and makes the command start and end faster.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(call(place)).map_err(|error| {
        let help =
            "is it running, and is this the address of its admin API? See --admin".to_owned();
        let message = format!("no gateway answers at {address}: {error:#}");
        Failure { code: UNREACHABLE, message, help: Some(help) }.into()
    })
}

/// A connection with or without TLS.
trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Socket for T {}

/// Aborts a connection's task when the call ends.
struct ConnectionTask(tokio::task::JoinHandle<hyper::Result<()>>);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn begin(
    place: AdminEndpoint,
    ask: &AdminRequest,
    token: Option<&Secret>,
) -> anyhow::Result<(Response<Incoming>, ConnectionTask)> {
    let AdminEndpoint { address, tls } = place;
    let stream = tokio::net::TcpStream::connect(address).await?;
    let stream: Box<dyn Socket> = match tls {
        None => Box::new(stream),
        Some(tls) => {
            let name = ServerName::from(address.ip());
            Box::new(TlsConnector::from(tls).connect(name, stream).await?)
        }
    };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = ConnectionTask(tokio::spawn(connection));
    let mut request = http::Request::builder()
        .method(ask.method.clone())
        .uri(ask.path.as_str())
        .header(HOST, address.to_string());
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {}", token.expose()));
    }
    if let Some(id) = &ask.idempotency_id {
        // Ids are typed by people; a line break in one would end the header.
        let id = HeaderValue::from_str(id).context("this id cannot be sent")?;
        request = request.header("idempotency-key", id);
    }
    let body = match &ask.body {
        None => Bytes::new(),
        Some(body) => {
            request = request.header(CONTENT_TYPE, "application/json");
            Bytes::from(body.to_string())
        }
    };
    Ok((sender.send_request(request.body(Full::new(body))?).await?, connection))
}

async fn whole(answer: Response<Incoming>) -> anyhow::Result<AdminAnswer> {
    let status = answer.status().as_u16();
    // The address may be another program's: what it sends is not kept without a limit.
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| anyhow!("the answer broke off: {error}"))?;
    Ok(AdminAnswer { status, body: body.to_bytes() })
}

async fn copy(
    mut body: Incoming,
    silence: Duration,
    each: &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
) -> anyhow::Result<()> {
    loop {
        // A limit for each chunk, not for all: an export takes as long as the journal is.
        let frame = tokio::time::timeout(silence, body.frame()).await;
        let Some(frame) = frame.map_err(|_| anyhow!("the answer stopped for {silence:?}"))? else {
            return Ok(());
        };
        let frame = frame.map_err(|error| anyhow!("the answer broke off: {error}"))?;
        if let Some(piece) = frame.data_ref() {
            each(piece)?;
        }
    }
}
