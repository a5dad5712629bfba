//! Calls that came to nothing: tool results that say why, which the agent can read and act on.

use http::HeaderMap;
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

use tollgate_protocols::json;
use tollgate_types::error::GatewayError;

/// Reason why a call failed.
#[derive(Debug)]
pub(super) struct ToolError {
    code: String,
    message: String,
    /// Details for the agent: status, request id, time to retry.
    more: Value,
}

impl ToolError {
    /// Error for invalid arguments.
    pub(super) fn arguments(message: impl Into<String>) -> Self {
        Self::failed("invalid_arguments", message)
    }

    pub(super) fn failed(code: impl Into<String>, message: impl Into<String>) -> Self {
        let message = for_agents(message.into());
        Self { code: code.into(), message, more: json!({}) }
    }

    /// Error from the gateway's response: any of its envelopes, or an upstream's own text.
    pub(super) fn by_gateway(status: u16, headers: &HeaderMap, body: &[u8]) -> Self {
        // Not the strict reader: an upstream may have written it.
        let body: Value = json::from_upstream(body).unwrap_or_default();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let (flat, error) = (&body, &body["error"]);
        // The most specific first: `type` is a class of errors.
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
        Self { code, message: for_agents(message), more }
    }

    /// Converts the error to a tool result.
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

/// A message in the words of who has tools and no paths.
fn for_agents(message: String) -> String {
    const TOOLS: [(&str, &str); 2] =
        [("GET /v1/models", "list_models"), ("GET /v1/balance", "get_balance")];
    TOOLS.iter().fold(message, |message, (path, tool)| {
        if message.contains(path) { message.replace(path, tool) } else { message }
    })
}

impl From<GatewayError> for ToolError {
    fn from(error: GatewayError) -> Self {
        Self::failed(error.code.unwrap_or("internal_error"), error.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_reads_of_tools_and_not_of_paths() {
        let body = json!({"error": {"message": "No such model. `GET /v1/models` lists those.", "code": "model_not_found"}});
        let refused = ToolError::by_gateway(404, &HeaderMap::new(), body.to_string().as_bytes());
        assert_eq!(refused.message, "No such model. `list_models` lists those.");
    }

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
            let refused = ToolError::by_gateway(404, &HeaderMap::new(), text.as_bytes());
            assert_eq!(
                (refused.code.as_str(), refused.message.as_str()),
                ("model_not_found", "No.")
            );
        }
        let refused = ToolError::by_gateway(502, &HeaderMap::new(), b"<html>");
        let result = refused.into_result();
        assert_eq!(result.is_error, Some(true));
        let structured = result.structured_content.expect("what is wrong");
        assert_eq!(structured["error"]["code"], "http_502");
    }
}
