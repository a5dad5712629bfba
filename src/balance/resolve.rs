//! Addresses of upstreams, looked up once in a while instead of once a request.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use parking_lot::RwLock;

/// How long a looked-up address is used. Providers move behind names with TTLs of about a minute.
const FRESH_FOR: Duration = Duration::from_secs(30);
/// The time that a look-up may take.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// A cache of DNS look-ups.
#[derive(Debug, Default)]
pub struct Addresses {
    known: RwLock<HashMap<(String, u16), Known>>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    address: SocketAddr,
    looked_up: Instant,
}

impl Addresses {
    /// An address of `host`. When a look-up fails, the last good address serves on.
    ///
    /// # Errors
    /// When the name has never been found.
    pub async fn find(&self, host: &str, port: u16) -> io::Result<SocketAddr> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(SocketAddr::new(ip, port));
        }
        let key = (host.to_owned(), port);
        let known = self.known.read().get(&key).copied();
        if let Some(known) = known.filter(|known| known.looked_up.elapsed() < FRESH_FOR) {
            return Ok(known.address);
        }
        let lookup = tokio::time::timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host((host, port)));
        let found = lookup.await.map_err(io::Error::from).flatten();
        let address = match found.map(|mut addresses| addresses.next()) {
            Ok(Some(address)) => address,
            Ok(None) => return Err(io::ErrorKind::AddrNotAvailable.into()),
            Err(error) => return known.map(|known| known.address).ok_or(error),
        };
        self.known.write().insert(key, Known { address, looked_up: Instant::now() });
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_need_no_look_up_and_names_are_remembered() {
        let addresses = Addresses::default();
        let literal = addresses.find("127.0.0.1", 80).await.expect("literal");
        assert_eq!(literal, "127.0.0.1:80".parse().expect("address"));
        assert!(addresses.known.read().is_empty(), "a literal is not cached");
        let named = addresses.find("localhost", 81).await.expect("localhost");
        assert!(named.ip().is_loopback() && addresses.known.read().len() == 1);
    }
}
