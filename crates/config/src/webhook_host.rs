//! Hosts that `tasks.webhook_hosts` names, with the ports that announcements may go to.

use url::Url;

use super::scalar::{Scalar, ScalarError};

/// A host that announcements may go to although it is not on the public internet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookHost {
    /// The host as URLs have it: in lower case, an IPv6 address in brackets.
    host: String,
    ports: Ports,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ports {
    /// 443 over TLS, 80 without.
    Standard,
    One(u16),
    Any,
}

impl WebhookHost {
    /// Matches every port of `host`.
    pub(crate) fn any_port_of(host: &str) -> Self {
        Self { host: host.to_owned(), ports: Ports::Any }
    }

    /// True if a URL leads to this host.
    #[must_use]
    pub fn is_host_of(&self, url: &Url) -> bool {
        url.host_str() == Some(self.host.as_str())
    }

    /// True if a URL that leads to this host leads to one of its ports.
    #[must_use]
    pub fn has_port_of(&self, url: &Url) -> bool {
        match self.ports {
            Ports::Standard => url.port().is_none(),
            Ports::One(port) => url.port_or_known_default() == Some(port),
            Ports::Any => true,
        }
    }
}

impl Scalar for WebhookHost {
    const FORMAT: &'static str = "tollgate-webhook-host";
    const DESCRIPTION: &'static str = "a host such as `hooks.internal`, which is reached on ports 80 \
                                       and 443, or with a port such as `hooks.internal:8443`, or \
                                       with `:*` for all ports";
    const NUMBER: bool = false;
    const PATTERN: &'static str = r"^([^/@?#\s]+|.*\$\{.*)$";

    fn parse(text: &str) -> Result<Self, ScalarError> {
        let wrong =
            || ScalarError::new("this is not a host", format!("write {}", Self::DESCRIPTION));
        let is_bare_v6 = text.parse::<std::net::Ipv6Addr>().is_ok();
        let (host, port) = match text.rsplit_once(':') {
            _ if is_bare_v6 => (format!("[{text}]"), None),
            // The last colon of an address in brackets may be within them.
            Some((host, port)) if !port.ends_with(']') => (host.to_owned(), Some(port)),
            _ => (text.to_owned(), None),
        };
        let ports = match port {
            None => Ports::Standard,
            Some("*") => Ports::Any,
            Some(port) => match port.parse() {
                Ok(port) if port > 0 => Ports::One(port),
                _ => return Err(wrong()),
            },
        };
        let url = Url::parse(&format!("http://{host}/")).map_err(|_| wrong())?;
        let is_plain = url.port().is_none()
            && url.username().is_empty()
            && url.password().is_none()
            && url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none();
        // The parser forgives blanks around, and reads numbers of all kinds as addresses.
        match url.host_str() {
            Some(host) if is_plain && !text.contains(char::is_whitespace) => {
                Ok(Self { host: host.to_owned(), ports })
            }
            _ => Err(wrong()),
        }
    }
}

super::scalar::scalar!(WebhookHost);

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(host: &str, url: &str) -> bool {
        let host = WebhookHost::parse(host).expect("a host");
        let url = Url::parse(url).expect("a URL");
        host.is_host_of(&url) && host.has_port_of(&url)
    }

    #[test]
    fn a_host_has_its_standard_ports_unless_it_says_otherwise() {
        for (host, url, expected) in [
            ("hooks.internal", "https://hooks.internal/a", true),
            ("hooks.internal", "http://HOOKS.internal:80/a", true),
            ("Hooks.Internal", "https://hooks.internal:443/a", true),
            ("hooks.internal", "https://hooks.internal:22/a", false),
            ("hooks.internal", "http://hooks.internal:443/a", false),
            ("hooks.internal", "https://other.internal/a", false),
            ("hooks.internal:8443", "https://hooks.internal:8443/a", true),
            ("hooks.internal:8443", "https://hooks.internal/a", false),
            ("hooks.internal:443", "https://hooks.internal/a", true),
            ("127.0.0.1:*", "http://127.0.0.1:1/a", true),
            ("127.0.0.1", "http://127.0.0.1:1/a", false),
            ("::1", "http://[::1]/a", true),
            ("[::1]", "http://[::1]/a", true),
            ("[::1]:8080", "http://[::1]:8080/a", true),
            ("[::1]:8080", "http://[::1]/a", false),
        ] {
            assert_eq!(allows(host, url), expected, "{host} and {url}");
        }
    }

    #[test]
    fn what_is_more_than_a_host_is_refused() {
        for text in [
            "",
            "https://hooks.internal",
            "hooks.internal/a",
            "a@hooks.internal",
            "hooks.internal:0",
            "hooks.internal:65536",
            "hooks.internal:http",
            "hooks.internal:",
            ":80",
            "a b",
            " hooks.internal",
            "[::1",
        ] {
            assert!(WebhookHost::parse(text).is_err(), "{text:?} was accepted");
        }
    }
}
