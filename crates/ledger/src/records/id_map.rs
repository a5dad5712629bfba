//! Maps by ids.

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

/// A map by ids that the gateway makes itself: random numbers, numbers of records and hashes of keys that
/// it gave out. Nobody else chooses any of them, so nobody can choose many that meet in one place, and a
/// hash of a few instructions will do. What customers or operators choose, such as ids of grants or names
/// of models, is not for it.
pub(crate) type IdMap<K, V> = HashMap<K, V, RandomState>;

/// A set of such ids.
pub(crate) type IdSet<K> = HashSet<K, RandomState>;
