//! From a failure to an answer: `{"error":{"message","type","param","code"}}`, always all four.

use std::borrow::Cow;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

use tollgate_ledger::LedgerError;

/// Error response of the admin API.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    kind: &'static str,
    code: &'static str,
    message: Cow<'static, str>,
    param: Option<String>,
}

/// Body of an error of the admin API.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub(super) struct ErrorEnvelope {
    error: ErrorDetails,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Failure")]
struct ErrorDetails {
    /// Description for people.
    message: Cow<'static, str>,
    /// Class of the error: the caller's or the gateway's fault.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The invalid field or parameter.
    param: Option<String>,
    /// Stable code for programs.
    code: &'static str,
}

/// Message where the gateway belongs to no fleet.
pub(super) const NO_FLEET: &str = "This gateway is in no fleet.";

/// Message while sled is being repaired.
const PROJECTION_AWAY: &str = "Statements, usage, ended tasks and the audit cannot be read at the \
                               moment; calls are served and paid as ever. The gateway opens that part \
                               of its ledger again by itself: its log says how far it is.";
/// `Retry-After` in seconds where something is temporarily unavailable.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("5");

/// Result of a handler.
pub(super) type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    fn request(
        status: StatusCode,
        code: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self { status, kind: "invalid_request_error", code, message: message.into(), param: None }
    }

    /// An invalid value; `param` names it.
    pub(super) fn invalid(param: impl Into<String>, message: impl Into<Cow<'static, str>>) -> Self {
        let error = Self::malformed(message);
        Self { param: Some(param.into()), ..error }
    }

    /// A request that cannot be read at all.
    pub(super) fn malformed(message: impl Into<Cow<'static, str>>) -> Self {
        Self::request(StatusCode::BAD_REQUEST, "invalid_request_error", message)
    }

    /// For the operators' console: the status of its page.
    pub(super) fn status(&self) -> StatusCode {
        self.status
    }

    /// The message for the operator.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// A value that conflicts with what there is; `param` names it.
    fn conflict(code: &'static str, param: &str, message: String) -> Self {
        let error = Self::request(StatusCode::CONFLICT, code, message);
        Self { param: Some(param.to_owned()), ..error }
    }

    pub(super) fn unauthorized() -> Self {
        Self {
            status: StatusCode::UNAUTHORIZED,
            kind: "authentication_error",
            code: "unauthorized",
            message: "Send the admin token as `Authorization: Bearer …`.".into(),
            param: None,
        }
    }

    pub(super) fn not_found(message: impl Into<Cow<'static, str>>) -> Self {
        Self::request(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub(super) fn too_many(message: impl Into<Cow<'static, str>>) -> Self {
        Self::request(StatusCode::TOO_MANY_REQUESTS, "too_many_requests", message)
    }

    pub(super) fn too_large(bytes_max: usize) -> Self {
        let message = format!("The body is larger than {bytes_max} bytes.");
        Self::request(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message)
    }

    pub(super) fn body_timeout() -> Self {
        let message = "The body did not arrive in time.";
        Self::request(StatusCode::REQUEST_TIMEOUT, "request_timeout", message)
    }

    /// The request cannot be served now: too many of its kind are in progress, or a dependency is
    /// unavailable.
    pub(super) fn crowded(message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind: "api_error",
            ..Self::request(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", message)
        }
    }

    /// Something of ours failed; `cause` is for the log.
    pub(super) fn internal(cause: impl std::fmt::Display) -> Self {
        // The cause may name paths and hosts of the machine: the log gets it, the caller only the request id.
        log::error!("an admin request failed: {cause}");
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            kind: "api_error",
            code: "internal_error",
            message: "The gateway failed. Its log says why, under this answer's x-request-id."
                .into(),
            param: None,
        }
    }

    /// A 429: the maximum number of such requests is in progress.
    fn busy(message: String) -> Self {
        Self::request(StatusCode::TOO_MANY_REQUESTS, "busy", message)
    }

    /// The ledger did not answer: it is unknown whether the change was made.
    pub(super) fn unavailable() -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            kind: "api_error",
            code: "service_unavailable",
            message: "The ledger did not confirm. Repeat the request with the same `id`: what was \
                      done already is not done twice."
                .into(),
            param: None,
        }
    }
}

impl From<LedgerError> for ApiError {
    fn from(error: LedgerError) -> Self {
        let message = error.to_string();
        match error {
            LedgerError::UnknownAccount(_)
            | LedgerError::UnknownKey(_)
            | LedgerError::UnknownCode(_)
            | LedgerError::NotInDoubt(_)
            | LedgerError::NotInSuspense(..)
            | LedgerError::NoDoubt(_) => Self::not_found(message),
            // 409, not 400: the request is valid, but its key belongs to another one. Clients must not retry
            // it.
            LedgerError::OtherRequest => {
                Self::conflict("idempotency_conflict", "Idempotency-Key", message)
            }
            LedgerError::Conflict => Self::conflict("idempotency_conflict", "id", message),
            LedgerError::EmailTaken => Self::conflict("conflict", "email", message),
            LedgerError::NotOwed => Self::conflict("conflict", "amount", message),
            LedgerError::CreditInFlight(_) => Self::conflict("conflict", "credit_limit", message),
            LedgerError::Changed => Self::request(StatusCode::CONFLICT, "conflict", message),
            LedgerError::NoFleet => Self::not_found(NO_FLEET),
            LedgerError::Code(_) => Self::invalid("code", message),
            LedgerError::UnknownHold(_) => Self::invalid("hold", message),
            LedgerError::RefundTooLarge { .. } => Self::invalid("amount", message),
            LedgerError::Invalid(_) => Self::malformed(message),
            LedgerError::Stopped => Self::unavailable(),
            LedgerError::Unavailable(_) => Self::crowded(message),
            // 429 with an own code: the caller has to wait for a reading of the journal to end, and nothing
            // failed.
            LedgerError::Busy => Self::busy(message),
            LedgerError::Journal(cause) => Self::internal(cause),
            LedgerError::Store(cause) => {
                log::warn!("an admin request needs the sled ledger: {cause}");
                Self::crowded(PROJECTION_AWAY)
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self { status, kind, code, message, param } = self;
        let body = ErrorEnvelope { error: ErrorDetails { message, kind, param, code } };
        // All four fields are always there, as in the customers' API: clients need one type for errors.
        let mut response = (status, Json(body)).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        // RFC 9110, section 15.5.2: a 401 has to name the scheme.
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

pub(super) async fn no_such_path(uri: Uri) -> ApiError {
    ApiError::not_found(format!("There is nothing at {}.", uri.path()))
}

pub(super) async fn wrong_method() -> ApiError {
    ApiError::request(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        "This path does not take this method; see the `Allow` header.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_while_sled_is_mended_is_told_when_to_come_again() {
        let error = ApiError::from(LedgerError::Store("No space left on device".to_owned()));
        assert!(error.message.contains("calls are served"), "{}", error.message);
        let answer = error.into_response();
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.headers().get(header::RETRY_AFTER), Some(&RETRY_AFTER));
    }

    #[test]
    fn a_fleet_without_its_database_is_unavailable_and_says_so() {
        let cause = "PostgreSQL at db.internal:5432: connection refused".to_owned();
        let error = ApiError::from(LedgerError::Unavailable(cause));
        assert_eq!(
            (error.status, error.code),
            (StatusCode::SERVICE_UNAVAILABLE, "service_unavailable")
        );
        assert!(error.message.starts_with("the shared database cannot be reached"));
        assert!(error.message.contains("db.internal:5432"));
    }
}
