//! Calls that commands make to the admin API of a running gateway.
//!
//! They are not made with `outbound`: its clients believe the machine's root certificates, and these
//! calls one certificate at one address; and they keep the cause of a refused connection or certificate,
//! which the operator has to read, two errors deep.

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

/// The longest answer that is read, in bytes: configurations are at most 16 MiB a file, and JSON is
/// hardly longer than YAML.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Where an admin API is.
#[derive(Clone, Debug)]
pub(super) struct AdminEndpoint {
    pub(super) address: SocketAddr,
    /// What the call is encrypted with, where TLS is spoken there.
    pub(super) tls: Option<Arc<ClientConfig>>,
}

/// What is asked of the admin API.
#[derive(Debug)]
pub(super) struct AdminRequest {
    method: Method,
    path: String,
    body: Option<serde_json::Value>,
    idempotency_id: Option<String>,
    /// How long the whole call may take, where that is longer than of others.
    pub(super) time: Option<Duration>,
}

/// An address that can be called: one that listens everywhere is called on loopback.
#[must_use]
pub fn callable(address: SocketAddr) -> SocketAddr {
    let mut callable = address;
    if address.ip().is_unspecified() {
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

    /// This request with a JSON body.
    pub(super) fn with(self, body: serde_json::Value) -> Self {
        Self { body: Some(body), ..self }
    }

    /// This request, which may take this long as a whole.
    pub(super) fn within(self, time: Duration) -> Self {
        Self { time: Some(time), ..self }
    }

    /// This request by an id under which it is done once, however often it is repeated.
    pub(super) fn once(self, id: &str) -> Self {
        Self { idempotency_id: Some(id.to_owned()), ..self }
    }
}

/// A text as one segment of a path, or one value of a query.
pub(super) fn encoded(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}

/// An answer: its status, and its body.
#[derive(Debug)]
pub(super) struct AdminAnswer {
    pub(super) status: u16,
    pub(super) body: Bytes,
}

/// Asks the admin API at `address`, as it is written in the configuration; all of it may take `time`.
///
/// # Errors
/// When there is no answer. One that refuses is an answer.
pub(super) fn call(
    place: &AdminEndpoint,
    ask: &AdminRequest,
    token: Option<&Secret>,
    time: Duration,
) -> anyhow::Result<AdminAnswer> {
    within(place, async move |place| {
        let answer = async {
            let (answer, _connection) = begin(place, ask, token).await?;
            whole(answer).await
        };
        let heard = tokio::time::timeout(time, answer).await;
        heard.unwrap_or_else(|_| Err(anyhow!("nothing was heard in {time:?}")))
    })
}

/// Asks the admin API for something that is long, and hands over its pieces as they come. Each may be
/// `silence` after the one before. An answer that refuses is given back instead.
///
/// # Errors
/// When there is no answer, when it breaks off, or what `each` says.
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
            begun.unwrap_or_else(|_| Err(anyhow!("nothing was heard in {silence:?}")))?;
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

/// Runs a call; that it comes to nothing is a failure of its own kind.
fn within<T>(
    place: &AdminEndpoint,
    call: impl AsyncFnOnce(AdminEndpoint) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let address = callable(place.address);
    let place = AdminEndpoint { address, ..place.clone() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(call(place)).map_err(|error| {
        let help =
            "is it running, and is this the address of its admin API? See --admin".to_owned();
        let message = format!("no gateway answers at {address}: {error:#}");
        Failure { code: UNREACHABLE, message, help: Some(help) }.into()
    })
}

/// What is read and written, with TLS or without.
trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Socket for T {}

/// Ends a connection's task with the call.
struct Connection(tokio::task::JoinHandle<hyper::Result<()>>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn begin(
    place: AdminEndpoint,
    ask: &AdminRequest,
    token: Option<&Secret>,
) -> anyhow::Result<(Response<Incoming>, Connection)> {
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
    let connection = Connection(tokio::spawn(connection));
    let mut request = http::Request::builder()
        .method(ask.method.clone())
        .uri(ask.path.as_str())
        .header(HOST, address.to_string());
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {}", token.expose()));
    }
    if let Some(id) = &ask.idempotency_id {
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
