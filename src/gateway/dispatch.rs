//! From a request header to a paid request: route, authenticate, read, and the pipeline.

use std::sync::Arc;
use std::time::Instant;

use http::header::CONTENT_ENCODING;
use http::{HeaderMap, Method};
use pingora::http::RequestHeader;
use pingora_proxy::Session;

use crate::balance::{CallKind, CandidateQuery, Candidates};
use crate::config::snapshot::{Route, Snapshot};
use crate::error::{Allow, ErrorKind, GatewayError};
use crate::gateway::answer::respond;
use crate::gateway::call::{repeat, submit, task_record};
use crate::gateway::hold::tight::{self, Fitted, TightRequest};
use crate::gateway::local::stored::{self, StoredResponse};
use crate::gateway::local::{self, Local, hosted};
use crate::gateway::receive::admission;
use crate::gateway::receive::body::{self, ReadLimits};
use crate::gateway::receive::reading::BodyReading;
use crate::gateway::request::content_path;
use crate::gateway::request::context::{Exchange, RequestStage};
use crate::gateway::request::hosted as registered;
use crate::gateway::request::mark::{self, Mark};
use crate::gateway::request::sending::Sending;
use crate::gateway::request::services::Gateway;
use crate::gateway::websocket;
use crate::gateway::wire::cors;
use crate::gateway::wire::error::client_disconnected;
use crate::gateway::wire::memory::held::HeldBody;
use crate::ledger::Key;
use crate::pipeline::{self, Admission, Validated};
use crate::protocols::{NamedInPath, Operation, Request};

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// It is paid for and goes to an upstream.
    Paid,
    /// It was answered here.
    Answered,
}

/// Takes a request in.
pub(crate) async fn receive(
    gateway: &Gateway,
    session: &mut Session,
    exchange: &mut Exchange,
) -> Result<Received, GatewayError> {
    let head = session.req_header();
    // A service says itself which pages may call it.
    if exchange.route.is_none()
        && let Some(hosted) = registered::at(&gateway.hosted, head.uri.path())
    {
        // It is large, and most requests do without it.
        Box::pin(hosted::answer(gateway, session, exchange, hosted)).await?;
        return Ok(Received::Answered);
    }
    if cors::is_preflight(head) {
        // It costs no more than to be turned away, and a customer's page could not call without it.
        admission::hurry_on(session);
        respond::preflight(session).await.map_err(|error| client_disconnected(&error))?;
        return Ok(Received::Answered);
    }
    if websocket::is_upgrade(head) {
        let can_be_had = websocket::can_be_had(head);
        let is_spoken = |route: &Route| can_be_had && route.operation == Operation::Responses;
        let Some(route) = exchange.route.clone().filter(|route| is_spoken(route)) else {
            return Err(local::no_websocket());
        };
        // It is large, and most requests do without it.
        Box::pin(websocket::serve(gateway, session, exchange, &route)).await?;
        return Ok(Received::Answered);
    }
    let snapshot = Arc::clone(&exchange.snapshot);
    let Some(route) = exchange.route.clone() else {
        // It is large, and most requests do without it.
        return Box::pin(answer_here(gateway, session, exchange)).await;
    };
    if head.method != Method::POST {
        return Err(local::wrong_method(Allow::Post));
    }
    let key = gateway.admit_customer(session, exchange)?;
    let (body, reading) = read(gateway, session, exchange, &route).await?;
    exchange.request_bytes = body.bytes.len() as u64;
    let head = session.req_header();
    let asked_at = exchange.asked_at.clone();
    let named = asked_at.as_ref().map(|asked| asked.named());
    let arrived = Arrived { head, named, reading, body: &body };
    let understood = understand_aside(gateway, exchange, key, &route, arrived).await?;
    let Understood { request, validated, mark } = understood;
    if validated.call.submit().is_some() {
        let (key, call) = (&validated.resolved.key, validated.call.as_ref());
        exchange.waiting = submit::check(gateway, exchange, key, call).await?;
        if let Some(mark) = &mark {
            let first = repeat::answer_of_first(gateway, key.account, mark, Some(session));
            // It is large, and most requests do without it.
            if let Some((status, answer)) = Box::pin(first).await? {
                let answered = respond::relayed(session, exchange.id, status, answer).await;
                answered.map_err(|error| client_disconnected(&error))?;
                return Ok(Received::Answered);
            }
        }
    }
    let headers = &session.req_header().headers;
    let choose = || candidates(gateway, &snapshot, headers, &request, &validated);
    let candidates = gateway.offload.run(body.bytes.len(), choose).await?;
    drop(request);
    gateway.enter_upstream_slot(exchange)?;
    count_free(gateway, &snapshot, &validated)?;
    let permit = pipeline::limit(&gateway.limits, &gateway.ledger, &snapshot, &validated).await?;
    exchange.permit = Some(permit);
    let fitted = match pipeline::admit(&gateway.ledger, exchange.id, validated).await? {
        Admission::Admitted(admitted) => Fitted { admitted, candidates, body },
        Admission::Tight(priced) => {
            let request = TightRequest::new(priced, candidates, body, exchange, route);
            // It is large, and most requests do without it.
            Box::pin(tight::admit(gateway, session, exchange, request)).await?
        }
    };
    let Fitted { admitted, candidates, body } = fitted;
    let sending = Sending::new(admitted, body, mark, candidates);
    exchange.stage = RequestStage::Sending(Box::new(sending));
    Ok(Received::Paid)
}

/// A request of which all is here.
struct Arrived<'h, 'a> {
    head: &'h RequestHeader,
    /// What the path says of it.
    named: Option<NamedInPath<'a>>,
    reading: BodyReading,
    body: &'a HeldBody,
}

/// A body as it was read.
struct Understood<'a> {
    request: Request<'a>,
    validated: Validated,
    /// What marks repetitions of it, for one that starts a task.
    mark: Option<Mark>,
}

/// Reads the whole body, a large one where that holds up nobody, with room for what is made of it.
async fn understand_aside<'a>(
    gateway: &Gateway,
    exchange: &mut Exchange,
    key: Arc<Key>,
    route: &Route,
    arrived: Arrived<'_, 'a>,
) -> Result<Understood<'a>, GatewayError> {
    let body = arrived.body;
    let leave = gateway.offload.enter(body.bytes.len()).await;
    let budget = exchange.snapshot.limits.body_memory_bytes_max;
    // Of forms, and of inputs to embed, nothing is made that has something for each value.
    let is_counted = route.operation.takes_form() || route.operation == Operation::Embeddings;
    let values_max = if is_counted { 0 } else { route.json_values_max };
    let room = leave.is_large().then(|| body.room_to_read(values_max, budget));
    let _room = room.transpose().map_err(|full| gateway.bodies.shed(full))?;
    leave.run(|| understand(exchange, key, route, arrived))
}

/// Reads the whole body: which model is asked, and whether it can be asked that.
fn understand<'a>(
    exchange: &mut Exchange,
    key: Arc<Key>,
    route: &Route,
    arrived: Arrived<'_, 'a>,
) -> Result<Understood<'a>, GatewayError> {
    let snapshot = Arc::clone(&exchange.snapshot);
    let Arrived { head, named, reading, body } = arrived;
    let body: &'a [u8] = &body.bytes;
    let request = reading.finish(body, route.json_values_max)?;
    let request = match (request, named) {
        (Request::Json(object), Some(named)) => Request::JsonAt(object, named),
        (request, _) => request,
    };
    let resolved = pipeline::resolve(&snapshot, key, route.operation, &request);
    exchange.envelope = exchange.envelope.refine_by_body(&request, resolved.as_ref().ok());
    let resolved = resolved?;
    exchange.model = Some(Arc::clone(&resolved.model));
    let validated = pipeline::validate(resolved, &request)?;
    exchange.stream = validated.call.streams();
    let mark = match validated.call.submit() {
        Some(_) => mark::mark(head, &snapshot, &validated.resolved.key, &request, body)?,
        None => None,
    };
    Ok(Understood { request, validated, mark })
}

/// The ways that the request may take, if there is any for it.
fn candidates(
    gateway: &Gateway,
    snapshot: &Arc<Snapshot>,
    headers: &HeaderMap,
    request: &Request<'_>,
    validated: &Validated,
) -> Result<Candidates, GatewayError> {
    let (resolved, mode) = (&validated.resolved, snapshot.balancing.affinity);
    let account = resolved.key.account;
    let affinity = || pipeline::affinity(mode, account, headers, request);
    let binding = pipeline::binding(&gateway.balancer, validated)?;
    let tokens = validated.call.floor().input_tokens_total();
    let (account, name) = (account.number(), resolved.asked.as_deref());
    let asked = CandidateQuery { account, kind: kind(validated), name, tokens, home: binding.home };
    let targets = validated.targets().filter(|(_, target)| binding.admits(target));
    let candidates = gateway.balancer.candidates(snapshot, targets, asked, affinity);
    // Where one does not know the name, another may.
    if candidates.is_empty() && candidates.is_unknown(Instant::now()) {
        return Err(resolved.unknown());
    }
    if binding.is_bound() && candidates.is_empty() {
        return Err(pipeline::gone(validated));
    }
    Ok(candidates)
}

/// Counts a request that costs nothing and reaches an upstream for its account: before the limits of key,
/// account and model, since what is refused takes nothing of the model's.
fn count_free(
    gateway: &Gateway,
    snapshot: &Snapshot,
    validated: &Validated,
) -> Result<(), GatewayError> {
    if !kind(validated).is_free() || validated.call.is_local() {
        return Ok(());
    }
    let account = validated.resolved.key.account.number();
    gateway.count_free_call(account, &snapshot.limits.free_calls)
}

/// The kind of calls that the request makes.
fn kind(validated: &Validated) -> CallKind {
    CallKind::from(validated.resolved.operation)
}

/// The whole body of a request for an operation.
async fn read(
    gateway: &Gateway,
    session: &mut Session,
    exchange: &Exchange,
    route: &Route,
) -> Result<(HeldBody, BodyReading), GatewayError> {
    let headers = &session.req_header().headers;
    if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        let message =
            "Compressed request bodies are not read. Send the body without Content-Encoding.";
        return Err(GatewayError::new(ErrorKind::UnsupportedMediaType, message));
    }
    let limits = ReadLimits::new(exchange, route.body_bytes_max).of_body(session, exchange);
    let mut reading = BodyReading::new(route.operation, headers)?;
    let body = body::read(session, &gateway.bodies, limits, &mut reading).await?;
    Ok((body, reading))
}

async fn answer_here(
    gateway: &Gateway,
    session: &mut Session,
    exchange: &mut Exchange,
) -> Result<Received, GatewayError> {
    let head = session.req_header();
    let path = head.uri.path();
    if head.method == Method::HEAD && local::HELLO_PATHS.contains(&path) {
        exchange.local_route = "/";
        gateway.admit_stranger(session, exchange)?;
        respond::empty(session, exchange.id).await.map_err(|error| client_disconnected(&error))?;
        return Ok(Received::Answered);
    }
    if let Some(id) = local::task_at(&exchange.snapshot, path) {
        let id = id.to_owned();
        exchange.local_route = "/v1/videos/generations/{id}";
        return answer_task(gateway, session, exchange, &id).await;
    }
    // What is looked for outlives the session's part in it.
    let uri = head.uri.clone();
    if let Some(asked) = StoredResponse::at(&exchange.snapshot, uri.path()) {
        exchange.local_route = asked.route();
        // It is large, and most requests do without it.
        Box::pin(stored::answer(gateway, session, exchange, asked, uri.query())).await?;
        return Ok(Received::Answered);
    }
    if let Some(error) = content_path::no_method(&exchange.snapshot, &head.method, uri.path()) {
        return Err(error);
    }
    let local = Local::at(uri.path());
    let of_google = || local::listed(&exchange.snapshot, uri.path());
    let Some(local) = local.or_else(of_google) else {
        return Err(local::not_found(&exchange.snapshot, path));
    };
    exchange.local_route = local.route();
    if head.method != Method::GET && head.method != Method::HEAD {
        return Err(local::wrong_method(Allow::Get));
    }
    let key = gateway.admit_customer(session, exchange)?;
    let (envelope, snapshot) = (exchange.envelope, &exchange.snapshot);
    let turn = match local {
        Local::Usage => {
            let place = exchange.place.as_ref();
            gateway.places.read_in_turn(place, &snapshot.limits).await?
        }
        Local::Models
        | Local::Model(_)
        | Local::ContentModels
        | Local::ContentModel(_)
        | Local::Balance => None,
    };
    let answer = local.answer(uri.query(), snapshot, &gateway.ledger, &key, envelope);
    let document = answer.await?;
    // Others need not wait until this customer has taken it.
    drop(turn);
    let id = exchange.id;
    respond::document(session, id, document.into())
        .await
        .map_err(|error| client_disconnected(&error))?;
    Ok(Received::Answered)
}

async fn answer_task(
    gateway: &Gateway,
    session: &mut Session,
    exchange: &mut Exchange,
    task: &str,
) -> Result<Received, GatewayError> {
    let head = session.req_header();
    if head.method != Method::GET && head.method != Method::HEAD {
        return Err(local::wrong_method(Allow::Get));
    }
    let account = gateway.admit_customer(session, exchange)?.account;
    let record = task_record::record(gateway, account, task).await?;
    let answered = respond::document(session, exchange.id, record.into()).await;
    answered.map_err(|error| client_disconnected(&error))?;
    Ok(Received::Answered)
}
