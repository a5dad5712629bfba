//! `logging`: settles the request, and writes its metrics and its line in the access log.

use pingora::Error;
use pingora_proxy::Session;

use crate::gateway::request::context::RequestContext;

/// Posts or voids the hold, exactly once, and reports the request.
pub(super) async fn log(session: &Session, error: Option<&Error>, ctx: &mut RequestContext) {
    let bill = ctx.bill(ctx.ending(error));
    // In a fleet, money beyond the hold may be on another node.
    ctx.cover(&bill).await;
    ctx.finish(session, bill);
}
