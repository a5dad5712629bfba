//! Which headers of a customer's request reach an upstream: those that change nothing it charges for,
//! and those that the operator lets through.

use http::HeaderMap;
use http::header::{ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName};
use pingora::http::RequestHeader;

use crate::config::snapshot::PassedHeaders;
use crate::ledger::RequestId;
use crate::pipeline::UpstreamRequest;
use crate::protocols::limits::has;

use crate::gateway::answer::respond::X_REQUEST_ID;

/// Whether a request header goes to every upstream: who asks, in which version of a protocol, and
/// what belongs together. What is not known may choose another model, another account or a dearer way
/// of working, and stays here.
fn goes_on(name: &str) -> bool {
    matches!(
        name,
        "content-type"
            | "user-agent"
            | "accept"
            | "accept-language"
            | "anthropic-version"
            | "anthropic-beta"
            | "anthropic-dangerous-direct-browser-access"
            | "traceparent"
            | "tracestate"
            | "x-app"
            | "x-client-request-id"
            | "x-claude-code-session-id"
            // Codex's.
            | "originator"
            | "session_id"
            | "session-id"
            | "conversation_id"
    ) || name.starts_with("x-stainless-")
}

/// Anthropic's betas that change no price, without the dates behind their names. What they allow in a
/// body is looked at there.
const BETAS: [&str; 30] = [
    "claude-code",
    "interleaved-thinking",
    "thinking-token-count",
    "context-management",
    "prompt-caching-scope",
    "effort",
    "prompt-caching",
    "extended-cache-ttl",
    "fine-grained-tool-streaming",
    "token-efficient-tools",
    "token-counting",
    "structured-outputs",
    "advanced-tool-use",
    "tool-examples",
    "tool-search-tool",
    "computer-use",
    "pdfs",
    "output-128k",
    "max-tokens-3-5-sonnet",
    "model-context-window-exceeded",
    "task-budgets",
    "compact",
    "cache-diagnosis",
    "redact-thinking",
    "dev-full-thinking",
    "thinking-display-updates",
    "thinking-binding-controls",
    "mid-conversation-system",
    "mid-conversation-system-clear-at",
    "mid-conversation-output-config",
];

/// Whether a beta goes to the upstream.
fn is_beta(token: &str, passed: &PassedHeaders) -> bool {
    let undated = token.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '-');
    BETAS.contains(&undated) || passed.betas.iter().any(|beta| beta == token)
}

/// Takes out of `anthropic-beta` what is not let through. Betas that nobody knows are left out rather
/// than refused: without them a request is the plain one.
fn filter_betas(header: &mut RequestHeader, passed: &PassedHeaders) -> pingora::Result<()> {
    fn tokens(header: &RequestHeader) -> impl Iterator<Item = &str> {
        let lines = header.headers.get_all(ANTHROPIC_BETA).iter();
        let texts = lines.filter_map(|value| value.to_str().ok());
        texts.flat_map(|text| text.split(',')).map(str::trim)
    }
    if !header.headers.contains_key(ANTHROPIC_BETA)
        || (tokens(header).all(|token| is_beta(token, passed))
            && header.headers.get_all(ANTHROPIC_BETA).iter().all(|value| value.to_str().is_ok()))
    {
        return Ok(());
    }
    let kept: Vec<&str> = tokens(header).filter(|token| is_beta(token, passed)).collect();
    let kept = kept.join(",");
    header.remove_header(ANTHROPIC_BETA);
    if kept.is_empty() { Ok(()) } else { header.insert_header(ANTHROPIC_BETA, kept) }
}

/// Headers that are set anew for every upstream.
const OVERWRITTEN: [&str; 4] = ["host", "content-length", "accept-encoding", "x-request-id"];
/// The header with which Anthropic's clients ask for betas.
const ANTHROPIC_BETA: &str = "anthropic-beta";

/// Turns the customer's request header into the upstream's.
///
/// # Errors
/// When a configured value is not a valid header value.
pub(crate) fn to_upstream(
    header: &mut RequestHeader,
    request: &UpstreamRequest,
    id: RequestId,
) -> pingora::Result<()> {
    let mut staying = nominated(&header.headers);
    let overwritten = request.credential.as_ref().map_or("", |(name, _)| *name);
    let passed = &*request.pass_headers;
    let stays = |name: &&HeaderName| {
        let name = name.as_str();
        !goes_on(name)
            && !OVERWRITTEN.contains(&name)
            && name != overwritten
            && !has(&passed.names, name)
    };
    staying.extend(header.headers.keys().filter(stays).cloned());
    staying.iter().for_each(|name| drop(header.remove_header(name)));
    filter_betas(header, passed)?;
    let uri = request.path.parse().map_err(|error| {
        pingora::Error::because(pingora::ErrorType::InternalError, "bad upstream path", error)
    })?;
    header.set_uri(uri);
    header.insert_header(HOST, request.authority.as_str())?;
    if !request.is_form {
        // It was read as JSON in UTF-8. Who decodes it as the customer calls it, such as `charset=utf-7`
        // or a form, would find other fields in it.
        header.insert_header(CONTENT_TYPE, "application/json")?;
    }
    header.insert_header(CONTENT_LENGTH, request.body.len().to_string())?;
    // What is compressed cannot be metered as it passes.
    header.insert_header(ACCEPT_ENCODING, "identity")?;
    header.insert_header(X_REQUEST_ID, id.to_string())?;
    if let Some((name, value)) = &request.credential {
        header.insert_header(*name, value.as_str())?;
    }
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
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use http::header::AUTHORIZATION;

    use super::*;

    fn sent(lines: &[(&'static str, &'static str)], passed: PassedHeaders) -> RequestHeader {
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
            is_form: false,
            pass_headers: Arc::new(passed),
        };
        to_upstream(&mut header, &request, RequestId::new()).expect("rewritten");
        header
    }

    fn upstream_header(lines: &[(&'static str, &'static str)]) -> RequestHeader {
        sent(lines, PassedHeaders::default())
    }

    #[test]
    fn the_customers_credentials_stay_here() {
        let header = upstream_header(&[
            ("authorization", "Bearer customer"),
            ("x-api-key", "customer"),
            ("cookie", "customer"),
            ("x-forwarded-for", "customer"),
            ("connection", "x-stainless-os, close"),
            ("x-stainless-os", "customer"),
            ("anthropic-version", "kept"),
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
    fn json_is_called_json_whatever_the_customer_calls_it() {
        for lines in [
            &[("content-type", "application/json; charset=utf-7")][..],
            &[("content-type", "application/x-www-form-urlencoded")],
            &[("content-type", "application/json"), ("content-type", "multipart/form-data")],
            &[],
        ] {
            let header = upstream_header(lines);
            let types: Vec<_> = header.headers.get_all(CONTENT_TYPE).iter().collect();
            assert_eq!(types, ["application/json"], "{lines:?}");
        }
    }

    #[test]
    fn what_an_upstream_may_charge_for_stays_here_unless_it_is_let_through() {
        let lines = [
            ("x-dashscope-sse", "enable"),
            ("x-dashscope-workspace", "other"),
            ("x-ms-oai-image-generation-deployment", "dear"),
            ("idempotency-key", "mine"),
            ("openai-beta", "responses=experimental"),
            ("user-agent", "kept"),
        ];
        let names = |header: &RequestHeader| {
            let names = header.headers.keys().map(|name| name.as_str().to_owned());
            names.filter(|name| lines.iter().any(|(sent, _)| sent == name)).collect::<BTreeSet<_>>()
        };
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(names(&upstream_header(&lines)), set(&["user-agent"]));
        let passed =
            PassedHeaders { names: vec!["openai-beta".to_owned()], ..PassedHeaders::default() };
        assert_eq!(names(&sent(&lines, passed)), set(&["openai-beta", "user-agent"]));
    }

    #[test]
    fn betas_with_a_price_of_their_own_are_left_out() {
        let lines = [
            ("anthropic-beta", "claude-code-20250219, context-1m-2025-08-07,fast-mode-2026-02-01"),
            ("anthropic-beta", "interleaved-thinking-2025-05-14"),
        ];
        let betas = |passed| sent(&lines, passed).headers[ANTHROPIC_BETA].clone();
        assert_eq!(
            betas(PassedHeaders::default()),
            "claude-code-20250219,interleaved-thinking-2025-05-14"
        );
        let passed = PassedHeaders {
            betas: vec!["context-1m-2025-08-07".to_owned()],
            ..PassedHeaders::default()
        };
        assert_eq!(
            betas(passed),
            "claude-code-20250219,context-1m-2025-08-07,interleaved-thinking-2025-05-14"
        );
        let none = upstream_header(&[("anthropic-beta", "oauth-2025-04-20")]);
        assert!(!none.headers.contains_key(ANTHROPIC_BETA), "{:?}", none.headers);
        let known = "effort-2025-11-24,prompt-caching-scope-2026-01-05";
        let kept = upstream_header(&[("anthropic-beta", known)]);
        assert_eq!(kept.headers[ANTHROPIC_BETA], known, "as it came");
    }
}
