//! Services that answer below a path of their own, and whom they answer.

use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body;
use pingora_proxy::Session;
use tower::{BoxError, Service, ServiceExt as _};

use crate::config::snapshot::Snapshot;
use crate::error::{ErrorKind, GatewayError};
use crate::forwarded as client;
use crate::gateway::listen::origin::Origin;
use crate::gateway::wire::memory::budget::{BodyBudget, BudgetShare};
use crate::gateway::wire::memory::held::HeldBody;
use crate::protocols::json::values_within;

/// The response of a service.
type HostedResponse = Response<UnsyncBoxBody<Bytes, BoxError>>;
/// A service at work on a request.
type Answering = Pin<Box<dyn Future<Output = Result<HostedResponse, Infallible>> + Send>>;

/// Bytes of a parsed tree for each JSON value, at most: an object with one member has a node with room for
/// eleven, and is buffered before its type is known.
const TREE_BYTES_PER_VALUE: usize = 1024;
/// Number of copies of a body in addition to it: as the service collects it, as a tree, and as written for
/// the gateway.
const TREE_COPIES: usize = 3;

/// A service hosted below its own path.
#[derive(Clone)]
pub struct HostedService {
    pub(crate) prefix: String,
    pub(crate) route: &'static str,
    pub(crate) body_bytes_max: usize,
    pub(crate) for_keys: bool,
    pub(crate) json_values_max: Option<usize>,
    pub(crate) service: Arc<dyn Fn(Request<Full<Bytes>>) -> Answering + Send + Sync>,
}

impl HostedService {
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

    /// Memory for a parsed body, if the service parses it into a tree.
    ///
    /// # Errors
    /// `InvalidRequest` for a body with too many values, `Overloaded` when there is no room.
    pub(crate) fn room_to_parse(
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

    /// True if the service answers at this path.
    fn is_at(&self, path: &str) -> bool {
        path.strip_prefix(self.prefix.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl fmt::Debug for HostedService {
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
    /// Client address according to trusted proxies; `None` if the socket was closed before it was read.
    pub address: Option<IpAddr>,
    /// The client came over TLS, here or at a trusted proxy.
    pub tls: bool,
    /// The listener's address is a loopback address.
    pub is_loopback: bool,
    /// The connection that the request came over, for requests that are made on its behalf.
    pub origin: Option<Origin>,
}

impl Downstream {
    pub(crate) fn new(session: &Session, snapshot: &Snapshot) -> Self {
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
pub(crate) fn at<'a>(hosted: &'a [HostedService], path: &str) -> Option<&'a HostedService> {
    hosted.iter().find(|hosted| hosted.is_at(path))
}
