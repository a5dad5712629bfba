//! Services of the gateway's own that answer below a path of their own, on the customers'
//! listeners: over the same TLS, HTTP/1.1 and HTTP/2, within the same bounds, as everything else.
//!
//! Pingora keeps the connection; the service gets a request whose body has been read, and its
//! answer is passed on piece by piece as it comes.

use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, HeaderName, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body;
use pingora::http::{RequestHeader, ResponseHeader};
use pingora::proxy::Session;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt as _};

use super::body::{self, ReadLimits};
use super::exchange::Exchange;
use super::proxy::Gateway;
use super::reading::Reading;
use super::respond::{self, X_REQUEST_ID};
use super::{client, cors, deadline, told};
use crate::clock::UnixMs;
use crate::config::snapshot::Snapshot;
use crate::error::{ErrorKind, GatewayError};
use crate::pipeline;

/// What a service answers with.
type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// What belongs to one connection, and is the gateway's to say (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A service below a path of its own.
#[derive(Clone)]
pub struct Hosted {
    prefix: String,
    route: &'static str,
    body_bytes_max: usize,
    for_keys: bool,
    service: BoxCloneSyncService<Request<Full<Bytes>>, Answer, Infallible>,
}

impl Hosted {
    /// `service` answers at `prefix` and below it. `prefix` begins with a slash and does not end
    /// with one. Metrics and logs name its requests `route`, never the path that was asked for. No
    /// body may be larger than `body_bytes_max`.
    ///
    /// The service finds a [`Downstream`] in its requests' extensions, and `Host` in their headers
    /// over HTTP/2 as well. How long it takes is its own affair; it is dropped when the customer
    /// leaves.
    pub fn new<S, B>(
        prefix: impl Into<String>,
        route: &'static str,
        body_bytes_max: usize,
        service: S,
    ) -> Self
    where
        S: Service<Request<Full<Bytes>>, Response = Response<B>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let boxed =
            |answer: Response<B>| answer.map(|body| body.map_err(Into::into).boxed_unsync());
        let service = BoxCloneSyncService::new(service.map_response(boxed));
        Self { prefix: prefix.into(), route, body_bytes_max, for_keys: false, service }
    }

    /// The same, but for those who show a key alone; the service finds it, as `Arc<Key>`, in its
    /// requests' extensions. Browsers show none when they ask whether a page may call.
    #[must_use]
    pub fn for_keys(self) -> Self {
        Self { for_keys: true, ..self }
    }

    /// Whether it answers at this path.
    fn is_at(&self, path: &str) -> bool {
        path.strip_prefix(self.prefix.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl fmt::Debug for Hosted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosted")
            .field("prefix", &self.prefix)
            .field("route", &self.route)
            .field("body_bytes_max", &self.body_bytes_max)
            .finish_non_exhaustive()
    }
}

/// Whom a service answers, and how they came: an extension of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Downstream {
    /// The customer's address, as trusted proxies tell it; `None` when the socket was gone before
    /// it was asked.
    pub address: Option<IpAddr>,
    /// Whether the customer came over TLS, here or at a trusted proxy.
    pub tls: bool,
}

impl Downstream {
    fn of(session: &Session, snapshot: &Snapshot) -> Self {
        let peer = session.client_addr().and_then(|peer| peer.as_inet()).map(|peer| peer.ip());
        let headers = &session.req_header().headers;
        let trusted = &snapshot.trusted_proxies;
        let here = session.digest().is_some_and(|digest| digest.ssl_digest.is_some());
        Self {
            address: peer.map(|peer| client::address(peer, headers, trusted)),
            tls: here || peer.is_some_and(|peer| client::is_tls(peer, headers, trusted)),
        }
    }
}

/// The service that answers at this path, if there is one.
pub(super) fn at<'a>(hosted: &'a [Hosted], path: &str) -> Option<&'a Hosted> {
    hosted.iter().find(|hosted| hosted.is_at(path))
}

/// Answers a request that has its place among those that are served.
///
/// # Errors
/// What is wrong with the key or the body, `ClientGone`, `Overloaded` when the gateway stops meanwhile, and
/// `Internal` when the answer breaks off.
pub(super) async fn answer(
    gateway: &Gateway,
    session: &mut Session,
    exchange: &mut Exchange,
    hosted: &Hosted,
) -> Result<(), GatewayError> {
    exchange.local_route = hosted.route;
    let head = session.req_header();
    if hosted.for_keys && !cors::is_preflight(head) {
        let key = pipeline::authenticate(&gateway.ledger, &head.headers, UnixMs::now())?;
        exchange.key = Some(key);
    }
    let limits = ReadLimits {
        body_bytes_max: hosted.body_bytes_max,
        budget_bytes_max: exchange.snapshot.limits.body_memory_bytes_max,
        timeout: exchange.snapshot.limits.body_timeout,
    };
    let downstream = Downstream::of(session, &exchange.snapshot);
    let held = body::read(session, &gateway.bodies, limits, &mut Reading::Json).await?;
    exchange.request_bytes = held.bytes.len() as u64;
    let mut request = request(session.req_header(), held.bytes.clone(), downstream);
    if let Some(key) = &exchange.key {
        request.extensions_mut().insert(Arc::clone(key));
    }
    let limit = Arc::clone(&exchange.deadline);
    let answered = limit.or_done(relay(session, exchange, hosted, request)).await;
    answered.unwrap_or_else(|| Err(deadline::stopping(respond::begun(session))))
}

/// The request as the service gets it.
fn request(head: &RequestHeader, body: Bytes, downstream: Downstream) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = head.method.clone();
    // Where it was sent to is the gateway's affair, and in `Host`.
    let path = head.uri.path_and_query().cloned();
    *request.uri_mut() = path.map_or_else(Uri::default, Uri::from);
    *request.headers_mut() = head.headers.clone();
    if let Some(authority) = head.uri.authority()
        && !head.headers.contains_key(HOST)
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        request.headers_mut().insert(HOST, host);
    }
    request.extensions_mut().insert(downstream);
    request
}

/// Asks the service, and passes its answer on as it comes.
async fn relay(
    session: &mut Session,
    exchange: &mut Exchange,
    hosted: &Hosted,
    request: Request<Full<Bytes>>,
) -> Result<(), GatewayError> {
    let answered = hosted.service.clone().oneshot(request);
    let (head, mut body) = match while_here(session, answered).await? {
        Ok(answer) => answer.into_parts(),
        Err(never) => match never {},
    };
    let header = header(&head, &body, exchange).map_err(|error| unsendable(&error))?;
    exchange.first_byte = Some(exchange.started.elapsed());
    let has_body =
        session.req_header().method != Method::HEAD && !matches!(header.status.as_u16(), 204 | 304);
    session.write_response_header(Box::new(header), false).await.map_err(|error| gone(&error))?;
    while let Some(frame) = while_here(session, body.frame()).await?.filter(|_| has_body) {
        let frame = frame.map_err(|error| broken().cause(error))?;
        // Trailers have no reader.
        let Ok(piece) = frame.into_data() else { continue };
        if piece.is_empty() {
            continue;
        }
        let sent = session.write_response_body(Some(piece), false).await;
        sent.map_err(|error| gone(&error))?;
    }
    session.write_response_body(None, true).await.map_err(|error| gone(&error))
}

/// The answer's head as it goes to the customer.
fn header(
    head: &http::response::Parts,
    body: &impl Body,
    exchange: &Exchange,
) -> pingora::Result<ResponseHeader> {
    let mut header = ResponseHeader::build(head.status.as_u16(), Some(head.headers.len() + 2))?;
    let passes = |name: &HeaderName| !HOP_BY_HOP.contains(&name.as_str()) && *name != X_REQUEST_ID;
    for (name, value) in head.headers.iter().filter(|(name, _)| passes(name)) {
        header.append_header(name.clone(), value.clone())?;
    }
    if !head.headers.contains_key(CONTENT_LENGTH) && !matches!(head.status.as_u16(), 204 | 304) {
        match body.size_hint().exact() {
            Some(length) => header.insert_header(CONTENT_LENGTH, length.to_string())?,
            None => header.insert_header(TRANSFER_ENCODING, "chunked")?,
        }
    }
    header.insert_header(X_REQUEST_ID, exchange.id.to_string())?;
    Ok(header)
}

/// What `work` comes to, unless the customer leaves before.
async fn while_here<T>(
    session: &mut Session,
    work: impl Future<Output = T>,
) -> Result<T, GatewayError> {
    tokio::select! {
        biased; // what is there is passed on, even to one who is about to leave
        done = work => Ok(done),
        left = session.as_downstream_mut().read_body_or_idle(true) => Err(match left {
            Ok(_) => left_early(),
            Err(error) => gone(&error),
        }),
    }
}

fn left_early() -> GatewayError {
    GatewayError::new(ErrorKind::ClientGone, "The customer went away.")
}

fn gone(error: &pingora::Error) -> GatewayError {
    left_early().cause(told(error))
}

fn broken() -> GatewayError {
    GatewayError::new(ErrorKind::Internal, "The answer broke off.")
}

fn unsendable(error: &pingora::Error) -> GatewayError {
    GatewayError::new(ErrorKind::Internal, "The gateway failed.").cause(told(error))
}
