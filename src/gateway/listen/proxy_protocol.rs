//! The PROXY protocol, versions 1 and 2: how a load balancer that passes bytes on says whose they
//! are (<https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Signature of a header of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Prefix of a header of version 1.
const V1_PREFIX: &[u8] = b"PROXY ";
/// The longest header of version 1, its line end included: the specification's own figure.
const V1_BYTES_MAX: usize = 107;
/// Length of the fixed part of a header of version 2, in front of the addresses.
const V2_HEAD_BYTES: usize = 16;
/// The longest header of version 2 that is taken. Addresses are 36 bytes; what load balancers add
/// of TLS and of their own clouds stays below 1 KiB.
const V2_BYTES_MAX: usize = 4 * 1024;

/// Result of parsing the first bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyHeader {
    /// An incomplete header.
    Incomplete,
    /// A complete header: its length in bytes, and the client's address. `None` if the header names no client
    /// (a health check, `UNKNOWN`): the peer's address counts.
    Complete(usize, Option<SocketAddr>),
    /// Not a valid PROXY header.
    Invalid,
}

/// Parses the header at the beginning of `bytes`.
pub(crate) fn parse(bytes: &[u8]) -> ProxyHeader {
    let begins = |expected: &[u8]| bytes.iter().zip(expected).all(|(found, byte)| found == byte);
    if begins(SIGNATURE) {
        parse_v2(bytes).unwrap_or(ProxyHeader::Incomplete)
    } else if begins(V1_PREFIX) {
        parse_v1(bytes)
    } else {
        ProxyHeader::Invalid
    }
}

fn parse_v1(bytes: &[u8]) -> ProxyHeader {
    let searched = bytes.get(..V1_BYTES_MAX).unwrap_or(bytes);
    let Some(end) = memchr::memchr(b'\n', searched) else {
        let is_too_long = bytes.len() >= V1_BYTES_MAX;
        return if is_too_long { ProxyHeader::Invalid } else { ProxyHeader::Incomplete };
    };
    let line = searched.get(V1_PREFIX.len()..end).and_then(|line| line.strip_suffix(b"\r"));
    let Some(line) = line.and_then(|line| std::str::from_utf8(line).ok()) else {
        return ProxyHeader::Invalid;
    };
    if line == "UNKNOWN" || line.starts_with("UNKNOWN ") {
        return ProxyHeader::Complete(end + 1, None);
    }
    match v1_source(line) {
        Some(source) => ProxyHeader::Complete(end + 1, Some(source)),
        None => ProxyHeader::Invalid,
    }
}

/// `TCP4 192.0.2.1 198.51.100.1 56324 443`.
fn v1_source(line: &str) -> Option<SocketAddr> {
    let mut words = line.split(' ');
    let family = words.next()?;
    let address = |text: &str| -> Option<IpAddr> {
        match family {
            "TCP4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
            "TCP6" => text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            _ => None,
        }
    };
    let port = |text: &str| -> Option<u16> {
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
        is_plain.then(|| text.parse().ok()).flatten()
    };
    let (source, _destination) = (address(words.next()?)?, address(words.next()?)?);
    let (source_port, _destination_port) = (port(words.next()?)?, port(words.next()?)?);
    words.next().is_none().then(|| SocketAddr::new(source, source_port))
}

/// Parses version 2; `None` while bytes are missing.
fn parse_v2(bytes: &[u8]) -> Option<ProxyHeader> {
    let head: &[u8; V2_HEAD_BYTES] = bytes.get(..V2_HEAD_BYTES)?.try_into().ok()?;
    let [.., version_and_command, family, length_high, length_low] = *head;
    let length = usize::from(u16::from_be_bytes([length_high, length_low]));
    let end = V2_HEAD_BYTES + length;
    if end > V2_BYTES_MAX {
        return Some(ProxyHeader::Invalid);
    }
    let body = bytes.get(V2_HEAD_BYTES..end)?;
    let source = match (version_and_command, family) {
        // LOCAL: the load balancer's own connection, whatever else it says.
        (0x20, _) => Some(None),
        // PROXY, of a client that is not known or not on a network.
        (0x21, 0x00 | 0x31) => Some(None),
        (0x21, 0x11) => v2_source_v4(body).map(Some),
        (0x21, 0x21) => v2_source_v6(body).map(Some),
        _ => None,
    };
    Some(source.map_or(ProxyHeader::Invalid, |source| ProxyHeader::Complete(end, source)))
}

/// Source, destination, both ports.
fn v2_source_v4(body: &[u8]) -> Option<SocketAddr> {
    let address: [u8; 4] = body.get(..4)?.try_into().ok()?;
    let port: [u8; 2] = body.get(..12)?.get(8..10)?.try_into().ok()?;
    Some(SocketAddr::new(Ipv4Addr::from(address).into(), u16::from_be_bytes(port)))
}

fn v2_source_v6(body: &[u8]) -> Option<SocketAddr> {
    let address: [u8; 16] = body.get(..16)?.try_into().ok()?;
    let port: [u8; 2] = body.get(..36)?.get(32..34)?.try_into().ok()?;
    Some(SocketAddr::new(Ipv6Addr::from(address).into(), u16::from_be_bytes(port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v2(version_and_command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).expect("a length").to_be_bytes();
        [SIGNATURE.as_slice(), &[version_and_command, family], &length, body].concat()
    }

    /// 192.0.2.1:56324 to 198.51.100.1:443, and what a load balancer adds.
    const TCP4: &[u8] = &[192, 0, 2, 1, 198, 51, 100, 1, 0xdc, 0x04, 1, 0xbb, 0x03, 0, 1, b'x'];

    fn source() -> Option<SocketAddr> {
        Some("192.0.2.1:56324".parse().expect("an address"))
    }

    fn v6_source() -> Option<SocketAddr> {
        Some("[2001:db8::1]:56324".parse().expect("an address"))
    }

    fn v6_body() -> Vec<u8> {
        let mut body = vec![0; 36];
        body[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        body[15] = 1;
        body[32..34].copy_from_slice(&[0xdc, 0x04]);
        body
    }

    #[test]
    fn headers_of_both_versions_are_read() {
        let text = |line: &str| line.as_bytes().to_vec();
        for (header, client) in [
            (text("PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n"), source()),
            (text("PROXY TCP6 2001:db8::1 2001:db8::2 56324 443\r\n"), v6_source()),
            (text("PROXY UNKNOWN\r\n"), None),
            (text("PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n"), None),
            (v2(0x21, 0x11, TCP4), source()),
            (v2(0x21, 0x21, &v6_body()), v6_source()),
            (v2(0x20, 0x00, &[]), None),
            (v2(0x20, 0x11, TCP4), None),
            (v2(0x21, 0x00, b"any"), None),
            (v2(0x21, 0x31, &[0; 216]), None),
        ] {
            let shown = header.escape_ascii().to_string();
            for cut in 0..header.len() {
                assert_eq!(
                    parse(&header[..cut]),
                    ProxyHeader::Incomplete,
                    "{cut} bytes of {shown}"
                );
            }
            let complete = ProxyHeader::Complete(header.len(), client);
            assert_eq!(parse(&header), complete, "{shown}");
            let followed = [header.as_slice(), b"GET / HTTP/1.1\r\n\r\n"].concat();
            assert_eq!(parse(&followed), complete, "{shown}, and what follows");
        }
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let text = |line: &str| line.as_bytes().to_vec();
        for header in [
            text("GET / HTTP/1.1\r\n\r\n"),
            text("\x16\x03\x01"),
            text("PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\n"),
            text("PROXY TCP4 192.0.2.1 198.51.100.1 56324\r\n"),
            text("PROXY TCP4 192.0.2.1 198.51.100.1 56324 443 1\r\n"),
            text("PROXY TCP4 192.0.2.1 198.51.100.1 +1 443\r\n"),
            text("PROXY TCP4 192.0.2.1 198.51.100.1 65536 443\r\n"),
            text("PROXY TCP4 2001:db8::1 2001:db8::2 1 443\r\n"),
            text("PROXY TCP4  192.0.2.1 198.51.100.1 1 443\r\n"),
            text("PROXY tcp4 192.0.2.1 198.51.100.1 1 443\r\n"),
            text("PROXY UNKNOWNS\r\n"),
            text(&format!("PROXY UNKNOWN {}\r\n", "x".repeat(V1_BYTES_MAX))),
            v2(0x11, 0x11, TCP4),
            v2(0x22, 0x11, TCP4),
            v2(0x21, 0x12, TCP4),
            v2(0x21, 0x11, &TCP4[..11]),
            v2(0x21, 0x21, TCP4),
            v2(0x21, 0x11, &vec![0; V2_BYTES_MAX]),
        ] {
            assert_eq!(parse(&header), ProxyHeader::Invalid, "{}", header.escape_ascii());
        }
    }
}
