//! A sharded map of counters by name: a lookup locks one shard of [`SHARDS`].

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;

/// The number of shards, each with a lock that is held for a lookup.
pub(super) const SHARDS: usize = 64;
/// A part is not swept below this many entries: they are small.
pub(super) const SWEPT_FROM: usize = 64;

/// Entries by name. Idle ones are dropped.
pub(super) struct EntryTable<K, V> {
    shards: Vec<Mutex<Shard<K, V>>>,
    /// Chooses the shard of a name. It may be fast and predictable: within a shard, the map's own hasher
    /// resists names chosen by clients.
    hasher: RandomState,
}

struct Shard<K, V> {
    entries: HashMap<K, Arc<V>>,
    /// The number of entries at which the next sweep is due.
    sweep_at: usize,
}

impl<K: Hash + Eq, V> EntryTable<K, V> {
    /// An empty table.
    pub(super) fn new() -> Self {
        let shard = || Shard { entries: HashMap::new(), sweep_at: SWEPT_FROM };
        Self {
            shards: (0..SHARDS).map(|_| Mutex::new(shard())).collect(),
            hasher: RandomState::default(),
        }
    }

    /// The number of entries.
    pub(super) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().entries.len()).sum()
    }

    /// The entry of that name, if there is one.
    pub(super) fn get(&self, name: &K) -> Option<Arc<V>> {
        self.shard(name).lock().entries.get(name).map(Arc::clone)
    }

    /// Returns the entry of that name, or a new one. A sweep drops idle entries without another owner.
    pub(super) fn find(
        &self,
        name: K,
        is_idle: impl Fn(&V) -> bool,
        new: impl FnOnce() -> V,
    ) -> Arc<V> {
        let mut shard = self.shard(&name).lock();
        if let Some(entry) = shard.entries.get(&name) {
            return Arc::clone(entry);
        }
        if shard.entries.len() >= shard.sweep_at {
            shard.entries.retain(|_, entry| Arc::strong_count(entry) > 1 || !is_idle(entry));
            // A sweep looks at no more entries than came since the last one, and as many again.
            shard.sweep_at = shard.entries.len().saturating_mul(2).max(SWEPT_FROM);
        }
        let entry = Arc::new(new());
        shard.entries.insert(name, Arc::clone(&entry));
        entry
    }

    /// True if the predicate holds for any entry.
    pub(super) fn any(&self, is_so: impl Fn(&V) -> bool) -> bool {
        self.shards.iter().any(|shard| shard.lock().entries.values().any(|entry| is_so(entry)))
    }

    fn shard(&self, name: &K) -> &Mutex<Shard<K, V>> {
        let hash = self.hasher.hash_one(name);
        &self.shards[usize::try_from(hash % SHARDS as u64).unwrap_or(0)]
    }
}

impl<K: Clone, V> EntryTable<K, V> {
    /// Returns the entries of one shard.
    pub(super) fn of_part(&self, part: usize) -> Vec<(K, Arc<V>)> {
        let Some(shard) = self.shards.get(part) else { return Vec::new() };
        let shard = shard.lock();
        shard.entries.iter().map(|(name, entry)| (name.clone(), Arc::clone(entry))).collect()
    }
}
