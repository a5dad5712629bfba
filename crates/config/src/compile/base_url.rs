//! Base URLs that are URLs, and lead elsewhere than where an API begins.

use tollgate_protocols::{Dialect, Operation, codec};

use crate::document::{Document, Fault};
use crate::names::Protocol;
use crate::raw;
use crate::spans::DocumentPath;

/// Endpoints that no codec uses.
const OTHER_ENDPOINTS: [&str; 8] = [
    "/completions",
    "/complete",
    "/models",
    "/converse",
    "/converse-stream",
    "/chat",
    "/images/variations",
    "/messages/batches",
];
/// Hosts whose API of OpenAI's kind has no version in its paths.
const UNVERSIONED_HOSTS: [&str; 3] =
    ["api.deepseek.com", "api.perplexity.ai", "models.inference.ai.azure.com"];

/// Warns of a URL that is an endpoint, has its version twice, or has none where one belongs.
pub(super) fn check(document: &mut Document, path: &DocumentPath, raw: &raw::UpstreamEntry) {
    let (url, protocol) = (&raw.base_url, raw.protocol.0);
    let Some((message, help)) = fault(protocol, &url.host, &url.path_prefix) else { return };
    document.note(Fault::at_value(&path.key("base_url"), message).warning().help(help));
}

/// Suspicious path of a base URL, with its remedy.
fn fault(protocol: Protocol, host: &str, prefix: &str) -> Option<(String, String)> {
    let dialect = protocol.dialect();
    if let Some(endpoint) = endpoint(prefix) {
        let message = "this is the address of one endpoint, and the gateway adds its own paths";
        let help = format!("end the URL before `{endpoint}`{}", version_note(dialect));
        return Some((message.to_owned(), help));
    }
    let segments: Vec<&str> = prefix.split('/').filter(|segment| !segment.is_empty()).collect();
    // SDKs of some providers add the version, so it is often copied with the URL and typed again.
    let is_twice =
        segments.windows(2).any(|pair| matches!(pair, [a, b] if a == b && is_version(a)));
    if is_twice {
        let message = "the version stands in this path twice".to_owned();
        return Some((message, "leave one of them out".to_owned()));
    }
    let own = own_head(dialect);
    let has_version_at_end = segments.last().is_some_and(|last| is_version(last));
    if !own.is_empty() && has_version_at_end {
        let message =
            format!("`{protocol}` adds `{own}` to this path itself", protocol = protocol.as_str());
        let help =
            "end the URL before its version, or take the `protocol` that this path belongs to";
        return Some((message, help.to_owned()));
    }
    let is_bare = segments.is_empty() && !UNVERSIONED_HOSTS.contains(&host);
    match protocol {
        Protocol::Dialect(Dialect::Openai | Dialect::Voyage | Dialect::Gemini) if is_bare => {
            let version = if dialect == Dialect::Gemini { "/v1beta" } else { "/v1" };
            let message = "this URL has no version, which the gateway does not add";
            Some((message.to_owned(), format!("as a rule such an API begins at `{version}`")))
        }
        Protocol::Dialect(Dialect::Vertex) if !prefix.ends_with("/publishers/google") => {
            let message = "this is not where models of Google's begin on Vertex AI";
            Some((message.to_owned(), "end the URL with `/publishers/google`".to_owned()))
        }
        _ => None,
    }
}

/// The endpoint that a path ends with, if it does.
fn endpoint(prefix: &str) -> Option<String> {
    let operations = Operation::EVERY.iter().copied();
    let codecs = operations.flat_map(|operation| {
        Dialect::ALL.into_iter().filter_map(move |dialect| codec(operation, dialect))
    });
    let own = codecs.map(|codec| without_version(codec.path()));
    // `/model` stands before a name.
    let own = own.filter(|path| path.len() > "/model".len() && !path.contains('{'));
    let endpoints = own.chain(OTHER_ENDPOINTS);
    let found = endpoints.filter(|path| prefix.ends_with(path)).max_by_key(|path| path.len());
    if let Some(found) = found {
        // Bedrock's methods stand behind a name: `/model/NAME/converse`.
        let found = if found.starts_with("/converse") { "/model/" } else { found };
        return Some(found.to_owned());
    }
    // Google's methods stand behind a colon: `/models/NAME:generateContent`.
    let last = prefix.rsplit('/').next()?;
    let method = last.split_once(':').map(|(_, method)| method)?;
    let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_alphabetic());
    is_method
        .then(|| if prefix.contains("/models/") { "/models/".to_owned() } else { last.to_owned() })
}

/// A path without its leading version.
fn without_version(path: &str) -> &str {
    let mut rest = path;
    while let Some((first, behind)) = rest.strip_prefix('/').and_then(|rest| rest.split_once('/')) {
        if first != "api" && !is_version(first) {
            break;
        }
        rest = rest.get(rest.len() - behind.len() - 1..).unwrap_or_default();
    }
    rest
}

/// The first segment that a dialect's paths have in common: a version, or empty.
fn own_head(dialect: Dialect) -> &'static str {
    let codecs = Operation::ALL.into_iter().filter_map(|operation| codec(operation, dialect));
    let heads = codecs.map(|codec| {
        let path = codec.path();
        path.strip_suffix(without_version(path)).unwrap_or_default()
    });
    heads.max_by_key(|head| head.len()).unwrap_or_default()
}

fn version_note(dialect: Dialect) -> &'static str {
    if own_head(dialect).is_empty() { "" } else { ", and before its version, which is added too" }
}

/// True for a path segment that is a version: `v1`, `v1beta`, `v4`.
fn is_version(segment: &str) -> bool {
    let Some(rest) = segment.strip_prefix('v') else { return false };
    let letters = rest.trim_start_matches(|letter: char| letter.is_ascii_digit());
    letters.len() < rest.len() && letters.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// True for `localhost` and loopback addresses.
pub(super) fn is_loopback(host: &str) -> bool {
    let address = host.parse::<std::net::IpAddr>();
    // Canonical: `::ffff:127.0.0.1` is the loopback as well.
    address.map_or(host == "localhost", |address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(dialect: Dialect, host: &str, prefix: &str) -> Option<String> {
        let found = fault(Protocol::Dialect(dialect), host, prefix);
        found.map(|(message, help)| format!("{message}; {help}"))
    }

    #[test]
    fn an_endpoint_is_no_base_url() {
        for (dialect, prefix, before) in [
            (Dialect::Openai, "/v1/chat/completions", "/chat/completions"),
            (Dialect::Openai, "/v1/completions", "/completions"),
            (Dialect::Openai, "/v1/responses", "/responses"),
            (Dialect::Openai, "/v1/responses/compact", "/responses/compact"),
            (Dialect::Openai, "/v1/responses/input_tokens", "/responses/input_tokens"),
            (Dialect::Openai, "/openai/v1/embeddings", "/embeddings"),
            (Dialect::Openai, "/v1/images/generations", "/images/generations"),
            (Dialect::Openai, "/v1/audio/speech", "/audio/speech"),
            (Dialect::Openai, "/v1/rerank", "/rerank"),
            (Dialect::Openai, "/v1/models", "/models"),
            (Dialect::Anthropic, "/v1/messages", "/messages"),
            (Dialect::Anthropic, "/v1/messages/count_tokens", "/messages/count_tokens"),
            (Dialect::Gemini, "/v1beta/models/gemini-2.5-pro:generateContent", "/models/"),
            (Dialect::Gemini, "/v1beta/models/g:streamGenerateContent", "/models/"),
            (Dialect::Bedrock, "/model/anthropic.claude/converse", "/model/"),
            (
                Dialect::Dashscope,
                "/api/v1/services/aigc/video-generation/video-synthesis",
                "/services/aigc/video-generation/video-synthesis",
            ),
        ] {
            let message = message(dialect, "api.example.com", prefix).expect(prefix);
            assert!(message.contains(&format!("before `{before}`")), "{prefix}: {message}");
        }
    }

    #[test]
    fn a_version_stands_in_a_path_once() {
        for (dialect, prefix) in [
            (Dialect::Anthropic, "/v1"),
            (Dialect::Xai, "/v1"),
            (Dialect::Dashscope, "/api/v1"),
            (Dialect::Dashscope, "/compatible-mode/v1"),
            (Dialect::Ark, "/api/v3"),
            (Dialect::Openai, "/v1/v1"),
            (Dialect::Openai, ""),
            (Dialect::Voyage, ""),
            (Dialect::Gemini, ""),
            (Dialect::Vertex, "/v1/projects/p/locations/global"),
        ] {
            assert!(message(dialect, "api.example.com", prefix).is_some(), "{dialect} {prefix}");
        }
    }

    #[test]
    fn where_apis_begin_nothing_is_said() {
        for (dialect, host, prefix) in [
            (Dialect::Openai, "api.openai.com", "/v1"),
            (Dialect::Openai, "api.z.ai", "/api/paas/v4"),
            (Dialect::Openai, "api.deepseek.com", ""),
            (Dialect::Openai, "models.github.ai", "/inference"),
            (Dialect::Openai, "generativelanguage.googleapis.com", "/v1beta/openai"),
            (Dialect::Openai, "gateway.ai.cloudflare.com", "/v1/account/gateway/openai"),
            (Dialect::Anthropic, "api.anthropic.com", ""),
            (Dialect::Anthropic, "gateway.ai.cloudflare.com", "/v1/account/gateway/anthropic"),
            (Dialect::Anthropic, "api.deepseek.com", "/anthropic"),
            (Dialect::Bedrock, "bedrock-runtime.us-east-1.amazonaws.com", ""),
            (Dialect::Dashscope, "dashscope-intl.aliyuncs.com", ""),
            (Dialect::Gemini, "generativelanguage.googleapis.com", "/v1beta"),
            (
                Dialect::Vertex,
                "aiplatform.googleapis.com",
                "/v1/projects/p/locations/l/publishers/google",
            ),
        ] {
            assert_eq!(message(dialect, host, prefix), None, "{dialect} {host}{prefix}");
        }
        for (segment, expected) in [
            ("v1", true),
            ("v1beta", true),
            ("v4", true),
            ("v", false),
            ("voice", false),
            ("1", false),
        ] {
            assert_eq!(is_version(segment), expected, "{segment}");
        }
    }
}
