//! The MCP endpoint: checks of `Origin` and `Host` in front of the protocol.
//!
//! Pages of strangers cannot have a key, and without one nobody gets here. An `Origin` that was not
//! configured is refused all the same: a page that was given a key by mistake, or reaches the gateway
//! by a name of its own (DNS rebinding), does not get further.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, HOST,
    ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use rmcp::transport::streamable_http_server::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;

use super::client::AgentConnection;
use super::direct;
use super::envelope::{self, HttpAnswer};
use super::server::Server;
use tollgate_config::ConfigHandle;
use tollgate_config::snapshot::Mcp;

/// Response headers that pages may read.
const EXPOSED: HeaderValue =
    HeaderValue::from_static("mcp-protocol-version, x-request-id, www-authenticate");
const METHODS: HeaderValue = HeaderValue::from_static("POST, OPTIONS");
/// Lifetime of a preflight answer, in seconds. Chromium caps it at two hours.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");

/// The server behind the checks of a request's origin and host.
pub(super) struct McpEndpoint {
    config: Arc<ConfigHandle>,
    server: Server,
    service: StreamableHttpService<Server, NeverSessionManager>,
}

impl McpEndpoint {
    pub(super) fn new(
        config: Arc<ConfigHandle>,
        server: Server,
        service: StreamableHttpService<Server, NeverSessionManager>,
    ) -> Self {
        Self { config, server, service }
    }

    pub(super) async fn answer(&self, request: Request<Full<Bytes>>) -> HttpAnswer {
        let snapshot = self.config.load();
        let headers = request.headers();
        let mut origins = headers.get_all(ORIGIN).iter();
        let origin = origins.next().cloned();
        let here =
            request.extensions().get::<AgentConnection>().is_some_and(|from| from.is_loopback);
        let may_come = origin.as_ref().is_none_or(|origin| {
            is_origin_allowed(&snapshot.mcp, origin) || (here && is_loopback_origin(origin))
        });
        // Of two origins a front proxy may have checked the other one.
        if !may_come || origins.next().is_some() {
            return refused("This origin may not call: it is none of `mcp.allowed_origins`.");
        }
        if !is_host_allowed(&snapshot.mcp, headers) {
            return refused("This is not a name by which the server may be called.");
        }
        let mut answer = match (request.method() == Method::OPTIONS, &origin) {
            (true, Some(_)) => preflight(headers),
            _ => match direct::answer(&self.server, request).await {
                Ok(answer) => answer,
                Err(request) => self.hand_on(request).await,
            },
        };
        if let Some(origin) = origin {
            let headers = answer.headers_mut();
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
            // A cache must not give one origin the answer for another.
            headers.append(VARY, HeaderValue::from_static("origin"));
        }
        answer
    }

    /// Passes the request to the library; its transport errors become errors of the protocol.
    async fn hand_on(&self, request: Request<Full<Bytes>>) -> HttpAnswer {
        let (head, body) = request.into_parts();
        // The body is whole and in memory: this gives it at once.
        let Ok(bytes) = body.clone().collect().await.map(http_body_util::Collected::to_bytes);
        let id = match envelope::identify(&head, &bytes) {
            Ok(id) => id,
            Err(answer) => return *answer,
        };
        drop(bytes);
        let is_json = envelope::is_json(&head.headers);
        let answer = self.service.handle(Request::from_parts(head, body)).await;
        envelope::enveloped(answer, id, is_json).await
    }
}

/// True if a page of this origin may call.
fn is_origin_allowed(mcp: &Mcp, origin: &HeaderValue) -> bool {
    let Ok(origin) = origin.to_str() else { return false };
    mcp.allowed_origins.iter().any(|allowed| match allowed.strip_suffix(":*") {
        None => allowed == origin,
        Some(host) => origin.strip_prefix(host).is_some_and(|port| {
            let digits = port.strip_prefix(':').unwrap_or("0");
            (port.is_empty() || port.starts_with(':'))
                && !digits.is_empty()
                && digits.bytes().all(|byte| byte.is_ascii_digit())
        }),
    })
}

/// True for an origin on the loopback. Where only this machine reaches the gateway, such a page may call: no
/// foreign page has that origin, whatever name it reaches the gateway by.
fn is_loopback_origin(origin: &HeaderValue) -> bool {
    let Ok(origin) = origin.to_str() else { return false };
    let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    ["localhost", "127.0.0.1", "[::1]"].iter().any(|own| {
        let port = host.and_then(|host| host.strip_prefix(own));
        port.is_some_and(|port| {
            port.is_empty()
                || port.strip_prefix(':').is_some_and(|digits| digits.parse::<u16>().is_ok())
        })
    })
}

/// True if the server may be called by this host name.
fn is_host_allowed(mcp: &Mcp, headers: &HeaderMap) -> bool {
    if mcp.allowed_hosts.is_empty() {
        return true;
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    // Host names are compared without case (RFC 9110, section 4.2.3).
    let Some(host) = host.map(str::to_ascii_lowercase) else { return false };
    let Ok(authority) = host.parse::<http::uri::Authority>() else { return false };
    mcp.allowed_hosts.iter().any(|allowed| *allowed == host || allowed == authority.host())
}

/// The answer to a browser that asks whether an allowed page may call.
fn preflight(request: &HeaderMap) -> HttpAnswer {
    let mut answer = empty();
    *answer.status_mut() = StatusCode::NO_CONTENT;
    let headers = answer.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    if let Some(names) = request.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
        headers.append(VARY, HeaderValue::from_static("access-control-request-headers"));
    }
    headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    answer
}

/// A 403 in the protocol's words: an error that answers no request in particular.
fn refused(message: &'static str) -> HttpAnswer {
    envelope::error(StatusCode::FORBIDDEN, None, envelope::INVALID_REQUEST, message)
}

fn empty() -> HttpAnswer {
    Response::new(Full::default().boxed())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn mcp(hosts: &[&str], origins: &[&str]) -> Mcp {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Mcp {
            enabled: true,
            path: "/mcp".to_owned(),
            allowed_hosts: owned(hosts),
            allowed_origins: owned(origins),
            body_bytes_max: 1,
            json_values_max: 1,
            media_bytes_max: 1,
            wait_max: Duration::from_secs(1),
        }
    }

    #[test]
    fn origins_are_compared_whole() {
        let mcp = mcp(&[], &["https://app.example.com", "http://localhost:*"]);
        for (origin, allowed) in [
            ("https://app.example.com", true),
            ("http://localhost", true),
            ("http://localhost:5173", true),
            ("http://app.example.com", false),
            ("https://app.example.com:8443", false),
            ("https://app.example.com.evil.test", false),
            ("http://localhost.evil.test", false),
            ("http://localhost:1.evil.test", false),
            ("http://localhost:", false),
            ("http://localhost:*", false),
            ("https://localhost:5173", false),
            ("null", false),
            ("", false),
        ] {
            let value = HeaderValue::from_str(origin).expect("a value");
            assert_eq!(is_origin_allowed(&mcp, &value), allowed, "{origin}");
        }
    }

    #[test]
    fn a_loopback_origin_is_one_whole() {
        for (origin, is_one) in [
            ("http://localhost", true),
            ("http://localhost:5173", true),
            ("https://localhost:8443", true),
            ("http://127.0.0.1:8080", true),
            ("http://[::1]:8080", true),
            ("http://localhost.evil.test", false),
            ("http://localhost:80.evil.test", false),
            ("http://evil.test", false),
            ("http://127.0.0.1.evil.test", false),
            ("http://localhost:", false),
            ("null", false),
            ("", false),
        ] {
            let value = HeaderValue::from_str(origin).expect("a value");
            assert_eq!(is_loopback_origin(&value), is_one, "{origin}");
        }
    }

    #[test]
    fn hosts_are_compared_with_their_port_where_one_is_configured() {
        let mcp = mcp(&["ai.example.com", "other.example.com:8443"], &[]);
        for (host, allowed) in [
            ("ai.example.com", true),
            ("AI.example.com:8080", true),
            ("other.example.com:8443", true),
            ("other.example.com", false),
            ("evil.test", false),
            ("ai.example.com.evil.test", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_str(host).expect("a value"));
            assert_eq!(is_host_allowed(&mcp, &headers), allowed, "{host}");
        }
        assert!(!is_host_allowed(&mcp, &HeaderMap::new()), "no name at all");
    }
}
