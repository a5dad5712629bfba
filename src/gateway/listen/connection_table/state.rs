//! State of one connection, as the choice of connections to close needs it.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::limits::PooledUnits;
use crate::metrics::Metrics;

/// Flag: a request was authenticated.
const AUTHENTICATED: u64 = 1;
/// Flag: a request is in flight.
const BUSY: u64 = 2;
/// The connection was asked to close.
const CLOSING: u64 = 4;
/// The connection is closed, although a request of it may still be running.
const CLOSED: u64 = 8;
/// Shift of the timestamp above the flags: milliseconds since the first connection at which a request began
/// or ended last, or the connection came.
const SINCE_SHIFT: u32 = 8;

/// Epoch of the timestamps.
static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A connection. What changes with every request is in one word, so that no request waits for a lock.
pub(crate) struct ConnectionState {
    /// Client network; `None` if one address represents many customers.
    pub(super) network: Option<IpAddr>,
    /// The account that has shown a key on it last; 0 for none.
    account: AtomicU64,
    state: AtomicU64,
    /// Shares of the connection that accounts with requests in flight hold: several behind a load balancer
    /// over HTTP/2.
    held: Mutex<Vec<(u64, Weak<PooledUnits>)>>,
    close: Notify,
    metrics: Option<Arc<Metrics>>,
}

/// State of a connection at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionStatus(u64);

impl ConnectionStatus {
    /// True if none of its requests was authenticated.
    pub(super) fn is_unauthenticated(self) -> bool {
        self.0 & AUTHENTICATED == 0
    }

    /// True if the connection may be closed for another: a customer's request in flight is not cut.
    pub(super) fn may_close(self) -> bool {
        self.0 & (CLOSING | CLOSED) == 0 && (self.is_unauthenticated() || self.0 & BUSY == 0)
    }

    /// Time of the last begin or end of a request.
    pub(super) fn since(self) -> u64 {
        self.0 >> SINCE_SHIFT
    }
}

impl ConnectionState {
    pub(crate) fn new(network: Option<IpAddr>, metrics: Option<Arc<Metrics>>) -> Self {
        if let Some(metrics) = &metrics {
            metrics.unauthenticated_begin();
        }
        let (account, state, held) = (AtomicU64::new(0), AtomicU64::new(now()), Mutex::default());
        Self { network, account, state, held, close: Notify::new(), metrics }
    }

    /// Account of the last key used on the connection.
    pub(super) fn account(&self) -> Option<u64> {
        Some(self.account.load(Ordering::Relaxed)).filter(|account| *account != 0)
    }

    /// Sets the account that has shown a key on it last.
    pub(crate) fn set_account(&self, account: u64) {
        self.account.store(account, Ordering::Relaxed);
    }

    /// The account's share of the connection, which all of its requests over it have together; `enter`
    /// takes one. `None` when it has none to give.
    pub(crate) fn share(
        &self,
        account: u64,
        enter: impl FnOnce() -> Option<PooledUnits>,
    ) -> Option<Arc<PooledUnits>> {
        let mut held = self.held.lock();
        // Shares end with their requests, on whichever task: they are removed when the next one comes.
        held.retain(|(_, entered)| entered.strong_count() > 0);
        let mut all = held.iter();
        let own = all.find_map(|(who, entered)| entered.upgrade().filter(|_| *who == account));
        own.or_else(|| {
            let entered = Arc::new(enter()?);
            held.push((account, Arc::downgrade(&entered)));
            Some(entered)
        })
    }

    pub(super) fn status(&self) -> ConnectionStatus {
        ConnectionStatus(self.state.load(Ordering::Acquire))
    }

    /// Begins a request. False if the connection must close.
    pub(crate) fn begin(&self) -> bool {
        self.change(|state| (state & AUTHENTICATED) | BUSY | now())
    }

    /// Ends the request: the connection is idle.
    pub(crate) fn end(&self) {
        self.change(|state| (state & AUTHENTICATED) | now());
    }

    fn change(&self, to: impl Fn(u64) -> u64) -> bool {
        // A request that begins while the connection is being closed would be cut: it is not begun.
        let changed = |state: u64| (state & CLOSING == 0).then(|| to(state));
        self.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed).is_ok()
    }

    /// True if any of its requests was authenticated.
    pub(crate) fn is_authenticated(&self) -> bool {
        self.state.load(Ordering::Relaxed) & AUTHENTICATED != 0
    }

    /// Marks the connection as authenticated.
    pub(crate) fn set_authenticated(&self) {
        if self.is_authenticated() {
            return;
        }
        // Once for each connection, whichever comes first: two streams over HTTP/2 may show keys at one time.
        let before = self.state.fetch_or(AUTHENTICATED, Ordering::AcqRel);
        if before & (AUTHENTICATED | CLOSED) == 0
            && let Some(metrics) = &self.metrics
        {
            metrics.unauthenticated_end();
        }
    }

    /// Asks it to close. False if its state has changed since it was `seen`.
    pub(super) fn request_close(&self, seen: ConnectionStatus) -> bool {
        // Only as it was seen: a request that has begun since keeps its connection.
        let changed = self.state.compare_exchange(
            seen.0,
            seen.0 | CLOSING,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if changed.is_ok() {
            self.close.notify_one();
        }
        changed.is_ok()
    }

    /// True once the connection was asked to close.
    pub(super) fn is_closing(&self) -> bool {
        self.state.load(Ordering::Acquire) & CLOSING != 0
    }

    /// Notes that the connection is closed.
    pub(super) fn set_closed(&self) {
        let before = self.state.fetch_or(CLOSED, Ordering::AcqRel);
        if before & (AUTHENTICATED | CLOSED) == 0
            && let Some(metrics) = &self.metrics
        {
            metrics.unauthenticated_end();
        }
    }

    /// Waits until the connection has to close.
    pub(super) async fn close_requested(&self) {
        self.close.notified().await;
    }
}

/// The moment of a duration ago, in milliseconds since the first connection came.
pub(super) fn ms_before_now(duration: Duration) -> u64 {
    u64::try_from(BEGINNING.elapsed().saturating_sub(duration).as_millis()).unwrap_or(0)
}

fn now() -> u64 {
    ms_before_now(Duration::ZERO) << SINCE_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{InUse, PoolRule, UnitPool};

    #[test]
    fn an_account_holds_a_connection_once_however_many_requests_it_has() {
        let (one, other) = (ConnectionState::new(None, None), ConnectionState::new(None, None));
        let (pool, in_use) = (Arc::<UnitPool>::default(), Arc::<InUse>::default());
        let rule = PoolRule { max: 4, percent: 25 };
        let enter = || pool.enter(Some(&in_use), |in_use| &in_use.connections, 1, rule).ok();
        let requests: Vec<_> = (0..3).map(|_| one.share(1, enter)).collect();
        assert!(requests.iter().all(Option::is_some), "three requests over one connection");
        assert_eq!(in_use.connections.taken(), 1);
        assert!(other.share(1, enter).is_none(), "another connection is one too many");
        assert!(one.share(2, enter).is_none(), "another account is counted for itself");
        drop(requests);
        assert!(other.share(1, enter).is_some(), "all of them have ended");
    }

    #[test]
    fn a_customers_request_is_never_cut_and_one_that_gives_way_begins_none() {
        let state = ConnectionState::new(None, None);
        assert!(state.begin(), "it may serve");
        assert!(state.status().may_close(), "an unauthenticated request may be cut");
        state.set_authenticated();
        assert!(!state.status().may_close(), "a customer's may not");
        state.end();
        let idle = state.status();
        assert!(idle.may_close(), "an idle connection may give way");
        assert!(state.begin(), "it serves once more");
        assert!(!state.request_close(idle), "it is not idle any more");
        state.end();
        assert!(state.request_close(state.status()), "now it is");
        assert!(!state.begin(), "no request begins on a connection that is about to close");
        assert!(!state.status().may_close(), "it is told once");
    }
}
