//! `early_request_filter`: routing, and the time limits of unauthenticated clients.

use pingora::Result;
use pingora_proxy::Session;

use crate::gateway::listen::http1;
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
    use_unauthenticated_timeouts(session, ctx);
    match session.as_http2() {
        // Heads of HTTP/1.1 were checked before this filter, where they are read.
        None => Ok(()),
        Some(_) => framing::check_fields(&session.req_header().headers)
            .map_err(|error| gateway.refuse(session, ctx, error)),
    }
}

/// Bounds the time for reading and writing until a valid key was shown.
fn use_unauthenticated_timeouts(session: &mut Session, ctx: &RequestContext) {
    let limits = &ctx.snapshot.limits;
    let short = limits.unauthenticated.timeout;
    session.set_read_timeout(Some(limits.read_timeout.min(short)));
    session.set_write_timeout(Some(limits.write_timeout.min(short)));
    // A body that nobody reads is drained behind the response, and the connection has no next request meanwhile.
    session.as_downstream_mut().set_total_drain_timeout(Some(short));
}
