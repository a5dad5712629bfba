//! Bodies and names of errors that an answer and its protocol both write.

use http::StatusCode;
use serde_json::{Value, json};

/// Ark's body of errors. The codes are those of its "Error codes".
pub(super) fn ark(
    status: StatusCode,
    code: Option<&str>,
    param: Option<&str>,
    message: &str,
) -> Value {
    let (usual, kind) = match status.as_u16() {
        401 => ("AuthenticationError", "Unauthorized"),
        403 => ("AccessDenied", "Forbidden"),
        404 => ("ResourceNotFound", "NotFound"),
        409 => ("InvalidAction", "Conflict"),
        429 => ("RateLimitExceeded", "TooManyRequests"),
        400..=499 => ("InvalidParameter", "BadRequest"),
        _ => ("InternalServiceError", "InternalServerError"),
    };
    let (code, param) = (code.unwrap_or(usual), param.unwrap_or_default());
    json!({"error": {"code": code, "message": message, "param": param, "type": kind}})
}

/// The flat one of xAI's two bodies of errors: both fields are sentences.
pub(super) fn xai(status: StatusCode, code: Option<&str>, message: &str) -> Value {
    let usual = match status.as_u16() {
        403 => "The caller does not have permission to execute the specified operation",
        404 => "Some requested entity was not found",
        429 => "Some resource has been exhausted",
        400..=499 => "Client specified an invalid argument",
        _ => "Internal error",
    };
    json!({"code": code.unwrap_or(usual), "error": message})
}

/// The name of Bedrock's failure with this status (API reference, "Converse", "Errors").
pub(super) fn bedrock_name(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 | 403 => "AccessDeniedException",
        404 => "ResourceNotFoundException",
        408 => "ModelTimeoutException",
        424 => "ModelErrorException",
        429 => "ThrottlingException",
        503 => "ServiceUnavailableException",
        400..=499 => "ValidationException",
        _ => "InternalServerException",
    }
}
