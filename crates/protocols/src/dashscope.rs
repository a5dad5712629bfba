//! Shared parts of DashScope's native calls: bodies of objects, and failures.
//!
//! Source: Alibaba Cloud Model Studio, "Error messages". The codes are matched by their beginning,
//! because they come with and without a detail behind a dot.

use bytes::Bytes;
use serde::Deserialize;

use super::UpstreamFault;
use super::fields;
use super::json::{self, Object};
use tollgate_types::error::GatewayError;

/// The path of images and of speech.
pub(super) const GENERATION_PATH: &str = "/api/v1/services/aigc/multimodal-generation/generation";

/// The operator's account, key, region or model is at fault.
const OPERATORS: [&str; 12] = [
    "Arrearage",
    "InvalidApiKey",
    "InvalidAccessKey",
    "AccessDenied",
    "Model.AccessDenied",
    "Workspace.AccessDenied",
    "App.AccessDenied",
    "AllocationQuota",
    "PrepaidBillOverdue",
    "PostpaidBillOverdue",
    "CommodityNotPurchased",
    "ModelNotFound",
];
/// The account's limits are reached at the moment.
const BUSY: [&str; 4] = ["Throttling", "LimitRequests", "RateLimit", "TooManyRequests"];
/// Codes that blame the customer's request.
const CUSTOMERS: [&str; 6] = [
    "InvalidParameter",
    "DataInspectionFailed",
    "InvalidURL",
    "InvalidFile",
    "BadRequest",
    "UnsupportedOperation",
];

/// The object that `field` is, if it is there.
pub(super) fn object_in<'a>(
    body: &Object<'a>,
    field: &'static str,
) -> Result<Option<Object<'a>>, GatewayError> {
    let Some(value) = body.get_non_null(field) else { return Ok(None) };
    let object = value.as_object();
    object
        .map(Some)
        .map_err(|error| GatewayError::invalid(field, fields::no_object(field, &value, &error)))
}

/// True if a code concerns the operator's account or the upstream's load, not the request.
pub(super) fn is_operators(code: &str) -> bool {
    OPERATORS.iter().chain(&BUSY).any(|code_prefix| code.starts_with(code_prefix))
}

/// The body with which DashScope refuses a request.
#[derive(Debug, Default, Deserialize)]
pub(super) struct WireError {
    #[serde(default)]
    pub(super) code: String,
    #[serde(default)]
    pub(super) message: String,
}

/// The error in an answer, whatever its status: a body with a code and without an output.
pub(super) fn error_in(answer: &[u8]) -> Option<WireError> {
    #[derive(Deserialize)]
    struct GenerationResponse {
        #[serde(default)]
        output: Option<serde::de::IgnoredAny>,
    }
    let has_output = json::from_upstream::<GenerationResponse>(answer)?.output.is_some();
    let error: WireError = json::from_upstream(answer)?;
    Some(error).filter(|error| !has_output && !error.code.is_empty())
}

/// Classifies a failure. `status` is the answer's; a failure can come with a successful one.
pub(super) fn fault(status: u16, body: &Bytes) -> UpstreamFault {
    let error: WireError = json::from_upstream(body).unwrap_or_default();
    let code = error.code.as_str();
    let begins = |codes: &[&str]| codes.iter().any(|code_prefix| code.starts_with(code_prefix));
    if begins(&OPERATORS) {
        return UpstreamFault::Upstreams(format!("the upstream answered {status} {code}"));
    }
    if begins(&BUSY) {
        return UpstreamFault::Busy;
    }
    let is_customers = matches!(status, 400 | 413 | 415 | 422) || begins(&CUSTOMERS);
    match status {
        429 => UpstreamFault::Busy,
        ..500 if is_customers => {
            UpstreamFault::Relayed(if status < 400 { 400 } else { status }, body.clone())
        }
        _ => UpstreamFault::Upstreams(format!("the upstream answered {status} {code}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: u16, code: &str) -> &'static str {
        let body = format!(r#"{{"code":"{code}","message":"m","request_id":"r"}}"#);
        match fault(status, &Bytes::from(body)) {
            UpstreamFault::Relayed(400, _) => "customer's",
            UpstreamFault::Relayed(..) => "customer's, with its status",
            UpstreamFault::Customers(_) => "an error of ours",
            UpstreamFault::Busy => "busy",
            UpstreamFault::Upstreams(_) => "operator's",
        }
    }

    #[test]
    fn what_the_customer_reads_is_what_the_customer_can_mend() {
        for (status, code, expected) in [
            (400, "InvalidParameter", "customer's"),
            (400, "InvalidParameter.DataInspection", "customer's"),
            (200, "DataInspectionFailed", "customer's"),
            (200, "InvalidURL", "customer's"),
            (413, "BadRequest.TooLarge", "customer's, with its status"),
            (400, "Arrearage", "operator's"),
            (200, "Arrearage", "operator's"),
            (401, "InvalidApiKey", "operator's"),
            (403, "AccessDenied.Unpurchased", "operator's"),
            (403, "AllocationQuota.FreeTierOnly", "operator's"),
            (403, "SomethingNew", "operator's"),
            (404, "ModelNotFound", "operator's"),
            (429, "PrepaidBillOverdue", "operator's"),
            (429, "Throttling.RateQuota", "busy"),
            (200, "Throttling", "busy"),
            (429, "", "busy"),
            (200, "InternalError", "operator's"),
            (500, "InternalError.Algo", "operator's"),
            (503, "ModelUnavailable", "operator's"),
            (408, "RequestTimeOut", "operator's"),
        ] {
            assert_eq!(read(status, code), expected, "{status} {code}");
        }
    }

    #[test]
    fn the_reference_lists_every_code() {
        let reference = include_str!("../../../docs/errors.md");
        for code in OPERATORS.iter().chain(&BUSY).chain(&CUSTOMERS) {
            // Three of them share a word there.
            let word = code.strip_suffix("AccessDenied").filter(|word| !word.is_empty());
            let word = word.unwrap_or(code).trim_end_matches('.');
            assert!(reference.contains(&format!("`{word}")), "docs/errors.md lacks {code}");
        }
    }

    #[test]
    fn an_error_is_a_code_without_an_output() {
        assert!(error_in(br#"{"code":"X","message":"m"}"#).is_some());
        assert!(error_in(br#"{"code":"","output":{}}"#).is_none());
        assert!(error_in(br#"{"code":"X","output":{}}"#).is_none());
        assert!(error_in(b"<html>").is_none());
    }
}
