//! Resources of the gateway in use per holder, such as an account or a client network: requests in flight,
//! memory for bodies, waiting requests, expensive reads. A maximum per holder leaves some for the others.
//!
//! Unlike a rate this belongs to one process, in a fleet too: it is the process's memory and time
//! that is shared out.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::entries::EntryTable;

/// The interval at which a waiting reader checks for its turn.
const TURN_POLL: Duration = Duration::from_millis(20);

/// A counter with a maximum.
#[derive(Debug, Default)]
pub struct Count(AtomicUsize);

impl Count {
    /// Takes `more`, or nothing when there would be more than `max`.
    pub fn take(&self, more: usize, max: usize) -> bool {
        // Added and taken back rather than compared first: two that come together may both be refused, and
        // never both pass.
        let fits = self.0.fetch_add(more, Ordering::Relaxed).saturating_add(more) <= max;
        if !fits {
            self.give_back(more);
        }
        fits
    }

    /// Returns units.
    pub fn give_back(&self, taken: usize) {
        self.0.fetch_sub(taken, Ordering::Relaxed);
    }

    /// The current count.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// The resources that one holder uses now.
#[derive(Debug, Default)]
pub struct InUse {
    /// Number of open requests.
    pub requests: Count,
    /// Bytes of bodies in memory.
    pub body_bytes: Count,
    /// Requests that wait for the end of a task.
    pub waiting: Count,
    /// Expensive reads, such as a month's usage.
    pub reads: Count,
    /// Connections with a request in progress.
    pub connections: Count,
    /// Bytes that streams over HTTP/2 take.
    pub stream_bytes: Count,
    /// Calls to upstreams in progress, abandoned ones included.
    pub upstream_calls: Count,
    /// Number of open WebSockets.
    pub websockets: Count,
}

impl InUse {
    /// One more of what `which` names, until the result is dropped; `None` above `max`.
    #[must_use]
    pub fn enter(self: &Arc<Self>, which: fn(&Self) -> &Count, max: usize) -> Option<InUseGuard> {
        self.enter_with(which, 1, max)
    }

    /// Adds `amount` to what `which` names until the result is dropped; `None` where that would come
    /// above `max`.
    #[must_use]
    pub fn enter_with(
        self: &Arc<Self>,
        which: fn(&Self) -> &Count,
        amount: usize,
        max: usize,
    ) -> Option<InUseGuard> {
        which(self).take(amount, max).then(|| InUseGuard {
            holder: Arc::clone(self),
            which,
            amount,
        })
    }

    /// A turn at reading, of which one has `max` at a time; `None` when it has not come in time.
    pub async fn read_in_turn(
        self: &Arc<Self>,
        max: usize,
        within: Duration,
    ) -> Option<InUseGuard> {
        let until = Instant::now() + within;
        loop {
            let turn = self.enter(|in_use| &in_use.reads, max);
            if turn.is_some() || Instant::now() >= until {
                return turn;
            }
            tokio::time::sleep(TURN_POLL).await;
        }
    }
}

/// A counted resource, released on drop.
#[derive(Debug)]
#[must_use = "what is dropped is not in use any more"]
pub struct InUseGuard {
    holder: Arc<InUse>,
    which: fn(&InUse) -> &Count,
    amount: usize,
}

impl Drop for InUseGuard {
    fn drop(&mut self) {
        (self.which)(&self.holder).give_back(self.amount);
    }
}

/// The counters of all holders. Those of an idle holder are dropped sooner or later.
pub struct Holders<K>(EntryTable<K, InUse>);

impl<K: Hash + Eq> Holders<K> {
    /// An empty set of holders.
    #[must_use]
    pub fn new() -> Self {
        Self(EntryTable::new())
    }

    /// Returns the counters of one holder, after one lookup.
    #[must_use]
    pub fn holder(&self, who: K) -> Arc<InUse> {
        // Who has something in use has the entry as well.
        self.0.find(who, |_| true, InUse::default)
    }

    /// The number of holders in memory.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.count()
    }
}

impl<K: Hash + Eq> Default for Holders<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> fmt::Debug for Holders<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Holders")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_takes_more_than_its_share_and_what_is_dropped_is_free_again() {
        let holders = Holders::new();
        let enter = |who: u64| holders.holder(who).enter(|in_use| &in_use.requests, 2);
        let taken: Vec<_> = (0..3).map(|_| enter(1)).collect();
        assert_eq!(taken.iter().flatten().count(), 2, "two of three");
        assert!(enter(2).is_some(), "another is not concerned");
        assert_eq!(holders.holder(1).requests.taken(), 2, "who was refused took nothing");
        drop(taken);
        assert!(enter(1).is_some(), "free again");
    }

    #[test]
    fn who_has_nothing_in_use_is_forgotten() {
        let holders = Holders::new();
        let kept = holders.holder(0).enter(|in_use| &in_use.waiting, 1);
        for who in 1..100_000_u64 {
            drop(holders.holder(who));
        }
        assert!(holders.count() < 10_000, "{} are remembered", holders.count());
        assert!(
            holders.holder(0).enter(|in_use| &in_use.waiting, 1).is_none(),
            "{kept:?} is there"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn reads_take_turns() {
        let in_use = Arc::new(InUse::default());
        let first = in_use.read_in_turn(1, Duration::ZERO).await;
        assert!(first.is_some(), "nobody reads");
        assert!(in_use.read_in_turn(1, Duration::ZERO).await.is_none(), "one at a time");
        let (next, ()) = tokio::join!(in_use.read_in_turn(1, Duration::from_secs(60)), async {
            drop(first);
        });
        assert!(next.is_some(), "the next has its turn");
    }
}
