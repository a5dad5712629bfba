//! Responses that upstreams keep: read, deleted and cancelled by the account that they were made for, with
//! the credential that made them. Nothing of it is billed.
//!
//! Upstreams know all accounts as one, so an id is looked up among those that the account was given. One
//! of another account is as unknown as one that nobody was given.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Method};
use pingora_proxy::Session;
use url::form_urlencoded;

use crate::balance::{CredentialFinder, CredentialLeak, CredentialScan, ResolvedHome};
use crate::config::snapshot::Snapshot;
use crate::error::{AllowedMethods, ErrorKind, GatewayError};
use crate::gateway::answer::{refused, respond};
use crate::gateway::listen::deadline;
use crate::gateway::local::hosted::{broken, while_here};
use crate::gateway::local::wrong_method;
use crate::gateway::request::context::RequestContext;
use crate::gateway::request::failure::{CallFailure, is_json};
use crate::gateway::request::refusal::own_words;
use crate::gateway::request::services::Gateway;
use crate::gateway::request::upstream_error;
use crate::gateway::upstream::secrets::{self, UpstreamSecrets};
use crate::gateway::wire::error::client_disconnected;
use crate::gateway::wire::head;
use crate::outbound::{OutboundResponse, SignedIn};
use crate::protocols::{self, Delivery, Operation, query};

/// Parameters of the query that upstreams get: OpenAI's API reference, "Get a model response" and "List
/// input items".
const QUERY_PARAMETERS: [&str; 9] = [
    "include",
    "include[]",
    "include_obfuscation",
    "stream",
    "starting_after",
    "after",
    "before",
    "limit",
    "order",
];

/// A stored response, requested by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredResponse<'a> {
    id: &'a str,
    part: ResponsePart,
}

/// Resource below a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponsePart {
    /// The response, to be read or deleted.
    Whole,
    /// Its input items.
    InputItems,
    /// Cancellation of the work on it.
    Cancel,
}

impl<'a> StoredResponse<'a> {
    /// The response at this path: below a route on which responses are made.
    pub(crate) fn at(snapshot: &Snapshot, path: &'a str) -> Option<Self> {
        let is_theirs = |operation| operation == Operation::Responses;
        let mut routes = snapshot.routes.iter().filter(|route| is_theirs(route.operation));
        let rest = routes.find_map(|route| path.strip_prefix(&route.path)?.strip_prefix('/'))?;
        let (id, part) = match rest.split_once('/') {
            None => (rest, ResponsePart::Whole),
            Some((id, "input_items")) => (id, ResponsePart::InputItems),
            Some((id, "cancel")) => (id, ResponsePart::Cancel),
            Some(_) => return None,
        };
        // It goes into a path at the upstream.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        (!id.is_empty() && id.bytes().all(is_plain)).then_some(Self { id, part })
    }

    /// The path as metrics and logs name it.
    pub(crate) fn route(self) -> &'static str {
        match self.part {
            ResponsePart::Whole => "/v1/responses/{id}",
            ResponsePart::InputItems => "/v1/responses/{id}/input_items",
            ResponsePart::Cancel => "/v1/responses/{id}/cancel",
        }
    }

    /// The method of the request to the upstream.
    fn method(self, method: &Method) -> Result<Method, GatewayError> {
        let is_read = *method == Method::GET || *method == Method::HEAD;
        match self.part {
            ResponsePart::Whole if *method == Method::DELETE => Ok(Method::DELETE),
            ResponsePart::Whole | ResponsePart::InputItems if is_read => Ok(Method::GET),
            ResponsePart::Cancel if *method == Method::POST => Ok(Method::POST),
            ResponsePart::Whole => Err(wrong_method(AllowedMethods::GetOrDelete)),
            ResponsePart::InputItems => Err(wrong_method(AllowedMethods::Get)),
            ResponsePart::Cancel => Err(wrong_method(AllowedMethods::Post)),
        }
    }

    /// The path at the upstream that keeps it; `None` for one that has no responses.
    fn path_at(self, kept: &ResolvedHome, query: Option<&str>) -> Option<String> {
        let codec = protocols::codec(Operation::Responses, kept.upstream.dialect)?;
        let below = match self.part {
            ResponsePart::Whole => "",
            ResponsePart::InputItems => "/input_items",
            ResponsePart::Cancel => "/cancel",
        };
        let (prefix, path, id) = (&kept.upstream.path_prefix, codec.path(), self.id);
        let path = kept.upstream.path_for(format!("{path}/{id}{below}").into(), "")?;
        let mark = if path.contains('?') { '&' } else { '?' };
        Some(match query.and_then(|query| query::retain(query, &QUERY_PARAMETERS)) {
            None => format!("{prefix}{path}"),
            Some(query) => format!("{prefix}{path}{mark}{query}"),
        })
    }

    fn not_kept(self) -> GatewayError {
        let message = format!("There is no response {:?} of yours here.", self.id);
        GatewayError::new(ErrorKind::NotFound, message)
    }
}

/// Requests the stored response from its upstream and relays it.
///
/// # Errors
/// What is wrong with the key, the method or the query; `NotFound` for an id that the account was not
/// given, as far as the gateway remembers; no turn; why the upstream gives no answer.
pub(crate) async fn answer(
    gateway: &Gateway,
    session: &mut Session,
    ctx: &mut RequestContext,
    stored: StoredResponse<'_>,
    query: Option<&str>,
) -> Result<(), GatewayError> {
    let method = stored.method(&session.req_header().method)?;
    let account = gateway.admit_customer(session, ctx)?.account;
    let mut fields = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
    if fields.any(|(name, value)| name == "stream" && value != "false") {
        let message = "A kept response is not streamed again here. Read it without `stream`.";
        return Err(GatewayError::invalid("stream", message));
    }
    let snapshot = Arc::clone(&ctx.snapshot);
    let slot = ctx.admission.slot.as_ref();
    // Nothing is paid for it, so it is few at a time.
    let _turn = gateway.request_slots.read_in_turn(slot, &snapshot.limits).await?;
    gateway.enter_upstream_slot(ctx)?;
    let home = gateway.balancer.home(account.number(), stored.id);
    let kept = home.and_then(|home| gateway.balancer.resolve_home(&snapshot, home));
    let found = kept.and_then(|kept| Some((stored.path_at(&kept, query)?, kept)));
    let Some((path, kept)) = found else { return Err(stored.not_kept()) };
    let deadline = Arc::clone(&ctx.services.deadline);
    let all = async {
        let (upstream, credential) = (&*kept.upstream, kept.credential.as_ref());
        let shown = gateway.outbound.show(upstream, credential, account, &method, &path);
        let shown = while_here(session, shown).await?;
        let SignedIn { headers, token } =
            shown.map_err(|error| upstream_error::unavailable().cause(error))?;
        let call = gateway.outbound.ask(method, upstream, &path, headers);
        let answer = while_here(session, call).await?.map_err(|error| {
            CallFailure::from_outbound(&error).error(Delivery::Relay).cause(error)
        })?;
        let hidden = UpstreamSecrets { upstream, token: token.as_ref() };
        let finder = CredentialFinder::of_call(credential, token.as_ref());
        let scan = CredentialScan::new(finder.map(Arc::new));
        pass_on(session, ctx, stored, hidden, scan, answer).await
    };
    let answered = deadline.or_done(all).await;
    answered.unwrap_or_else(|| Err(deadline::stopping(head::begun(session))))
}

/// Relays the upstream's answer.
async fn pass_on(
    session: &mut Session,
    ctx: &mut RequestContext,
    stored: StoredResponse<'_>,
    hidden: UpstreamSecrets<'_>,
    mut scan: CredentialScan,
    mut answer: OutboundResponse,
) -> Result<(), GatewayError> {
    let status = answer.status();
    if status == 404 {
        // It was deleted, or its time is over: it is as unknown as any other.
        return Err(stored.not_kept());
    }
    if status != 200 {
        return refuse(session, ctx, hidden, answer).await;
    }
    if !is_json(answer.headers()) {
        let media_type = answer.headers().get(CONTENT_TYPE);
        return Err(upstream_error::at_fault(format!("it answered with {media_type:?}")));
    }
    ctx.response.first_byte = Some(ctx.started.elapsed());
    let begun = respond::begin_file(session, ctx.id, "application/json", answer.content_length());
    begun.await.map_err(|error| client_disconnected(&error))?;
    if session.req_header().method != Method::HEAD {
        while let Some(piece) =
            while_here(session, answer.chunk()).await?.map_err(|error| broken().cause(error))?
        {
            let piece = passed(ctx, hidden, &mut scan, piece, false)?;
            let sent = session.write_response_body(Some(piece), false).await;
            sent.map_err(|error| client_disconnected(&error))?;
        }
        let rest = passed(ctx, hidden, &mut scan, Bytes::new(), true)?;
        if !rest.is_empty() {
            let sent = session.write_response_body(Some(rest), false).await;
            sent.map_err(|error| client_disconnected(&error))?;
        }
    }
    session.write_response_body(None, true).await.map_err(|error| client_disconnected(&error))
}

/// Relays a piece, and stops at the operator's credential.
fn passed(
    ctx: &RequestContext,
    hidden: UpstreamSecrets<'_>,
    scan: &mut CredentialScan,
    piece: Bytes,
    is_end: bool,
) -> Result<Bytes, GatewayError> {
    scan.pass(piece, is_end).map_err(|CredentialLeak| {
        ctx.services.metrics.answer_withheld(&hidden.upstream.name);
        upstream_error::withheld("The upstream's answer", "Nothing is charged.")
    })
}

/// Passes a refusal on, or says in the gateway's words that there was one.
async fn refuse(
    session: &mut Session,
    ctx: &RequestContext,
    hidden: UpstreamSecrets<'_>,
    answer: OutboundResponse,
) -> Result<(), GatewayError> {
    let (status, headers): (u16, HeaderMap) = (answer.status(), answer.headers().clone());
    match CallFailure::from_status(status, &headers) {
        CallFailure::RefusedRequest(_) => {}
        failure => {
            if let Some(token) = hidden.token {
                // The next question is stored with another one.
                token.give_up_after(status);
            }
            return Err(failure.error(Delivery::Relay));
        }
    }
    let words = while_here(session, answer.whole_within(refused::BYTES_MAX)).await?;
    let is_hidden = |words: &Bytes| secrets::hides(words, &headers, Some(hidden));
    let Some(words) = words.ok().filter(|words| !is_hidden(words)) else {
        return Err(own_words(status));
    };
    let sent = respond::relayed(session, ctx.id, status, words).await;
    sent.map_err(|error| client_disconnected(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Overrides, Sources};

    #[test]
    fn paths_below_responses_name_one_of_them() {
        let loaded = crate::config::load(&Sources::Embedded, &Overrides::default());
        let snapshot = loaded.expect("the shipped files").0;
        let at = |path| StoredResponse::at(&snapshot, path).map(|found| (found.id, found.part));
        assert_eq!(at("/v1/responses/resp_1"), Some(("resp_1", ResponsePart::Whole)));
        assert_eq!(
            at("/v1/responses/resp-1/input_items"),
            Some(("resp-1", ResponsePart::InputItems))
        );
        assert_eq!(at("/v1/responses/resp_1/cancel"), Some(("resp_1", ResponsePart::Cancel)));
        for path in [
            "/v1/responses/",
            "/v1/responses",
            "/v1/responses/..",
            "/v1/responses/%2e%2e",
            "/v1/responses/a/b",
            "/v1/responses/a/cancel/",
            "/v1/responses//cancel",
            "/v1/responsesa/b",
        ] {
            assert_eq!(at(path), None, "{path}");
        }
    }
}
