//! All connections, and the queue of those to close next.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::state::{self, ConnectionState, ConnectionStatus};

/// An accepted connection that is not registered by then has failed.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of connections chosen at once, since each choice scans all of them.
const CLOSE_QUEUE_MAX: usize = 64;
/// Pause after a search that found no connection to close.
pub(super) const FUTILE_PAUSE: Duration = Duration::from_millis(50);
/// Unauthenticated connections are closed first while they are more than one in this many: a flood of them
/// leaves the others alone, and a new client still has time to show a key.
const UNAUTHENTICATED_SHARE: usize = 4;
/// Divisor: among authenticated connections, those of an account with more than this share are closed first.
const ACCOUNTS_SHARE: usize = 4;

#[derive(Default)]
pub(super) struct ConnectionEntries {
    pub(super) states: Vec<Option<Arc<ConnectionState>>>,
    pub(super) free: Vec<usize>,
    pub(super) count: usize,
    /// Connections that were asked to close and are still open.
    pub(super) closing: usize,
    /// Connections that were accepted and not registered yet.
    pub(super) pending: HashMap<SocketAddr, (Option<IpAddr>, Instant)>,
    /// Open connections by address, without those that were asked to close.
    pub(super) addresses: HashMap<IpAddr, Address>,
    pub(super) close_queue: CloseQueue,
    /// Time after its opening or last request for which a connection is not closed for one of another address.
    pub(super) grace: Duration,
    /// True if the last choice passed over connections in their grace.
    pub(super) is_grace_pending: bool,
}

#[derive(Default)]
pub(super) struct Address {
    pub(super) count: usize,
    pub(super) close_queue: CloseQueue,
}

/// Queue of connections to close, the next one first.
#[derive(Default)]
pub(super) struct CloseQueue {
    next: VecDeque<(ConnectionStatus, Arc<ConnectionState>)>,
    futile_until: Option<Instant>,
}

impl ConnectionEntries {
    pub(super) fn add(&mut self, state: Arc<ConnectionState>) -> usize {
        self.count += 1;
        if let Some(network) = state.network {
            self.addresses.entry(network).or_default().count += 1;
        }
        match self.free.pop() {
            Some(index) => {
                if let Some(slot) = self.states.get_mut(index) {
                    *slot = Some(state);
                }
                index
            }
            None => {
                self.states.push(Some(state));
                self.states.len() - 1
            }
        }
    }

    pub(super) fn remove(&mut self, index: usize) {
        let Some(state) = self.states.get_mut(index).and_then(Option::take) else { return };
        self.free.push(index);
        self.count -= 1;
        if state.is_closing() {
            self.closing = self.closing.saturating_sub(1);
        } else if let Some(network) = state.network {
            self.subtract(network);
        }
    }

    /// Counts one connection less for an address.
    fn subtract(&mut self, network: IpAddr) {
        if let Some(address) = self.addresses.get_mut(&network) {
            address.count = address.count.saturating_sub(1);
            if address.count == 0 {
                self.addresses.remove(&network);
            }
        }
    }

    pub(super) fn opened(&mut self, peer: &SocketAddr) {
        self.pending.remove(peer);
    }

    pub(super) fn is_full(&mut self, max: usize) -> bool {
        if self.count + self.pending.len() >= max {
            self.forget_failed();
        }
        self.count + self.pending.len() >= max
    }

    pub(super) fn forget_failed(&mut self) {
        self.pending.retain(|_, (_, since)| since.elapsed() < ARRIVAL_TIMEOUT);
    }

    /// Closes one connection: of all, or of one address. False if none can be.
    pub(super) fn close_one(&mut self, network: Option<IpAddr>, max: usize) -> bool {
        let mut chosen = match network {
            Some(network) if !self.addresses.contains_key(&network) => CloseQueue::default(),
            network => std::mem::take(self.close_queue_of(network)),
        };
        self.is_grace_pending = false;
        let closing = loop {
            match chosen.next.pop_front() {
                Some((seen, state)) if state.request_close(seen) => break Some(state),
                Some(_) => {}
                None if chosen.futile_until.is_some_and(|until| Instant::now() < until) => {
                    break None;
                }
                None => {
                    (chosen.next, self.is_grace_pending) = self.choose(network, max);
                    if chosen.next.is_empty() {
                        let is_lasting = self.pending.is_empty() && !self.is_grace_pending;
                        chosen.futile_until = is_lasting.then(|| Instant::now() + FUTILE_PAUSE);
                        break None;
                    }
                }
            }
        };
        match network {
            // No connection of that address is open.
            Some(network) if !self.addresses.contains_key(&network) => {}
            network => *self.close_queue_of(network) = chosen,
        }
        let Some(state) = closing else { return false };
        self.closing += 1;
        if let Some(network) = state.network {
            self.subtract(network);
        }
        true
    }

    fn close_queue_of(&mut self, network: Option<IpAddr>) -> &mut CloseQueue {
        match network {
            Some(network) => &mut self.addresses.entry(network).or_default().close_queue,
            None => &mut self.close_queue,
        }
    }

    /// Choose the connections that have been idle the longest: of those without an authenticated request
    /// where these are more than their share, else of customers'. The second value is true where others are
    /// too new to be chosen.
    fn choose(
        &self,
        network: Option<IpAddr>,
        max: usize,
    ) -> (VecDeque<(ConnectionStatus, Arc<ConnectionState>)>, bool) {
        let of_address =
            |state: &&Arc<ConnectionState>| network.is_none() || state.network == network;
        let (mut unauthenticated, mut authenticated) = (Vec::new(), Vec::new());
        let (mut new_unauthenticated, mut has_fresh) = (0, false);
        // An address that wants room for itself gets it at once, since others wait behind it.
        let grace = if network.is_none() { self.grace } else { Duration::ZERO };
        let fresh_since = state::ms_before_now(grace);
        for state in self.states.iter().flatten().filter(of_address) {
            let status = state.status();
            if !status.may_close() {
                continue;
            }
            let is_fresh = status.since() > fresh_since;
            has_fresh |= is_fresh;
            match (status.is_unauthenticated(), is_fresh) {
                (true, true) => new_unauthenticated += 1,
                (true, false) => unauthenticated.push((status, state)),
                (false, true) => {}
                (false, false) => authenticated.push((status, state)),
            }
        }
        let share = max / UNAUTHENTICATED_SHARE;
        // In a flood most unauthenticated connections are still pending.
        let of_address = |at: &&(Option<IpAddr>, Instant)| network.is_none() || at.0 == network;
        let unauthenticated_count = unauthenticated.len()
            + new_unauthenticated
            + self.pending.values().filter(of_address).count();
        let (mut chosen, count_max) = match unauthenticated_count.checked_sub(share) {
            Some(above) if above > 0 || authenticated.is_empty() => (unauthenticated, above.max(1)),
            _ if authenticated.is_empty() => (unauthenticated, 1),
            _ => {
                self.retain_large_accounts(&mut authenticated, max);
                let below = share.saturating_sub(unauthenticated_count);
                (authenticated, below.max(1))
            }
        };
        let count = chosen.len().min(CLOSE_QUEUE_MAX).min(count_max);
        if count < chosen.len() {
            chosen.select_nth_unstable_by_key(count, |(status, _)| status.since());
            chosen.truncate(count);
        }
        chosen.sort_unstable_by_key(|(status, _)| status.since());
        let chosen =
            chosen.into_iter().map(|(status, state)| (status, Arc::clone(state))).collect();
        (chosen, has_fresh)
    }

    /// Keeps the connections of accounts that have more than their share, if there are any: an account with few
    /// loses none to one with very many.
    fn retain_large_accounts(
        &self,
        authenticated: &mut Vec<(ConnectionStatus, &Arc<ConnectionState>)>,
        max: usize,
    ) {
        let mut counts: HashMap<u64, usize> = HashMap::new();
        for account in self.states.iter().flatten().filter_map(|state| state.account()) {
            *counts.entry(account).or_default() += 1;
        }
        let is_large = |state: &ConnectionState| {
            let count = state.account().and_then(|account| counts.get(&account));
            count.is_some_and(|count| *count > max / ACCOUNTS_SHARE)
        };
        if authenticated.iter().any(|(_, state)| is_large(state)) {
            authenticated.retain(|(_, state)| is_large(state));
        }
    }
}
