//! `early_request_filter`: routing, and the time limits of unauthenticated clients.

use pingora::Result;
use pingora_proxy::Session;

use crate::gateway::listen::http1;
use crate::gateway::receive::admission;
use crate::gateway::request::context::RequestContext;
use crate::gateway::request::services::Gateway;
use crate::gateway::wire::framing;

/// Routes the request, and bounds the time of its client until a valid key was shown.
pub(super) fn filter(
    gateway: &Gateway,
    session: &mut Session,
    ctx: &mut RequestContext,
) -> Result<()> {
    ctx.route_to(session.req_header());
    if gateway.deadline.is_near() {
        http1::close_behind(session);
    }
    admission::use_unauthenticated_timeouts(session, ctx);
    match session.as_http2() {
        // Heads of HTTP/1.1 were checked before this filter, where they are read.
        None => Ok(()),
        Some(_) => framing::check_fields(&session.req_header().headers)
            .map_err(|error| gateway.refuse(session, ctx, error)),
    }
}
