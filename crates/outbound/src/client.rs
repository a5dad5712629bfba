//! HTTP/1.1 clients over the connections of a [`Dialer`]: one for each way in which servers are reached,
//! which keeps its connections for the next request.

use std::error::Error as _;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{ACCEPT, HeaderValue};
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connected, Connection as Described};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tollgate_options::network::{ClientTls, Destination, Proxy, ProxyRules};
use url::Url;

use crate::dial::{AllowedAddresses, DialError, DialedConnection, Dialer, certificate_refusal};
use crate::{BodyPieces, KEEPALIVE, OutboundError, OutboundResponse};

/// Maximum number of cached clients: one per upstream with its own settings, over a few reloads.
const CLIENTS_MAX: usize = 128;

/// The proxy, TLS settings and address rules of a client.
#[derive(Clone, Debug)]
pub struct Reach {
    /// The choice of forward proxy.
    pub proxy: ProxyChoice,
    /// The TLS settings for `https` URLs.
    pub tls: ClientTls,
    /// The addresses that may be connected to. With a check, TLS is required.
    pub allowed: AllowedAddresses,
    /// The time for the TCP and TLS handshakes.
    pub connect_timeout: Duration,
}

/// The choice of a forward proxy for a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyChoice {
    /// No proxy, or this one.
    Fixed(Option<Arc<Proxy>>),
    /// The one that the environment names for the server.
    ByRules(Arc<ProxyRules>),
}

impl PartialEq for Reach {
    fn eq(&self, other: &Self) -> bool {
        self.proxy == other.proxy
            && self.tls == other.tls
            && self.connect_timeout == other.connect_timeout
            && matches!(self.allowed, AllowedAddresses::All)
                == matches!(other.allowed, AllowedAddresses::All)
    }
}

/// The clients of a process, with a shared cache of addresses. Cheap to clone.
#[derive(Clone)]
pub struct Clients {
    dialer: Arc<Dialer>,
    made: Arc<Mutex<Vec<(Reach, HttpClient)>>>,
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").field("made", &self.made.lock().len()).finish_non_exhaustive()
    }
}

impl Clients {
    /// Clients that are made when they are first needed.
    #[must_use]
    pub fn new(dialer: Arc<Dialer>) -> Self {
        Self { dialer, made: Arc::default() }
    }

    /// The client for servers that are reached so.
    #[must_use]
    pub fn get(&self, reach: &Reach) -> HttpClient {
        let mut made = self.made.lock();
        if let Some((_, client)) = made.iter().find(|(key, _)| key == reach) {
            return client.clone();
        }
        // All of them: most are of earlier configurations, and what is still used is made again.
        if made.len() >= CLIENTS_MAX {
            made.clear();
        }
        let client = HttpClient::new(Arc::clone(&self.dialer), reach.clone());
        made.push((reach.clone(), client.clone()));
        client
    }
}

/// Timeouts of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerTimes {
    /// Time until the response head, from the beginning of the request.
    pub head: Duration,
    /// Time until the next piece of the body.
    pub piece: Duration,
}

/// A client. Cheap to clone.
#[derive(Clone)]
pub struct HttpClient(legacy::Client<Connector, OutgoingBody>);

/// Body of a request, whole or in pieces.
type OutgoingBody = UnsyncBoxBody<Bytes, io::Error>;

impl HttpClient {
    /// A client without any connection yet. Each of a customer's receivers may have a name of its own, and
    /// connections that are kept for the next one would be as many as they like: of those none is kept.
    #[must_use]
    pub fn new(dialer: Arc<Dialer>, reach: Reach) -> Self {
        let idle_max = match reach.allowed {
            AllowedAddresses::All => usize::MAX,
            AllowedAddresses::Checked(_) => 0,
        };
        let client = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(KEEPALIVE)
            .pool_max_idle_per_host(idle_max)
            .build(Connector { dialer, reach: Arc::new(reach) });
        Self(client)
    }

    /// Sends a request, and waits for the head of its answer.
    ///
    /// # Errors
    /// See [`OutboundError`].
    pub async fn send(
        &self,
        method: Method,
        url: &str,
        mut headers: HeaderMap,
        body: OutboundBody,
        times: AnswerTimes,
    ) -> Result<OutboundResponse, OutboundError> {
        // `Url` encodes what a customer's URL may hold and a request's target may not, such as `<`.
        let uri: Option<Uri> = Url::parse(url).ok().and_then(|url| url.as_str().parse().ok());
        let uri = uri.ok_or_else(|| OutboundError::Forbidden("it is no URL".to_owned()))?;
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        let mut request = Request::new(body.into_inner());
        (*request.method_mut(), *request.uri_mut()) = (method, uri);
        *request.headers_mut() = headers;
        match tokio::time::timeout(times.head, self.0.request(request)).await {
            Ok(Ok(response)) => Ok(OutboundResponse::new(response, times.piece)),
            Ok(Err(error)) => Err(failure(url, &error)),
            Err(_) => Err(OutboundError::TimedOut),
        }
    }
}

/// The body of a request.
pub enum OutboundBody {
    /// The whole body; may be empty.
    Whole(Bytes),
    /// A streamed body.
    Pieces(BodyPieces),
}

impl OutboundBody {
    /// The body of a request that has none.
    pub const EMPTY: Self = Self::Whole(Bytes::new());

    fn into_inner(self) -> OutgoingBody {
        match self {
            Self::Whole(bytes) => Full::new(bytes).map_err(|never| match never {}).boxed_unsync(),
            Self::Pieces(pieces) => {
                let frames = pieces.map(|piece| piece.map(Frame::data));
                StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()
            }
        }
    }
}

/// Describes a failed request. The URL may contain a signature, so that only its host is shown.
fn failure(url: &str, error: &legacy::Error) -> OutboundError {
    let host = Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
    if let Some(refused) = certificate_refusal(&host.unwrap_or_default(), error) {
        return OutboundError::Unreachable(refused);
    }
    let mut message = error.to_string();
    let mut source = error.source();
    // Each layer of the client has a text of its own; a failed dial is somewhere below them.
    while let Some(cause) = source {
        if let Some(cause) = cause.downcast_ref::<DialError>() {
            return OutboundError::Unreachable(cause.clone());
        }
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    OutboundError::Broken(message)
}

/// Opens connections for clients.
#[derive(Clone)]
struct Connector {
    dialer: Arc<Dialer>,
    reach: Arc<Reach>,
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<DialedConnection>;
    type Error = DialError;
    type Future = BoxFuture<'static, Result<TokioIo<DialedConnection>, DialError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self { dialer, reach } = self.clone();
        Box::pin(async move {
            let to = destination(&uri, &reach)?;
            let connection = dialer.dial(&to, reach.allowed, reach.connect_timeout).await?;
            Ok(TokioIo::new(connection))
        })
    }
}

fn destination(uri: &Uri, reach: &Reach) -> Result<Destination, DialError> {
    let host = uri.host().unwrap_or_default();
    // An IPv6 address has brackets in a URL, and none for a look-up or a certificate.
    let host = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
    let is_tls = uri.scheme_str() == Some("https");
    if !is_tls && matches!(reach.allowed, AllowedAddresses::Checked(_)) {
        return Err(DialError::forbidden(host, "it is called over TLS only"));
    }
    let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let proxy = match &reach.proxy {
        ProxyChoice::Fixed(proxy) => proxy.clone(),
        ProxyChoice::ByRules(rules) => {
            let found = rules.find(is_tls, host, port);
            found.map_err(|error| DialError::no_proxy(host, &error))?
        }
    };
    let tls = is_tls.then(|| reach.tls.clone());
    Ok(Destination { host: host.to_owned(), port, tls, proxy })
}

/// Callers learn the address of the server from the extensions of an answer.
impl Described for DialedConnection {
    fn connected(&self) -> Connected {
        Connected::new().extra(self.address())
    }
}
