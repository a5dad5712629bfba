//! Rate limits of attempts, in memory, by key.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use tollgate_client_address as forwarded;

/// Tries at once: a person who mistypes, and a family or office behind one address.
pub(super) const AT_ONCE: u32 = 10;
/// After those, one in this time.
pub(super) const EVERY: Duration = Duration::from_secs(30);
/// Keys of one generation: two are remembered. More are at work at no time, for most tries that count
/// have cost the comparison of a password before, of which there are a hundred a second at most.
const GENERATION_MAX: usize = 50_000;

/// Counts tries. Nothing is remembered over a restart.
///
/// A key has so many tries at once. They come back one by one, a try in each period, or all together at
/// the end of a window that began with the first. Of keys that were not seen for the longest time the
/// count is forgotten when there are too many: nobody is refused because of others, and no try costs
/// more than another, however many keys there are.
pub struct TryCounter<K> {
    at_once: u32,
    period_ms: u64,
    refill: Refill,
    began: Instant,
    counts: Mutex<TryCounts<K>>,
}

/// Refill policy of attempts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refill {
    /// One attempt per period.
    OneByOne,
    /// All of them, one period after the first was taken.
    Together,
}

/// The tries that a key has taken.
#[derive(Clone, Copy, Default)]
struct TryCount {
    /// Time at which the key has all of its attempts again, in milliseconds since the counter began.
    full_at_ms: u64,
    /// Attempts used in the window that ends then; unused if attempts return one by one.
    taken: u32,
}

/// The count of each key, in two generations: those of the older one that are not seen again go with
/// it, all at once.
struct TryCounts<K> {
    young: HashMap<K, TryCount>,
    old: HashMap<K, TryCount>,
}

impl<K: Copy + Eq + Hash> Default for TryCounter<K> {
    /// The tries of somebody who mistypes a password: ten at once, and then one in half a minute.
    fn default() -> Self {
        Self::new(AT_ONCE, EVERY)
    }
}

impl<K: Copy + Eq + Hash> TryCounter<K> {
    /// A counter that gives each key `at_once` tries, and after those one in each `every`.
    pub fn new(at_once: u32, every: Duration) -> Self {
        Self::with_refill(at_once, every, Refill::OneByOne)
    }

    /// A counter that gives each key `at_once` tries within each `window`.
    pub fn in_window(at_once: u32, window: Duration) -> Self {
        Self::with_refill(at_once, window, Refill::Together)
    }

    fn with_refill(at_once: u32, period: Duration, refill: Refill) -> Self {
        Self {
            at_once,
            period_ms: u64::try_from(period.as_millis()).unwrap_or(u64::MAX),
            refill,
            began: Instant::now(),
            counts: Mutex::new(TryCounts { young: HashMap::new(), old: HashMap::new() }),
        }
    }

    /// Uses one of the key's attempts. False if there is none.
    pub fn take(&self, key: K) -> bool {
        self.take_at(key, Instant::now())
    }

    /// Uses one of the key's attempts at the given time.
    pub fn take_at(&self, key: K, now: Instant) -> bool {
        let now_ms = self.ms(now);
        let mut counts = self.counts.lock();
        let count = counts.get(&key);
        // A refused try is not counted, or a persistent client would be locked out for ever.
        if !self.has_try(count, now_ms) {
            return false;
        }
        let count = match self.refill {
            Refill::OneByOne => {
                // One number for each key (GCRA): the bucket is full again at this time.
                let full_at_ms = count.full_at_ms.max(now_ms).saturating_add(self.period_ms);
                TryCount { full_at_ms, taken: 0 }
            }
            Refill::Together if now_ms < count.full_at_ms => {
                TryCount { taken: count.taken.saturating_add(1), ..count }
            }
            Refill::Together => {
                TryCount { full_at_ms: now_ms.saturating_add(self.period_ms), taken: 1 }
            }
        };
        counts.put(key, count);
        true
    }

    /// True if the key has an attempt left.
    pub fn has_room(&self, key: K) -> bool {
        self.has_room_at(key, Instant::now())
    }

    /// True if the key has an attempt left at a time that the caller has looked up.
    pub fn has_room_at(&self, key: K, now: Instant) -> bool {
        let count = self.counts.lock().get(&key);
        self.has_try(count, self.ms(now))
    }

    fn has_try(&self, count: TryCount, now_ms: u64) -> bool {
        let ahead_ms = count.full_at_ms.saturating_sub(now_ms);
        match self.refill {
            Refill::OneByOne => {
                let others = u64::from(self.at_once.saturating_sub(1));
                ahead_ms <= self.period_ms.saturating_mul(others)
            }
            Refill::Together => ahead_ms == 0 || count.taken < self.at_once,
        }
    }

    /// Returns an attempt, which then does not count.
    pub fn give_back(&self, key: K) {
        let now_ms = self.ms(Instant::now());
        let mut counts = self.counts.lock();
        let count = counts.get(&key);
        let full_at_ms = match self.refill {
            Refill::OneByOne => count.full_at_ms.saturating_sub(self.period_ms),
            Refill::Together if count.taken > 1 => count.full_at_ms,
            Refill::Together => 0,
        };
        if full_at_ms > now_ms {
            counts.put(key, TryCount { full_at_ms, taken: count.taken.saturating_sub(1) });
        } else {
            counts.remove(&key);
        }
    }

    fn ms(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.began);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let counts = self.counts.lock();
        counts.young.len() + counts.old.len()
    }
}

impl<K: Copy + Eq + Hash> TryCounts<K> {
    fn get(&self, key: &K) -> TryCount {
        self.young.get(key).or_else(|| self.old.get(key)).copied().unwrap_or_default()
    }

    fn put(&mut self, key: K, count: TryCount) {
        self.young.insert(key, count);
        self.old.remove(&key);
        if self.young.len() >= GENERATION_MAX {
            // Forgetting half at once is constant work; evicting the oldest would need an order.
            self.old = std::mem::take(&mut self.young);
        }
    }

    fn remove(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }
}

/// Attempts of a client at its own object, limited for both.
pub struct OwnAttempts<K> {
    addresses: TryCounter<IpAddr>,
    own: TryCounter<K>,
}

impl<K: Copy + Eq + Hash> Default for OwnAttempts<K> {
    fn default() -> Self {
        Self { addresses: TryCounter::default(), own: TryCounter::default() }
    }
}

impl<K: Copy + Eq + Hash> OwnAttempts<K> {
    /// Takes a try of both. Where one has none, nothing is counted.
    pub fn take(&self, address: Option<IpAddr>, key: K) -> bool {
        let address = customer(address);
        if !self.addresses.take(address) {
            return false;
        }
        let may = self.own.take(key);
        if !may {
            self.addresses.give_back(address);
        }
        may
    }

    /// Returns an attempt of both, which then does not count.
    pub fn give_back(&self, address: Option<IpAddr>, key: K) {
        self.addresses.give_back(customer(address));
        self.own.give_back(key);
    }
}

/// Key of one customer's network. Clients of unknown address count as one.
pub fn customer(address: Option<IpAddr>) -> IpAddr {
    forwarded::network(or_unspecified(address))
}

/// Key of all addresses that one customer of an internet provider may have.
pub(super) fn site(address: Option<IpAddr>) -> IpAddr {
    forwarded::site(or_unspecified(address))
}

fn or_unspecified(address: Option<IpAddr>) -> IpAddr {
    address.unwrap_or(Ipv4Addr::UNSPECIFIED.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_come_back_one_by_one() {
        let attempts: TryCounter<u32> = TryCounter::new(3, Duration::from_millis(100));
        let take = |key, ms| attempts.take_at(key, attempts.began + Duration::from_millis(ms));
        for _ in 0..3 {
            assert!(take(1, 1_000));
        }
        assert!(!take(1, 1_000) && !take(1, 1_099), "none is left");
        assert!(take(2, 1_000), "another's are another's");
        assert!(take(1, 1_100) && !take(1, 1_100), "one is back");
        assert!(take(1, 10_000) && take(1, 10_000), "all are back");
    }

    #[test]
    fn tries_of_a_window_come_back_together() {
        let attempts: TryCounter<u32> = TryCounter::in_window(2, Duration::from_secs(60));
        let take = |ms| attempts.take_at(1, attempts.began + Duration::from_millis(ms));
        assert!(take(1_000) && take(2_000), "the window began with the first");
        assert!(!take(2_001) && !take(60_999), "none is left");
        assert!(take(61_000) && take(61_000) && !take(61_000), "another window");
        attempts.give_back(1);
        assert!(take(61_000) && !take(61_000), "the one that was given back");
    }

    #[test]
    fn what_is_given_back_was_never_taken() {
        let attempts: TryCounter<u32> = TryCounter::new(1, Duration::from_secs(3600));
        for _ in 0..5 {
            assert!(attempts.take(1) && !attempts.has_room(1));
            attempts.give_back(1);
        }
        attempts.give_back(1);
        assert_eq!(attempts.len(), 0, "and nothing of it is remembered");
    }

    #[test]
    fn floods_of_keys_are_forgotten_and_stop_nobody() {
        let attempts: TryCounter<u64> = TryCounter::default();
        for key in 0..10 * GENERATION_MAX as u64 {
            assert!(attempts.take(key), "{key} is refused for the others");
            if key.is_multiple_of(1_000) {
                assert!(attempts.len() <= 2 * GENERATION_MAX, "{} are kept", attempts.len());
            }
        }
        let busy = u64::MAX;
        for _ in 0..AT_ONCE {
            assert!(attempts.take(busy));
        }
        for key in 0..GENERATION_MAX as u64 {
            assert!(attempts.take(key + (1 << 40)));
            assert!(!attempts.take(busy), "who goes on trying is remembered");
        }
    }

    #[test]
    fn customers_and_sites_are_told_apart_by_what_they_have() {
        for (address, own, wide) in [
            ("192.0.2.77", "192.0.2.77", "192.0.2.0"),
            ("::ffff:192.0.2.77", "192.0.2.77", "192.0.2.0"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::", "2001:db8:1::"),
        ] {
            let address = Some(address.parse().expect("an address"));
            assert_eq!(customer(address).to_string(), own);
            assert_eq!(site(address).to_string(), wide);
        }
        assert_eq!(customer(None), site(None));
    }
}
