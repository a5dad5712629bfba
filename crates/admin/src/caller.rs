//! Authentication of callers, and idempotency of their writes.

use std::time::Instant;

use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::AdminState;
use super::connections;
use super::description::{HandlerInput, Operation};
use super::error::ApiError;
use super::request::whole;
use tollgate_ledger::{Actor, ActorScope, IdempotencyKey, RequestId};
use tollgate_types::secret::Secret;
use tollgate_web_kit::Client;

/// The header in which a caller names a write, so that it is done once.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The longest such name, in bytes.
const KEY_BYTES_MAX: usize = 256;

/// Middleware of all handlers: authenticates the caller, gives the response its request id, and logs
/// the operator's request.
pub(super) async fn middleware(
    State(state): State<AdminState>,
    request: Request,
    next: Next,
) -> Response {
    let id = RequestId::new().to_string();
    // Without the query: a search may contain the name of a customer.
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let guarded = path.starts_with("/admin");
    let mut response = match authenticate(&state, request, guarded).await {
        Err(error) => error.into_response(),
        Ok(request) => next.run(request).await,
    };
    let status = response.status().as_u16();
    if guarded && status != 401 {
        // What was not found may be anything, even a customer's key pasted in the place of its id.
        let path = if status == 404 { "not found" } else { path.as_str() };
        log::info!(
            request_id = id.as_str(), method = method.as_str(), path, status;
            "admin request"
        );
    }
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert("x-request-id", id);
    }
    // Responses contain secrets that are shown once, and balances; no proxy may keep them.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Authenticates operators by their token, and stores the operator and the idempotency key in the request.
/// Public paths pass unchanged.
///
/// # Errors
/// A request without a token that is known, and a body that does not arrive whole.
async fn authenticate(
    state: &AdminState,
    request: Request,
    guarded: bool,
) -> Result<Request, ApiError> {
    if !guarded {
        return Ok(request);
    }
    let presented = bearer(request.headers()).ok_or_else(ApiError::unauthorized)?;
    let address = request.extensions().get::<Client>().and_then(|client| client.address);
    // Before the comparison: beyond the limit a guess is not even compared.
    if !state.guesses.may_try(address, presented, Instant::now()) {
        let message = "Too many wrong tokens came from this address. Try again in a minute.";
        return Err(ApiError::too_many(message));
    }
    let actor = state.operator(presented);
    // Right tokens are noted as well: an operator behind the same proxy as a guesser stays able to log in.
    state.guesses.note(address, presented, actor.is_some(), Instant::now());
    let actor = actor.ok_or_else(ApiError::unauthorized)?;
    // Marked as soon as the token is known, so that a long body or handler is not cut for a newcomer.
    connections::mark_authenticated(request.extensions());
    let (mut parts, mut body) = request.into_parts();
    parts.extensions.insert(actor);
    // Only writes have an idempotency digest, and only an authenticated caller may make the gateway buffer a
    // body.
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        let bytes = whole(body).await?;
        parts.extensions.insert(RequestDigest(digest(&parts, &bytes)));
        body = bytes.into();
    }
    Ok(Request::from_parts(parts, body))
}

/// The SHA-256 of a write.
#[derive(Clone, Copy)]
struct RequestDigest([u8; 32]);

/// Two requests are the same if method, path, query and body are.
fn digest(parts: &Parts, body: &[u8]) -> [u8; 32] {
    let what = parts.uri.path_and_query().map_or("", |what| what.as_str());
    // Neither a method nor a path has a line break.
    let head = format!("{} {what}\n", parts.method);
    Sha256::new().chain_update(head).chain_update(body).finalize().into()
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let value = single(headers, header::AUTHORIZATION.as_str())?;
    let (scheme, token) = value.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Value of the header, if it was sent exactly once: of two, it is unclear which one counts.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    values.next().is_none().then(|| first.as_bytes())
}

/// Caller of a write.
pub(super) struct Caller {
    actor: Actor,
    idempotency: IdempotencyKey,
}

impl Caller {
    /// The caller as the journal records it.
    pub(super) fn actor(&self) -> &Actor {
        &self.actor
    }

    /// The writes of this caller, under the id of the request.
    pub(super) fn by<'a>(&self, state: &'a AdminState) -> ActorScope<'a> {
        state.ledger.by(&self.actor).with_idempotency_key(self.idempotency.clone())
    }

    /// The writes of a request whose body must leave no trace, not even as a digest that could be
    /// guessed: `what` stands in its place.
    pub(super) fn by_asking<'a>(&self, state: &'a AdminState, what: &str) -> ActorScope<'a> {
        let digest = Sha256::digest(what.as_bytes()).into();
        state
            .ledger
            .by(&self.actor)
            .with_idempotency_key(IdempotencyKey { digest, ..self.idempotency.clone() })
    }
}

impl FromRequestParts<AdminState> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &AdminState) -> Result<Self, ApiError> {
        let actor = parts.extensions.get::<Actor>().cloned().ok_or_else(ApiError::unauthorized)?;
        let digest = parts.extensions.get::<RequestDigest>().map_or([0; 32], |digest| digest.0);
        // A header that is present but empty or sent twice is refused: ignoring it would run a write twice
        // that the caller believes to be idempotent.
        let is_named = parts.headers.contains_key(IDEMPOTENCY_KEY);
        let id = is_named.then(|| idempotency_key(&parts.headers)).transpose()?;
        Ok(Self { actor, idempotency: IdempotencyKey { id, digest } })
    }
}

/// The token that the caller has shown.
pub(super) struct PresentedToken(pub(super) Secret);

impl FromRequestParts<AdminState> for PresentedToken {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &AdminState) -> Result<Self, ApiError> {
        let token = bearer(&parts.headers).and_then(|token| std::str::from_utf8(token).ok());
        let token = token.ok_or_else(ApiError::unauthorized)?;
        Ok(Self(Secret::new(token.to_owned())))
    }
}

impl HandlerInput for PresentedToken {
    fn describe(_: &mut Operation<'_>) {}
}

fn idempotency_key(headers: &HeaderMap) -> Result<String, ApiError> {
    let bytes = single(headers, IDEMPOTENCY_KEY).unwrap_or_default();
    let is_one = (1..=KEY_BYTES_MAX).contains(&bytes.len())
        && bytes.iter().all(|byte| byte.is_ascii_graphic());
    let text = std::str::from_utf8(bytes).ok().filter(|_| is_one);
    text.map(str::to_owned).ok_or_else(|| {
        let message = format!(
            "`Idempotency-Key` is sent once and has 1 to {KEY_BYTES_MAX} visible ASCII characters."
        );
        ApiError::invalid("Idempotency-Key", message)
    })
}

impl HandlerInput for Caller {
    fn describe(operation: &mut Operation<'_>) {
        operation.header(
            "Idempotency-Key",
            "What the caller calls this write: for 7 days the same key and request give the result \
             of the first, and nothing happens again.",
            &json!({"type": "string", "pattern": format!("^[!-~]{{1,{KEY_BYTES_MAX}}}$")}),
        );
        operation.refusal(StatusCode::BAD_REQUEST, "Invalid value; `param` names it.");
        operation
            .refusal(StatusCode::CONFLICT, "The idempotency key was used for a different request.");
    }
}
