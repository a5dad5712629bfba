//! `NO_PROXY`: what is reached without a proxy.

use std::net::IpAddr;

use ipnet::IpNet;

/// The hosts of a `NO_PROXY`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NoProxy(Vec<DirectHost>);

/// One entry, and its port if it is limited to one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DirectHost {
    hosts: Hosts,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Hosts {
    All,
    /// An address, or those of a network.
    Network(IpNet),
    /// A name and all names below it, in small letters.
    Domain(String),
}

impl NoProxy {
    /// Reads entries with commas or white space between them: names, which stand for all names below
    /// them too, addresses, networks such as `10.0.0.0/8`, and `*` for everything.
    pub(super) fn parse(text: &str) -> Self {
        let words = text.split(|c: char| c == ',' || c.is_whitespace());
        Self(words.filter(|word| !word.is_empty()).map(entry).collect())
    }

    /// True if the host and port are listed.
    pub(super) fn has(&self, host: &str, port: u16) -> bool {
        let address = host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
        // `example.com.` is the same host, fully qualified.
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        self.0.iter().any(|entry| {
            entry.port.is_none_or(|only| only == port)
                && match (&entry.hosts, address) {
                    (Hosts::All, _) => true,
                    (Hosts::Network(network), Some(address)) => network.contains(&address),
                    (Hosts::Domain(domain), None) => {
                        let above = host.strip_suffix(domain.as_str());
                        above.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
                    }
                    // Names are not resolved here: the answer must not depend on DNS.
                    (Hosts::Network(_), None) | (Hosts::Domain(_), Some(_)) => false,
                }
        })
    }
}

fn entry(word: &str) -> DirectHost {
    if let Some(hosts) = network(word) {
        return DirectHost { hosts, port: None };
    }
    let (host, port) = match word.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok()),
        None => (word, None),
    };
    let hosts = network(host).unwrap_or_else(|| {
        let domain = host.trim_start_matches("*.").trim_matches('.').to_ascii_lowercase();
        Hosts::Domain(domain)
    });
    DirectHost { hosts, port }
}

/// `*`, an address or a network.
fn network(text: &str) -> Option<Hosts> {
    if text == "*" {
        return Some(Hosts::All);
    }
    let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = || text.parse::<IpAddr>().ok().map(|address| address.to_canonical().into());
    text.parse().ok().or_else(address).map(Hosts::Network)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_names_with_those_below_addresses_and_networks() {
        for (list, host, is_listed) in [
            ("example.com", "example.com", true),
            ("example.com", "api.example.com", true),
            (".example.com", "example.com", true),
            ("*.example.com", "api.example.com", true),
            ("Example.COM", "API.example.com.", true),
            ("example.com", "badexample.com", false),
            ("*", "anything", true),
            ("*", "10.0.0.1", true),
            ("10.0.0.0/8", "10.2.3.4", true),
            ("10.0.0.0/8", "11.2.3.4", false),
            ("10.0.0.1", "10.0.0.1", true),
            ("10.0.0.1", "10.0.0.10", false),
            ("[::1]", "::1", true),
            ("fd00::/8", "fd00::1", true),
            ("10.0.0.1:443", "10.0.0.1", true),
            ("10.0.0.1:444", "10.0.0.1", false),
            ("[fd00::1]:443", "fd00::1", true),
            ("a, b ,c", "b", true),
            (" , ,", "b", false),
            ("", "b", false),
        ] {
            assert_eq!(NoProxy::parse(list).has(host, 443), is_listed, "{list:?} and {host}");
        }
    }
}
