//! Response headers that reach the client: those that frame the body, and those of providers that are about
//! the client's request. An unknown header could make a proxy, a browser or a cache act, or tell what only
//! the operator should know.

use http::header::HeaderName;

use crate::config::snapshot::Upstream;
use crate::gateway::upstream::secrets::{UpstreamSecrets, contains_secret};
use crate::gateway::wire::head::{self, AnswerHeaders, NO_SNIFFING, REQUEST_ID, X_REQUEST_ID};
use crate::ledger::RequestId;
use crate::protocols::limits::has;

/// Headers in which upstreams return their id of a request.
const UPSTREAMS_IDS: [HeaderName; 4] = [
    REQUEST_ID,
    X_REQUEST_ID,
    HeaderName::from_static("apim-request-id"),
    HeaderName::from_static("x-tt-logid"),
];
/// The longest id of an upstream's for a request that is kept, in bytes.
const ID_BYTES_MAX: usize = 128;

/// True for headers that frame the body, which are passed without a look inside.
fn frames(name: &[u8]) -> bool {
    matches!(name, b"content-type" | b"content-length" | b"transfer-encoding" | b"content-encoding")
}

/// True for headers that clients may read of any upstream. Rate limits of the operator's account are not
/// among them, unless the operator says so: the gateway sends the client's own.
fn goes_on(name: &[u8]) -> bool {
    matches!(
        name,
        b"date"
            | b"retry-after"
            | b"retry-after-ms"
            | b"x-should-retry"
            | b"content-language"
            | b"anthropic-version"
            | b"openai-model"
            | b"openai-processing-ms"
            | b"openai-version"
            // Codex's.
            | b"x-reasoning-included"
    )
}

/// True for headers that clients may read of this upstream.
fn is_passed(name: &[u8], upstream: &Upstream) -> bool {
    let passed = &upstream.pass_response_headers;
    goes_on(name) || !passed.is_empty() && str::from_utf8(name).is_ok_and(|name| has(passed, name))
}

/// True if the gateway reads or passes a header of this name, in small letters, in a 2xx answer.
pub(crate) fn is_of_use(name: &[u8], upstream: &Upstream) -> bool {
    frames(name) || is_passed(name, upstream)
}

/// Turns the headers of an upstream's answer into the customer's.
pub(crate) fn to_customer(
    headers: &mut AnswerHeaders,
    hidden: Option<UpstreamSecrets<'_>>,
    id: RequestId,
) {
    headers.retain(|name, value| {
        let name = name.as_str().as_bytes();
        frames(name)
            || match hidden {
                Some(hidden) => {
                    is_passed(name, hidden.upstream) && !contains_secret(value.as_bytes(), hidden)
                }
                None => goes_on(name),
            }
    });
    headers.insert(X_REQUEST_ID, head::id(id));
    headers.insert(NO_SNIFFING.0, NO_SNIFFING.1);
}

/// The upstream's id of the request, for the operator's log.
pub(crate) fn upstreams_id(headers: &AnswerHeaders) -> Option<String> {
    let named = |name: &HeaderName| headers.get(name)?.to_str().ok();
    let id = UPSTREAMS_IDS.iter().find_map(named)?;
    let is_id =
        !id.is_empty() && id.len() <= ID_BYTES_MAX && id.bytes().all(|b| b.is_ascii_graphic());
    is_id.then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::snapshot::Credential;
    use crate::gateway::upstream::secrets::tests::upstream;
    use crate::gateway::wire::head::tests::answer_headers;
    use crate::secret::Secret;

    fn left(upstream: &Upstream, lines: &[(&'static str, &'static str)]) -> Vec<String> {
        let mut headers = answer_headers(lines);
        let hidden = UpstreamSecrets { upstream, token: None };
        to_customer(&mut headers, Some(hidden), RequestId::new());
        let names = headers.iter().map(|(name, _)| name.as_str().to_owned());
        let names = names.filter(|name| lines.iter().any(|(sent, _)| sent == name));
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn only_listed_headers_pass_and_none_with_a_secret() {
        let mut upstream = upstream(&["operator-canary", "second-canary"]);
        let lines = [
            ("content-type", "text/event-stream; was=operator-canary"),
            ("set-cookie", "a=1"),
            ("x-accel-redirect", "/internal"),
            ("x-vendor-one", "1"),
            ("x-vendor-two", "your key was second-canary, was it not"),
            ("openai-model", "operator-canary"),
            ("openai-version", "2020-10-01"),
            ("openai-version", "of operator-canary"),
            ("x-ratelimit-remaining-requests", "1"),
            ("openai-processing-ms", "12"),
        ];
        assert_eq!(
            left(&upstream, &lines),
            ["content-type", "openai-processing-ms", "openai-version"]
        );
        upstream.pass_response_headers = vec!["x-vendor-*".to_owned()];
        let kept = ["content-type", "openai-processing-ms", "openai-version", "x-vendor-one"];
        assert_eq!(left(&upstream, &lines), kept);
    }

    #[test]
    fn a_short_credential_takes_no_more_than_the_header_that_it_stands_in() {
        let mut upstream = upstream(&[]);
        for credential in ["x", "t", "text", "json", "12"] {
            let secret = Secret::new(credential.to_owned());
            upstream.credentials = vec![Credential::key("", secret)];
            let lines = [
                ("content-type", "text/event-stream"),
                ("content-length", "12"),
                ("transfer-encoding", "chunked"),
            ];
            assert_eq!(left(&upstream, &lines).len(), 3, "{credential}");
        }
    }

    #[test]
    fn an_upstreams_id_is_kept_where_it_is_one() {
        let id = |name, value: &str| upstreams_id(&answer_headers(&[(name, value)]));
        assert_eq!(id("request-id", "req_1").as_deref(), Some("req_1"));
        assert_eq!(id("x-request-id", "2f-1").as_deref(), Some("2f-1"));
        assert_eq!(id("x-request-id", "two words"), None);
        assert_eq!(id("x-request-id", &"x".repeat(200)), None);
    }
}
