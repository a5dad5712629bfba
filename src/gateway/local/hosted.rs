//! Services of the gateway's own that answer below a path of their own, on the customers'
//! listeners: over the same TLS, HTTP/1.1 and HTTP/2, within the same bounds, as everything else.
//!
//! The gateway keeps the connection; the service gets a request whose body has been read, and its
//! answer is passed on piece by piece as it comes.

use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, HeaderName, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body;
use pingora::http::RequestHeader;
use pingora_proxy::Session;
use tower::{BoxError, Service, ServiceExt as _};

use crate::config::snapshot::Snapshot;
use crate::error::{ErrorKind, GatewayError};
use crate::gateway::answer::head::{self, AnswerHead};
use crate::gateway::answer::respond::{self, NO_SNIFFING, X_REQUEST_ID};
use crate::gateway::exchange::Exchange;
use crate::gateway::listen::deadline;
use crate::gateway::listen::origin::Origin;
use crate::gateway::proxy::Gateway;
use crate::gateway::receive::body::{self, HeldBody, ReadLimits};
use crate::gateway::receive::budget::{BodyBudget, BudgetShare};
use crate::gateway::receive::memory::Memory;
use crate::gateway::receive::reading::BodyReading;
use crate::gateway::receive::{cors, offload};
use crate::gateway::{client, describe_error};
use crate::protocols::json::values_within;

/// What a service answers with.
type HostedResponse = Response<UnsyncBoxBody<Bytes, BoxError>>;
/// A service at work on a request.
type Answering = Pin<Box<dyn Future<Output = Result<HostedResponse, Infallible>> + Send>>;

/// So much of an answer is sent at once: each part must be taken in time, however long the whole is.
const PART_BYTES_MAX: usize = 64 * 1024;
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

/// What a tree takes for each value at most: an object with one member has a node of its own with room
/// for eleven, and is buffered before its type is known.
const TREE_BYTES_PER_VALUE: usize = 1024;
/// Copies of a body that are there beside it: as a service gathers it, in its tree, and as it is
/// written for the gateway's own front.
const TREE_COPIES: usize = 3;

/// A service below a path of its own.
#[derive(Clone)]
pub struct Hosted {
    prefix: String,
    route: &'static str,
    body_bytes_max: usize,
    for_keys: bool,
    json_values_max: Option<usize>,
    service: Arc<dyn Fn(Request<Full<Bytes>>) -> Answering + Send + Sync>,
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
        // Each request is a clone's own: a service is asked by one at a time.
        let service = Arc::new(move |request| {
            let service = service.clone();
            Box::pin(async move { service.oneshot(request).await.map(boxed) }) as Answering
        });
        let (prefix, for_keys, json_values_max) = (prefix.into(), false, None);
        Self { prefix, route, body_bytes_max, for_keys, json_values_max, service }
    }

    /// This service for those alone who show a key; the service finds it, as `Arc<Key>`, in its
    /// requests' extensions. Browsers show none when they ask whether a page may call.
    #[must_use]
    pub fn for_keys(self) -> Self {
        Self { for_keys: true, ..self }
    }

    /// This service as one that makes trees of the JSON that it gets: bodies with more values are
    /// refused, and what a tree takes counts in the memory of bodies. The service finds a [`Memory`] in
    /// its requests' extensions.
    #[must_use]
    pub fn parsing_json(self, values_max: usize) -> Self {
        Self { json_values_max: Some(values_max), ..self }
    }

    /// Room for what the service makes of a body, if it makes a tree of it.
    ///
    /// # Errors
    /// `InvalidRequest` for a body with too many values, `Overloaded` when there is no room.
    fn room_to_parse(
        &self,
        bodies: &BodyBudget,
        held: &HeldBody,
        max: usize,
    ) -> Result<Option<BudgetShare>, GatewayError> {
        let Some(values_max) = self.json_values_max else { return Ok(None) };
        let Some(values) = values_within(&held.bytes, values_max) else {
            let message = format!(
                "The request body has more than {values_max} JSON values (`json_values_max`). \
                 Send fewer, or in parts."
            );
            return Err(GatewayError::new(ErrorKind::InvalidRequest, message));
        };
        let bytes = values.saturating_mul(TREE_BYTES_PER_VALUE);
        let bytes = bytes.saturating_add(held.bytes.len().saturating_mul(TREE_COPIES));
        held.room(bytes, max).map(Some).map_err(|full| bodies.shed(full))
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
#[derive(Clone, Debug)]
pub struct Downstream {
    /// The customer's address, as trusted proxies tell it; `None` when the socket was gone before
    /// it was asked.
    pub address: Option<IpAddr>,
    /// Whether the customer came over TLS, here or at a trusted proxy.
    pub tls: bool,
    /// Whether the listener's own address is one that only this machine reaches.
    pub is_loopback: bool,
    /// The connection that the request came over, for requests that are made on its behalf.
    pub origin: Option<Origin>,
}

impl Downstream {
    fn new(session: &Session, snapshot: &Snapshot) -> Self {
        let peer = session.client_addr().and_then(|peer| peer.as_inet()).map(|peer| peer.ip());
        let headers = &session.req_header().headers;
        let trusted = &snapshot.trusted_proxies;
        let here = session.digest().is_some_and(|digest| digest.ssl_digest.is_some());
        Self {
            address: peer.map(|peer| client::address(peer, headers, trusted)),
            is_loopback: session
                .server_addr()
                .and_then(|own| own.as_inet())
                .is_some_and(|own| own.ip().to_canonical().is_loopback()),
            origin: Origin::of_session(session).cloned(),
            tls: here || peer.is_some_and(|peer| client::is_tls(peer, headers, trusted)),
        }
    }
}

/// The service that answers at this path, if there is one.
pub(crate) fn at<'a>(hosted: &'a [Hosted], path: &str) -> Option<&'a Hosted> {
    hosted.iter().find(|hosted| hosted.is_at(path))
}

/// Answers a request: with a key, in a place of customers, and any other in one of strangers.
///
/// # Errors
/// What is wrong with the key or the body, no place, `ClientDisconnected`, `Overloaded` when the gateway stops meanwhile, and
/// `Internal` when the answer breaks off.
pub(crate) async fn answer(
    gateway: &Gateway,
    session: &mut Session,
    exchange: &mut Exchange,
    hosted: &Hosted,
) -> Result<(), GatewayError> {
    exchange.local_route = hosted.route;
    if hosted.for_keys && !cors::is_preflight(session.req_header()) {
        gateway.admit_customer(session, exchange)?;
    } else {
        gateway.admit_stranger(session, exchange)?;
    }
    let limits = ReadLimits::new(exchange, hosted.body_bytes_max).of_body(session, exchange);
    let downstream = Downstream::new(session, &exchange.snapshot);
    let budget = limits.budget_bytes_max;
    let held = body::read(session, &gateway.bodies, limits, &mut BodyReading::Json).await?;
    exchange.request_bytes = held.bytes.len() as u64;
    // What it makes of the body can be there as long as it works.
    let _room = hosted.room_to_parse(&gateway.bodies, &held, budget)?;
    let mut request = request(session.req_header(), held.bytes.clone(), downstream);
    if hosted.json_values_max.is_some() {
        request.extensions_mut().insert(Memory::new(&gateway.bodies, budget));
    }
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
    let length = request.body().size_hint().lower();
    let mut length = usize::try_from(length).unwrap_or(usize::MAX);
    let mut answered = (hosted.service)(request);
    let answered = poll_fn(|context| {
        // What it does in one go with a large body, such as parsing it, holds up nobody. The body is there
        // at once, so that it does so when it is first looked at.
        let length = std::mem::take(&mut length);
        offload::run_now(length, || answered.as_mut().poll(context))
    });
    let (answered, mut body) = match while_here(session, answered).await? {
        Ok(answer) => answer.into_parts(),
        Err(never) => match never {},
    };
    let header = customers_head(&answered, &body, exchange);
    exchange.first_byte = Some(exchange.started.elapsed());
    let has_body = session.req_header().method != Method::HEAD && header.may_have_body();
    head::write(session, header, false).await.map_err(|error| gone(&error))?;
    while let Some(frame) = while_here(session, body.frame()).await?.filter(|_| has_body) {
        let frame = frame.map_err(|error| broken().cause(error))?;
        // Trailers have no reader.
        let Ok(mut piece) = frame.into_data() else { continue };
        while !piece.is_empty() {
            let part = piece.split_to(piece.len().min(PART_BYTES_MAX));
            let is_last = piece.is_empty() && body.is_end_stream();
            let sent = session.write_response_body(Some(part), is_last).await;
            sent.map_err(|error| gone(&error))?;
            if is_last {
                return Ok(());
            }
        }
    }
    session.write_response_body(None, true).await.map_err(|error| gone(&error))
}

/// The answer's head as it goes to the customer.
fn customers_head(
    answered: &http::response::Parts,
    body: &impl Body,
    exchange: &Exchange,
) -> AnswerHead {
    let mut header = head::of(answered.status.as_u16());
    let has_body = header.may_have_body();
    let headers = &mut header.headers;
    let passes = |name: &HeaderName| !HOP_BY_HOP.contains(&name.as_str()) && *name != X_REQUEST_ID;
    for (name, value) in answered.headers.iter().filter(|(name, _)| passes(name)) {
        headers.append(name.clone(), value.clone());
    }
    if has_body && !answered.headers.contains_key(CONTENT_LENGTH) {
        match body.size_hint().exact() {
            Some(length) => headers.insert(CONTENT_LENGTH, length.into()),
            None => headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked")),
        };
    }
    headers.insert(NO_SNIFFING.0, NO_SNIFFING.1);
    headers.insert(X_REQUEST_ID, head::id(exchange.id));
    header
}

/// What `work` comes to, unless the customer leaves before.
///
/// # Errors
/// `ClientDisconnected`.
pub(super) async fn while_here<T>(
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
    GatewayError::new(ErrorKind::ClientDisconnected, "The customer went away.")
}

pub(super) fn gone(error: &pingora::Error) -> GatewayError {
    left_early().cause(describe_error(error))
}

pub(super) fn broken() -> GatewayError {
    GatewayError::new(ErrorKind::Internal, "The answer broke off.")
}
