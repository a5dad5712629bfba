//! Errors for clients about upstreams.

use std::fmt::Display;
use std::time::Duration;

use crate::error::{ErrorKind, GatewayError};
use crate::ledger::LedgerError;
use crate::protocols::Dialect;

/// Delay before a retry if a busy upstream does not name one.
const RETRY_BUSY: Duration = Duration::from_secs(2);
/// Delay before a retry while the gateway lacks a resource: as soon as a few calls have ended.
const RETRY_OVERLOADED: Duration = Duration::from_secs(1);

/// True if the last target's own error body is relayed: clients of Anthropic's API act on it.
pub(crate) fn relays_failure(dialect: Dialect, status: u16) -> bool {
    dialect == Dialect::Anthropic && matches!(status, 429 | 500..)
}

/// The error if no target was asked because all have named a delay.
pub(crate) fn busy_for(time: Duration) -> GatewayError {
    busy_without_word().retry_after(time).cause("every target has asked for time")
}

/// The error if every target is busy and none names a delay.
pub(crate) fn busy_without_word() -> GatewayError {
    let message = "The model's providers take no more requests at the moment. Try again shortly.";
    GatewayError::new(ErrorKind::RateLimited, message)
        .retry_after(RETRY_BUSY)
        .cause("the upstream answered 429")
}

/// The error if an upstream, or the operator's account there, is at fault.
pub(crate) fn at_fault(cause: impl Display) -> GatewayError {
    unavailable().cause(cause)
}

/// The error for a 2xx answer that cannot be read.
pub(crate) fn unreadable(cause: impl Display) -> GatewayError {
    let message = "The upstream's answer could not be read. Try again shortly.";
    GatewayError::new(ErrorKind::BadGateway, message).cause(cause)
}

/// Error that replaces `what`, an answer that contains the operator's credential. `charged` describes the
/// charge.
pub(crate) fn withheld(what: &str, charged: &str) -> GatewayError {
    let message = format!("{what} could not be passed on. {charged}");
    let error = GatewayError::new(ErrorKind::BadGateway, message);
    error.cause("it holds the operator's credential")
}

/// The error if no target was asked because none is available.
pub(crate) fn unavailable() -> GatewayError {
    let message = "No upstream could serve the request. Try again shortly.";
    GatewayError::new(ErrorKind::UpstreamUnavailable, message)
}

/// The error if the gateway has no resource left for a call.
pub(crate) fn overloaded() -> GatewayError {
    let message = "The gateway has no room for another call at the moment. Try again shortly.";
    GatewayError::new(ErrorKind::Overloaded, message).retry_after(RETRY_OVERLOADED)
}

/// The error for an upstream that takes too long.
pub(crate) fn timed_out() -> GatewayError {
    GatewayError::new(ErrorKind::UpstreamTimeout, "The upstream did not answer in time.")
}

/// The error if the ledger cannot record the request.
pub(crate) fn unrecorded(error: &LedgerError) -> GatewayError {
    let message = "The gateway could not record the request. Nothing was charged.";
    GatewayError::new(ErrorKind::Internal, message).cause(error)
}
