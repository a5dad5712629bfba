//! Open connections of clients: their bounds, in all and for one address, and the choice of the one that is
//! closed for a new one.
//!
//! No request takes the lock of the table: a connection has its own word of state ([`ConnectionState`]), and
//! the table is locked when one opens or closes.

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
use crate::config::snapshot::{IntakeLimits, Snapshot};
use crate::forwarded as client;
use crate::gateway::listen::descriptors::Descriptors;
use crate::metrics::{ConnectionShed, Metrics};

use entries::ConnectionEntries;
pub(crate) use state::ConnectionState;
pub(crate) use streams::{StreamSlot, Streams, stream_bytes};

/// Time that a new connection waits for another one to close: that takes microseconds, unless the machine is
/// overloaded.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(100);

/// Time for which a connection does not give way to one from elsewhere: in it the first request can be read and
/// its key checked, or the first message of a WebSocket can arrive. Without it, a flood of connections closes
/// those of customers that have just come, before anybody has looked at them.
const GRACE: Duration = Duration::from_millis(50);
/// Time after which it is looked again whether anybody can give way.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Divisor of the process's memory: the share for connections, and the same for streams.
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
    /// Number of connections with a request in flight.
    pub(crate) connections: usize,
    /// Memory that streams over HTTP/2 take, in bytes.
    pub(crate) stream_bytes: usize,
}

/// Table of open client connections.
pub(crate) struct ConnectionTable {
    table: Mutex<ConnectionEntries>,
    freed: Notify,
    count: Arc<AtomicUsize>,
    streams: Arc<Streams>,
    descriptors: Descriptors,
    source: Option<(Arc<ConfigHandle>, Arc<Metrics>)>,
}

/// A connection's entry in the table, removed on drop. It outlives the socket.
pub(crate) struct OpenConnection {
    open: Arc<ConnectionTable>,
    index: usize,
    state: Arc<ConnectionState>,
}

/// Decision about a connection in the kernel's accept queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AcceptDecision {
    /// The connection may be served.
    Admitted,
    /// Another one is being closed for it.
    Wait,
    /// No connection can be closed for it.
    Full,
}

impl ConnectionTable {
    /// An empty table. `count` is kept at the number of connections.
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

    /// An empty table without bounds.
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

    /// Adds a connection. `peer` is the client, unless `is_proxied`.
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
            table.opened(&peer);
        }
        let state = Arc::new(ConnectionState::new(network, metrics));
        let index = table.add(Arc::clone(&state));
        drop(table);
        // It counts as open from here on, so the next one in the queue can be decided about.
        self.freed.notify_one();
        OpenConnection { open: Arc::clone(self), index, state }
    }

    /// Sets the client's address from a PROXY header. False if that address has too many connections and none
    /// of them can be closed.
    pub(crate) fn set_address(
        self: &Arc<Self>,
        ticket: &mut OpenConnection,
        address: IpAddr,
    ) -> bool {
        let (Some(network), Some(bounds)) = (self.network(address), self.bounds()) else {
            return true;
        };
        let mut table = self.table.lock();
        if !self.has_room_at(&mut table, network, bounds) {
            self.shed(ConnectionShed::AddressFull);
            return false;
        }
        // The entry from before the PROXY header, without an address, is replaced by one with it.
        ticket.state.set_closed();
        table.remove(ticket.index);
        let metrics = self.source.as_ref().map(|(_, metrics)| Arc::clone(metrics));
        ticket.state = Arc::new(ConnectionState::new(Some(network), metrics));
        ticket.index = table.add(Arc::clone(&ticket.state));
        true
    }

    /// The bounds of which an account has a share.
    pub(crate) fn shared_bounds(&self, limits: &IntakeLimits) -> SharedBounds {
        let connections = self.connections_max(limits);
        SharedBounds { connections, stream_bytes: self.streams.bytes_max() }
    }

    /// Maximum number of upstream calls, including abandoned ones, from the remaining descriptors and the
    /// share of memory.
    pub(crate) fn upstream_calls_max(&self, limits: &IntakeLimits) -> usize {
        let default = || fitting(limits.memory_bytes, UPSTREAM_CALL_BYTES);
        limits.upstream_calls_max.unwrap_or_else(default).min(self.descriptors.upstream_calls())
    }

    fn connections_max(&self, limits: &IntakeLimits) -> usize {
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

    /// Network under which `address` is counted; `None` for trusted proxies, which represent many clients.
    fn network(&self, address: IpAddr) -> Option<IpAddr> {
        let (config, _) = self.source.as_ref()?;
        let snapshot: Arc<Snapshot> = config.load();
        let address = address.to_canonical();
        let is_proxy = snapshot.trusted_proxies.iter().any(|network| network.contains(&address));
        (!is_proxy).then(|| client::network(address))
    }

    fn admit(&self, peer: Option<&SocketAddr>, is_proxied: bool) -> AcceptDecision {
        let Some(bounds) = self.bounds() else { return AcceptDecision::Admitted };
        let network = peer.filter(|_| !is_proxied).and_then(|peer| self.network(peer.ip()));
        let mut table = self.table.lock();
        if let Some(network) = network
            && !self.has_room_at(&mut table, network, bounds)
        {
            return self.none_can_close(&table, ConnectionShed::AddressFull);
        }
        if table.is_full(bounds.all) {
            // One is being closed already, and its descriptor is enough for this connection.
            if table.closing > 0 {
                return AcceptDecision::Wait;
            }
            if !table.close_one(None, bounds.all) {
                return self.none_can_close(&table, ConnectionShed::Full);
            }
            self.shed(ConnectionShed::GaveWay);
            return AcceptDecision::Wait;
        }
        if let Some(peer) = peer {
            table.pending.insert(*peer, (network, Instant::now()));
        }
        AcceptDecision::Admitted
    }

    /// True if the network may have one more connection; if necessary, one of its own is closed.
    fn has_room_at(&self, table: &mut ConnectionEntries, network: IpAddr, bounds: Bounds) -> bool {
        let pending = |table: &ConnectionEntries| {
            table.pending.values().filter(|(at, _)| *at == Some(network)).count()
        };
        let here = table.addresses.get(&network).map_or(0, |address| address.count);
        // Those about to come are looked for only where they could matter.
        if here + table.pending.len() < bounds.of_address {
            return true;
        }
        table.forget_failed();
        if here + pending(table) < bounds.of_address {
            return true;
        }
        let has_room = table.close_one(Some(network), bounds.of_address);
        if has_room {
            self.shed(ConnectionShed::AddressGaveWay);
        }
        has_room
    }

    /// No connection can be closed now. Pending ones can be closed once they are open, and new ones after
    /// their grace period.
    fn none_can_close(&self, table: &ConnectionEntries, reason: ConnectionShed) -> AcceptDecision {
        if !table.pending.is_empty() || table.is_grace_pending {
            return AcceptDecision::Wait;
        }
        self.shed(reason);
        AcceptDecision::Full
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
    pub(crate) fn state(&self) -> &Arc<ConnectionState> {
        &self.state
    }

    /// Waits until the connection has to close.
    pub(crate) async fn close_requested(&self) {
        self.state.close_requested().await;
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.state.set_closed();
        self.open.table.lock().remove(self.index);
        self.open.count.fetch_sub(1, Ordering::Relaxed);
        if let Some((_, metrics)) = &self.open.source {
            metrics.connection_end();
        }
        self.open.freed.notify_one();
    }
}

/// Decides about connections as they are accepted: at the bound, a new one waits in the kernel's queue until
/// another has closed, so there is never one descriptor more.
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
                match self.open.admit(peer, self.is_proxied) {
                    AcceptDecision::Admitted => return true,
                    AcceptDecision::Full => return false,
                    AcceptDecision::Wait => {
                        let _freed =
                            tokio::time::timeout(LOOK_AGAIN, self.open.freed.notified()).await;
                    }
                }
            }
        };
        let admitted = tokio::time::timeout(CLOSE_TIMEOUT, admitted).await;
        admitted.unwrap_or_else(|_| {
            self.open.shed(ConnectionShed::Full);
            false
        })
    }
}

#[cfg(test)]
mod tests;
