//! Which headers cross the gateway: everything, but what belongs to one side only.

use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, HOST, HeaderName};
use pingora::http::{RequestHeader, ResponseHeader};

use crate::ledger::RequestId;
use crate::pipeline::UpstreamRequest;

use super::respond::X_REQUEST_ID;

/// Whether a request header stays here: the customer's credentials and address, and what is said
/// between two neighbours only. The provider headers are the operator's to send: an organization of
/// the customer's would not fit the operator's key.
fn is_request_only(name: &str) -> bool {
    matches!(
        name,
        "authorization"
            | "proxy-authorization"
            | "cookie"
            | "x-api-key"
            | "api-key"
            | "x-amz-security-token"
            | "ocp-apim-subscription-key"
            | "openai-organization"
            | "openai-project"
            | "anthropic-workspace-id"
            | "anthropic-user-profile-id"
            | "forwarded"
            | "via"
            | "x-real-ip"
            | "cf-connecting-ip"
            | "true-client-ip"
            | "connection"
            | "keep-alive"
            | "proxy-connection"
            | "te"
            | "trailer"
            | "upgrade"
            | "expect"
            | "transfer-encoding"
            | "http2-settings"
    ) || ["x-forwarded-", "x-goog-"].iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a response header stays here: what an upstream says to the operator's account and
/// machine. Limits of the operator's account are not the customer's, and pages call the gateway.
fn is_response_only(name: &str) -> bool {
    matches!(
        name,
        "set-cookie"
            | "set-cookie2"
            | "authorization"
            | "proxy-authenticate"
            | "www-authenticate"
            | "x-api-key"
            | "api-key"
            | "openai-organization"
            | "openai-project"
            | "anthropic-organization-id"
            | "anthropic-workspace-id"
            | "alt-svc"
            | "strict-transport-security"
            | "server"
    ) || ["x-ratelimit-", "anthropic-ratelimit-", "access-control-", "cf-"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Turns the customer's request header into the upstream's.
///
/// # Errors
/// When a configured value is not a valid header value.
pub(super) fn to_upstream(
    header: &mut RequestHeader,
    request: &UpstreamRequest,
    id: RequestId,
) -> pingora::Result<()> {
    let mut staying = nominated(&header.headers);
    let overwritten = request.credential.as_ref().map_or("", |(name, _)| *name);
    let stays = |name: &&HeaderName| is_request_only(name.as_str()) && *name != overwritten;
    staying.extend(header.headers.keys().filter(stays).cloned());
    staying.iter().for_each(|name| drop(header.remove_header(name)));
    let uri = request.path.parse().map_err(|error| {
        pingora::Error::because(pingora::ErrorType::InternalError, "bad upstream path", error)
    })?;
    header.set_uri(uri);
    header.insert_header(HOST, request.authority.as_str())?;
    header.insert_header(CONTENT_LENGTH, request.body.len().to_string())?;
    // What is compressed cannot be metered as it passes.
    header.insert_header(ACCEPT_ENCODING, "identity")?;
    header.insert_header(X_REQUEST_ID, id.to_string())?;
    if let Some((name, value)) = &request.credential {
        header.insert_header(*name, value.as_str())?;
    }
    Ok(())
}

/// Turns the upstream's response header into the customer's. `credential` is what must not be in
/// it, wherever the upstream might have put it.
///
/// # Errors
/// When the request id is not a valid header value, which it always is.
pub(super) fn to_customer(
    header: &mut ResponseHeader,
    credential: Option<&str>,
    id: RequestId,
) -> pingora::Result<()> {
    let leaks = |value: &[u8]| {
        // Most values are too short, and a search has its price before it begins.
        credential.is_some_and(|secret| {
            (1..=value.len()).contains(&secret.len())
                && memchr::memmem::find(value, secret.as_bytes()).is_some()
        })
    };
    let staying: Vec<HeaderName> = header
        .headers
        .iter()
        .filter(|(name, value)| is_response_only(name.as_str()) || leaks(value.as_bytes()))
        .map(|(name, _)| name.clone())
        .collect();
    staying.iter().for_each(|name| drop(header.remove_header(name)));
    header.insert_header(X_REQUEST_ID, id.to_string())?;
    Ok(())
}

/// The headers that `Connection` names: they go no further than the next neighbour.
fn nominated(headers: &HeaderMap) -> Vec<HeaderName> {
    headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        // These are set anew for the upstream; removing them here would change nothing.
        .filter(|name| *name != CONTENT_LENGTH && *name != HOST)
        .collect()
}

#[cfg(test)]
mod tests {
    use http::header::AUTHORIZATION;

    use super::*;

    fn upstream_header(lines: &[(&'static str, &'static str)]) -> RequestHeader {
        let mut header =
            RequestHeader::build("POST", b"/v1/chat/completions", None).expect("header");
        for (name, value) in lines {
            header.append_header(*name, *value).expect("line");
        }
        let request = UpstreamRequest {
            path: "/v1/chat/completions".to_owned(),
            authority: "api.example.com".to_owned(),
            credential: Some(("authorization", "Bearer operator".to_owned())),
            body: bytes::Bytes::from_static(b"{}"),
        };
        to_upstream(&mut header, &request, RequestId::new()).expect("rewritten");
        header
    }

    #[test]
    fn the_customers_credentials_stay_here() {
        let header = upstream_header(&[
            ("authorization", "Bearer customer"),
            ("x-api-key", "customer"),
            ("cookie", "customer"),
            ("x-forwarded-for", "customer"),
            ("connection", "x-secret, close"),
            ("x-secret", "customer"),
            ("anthropic-beta", "kept"),
            ("x-stainless-lang", "kept"),
        ]);
        let text = format!("{:?}", header.headers);
        assert!(!text.contains("customer"), "{text}");
        assert_eq!(text.matches("kept").count(), 2, "{text}");
        assert_eq!(header.headers[AUTHORIZATION], "Bearer operator");
        assert_eq!(header.headers[HOST], "api.example.com");
        assert_eq!(header.headers[CONTENT_LENGTH], "2");
    }

    #[test]
    fn the_operators_secrets_stay_here() {
        let mut header = ResponseHeader::build(200, None).expect("header");
        for (name, value) in [
            ("set-cookie", "a=1"),
            ("x-echo", "your key was operator-canary, was it not"),
            ("x-ratelimit-remaining-requests", "1"),
            ("openai-processing-ms", "12"),
        ] {
            header.append_header(name, value).expect("line");
        }
        to_customer(&mut header, Some("operator-canary"), RequestId::new()).expect("rewritten");
        let names: Vec<&str> = header.headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["openai-processing-ms", "x-request-id"]);
    }
}
