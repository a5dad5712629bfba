//! What accounts have found out about upstreams, kept for a while and within bounds. What one account
//! has found out is not known to others, and an account that finds out much loses its own first.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How much is kept, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// What is older is not known any more.
    pub(crate) time: Duration,
    /// Findings of all accounts together.
    pub(crate) all_max: usize,
    /// Findings of one account.
    pub(crate) account_max: usize,
}

/// Findings by account and key. Keys are kept as keyed hashes of 64 bits: nobody can make two that
/// meet.
#[derive(Debug)]
pub(crate) struct Memory<V> {
    bounds: Bounds,
    hasher: RandomState,
    kept: Mutex<Kept<V>>,
}

#[derive(Debug)]
struct Kept<V> {
    accounts: HashMap<u64, Findings<V>>,
    count: usize,
}

/// The findings of one account.
#[derive(Debug)]
struct Findings<V> {
    by_key: HashMap<u64, (V, Instant)>,
    /// The keys of `by_key`, the oldest first.
    order: VecDeque<(u64, Instant)>,
}

impl<V: Copy> Memory<V> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let kept = Mutex::new(Kept { accounts: HashMap::new(), count: 0 });
        Self { bounds, hasher: RandomState::new(), kept }
    }

    /// What the account has found out about `key`.
    pub(crate) fn get(&self, account: u64, key: impl Hash, now: Instant) -> Option<V> {
        let key = self.hasher.hash_one((account, key));
        let kept = self.kept.lock();
        let (value, since) = kept.accounts.get(&account)?.by_key.get(&key)?;
        (now.saturating_duration_since(*since) < self.bounds.time).then_some(*value)
    }

    /// Keeps what the account has found out about `key`.
    pub(crate) fn put(&self, account: u64, key: impl Hash, value: V, now: Instant) {
        let key = self.hasher.hash_one((account, key));
        let mut kept = self.kept.lock();
        kept.forget_old(account, now, self.bounds.time);
        let findings = kept.accounts.entry(account).or_default();
        if let Some((known, _)) = findings.by_key.get_mut(&key) {
            *known = value;
            return;
        }
        let is_full = findings.order.len() >= self.bounds.account_max;
        let freed = if is_full { findings.forget(1) } else { 0 };
        kept.count -= freed;
        if kept.count >= self.bounds.all_max {
            kept.make_room(now, self.bounds.time);
        }
        let findings = kept.accounts.entry(account).or_default();
        findings.by_key.insert(key, (value, now));
        findings.order.push_back((key, now));
        kept.count += 1;
    }

    /// Findings of all accounts together.
    #[cfg(test)]
    fn len(&self) -> usize {
        let kept = self.kept.lock();
        let counted: usize = kept.accounts.values().map(|findings| findings.by_key.len()).sum();
        assert_eq!(counted, kept.count, "the count is kept");
        counted
    }
}

impl<V> Kept<V> {
    fn forget_old(&mut self, account: u64, now: Instant, time: Duration) {
        let Some(findings) = self.accounts.get_mut(&account) else { return };
        let is_old = |since: &Instant| now.saturating_duration_since(*since) >= time;
        let old = findings.order.iter().take_while(|(_, since)| is_old(since)).count();
        self.count -= findings.forget(old);
    }

    /// All that is old goes; if nothing was, those accounts give up some that have most.
    fn make_room(&mut self, now: Instant, time: Duration) {
        let before = self.count;
        let accounts: Vec<u64> = self.accounts.keys().copied().collect();
        for account in accounts {
            self.forget_old(account, now, time);
        }
        if self.count == before {
            let enough = before - before / 16 - 1;
            let most = self.accounts.values().map(|findings| findings.order.len()).max();
            let has_much = |findings: &Findings<V>| findings.order.len() > most.unwrap_or(0) / 2;
            for findings in self.accounts.values_mut().filter(|findings| has_much(findings)) {
                self.count -= findings.forget(findings.order.len() / 8 + 1);
                if self.count <= enough {
                    break;
                }
            }
        }
        self.accounts.retain(|_, findings| !findings.order.is_empty());
    }
}

impl<V> Findings<V> {
    /// Forgets the oldest, and says how many there were.
    fn forget(&mut self, count: usize) -> usize {
        let count = count.min(self.order.len());
        for (key, _) in self.order.drain(..count) {
            self.by_key.remove(&key);
        }
        count
    }
}

impl<V> Default for Findings<V> {
    fn default() -> Self {
        Self { by_key: HashMap::new(), order: VecDeque::new() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: Bounds = Bounds { time: Duration::from_secs(60), all_max: 40, account_max: 16 };

    #[test]
    fn findings_are_the_accounts_own_and_end() {
        let (memory, now) = (Memory::new(BOUNDS), Instant::now());
        memory.put(1, "a", 7, now);
        assert_eq!(memory.get(1, "a", now), Some(7));
        assert_eq!(memory.get(2, "a", now), None, "another account knows nothing of it");
        assert_eq!(memory.get(1, "b", now), None);
        assert_eq!(memory.get(1, "a", now + Duration::from_secs(59)), Some(7));
        assert_eq!(memory.get(1, "a", now + Duration::from_secs(60)), None);
    }

    #[test]
    fn a_flood_washes_away_its_own() {
        let (memory, now) = (Memory::new(BOUNDS), Instant::now());
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
            let memory = Memory::new(BOUNDS);
            let mut now = Instant::now();
            for (account, key, seconds) in puts {
                now += Duration::from_secs(seconds);
                memory.put(account, key, key, now);
                prop_assert_eq!(memory.get(account, key, now), Some(key));
                prop_assert!(memory.len() <= BOUNDS.all_max);
                let kept = memory.kept.lock();
                prop_assert!(kept.accounts.values().all(|one| one.order.len() <= BOUNDS.account_max));
            }
        }
    }
}
