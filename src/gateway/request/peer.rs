//! What customers read of failures.

use std::fmt::Display;
use std::time::Duration;

use crate::error::{ErrorKind, GatewayError};
use crate::ledger::LedgerError;
use crate::protocols::Dialect;

/// When to try again where a busy upstream does not say.
const RETRY_BUSY: Duration = Duration::from_secs(2);
/// When to try again where this gateway is short of something: as soon as a few calls have ended.
const RETRY_OVERLOADED: Duration = Duration::from_secs(1);

/// Whether the last target's own words about a failure of it are relayed: clients of Anthropic's API
/// act on them.
pub(crate) fn relays_failure(dialect: Dialect, status: u16) -> bool {
    dialect == Dialect::Anthropic && matches!(status, 429 | 500..)
}

/// What the customer reads when no target was asked because all have said when to come again.
pub(crate) fn busy_for(time: Duration) -> GatewayError {
    busy_without_word().retry_after(time).cause("every target has asked for time")
}

/// What the customer reads when every target is busy and none says for how long.
pub(crate) fn busy_without_word() -> GatewayError {
    let message = "The model's providers take no more requests at the moment. Try again shortly.";
    GatewayError::new(ErrorKind::RateLimited, message)
        .retry_after(RETRY_BUSY)
        .cause("the upstream answered 429")
}

/// What the customer reads when an upstream, or the operator's account there, is at fault.
pub(crate) fn at_fault(cause: impl Display) -> GatewayError {
    unavailable().cause(cause)
}

/// What the customer reads when an upstream says that all is well, and nothing that could be read.
pub(crate) fn unreadable(cause: impl Display) -> GatewayError {
    let message = "The upstream's answer could not be read. Try again shortly.";
    GatewayError::new(ErrorKind::BadGateway, message).cause(cause)
}

/// What the customer reads when `what` is kept from them because it holds the operator's credential, and
/// what is charged.
pub(crate) fn withheld(what: &str, charged: &str) -> GatewayError {
    let message = format!("{what} could not be passed on. {charged}");
    let error = GatewayError::new(ErrorKind::BadGateway, message);
    error.cause("it holds the operator's credential")
}

/// What the customer reads when no target was asked because none is in order.
pub(crate) fn unavailable() -> GatewayError {
    let message = "No upstream could serve the request. Try again shortly.";
    GatewayError::new(ErrorKind::UpstreamUnavailable, message)
}

/// What the customer reads when this gateway has no resource left to call an upstream with.
pub(crate) fn overloaded() -> GatewayError {
    let message = "The gateway has no room for another call at the moment. Try again shortly.";
    GatewayError::new(ErrorKind::Overloaded, message).retry_after(RETRY_OVERLOADED)
}

/// What the customer reads when an upstream takes too long.
pub(crate) fn timed_out() -> GatewayError {
    GatewayError::new(ErrorKind::UpstreamTimeout, "The upstream did not answer in time.")
}

/// What the customer reads when the ledger cannot write down that the request was made.
pub(crate) fn unrecorded(error: &LedgerError) -> GatewayError {
    let message = "The gateway could not record the request. Nothing was charged.";
    GatewayError::new(ErrorKind::Internal, message).cause(error)
}
