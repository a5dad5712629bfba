//! Classification of refusals, by body and status, and the errors for the client and the log that follow.

use bytes::Bytes;
use http::HeaderMap;
use serde_json::Value;

use crate::error::{ErrorKind, GatewayError, UpstreamErrorBody};
use crate::gateway::request::failure::CallFailure;
use crate::gateway::request::upstream_error;
use crate::gateway::upstream::secrets::{UpstreamSecrets, contains_secret, hides};
use crate::outbound::retry_after;
use crate::protocols::refusal::{RefusalFault, UpstreamRefusal};
use crate::protocols::{Delivery, json};

/// Characters of an upstream's message in a line of the log.
const LOGGED_LETTERS_MAX: usize = 200;
/// Number of bytes of a credential that a word must begin with to count as a part of it.
const SECRET_BYTES_MIN: usize = 6;

/// Classifies a refusal with a status outside of 2xx. `by_status` is the failure by its status alone.
pub(crate) fn judge(
    by_status: CallFailure,
    refusal: &UpstreamRefusal,
    status: u16,
    headers: &HeaderMap,
    delivery: Delivery,
) -> CallFailure {
    use CallFailure as F;
    let delay = || retry_after(headers).or(refusal.delay);
    // Nobody can be sure that an upstream which has failed made nothing of a task.
    let is_doubted_submit = delivery == Delivery::Submit && status >= 500;
    let judged = match (refusal.fault, by_status) {
        _ if is_doubted_submit => by_status,
        (Some(RefusalFault::Credential), _) => F::RefusedCredential,
        (Some(RefusalFault::Account), _) => F::RefusedAccount,
        // What a front answers in the upstream's place is about another request, perhaps.
        (_, F::Doubtful(_)) => by_status,
        (Some(RefusalFault::Busy), _) => F::Busy { status, delay: delay() },
        (Some(RefusalFault::Model), F::NotBilled(_)) => by_status,
        (Some(RefusalFault::Model), _) | (Some(RefusalFault::Upstream), F::RefusedRequest(_)) => {
            F::NotDone(status)
        }
        (Some(RefusalFault::Customer), _) if (400..500).contains(&status) && status != 429 => {
            F::RefusedRequest(status)
        }
        _ => by_status,
    };
    match judged {
        F::Busy { status, delay: None } => F::Busy { status, delay: delay() },
        judged => judged,
    }
}

/// Classifies an error in a 2xx answer. No task is submitted there.
pub(crate) fn judge_success(refusal: &UpstreamRefusal, headers: &HeaderMap) -> CallFailure {
    let status = match refusal.status {
        400.. => refusal.status,
        _ if refusal.fault == Some(RefusalFault::Customer) => 400,
        _ => 200,
    };
    let by_status = match status {
        200 => CallFailure::FailedWithSuccess,
        status => match CallFailure::from_status(status, headers) {
            // It is the upstream's word that nothing came of it.
            CallFailure::Doubtful(_) => CallFailure::FailedWithSuccess,
            failure => failure,
        },
    };
    judge(by_status, refusal, status, headers, Delivery::Relay)
}

/// The error for the client about an error in a 2xx answer that is about their request. `body` is the error;
/// `is_own_dialect`: the client's SDK reads its format.
pub(crate) fn customers_error(
    refusal: &UpstreamRefusal,
    status: u16,
    body: &[u8],
    is_own_dialect: bool,
    hidden: UpstreamSecrets<'_>,
) -> GatewayError {
    let is_hidden = |text: &[u8]| hides(text, &HeaderMap::new(), Some(hidden));
    if is_hidden(body) || contains_secret(refusal.message.as_bytes(), hidden) {
        return own_words(status);
    }
    let kind = match status {
        413 => ErrorKind::PayloadTooLarge,
        415 => ErrorKind::UnsupportedMediaType,
        _ => ErrorKind::InvalidRequest,
    };
    let message = match refusal.message.as_str() {
        "" => format!("The provider refused the request ({status})."),
        message => message.to_owned(),
    };
    let error = GatewayError::new(kind, message);
    let document: Value = json::from_upstream(body).unwrap_or_default();
    match is_own_dialect && document["error"]["message"].is_string() {
        true => error
            .with_upstream_error(UpstreamErrorBody { status, body: Bytes::copy_from_slice(body) }),
        false => error,
    }
}

/// Refusal that replaces an upstream's own text.
pub(crate) fn own_words(status: u16) -> GatewayError {
    let kind = match status {
        413 => ErrorKind::PayloadTooLarge,
        415 => ErrorKind::UnsupportedMediaType,
        429 => return upstream_error::busy_without_word(),
        500.. => {
            let failure = CallFailure::from_status(status, &HeaderMap::new());
            return failure.error(Delivery::Relay);
        }
        _ => ErrorKind::InvalidRequest,
    };
    let message = "The provider refused the request, and its reason cannot be shown here. Check the \
                   request's fields, or ask the operator, whose log knows the request by its id.";
    GatewayError::new(kind, message).cause(format!(
        "the upstream answered {status} with a secret of the operator's, or something too long or \
         unreadable"
    ))
}

/// True if the operator has to act.
pub(crate) fn is_operators(fault: Option<RefusalFault>) -> bool {
    matches!(fault, Some(RefusalFault::Credential | RefusalFault::Account | RefusalFault::Model))
}

/// An upstream's words for a line of the log: shortened, on one line, and without anything that may be a
/// part of a credential.
pub(crate) fn logged_words(message: &str, hidden: UpstreamSecrets<'_>) -> String {
    if contains_secret(message.as_bytes(), hidden) {
        return "(its words name a credential)".to_owned();
    }
    let words = message.split(|letter: char| letter.is_whitespace() || letter.is_control());
    let words = words.filter(|word| !word.is_empty());
    let shown = words.map(|word| if is_key(word, hidden) { "***" } else { word });
    let line = shown.collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LOGGED_LETTERS_MAX) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}

/// True if a word may be a part of a credential, which providers repeat with asterisks in its middle.
fn is_key(word: &str, hidden: UpstreamSecrets<'_>) -> bool {
    word.contains("**") || hidden.begins_like_secret(word, SECRET_BYTES_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::upstream::secrets::tests::upstream;
    use crate::protocols::Dialect;
    use crate::protocols::refusal;

    fn judged(status: u16, body: &str, delivery: Delivery) -> CallFailure {
        let refusal = refusal::read(Dialect::Openai, status, None, body.as_bytes());
        let headers = HeaderMap::from_iter([(
            http::header::CONTENT_TYPE,
            http::HeaderValue::from_static("application/json"),
        )]);
        let by_status = CallFailure::from_status(status, &headers);
        judge(by_status, &refusal, status, &headers, delivery)
    }

    #[test]
    fn the_body_decides_and_else_the_status() {
        use CallFailure as F;
        let account = r#"{"error":{"message":"Insufficient Balance"}}"#;
        let key = r#"{"error":{"message":"x","code":"invalid_api_key"}}"#;
        let model = r#"{"error":{"message":"x","code":"model_not_found"}}"#;
        let busy = r#"{"error":{"message":"x","code":"overloaded_error"}}"#;
        let customer = r#"{"error":{"message":"x","code":"content_filter"}}"#;
        let nothing = r#"{"error":{"message":"x"}}"#;
        let is_busy = |status| F::Busy { status, delay: None };
        for (status, body, relay, submit) in [
            (400, account, F::RefusedAccount, F::RefusedAccount),
            (429, account, F::RefusedAccount, F::RefusedAccount),
            (500, account, F::RefusedAccount, F::NotBilled(500)),
            (503, key, F::RefusedCredential, F::NotDone(503)),
            (400, key, F::RefusedCredential, F::RefusedCredential),
            (400, model, F::NotDone(400), F::NotDone(400)),
            (401, model, F::NotDone(401), F::NotDone(401)),
            (500, model, F::NotBilled(500), F::NotBilled(500)),
            (400, busy, is_busy(400), is_busy(400)),
            (529, busy, is_busy(529), F::NotDone(529)),
            (504, busy, F::Doubtful(504), F::Doubtful(504)),
            (403, customer, F::RefusedRequest(403), F::RefusedRequest(403)),
            (429, customer, is_busy(429), is_busy(429)),
            (500, customer, F::NotBilled(500), F::NotBilled(500)),
            (400, nothing, F::RefusedRequest(400), F::RefusedRequest(400)),
            (402, nothing, F::RefusedAccount, F::RefusedAccount),
            (403, nothing, F::NotDone(403), F::NotDone(403)),
        ] {
            assert_eq!(judged(status, body, Delivery::Stream), relay, "{status} {body}");
            assert_eq!(judged(status, body, Delivery::Submit), submit, "{status} {body}");
        }
    }

    #[test]
    fn an_error_with_a_status_of_success_is_what_it_says() {
        use CallFailure as F;
        let headers = HeaderMap::new();
        for (body, expected) in [
            (r#"{"error":{"message":"x","code":402}}"#, F::RefusedAccount),
            (r#"{"error":{"message":"x","code":429}}"#, F::Busy { status: 429, delay: None }),
            (r#"{"error":{"message":"x","code":400}}"#, F::RefusedRequest(400)),
            (r#"{"error":{"message":"x","code":504}}"#, F::FailedWithSuccess),
            (r#"{"error":{"message":"x"}}"#, F::FailedWithSuccess),
            (r#"{"base_resp":{"status_code":2013,"status_msg":"x"}}"#, F::RefusedRequest(400)),
            (
                r#"{"base_resp":{"status_code":1002,"status_msg":"x"}}"#,
                F::Busy { status: 200, delay: None },
            ),
        ] {
            let refusal = refusal::read(Dialect::Openai, 200, None, body.as_bytes());
            assert_eq!(judge_success(&refusal, &headers), expected, "{body}");
        }
    }

    #[test]
    fn the_log_has_no_part_of_a_credential_and_one_line() {
        let upstream = upstream(&["sk-canary-of-ours-0123456789"]);
        let hidden = UpstreamSecrets { upstream: &upstream, token: None };
        for (message, expected) in [
            ("Incorrect API key provided: sk-ca****6789.", "Incorrect API key provided: ***"),
            ("Bad key sk-canary-of here", "Bad key *** here"),
            ("two\nlines\tand\u{7}more", "two lines and more"),
            ("sk-canary-of-ours-0123456789", "(its words name a credential)"),
        ] {
            assert_eq!(logged_words(message, hidden), expected);
        }
        assert_eq!(logged_words(&"ü".repeat(300), hidden).chars().count(), 201);
    }
}
