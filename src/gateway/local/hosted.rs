//! Services of the gateway's own that answer below a path of their own, on the customers'
//! listeners: over the same TLS, HTTP/1.1 and HTTP/2, within the same bounds, as everything else.
//!
//! The gateway keeps the connection; the service gets a request whose body has been read, and its
//! answer is passed on piece by piece as it comes.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, HeaderName, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Body;
use pingora::http::RequestHeader;
use pingora_proxy::Session;

use crate::error::{ErrorKind, GatewayError};
use crate::gateway::listen::deadline;
use crate::gateway::receive::body::{self, ReadLimits};
use crate::gateway::receive::reading::BodyReading;
use crate::gateway::request::context::RequestContext;
use crate::gateway::request::hosted::{Downstream, HostedService};
use crate::gateway::request::services::Gateway;
use crate::gateway::wire::error::client_disconnected;
use crate::gateway::wire::head::{self, AnswerHead, NO_SNIFFING, X_REQUEST_ID};
use crate::gateway::wire::memory::service::Memory;
use crate::gateway::wire::{cors, offload};

/// Size of a piece of an answer: the client must accept each piece in time, however long the whole answer is.
const PART_BYTES_MAX: usize = 64 * 1024;
/// Hop-by-hop headers, which the gateway sets itself (RFC 9110, section 7.6.1).
const HOP_BY_HOP: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Answers a request in a customer's slot if its service requires a key, else in one for unauthenticated
/// clients.
///
/// # Errors
/// The key or the body is not valid, no slot is free, `ClientDisconnected`, `Overloaded` when the gateway stops
/// meanwhile, and `Internal` when the response breaks off.
pub(crate) async fn answer(
    gateway: &Gateway,
    session: &mut Session,
    ctx: &mut RequestContext,
    hosted: &HostedService,
) -> Result<(), GatewayError> {
    ctx.routing.local_route = hosted.route;
    if hosted.for_keys && !cors::is_preflight(session.req_header()) {
        gateway.admit_customer(session, ctx)?;
    } else {
        gateway.admit_unauthenticated(session, ctx)?;
    }
    let limits = ReadLimits::new(ctx, hosted.body_bytes_max).of_body(session, ctx);
    let downstream = Downstream::new(session, &ctx.snapshot);
    let budget = limits.budget_bytes_max;
    let held = body::read(session, &gateway.bodies, limits, &mut BodyReading::Json).await?;
    ctx.request_bytes = held.bytes.len() as u64;
    // What it makes of the body can be there as long as it works.
    let _room = hosted.room_to_parse(&gateway.bodies, &held, budget)?;
    let mut request = request(session.req_header(), held.bytes.clone(), downstream);
    if hosted.json_values_max.is_some() {
        request.extensions_mut().insert(Memory::new(&gateway.bodies, budget));
    }
    if let Some(key) = &ctx.key {
        request.extensions_mut().insert(Arc::clone(key));
    }
    let limit = Arc::clone(&ctx.services.deadline);
    let answered = limit.or_done(relay(session, ctx, hosted, request)).await;
    answered.unwrap_or_else(|| Err(deadline::stopping(head::begun(session))))
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
    ctx: &mut RequestContext,
    hosted: &HostedService,
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
    let header = customers_head(&answered, &body, ctx);
    ctx.response.first_byte = Some(ctx.started.elapsed());
    let has_body = session.req_header().method != Method::HEAD && header.may_have_body();
    head::write(session, header, false).await.map_err(|error| client_disconnected(&error))?;
    while let Some(frame) = while_here(session, body.frame()).await?.filter(|_| has_body) {
        let frame = frame.map_err(|error| broken().cause(error))?;
        // Trailers have no reader.
        let Ok(mut piece) = frame.into_data() else { continue };
        while !piece.is_empty() {
            let part = piece.split_to(piece.len().min(PART_BYTES_MAX));
            let is_last = piece.is_empty() && body.is_end_stream();
            let sent = session.write_response_body(Some(part), is_last).await;
            sent.map_err(|error| client_disconnected(&error))?;
            if is_last {
                return Ok(());
            }
        }
    }
    session.write_response_body(None, true).await.map_err(|error| client_disconnected(&error))
}

/// The answer's head as it goes to the customer.
fn customers_head(
    answered: &http::response::Parts,
    body: &impl Body,
    ctx: &RequestContext,
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
    headers.insert(X_REQUEST_ID, head::id(ctx.id));
    header
}

/// Runs `work` until the client disconnects.
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
            Ok(_) => GatewayError::new(ErrorKind::ClientDisconnected, "The customer went away."),
            Err(error) => client_disconnected(&error),
        }),
    }
}

pub(super) fn broken() -> GatewayError {
    GatewayError::new(ErrorKind::Internal, "The answer broke off.")
}
