//! Addresses of names: looked up once in a while instead of once a connection, and put into the order in
//! which they are tried.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use parking_lot::{Mutex, RwLock};

use super::error::Reason;

/// The lifetime of a resolved address. Providers change the addresses of their names with TTLs of about a
/// minute.
const FRESH_FOR: Duration = Duration::from_secs(30);
/// The time that a look-up may take.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// The time for which an address that did not connect is tried last: the lifetime of a lookup.
const FAILED_FOR: Duration = Duration::from_secs(30);
/// Addresses that are remembered to have failed. Operators' upstreams have some dozens.
const FAILED_MAX: usize = 1024;
/// The most addresses of a name that are tried: more do not fit into a time to connect.
const ADDRESSES_MAX: usize = 32;
/// Names that are remembered. Those of customers' receivers come and go.
const NAMES_MAX: usize = 4096;

/// Looks names up: the system does, or a test.
pub trait Resolve: Send + Sync {
    /// The addresses of a name, the preferred one first.
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The system's resolver, which sorts by RFC 6724.
struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// The addresses of one name.
#[derive(Debug)]
pub struct ResolvedName {
    /// Each address once, as the resolver sorted them.
    addresses: Vec<IpAddr>,
    looked_up: Instant,
    /// Over how many of them connections are spread, as of the last connection.
    spread: AtomicUsize,
    /// Counts connections, which are spread over the addresses.
    dials: AtomicUsize,
    /// Number of requests over reused connections.
    reuses: AtomicUsize,
}

impl ResolvedName {
    /// Over how many addresses connections are spread: those of one family that did not fail a moment ago.
    #[must_use]
    pub fn spread(&self) -> usize {
        self.spread.load(Ordering::Relaxed)
    }

    /// True if the address belongs to this name.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address)
    }

    /// A number that counts up with each call, to spread requests over open connections.
    pub fn next_turn(&self) -> usize {
        self.reuses.fetch_add(1, Ordering::Relaxed)
    }
}

/// A cache of DNS look-ups, and of addresses that failed.
pub(super) struct DnsCache {
    resolver: Arc<dyn Resolve>,
    cached: RwLock<HashMap<Box<str>, Arc<ResolvedName>>>,
    failed: Mutex<HashMap<SocketAddr, Instant>>,
}

impl Default for DnsCache {
    fn default() -> Self {
        Self::new(Arc::new(SystemResolver))
    }
}

impl fmt::Debug for DnsCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").field("known", &self.cached.read().len()).finish_non_exhaustive()
    }
}

impl DnsCache {
    pub(super) fn new(resolver: Arc<dyn Resolve>) -> Self {
        Self { resolver, cached: RwLock::default(), failed: Mutex::default() }
    }

    /// The addresses of a name. When a look-up fails, the last good ones serve on.
    pub(super) async fn find(&self, host: &str) -> Result<Arc<ResolvedName>, Reason> {
        let cached = self.cached.read().get(host).cloned();
        match cached {
            Some(name) if name.looked_up.elapsed() < FRESH_FOR => Ok(name),
            // Most requests find the name here, and have no room for a look-up.
            cached => Box::pin(self.look_up(host, cached)).await,
        }
    }

    async fn look_up(
        &self,
        host: &str,
        cached: Option<Arc<ResolvedName>>,
    ) -> Result<Arc<ResolvedName>, Reason> {
        let found = tokio::time::timeout(LOOKUP_TIMEOUT, self.resolver.resolve(host)).await;
        let found = found.map_err(io::Error::from).flatten();
        let mut addresses: Vec<IpAddr> = Vec::new();
        match found {
            Ok(found) => {
                for address in found.into_iter().map(|address| address.to_canonical()) {
                    if !addresses.contains(&address) && addresses.len() < ADDRESSES_MAX {
                        addresses.push(address);
                    }
                }
            }
            Err(error) => return cached.ok_or_else(|| Reason::not_found(&error)),
        }
        if addresses.is_empty() {
            // A resolver in trouble answers so too: old addresses are better than none.
            let none = io::Error::other("it has no address");
            return cached.ok_or_else(|| Reason::not_found(&none));
        }
        let counted = |count: fn(&ResolvedName) -> &AtomicUsize| {
            let before = cached.as_ref().map_or(0, |cached| count(cached).load(Ordering::Relaxed));
            AtomicUsize::new(before)
        };
        let prefers_v6 = addresses.first().is_some_and(IpAddr::is_ipv6);
        let preferred = addresses.iter().filter(|address| address.is_ipv6() == prefers_v6);
        let name = Arc::new(ResolvedName {
            spread: AtomicUsize::new(preferred.count()),
            addresses,
            looked_up: Instant::now(),
            dials: counted(|name| &name.dials),
            reuses: counted(|name| &name.reuses),
        });
        let mut all = self.cached.write();
        // Customers name hosts too: what was not looked up lately goes.
        if all.len() >= NAMES_MAX {
            all.retain(|_, name| name.looked_up.elapsed() < FRESH_FOR);
        }
        all.insert(host.into(), Arc::clone(&name));
        Ok(name)
    }

    /// A name's addresses in the order in which a new connection tries them: each connection begins at
    /// another one of the family that the system prefers, families alternate (RFC 8305 section 4), and
    /// those that failed a moment ago come last.
    pub(super) fn in_order(&self, name: &ResolvedName, port: u16) -> Vec<SocketAddr> {
        let turn = name.dials.fetch_add(1, Ordering::Relaxed);
        let prefers_v6 = name.addresses.first().is_some_and(IpAddr::is_ipv6);
        let failed = self.failed.lock();
        let has_failed =
            |at: &SocketAddr| failed.get(at).is_some_and(|since| since.elapsed() < FAILED_FOR);
        let mut all: Vec<SocketAddr> = Vec::with_capacity(name.addresses.len());
        for is_failed in [false, true] {
            let family = |is_v6: bool| {
                let of_it = name.addresses.iter().filter(|it| it.is_ipv6() == is_v6);
                let of_it = of_it.map(|it| SocketAddr::new(*it, port));
                let mut of_it: Vec<_> = of_it.filter(|at| has_failed(at) == is_failed).collect();
                let by = turn.checked_rem(of_it.len()).unwrap_or(0);
                of_it.rotate_left(by);
                of_it.into_iter()
            };
            let (mut first, mut second) = (family(prefers_v6), family(!prefers_v6));
            loop {
                let (one, other) = (first.next(), second.next());
                if one.is_none() && other.is_none() {
                    break;
                }
                all.extend(one.into_iter().chain(other));
            }
        }
        let of_first =
            |at: &&SocketAddr| Some(at.is_ipv6()) == all.first().map(SocketAddr::is_ipv6);
        let spread = all.iter().filter(of_first).filter(|at| !has_failed(at)).count();
        name.spread.store(spread, Ordering::Relaxed);
        all
    }

    /// Notes that an address did not connect, or was outrun by another one.
    pub(super) fn note_failed(&self, address: SocketAddr) {
        let mut failed = self.failed.lock();
        if failed.len() >= FAILED_MAX {
            failed.retain(|_, since| since.elapsed() < FAILED_FOR);
            if failed.len() >= FAILED_MAX {
                // So many at once are a network that is down: order does not help then.
                return;
            }
        }
        failed.insert(address, Instant::now());
    }

    /// Notes that an address connected.
    pub(super) fn note_connected(&self, address: SocketAddr) {
        self.failed.lock().remove(&address);
    }
}
