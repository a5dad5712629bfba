//! Customers' connections that are open: how many there may be, in all and from one address, and who
//! gives way to whoever comes when there are as many.
//!
//! Nothing of this is asked for during a request: a connection has one word of its own
//! ([`ConnectionState`]), and the list of all is locked when one comes or goes.

mod state;
mod streams;
mod entries;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use pingora::listeners::ConnectionFilter;
use tokio::sync::Notify;

use crate::config::ConfigHandle;
use crate::config::snapshot::{Limits, Snapshot};
use crate::forwarded as client;
use crate::gateway::listen::descriptors::Descriptors;
use crate::metrics::{ConnectionShed, Metrics};

use entries::ConnectionEntries;
pub(crate) use state::ConnectionState;
pub(crate) use streams::{StreamSlot, Streams, stream_bytes};

/// Time that a newcomer waits for another connection to close: that takes microseconds, unless the machine is
/// overloaded.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(100);

/// Time for which a connection does not give way to one from elsewhere: in it the first request can be read and
/// its key checked, or the first message of a WebSocket can arrive. Without it, a flood of connections closes
/// those of customers that have just come, before anybody has looked at them.
const GRACE: Duration = Duration::from_millis(50);
/// Time after which it is looked again whether anybody can give way.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Part of the process's memory for connections, and the same for streams: one in so many.
const MEMORY_SHARE: u64 = 8;
/// Memory of a call to an upstream, beside bodies: an abandoned one over plain TCP was measured to take
/// 43 KiB, and the call of an MCP tool several times that.
const UPSTREAM_CALL_BYTES: u64 = 64 * 1024;
/// Memory of a connection before its first request: measured, 20 KiB.
const CONNECTION_BYTES: u64 = 20 * 1024;

/// Largest numbers of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    all: usize,
    of_address: usize,
}

/// Bounds of which an account has a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SharedBounds {
    /// Connections with a request under way.
    pub(crate) connections: usize,
    /// Memory that streams over HTTP/2 take, in bytes.
    pub(crate) stream_bytes: usize,
}

/// The connections that are open.
pub(crate) struct ConnectionTable {
    table: Mutex<ConnectionEntries>,
    freed: Notify,
    count: Arc<AtomicUsize>,
    streams: Arc<Streams>,
    descriptors: Descriptors,
    source: Option<(Arc<ConfigHandle>, Arc<Metrics>)>,
}

/// A connection's place among them, given back on drop. It outlives the socket.
pub(crate) struct OpenConnection {
    open: Arc<ConnectionTable>,
    index: usize,
    member: Arc<ConnectionState>,
}

/// Decision about a connection in the kernel's accept queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    /// The connection may be served.
    Admitted,
    /// Somebody gives way, and is not gone yet.
    Wait,
    /// Nobody can give way.
    Full,
}

impl ConnectionTable {
    /// None yet. `count` is kept at their number.
    pub(crate) fn new(
        descriptors: Descriptors,
        count: Arc<AtomicUsize>,
        config: Arc<ConfigHandle>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let open = Self::with(descriptors, count, Some((config, metrics)));
        if let Some((config, metrics)) = &open.source {
            let limits = &config.load().limits;
            metrics.connections_max(open.connections_max(limits));
            metrics.upstream_calls_max(open.upstream_calls_max(limits));
        }
        open
    }

    /// None yet, and there may be any number of them.
    #[cfg(test)]
    pub(crate) fn without_bounds(count: Arc<AtomicUsize>) -> Self {
        Self::with(Descriptors::from_limit(1024), count, None)
    }

    fn with(
        descriptors: Descriptors,
        count: Arc<AtomicUsize>,
        source: Option<(Arc<ConfigHandle>, Arc<Metrics>)>,
    ) -> Self {
        let metrics = source.as_ref().map(|(_, metrics)| Arc::clone(metrics));
        let memory = source.as_ref().and_then(|(config, _)| config.load().limits.memory_bytes);
        let streams_max = descriptors.streams.min(fitting(memory, streams::STREAM_BYTES as u64));
        let streams = Arc::new(Streams::new(streams_max, metrics));
        let table = ConnectionEntries { grace: GRACE, ..ConnectionEntries::default() };
        let (table, freed) = (Mutex::new(table), Notify::new());
        Self { table, freed, count, streams, descriptors, source }
    }

    /// The streams of all of them.
    pub(crate) fn streams(&self) -> &Arc<Streams> {
        &self.streams
    }

    /// Connection filter of a listener. With a PROXY header (`is_proxied`) the client's address is unknown
    /// before that is read.
    pub(crate) fn filter(self: &Arc<Self>, is_proxied: bool) -> Arc<dyn ConnectionFilter> {
        Arc::new(Filter { open: Arc::clone(self), is_proxied })
    }

    /// A connection begins. `peer` is whoever connected, and whose it is unless `is_proxied`.
    pub(crate) fn register(
        self: &Arc<Self>,
        peer: Option<SocketAddr>,
        is_proxied: bool,
    ) -> OpenConnection {
        let metrics = self.source.as_ref().map(|(_, metrics)| Arc::clone(metrics));
        self.count.fetch_add(1, Ordering::Relaxed);
        if let Some(metrics) = &metrics {
            metrics.connection_begin();
        }
        let network = peer.filter(|_| !is_proxied).and_then(|peer| self.network(peer.ip()));
        let mut table = self.table.lock();
        if let Some(peer) = peer {
            // From here on it counts as open, and not as about to come any more.
            table.arrived(&peer);
        }
        let member = Arc::new(ConnectionState::new(network, metrics));
        let index = table.add(Arc::clone(&member));
        drop(table);
        // Whoever waits may have waited for this one, to take its place.
        self.freed.notify_one();
        OpenConnection { open: Arc::clone(self), index, member }
    }

    /// It is told whose a connection is: false when that address has too many and none of them can
    /// give way.
    pub(crate) fn tell(self: &Arc<Self>, ticket: &mut OpenConnection, address: IpAddr) -> bool {
        let (Some(network), Some(bounds)) = (self.network(address), self.bounds()) else {
            return true;
        };
        let mut table = self.table.lock();
        if !self.has_room_at(&mut table, network, bounds) {
            self.shed(ConnectionShed::AddressFull);
            return false;
        }
        // The entry from before the PROXY header, without an address, is replaced by one with it.
        ticket.member.set_closed();
        table.remove(ticket.index);
        let metrics = self.source.as_ref().map(|(_, metrics)| Arc::clone(metrics));
        ticket.member = Arc::new(ConnectionState::new(Some(network), metrics));
        ticket.index = table.add(Arc::clone(&ticket.member));
        true
    }

    /// The bounds of which an account has a share.
    pub(crate) fn shared_bounds(&self, limits: &Limits) -> SharedBounds {
        let connections = self.connections_max(limits);
        SharedBounds { connections, stream_bytes: self.streams.bytes_max() }
    }

    /// Largest number of calls to upstreams at one time, abandoned ones included: bounded by the descriptors
    /// that are left for them and by their part of the memory.
    pub(crate) fn upstream_calls_max(&self, limits: &Limits) -> usize {
        let default = || fitting(limits.memory_bytes, UPSTREAM_CALL_BYTES);
        limits.upstream_calls_max.unwrap_or_else(default).min(self.descriptors.upstream_calls())
    }

    fn connections_max(&self, limits: &Limits) -> usize {
        let default = || fitting(limits.memory_bytes, CONNECTION_BYTES);
        limits.connections_max.unwrap_or_else(default).min(self.descriptors.customers)
    }

    fn bounds(&self) -> Option<Bounds> {
        let (config, _) = self.source.as_ref()?;
        let limits = &config.load().limits;
        let all = self.connections_max(limits);
        let of_address = limits.connections_per_address_max.unwrap_or((all / 2).max(1));
        Some(Bounds { all, of_address })
    }

    /// Network by which `address` is counted; `None` for trusted proxies, which stand for many clients.
    fn network(&self, address: IpAddr) -> Option<IpAddr> {
        let (config, _) = self.source.as_ref()?;
        let snapshot: Arc<Snapshot> = config.load();
        let address = address.to_canonical();
        let is_proxy = snapshot.trusted_proxies.iter().any(|network| network.contains(&address));
        (!is_proxy).then(|| client::network(address))
    }

    fn arrive(&self, peer: Option<&SocketAddr>, is_proxied: bool) -> Arrival {
        let Some(bounds) = self.bounds() else { return Arrival::Admitted };
        let network = peer.filter(|_| !is_proxied).and_then(|peer| self.network(peer.ip()));
        let mut table = self.table.lock();
        if let Some(network) = network
            && !self.has_room_at(&mut table, network, bounds)
        {
            return self.nobody_leaves(&table, ConnectionShed::AddressFull);
        }
        if table.is_full(bounds.all) {
            // One is being closed already, and its descriptor is enough for this connection.
            if table.leaving > 0 {
                return Arrival::Wait;
            }
            if !table.one_gives_way(None, bounds.all) {
                return self.nobody_leaves(&table, ConnectionShed::Full);
            }
            self.shed(ConnectionShed::GaveWay);
            return Arrival::Wait;
        }
        if let Some(peer) = peer {
            table.arriving.insert(*peer, (network, Instant::now()));
        }
        Arrival::Admitted
    }

    /// True if the network may have one more connection; if need be, one of its own is closed for it.
    fn has_room_at(&self, table: &mut ConnectionEntries, network: IpAddr, bounds: Bounds) -> bool {
        let arriving = |table: &ConnectionEntries| {
            table.arriving.values().filter(|(at, _)| *at == Some(network)).count()
        };
        let here = table.addresses.get(&network).map_or(0, |address| address.count);
        // Those about to come are looked for only where they could matter.
        if here + table.arriving.len() < bounds.of_address {
            return true;
        }
        table.forget_lost();
        if here + arriving(table) < bounds.of_address {
            return true;
        }
        let gives_way = table.one_gives_way(Some(network), bounds.of_address);
        if gives_way {
            self.shed(ConnectionShed::AddressGaveWay);
        }
        gives_way
    }

    /// Nobody can give way. Those about to come could, once they are here, and new ones after their grace.
    fn nobody_leaves(&self, table: &ConnectionEntries, reason: ConnectionShed) -> Arrival {
        if !table.arriving.is_empty() || table.is_grace_pending {
            return Arrival::Wait;
        }
        self.shed(reason);
        Arrival::Full
    }

    fn shed(&self, reason: ConnectionShed) {
        if let Some((_, metrics)) = &self.source {
            metrics.connection_shed(reason);
        }
    }
}

/// Number of items of `each_bytes` that fit into their part of the memory; no bound where the memory is
/// unknown.
fn fitting(memory: Option<u64>, each_bytes: u64) -> usize {
    let count = memory.map(|memory| (memory / MEMORY_SHARE / each_bytes).max(1));
    count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX)
}

impl OpenConnection {
    /// The connection, as others see it.
    pub(crate) fn member(&self) -> &Arc<ConnectionState> {
        &self.member
    }

    /// Ends when the connection has to give way.
    pub(crate) async fn close_requested(&self) {
        self.member.close_requested().await;
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.member.set_closed();
        self.open.table.lock().remove(self.index);
        self.open.count.fetch_sub(1, Ordering::Relaxed);
        if let Some((_, metrics)) = &self.open.source {
            metrics.connection_end();
        }
        self.open.freed.notify_one();
    }
}

/// Decides about connections as they are accepted: whoever comes when there are as many as may be waits
/// in the kernel's queue until one has given way, so there is never a descriptor more.
struct Filter {
    open: Arc<ConnectionTable>,
    is_proxied: bool,
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filter").field("is_proxied", &self.is_proxied).finish_non_exhaustive()
    }
}

#[async_trait]
impl ConnectionFilter for Filter {
    async fn should_accept(&self, peer: Option<&SocketAddr>) -> bool {
        let admitted = async {
            loop {
                match self.open.arrive(peer, self.is_proxied) {
                    Arrival::Admitted => return true,
                    Arrival::Full => return false,
                    Arrival::Wait => {
                        let _freed =
                            tokio::time::timeout(LOOK_AGAIN, self.open.freed.notified()).await;
                    }
                }
            }
        };
        let admitted = tokio::time::timeout(LEAVE_TIMEOUT, admitted).await;
        admitted.unwrap_or_else(|_| {
            self.open.shed(ConnectionShed::Full);
            false
        })
    }
}

#[cfg(test)]
mod tests;
