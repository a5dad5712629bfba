//! The connection to a target, and what a failure of it means.

use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;
use pingora::http::ResponseHeader;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType};

use super::told;
use crate::balance::Outcome;
use crate::config::snapshot::Upstream;
use crate::error::{ErrorKind, GatewayError};
use crate::protocols::Dialect;

/// How long an unused connection is kept for the next request. Providers close theirs after a
/// minute or more; a connection that is closed on a request costs a second try.
const KEEPALIVE: Duration = Duration::from_secs(50);

/// When to try again where a busy upstream does not say.
const RETRY_BUSY: Duration = Duration::from_secs(2);

/// The peer for one try. HTTP/1.1 always: one try has a connection of its own then, so a failure
/// says exactly what was sent and what was not.
pub(super) fn peer(upstream: &Upstream, address: SocketAddr) -> HttpPeer {
    let mut peer = HttpPeer::new(address, upstream.tls, upstream.host.clone());
    let timeouts = &upstream.timeouts;
    peer.options.set_http_version(1, 1);
    peer.options.connection_timeout = Some(timeouts.connect);
    peer.options.total_connection_timeout = Some(timeouts.connect);
    peer.options.read_timeout = Some(timeouts.read);
    peer.options.write_timeout = Some(timeouts.write);
    peer.options.idle_timeout = Some(KEEPALIVE);
    peer
}

/// What came of a try that failed without an answer.
pub(super) fn outcome(error: &Error) -> Outcome {
    match error.etype() {
        ErrorType::ReadTimedout
        | ErrorType::WriteTimedout
        | ErrorType::ConnectTimedout
        | ErrorType::TLSHandshakeTimedout => Outcome::TimedOut,
        ErrorType::ConnectRefused
        | ErrorType::ConnectNoRoute
        | ErrorType::ConnectError
        | ErrorType::SocketError
        | ErrorType::TLSHandshakeFailure
        | ErrorType::InvalidCert => Outcome::Unreachable,
        _ => Outcome::Broken,
    }
}

/// What came of a try that was answered with this status.
pub(super) fn outcome_of(status: u16, header: Option<&HeaderMap>) -> Outcome {
    match (refusal(status), status) {
        (Refusal::Busy, _) => Outcome::Busy(header.and_then(retry_after)),
        // The operator's key, or the balance behind it. A 403 can be about one model.
        (Refusal::Upstreams, 401 | 402) => Outcome::Credential,
        (Refusal::Upstreams, _) => Outcome::Failed,
        (Refusal::Customers, _) => Outcome::Refused,
    }
}

/// When the upstream wants to be asked again: milliseconds where it says them, else seconds.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok();
    let seconds = number("retry-after-ms").map(|ms| ms / 1000.0);
    let seconds = seconds.or_else(|| number(RETRY_AFTER.as_str()))?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// What the customer reads when a try failed without an answer.
pub(super) fn failed(error: &Error) -> GatewayError {
    match error.etype() {
        ErrorType::ReadTimedout => timed_out().cause(told(error)),
        _ => at_fault(told(error)),
    }
}

/// What the customer reads when an upstream's name cannot be found.
pub(super) fn unresolved(error: &std::io::Error) -> GatewayError {
    at_fault(error)
}

/// What an upstream's refusal means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The customer's request is at fault, or must be repeated later: the answer is relayed.
    Customers,
    /// The upstream is busy: another target may not be. Its words can be about the operator's
    /// account, so the customer reads ours.
    Busy,
    /// The upstream, or the operator's account there, is at fault: another target may do, and the
    /// customer never reads about it.
    Upstreams,
}

/// Reads a status of 300 or more.
pub(super) fn refusal(status: u16) -> Refusal {
    match status {
        429 => Refusal::Busy,
        // The operator's key, balance or model name is at fault, or the server is.
        300..=399 | 401 | 402 | 403 | 404 | 405 | 407 | 408 | 500.. => Refusal::Upstreams,
        _ => Refusal::Customers,
    }
}

/// Whether the last target's own words about a failure of it are relayed: clients of Anthropic's API
/// act on them.
pub(super) fn relays_failure(dialect: Dialect, status: u16) -> bool {
    dialect == Dialect::Anthropic && matches!(status, 429 | 500..)
}

/// What the customer reads when every target is busy, with the upstream's word when to come again.
pub(super) fn busy(header: &ResponseHeader) -> GatewayError {
    let busy = busy_without_word();
    match retry_after(&header.headers) {
        Some(delay) => busy.retry_after(delay),
        None => busy,
    }
}

/// The same when none was asked, because all have said when to come again.
pub(super) fn busy_for(time: Duration) -> GatewayError {
    busy_without_word().retry_after(time).cause("every target has asked for time")
}

/// The same without such a word.
pub(super) fn busy_without_word() -> GatewayError {
    let message = "The model's providers take no more requests at the moment. Try again shortly.";
    GatewayError::new(ErrorKind::RateLimited, message)
        .retry_after(RETRY_BUSY)
        .cause("the upstream answered 429")
}

/// What the customer reads instead of an upstream's own failure.
pub(super) fn refused(status: u16) -> GatewayError {
    let cause = format!("the upstream answered {status}");
    match status {
        408 | 504 => timed_out().cause(cause),
        _ => at_fault(cause),
    }
}

/// What the customer reads when an upstream, or the operator's account there, is at fault.
pub(super) fn at_fault(cause: impl Display) -> GatewayError {
    unavailable().cause(cause)
}

/// The same when none was asked, because none is in order.
pub(super) fn unavailable() -> GatewayError {
    let message = "No upstream could serve the request. Try again shortly.";
    GatewayError::new(ErrorKind::UpstreamUnavailable, message)
}

/// What the customer reads when an upstream takes too long.
pub(super) fn timed_out() -> GatewayError {
    GatewayError::new(ErrorKind::UpstreamTimeout, "The upstream did not answer in time.")
}
