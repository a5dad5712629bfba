//! Failures of calls to upstreams and their consequences: one table for every delivery.

use std::time::Duration;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use pingora::{Error, ErrorType};
use tollgate_outbound::{DialError, LocalResource};

use crate::balance::Outcome;
use crate::config::snapshot::RepeatAfter;
use crate::error::{ErrorKind, GatewayError};
use crate::gateway::request::progress::{Missing, Progress};
use crate::gateway::request::upstream_error;
use crate::gateway::wire::response_framing;
use crate::outbound::{OutboundError, retry_after};
use crate::protocols::{Delivery, UpstreamFault};

/// A failure of a call to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallFailure {
    /// No connection could be opened: the name was not found, or TCP or TLS failed. Nothing was sent.
    NotConnected,
    /// The forward proxy in front of the upstream failed. Nothing was sent.
    ProxyFailed,
    /// This machine lacked a resource for a connection. Nothing was sent, and nothing is known about the
    /// upstream.
    Exhausted(LocalResource),
    /// A connection that was kept had been closed before the upstream read any of the request.
    ClosedWhileIdle,
    /// The connection broke before the whole request was sent.
    BrokenWhileSending,
    /// The upstream took too long to take the request.
    StalledWhileSending,
    /// The upstream had the request, and did not begin to answer in time.
    TimedOut,
    /// The connection was lost after the upstream had the request, and before it had answered.
    ConnectionLost,
    /// The upstream has no room, by its status or its words, and says when to come again if it likes.
    Busy { status: u16, delay: Option<Duration> },
    /// The upstream refused the customer's request, with this status.
    RefusedRequest(u16),
    /// The upstream refused the operator's credential.
    RefusedCredential,
    /// The operator's account at the upstream has no credit, is disabled, or may not be used from here.
    RefusedAccount,
    /// The upstream refused a token that was issued for the operator, and there is another one to try.
    RefusedToken,
    /// The upstream answered with this status, which says that nothing was done.
    NotDone(u16),
    /// The upstream failed and says so with this status, which providers do not bill.
    NotBilled(u16),
    /// The upstream answered with this status, after which the work may have been done and billed.
    Doubtful(u16),
    /// The target does not have the requested object.
    NotOffered(Missing),
    /// The upstream answered with a status of success and words of failure.
    FailedWithSuccess,
    /// The upstream answered with a status of success and nothing that can be read.
    Unreadable,
    /// The upstream answered with a status of success, and this gateway has no memory for the answer.
    TooLarge,
    /// After a status of success, the body paused for too long.
    BodyTimedOut,
    /// After a status of success, the body was cut off.
    BodyBroken,
}

/// The error for the client if no other target serves the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CustomerReads {
    /// The upstream's error text, in its protocol's form.
    ItsWords,
    /// 404 `model_not_found`, or an answer that the gateway knows itself; else 502.
    NotOffered,
    /// 429 `rate_limit_exceeded`, with the upstream's `retry-after`.
    Busy,
    /// 502 with the code `service_unavailable`.
    Unavailable,
    /// 503 `ServiceUnavailable` with `Retry-After`: this gateway lacks a resource.
    Overloaded,
    /// 502 `BadGateway`: the answer cannot be read.
    Unreadable,
    /// 502 `BadGateway`: the answer is too large at the moment.
    TooLarge,
    /// 504 `RequestTimeout`, which SDKs do not repeat.
    TimedOut,
}

/// The condition for trying another target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextTarget {
    /// The same target, over another connection.
    Same,
    /// Another one, which takes nothing from the budget of retries: the target is not at fault.
    Free(Missing),
    /// Another target; uses one retry of the budget, and none is tried when the budget is used up.
    Another,
    /// Another one, where the operator of the upstream has said that this may be done twice. What it
    /// may cost is the operator's loss.
    IfAllowed(RepeatAfter),
    /// Another one, where the operator of the upstream has listed the status. The upstream has refused, so
    /// nothing is done twice.
    IfListed(u16),
    /// No other target is tried.
    Never,
}

/// The consequences of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Consequence {
    /// The error for the client.
    pub(crate) reads: CustomerReads,
    /// The outcome for the circuits; `None` if it says nothing of the target.
    pub(crate) outcome: Option<Outcome>,
    /// The condition for trying another target.
    pub(crate) next: NextTarget,
    /// Progress of the try, by which it is billed if it is the last.
    pub(crate) progress: Progress,
}

impl CallFailure {
    /// The row of the table for this failure.
    ///
    /// | Failure | The customer reads | Circuit | Another target | Charged, if it was the last try |
    /// |---|---|---|---|---|
    /// | `NotConnected` | 502 | unreachable | yes | nothing |
    /// | `ProxyFailed` | 502 | proxy | yes | nothing |
    /// | `Exhausted` | 503 | – | for want of ports only (h) | nothing |
    /// | `ClosedWhileIdle` | 502 | – | the same again | nothing |
    /// | `BrokenWhileSending` | 502 | broken | yes | nothing |
    /// | `StalledWhileSending` | 502 | timeout | yes | nothing |
    /// | `TimedOut` | 504 | timeout | if allowed (a) | what it comes to, else the most |
    /// | `ConnectionLost` | 502 (b) | broken | if allowed (a) | nothing; the operator's loss |
    /// | `Busy` | 429 | busy | yes (c) | nothing |
    /// | `RefusedRequest` | its words | refused | if listed (f) | nothing |
    /// | `RefusedCredential` | 502 | credential | yes | nothing |
    /// | `RefusedAccount` | 502 | credential | yes | nothing |
    /// | `RefusedToken` | 502 | – | the same again | nothing |
    /// | `NotDone` | 502 | failed | yes (c) | nothing |
    /// | `NotBilled` | 502 | failed | yes (c) | nothing |
    /// | `Doubtful` | 502; 504 for 408 and 504 | failed | if allowed (a) | nothing; the operator's loss |
    /// | `NotOffered` | 404, or a local answer | refused | yes, without a retry | nothing |
    /// | `FailedWithSuccess` | 502 | failed | yes (g) | nothing |
    /// | `Unreadable` | 502 `BadGateway` | failed | never | nothing; the operator's loss |
    /// | `TooLarge` | 502 `BadGateway` | ok (d) | never | nothing; the operator's loss |
    /// | `BodyTimedOut` | 504 | timeout | never | what it comes to, else the most |
    /// | `BodyBroken` | 502 (b) | broken | never | nothing; the operator's loss (e) |
    ///
    /// - (a) By the upstream's `repeat_after`, and never for a submit: a video that is made twice is paid
    ///   for twice, and what becomes of the first one is found out with its task.
    /// - (b) 504 for a submit: SDKs repeat a 502 by themselves, and the task may have been taken.
    /// - (c) A submit goes to no other target after a status of 500 or more: the upstream says that it
    ///   has failed, and nobody can be sure that it has made nothing of the task.
    /// - (d) The memory that is short is this gateway's.
    /// - (e) The most, if the customer had left before: hanging up would be a way to use models for
    ///   nothing.
    /// - (f) By the upstream's `retries.on`.
    /// - (g) Nothing of it was delivered, and the upstream says that there is no more. A submit is never
    ///   sent again.
    /// - (h) Ports are counted for each destination. A descriptor and memory are what another target would
    ///   need as well: retries would make a storm of a shortage.
    ///
    /// The last column is not about submits: their task has taken the hold over. A task is in doubt
    /// where the column names more than nothing, and is rejected, with its hold void, elsewhere.
    pub(crate) fn consequence(self, delivery: Delivery) -> Consequence {
        use CustomerReads as Reads;
        use NextTarget::{Another, Free, IfAllowed, IfListed, Never, Same};
        use Progress::{Lost, NotSent, Refused, Sent, Silent};
        let is_submit = delivery == Delivery::Submit;
        let if_allowed = |after| if is_submit { Never } else { IfAllowed(after) };
        let unless = |is_doubted: bool| if is_submit && is_doubted { Never } else { Another };
        let lost = if is_submit { Reads::TimedOut } else { Reads::Unavailable };
        let down = Some(Outcome::Unreachable);
        let (late, broken) = (Some(Outcome::TimedOut), Some(Outcome::Broken));
        let (failed, refused) = (Some(Outcome::Failed), Some(Outcome::Refused));
        let credential = Some(Outcome::Credential);
        let (reads, outcome, next, progress) = match self {
            Self::NotConnected => (Reads::Unavailable, down, Another, NotSent),
            Self::ProxyFailed => (Reads::Unavailable, Some(Outcome::Proxy), Another, NotSent),
            Self::Exhausted(resource) => {
                let next = if resource.is_per_destination() { Another } else { Never };
                (Reads::Overloaded, None, next, NotSent)
            }
            Self::ClosedWhileIdle => (Reads::Unavailable, None, Same, NotSent),
            Self::BrokenWhileSending => (Reads::Unavailable, broken, Another, NotSent),
            Self::StalledWhileSending => (Reads::Unavailable, late, Another, NotSent),
            Self::TimedOut => (Reads::TimedOut, late, if_allowed(RepeatAfter::Timeout), Silent),
            Self::ConnectionLost => (lost, broken, if_allowed(RepeatAfter::ConnectionLost), Lost),
            Self::Busy { status, delay } => {
                (Reads::Busy, Some(Outcome::Busy(delay)), unless(status >= 500), Refused)
            }
            Self::RefusedRequest(status) => (Reads::ItsWords, refused, IfListed(status), Refused),
            Self::RefusedCredential | Self::RefusedAccount => {
                (Reads::Unavailable, credential, Another, Refused)
            }
            Self::RefusedToken => (Reads::Unavailable, None, Same, Refused),
            Self::NotDone(status) => (Reads::Unavailable, failed, unless(status >= 500), Refused),
            Self::NotBilled(_) => (Reads::Unavailable, failed, unless(true), Refused),
            Self::Doubtful(status) => {
                let is_late = matches!(status, 408 | 504);
                let reads = if is_late { Reads::TimedOut } else { Reads::Unavailable };
                (reads, failed, if_allowed(RepeatAfter::Status(status)), Lost)
            }
            Self::NotOffered(missing) => {
                (Reads::NotOffered, Some(Outcome::NotOffered), Free(missing), Refused)
            }
            Self::FailedWithSuccess => (Reads::Unavailable, failed, unless(true), Refused),
            Self::Unreadable => (Reads::Unreadable, failed, Never, Lost),
            Self::TooLarge => (Reads::TooLarge, Some(Outcome::Ok), Never, Lost),
            Self::BodyTimedOut => (Reads::TimedOut, late, Never, Silent),
            Self::BodyBroken => (lost, broken, Never, Sent),
        };
        Consequence { reads, outcome, next, progress }
    }

    /// The error for the client, if the upstream's own body is not relayed.
    pub(crate) fn error(self, delivery: Delivery) -> GatewayError {
        match self.consequence(delivery).reads {
            CustomerReads::Busy => {
                let busy = upstream_error::busy_without_word();
                let Self::Busy { delay: Some(delay), .. } = self else { return busy };
                busy.retry_after(delay)
            }
            CustomerReads::ItsWords | CustomerReads::NotOffered | CustomerReads::Unavailable => {
                upstream_error::unavailable().cause(self.cause())
            }
            CustomerReads::Overloaded => upstream_error::overloaded().cause(self.cause()),
            CustomerReads::Unreadable => upstream_error::unreadable(self.cause()),
            CustomerReads::TooLarge => {
                let message =
                    "The upstream's answer is too large at the moment. Try again shortly.";
                GatewayError::new(ErrorKind::BadGateway, message)
            }
            CustomerReads::TimedOut => upstream_error::timed_out().cause(self.cause()),
        }
    }

    /// The error for the client, with the delay in the upstream's headers.
    pub(crate) fn error_with(self, delivery: Delivery, headers: &HeaderMap) -> GatewayError {
        let error = self.error(delivery);
        let delay = match self {
            Self::NotDone(500..) | Self::NotBilled(_) => retry_after(headers),
            // A time for the operator's credential or model name is none of the customer's.
            _ => None,
        };
        GatewayError { retry_after: error.retry_after.or(delay), ..error }
    }

    /// The cause in the log, if there is no closer one.
    fn cause(self) -> String {
        let cause = match self {
            Self::NotConnected => "it could not be reached",
            Self::ProxyFailed => "the proxy in front of it failed",
            Self::Exhausted(resource) => {
                return format!("this gateway has no {} left", resource.as_str());
            }
            Self::ClosedWhileIdle | Self::BrokenWhileSending => {
                "the connection broke before the request was sent"
            }
            Self::StalledWhileSending => "it did not take the request in time",
            Self::TimedOut | Self::BodyTimedOut => "it did not answer in time",
            Self::ConnectionLost | Self::BodyBroken => "the connection broke",
            Self::RefusedRequest(_) => "it refused the request",
            Self::RefusedAccount => "the operator's account there is at fault",
            Self::RefusedCredential | Self::RefusedToken => "it refused the operator's credential",
            Self::Busy { status, .. }
            | Self::NotDone(status)
            | Self::NotBilled(status)
            | Self::Doubtful(status) => {
                return format!("the upstream answered {status}");
            }
            Self::NotOffered(Missing::Model) => "it does not know the model",
            Self::NotOffered(Missing::Path) => "it does not have the path",
            Self::FailedWithSuccess => "it failed with a status of success",
            Self::Unreadable => "its answer is of a type that cannot be metered",
            Self::TooLarge => "its answer is too large",
        };
        cause.to_owned()
    }

    /// The failure that a status outside of 2xx reports, without a look at the body.
    pub(crate) fn from_status(status: u16, headers: &HeaderMap) -> Self {
        match status {
            // Nobody asked for another protocol, and what came over it would not be metered.
            ..300 => Self::Unreadable,
            401 => Self::RefusedCredential,
            402 => Self::RefusedAccount,
            408 => Self::Doubtful(status),
            429 => Self::Busy { status, delay: retry_after(headers) },
            // The operator's balance or model name is at fault, or the server is. A 403 can be about
            // one model.
            300..=399 | 403 | 404 | 405 | 407 | 501 | 503 | 529 => Self::NotDone(status),
            400..=499 => Self::RefusedRequest(status),
            // A page instead of an error is a proxy's, which may have lost an answer on its way.
            500 | 502 if is_json(headers) => Self::NotBilled(status),
            _ => Self::Doubtful(status),
        }
    }

    /// The failure that a status outside of 2xx reports, with the protocol's reading of the body.
    pub(crate) fn from_words(fault: &UpstreamFault, status: u16, headers: &HeaderMap) -> Self {
        match fault {
            UpstreamFault::Relayed(..) | UpstreamFault::Customers(_) => {
                Self::RefusedRequest(status)
            }
            UpstreamFault::Busy => match Self::from_status(status, headers) {
                Self::Doubtful(status) => Self::Doubtful(status),
                _ => Self::Busy { status, delay: retry_after(headers) },
            },
            UpstreamFault::Upstreams(_) => match Self::from_status(status, headers) {
                // The words are about the operator, whatever the status says.
                Self::RefusedRequest(_) | Self::Busy { .. } => Self::NotDone(status),
                failure => failure,
            },
        }
    }

    /// The failure of a 2xx answer that the protocol could not read. `is_error`: the body is an error in the
    /// format of any protocol.
    pub(crate) fn from_success(fault: &UpstreamFault, is_error: bool, headers: &HeaderMap) -> Self {
        match fault {
            UpstreamFault::Relayed(status, _) => Self::RefusedRequest(*status),
            UpstreamFault::Customers(_) => Self::RefusedRequest(400),
            UpstreamFault::Busy => Self::Busy { status: 200, delay: retry_after(headers) },
            UpstreamFault::Upstreams(_) if is_error => Self::FailedWithSuccess,
            UpstreamFault::Upstreams(_) => Self::Unreadable,
        }
    }

    /// The failure of a 2xx answer whose body ended in this error.
    pub(crate) fn refine_by_body(error: &Error) -> Self {
        match error.etype() {
            ErrorType::ReadTimedout => Self::BodyTimedOut,
            _ => Self::BodyBroken,
        }
    }

    /// The failure to connect.
    pub(crate) fn from_dial(error: &DialError) -> Self {
        match error.exhausted() {
            Some(resource) => Self::Exhausted(resource),
            None if error.fault.is_of_proxy() => Self::ProxyFailed,
            None => Self::NotConnected,
        }
    }

    /// The failure of a call of the gateway's own client without an answer.
    pub(crate) fn from_outbound(error: &OutboundError) -> Self {
        match error {
            OutboundError::Unreachable(error) => Self::from_dial(error),
            OutboundError::TimedOut => Self::TimedOut,
            OutboundError::Broken(_) | OutboundError::Forbidden(_) => Self::ConnectionLost,
            OutboundError::TooLarge => Self::TooLarge,
        }
    }

    /// The failure of the gateway's own client to read the body of a 2xx answer.
    pub(crate) fn from_outbound_body(error: &OutboundError) -> Self {
        match Self::from_outbound(error) {
            Self::TimedOut => Self::BodyTimedOut,
            Self::TooLarge => Self::TooLarge,
            _ => Self::BodyBroken,
        }
    }
}

/// True if the headers declare a JSON body.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = value.unwrap_or_default().split(';').next().unwrap_or_default();
    response_framing::is_json(media_type.trim())
}

#[cfg(test)]
mod tests;
