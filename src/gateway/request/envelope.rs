//! Formats of errors: each family of SDKs reads its own.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Value, json};

use crate::error::{ErrorKind, GatewayError};
use crate::gateway::request::status::{status_of, wire};
use crate::ledger::RequestId;
use crate::pipeline::ResolvedRequest;
use crate::protocols::{Dialect, ErrorShape, Operation, Request};

/// The header with which Anthropic's SDKs name the version of its API.
const ANTHROPIC_VERSION: &str = "anthropic-version";

/// The header with which Google's SDKs send a key.
const X_GOOG_API_KEY: &str = "x-goog-api-key";

/// Family Q's codes for a bad request and a busy upstream (spec section 7).
const INVALID_PARAMETER: &str = "InvalidParameter";
const THROTTLED: &str = "Throttling.RateQuota";

/// The member that names the largest output limit which the account could pay now.
const AFFORDABLE: &str = "max_tokens_affordable";

/// The shape of an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Envelope {
    /// `{"error": {"message", "type", "param", "code"}}`
    #[default]
    Openai,
    /// OpenAI's shape, and an event of its own that ends a stream of responses.
    Responses,
    /// `{"type": "error", "error": {"type", "message", "details"}, "request_id"}`
    Anthropic,
    /// `{"error": {"code", "message", "status", "details"}}`
    Google,
    /// `{"code", "message", "request_id"}`, as family Q's clients read it (spec section 7), and
    /// `error` as in [`Self::Openai`], without which OpenAI's SDKs would see nothing in it.
    Dashscope,
}

impl Envelope {
    /// The shape that the clients of an operation read; without one, that of the SDK that asks.
    pub(crate) fn for_request(operation: Option<Operation>, headers: &HeaderMap) -> Self {
        match operation.map(|operation| operation.info().error_shape) {
            Some(ErrorShape::Openai) => Self::Openai,
            Some(ErrorShape::Responses) => Self::Responses,
            Some(ErrorShape::Anthropic) => Self::Anthropic,
            Some(ErrorShape::Google) => Self::Google,
            Some(ErrorShape::Dashscope) => Self::Dashscope,
            None if headers.contains_key(ANTHROPIC_VERSION) => Self::Anthropic,
            None if headers.contains_key(X_GOOG_API_KEY) => Self::Google,
            None => Self::Openai,
        }
    }

    /// The shape once the body is read, and the model known if there is one: those who ask for images
    /// in OpenAI's words get OpenAI's errors.
    pub(crate) fn refine_by_body(
        self,
        request: &Request<'_>,
        resolved: Option<&ResolvedRequest>,
    ) -> Self {
        let is_family_q = || {
            let first = resolved.and_then(|resolved| resolved.targets(0).next());
            let is_native =
                first.is_some_and(|(target, _)| target.upstream.dialect == Dialect::Dashscope);
            is_native || request.json().is_ok_and(|body| body.get("input").is_some())
        };
        if self == Self::Dashscope && !is_family_q() { Self::Openai } else { self }
    }

    /// The error as this shape's contract has it: family Q has codes of its own, and a model that
    /// does not exist is a bad parameter there.
    pub(crate) fn in_its_words(self, error: GatewayError) -> GatewayError {
        if self != Self::Dashscope {
            return error;
        }
        match error.kind {
            ErrorKind::InvalidRequest => {
                GatewayError { code: error.code.or(Some(INVALID_PARAMETER)), ..error }
            }
            ErrorKind::ModelNotFound => GatewayError {
                kind: ErrorKind::InvalidRequest,
                code: Some(INVALID_PARAMETER),
                ..error
            },
            ErrorKind::RateLimited => error.code(THROTTLED),
            _ => error,
        }
    }

    /// The error as a JSON document.
    pub(crate) fn body(self, id: RequestId, error: &GatewayError) -> Value {
        let (_, kind, code) = wire(error.kind);
        let code = error.code.unwrap_or(code);
        match self {
            Self::Openai | Self::Responses => {
                let mut body = json!({"error": {
                    "message": error.message,
                    "type": kind,
                    "param": error.param,
                    "code": code,
                }});
                if let Some(tokens) = error.max_tokens_affordable {
                    body["error"][AFFORDABLE] = json!(tokens);
                }
                body
            }
            Self::Dashscope => {
                let mut body = Self::Openai.body(id, error);
                body["code"] = json!(code);
                body["message"] = json!(error.message);
                body["request_id"] = json!(id);
                body
            }
            Self::Google => {
                let mut metadata = json!({"request_id": id.to_string(), "field": error.param});
                if let Some(tokens) = error.max_tokens_affordable {
                    // `google.rpc.ErrorInfo` has texts alone.
                    metadata[AFFORDABLE] = json!(tokens.to_string());
                }
                json!({"error": {
                    "code": status_of(error),
                    "message": error.message,
                    "status": google_status(error.kind),
                    "details": [{
                        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                        "reason": code,
                        "domain": "tollgate",
                        "metadata": metadata,
                    }],
                }})
            }
            Self::Anthropic => {
                let mut details = json!({"error_code": code});
                if let Some(tokens) = error.max_tokens_affordable {
                    details[AFFORDABLE] = json!(tokens);
                }
                json!({
                    "type": "error",
                    "error": {
                        "type": anthropic_type(error.kind),
                        "message": error.message,
                        "details": details,
                    },
                    "request_id": id,
                })
            }
        }
    }

    /// The event that ends a stream which has already begun: SDKs raise when they read it, and take
    /// a stream that just stops for a success.
    pub(crate) fn error_event(self, id: RequestId, error: &GatewayError) -> Bytes {
        let mut body = self.body(id, error);
        match self {
            Self::Openai | Self::Dashscope | Self::Google => format!("data: {body}\n\n"),
            // Codex acts on this event only, and OpenAI's SDKs on `error` in any.
            Self::Responses => {
                body["type"] = json!("response.failed");
                body["response"] = json!({
                    "id": id,
                    "object": "response",
                    "status": "failed",
                    "error": {"code": responses_code(error.kind), "message": error.message},
                });
                format!("event: response.failed\ndata: {body}\n\n")
            }
            Self::Anthropic => format!("event: error\ndata: {body}\n\n"),
        }
        .into()
    }
}

/// `error.code` of a failed response.
fn responses_code(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::BalanceExhausted => "insufficient_quota",
        _ => "server_error",
    }
}

/// `error.type` as Anthropic's API reference, "Errors", lists them.
fn anthropic_type(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidRequest
        | ErrorKind::BadFraming
        | ErrorKind::MethodNotAllowed
        | ErrorKind::UpgradeRequired
        | ErrorKind::RequestTimeout
        | ErrorKind::IdempotencyConflict
        | ErrorKind::UnsupportedMediaType
        | ErrorKind::HeaderTooLarge
        | ErrorKind::ClientDisconnected => "invalid_request_error",
        ErrorKind::Unauthorized => "authentication_error",
        ErrorKind::InsufficientBalance | ErrorKind::BalanceHeld | ErrorKind::BalanceExhausted => {
            "billing_error"
        }
        ErrorKind::PermissionDenied => "permission_error",
        ErrorKind::ModelNotFound | ErrorKind::NotFound => "not_found_error",
        ErrorKind::PayloadTooLarge => "request_too_large",
        ErrorKind::RateLimited => "rate_limit_error",
        ErrorKind::Internal | ErrorKind::UpstreamUnavailable | ErrorKind::BadGateway => "api_error",
        ErrorKind::Overloaded => "overloaded_error",
        ErrorKind::UpstreamTimeout => "timeout_error",
    }
}

/// `error.status`, the name of a `google.rpc.Code`.
fn google_status(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::InvalidRequest
        | ErrorKind::BadFraming
        | ErrorKind::MethodNotAllowed
        | ErrorKind::UpgradeRequired
        | ErrorKind::PayloadTooLarge
        | ErrorKind::UnsupportedMediaType
        | ErrorKind::HeaderTooLarge => "INVALID_ARGUMENT",
        ErrorKind::Unauthorized => "UNAUTHENTICATED",
        ErrorKind::InsufficientBalance | ErrorKind::BalanceHeld | ErrorKind::BalanceExhausted => {
            "FAILED_PRECONDITION"
        }
        ErrorKind::PermissionDenied => "PERMISSION_DENIED",
        ErrorKind::ModelNotFound | ErrorKind::NotFound => "NOT_FOUND",
        ErrorKind::RequestTimeout | ErrorKind::UpstreamTimeout => "DEADLINE_EXCEEDED",
        ErrorKind::IdempotencyConflict => "ABORTED",
        ErrorKind::RateLimited => "RESOURCE_EXHAUSTED",
        ErrorKind::ClientDisconnected => "CANCELLED",
        ErrorKind::Internal => "INTERNAL",
        ErrorKind::UpstreamUnavailable | ErrorKind::BadGateway | ErrorKind::Overloaded => {
            "UNAVAILABLE"
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::gateway::request::status::should_retry;

    /// The reference of errors has a row for each error, with its exact text.
    #[test]
    fn the_reference_lists_what_is_sent() {
        let reference = include_str!("../../../docs/errors.md");
        let sent = ErrorKind::ALL.into_iter().filter(|kind| *kind != ErrorKind::ClientDisconnected);
        let mut rows = 0;
        for kind in sent {
            let (status, openai, code) = wire(kind);
            let repeated = match should_retry(kind) {
                None => "as SDKs will",
                Some(true) => "yes",
                Some(false) => "no",
            };
            let anthropic = anthropic_type(kind);
            let row = format!("| {status} | `{code}` | `{openai}` | `{anthropic}` | {repeated} |");
            assert!(reference.contains(&row), "docs/errors.md missing_by_status {kind:?}: {row}");
            rows += 1;
        }
        let listed =
            reference.lines().filter(|line| line.starts_with("| 4") || line.starts_with("| 5"));
        assert!(listed.count() <= rows, "docs/errors.md lists what is never sent");
    }

    #[test]
    fn each_client_reads_its_own_shape() {
        let id = RequestId::from_number(1);
        let error = GatewayError::new(ErrorKind::BalanceHeld, "held");
        let openai = Envelope::Openai.body(id, &error);
        assert_eq!(openai["error"]["code"], "balance_held");
        assert!(openai["error"]["param"].is_null(), "all four keys: {openai}");
        let anthropic = Envelope::Anthropic.body(id, &error);
        assert_eq!(anthropic["error"]["type"], "billing_error");
        assert_eq!(anthropic["error"]["details"]["error_code"], "balance_held");
        assert_eq!(anthropic["request_id"], id.to_string());
        let limit = NonZeroU32::new(9_120);
        let poor = GatewayError {
            max_tokens_affordable: limit,
            ..GatewayError::new(ErrorKind::InsufficientBalance, "poor")
        };
        for (envelope, place, written) in [
            (Envelope::Openai, "/error/max_tokens_affordable", json!(9_120)),
            (Envelope::Responses, "/error/max_tokens_affordable", json!(9_120)),
            (Envelope::Anthropic, "/error/details/max_tokens_affordable", json!(9_120)),
            (Envelope::Google, "/error/details/0/metadata/max_tokens_affordable", json!("9120")),
        ] {
            assert_eq!(envelope.body(id, &poor).pointer(place), Some(&written), "{envelope:?}");
            assert_eq!(envelope.body(id, &error).pointer(place), None, "{envelope:?}");
        }
        let both = Envelope::Dashscope.body(id, &error);
        assert_eq!(
            (&both["code"], &both["error"]["code"]),
            (&json!("balance_held"), &json!("balance_held"))
        );
        assert_eq!(both["request_id"], id.to_string());
        let event = Envelope::Anthropic.error_event(id, &error);
        assert!(event.starts_with(b"event: error\ndata: {"), "{event:?}");
        assert!(
            Envelope::Responses.error_event(id, &error).starts_with(b"event: response.failed\n")
        );
    }
}
