//! Dispatch of a request to its service: a hosted one below a path of its own, the gateway itself, a
//! WebSocket, or an upstream.

use std::sync::Arc;

use http::Method;
use pingora_proxy::Session;

use crate::config::snapshot::Route;
use crate::error::{AllowedMethods, GatewayError};
use crate::gateway::answer::respond;
use crate::gateway::call::task_record;
use crate::gateway::local::stored::{self, StoredResponse};
use crate::gateway::local::{self, LocalEndpoint, hosted};
use crate::gateway::receive::admission;
use crate::gateway::request::content_path;
use crate::gateway::request::context::RequestContext;
use crate::gateway::request::hosted as registered;
use crate::gateway::request::services::Gateway;
use crate::gateway::websocket;
use crate::gateway::wire::cors;
use crate::gateway::wire::error::client_disconnected;
use crate::protocols::Operation;

/// The service that a request is for.
pub(crate) enum Dispatch {
    /// The request was answered without an upstream.
    Answered,
    /// The request is for the operation of this route.
    Operation(Arc<Route>),
}

/// Answers a request that needs no upstream, or gives the route of its operation.
///
/// # Errors
/// Why the request is refused.
pub(crate) async fn dispatch(
    gateway: &Gateway,
    session: &mut Session,
    ctx: &mut RequestContext,
) -> Result<Dispatch, GatewayError> {
    let head = session.req_header();
    // A service says itself which pages may call it.
    if ctx.routing.route.is_none()
        && let Some(hosted) = registered::at(&gateway.hosted, head.uri.path())
    {
        // Boxed: it is large, and most requests do without it.
        Box::pin(hosted::answer(gateway, session, ctx, hosted)).await?;
        return Ok(Dispatch::Answered);
    }
    if cors::is_preflight(head) {
        // It costs no more than to be turned away, and a customer's page could not call without it.
        admission::use_shed_timeouts(session);
        respond::preflight(session).await.map_err(|error| client_disconnected(&error))?;
        return Ok(Dispatch::Answered);
    }
    if websocket::is_upgrade(head) {
        let can_be_had = websocket::can_be_had(head);
        let is_spoken = |route: &Route| can_be_had && route.operation == Operation::Responses;
        let Some(route) = ctx.routing.route.clone().filter(|route| is_spoken(route)) else {
            return Err(local::no_websocket());
        };
        // Boxed: it is large, and most requests do without it.
        Box::pin(websocket::serve(gateway, session, ctx, &route)).await?;
        return Ok(Dispatch::Answered);
    }
    match ctx.routing.route.clone() {
        Some(route) => Ok(Dispatch::Operation(route)),
        // Boxed: it is large, and most requests do without it.
        None => Box::pin(answer_here(gateway, session, ctx)).await,
    }
}

async fn answer_here(
    gateway: &Gateway,
    session: &mut Session,
    ctx: &mut RequestContext,
) -> Result<Dispatch, GatewayError> {
    let head = session.req_header();
    let path = head.uri.path();
    if head.method == Method::HEAD && local::HELLO_PATHS.contains(&path) {
        ctx.routing.local_route = "/";
        gateway.admit_unauthenticated(session, ctx)?;
        respond::empty(session, ctx.id).await.map_err(|error| client_disconnected(&error))?;
        return Ok(Dispatch::Answered);
    }
    if let Some(id) = local::task_at(&ctx.snapshot, path) {
        let id = id.to_owned();
        ctx.routing.local_route = "/v1/videos/generations/{id}";
        return answer_task(gateway, session, ctx, &id).await;
    }
    // What is looked for outlives the session's part in it.
    let uri = head.uri.clone();
    if let Some(response) = StoredResponse::at(&ctx.snapshot, uri.path()) {
        ctx.routing.local_route = response.route();
        // Boxed: it is large, and most requests do without it.
        Box::pin(stored::answer(gateway, session, ctx, response, uri.query())).await?;
        return Ok(Dispatch::Answered);
    }
    if let Some(error) = content_path::no_method(&ctx.snapshot, &head.method, uri.path()) {
        return Err(error);
    }
    let local = LocalEndpoint::at(uri.path());
    let of_google = || local::listed(&ctx.snapshot, uri.path());
    let Some(local) = local.or_else(of_google) else {
        return Err(local::not_found(&ctx.snapshot, path));
    };
    ctx.routing.local_route = local.route();
    if head.method != Method::GET && head.method != Method::HEAD {
        return Err(local::wrong_method(AllowedMethods::Get));
    }
    let key = gateway.admit_customer(session, ctx)?;
    let (envelope, snapshot) = (ctx.routing.envelope, &ctx.snapshot);
    let turn = match local {
        LocalEndpoint::Usage => {
            let slot = ctx.admission.slot.as_ref();
            gateway.request_slots.read_in_turn(slot, &snapshot.limits).await?
        }
        LocalEndpoint::Models
        | LocalEndpoint::Model(_)
        | LocalEndpoint::ContentModels
        | LocalEndpoint::ContentModel(_)
        | LocalEndpoint::Balance => None,
    };
    let answer = local.answer(uri.query(), snapshot, &gateway.ledger, &key, envelope);
    let document = answer.await?;
    // Others need not wait until this customer has taken it.
    drop(turn);
    let id = ctx.id;
    respond::document(session, id, document.into())
        .await
        .map_err(|error| client_disconnected(&error))?;
    Ok(Dispatch::Answered)
}

async fn answer_task(
    gateway: &Gateway,
    session: &mut Session,
    ctx: &mut RequestContext,
    task: &str,
) -> Result<Dispatch, GatewayError> {
    let head = session.req_header();
    if head.method != Method::GET && head.method != Method::HEAD {
        return Err(local::wrong_method(AllowedMethods::Get));
    }
    let account = gateway.admit_customer(session, ctx)?.account;
    let record = task_record::record(gateway, account, task).await?;
    let answered = respond::document(session, ctx.id, record.into()).await;
    answered.map_err(|error| client_disconnected(&error))?;
    Ok(Dispatch::Answered)
}
