//! `upstream_response_filter`: the failure that an upstream's response head reports, if any.

use crate::gateway::request::context::{RequestContext, RequestStage};
use crate::gateway::request::failure::CallFailure;
use crate::gateway::upstream::response_headers;
use crate::gateway::upstream::secrets::{self, UpstreamSecrets};
use crate::gateway::wire::head::AnswerHead;
use crate::gateway::wire::response_framing;

/// Classifies a response head before any of it reaches the client: the failure that it reports, or `None` if
/// it can be relayed.
pub(super) fn filter(header: &AnswerHead, ctx: &mut RequestContext) -> Option<CallFailure> {
    let status = header.status.as_u16();
    if status >= 400 {
        let id = response_headers::upstreams_id(&header.headers);
        let hidden = ctx.attempt().map(|tried| UpstreamSecrets::at(&tried.candidate));
        // It goes to the log.
        let tells =
            |id: &str| hidden.is_some_and(|hidden| secrets::contains_secret(id.as_bytes(), hidden));
        ctx.response.upstream_request_id = id.filter(|id| !tells(id));
    }
    let RequestStage::Sending(sending) = &mut ctx.stage else { return None };
    if let Some(missing) = sending.missing_by_status(status) {
        return Some(CallFailure::NotOffered(missing));
    }
    if !header.status.is_success() {
        return Some(CallFailure::from_status(status, &header.headers.clone().into()));
    }
    let framing =
        response_framing::declared_framing(&header.headers, sending.admitted.call.as_ref());
    if framing.is_none() {
        return Some(CallFailure::Unreadable);
    }
    if let Some(attempt) = &mut sending.attempt {
        attempt.framing = framing;
    }
    None
}
