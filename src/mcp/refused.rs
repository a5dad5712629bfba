//! Calls that came to nothing: tool results that say why, which the agent can read and act on.

use http::HeaderMap;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

use crate::error::GatewayError;

/// Why a call came to nothing.
#[derive(Debug)]
pub(super) struct Refused {
    code: String,
    message: String,
    /// What else the agent may want to know: status, request id, when to come again.
    more: Value,
}

impl Refused {
    /// Arguments that are not what the tool takes.
    pub(super) fn arguments(message: impl Into<String>) -> Self {
        Self::failed("invalid_arguments", message)
    }

    pub(super) fn failed(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), more: json!({}) }
    }

    /// What the gateway answered: any of the shapes of its errors, or an upstream's own words.
    pub(super) fn by_gateway(status: u16, headers: &HeaderMap, body: &[u8]) -> Self {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let (flat, error) = (&body, &body["error"]);
        let code = [&error["code"], &error["details"]["error_code"], &flat["code"], &error["type"]];
        let code = code.into_iter().find_map(text).unwrap_or_else(|| format!("http_{status}"));
        let message = [&error["message"], &flat["message"], error].into_iter().find_map(text);
        let message =
            message.unwrap_or_else(|| format!("The gateway answered with the status {status}."));
        let mut more = json!({"status": status});
        if let Some(param) = text(&error["param"]) {
            more["param"] = json!(param);
        }
        for (name, field) in [("x-request-id", "request_id"), ("retry-after-ms", "retry_after_ms")]
        {
            if let Some(value) = headers.get(name).and_then(|value| value.to_str().ok()) {
                more[field] = value.parse::<u64>().map_or_else(|_| json!(value), |ms| json!(ms));
            }
        }
        Self { code, message, more }
    }

    /// The result that says so.
    pub(super) fn into_result(self) -> CallToolResult {
        let Self { code, message, mut more } = self;
        let text = format!("{message} ({code})");
        more["code"] = json!(code);
        more["message"] = json!(message);
        let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
        result.structured_content = Some(json!({"error": more}));
        result
    }
}

impl From<GatewayError> for Refused {
    fn from(error: GatewayError) -> Self {
        Self::failed(error.code.unwrap_or("internal_error"), error.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_of_error_is_read() {
        let openai =
            json!({"error": {"message": "No.", "code": "model_not_found", "param": "model"}});
        let anthropic = json!({"type": "error", "error": {
            "type": "billing_error", "message": "No.", "details": {"error_code": "model_not_found"},
        }});
        let family_q = json!({"code": "model_not_found", "message": "No."});
        let flat = json!({"code": "model_not_found", "error": "No."});
        for body in [openai, anthropic, family_q, flat] {
            let text = body.to_string();
            let refused = Refused::by_gateway(404, &HeaderMap::new(), text.as_bytes());
            assert_eq!(
                (refused.code.as_str(), refused.message.as_str()),
                ("model_not_found", "No.")
            );
        }
        let refused = Refused::by_gateway(502, &HeaderMap::new(), b"<html>");
        let result = refused.into_result();
        assert_eq!(result.is_error, Some(true));
        let structured = result.structured_content.expect("what is wrong");
        assert_eq!(structured["error"]["code"], "http_502");
    }
}
