//! Connections to upstreams: made by Pingora's connector, and kept here while they are unused.
//!
//! Pingora's own pool watches each connection that it keeps with a task, which is made and ended with
//! every request. Here all of them are looked at once a second, and each when it is taken.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use parking_lot::Mutex;
use pingora::protocols::Stream;
use tokio::io::AsyncReadExt;
use tollgate_options::network::Destination;
use tollgate_outbound::{DialError, LocalResource, ResolvedName};

use crate::config::snapshot::Upstream;
use crate::gateway::upstream::client::UpstreamCall;
use crate::gateway::upstream::connectors::{Connectors, DialedStream};
use crate::gateway::wire::reused_timer::ReusedTimer;

/// Margin before an upstream's declared idle time at which a connection is closed: a request that crosses
/// with the upstream's close must be sent again.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_secs(1);
/// One in so many requests to a name with several addresses opens a new connection, while an address has
/// none. A lower value would connect a quiet provider for almost every call; without it, all calls would stay
/// on the first pod.
const SPREAD_EVERY: usize = 8;
/// Interval of checks of unused connections.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The connections to all upstreams.
pub(crate) struct UpstreamPool {
    connectors: Arc<Connectors>,
    idle: Arc<Idle>,
}

/// A connection to an upstream.
pub(super) struct UpstreamConnection {
    pub(super) stream: Stream,
    pub(super) timer: ReusedTimer,
    pub(super) target: ConnectionTarget,
    /// The connection has served a request.
    pub(super) is_reused: bool,
    /// Bytes written to a plain connection, beginning with those that were acknowledged when it was made;
    /// `None` if it is encrypted.
    pub(super) written: Option<u64>,
}

/// The key under which connections are interchangeable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConnectionTarget {
    destination: Arc<Destination>,
    /// Remote address: the proxy's, if one is used.
    address: SocketAddr,
}

impl UpstreamPool {
    /// An empty pool that keeps at most `idle_max` idle connections over all upstreams.
    pub(crate) fn new(connectors: Arc<Connectors>, idle_max: usize) -> Self {
        Self { connectors, idle: Arc::new(Idle { max: idle_max, kept: Mutex::default() }) }
    }

    /// A connection for one request: an idle one, unless it must be `fresh`, or a new one.
    ///
    /// # Errors
    /// What keeps it from being made. Nothing was sent.
    pub(crate) async fn connect(
        &self,
        upstream: &Arc<Upstream>,
        fresh: bool,
    ) -> Result<Box<UpstreamCall>, DialError> {
        let to = &upstream.destination;
        let name = self.connectors.addresses_of(to).await?;
        let kept = if fresh { None } else { self.idle.take(to, name.as_deref()) };
        let connection = match kept {
            Some(kept) => kept,
            // Making one takes a large future, which most requests do without.
            None => Box::pin(self.make_with_room(upstream)).await?,
        };
        // Boxed: it is large, and moved from step to step.
        Ok(Box::new(UpstreamCall::new(connection, Arc::clone(upstream))))
    }

    /// Opens a connection. If no descriptor is left, an idle connection is closed first.
    async fn make_with_room(&self, upstream: &Upstream) -> Result<UpstreamConnection, DialError> {
        match self.make(upstream).await {
            Err(error)
                if error.exhausted() == Some(LocalResource::Descriptors)
                    && self.idle.close_oldest() =>
            {
                self.make(upstream).await
            }
            made => made,
        }
    }

    async fn make(&self, upstream: &Upstream) -> Result<UpstreamConnection, DialError> {
        let DialedStream { stream, address } = self.connectors.connect(upstream).await?;
        let destination = Arc::clone(&upstream.destination);
        // Compared with later counts, it tells whether a request has arrived. Over TLS more is sent than was
        // written.
        let written = acked(&stream).filter(|_| !destination.is_encrypted());
        let target = ConnectionTarget { destination, address };
        Ok(UpstreamConnection {
            stream,
            timer: ReusedTimer::default(),
            target,
            is_reused: false,
            written,
        })
    }

    /// Keeps the connection for another request, if its answer ended in order.
    pub(crate) fn release(&self, call: Box<UpstreamCall>) {
        if let Some((connection, idle_timeout)) = call.into_kept() {
            self.idle.keep(connection, idle_timeout);
        }
    }
}

/// Time to keep a connection that an upstream keeps for `keep_alive`.
pub(super) fn kept_for(keep_alive: Duration) -> Duration {
    keep_alive.saturating_sub(KEEP_ALIVE_MARGIN.min(keep_alive / 2))
}

/// Number of bytes that the peer has acknowledged.
pub(super) fn acked(stream: &Stream) -> Option<u64> {
    Some(stream.get_socket_digest()?.tcp_info()?.tcpi_bytes_acked)
}

/// Idle connections of one target.
struct Idle {
    max: usize,
    kept: Mutex<UnusedByTarget>,
}

#[derive(Default)]
struct UnusedByTarget {
    /// Idle connections by target, at most some dozens.
    groups: Vec<Group>,
    count: usize,
    /// True while a task checks them.
    is_watched: bool,
}

struct Group {
    target: ConnectionTarget,
    /// Idle connections, the most recently used last.
    connections: Vec<IdleConnection>,
}

struct IdleConnection {
    connection: UpstreamConnection,
    until: Instant,
}

impl Idle {
    /// Takes an open connection to a current address of the destination. Addresses are used in turn; per
    /// address the most recently used connection is taken, so that the others expire.
    fn take(
        &self,
        to: &Arc<Destination>,
        name: Option<&ResolvedName>,
    ) -> Option<UpstreamConnection> {
        loop {
            let mut connection = self.kept.lock().take(to, name)?;
            if is_open(&mut connection.stream) {
                connection.is_reused = true;
                return Some(connection);
            }
        }
    }

    /// Closes the connection that has been idle longest; false if there is none.
    fn close_oldest(&self) -> bool {
        let oldest = self.kept.lock().give_up_oldest();
        oldest.is_some()
    }

    fn keep(self: &Arc<Self>, connection: UpstreamConnection, idle_timeout: Duration) {
        if self.max == 0 || idle_timeout.is_zero() {
            return;
        }
        let mut kept = self.kept.lock();
        // The oldest goes: a connection that was just used is the likeliest to be open.
        let given_up = if kept.count >= self.max { kept.give_up_oldest() } else { None };
        kept.add(IdleConnection { connection, until: Instant::now() + idle_timeout });
        let is_watched = std::mem::replace(&mut kept.is_watched, true);
        drop(kept);
        // Closing takes a system call, and the lock is every request's.
        drop(given_up);
        if !is_watched {
            tokio::spawn(watch(Arc::downgrade(self)));
        }
    }
}

impl UnusedByTarget {
    fn take(
        &mut self,
        to: &Arc<Destination>,
        name: Option<&ResolvedName>,
    ) -> Option<UpstreamConnection> {
        let leads_there = |group: &Group| {
            let ConnectionTarget { destination, address } = &group.target;
            !group.connections.is_empty()
                && (Arc::ptr_eq(destination, to) || destination == to)
                && name.is_none_or(|name| name.has(address.ip()))
        };
        let turn = match name.filter(|name| name.spread() > 1) {
            None => 0,
            Some(name) => {
                let open = self.groups.iter().filter(|group| leads_there(group)).count();
                let turn = name.next_turn();
                if open < name.spread() && turn % SPREAD_EVERY == SPREAD_EVERY - 1 {
                    return None;
                }
                turn.checked_rem(open)?
            }
        };
        let group = self.groups.iter_mut().filter(|group| leads_there(group)).nth(turn)?;
        // `watch` looks once a second, and the upstream may close a connection at its time.
        let is_due = |unused: &mut IdleConnection| unused.until > Instant::now();
        let unused = group.connections.pop_if(is_due)?;
        self.count -= 1;
        Some(unused.connection)
    }

    fn add(&mut self, unused: IdleConnection) {
        self.count += 1;
        let target = &unused.connection.target;
        match self.groups.iter_mut().find(|group| group.target == *target) {
            Some(group) => group.connections.push(unused),
            None => {
                let target = target.clone();
                self.groups.push(Group { target, connections: vec![unused] });
            }
        }
    }

    /// Removes the connection that has been idle longest.
    fn give_up_oldest(&mut self) -> Option<IdleConnection> {
        let with_one = self.groups.iter_mut().filter(|group| !group.connections.is_empty());
        let oldest = with_one.min_by_key(|group| group.connections.first().map(|it| it.until))?;
        self.count -= 1;
        Some(oldest.connections.remove(0))
    }

    /// Removes closed connections and those that were idle for too long.
    fn take_ended(&mut self, now: Instant) -> Vec<IdleConnection> {
        let mut ended = Vec::new();
        for group in &mut self.groups {
            let is_ended =
                |it: &mut IdleConnection| it.until <= now || !is_open(&mut it.connection.stream);
            ended.extend(group.connections.extract_if(.., is_ended));
        }
        self.groups.retain(|group| !group.connections.is_empty());
        self.count -= ended.len();
        ended
    }
}

/// Looks at unused connections for as long as there are any.
async fn watch(idle: std::sync::Weak<Idle>) {
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let Some(idle) = idle.upgrade() else { return };
        let mut kept = idle.kept.lock();
        let ended = kept.take_ended(Instant::now());
        kept.is_watched = kept.count > 0;
        let is_done = !kept.is_watched;
        drop(kept);
        drop(ended);
        if is_done {
            return;
        }
    }
}

/// True if an idle connection is open and nothing has arrived. Costs a system call only after an event.
fn is_open(stream: &mut Stream) -> bool {
    stream.read(&mut [0]).now_or_never().is_none()
}

#[cfg(test)]
impl UpstreamConnection {
    /// A new connection over `stream`, as if it led to the sample upstream at `address`.
    pub(super) fn over(stream: Stream, address: SocketAddr) -> Self {
        let destination = crate::balance::sample::upstream().destination;
        let target = ConnectionTarget { destination, address };
        let timer = ReusedTimer::default();
        Self { stream, timer, target, is_reused: false, written: None }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, DuplexStream};

    use super::*;
    use crate::balance::sample;

    const IDLE_TIMEOUT: Duration = Duration::from_secs(50);

    fn connection(port: u16) -> (UpstreamConnection, DuplexStream) {
        let (own, other) = tokio::io::duplex(64);
        (UpstreamConnection::over(Box::new(own), at(port)), other)
    }

    fn idle(max: usize) -> Arc<Idle> {
        Arc::new(Idle { max, kept: Mutex::default() })
    }

    fn at(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn paused() -> tokio::runtime::Runtime {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().expect("a runtime")
    }

    /// The sample upstream's destination, as far as `change` leaves it.
    fn destination(change: impl FnOnce(&mut Destination)) -> Arc<Destination> {
        let mut destination = (*sample::upstream().destination).clone();
        change(&mut destination);
        Arc::new(destination)
    }

    #[test]
    fn a_connection_is_taken_for_its_own_target_and_once() {
        paused().block_on(async {
            let idle = idle(8);
            let (one, _other) = connection(1);
            idle.keep(one, IDLE_TIMEOUT);
            let proxy = tollgate_options::network::Proxy::parse("http://proxy:1");
            let proxy = proxy.ok().map(Arc::new);
            for other in [
                destination(|to| to.port += 1),
                destination(|to| to.host = "elsewhere".into()),
                destination(|to| to.tls = Some(tollgate_options::network::ClientTls::default())),
                destination(|to| to.proxy = proxy.clone()),
            ] {
                assert!(idle.take(&other, None).is_none(), "{other:?}");
            }
            let own = destination(|_| {});
            assert!(idle.take(&own, None).is_some_and(|taken| taken.is_reused));
            assert!(idle.take(&own, None).is_none());
        });
    }

    #[test]
    fn a_connection_is_given_up_before_the_upstream_closes_it() {
        for (keep_alive, kept) in
            [(5000, 4000), (75_000, 74_000), (2000, 1000), (1000, 500), (0, 0)]
        {
            assert_eq!(kept_for(Duration::from_millis(keep_alive)), Duration::from_millis(kept));
        }
    }

    #[test]
    fn what_is_closed_or_has_sent_something_is_not_taken() {
        paused().block_on(async {
            let idle = idle(8);
            let (closed, other) = connection(1);
            idle.keep(closed, IDLE_TIMEOUT);
            drop(other);
            let (odd, mut other) = connection(1);
            idle.keep(odd, IDLE_TIMEOUT);
            other.write_all(b"x").await.expect("written");
            assert!(idle.take(&destination(|_| {}), None).is_none());
            assert_eq!(idle.kept.lock().count, 0);
        });
    }

    #[test]
    fn unused_connections_end_in_time_and_closed_ones_at_once() {
        paused().block_on(async {
            let idle = idle(8);
            let (one, _one) = connection(1);
            let (two, two_other) = connection(2);
            idle.keep(one, Duration::from_secs(5));
            idle.keep(two, IDLE_TIMEOUT);
            drop(two_other);
            tokio::time::sleep(LOOK_INTERVAL * 2).await;
            assert_eq!(idle.kept.lock().count, 1, "who has closed is let go");
            // The clock of connections is not the paused one.
            let ended = idle.kept.lock().take_ended(Instant::now() + Duration::from_secs(6));
            assert_eq!(ended.len(), 1);
            tokio::time::sleep(LOOK_INTERVAL * 2).await;
            assert!(!idle.kept.lock().is_watched, "nobody looks where nothing is");
            let (three, _three) = connection(3);
            idle.keep(three, IDLE_TIMEOUT);
            assert!(idle.kept.lock().is_watched);
        });
    }

    #[test]
    fn there_are_no_more_than_may_be_and_the_oldest_goes() {
        paused().block_on(async {
            let idle = idle(2);
            let mut others = Vec::new();
            for port in [1, 2, 3] {
                let (connection, other) = connection(port);
                idle.keep(connection, IDLE_TIMEOUT);
                others.push(other);
            }
            assert_eq!(idle.kept.lock().count, 2);
            let own = destination(|_| {});
            let mut taken = [idle.take(&own, None), idle.take(&own, None)]
                .map(|taken| taken.map(|taken| taken.target.address.port()));
            taken.sort_unstable();
            assert_eq!(taken, [Some(2), Some(3)], "the oldest is gone");
        });
    }
}
