//! Outgoing connections: forward proxies, certificate authorities, client certificates.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::sign::CertifiedKey;
use tollgate_types::secret::Secret;

mod no_proxy;

use no_proxy::NoProxy;

/// The port of an HTTP or SOCKS proxy whose URL has none, as curl takes it.
const PROXY_PORT: u16 = 1080;
/// The port of a proxy over TLS whose URL has none.
const PROXY_TLS_PORT: u16 = 443;
/// RFC 1929 section 2: a user name or password has at most 255 octets.
const SOCKS_CREDENTIAL_BYTES_MAX: usize = 255;

/// A server, and how connections to it are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// DNS name or IP address, without brackets.
    pub host: String,
    /// The TCP port of the host.
    pub port: u16,
    /// TLS settings; `None` for plain text.
    pub tls: Option<ClientTls>,
    /// Forward proxy in front of it.
    pub proxy: Option<Arc<Proxy>>,
}

impl Destination {
    /// True if data on the connection is encrypted by TLS, with the server or with the proxy in
    /// front of it.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        let has_secure_proxy = |proxy: &Arc<Proxy>| proxy.scheme == ProxyScheme::Https;
        self.tls.is_some() || self.proxy.as_ref().is_some_and(has_secure_proxy)
    }
}

/// TLS settings of a client.
#[derive(Clone, Default)]
pub struct ClientTls {
    /// Trusted authorities instead of the machine's.
    pub authorities: Option<Arc<RootCertStore>>,
    /// The client certificate and its key.
    pub certificate: Option<Arc<CertifiedKey>>,
    /// Name that the server's certificate must have, if it is not the host's.
    pub server_name: Option<String>,
    /// A digest of the files and the name: two values with the same one are equal.
    pub fingerprint: [u8; 32],
}

impl PartialEq for ClientTls {
    fn eq(&self, other: &Self) -> bool {
        // The stores of certificates cannot be compared; the digest of the files can.
        self.fingerprint == other.fingerprint
    }
}

impl Eq for ClientTls {}

/// Omits the key and the certificate's subject.
impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls")
            .field("authorities", &self.authorities.as_ref().map(|roots| roots.len()))
            .field("certificate", &self.certificate.is_some())
            .field("server_name", &self.server_name)
            .finish_non_exhaustive()
    }
}

/// A forward proxy. Its `Display` is its URL without credentials.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Proxy {
    /// Protocol of the proxy.
    pub scheme: ProxyScheme,
    /// DNS name or IP address, without brackets.
    pub host: String,
    /// The TCP port of the host.
    pub port: u16,
    /// User name and password for the proxy.
    pub credentials: Option<ProxyCredentials>,
}

/// The protocol that a proxy is asked in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxyScheme {
    /// `CONNECT` (RFC 9110 section 9.3.6) over TCP.
    Http,
    /// `CONNECT` over TLS with the proxy.
    Https,
    /// SOCKS 5 (RFC 1928) with addresses that are looked up here.
    Socks5,
    /// SOCKS 5 with names that the proxy looks up.
    Socks5h,
}

/// Credentials for a proxy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProxyCredentials {
    /// The user name, percent-decoded.
    pub user: String,
    /// The password; empty for none.
    pub password: Secret,
}

/// Fault of a proxy URL. Does not repeat the text, which may contain a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyError {
    /// Description of the fault.
    pub message: &'static str,
    /// Description of the correct form.
    pub help: &'static str,
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = self.scheme.as_str();
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(f, "{scheme}://{open}{}{close}:{}", self.host, self.port)
    }
}

impl ProxyScheme {
    /// Its word in URLs.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
            Self::Socks5 => "socks5",
            Self::Socks5h => "socks5h",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "http" => Some(Self::Http),
            "https" => Some(Self::Https),
            "socks5" => Some(Self::Socks5),
            // What curl calls `socks://` is version 4, which knows no names and no passwords.
            "socks5h" => Some(Self::Socks5h),
            _ => None,
        }
    }
}

impl Proxy {
    /// Reads a proxy as curl does: `http://user:password@host:port`, where everything but the host may
    /// be left out. Credentials are percent-decoded.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, ProxyError> {
        let (scheme, rest) = match text.trim().split_once("://") {
            Some((scheme, rest)) => (ProxyScheme::parse(scheme).ok_or(WRONG_SCHEME)?, rest),
            None => (ProxyScheme::Http, text.trim()),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        // A password may hold an `@` that nobody has encoded; a host cannot.
        let (user_info, authority) = match rest.rsplit_once('@') {
            Some((user_info, authority)) => (Some(user_info), authority),
            None => (None, rest),
        };
        if authority.contains(['/', '?', '#']) {
            return Err(HAS_PATH);
        }
        let (host, port) = host_and_port(authority).ok_or(WRONG_HOST)?;
        let usual = if scheme == ProxyScheme::Https { PROXY_TLS_PORT } else { PROXY_PORT };
        let credentials = user_info.map(credentials).transpose()?;
        let proxy = Self { scheme, host, port: port.unwrap_or(usual), credentials };
        // RFC 1929 has one byte for each length.
        if proxy.is_socks() && proxy.credentials.as_ref().is_some_and(ProxyCredentials::is_long) {
            return Err(LONG_CREDENTIALS);
        }
        Ok(proxy)
    }

    /// True for SOCKS.
    #[must_use]
    pub fn is_socks(&self) -> bool {
        matches!(self.scheme, ProxyScheme::Socks5 | ProxyScheme::Socks5h)
    }
}

impl ProxyCredentials {
    fn is_long(&self) -> bool {
        let longest = self.user.len().max(self.password.expose().len());
        longest > SOCKS_CREDENTIAL_BYTES_MAX
    }
}

const WRONG_SCHEME: ProxyError = ProxyError {
    message: "this is not a kind of proxy that is known",
    help: "`http://`, `https://`, `socks5://` or `socks5h://`",
};
const WRONG_HOST: ProxyError = ProxyError {
    message: "this proxy has no host and port that can be called",
    help: "as in `http://proxy.internal:3128`",
};
const HAS_PATH: ProxyError = ProxyError {
    message: "a proxy's URL has no path, query or fragment",
    help: "end it with the port; percent-encode `/`, `?` and `#` in a password",
};
const WRONG_CREDENTIALS: ProxyError = ProxyError {
    message: "this proxy's user name or password cannot be sent",
    help: "UTF-8 text without control characters, percent-encoded where it holds `%`",
};
const LONG_CREDENTIALS: ProxyError = ProxyError {
    message: "this proxy's user name or password is longer than SOCKS allows",
    help: "at most 255 bytes each",
};

fn credentials(user_info: &str) -> Result<ProxyCredentials, ProxyError> {
    let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
    let decode = |text: &str| {
        let bytes = percent_encoding::percent_decode_str(text);
        let text = bytes.decode_utf8().ok().filter(|text| !text.contains(char::is_control));
        text.map(std::borrow::Cow::into_owned).ok_or(WRONG_CREDENTIALS)
    };
    Ok(ProxyCredentials { user: decode(user)?, password: Secret::new(decode(password)?) })
}

/// A host without brackets, and the port where there is one.
fn host_and_port(authority: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            // Brackets are for IPv6 only: `[example.com]` is a typing error.
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, port)
        }
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
    if host.is_empty() || host.len() > 255 || !host.bytes().all(is_name) {
        return None;
    }
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => None,
        None => return None,
        Some(digits) => Some(digits.parse().ok().filter(|port| *port != 0)?),
    };
    Some((host.to_ascii_lowercase(), port))
}

/// The proxies that the environment names, and what is reached without them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProxyRules {
    http: Option<FromEnvironment>,
    https: Option<FromEnvironment>,
    direct: NoProxy,
}

type FromEnvironment = Result<Arc<Proxy>, EnvironmentError>;

/// A variable of the environment that names no proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentError {
    /// The name of the variable.
    pub variable: &'static str,
    /// Fault of its value.
    pub error: ProxyError,
}

impl fmt::Display for EnvironmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` in the environment: {}", self.variable, self.error.message)
    }
}

impl ProxyRules {
    /// Reads `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`; of both cases the lower one counts,
    /// and an empty value is none, as for curl.
    #[must_use]
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Self {
        let first = |names: &[&'static str]| {
            names.iter().find_map(|name| {
                let value = variable(name).filter(|value| !value.trim().is_empty())?;
                Some((*name, value))
            })
        };
        let proxy = |names: &[&'static str]| {
            first(names).map(|(variable, value)| {
                let parsed = Proxy::parse(&value).map(Arc::new);
                parsed.map_err(|error| EnvironmentError { variable, error })
            })
        };
        let direct = first(&["no_proxy", "NO_PROXY"]).map(|(_, value)| NoProxy::parse(&value));
        Self {
            http: proxy(&["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]),
            https: proxy(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]),
            direct: direct.unwrap_or_default(),
        }
    }

    /// The proxy for a server, if it is reached through one. This machine and link-local addresses,
    /// where clouds keep their metadata, never are.
    ///
    /// # Errors
    /// The variable that would name it cannot be read.
    pub fn find(
        &self,
        tls: bool,
        host: &str,
        port: u16,
    ) -> Result<Option<Arc<Proxy>>, EnvironmentError> {
        let named = if tls { &self.https } else { &self.http };
        match named {
            Some(named) if !is_near(host) && !self.direct.has(host, port) => {
                named.clone().map(Some)
            }
            _ => Ok(None),
        }
    }
}

/// True for this machine, and for addresses that no proxy can reach on its behalf.
fn is_near(host: &str) -> bool {
    match host.parse::<IpAddr>().map(|address| address.to_canonical()) {
        Ok(IpAddr::V4(address)) => {
            address.is_loopback() || address.is_link_local() || address.is_unspecified()
        }
        Ok(IpAddr::V6(address)) => {
            address.is_loopback() || address.is_unicast_link_local() || address.is_unspecified()
        }
        // RFC 6761 section 6.3.
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(variables: &[(&str, &str)]) -> ProxyRules {
        ProxyRules::from_environment(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn found(rules: &ProxyRules, tls: bool, host: &str) -> Option<String> {
        rules.find(tls, host, 443).expect("a proxy or none").map(|proxy| proxy.to_string())
    }

    #[test]
    fn a_proxy_is_read_as_curl_reads_it() {
        for (text, shown, user, password) in [
            ("http://proxy.internal:3128", "http://proxy.internal:3128", None, ""),
            ("proxy.internal:3128/", "http://proxy.internal:3128", None, ""),
            ("proxy", "http://proxy:1080", None, ""),
            ("HTTPS://Proxy", "https://proxy:443", None, ""),
            ("http://me:s%40cret@p:1", "http://p:1", Some("me"), "s@cret"),
            ("http://me:can@ary@p:1", "http://p:1", Some("me"), "can@ary"),
            ("http://me@p:1", "http://p:1", Some("me"), ""),
            ("socks5h://u:canary@[::1]:9", "socks5h://[::1]:9", Some("u"), "canary"),
            ("socks5://10.0.0.1", "socks5://10.0.0.1:1080", None, ""),
        ] {
            let proxy = Proxy::parse(text).expect(text);
            assert_eq!(proxy.to_string(), shown, "{text}");
            let credentials = proxy.credentials.as_ref();
            assert_eq!(credentials.map(|it| it.user.as_str()), user, "{text}");
            assert_eq!(credentials.map_or("", |it| it.password.expose()), password, "{text}");
            assert!(password.is_empty() || !format!("{proxy:?}").contains(password), "{proxy:?}");
        }
        for text in [
            "",
            "http://",
            "socks4://p:1",
            "ftp://p",
            "http://p:0",
            "http://p:x",
            "http://p/x",
            "http://a b:1",
            "http://u:%00@p:1",
            "http://[::1",
            "http://p:1?x",
        ] {
            assert!(Proxy::parse(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn the_environment_names_a_proxy_by_scheme_and_the_lower_case_counts() {
        let both = rules(&[("HTTPS_PROXY", "http://upper:1"), ("https_proxy", "http://lower:1")]);
        assert_eq!(found(&both, true, "api.openai.com").as_deref(), Some("http://lower:1"));
        assert_eq!(found(&both, false, "api.openai.com"), None, "of another scheme");
        let all = rules(&[("ALL_PROXY", "socks5h://all:1"), ("HTTP_PROXY", "plain:1")]);
        assert_eq!(found(&all, true, "x.example").as_deref(), Some("socks5h://all:1"));
        assert_eq!(found(&all, false, "x.example").as_deref(), Some("http://plain:1"));
        assert_eq!(found(&rules(&[("HTTPS_PROXY", "")]), true, "x.example"), None);
    }

    #[test]
    fn this_machine_and_what_no_proxy_lists_are_reached_directly() {
        let rules = rules(&[
            ("https_proxy", "http://proxy:1"),
            ("NO_PROXY", ".internal, 10.0.0.0/8,other.example:8443 ::2"),
        ]);
        for host in [
            "localhost",
            "a.localhost",
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "::ffff:127.0.0.1",
            "169.254.169.254",
            "fe80::1",
            "0.0.0.0",
            "vllm.internal",
            "internal",
            "10.1.2.3",
            "::2",
        ] {
            assert_eq!(found(&rules, true, host), None, "{host}");
        }
        for host in ["api.openai.com", "notinternal", "11.0.0.1", "other.example"] {
            assert!(found(&rules, true, host).is_some(), "{host}");
        }
        assert_eq!(rules.find(true, "other.example", 8443), Ok(None));
    }

    #[test]
    fn a_variable_that_names_no_proxy_is_an_error_where_it_would_be_used() {
        let rules = rules(&[("HTTPS_PROXY", "socks4://me:canary@p:1")]);
        assert_eq!(rules.find(true, "localhost", 443), Ok(None));
        let error = rules.find(true, "api.openai.com", 443).expect_err("no proxy");
        assert!(error.to_string().contains("`HTTPS_PROXY`"), "{error}");
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    }
}
