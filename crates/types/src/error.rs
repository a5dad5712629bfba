//! Everything that can go wrong with a request, in the project's own words.
//!
//! Lower layers say *what* happened ([`ErrorKind`]) and what the customer may read; only
//! `gateway/answer/respond.rs` knows statuses, codes, envelopes and headers.

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use bytes::Bytes;

use crate::limit::{Limit, RateLimitStatus, Scope};

/// Kind of a failure: one variant per error that a customer can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request is malformed or violates the contract.
    InvalidRequest,
    /// The message breaks HTTP framing; the connection is closed behind the answer.
    BadFraming,
    /// The key is missing or does not exist.
    Unauthorized,
    /// The account has less money than this request may cost, even with nothing in flight.
    InsufficientBalance,
    /// The account has the money, but holds of requests in flight cover it.
    BalanceHeld,
    /// The key is disabled, expired or not allowed to use the model.
    PermissionDenied,
    /// No such model, or none that this operation may use.
    ModelNotFound,
    /// The gateway serves no such path.
    NotFound,
    /// The path exists, but not with this method.
    MethodNotAllowed,
    /// Another protocol is asked for, which is not spoken here.
    UpgradeRequired,
    /// The body did not arrive within its time.
    RequestTimeout,
    /// An id was used before for a request with another content.
    IdempotencyConflict,
    /// The body is larger than the cap.
    PayloadTooLarge,
    /// The body's content type or content encoding is not one that is read here.
    UnsupportedMediaType,
    /// The header block is too large.
    HeaderTooLarge,
    /// A bug or an impossible state on our side.
    Internal,
    /// No upstream could serve the request, or the upstream's account is at fault.
    UpstreamUnavailable,
    /// The upstream's answer is invalid.
    BadGateway,
    /// All upstreams are busy, or a limit of the customer is exceeded.
    RateLimited,
    /// The gateway cannot take the request now: memory budget used up, disk nearly full, draining.
    Overloaded,
    /// The upstream did not answer in time.
    UpstreamTimeout,
    /// The answer was cut because it reached its hold and the balance covers no more.
    BalanceExhausted,
    /// The customer went away. Never sent; kept for logs and metrics.
    ClientDisconnected,
}

impl ErrorKind {
    /// Every kind, in the order of the variants.
    pub const ALL: [Self; 23] = [
        Self::InvalidRequest,
        Self::BadFraming,
        Self::Unauthorized,
        Self::InsufficientBalance,
        Self::BalanceHeld,
        Self::PermissionDenied,
        Self::ModelNotFound,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::UpgradeRequired,
        Self::RequestTimeout,
        Self::IdempotencyConflict,
        Self::PayloadTooLarge,
        Self::UnsupportedMediaType,
        Self::HeaderTooLarge,
        Self::Internal,
        Self::UpstreamUnavailable,
        Self::BadGateway,
        Self::RateLimited,
        Self::Overloaded,
        Self::UpstreamTimeout,
        Self::BalanceExhausted,
        Self::ClientDisconnected,
    ];
}

/// The methods of a path, for who came with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowedMethods {
    /// A read: its head alone can be requested too.
    Get,
    /// The path takes requests with `POST` only.
    Post,
    /// It is read, and can be deleted.
    GetOrDelete,
}

/// A limit of a key, an account or a model that a request has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitReached {
    /// The exceeded limit.
    pub limit: Limit,
    /// Scope of the limit: a key, an account or a model.
    pub scope: Scope,
    /// Status of the rate limits.
    pub standing: RateLimitStatus,
}

/// An upstream's own error body, relayed to the customer where the API's contract says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamErrorBody {
    /// The status of its answer.
    pub status: u16,
    /// Its body: JSON, with nothing in it about the operator.
    pub body: Bytes,
}

/// A failure on its way to the customer.
#[derive(Debug)]
pub struct GatewayError {
    /// Kind, which determines status and code.
    pub kind: ErrorKind,
    /// Public message: says what to do; without secrets, prompts or internal names.
    pub message: Cow<'static, str>,
    /// The code, where it is finer than the kind's own.
    pub code: Option<&'static str>,
    /// The request field at fault, as `error.param`.
    pub param: Option<Cow<'static, str>>,
    /// The methods that the path takes, where the request's is none of them.
    pub allow: Option<AllowedMethods>,
    /// Delay after which a retry makes sense.
    pub retry_after: Option<Duration>,
    /// The limit that was reached, if one was.
    pub limited: Option<Box<LimitReached>>,
    /// The largest output limit, in tokens for each choice, that the account could pay now. Thirty-two bits
    /// keep a `Result` with this error on the stack small.
    pub max_tokens_affordable: Option<NonZeroU32>,
    /// The upstream's own error, in the place of ours.
    pub upstream_error: Option<Box<UpstreamErrorBody>>,
    /// Internal cause, for the operator's log.
    pub cause: Option<Box<str>>,
}

impl GatewayError {
    /// An error with only a public message.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            message: message.into(),
            code: None,
            param: None,
            allow: None,
            retry_after: None,
            limited: None,
            max_tokens_affordable: None,
            upstream_error: None,
            cause: None,
        }
    }

    /// A 400 that names the field at fault.
    pub fn invalid(
        param: impl Into<Cow<'static, str>>,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { param: Some(param.into()), ..Self::new(ErrorKind::InvalidRequest, message) }
    }

    /// Adds a code that is finer than the kind's own.
    #[must_use]
    pub fn code(mut self, code: &'static str) -> Self {
        self.code = Some(code);
        self
    }

    /// Adds when to try again.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Relays the upstream's own error to the customer.
    #[must_use]
    pub fn with_upstream_error(mut self, error: UpstreamErrorBody) -> Self {
        self.upstream_error = Some(Box::new(error));
        self
    }

    /// Adds what only the operator may read.
    #[must_use]
    pub fn cause(mut self, cause: impl fmt::Display) -> Self {
        self.cause = Some(cause.to_string().into());
        self
    }
}

impl fmt::Display for GatewayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)?;
        match &self.cause {
            Some(cause) => write!(f, " ({cause})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for GatewayError {}
