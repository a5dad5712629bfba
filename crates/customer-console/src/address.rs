//! Public address of the gateway, for snippets that customers paste.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::header;
use axum::http::request::Parts;

use super::CustomerConsole;
use tollgate_web_kit::Client;

/// The gateway's address as this customer sees it: a URL without a slash at the end.
#[derive(Clone, Debug)]
pub(super) struct GatewayUrl(pub(super) String);

impl FromRequestParts<CustomerConsole> for GatewayUrl {
    type Rejection = Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        console: &CustomerConsole,
    ) -> Result<Self, Infallible> {
        if let Some(url) = &console.config.load().console.public_url {
            return Ok(Self(url.text.clone()));
        }
        let client = parts.extensions.get::<Client>().copied().unwrap_or_default();
        let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        // The client chooses `Host`; anything odd in it would end up in a command that the customer pastes.
        let host = host.filter(|host| is_authority(host)).unwrap_or("gateway.example.com");
        Ok(Self(format!("{}://{host}", if client.tls { "https" } else { "http" })))
    }
}

/// True if a `Host` consists of harmless characters only: it is pasted into shells.
fn is_authority(host: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    (1..=255).contains(&host.len()) && host.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_pasted_is_plain() {
        for host in ["localhost:8080", "gateway.example.com", "[::1]:8080", "127.0.0.1"] {
            assert!(is_authority(host), "{host}");
        }
        for host in ["", "a'b", "a b", "$(id)", "a;b", "a/b", "a\\b"] {
            assert!(!is_authority(host), "{host:?}");
        }
    }
}
