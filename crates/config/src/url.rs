//! An upstream's base URL.

use super::scalar::{Scalar, ScalarError, scalar};

/// Base URL of an upstream's API. Has no credential, query or fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BaseUrl {
    /// `https` rather than `http`.
    pub(super) tls: bool,
    /// DNS name or IP address, without brackets.
    pub(super) host: String,
    /// The port written, or the scheme's own.
    pub(super) port: u16,
    /// Value of the `Host` header.
    pub(super) authority: String,
    /// Empty, or a path that begins with a slash and does not end with one.
    pub(super) path_prefix: String,
}

impl Scalar for BaseUrl {
    const FORMAT: &'static str = "tollgate-base-url";
    const DESCRIPTION: &'static str = "a URL such as `https://api.openai.com/v1`";
    const NUMBER: bool = false;
    const PATTERN: &'static str = r"^(https?://[^/?#@]+(/[^?#]*)?|.*\$\{.*)$";

    fn parse(text: &str) -> Result<Self, ScalarError> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| {
            ScalarError::new("this URL has no scheme", "begin with `https://` (or `http://`)")
        })?;
        let tls = match scheme {
            "https" => true,
            "http" => false,
            _ => {
                let help = "an upstream is reached over `https://` or `http://`";
                return Err(ScalarError::new("this URL has another scheme", help));
            }
        };
        if rest.contains(['?', '#']) {
            let help = "end the base URL with its path";
            return Err(ScalarError::new("a base URL has no query and no fragment", help));
        }
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains('@') {
            let help = "put the key into `credential`, out of `${VAR}` or `{file: PATH}`";
            return Err(ScalarError::new("a base URL holds no credentials", help));
        }
        let (host, port) = host_and_port(authority, tls)?;
        Ok(Self {
            tls,
            authority: authority_of(&host, port, tls),
            host,
            port,
            path_prefix: prefix(path)?,
        })
    }
}

scalar!(BaseUrl);

/// The `Host` header for a place: without the scheme's own port.
fn authority_of(host: &str, port: u16, tls: bool) -> String {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    if port == default_port(tls) { host } else { format!("{host}:{port}") }
}

fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

fn host_and_port(authority: &str, tls: bool) -> Result<(String, u16), ScalarError> {
    let wrong_host = || {
        ScalarError::new(
            "this URL has no host that can be called",
            "as in `https://api.openai.com`",
        )
    };
    let (host, port) = match authority.strip_prefix('[') {
        Some(bracketed) => {
            let (address, port) = bracketed.split_once(']').ok_or_else(wrong_host)?;
            let address: std::net::Ipv6Addr = address.parse().map_err(|_| wrong_host())?;
            (address.to_string(), port)
        }
        None => {
            let (name, port) = authority.split_at(authority.find(':').unwrap_or(authority.len()));
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            // RFC 1035 section 2.3.4: a name has at most 255 octets.
            if name.is_empty() || name.len() > 255 || !name.bytes().all(is_name) {
                return Err(wrong_host());
            }
            (name.to_ascii_lowercase(), port)
        }
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => default_port(tls),
        digits => digits
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|digits| digits.parse().ok())
            .filter(|port| *port != 0)
            .ok_or_else(|| ScalarError::new("this URL's port is not a port", "1 to 65535"))?,
    };
    Ok((host, port))
}

/// The path without the slash at its end.
fn prefix(path: &str) -> Result<String, ScalarError> {
    let path = path.trim_end_matches('/');
    let is_path = |byte: u8| byte.is_ascii_graphic() && !b"\\\"<>^`{|}".contains(&byte);
    if !path.bytes().all(is_path) || path.split('/').any(|part| part == "." || part == "..") {
        let help = "letters, digits and `-._~/`; anything else percent-encoded";
        return Err(ScalarError::new("this URL's path is not a plain path", help));
    }
    Ok(path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_is_taken_apart() {
        for (text, tls, host, port, authority, path_prefix) in [
            ("https://api.openai.com/v1", true, "api.openai.com", 443, "api.openai.com", "/v1"),
            ("https://API.x.ai:443/", true, "api.x.ai", 443, "api.x.ai", ""),
            ("http://[::1]:8000/a/b//", false, "::1", 8000, "[::1]:8000", "/a/b"),
            ("http://vllm:80", false, "vllm", 80, "vllm", ""),
        ] {
            let url = BaseUrl::parse(text).expect(text);
            let (authority, path_prefix) = (authority.to_owned(), path_prefix.to_owned());
            let expected = BaseUrl { tls, host: host.to_owned(), port, authority, path_prefix };
            assert_eq!(url, expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_a_base_url_is_refused() {
        for text in [
            "",
            "api.openai.com",
            "ftp://x",
            "https://",
            "https:///v1",
            "https://u:p@x/v1",
            "https://x?key=1",
            "https://x/#a",
            "https://x:0",
            "https://x:70000",
            "https://x:",
            "https://x:+80",
            "https://[::1",
            "https://[::1]x",
            "https://a b",
            "https://x/a b",
            "https://x/../y",
            "https://ümlaut.example",
            "HTTPS://x",
        ] {
            assert!(BaseUrl::parse(text).is_err(), "{text:?} was accepted");
        }
    }
}
