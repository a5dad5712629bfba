//! From a request header to a paid request: route, authenticate, read, and the pipeline.

use std::sync::Arc;

use http::Method;
use http::header::CONTENT_ENCODING;
use pingora::proxy::Session;

use super::body::{self, HeldBody, ReadLimits};
use super::exchange::{Exchange, Sending, Stage};
use super::local::{self, Local};
use super::proxy::Gateway;
use super::reading::Reading;
use super::{cors, hosted, overload, respond, submit, told};
use crate::clock::UnixMs;
use crate::config::snapshot::{Route, Snapshot};
use crate::error::{Allow, ErrorKind, GatewayError};
use crate::pipeline;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// It is paid for and goes to an upstream.
    Paid,
    /// It was answered here.
    Answered,
}

/// Takes a request in.
pub(super) async fn receive(
    gateway: &Gateway,
    session: &mut Session,
    exchange: &mut Exchange,
) -> Result<Received, GatewayError> {
    let head = session.req_header();
    // A service says itself which pages may call it.
    if exchange.route.is_none()
        && let Some(hosted) = hosted::at(&gateway.hosted, head.uri.path())
    {
        take_place(gateway, exchange)?;
        // It is large, and most requests do without it.
        Box::pin(hosted::answer(gateway, session, exchange, hosted)).await?;
        return Ok(Received::Answered);
    }
    if cors::is_preflight(head) {
        respond::preflight(session).await.map_err(|error| gone(&error))?;
        return Ok(Received::Answered);
    }
    let snapshot = Arc::clone(&exchange.snapshot);
    take_place(gateway, exchange)?;
    let Some(route) = exchange.route.clone() else {
        return answer_here(gateway, session, exchange).await;
    };
    if head.method != Method::POST {
        return Err(local::wrong_method(Allow::Post));
    }
    let key = pipeline::authenticate(&gateway.ledger, &head.headers, UnixMs::now())?;
    exchange.key = Some(Arc::clone(&key));
    let (body, reading) = read(gateway, session, &snapshot, &route).await?;
    exchange.request_bytes = body.bytes.len() as u64;

    let request = reading.finish(&body.bytes)?;
    let resolved = pipeline::resolve(&snapshot, key, route.operation, &request);
    exchange.envelope = exchange.envelope.of_body(&request, resolved.as_ref().ok());
    let resolved = resolved?;
    exchange.model = Some(Arc::clone(&resolved.model));
    let validated = pipeline::validate(resolved, &request)?;
    exchange.stream = validated.call.streams();
    let mut mark = None;
    if validated.call.submit().is_some() {
        let (key, call) = (&validated.resolved.key, validated.call.as_ref());
        mark = submit::mark(session.req_header(), &snapshot, key, &body.bytes)?;
        submit::check(gateway, &snapshot, key, call).await?;
        let repeated = submit::repeated(gateway, key, &validated.resolved, mark.as_ref()).await?;
        if let Some((status, answer)) = repeated {
            let answered = respond::json_with(session, exchange.id, status, &answer).await;
            answered.map_err(|error| gone(&error))?;
            return Ok(Received::Answered);
        }
    }
    let resolved = &validated.resolved;
    let targets = resolved.targets().map(|(target, _)| target);
    let mode = snapshot.balancing.affinity;
    let (account, headers) = (resolved.key.account, &session.req_header().headers);
    let affinity = || pipeline::affinity(mode, account, headers, &request);
    let candidates = gateway.balancer.candidates(&snapshot, targets, affinity);
    let permit = pipeline::limit(&gateway.limits, &gateway.ledger, &snapshot, &validated).await?;
    exchange.permit = Some(permit);
    let admitted = pipeline::admit(&gateway.ledger, exchange.id, validated).await?;
    exchange.stage = Stage::Sending(Box::new(Sending {
        admitted,
        body,
        mark,
        candidates,
        attempt: None,
        stale_tries: 0,
        last_failure: None,
    }));
    Ok(Received::Paid)
}

/// The whole body of a request for an operation.
async fn read(
    gateway: &Gateway,
    session: &mut Session,
    snapshot: &Snapshot,
    route: &Route,
) -> Result<(HeldBody, Reading), GatewayError> {
    let headers = &session.req_header().headers;
    if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        let message =
            "Compressed request bodies are not read. Send the body without Content-Encoding.";
        return Err(GatewayError::new(ErrorKind::UnsupportedMediaType, message));
    }
    let limits = ReadLimits {
        body_bytes_max: route.body_bytes_max,
        budget_bytes_max: snapshot.limits.body_memory_bytes_max,
        timeout: snapshot.limits.body_timeout,
    };
    let mut reading = Reading::of(route.operation, headers)?;
    let body = body::read(session, &gateway.bodies, limits, &mut reading).await?;
    Ok((body, reading))
}

/// A place among the requests that are served, if there is one.
fn take_place(gateway: &Gateway, exchange: &mut Exchange) -> Result<(), GatewayError> {
    exchange.place = gateway.in_flight.enter(exchange.snapshot.limits.requests_in_flight_max);
    if exchange.place.is_none() {
        gateway.metrics.request_shed(overload::IN_FLIGHT);
        return Err(overload::no_place());
    }
    Ok(())
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
        respond::empty(session, exchange.id).await.map_err(|error| gone(&error))?;
        return Ok(Received::Answered);
    }
    if let Some(id) = local::task_at(&exchange.snapshot, path) {
        let id = id.to_owned();
        exchange.local_route = "/v1/videos/generations/{id}";
        return answer_task(gateway, session, exchange, &id).await;
    }
    let Some(local) = Local::at(path) else {
        return Err(local::not_found(&exchange.snapshot, path));
    };
    exchange.local_route = local.route();
    if head.method != Method::GET && head.method != Method::HEAD {
        return Err(local::wrong_method(Allow::Get));
    }
    let key = pipeline::authenticate(&gateway.ledger, &head.headers, UnixMs::now())?;
    let envelope = exchange.envelope;
    let query = head.uri.query();
    let answer = local.answer(query, &exchange.snapshot, &gateway.ledger, &key, envelope);
    let document = answer.await?;
    exchange.key = Some(key);
    let id = exchange.id;
    respond::json(session, id, &document).await.map_err(|error| gone(&error))?;
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
    let key = pipeline::authenticate(&gateway.ledger, &head.headers, UnixMs::now())?;
    let account = key.account;
    exchange.key = Some(key);
    let record = submit::record(gateway, account, task).await?;
    respond::json(session, exchange.id, &record).await.map_err(|error| gone(&error))?;
    Ok(Received::Answered)
}

fn gone(error: &pingora::Error) -> GatewayError {
    GatewayError::new(ErrorKind::ClientGone, "The customer went away.").cause(told(error))
}
