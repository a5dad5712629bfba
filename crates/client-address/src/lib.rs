//! Address of a request's client: the peer, or the one that trusted proxies report.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use ipnet::IpNet;

/// The header in which proxies add the address of whom they speak for, each at the end.
pub const FORWARDED_FOR: &str = "x-forwarded-for";
/// The header in which proxies say how whom they speak for came to them.
const FORWARDED_PROTO: &str = "x-forwarded-proto";

/// The address that the request came from.
///
/// Each proxy adds at the end whom it got the request from, so the header is read from there: an
/// entry is believed if everything behind it, and the peer, is trusted. The first one that is not
/// trusted itself is the client; what stands before it, anybody may have written.
pub fn address(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> IpAddr {
    let mut client = peer.to_canonical();
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(&address));
    // The usual case: nobody is trusted, and no header is looked for.
    if !is_trusted(client) {
        return client;
    }
    let fields: Vec<_> = headers.get_all(FORWARDED_FOR).iter().collect();
    for entry in fields.iter().rev().flat_map(|field| field.as_bytes().rsplit(|b| *b == b',')) {
        // A word that is no address hides whoever stands before it.
        let Some(address) = read(entry) else { break };
        client = address;
        if !is_trusted(client) {
            break;
        }
    }
    client
}

/// Network of one customer: an IPv4 address, or the 64-bit prefix of an IPv6 address, since a network gives
/// each customer such a prefix to choose addresses from.
pub fn network(address: IpAddr) -> IpAddr {
    beginning(address, 32, 64)
}

/// Largest network that a provider gives to one customer: 256 IPv4 addresses, or an IPv6 prefix of 48 bits,
/// which holds 65,536 of those that [`network`] counts.
pub fn site(address: IpAddr) -> IpAddr {
    beginning(address, 24, 48)
}

/// The first bits of an address, and zeros.
fn beginning(address: IpAddr, bits_v4: u32, bits_v6: u32) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let host = 32 - bits_v4;
            IpAddr::V4((u32::from(address) >> host << host).into())
        }
        IpAddr::V6(address) => {
            let host = 128 - bits_v6;
            IpAddr::V6((u128::from(address) >> host << host).into())
        }
    }
}

/// True if the client used TLS, as the trusted proxy reports: the last word of the header is the nearest
/// proxy's.
pub fn is_tls(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> bool {
    let peer = peer.to_canonical();
    if !trusted.iter().any(|network| network.contains(&peer)) {
        return false;
    }
    let field = headers.get_all(FORWARDED_PROTO).iter().next_back();
    let nearest = field.and_then(|field| field.as_bytes().rsplit(|b| *b == b',').next());
    nearest.is_some_and(|scheme| scheme.trim_ascii().eq_ignore_ascii_case(b"https"))
}

/// An address, with or without the port that some proxies add.
fn read(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok()?.trim_matches([' ', '\t']);
    let bracketed = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let with_port = || text.parse().ok().map(|address: SocketAddr| address.ip());
    let address: Option<IpAddr> = text.parse().ok().or_else(bracketed).or_else(with_port);
    address.map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(peer: &str, fields: &[&str], trusted: &[&str]) -> String {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(FORWARDED_FOR, field.parse().expect("a value"));
        }
        let trusted: Vec<IpNet> =
            trusted.iter().map(|network| network.parse().expect("a network")).collect();
        address(peer.parse().expect("an address"), &headers, &trusted).to_string()
    }

    const LAN: &[&str] = &["10.0.0.0/8", "fd00::/8"];

    #[test]
    fn the_last_address_that_is_not_trusted_is_the_client() {
        let cases: &[(&str, &[&str], &str)] = &[
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["192.0.2.1"], "192.0.2.1"),
            ("10.0.0.1", &["203.0.113.9, 192.0.2.1"], "192.0.2.1"),
            ("10.0.0.1", &["203.0.113.9, 192.0.2.1 , 10.1.1.1,\t10.2.2.2"], "192.0.2.1"),
            ("10.0.0.1", &["203.0.113.9", "192.0.2.1", "10.1.1.1"], "192.0.2.1"),
            ("10.0.0.1", &["10.3.3.3, 10.1.1.1"], "10.3.3.3"),
            ("10.0.0.1", &["192.0.2.1:4711"], "192.0.2.1"),
            ("10.0.0.1", &["[2001:db8::1]:4711"], "2001:db8::1"),
            ("10.0.0.1", &["[2001:db8::1]"], "2001:db8::1"),
            ("10.0.0.1", &["2001:db8::1, fd00::7"], "2001:db8::1"),
            ("10.0.0.1", &["::ffff:192.0.2.1"], "192.0.2.1"),
            ("::ffff:10.0.0.1", &["192.0.2.1"], "192.0.2.1"),
            ("fd00::1", &["192.0.2.1"], "192.0.2.1"),
            ("10.0.0.1", &["192.0.2.1, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["192.0.2.1, unknown, 10.1.1.1"], "10.1.1.1"),
            ("10.0.0.1", &[""], "10.0.0.1"),
            ("10.0.0.1", &["192.0.2.1,"], "10.0.0.1"),
            ("10.0.0.1", &["192.0.2.1 203.0.113.9"], "10.0.0.1"),
        ];
        for (peer, fields, client) in cases {
            assert_eq!(found(peer, fields, LAN), *client, "{peer} says {fields:?}");
        }
    }

    #[test]
    fn who_has_a_network_of_ipv6_counts_once() {
        for (address, counted) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("2001:db8:1:2::", "2001:db8:1:2::"),
            ("::1", "::"),
        ] {
            let found = network(address.parse().expect("an address"));
            assert_eq!(found.to_string(), counted, "{address}");
        }
        let site = |text: &str| site(text.parse().expect("an address")).to_string();
        assert_eq!(site("192.0.2.200"), "192.0.2.0");
        assert_eq!(site("2001:db8:1:2::1"), "2001:db8:1::", "one customer of a provider");
    }

    #[test]
    fn strangers_are_not_believed() {
        for peer in ["192.0.2.7", "11.0.0.1", "2001:db8::7"] {
            assert_eq!(found(peer, &["203.0.113.9"], LAN), peer);
            assert_eq!(found(peer, &["203.0.113.9"], &[]), peer);
        }
        assert_eq!(found("::ffff:192.0.2.7", &["203.0.113.9"], LAN), "192.0.2.7");
    }

    #[test]
    fn a_trusted_proxy_says_whether_the_client_came_over_tls() {
        let trusted: Vec<IpNet> = vec!["10.0.0.0/8".parse().expect("a network")];
        let cases: &[(&str, &[&str], bool)] = &[
            ("10.0.0.1", &["https"], true),
            ("10.0.0.1", &["HTTPS"], true),
            ("::ffff:10.0.0.1", &["http, https"], true),
            ("10.0.0.1", &["http", "https"], true),
            ("10.0.0.1", &["https, http"], false),
            ("10.0.0.1", &[], false),
            ("192.0.2.1", &["https"], false),
        ];
        for (peer, fields, expected) in cases {
            let mut headers = HeaderMap::new();
            for field in *fields {
                headers.append(FORWARDED_PROTO, field.parse().expect("a value"));
            }
            let field = is_tls(peer.parse().expect("an address"), &headers, &trusted);
            assert_eq!(field, *expected, "{peer} says {fields:?}");
        }
    }
}
