//! Counts of the last minutes, by a keyed hash of what was counted, each asked for once at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;

use crate::metrics::CountOutcome;
use crate::secret::random_bytes;

/// Counts that are kept: 4,096 times some 150 bytes is 600 KB.
const ENTRIES_MAX: usize = 4_096;
/// Lifetime of a count. A refused request is retried within seconds, and a conversation continues with
/// another prompt.
const TIME: Duration = Duration::from_secs(600);

/// 128 bits of a keyed hash of what was counted, so that nobody can make two requests that share a count.
pub(crate) type CountKey = [u8; 16];

/// A token count, or the reason why there is none.
type CountResult = Result<u64, CountOutcome>;

/// Cache of token counts.
#[derive(Debug)]
pub(crate) struct CountCache {
    /// Key of the hashes, which no other process has.
    secret: [u8; 32],
    entries: Mutex<KeptCounts>,
}

#[derive(Debug, Default)]
struct KeptCounts {
    by_key: HashMap<CountKey, KeptCount>,
    /// Uses of all entries so far.
    uses: u64,
}

#[derive(Debug)]
struct KeptCount {
    count: Arc<OnceCell<CountResult>>,
    since: Instant,
    /// The use of all entries at which this one was used last.
    used: u64,
}

impl CountCache {
    pub(crate) fn new() -> Self {
        Self { secret: random_bytes(), entries: Mutex::default() }
    }

    /// The key of what `write` adds to the hash.
    pub(crate) fn key(&self, write: impl FnOnce(&mut Sha256)) -> CountKey {
        let mut digest = Sha256::new();
        digest.update(self.secret);
        write(&mut digest);
        let mut key = CountKey::default();
        key.iter_mut().zip(digest.finalize()).for_each(|(to, from)| *to = from);
        key
    }

    /// The count of `key`, and whether it was there: from before, or from another request that asks for
    /// it now. Else `ask` asks for it. When the future of the one that asks is dropped, the next one
    /// that waits asks. A failure is shared by those that wait for it, and not kept.
    pub(crate) async fn get_or_fetch<F: Future<Output = CountResult>>(
        &self,
        key: CountKey,
        ask: impl FnOnce() -> F,
    ) -> (CountResult, bool) {
        let cell = self.entry(key, Instant::now());
        let mut is_cached = true;
        let fetch = || {
            is_cached = false;
            ask()
        };
        let count = *cell.get_or_init(fetch).await;
        if count.is_err() {
            self.remove(&key, &cell);
        }
        (count, is_cached)
    }

    fn entry(&self, key: CountKey, now: Instant) -> Arc<OnceCell<CountResult>> {
        let mut entries = self.entries.lock();
        entries.uses += 1;
        let used = entries.uses;
        let is_old = |entry: &KeptCount| now.saturating_duration_since(entry.since) >= TIME;
        if let Some(entry) = entries.by_key.get_mut(&key).filter(|entry| !is_old(entry)) {
            entry.used = used;
            return Arc::clone(&entry.count);
        }
        if entries.by_key.len() >= ENTRIES_MAX {
            entries.by_key.retain(|_, entry| !is_old(entry));
        }
        if entries.by_key.len() >= ENTRIES_MAX {
            // It looks at all of them, which takes some microseconds beside a call to a provider.
            let oldest = entries.by_key.iter().min_by_key(|(_, entry)| entry.used);
            let oldest = oldest.map(|(key, _)| *key);
            oldest.and_then(|key| entries.by_key.remove(&key));
        }
        let count = Arc::<OnceCell<CountResult>>::default();
        entries.by_key.insert(key, KeptCount { count: Arc::clone(&count), since: now, used });
        count
    }

    fn remove(&self, key: &CountKey, cell: &Arc<OnceCell<CountResult>>) {
        let mut entries = self.entries.lock();
        if entries.by_key.get(key).is_some_and(|entry| Arc::ptr_eq(&entry.count, cell)) {
            entries.by_key.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::sync::Notify;

    use super::*;

    fn key(cache: &CountCache, number: u64) -> CountKey {
        cache.key(|digest| digest.update(number.to_le_bytes()))
    }

    #[tokio::test]
    async fn a_count_is_fetched_once_and_kept() {
        let (cache, calls) = (CountCache::new(), AtomicU64::new(0));
        let get = |number| {
            cache.get_or_fetch(key(&cache, number), || async {
                Ok(calls.fetch_add(1, Ordering::Relaxed))
            })
        };
        assert_eq!(get(7).await, (Ok(0), false));
        assert_eq!(get(7).await, (Ok(0), true));
        assert_eq!(get(8).await, (Ok(1), false), "another prompt");
        let other = CountCache::new();
        assert_ne!(key(&cache, 7), key(&other, 7), "each process has its own secret");
    }

    #[tokio::test]
    async fn requests_at_the_same_time_wait_for_one_answer() {
        let (cache, go) = (CountCache::new(), Notify::new());
        let calls = AtomicU64::new(0);
        let get = || {
            cache.get_or_fetch(key(&cache, 1), || async {
                calls.fetch_add(1, Ordering::Relaxed);
                go.notified().await;
                Ok(40)
            })
        };
        let release = async {
            tokio::task::yield_now().await;
            go.notify_one();
        };
        let (one, two, three, ()) = tokio::join!(get(), get(), get(), release);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        assert_eq!([one, two, three].map(|(count, _)| count), [Ok(40); 3]);
        assert_eq!([one.1, two.1, three.1].iter().filter(|is_cached| !**is_cached).count(), 1);
    }

    #[tokio::test]
    async fn the_next_one_asks_when_the_first_has_left() {
        let (cache, calls) = (Arc::new(CountCache::new()), Arc::new(AtomicU64::new(0)));
        let get = |hangs: bool| {
            let (cache, calls) = (Arc::clone(&cache), Arc::clone(&calls));
            async move {
                let ask = || async {
                    calls.fetch_add(1, Ordering::Relaxed);
                    if hangs {
                        std::future::pending::<()>().await;
                    }
                    Ok(40)
                };
                cache.get_or_fetch(key(&cache, 1), ask).await
            }
        };
        let first = tokio::spawn(get(true));
        tokio::task::yield_now().await;
        let second = tokio::spawn(get(false));
        tokio::task::yield_now().await;
        assert_eq!(calls.load(Ordering::Relaxed), 1, "the second waits");
        first.abort();
        assert_eq!(second.await.expect("joined"), (Ok(40), false));
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_failure_is_shared_and_not_kept() {
        let cache = CountCache::new();
        let failed = || async { Err(CountOutcome::Refused) };
        let get = || cache.get_or_fetch(key(&cache, 1), failed);
        let (one, two) = tokio::join!(get(), get());
        assert_eq!((one.0, two.0), (Err(CountOutcome::Refused), Err(CountOutcome::Refused)));
        assert!(cache.entries.lock().by_key.is_empty());
        let calls = cache.get_or_fetch(key(&cache, 1), || async { Ok(5) }).await;
        assert_eq!(calls, (Ok(5), false));
    }

    #[test]
    fn what_was_not_used_for_longest_makes_room() {
        let (cache, now) = (CountCache::new(), Instant::now());
        let all = u64::try_from(ENTRIES_MAX).expect("small");
        (0..all).for_each(|number| drop(cache.entry(key(&cache, number), now)));
        drop(cache.entry(key(&cache, 0), now));
        drop(cache.entry(key(&cache, all), now));
        let has = |number| cache.entries.lock().by_key.contains_key(&key(&cache, number));
        assert!(has(0) && has(all) && !has(1), "the first was used again");
        assert_eq!(cache.entries.lock().by_key.len(), ENTRIES_MAX);
        let old = cache.entry(key(&cache, 0), now);
        let anew = cache.entry(key(&cache, 0), now + TIME);
        assert!(!Arc::ptr_eq(&old, &anew), "a count is not believed for ever");
    }
}
