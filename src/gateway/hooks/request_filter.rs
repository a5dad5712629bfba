//! `request_filter`: route, authenticate, admit, read the body, and hold the money.

use std::sync::Arc;
use std::time::Instant;

use http::header::CONTENT_ENCODING;
use http::{HeaderMap, Method};
use pingora::Result;
use pingora::http::RequestHeader;
use pingora_proxy::Session;

use crate::balance::{CallKind, CandidateQuery, Candidates};
use crate::config::snapshot::{Route, Snapshot};
use crate::error::{AllowedMethods, ErrorKind, GatewayError};
use crate::gateway::answer::respond;
use crate::gateway::call::{self, repeated_submit, submit};
use crate::gateway::dispatch::{Dispatch, dispatch};
use crate::gateway::hold::small_balance::{self, FundedRequest, TightRequest};
use crate::gateway::local;
use crate::gateway::receive::body::{self, ReadLimits};
use crate::gateway::receive::reading::BodyReading;
use crate::gateway::request::context::{RequestContext, RequestStage};
use crate::gateway::request::idempotency::{self, IdempotencyMark};
use crate::gateway::request::sending::Sending;
use crate::gateway::request::services::Gateway;
use crate::gateway::wire::error::client_disconnected;
use crate::gateway::wire::memory::held::HeldBody;
use crate::ledger::Key;
use crate::pipeline::{self, AdmitOutcome, ValidatedRequest};
use crate::protocols::{BodyKind, ModelInPath, Request};

/// The state of a request after admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestDisposition {
    /// The request is paid for and goes to an upstream.
    Paid,
    /// The request was answered by the filter.
    Answered,
}

/// Admits a request and answers it.
///
/// # Errors
/// The failure that `fail_to_proxy` answers or logs.
pub(super) async fn filter(
    gateway: &Gateway,
    session: &mut Session,
    ctx: &mut RequestContext,
) -> Result<bool> {
    // Boxed: its state is large, and is freed before an answer that can take minutes.
    match Box::pin(admit(gateway, session, ctx)).await {
        Ok(RequestDisposition::Answered) => Ok(true),
        Ok(RequestDisposition::Paid) => call::answer(gateway, session, ctx).await.map(|()| true),
        Err(error) => Err(gateway.refuse(session, ctx, error)),
    }
}

/// Takes a request from its header to its hold. The order limits the cost of a client without a key or money:
/// the key is checked before any byte of the body is read, limits before money is held, and the hold is made
/// before an upstream is called.
async fn admit(
    gateway: &Gateway,
    session: &mut Session,
    ctx: &mut RequestContext,
) -> std::result::Result<RequestDisposition, GatewayError> {
    let route = match dispatch(gateway, session, ctx).await? {
        Dispatch::Answered => return Ok(RequestDisposition::Answered),
        Dispatch::Operation(route) => route,
    };
    let snapshot = Arc::clone(&ctx.snapshot);
    if session.req_header().method != Method::POST {
        return Err(local::wrong_method(AllowedMethods::Post));
    }
    let key = gateway.admit_customer(session, ctx)?;
    let (body, reading) = read(gateway, session, ctx, &route).await?;
    ctx.request_bytes = body.bytes.len() as u64;
    let head = session.req_header();
    let path_params = ctx.routing.path_params.clone();
    let named = path_params.as_ref().map(|params| params.named());
    let arrived = CompleteRequest { head, named, reading, body: &body };
    let understood = understand_aside(gateway, ctx, key, &route, arrived).await?;
    let ParsedRequest { request, validated, mark } = understood;
    if validated.call.submit().is_some() {
        let (key, call) = (&validated.resolved.key, validated.call.as_ref());
        ctx.admission.waiting = submit::check(gateway, ctx, key, call).await?;
        if let Some(mark) = &mark {
            let first = repeated_submit::answer_of_first(gateway, key.account, mark, Some(session));
            // Boxed: it is large, and most requests do without it.
            if let Some((status, answer)) = Box::pin(first).await? {
                let answered = respond::relayed(session, ctx.id, status, answer).await;
                answered.map_err(|error| client_disconnected(&error))?;
                return Ok(RequestDisposition::Answered);
            }
        }
    }
    let headers = &session.req_header().headers;
    let choose = || candidates(gateway, &snapshot, headers, &request, &validated);
    let candidates = gateway.offload.run(body.bytes.len(), choose).await?;
    drop(request);
    gateway.enter_upstream_slot(ctx)?;
    count_free(gateway, &snapshot, &validated)?;
    let permit = pipeline::limit(&gateway.limits, &gateway.ledger, &snapshot, &validated).await?;
    ctx.admission.permit = Some(permit);
    let fitted = match pipeline::admit(&gateway.ledger, ctx.id, validated).await? {
        AdmitOutcome::Admitted(admitted) => FundedRequest { admitted, candidates, body },
        AdmitOutcome::Tight(priced) => {
            let request = TightRequest::new(priced, candidates, body, ctx, route);
            // Boxed: it is large, and most requests do without it.
            Box::pin(small_balance::admit(gateway, session, ctx, request)).await?
        }
    };
    let FundedRequest { admitted, candidates, body } = fitted;
    let sending = Sending::new(admitted, body, mark, candidates);
    ctx.stage = RequestStage::Sending(Box::new(sending));
    Ok(RequestDisposition::Paid)
}

/// A request whose body has arrived completely.
struct CompleteRequest<'h, 'a> {
    head: &'h RequestHeader,
    /// Model and method in the path, for Google's API.
    named: Option<ModelInPath<'a>>,
    reading: BodyReading,
    body: &'a HeldBody,
}

/// A parsed and validated body, with the idempotency mark of a submit.
struct ParsedRequest<'a> {
    request: Request<'a>,
    validated: ValidatedRequest,
    /// Idempotency mark of a request that starts a task.
    mark: Option<IdempotencyMark>,
}

/// Parses the whole body; a large one on a thread that blocks no other request, with memory reserved for the
/// result.
async fn understand_aside<'a>(
    gateway: &Gateway,
    ctx: &mut RequestContext,
    key: Arc<Key>,
    route: &Route,
    arrived: CompleteRequest<'_, 'a>,
) -> std::result::Result<ParsedRequest<'a>, GatewayError> {
    let body = arrived.body;
    let leave = gateway.offload.enter(body.bytes.len()).await;
    let budget = ctx.snapshot.limits.body_memory_bytes_max;
    // Of forms, and of inputs to embed, nothing is made that has something for each value.
    let body_kind = route.operation.info().body;
    let is_counted = matches!(body_kind, BodyKind::Form | BodyKind::JsonWithTokenIds);
    let values_max = if is_counted { 0 } else { route.json_values_max };
    let room = leave.is_large().then(|| body.room_to_read(values_max, budget));
    let _room = room.transpose().map_err(|full| gateway.bodies.shed(full))?;
    leave.run(|| understand(ctx, key, route, arrived))
}

/// Parses the whole body: finds the requested model and checks that it supports the operation.
fn understand<'a>(
    ctx: &mut RequestContext,
    key: Arc<Key>,
    route: &Route,
    arrived: CompleteRequest<'_, 'a>,
) -> std::result::Result<ParsedRequest<'a>, GatewayError> {
    let snapshot = Arc::clone(&ctx.snapshot);
    let CompleteRequest { head, named, reading, body } = arrived;
    let body: &'a [u8] = &body.bytes;
    let request = reading.finish(body, route.json_values_max)?;
    let request = match (request, named) {
        (Request::Json(object), Some(named)) => Request::JsonAt(object, named),
        (request, _) => request,
    };
    let resolved = pipeline::resolve(&snapshot, key, route.operation, &request);
    ctx.routing.envelope = ctx.routing.envelope.refine_by_body(&request, resolved.as_ref().ok());
    let resolved = resolved?;
    ctx.model = Some(Arc::clone(&resolved.model));
    let validated = pipeline::validate(resolved, &request)?;
    ctx.stream = validated.call.streams();
    let mark = match validated.call.submit() {
        Some(_) => idempotency::mark(head, &snapshot, &validated.resolved.key, &request, body)?,
        None => None,
    };
    Ok(ParsedRequest { request, validated, mark })
}

/// The ways that the request may take, if there is any for it.
fn candidates(
    gateway: &Gateway,
    snapshot: &Arc<Snapshot>,
    headers: &HeaderMap,
    request: &Request<'_>,
    validated: &ValidatedRequest,
) -> std::result::Result<Candidates, GatewayError> {
    let (resolved, mode) = (&validated.resolved, snapshot.balancing.affinity);
    let account = resolved.key.account;
    let affinity = || pipeline::affinity(mode, account, headers, request);
    let binding = pipeline::binding(&gateway.balancer, validated)?;
    let tokens = validated.call.min_usage().input_tokens_total();
    let (account, name) = (account.number(), resolved.requested_name.as_deref());
    let query = CandidateQuery { account, kind: kind(validated), name, tokens, home: binding.home };
    let targets = validated.targets().filter(|(_, target)| binding.admits(target));
    let candidates = gateway.balancer.candidates(snapshot, targets, query, affinity);
    // Where one does not know the name, another may.
    if candidates.is_empty() && candidates.is_unknown(Instant::now()) {
        return Err(resolved.unknown());
    }
    if binding.is_bound() && candidates.is_empty() {
        return Err(pipeline::stored_object_lost(validated));
    }
    Ok(candidates)
}

/// Counts a free request of an account that reaches an upstream. Done before the limits of key, account and
/// model, so that a refused request uses none of the model's.
fn count_free(
    gateway: &Gateway,
    snapshot: &Snapshot,
    validated: &ValidatedRequest,
) -> std::result::Result<(), GatewayError> {
    if !kind(validated).is_free() || validated.call.is_local() {
        return Ok(());
    }
    let account = validated.resolved.key.account.number();
    gateway.count_free_call(account, &snapshot.limits.free_calls)
}

/// The kind of calls that the request makes.
fn kind(validated: &ValidatedRequest) -> CallKind {
    CallKind::from(validated.resolved.operation)
}

/// The complete body of a request for an operation.
async fn read(
    gateway: &Gateway,
    session: &mut Session,
    ctx: &RequestContext,
    route: &Route,
) -> std::result::Result<(HeldBody, BodyReading), GatewayError> {
    let headers = &session.req_header().headers;
    if headers.get(CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        let message =
            "Compressed request bodies are not read. Send the body without Content-Encoding.";
        return Err(GatewayError::new(ErrorKind::UnsupportedMediaType, message));
    }
    let limits = ReadLimits::new(ctx, route.body_bytes_max).of_body(session, ctx);
    let mut reading = BodyReading::new(route.operation, headers)?;
    let body = body::read(session, &gateway.bodies, limits, &mut reading).await?;
    Ok((body, reading))
}
