//! Failures of Ark. BytePlus ModelArk, "Error codes"; codes are matched by prefix, because they come with and
//! without a detail behind a dot.

use bytes::Bytes;
use serde_json::Value;

use crate::{UpstreamFault, json};
use tollgate_types::error::{ErrorKind, GatewayError, UpstreamErrorBody};

/// The operator's account, key, endpoint or model is at fault.
const OPERATORS: [&str; 11] = [
    "AccountOverdue",
    "ModelNotOpen",
    "ModelNotFound",
    "Authentication",
    "AccessDenied",
    "OperationDenied",
    "QuotaExceeded",
    "SetLimitExceeded",
    "InvalidAccountStatus",
    "InvalidEndpoint",
    "InvalidApiKey",
];
/// The account's limits, or the upstream's, are reached at the moment.
const BUSY: [&str; 7] = [
    "RateLimit",
    "ModelAccount",
    "AccountRateLimit",
    "ServerOverloaded",
    "InflightBatchsize",
    "RequestBurst",
    "Throttling",
];
/// Codes that concern the operator's account. The part behind a dot names an endpoint of the operator's.
const OF_THE_ACCOUNT: [&str; 2] = ["ModelAccount", "AccountRateLimit"];
const BUSY_MESSAGE: &str =
    "The upstream takes no more requests at the moment. Nothing was charged. Try again shortly.";
const TIMEOUT_MESSAGE: &str = "The upstream did not answer in time. It may have taken the task, so do \
                               not send it again at once: see first whether it is there.";
const FAILED_MESSAGE: &str =
    "The upstream failed to take the task. Nothing was charged. Try again shortly.";
/// Codes that blame the customer's request, whatever the status.
const CUSTOMERS: [&str; 5] =
    ["InvalidParameter", "MissingParameter", "Input", "SensitiveContent", "DataInspection"];

fn begins(code: &str, codes: &[&str]) -> bool {
    codes.iter().any(|prefix| code.starts_with(prefix))
}

fn code_in(body: &[u8]) -> Option<String> {
    let body: Value = json::from_upstream(body)?;
    Some(body["error"]["code"].as_str()?.to_owned())
}

/// True if an answer is an error, whatever its status.
pub(super) fn is_in(answer: &[u8]) -> bool {
    code_in(answer).is_some()
}

/// Classifies a failure. `status` is the answer's; a failure can come with a successful one.
pub(super) fn fault(status: u16, body: &Bytes) -> UpstreamFault {
    let code = code_in(body).unwrap_or_default();
    if begins(&code, &OPERATORS) {
        return UpstreamFault::Upstreams(format!("the upstream answered {status} {code}"));
    }
    if status == 429 || begins(&code, &BUSY) {
        return UpstreamFault::Busy;
    }
    let is_customers = matches!(status, 400 | 413 | 415 | 422) || begins(&code, &CUSTOMERS);
    match status {
        401..=403 => UpstreamFault::Upstreams(format!("the upstream answered {status} {code}")),
        ..500 if is_customers => {
            UpstreamFault::Relayed(if status < 400 { 400 } else { status }, body.clone())
        }
        _ => UpstreamFault::Upstreams(format!("the upstream answered {status} {code}")),
    }
}

/// The error shown to the customer for a failure of Ark's own (spec section 7, the rows of 429 and 5xx):
/// Ark's message, or the contract's code with a message of ours where Ark's is empty or concerns the
/// operator's account. `None` for failures that concern the operator alone.
pub(super) fn customer_error(status: u16, body: &Bytes) -> Option<GatewayError> {
    let code = code_in(body).unwrap_or_default();
    if begins(&code, &OPERATORS) {
        return None;
    }
    let kind = match status {
        429 => ErrorKind::RateLimited,
        // A front's, as a rule, of which nobody knows whether the task was taken.
        504 => ErrorKind::UpstreamTimeout,
        503 => ErrorKind::Overloaded,
        502 => ErrorKind::BadGateway,
        500.. => ErrorKind::Internal,
        _ => return None,
    };
    let (ours, message) = match kind {
        ErrorKind::RateLimited => ("RateLimitExceeded", BUSY_MESSAGE),
        ErrorKind::UpstreamTimeout => ("RequestTimeout", TIMEOUT_MESSAGE),
        ErrorKind::Overloaded => ("ServiceUnavailable", FAILED_MESSAGE),
        ErrorKind::BadGateway => ("BadGateway", FAILED_MESSAGE),
        _ => ("InternalError", FAILED_MESSAGE),
    };
    let cause = format!("the upstream answered {status} {code}");
    let error = GatewayError::new(kind, message).code(ours).cause(cause);
    let is_about_the_account = begins(&code, &OF_THE_ACCOUNT) || code.contains('.');
    Some(if code.is_empty() || is_about_the_account {
        error
    } else {
        error.with_upstream_error(UpstreamErrorBody { status, body: body.clone() })
    })
}

/// True if the `error` of a task concerns the operator.
pub(super) fn is_operators(error: &Value) -> bool {
    let code = error["code"].as_str().unwrap_or_default();
    begins(code, &OPERATORS) || begins(code, &BUSY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_failure_keeps_its_message_or_gets_the_contracts() {
        for (status, code, expected) in [
            (429, "RateLimitExceeded", "its words"),
            (429, "Throttling", "its words"),
            (429, "RateLimitExceeded.EndpointRPMExceeded", "RateLimitExceeded"),
            (429, "ModelAccountRpmRateLimitExceeded", "RateLimitExceeded"),
            (429, "", "RateLimitExceeded"),
            (429, "QuotaExceeded", "nothing"),
            (429, "SetLimitExceeded", "nothing"),
            (500, "InternalError", "its words"),
            (500, "InternalServerError", "its words"),
            (500, "", "InternalError"),
            (502, "", "BadGateway"),
            (503, "ServiceUnavailable", "its words"),
            (503, "", "ServiceUnavailable"),
            (503, "AccountOverdueError", "nothing"),
            (504, "RequestTimeout", "its words"),
            (504, "ModelTimeoutException", "its words"),
            (504, "", "RequestTimeout"),
            (401, "RateLimitExceeded", "nothing"),
            (400, "InvalidParameter", "nothing"),
        ] {
            let body = Bytes::from(format!(r#"{{"error":{{"code":"{code}","message":"m"}}}}"#));
            let read = match customer_error(status, &body) {
                None => "nothing",
                Some(GatewayError { upstream_error: Some(words), .. }) => {
                    assert_eq!((words.status, words.body), (status, body), "{code}");
                    "its words"
                }
                Some(error) => error.code.expect("a code"),
            };
            assert_eq!(read, expected, "{status} {code}");
        }
        assert!(customer_error(502, &Bytes::from_static(b"<html>")).is_some());
    }

    #[test]
    fn what_the_customer_reads_is_what_the_customer_can_mend() {
        for (status, code, expected) in [
            (400, "InvalidParameter", "customer's 400"),
            (400, "InvalidParameter.UrlNotAccessible", "customer's 400"),
            (400, "MissingParameter", "customer's 400"),
            (400, "InputTextSensitiveContentDetected", "customer's 400"),
            (400, "SomethingNew", "customer's 400"),
            (413, "", "customer's 413"),
            (200, "InvalidParameter", "customer's 400"),
            (200, "InternalServiceError", "operator's"),
            (400, "InvalidEndpoint.ClosedEndpoint", "operator's"),
            (401, "AuthenticationError", "operator's"),
            (401, "InvalidParameter", "operator's"),
            (403, "AccountOverdueError", "operator's"),
            (403, "AccessDenied", "operator's"),
            (403, "OperationDenied.ServiceOverdue", "operator's"),
            (403, "SomethingNew", "operator's"),
            (404, "ModelNotOpen", "operator's"),
            (404, "InvalidEndpointOrModel.NotFound", "operator's"),
            (404, "NotFound", "operator's"),
            (429, "QuotaExceeded", "operator's"),
            (429, "SetLimitExceeded", "operator's"),
            (429, "RateLimitExceeded.EndpointRPMExceeded", "busy"),
            (429, "ModelAccountRpmRateLimitExceeded", "busy"),
            (429, "SomethingNew", "busy"),
            (500, "ServerOverloaded", "busy"),
            (500, "InternalServiceError", "operator's"),
            (503, "", "operator's"),
        ] {
            let body = format!(r#"{{"error":{{"code":"{code}","message":"m"}}}}"#);
            let read = match fault(status, &Bytes::from(body)) {
                UpstreamFault::Relayed(status, _) => format!("customer's {status}"),
                UpstreamFault::Customers(_) => "an error of ours".to_owned(),
                UpstreamFault::Busy => "busy".to_owned(),
                UpstreamFault::Upstreams(_) => "operator's".to_owned(),
            };
            assert_eq!(read, expected, "{status} {code}");
        }
        assert!(matches!(fault(502, &Bytes::from_static(b"<html>")), UpstreamFault::Upstreams(_)));
    }
}
