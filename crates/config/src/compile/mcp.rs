//! `mcp`: where agents find the gateway, and which pages may bring them there.

use std::sync::Arc;

use url::Url;

use super::bodies;
use super::hosted::wrong_path;
use crate::document::{Document, Fault};
use crate::raw;
use crate::snapshot::{IntakeLimits, Mcp, Route};
use crate::spans::DocumentPath;

/// The largest request body where the file does not say: a long conversation, or an image in base64.
/// What parses it makes several copies of it.
const BODY_BYTES_MAX: usize = 2 << 20;

/// Compiles valid settings, and reports the others.
pub(super) fn compile(
    document: &mut Document,
    raw: raw::McpSection,
    limits: &IntakeLimits,
    routes: &[Arc<Route>],
) -> Mcp {
    let at = DocumentPath::root().key("mcp");
    if raw.enabled
        && let Some(message) = wrong_path(&raw.path, routes, &[])
    {
        document.note(Fault::at_value(&at.key("path"), message).help("such as `/mcp`"));
    }
    let body_bytes_max = match raw.body_max {
        Some(size) => bodies::largest_of(document, &at.key("body_max"), size.0, limits),
        None => BODY_BYTES_MAX.min(limits.body_memory_bytes_max),
    };
    let mut allowed_hosts = Vec::with_capacity(raw.allowed_hosts.len());
    for (index, host) in raw.allowed_hosts.iter().enumerate() {
        match host_of(host) {
            Some(host) => allowed_hosts.push(host),
            None => {
                let path = at.key("allowed_hosts").index(index);
                let help = "such as `ai.example.com` or `ai.example.com:8443`";
                document.note(Fault::at_value(&path, "this is not a host").help(help));
            }
        }
    }
    let mut allowed_origins = Vec::with_capacity(raw.allowed_origins.len());
    for (index, origin) in raw.allowed_origins.iter().enumerate() {
        match origin_of(origin) {
            Some(origin) => allowed_origins.push(origin),
            None => {
                let path = at.key("allowed_origins").index(index);
                let help = "such as `https://app.example.com` or `http://localhost:*`";
                document.note(Fault::at_value(&path, "this is not an origin").help(help));
            }
        }
    }
    Mcp {
        enabled: raw.enabled,
        path: raw.path,
        allowed_hosts,
        allowed_origins,
        body_bytes_max,
        json_values_max: raw.json_values_max,
        media_bytes_max: raw.media_max.0,
        wait_max: raw.wait_max.0,
    }
}

/// A host, and its port if it has one, as `Host` has them.
fn host_of(text: &str) -> Option<String> {
    let authority: http::uri::Authority = text.parse().ok()?;
    let is_host = !authority.host().is_empty() && !text.contains('@');
    is_host.then(|| text.to_ascii_lowercase())
}

/// An origin as browsers write it, or one with `*` for every port.
fn origin_of(text: &str) -> Option<String> {
    let (text, any_port) = match text.strip_suffix(":*") {
        Some(text) => (text, ":*"),
        None => (text, ""),
    };
    let url = Url::parse(text).ok()?;
    let is_bare = matches!(url.path(), "" | "/")
        && !text.ends_with('/')
        && url.query().is_none()
        && url.fragment().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    let origin = url.origin();
    let is_origin = origin.is_tuple() && is_bare && (any_port.is_empty() || url.port().is_none());
    is_origin.then(|| format!("{}{any_port}", origin.ascii_serialization()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_written_as_browsers_do() {
        for (text, origin) in [
            ("https://app.example.com", Some("https://app.example.com")),
            ("HTTPS://App.Example.com:443", Some("https://app.example.com")),
            ("http://localhost:5173", Some("http://localhost:5173")),
            ("http://localhost:*", Some("http://localhost:*")),
            ("http://localhost:80:*", Some("http://localhost:*")),
            ("http://localhost:81:*", None),
            ("https://app.example.com/", None),
            ("https://app.example.com/x", None),
            ("https://u@app.example.com", None),
            ("app.example.com", None),
            ("file:///x", None),
            ("*", None),
        ] {
            assert_eq!(origin_of(text).as_deref(), origin, "{text}");
        }
    }

    #[test]
    fn hosts_have_no_scheme() {
        for (text, is_host) in [
            ("ai.example.com", true),
            ("ai.example.com:8443", true),
            ("[::1]:8080", true),
            ("https://ai.example.com", false),
            ("u@ai.example.com", false),
            ("", false),
        ] {
            assert_eq!(host_of(text).is_some(), is_host, "{text}");
        }
    }
}
