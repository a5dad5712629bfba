//! Public internet addresses to which a customer's URL may lead.
//!
//! A gateway that fetches or calls what a customer or an upstream names could be made to reach its
//! operator's own network. So such a URL is `https`, and every address behind it is public: the ones
//! that IANA's special-purpose registries (RFC 6890) name are not, nor are their disguises in IPv6.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use url::{Host, Url};

/// Reason for refusing a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPublic {
    /// The URL is malformed.
    Malformed,
    /// The scheme is not `https`.
    Scheme,
    /// It has a user name or password.
    Credentials,
    /// The host is not on the public internet.
    Host,
}

impl fmt::Display for NotPublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "it is not a URL",
            Self::Scheme => "it must begin with https://",
            Self::Credentials => "it must not have a user name or password",
            Self::Host => "its host is not on the public internet",
        })
    }
}

/// Reads a URL that must lead to the public internet, as far as its text can tell. Names are checked
/// again when they are looked up: see [`is_public`].
///
/// # Errors
/// Why it is refused.
pub fn parse(text: &str) -> Result<Url, NotPublic> {
    parse_over(text, &["https"])
}

/// Reads a URL on the public internet that others fetch, who may do so over `http` as well as
/// `https`.
///
/// # Errors
/// Why it is refused.
pub fn parse_web(text: &str) -> Result<Url, NotPublic> {
    parse_over(text, &["http", "https"])
}

fn parse_over(text: &str, schemes: &[&str]) -> Result<Url, NotPublic> {
    let url = Url::parse(text).map_err(|_| NotPublic::Malformed)?;
    if !schemes.contains(&url.scheme()) {
        return Err(NotPublic::Scheme);
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(NotPublic::Credentials);
    }
    // The parser has turned numbers of all kinds into addresses: `0x7f.1`, `2130706433`.
    let is_allowed = match url.host() {
        None => false,
        Some(Host::Ipv4(ip)) => is_public(ip.into()),
        Some(Host::Ipv6(ip)) => is_public(ip.into()),
        Some(Host::Domain(name)) => is_public_name(name),
    };
    if is_allowed { Ok(url) } else { Err(NotPublic::Host) }
}

/// Names of one label, and those that never leave a network (RFC 6761, RFC 6762, RFC 8375).
fn is_public_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let Some((_, last)) = name.rsplit_once('.') else { return false };
    !matches!(last, "localhost" | "local" | "internal" | "test" | "invalid" | "arpa" | "lan")
}

/// True if an address belongs to the public internet.
#[must_use]
pub fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    // Azure's machines reach the platform that runs them at this address.
    if ip == Ipv4Addr::new(168, 63, 129, 16) {
        return false;
    }
    let is_special = match a {
        0 | 10 | 127 => true,
        100 => (64..128).contains(&b),
        169 => b == 254,
        172 => (16..32).contains(&b),
        192 => b == 168 || (b == 0 && (c == 0 || c == 2)) || (b == 88 && c == 99),
        198 => b == 18 || b == 19 || (b == 51 && c == 100),
        203 => b == 0 && c == 113,
        // Multicast, and what is reserved behind it.
        224.. => true,
        _ => false,
    };
    !is_special
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match ip.segments() {
        // IPv4 in IPv6: mapped, translated (RFC 6052), 6to4.
        [0, 0, 0, 0, 0, 0xFFFF, high, low] | [0x64, 0xFF9B, 0, 0, 0, 0, high, low] => {
            embedded(high, low)
        }
        [0x2002, high, low, ..] => embedded(high, low),
        // Documentation, and protocol assignments such as Teredo.
        [0x2001, 0xDB8, ..] | [0x2001, 0..=0x1FF, ..] => false,
        // Global unicast is 2000::/3; all else is local, multicast or reserved.
        [first, ..] => (0x2000..0x4000).contains(&first) && first != 0x3FFF,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_that_lead_inside_are_refused() {
        for (text, expected) in [
            ("", NotPublic::Malformed),
            ("image.png", NotPublic::Malformed),
            ("http://example.com/a.png", NotPublic::Scheme),
            ("data:image/png;base64,AAAA", NotPublic::Scheme),
            ("file:///etc/passwd", NotPublic::Scheme),
            ("https://user:pass@example.com/", NotPublic::Credentials),
            ("https://localhost/a", NotPublic::Host),
            ("https://metadata/a", NotPublic::Host),
            ("https://metadata.google.internal/a", NotPublic::Host),
            ("https://printer.local./a", NotPublic::Host),
            ("https://127.0.0.1/a", NotPublic::Host),
            ("https://127.1/a", NotPublic::Host),
            ("https://2130706433/a", NotPublic::Host),
            ("https://0x7f.1/a", NotPublic::Host),
            ("https://0177.0.0.1/a", NotPublic::Host),
            ("https://10.1.2.3/a", NotPublic::Host),
            ("https://169.254.169.254/latest", NotPublic::Host),
            ("https://168.63.129.16/metadata", NotPublic::Host),
            ("https://[::ffff:168.63.129.16]/a", NotPublic::Host),
            ("https://[::1]/a", NotPublic::Host),
            ("https://[::ffff:10.0.0.1]/a", NotPublic::Host),
            ("https://[64:ff9b::a00:1]/a", NotPublic::Host),
            ("https://[2002:7f00:1::]/a", NotPublic::Host),
            ("https://[fd00::1]/a", NotPublic::Host),
            ("https://[fe80::1]/a", NotPublic::Host),
        ] {
            assert_eq!(parse(text).err(), Some(expected), "{text}");
        }
    }

    #[test]
    fn public_urls_are_taken() {
        for text in [
            "https://example.com/a.png?x=1#y",
            "https://EXAMPLE.com:8443/",
            "https://8.8.8.8/a",
            "https://[2606:4700::1111]/a",
            "https://[::ffff:8.8.8.8]/a",
            "https://bücher.example/",
        ] {
            assert!(parse(text).is_ok(), "{text}: {:?}", parse(text));
        }
    }
}
