//! Bounded cache of facts about upstreams, per account. Accounts do not see each other's entries, and an
//! account with many evicts its own first.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Capacity and lifetime of a cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheBounds {
    /// Lifetime of an entry.
    pub time: Duration,
    /// Largest number of entries of all accounts.
    pub all_max: usize,
    /// Largest number of entries of one account.
    pub account_max: usize,
}

/// Cache by account and key. Keys are stored as keyed 64-bit hashes, so that nobody can construct a
/// collision.
#[derive(Debug)]
pub struct AccountCache<V> {
    bounds: CacheBounds,
    hasher: RandomState,
    state: Mutex<CacheState<V>>,
}

#[derive(Debug)]
struct CacheState<V> {
    accounts: HashMap<u64, AccountEntries<V>>,
    count: usize,
}

/// Entries of one account.
#[derive(Debug)]
struct AccountEntries<V> {
    by_key: HashMap<u64, (V, Instant)>,
    /// Keys of `by_key`, oldest first.
    order: VecDeque<(u64, Instant)>,
}

impl<V: Copy> AccountCache<V> {
    /// An empty cache within `bounds`.
    pub fn new(bounds: CacheBounds) -> Self {
        let state = Mutex::new(CacheState { accounts: HashMap::new(), count: 0 });
        Self { bounds, hasher: RandomState::new(), state }
    }

    /// Unexpired entry of the account for `key`.
    pub fn get(&self, account: u64, key: impl Hash, now: Instant) -> Option<V> {
        let key = self.hasher.hash_one((account, key));
        let state = self.state.lock();
        let (value, since) = state.accounts.get(&account)?.by_key.get(&key)?;
        (now.saturating_duration_since(*since) < self.bounds.time).then_some(*value)
    }

    /// Insert or update the account's entry for `key`.
    pub fn put(&self, account: u64, key: impl Hash, value: V, now: Instant) {
        let key = self.hasher.hash_one((account, key));
        let mut state = self.state.lock();
        state.forget_old(account, now, self.bounds.time);
        let entries = state.accounts.entry(account).or_default();
        // An update keeps the time of the insertion, by which `order` is sorted.
        if let Some((entry_value, _)) = entries.by_key.get_mut(&key) {
            *entry_value = value;
            return;
        }
        let is_full = entries.order.len() >= self.bounds.account_max;
        let freed = if is_full { entries.forget(1) } else { 0 };
        state.count -= freed;
        if state.count >= self.bounds.all_max {
            state.make_room(now, self.bounds.time);
        }
        let entries = state.accounts.entry(account).or_default();
        entries.by_key.insert(key, (value, now));
        entries.order.push_back((key, now));
        state.count += 1;
    }

    /// Number of entries of all accounts.
    #[cfg(test)]
    fn len(&self) -> usize {
        let state = self.state.lock();
        let counted: usize = state.accounts.values().map(|entries| entries.by_key.len()).sum();
        assert_eq!(counted, state.count, "the count is exact");
        counted
    }
}

impl<V> CacheState<V> {
    fn forget_old(&mut self, account: u64, now: Instant, time: Duration) {
        let Some(entries) = self.accounts.get_mut(&account) else { return };
        let is_old = |since: &Instant| now.saturating_duration_since(*since) >= time;
        let old = entries.order.iter().take_while(|(_, since)| is_old(since)).count();
        self.count -= entries.forget(old);
    }

    /// Evict expired entries; if there are none, evict from the accounts with the most.
    fn make_room(&mut self, now: Instant, time: Duration) {
        let before = self.count;
        let accounts: Vec<u64> = self.accounts.keys().copied().collect();
        for account in accounts {
            self.forget_old(account, now, time);
        }
        if self.count == before {
            // A sixteenth at once, so that a full cache is not searched at each insertion.
            let enough = before - before / 16 - 1;
            let most = self.accounts.values().map(|entries| entries.order.len()).max();
            // Accounts with less than half of the largest share keep all of theirs.
            let has_much =
                |entries: &AccountEntries<V>| entries.order.len() > most.unwrap_or(0) / 2;
            for entries in self.accounts.values_mut().filter(|entries| has_much(entries)) {
                self.count -= entries.forget(entries.order.len() / 8 + 1);
                if self.count <= enough {
                    break;
                }
            }
        }
        self.accounts.retain(|_, entries| !entries.order.is_empty());
    }
}

impl<V> AccountEntries<V> {
    /// Evict the oldest `count` entries and return the number evicted.
    fn forget(&mut self, count: usize) -> usize {
        let count = count.min(self.order.len());
        for (key, _) in self.order.drain(..count) {
            self.by_key.remove(&key);
        }
        count
    }
}

impl<V> Default for AccountEntries<V> {
    fn default() -> Self {
        Self { by_key: HashMap::new(), order: VecDeque::new() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: CacheBounds =
        CacheBounds { time: Duration::from_secs(60), all_max: 40, account_max: 16 };

    #[test]
    fn findings_are_the_accounts_own_and_end() {
        let (memory, now) = (AccountCache::new(BOUNDS), Instant::now());
        memory.put(1, "a", 7, now);
        assert_eq!(memory.get(1, "a", now), Some(7));
        assert_eq!(memory.get(2, "a", now), None, "another account knows nothing of it");
        assert_eq!(memory.get(1, "b", now), None);
        assert_eq!(memory.get(1, "a", now + Duration::from_secs(59)), Some(7));
        assert_eq!(memory.get(1, "a", now + Duration::from_secs(60)), None);
    }

    #[test]
    fn a_flood_washes_away_its_own() {
        let (memory, now) = (AccountCache::new(BOUNDS), Instant::now());
        (0..16).for_each(|key| memory.put(1, key, key, now));
        (0..16).for_each(|key| memory.put(2, key, key, now));
        (0..5).for_each(|key| memory.put(3, key, key, now));
        (0..10_000).for_each(|key| memory.put(2, key, key, now));
        assert!((0..16).all(|key| memory.get(1, key, now).is_some()), "another account's");
        assert!((0..5).all(|key| memory.get(3, key, now).is_some()), "a third one's");
        assert_eq!(memory.get(2, 9999, now), Some(9999), "its own last");
    }

    proptest! {
        #[test]
        fn it_stays_within_its_bounds(
            puts in prop::collection::vec((0u64..8, 0u16..40, 0u64..30), 0..400),
        ) {
            let memory = AccountCache::new(BOUNDS);
            let mut now = Instant::now();
            for (account, key, seconds) in puts {
                now += Duration::from_secs(seconds);
                memory.put(account, key, key, now);
                prop_assert_eq!(memory.get(account, key, now), Some(key));
                prop_assert!(memory.len() <= BOUNDS.all_max);
                let state = memory.state.lock();
                prop_assert!(state.accounts.values().all(|one| one.order.len() <= BOUNDS.account_max));
            }
        }
    }
}
