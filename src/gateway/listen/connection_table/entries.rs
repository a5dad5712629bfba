//! All connections, and who of them gives way next.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::state::{self, ConnectionState, ConnectionStatus};

/// An accepted connection that has not come by then has failed before it began.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(5);
/// So many are chosen at a time to give way one after the other, since choosing takes a look at all.
const CHOSEN_MAX: usize = 64;
/// Pause after a search that found no connection to close.
pub(super) const FUTILE_PAUSE: Duration = Duration::from_millis(50);
/// Connections that nobody is known on give way first, while they are more than one in so many: a flood
/// of them passes the others by, and yet a customer who has just come has time to show a key.
const UNAUTHENTICATED_SHARE: usize = 4;
/// Of customers, those of an account that has more than one in so many give way before all others.
const ACCOUNTS_SHARE: usize = 4;

#[derive(Default)]
pub(super) struct ConnectionEntries {
    pub(super) members: Vec<Option<Arc<ConnectionState>>>,
    pub(super) free: Vec<usize>,
    pub(super) count: usize,
    /// Connections that were asked to close and are still open.
    pub(super) leaving: usize,
    /// Accepted, and about to come.
    pub(super) arriving: HashMap<SocketAddr, (Option<IpAddr>, Instant)>,
    /// By address: those that are here and have not been told to give way.
    pub(super) addresses: HashMap<IpAddr, Address>,
    pub(super) chosen: Chosen,
    /// Time for which a connection does not give way to one from elsewhere after it has come, or after its
    /// last request.
    pub(super) grace: Duration,
    /// Connections for which the grace goes on could have given way when it was looked last.
    pub(super) is_grace_pending: bool,
}

#[derive(Default)]
pub(super) struct Address {
    pub(super) count: usize,
    pub(super) chosen: Chosen,
}

/// Queue of connections to close, the next one first.
#[derive(Default)]
pub(super) struct Chosen {
    next: VecDeque<(ConnectionStatus, Arc<ConnectionState>)>,
    futile_until: Option<Instant>,
}

impl ConnectionEntries {
    pub(super) fn add(&mut self, member: Arc<ConnectionState>) -> usize {
        self.count += 1;
        if let Some(network) = member.network {
            self.addresses.entry(network).or_default().count += 1;
        }
        match self.free.pop() {
            Some(index) => {
                if let Some(place) = self.members.get_mut(index) {
                    *place = Some(member);
                }
                index
            }
            None => {
                self.members.push(Some(member));
                self.members.len() - 1
            }
        }
    }

    pub(super) fn remove(&mut self, index: usize) {
        let Some(member) = self.members.get_mut(index).and_then(Option::take) else { return };
        self.free.push(index);
        self.count -= 1;
        if member.is_leaving() {
            self.leaving = self.leaving.saturating_sub(1);
        } else if let Some(network) = member.network {
            self.leaves(network);
        }
    }

    /// One fewer counts for its address.
    fn leaves(&mut self, network: IpAddr) {
        if let Some(address) = self.addresses.get_mut(&network) {
            address.count = address.count.saturating_sub(1);
            if address.count == 0 {
                self.addresses.remove(&network);
            }
        }
    }

    pub(super) fn arrived(&mut self, peer: &SocketAddr) {
        self.arriving.remove(peer);
    }

    pub(super) fn is_full(&mut self, max: usize) -> bool {
        if self.count + self.arriving.len() >= max {
            self.forget_lost();
        }
        self.count + self.arriving.len() >= max
    }

    pub(super) fn forget_lost(&mut self) {
        self.arriving.retain(|_, (_, since)| since.elapsed() < ARRIVAL_TIMEOUT);
    }

    /// Tells one to give way: of all, or of those of one address. False if none can.
    pub(super) fn one_gives_way(&mut self, network: Option<IpAddr>, max: usize) -> bool {
        let mut chosen = match network {
            Some(network) if !self.addresses.contains_key(&network) => Chosen::default(),
            network => std::mem::take(self.chosen_of(network)),
        };
        self.is_grace_pending = false;
        let closing = loop {
            match chosen.next.pop_front() {
                Some((seen, member)) if member.give_way(seen) => break Some(member),
                Some(_) => {}
                None if chosen.futile_until.is_some_and(|until| Instant::now() < until) => {
                    break None;
                }
                None => {
                    (chosen.next, self.is_grace_pending) = self.choose(network, max);
                    if chosen.next.is_empty() {
                        let is_lasting = self.arriving.is_empty() && !self.is_grace_pending;
                        chosen.futile_until = is_lasting.then(|| Instant::now() + FUTILE_PAUSE);
                        break None;
                    }
                }
            }
        };
        match network {
            // Nobody of that address is here yet.
            Some(network) if !self.addresses.contains_key(&network) => {}
            network => *self.chosen_of(network) = chosen,
        }
        let Some(member) = closing else { return false };
        self.leaving += 1;
        if let Some(network) = member.network {
            self.leaves(network);
        }
        true
    }

    fn chosen_of(&mut self, network: Option<IpAddr>) -> &mut Chosen {
        match network {
            Some(network) => &mut self.addresses.entry(network).or_default().chosen,
            None => &mut self.chosen,
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
            |member: &&Arc<ConnectionState>| network.is_none() || member.network == network;
        let (mut unauthenticated, mut authenticated) = (Vec::new(), Vec::new());
        let (mut new_unauthenticated, mut has_fresh) = (0, false);
        // An address that wants room for itself gets it at once, since others wait behind it.
        let grace = if network.is_none() { self.grace } else { Duration::ZERO };
        let fresh_since = state::ms_before_now(grace);
        for member in self.members.iter().flatten().filter(of_address) {
            let standing = member.standing();
            if !standing.may_leave() {
                continue;
            }
            let is_fresh = standing.since() > fresh_since;
            has_fresh |= is_fresh;
            match (standing.is_unauthenticated(), is_fresh) {
                (true, true) => new_unauthenticated += 1,
                (true, false) => unauthenticated.push((standing, member)),
                (false, true) => {}
                (false, false) => authenticated.push((standing, member)),
            }
        }
        let share = max / UNAUTHENTICATED_SHARE;
        // In a flood most of the strangers are still about to come.
        let of_address = |at: &&(Option<IpAddr>, Instant)| network.is_none() || at.0 == network;
        let unauthenticated_count = unauthenticated.len()
            + new_unauthenticated
            + self.arriving.values().filter(of_address).count();
        let (mut chosen, count_max) = match unauthenticated_count.checked_sub(share) {
            Some(above) if above > 0 || authenticated.is_empty() => (unauthenticated, above.max(1)),
            _ if authenticated.is_empty() => (unauthenticated, 1),
            _ => {
                self.keep_the_modest(&mut authenticated, max);
                let below = share.saturating_sub(unauthenticated_count);
                (authenticated, below.max(1))
            }
        };
        let count = chosen.len().min(CHOSEN_MAX).min(count_max);
        if count < chosen.len() {
            chosen.select_nth_unstable_by_key(count, |(standing, _)| standing.since());
            chosen.truncate(count);
        }
        chosen.sort_unstable_by_key(|(standing, _)| standing.since());
        let chosen =
            chosen.into_iter().map(|(standing, member)| (standing, Arc::clone(member))).collect();
        (chosen, has_fresh)
    }

    /// Of customers who could give way, leaves those of accounts that have more than their share of the
    /// connections, if there are any: who has a few is not closed for one who has very many.
    fn keep_the_modest(
        &self,
        authenticated: &mut Vec<(ConnectionStatus, &Arc<ConnectionState>)>,
        max: usize,
    ) {
        let mut counts: HashMap<u64, usize> = HashMap::new();
        for account in self.members.iter().flatten().filter_map(|member| member.account()) {
            *counts.entry(account).or_default() += 1;
        }
        let has_much = |member: &ConnectionState| {
            let count = member.account().and_then(|account| counts.get(&account));
            count.is_some_and(|count| *count > max / ACCOUNTS_SHARE)
        };
        if authenticated.iter().any(|(_, member)| has_much(member)) {
            authenticated.retain(|(_, member)| has_much(member));
        }
    }
}
