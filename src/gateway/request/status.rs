//! From a failure to a status: the only place that knows statuses and codes.

use crate::error::{ErrorKind, GatewayError};

/// Status, `error.type` and `error.code` of a kind. Spec section 7; types as OpenAI writes them.
pub(crate) fn wire(kind: ErrorKind) -> (u16, &'static str, &'static str) {
    match kind {
        ErrorKind::InvalidRequest | ErrorKind::BadFraming => {
            (400, "invalid_request_error", "invalid_request_error")
        }
        ErrorKind::Unauthorized => (401, "authentication_error", "unauthorized"),
        ErrorKind::InsufficientBalance => (402, "billing_error", "insufficient_balance"),
        ErrorKind::BalanceHeld => (402, "billing_error", "balance_held"),
        ErrorKind::BalanceExhausted => (402, "billing_error", "insufficient_balance"),
        ErrorKind::PermissionDenied => (403, "permission_error", "permission_denied"),
        ErrorKind::ModelNotFound => (404, "invalid_request_error", "model_not_found"),
        ErrorKind::NotFound => (404, "invalid_request_error", "not_found"),
        ErrorKind::MethodNotAllowed => (405, "invalid_request_error", "method_not_allowed"),
        ErrorKind::UpgradeRequired => (426, "invalid_request_error", "upgrade_required"),
        ErrorKind::RequestTimeout => (408, "invalid_request_error", "request_timeout"),
        ErrorKind::IdempotencyConflict => (409, "invalid_request_error", "idempotency_conflict"),
        ErrorKind::PayloadTooLarge => (413, "invalid_request_error", "request_too_large"),
        ErrorKind::UnsupportedMediaType => (415, "invalid_request_error", "unsupported_media_type"),
        ErrorKind::RateLimited => (429, "rate_limit_error", "rate_limit_exceeded"),
        ErrorKind::HeaderTooLarge => (431, "invalid_request_error", "headers_too_large"),
        ErrorKind::ClientDisconnected => (499, "invalid_request_error", "client_closed_request"),
        ErrorKind::Internal => (500, "api_error", "internal_error"),
        ErrorKind::UpstreamUnavailable => (502, "api_error", "service_unavailable"),
        ErrorKind::BadGateway => (502, "api_error", "BadGateway"),
        ErrorKind::Overloaded => (503, "api_error", "ServiceUnavailable"),
        ErrorKind::UpstreamTimeout => (504, "api_error", "RequestTimeout"),
    }
}

/// The status that a failure is answered with.
pub(crate) fn status_of(error: &GatewayError) -> u16 {
    error.upstream_error.as_ref().map_or_else(|| wire(error.kind).0, |upstream| upstream.status)
}

/// True or false for errors that an SDK should or should not retry by itself; `None` if its own rules are
/// right.
pub(crate) fn should_retry(kind: ErrorKind) -> Option<bool> {
    match kind {
        ErrorKind::Unauthorized
        | ErrorKind::InsufficientBalance
        | ErrorKind::BalanceExhausted
        | ErrorKind::PermissionDenied
        | ErrorKind::ModelNotFound
        | ErrorKind::NotFound
        | ErrorKind::MethodNotAllowed
        | ErrorKind::UpgradeRequired
        | ErrorKind::IdempotencyConflict
        // The upstream has taken the work and may still be at it.
        | ErrorKind::UpstreamTimeout => Some(false),
        // The money comes free when the customer's own requests end, which is soon as a rule. SDKs give
        // up at a 402 unless they are told.
        ErrorKind::BalanceHeld => Some(true),
        ErrorKind::InvalidRequest
        | ErrorKind::BadFraming
        | ErrorKind::RequestTimeout
        | ErrorKind::PayloadTooLarge
        | ErrorKind::UnsupportedMediaType
        | ErrorKind::HeaderTooLarge
        | ErrorKind::ClientDisconnected
        | ErrorKind::Internal
        | ErrorKind::UpstreamUnavailable
        | ErrorKind::BadGateway
        | ErrorKind::RateLimited
        | ErrorKind::Overloaded => None,
    }
}
