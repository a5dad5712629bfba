//! `upstream_request_filter`: the headers of a client's request that reach an upstream, and the provider's
//! credentials. Headers pass that change nothing the provider charges for, and those that the operator lets
//! through.

use http::header::{ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderName};
use pingora::Result;

use crate::config::snapshot::PassedHeaders;
use crate::ledger::RequestId;
use crate::pipeline::UpstreamRequest;
use crate::protocols::limits::has;
use crate::protocols::{Dialect, beta};

use crate::gateway::upstream::request_head::RequestHead;
use crate::gateway::wire::head::X_REQUEST_ID;

/// True for request headers that go to every upstream: those that name the client, the version of a protocol,
/// or related requests. An unknown header may choose another model, another account or a dearer mode, and is
/// dropped.
fn goes_on(name: &str) -> bool {
    matches!(
        name,
        "content-type"
            | "user-agent"
            | "accept"
            | "accept-language"
            | "anthropic-version"
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
            // Google's SDKs.
            | "x-goog-api-client"
    ) || name.starts_with("x-stainless-")
}

/// A header with which clients ask for betas.
struct BetaHeader {
    name: HeaderName,
    /// Upstreams that read it.
    dialect: Dialect,
    /// True for a beta that goes to the upstream.
    forwards: fn(&str, &PassedHeaders) -> bool,
}

static BETA_HEADERS: [BetaHeader; 2] = [
    BetaHeader {
        name: HeaderName::from_static("anthropic-beta"),
        dialect: Dialect::Anthropic,
        forwards: |token, passed| {
            beta::is_forwarded(token, &passed.granted_betas)
                || passed.betas.iter().any(|beta| beta == token)
        },
    },
    BetaHeader {
        name: HeaderName::from_static("openai-beta"),
        dialect: Dialect::Openai,
        forwards: |token, passed| {
            beta::is_openai_forwarded(token) || has(&passed.names, "openai-beta")
        },
    },
];

/// Headers that are set for every upstream.
const OVERWRITTEN: [HeaderName; 4] = [HOST, CONTENT_LENGTH, ACCEPT_ENCODING, X_REQUEST_ID];
/// Betas that an answer names at most: a request can ask for thousands.
const BETAS_SHOWN_MAX: usize = 16;

/// Builds the head of the request to the upstream, and notes the betas that it leaves out.
///
/// # Errors
/// A configured value cannot stand in a head.
pub(super) fn filter<H: RequestHead>(
    downstream: &HeaderMap,
    request: &mut UpstreamRequest,
    id: RequestId,
    body_bytes: usize,
) -> Result<H> {
    let left_out = left_out_betas(downstream, request);
    request.left_out.extend(left_out);
    head(downstream, request, id, body_bytes)
}

fn head<H: RequestHead>(
    downstream: &HeaderMap,
    request: &UpstreamRequest,
    id: RequestId,
    body_bytes: usize,
) -> Result<H> {
    let fields = downstream.len() + OVERWRITTEN.len() + 2;
    let mut head = H::begin(&request.path, fields, body_bytes)?;
    each_field(downstream, request, id, |name, value| head.put(name, value))?;
    Ok(head.end())
}

/// Passes each header for the upstream to `put`.
fn each_field(
    customers: &HeaderMap,
    request: &UpstreamRequest,
    id: RequestId,
    mut put: impl FnMut(&HeaderName, &[u8]) -> Result<()>,
) -> Result<()> {
    let passed = &*request.pass_headers;
    let credential = request.credential.as_ref();
    let credential = credential.map(|(name, value)| (HeaderName::from_static(name), value));
    let nominated = nominated(customers);
    let is_own = |name: &HeaderName| request.own_headers.iter().any(|own| own.name == *name);
    let stays = |name: &HeaderName| {
        OVERWRITTEN.contains(name)
            || *name == CONTENT_TYPE && !request.is_form
            || is_beta_header(name)
            || is_own(name)
            || credential.as_ref().is_some_and(|(own, _)| own == name)
            // AWS refuses what has such a header outside of its signature.
            || !request.signed.is_empty() && name.as_str().starts_with("x-amz-")
            || !goes_on(name.as_str()) && !has(&passed.names, name.as_str())
            || nominated.contains(name)
    };
    put(&HOST, request.authority.as_bytes())?;
    for (name, value) in customers.iter().filter(|(name, _)| !stays(name)) {
        put(name, value.as_bytes())?;
    }
    for (name, value) in request.headers {
        let is_there = customers.contains_key(*name);
        let name = HeaderName::from_static(name);
        if !is_there && !is_own(&name) {
            put(&name, value.as_bytes())?;
        }
    }
    for own in request.own_headers.iter() {
        put(&own.name, own.value.expose().as_bytes())?;
    }
    for header in &BETA_HEADERS {
        if !nominated.contains(&header.name) && !is_own(&header.name) {
            put_betas(header, customers, passed, &mut put)?;
        }
    }
    if !request.is_form {
        // It was read as JSON in UTF-8. Who decodes it as the customer calls it, such as `charset=utf-7`
        // or a form, would find other fields in it.
        put(&CONTENT_TYPE, b"application/json")?;
    }
    put(&CONTENT_LENGTH, itoa::Buffer::new().format(request.body.len()).as_bytes())?;
    // What is compressed cannot be metered as it passes.
    put(&ACCEPT_ENCODING, b"identity")?;
    put(&X_REQUEST_ID, &id.ascii())?;
    for (name, value) in &request.signed {
        put(&HeaderName::from_static(name), value.as_bytes())?;
    }
    match credential {
        Some((name, value)) => put(&name, value.as_bytes()),
        None => Ok(()),
    }
}

/// Passes a header of betas to `put`, without betas that are not allowed. The request then works without
/// them; [`left_out_betas`] lists them.
fn put_betas(
    header: &BetaHeader,
    customers: &HeaderMap,
    passed: &PassedHeaders,
    put: &mut impl FnMut(&HeaderName, &[u8]) -> Result<()>,
) -> Result<()> {
    let lines = || customers.get_all(&header.name).iter();
    let goes_on = |token: &&str| (header.forwards)(token, passed);
    if tokens(header, customers).all(|token| goes_on(&token))
        && lines().all(|value| value.to_str().is_ok())
    {
        return lines().try_for_each(|value| put(&header.name, value.as_bytes()));
    }
    let kept: Vec<&str> = tokens(header, customers).filter(goes_on).collect();
    if kept.is_empty() { Ok(()) } else { put(&header.name, kept.join(",").as_bytes()) }
}

/// Betas listed in a header.
fn tokens<'h>(header: &BetaHeader, customers: &'h HeaderMap) -> impl Iterator<Item = &'h str> {
    let lines = customers.get_all(&header.name).into_iter();
    let texts = lines.filter_map(|value| value.to_str().ok());
    texts.flat_map(|text| text.split(',')).map(str::trim).filter(|token| !token.is_empty())
}

/// The betas that an upstream would have read and does not get, as the answer names them. Those of another
/// vendor mean nothing to it.
fn left_out_betas(customers: &HeaderMap, request: &UpstreamRequest) -> Vec<String> {
    let passed = &*request.pass_headers;
    let is_own = |name: &HeaderName| request.own_headers.iter().any(|own| own.name == *name);
    let read = BETA_HEADERS.iter().filter(|header| header.dialect == request.dialect);
    let read = read.filter(|header| customers.contains_key(&header.name) && !is_own(&header.name));
    let left_out = read.flat_map(|header| {
        let stay = tokens(header, customers).filter(|token| !(header.forwards)(token, passed));
        stay.map(|token| beta::shown(header.name.as_str(), token))
    });
    left_out.take(BETAS_SHOWN_MAX).collect()
}

fn is_beta_header(name: &HeaderName) -> bool {
    BETA_HEADERS.iter().any(|header| header.name == *name)
}

/// The headers that `Connection` names: they go no further than the next neighbour.
fn nominated(headers: &HeaderMap) -> Vec<HeaderName> {
    let lines = headers.get_all(CONNECTION).iter();
    let names = lines.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use http::HeaderValue;
    use http::header::AUTHORIZATION;

    use super::*;
    use crate::config::snapshot::UpstreamHeader;
    use crate::secret::Secret;

    /// The head that is sent for a customer's, read as an upstream reads it.
    fn sent(lines: &[(&'static str, &'static str)], passed: PassedHeaders) -> HeaderMap {
        sent_with(lines, passed, Vec::new())
    }

    fn sent_with(
        lines: &[(&'static str, &'static str)],
        passed: PassedHeaders,
        own: Vec<UpstreamHeader>,
    ) -> HeaderMap {
        let mut customers = HeaderMap::new();
        for (name, value) in lines {
            customers.append(*name, HeaderValue::from_static(value));
        }
        let request = request(passed, own);
        let id = RequestId::new();
        let written = super::head::<bytes::BytesMut>(&customers, &request, id, 0).expect("written");
        let mut fields = [httparse::EMPTY_HEADER; 32];
        let mut parsed = httparse::Request::new(&mut fields);
        let status = parsed.parse(&written).expect("a head");
        assert_eq!(status, httparse::Status::Complete(written.len()));
        assert_eq!((parsed.method, parsed.path), (Some("POST"), Some("/v1/chat/completions")));
        let mut read = HeaderMap::new();
        for field in parsed.headers.iter() {
            let name = HeaderName::from_bytes(field.name.as_bytes()).expect("a name");
            read.append(name, HeaderValue::from_bytes(field.value).expect("a value"));
        }
        assert_eq!(read, head::<HeaderMap>(&customers, &request, id, 0).expect("the same"));
        read
    }

    fn request(passed: PassedHeaders, own: Vec<UpstreamHeader>) -> UpstreamRequest {
        UpstreamRequest {
            dialect: Dialect::Anthropic,
            path: "/v1/chat/completions".to_owned(),
            authority: "api.example.com".to_owned(),
            credential: Some(("authorization", "Bearer operator".to_owned())),
            signed: Vec::new(),
            headers: &[],
            own_headers: own.into(),
            body: bytes::Bytes::from_static(b"{}").into(),
            is_form: false,
            pass_headers: Arc::new(passed),
            left_out: Vec::new(),
        }
    }

    fn upstream_header(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        sent(lines, PassedHeaders::default())
    }

    #[test]
    fn the_customers_credentials_stay_here() {
        let header = upstream_header(&[
            ("authorization", "Bearer customer"),
            ("x-api-key", "customer"),
            ("x-goog-api-key", "customer"),
            ("cookie", "customer"),
            ("x-forwarded-for", "customer"),
            ("connection", "x-stainless-os, close"),
            ("x-stainless-os", "customer"),
            ("anthropic-version", "kept"),
            ("x-stainless-lang", "kept"),
        ]);
        let text = format!("{header:?}");
        assert!(!text.contains("customer"), "{text}");
        assert_eq!(text.matches("kept").count(), 2, "{text}");
        assert_eq!(header[AUTHORIZATION], "Bearer operator");
        assert_eq!(header[HOST], "api.example.com");
        assert_eq!(header[CONTENT_LENGTH], "2");
    }

    #[test]
    fn the_operators_own_headers_take_the_place_of_a_customers() {
        let own = |name: &'static str, value: &str| UpstreamHeader {
            name: HeaderName::from_static(name),
            value: Secret::new(value.to_owned()),
        };
        let own = vec![
            own("x-title", "ours"),
            own("user-agent", "ours"),
            own("anthropic-beta", "ours-2026-01-01"),
            own("anthropic-version", "ours"),
        ];
        let lines = [
            ("user-agent", "customer"),
            ("anthropic-version", "customer"),
            ("anthropic-beta", "effort-2025-11-24"),
            ("x-title", "customer"),
            // Whoever nominates it takes away their own only.
            ("connection", "x-title"),
        ];
        let passed =
            PassedHeaders { names: vec!["x-title".to_owned()], ..PassedHeaders::default() };
        let header = sent_with(&lines, passed, own);
        for name in ["x-title", "user-agent", "anthropic-version"] {
            let values: Vec<_> = header.get_all(name).iter().collect();
            assert_eq!(values, ["ours"], "{name}");
        }
        let betas: Vec<_> = header.get_all("anthropic-beta").iter().collect();
        assert_eq!(betas, ["ours-2026-01-01"]);
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
            let types: Vec<_> = header.get_all(CONTENT_TYPE).iter().collect();
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
            ("openai-beta", "assistants=v2"),
            ("user-agent", "kept"),
        ];
        let names = |header: &HeaderMap| {
            let names = header.keys().map(|name| name.as_str().to_owned());
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
        let betas = |passed| sent(&lines, passed)["anthropic-beta"].clone();
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
        assert!(!none.contains_key("anthropic-beta"), "{none:?}");
        let forwarded = "effort-2025-11-24,prompt-caching-scope-2026-01-05";
        let kept = upstream_header(&[("anthropic-beta", forwarded)]);
        assert_eq!(kept["anthropic-beta"], forwarded, "as it came");
        let dropped = "per-turn-control-2026-07-01, nobody-knows-2027-01-01";
        let kept = upstream_header(&[("anthropic-beta", dropped)]);
        assert_eq!(kept["anthropic-beta"], dropped, "as it came");
        let granted =
            PassedHeaders { granted_betas: vec!["context-1m"], ..PassedHeaders::default() };
        assert_eq!(
            betas(granted),
            "claude-code-20250219,context-1m-2025-08-07,interleaved-thinking-2025-05-14"
        );
        let codex = upstream_header(&[("openai-beta", "responses=experimental,assistants=v2")]);
        assert_eq!(codex["openai-beta"], "responses=experimental");
    }

    #[test]
    fn a_beta_that_is_left_out_is_named_where_it_would_have_been_read() {
        let mut customers = HeaderMap::new();
        for (name, value) in [
            ("anthropic-beta", "claude-code-20250219, context-1m-2025-08-07"),
            ("anthropic-beta", "fast-mode-2026-02-01,,effort-2025-11-24"),
            ("openai-beta", "assistants=v2"),
        ] {
            customers.append(name, HeaderValue::from_static(value));
        }
        let mut request = request(PassedHeaders::default(), Vec::new());
        let cut = ["context-1m-2025-08-07", "fast-mode-2026-02-01"];
        let cut = cut.map(|beta| format!("anthropic-beta: {beta}"));
        assert_eq!(left_out_betas(&customers, &request), cut);
        request.dialect = Dialect::Openai;
        assert_eq!(left_out_betas(&customers, &request), ["openai-beta: assistants=v2"]);
        request.dialect = Dialect::Bedrock;
        assert_eq!(left_out_betas(&customers, &request), [""; 0]);
        let many = vec!["oauth"; 5000].join(",");
        customers.insert("anthropic-beta", HeaderValue::try_from(many).expect("a value"));
        request.dialect = Dialect::Anthropic;
        assert_eq!(left_out_betas(&customers, &request).len(), BETAS_SHOWN_MAX);
    }
}
