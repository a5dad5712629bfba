//! `logging`: settles the request, and writes its metrics and its line in the access log.

use pingora::Error;
use pingora_proxy::Session;

use crate::gateway::request::context::Exchange;

/// Posts or voids the hold, exactly once, and reports the request.
pub(super) async fn log(session: &Session, error: Option<&Error>, exchange: &mut Exchange) {
    let bill = exchange.bill(exchange.ending(error));
    // In a fleet, money beyond the hold may be on another node.
    exchange.cover(&bill).await;
    exchange.finish(session, bill);
}
