//! Counts of tokens by providers: those that are kept, and providers that are not asked for a while.

use std::time::{Duration, Instant};

use crate::balance::{AccountCache, CacheBounds};
use crate::gateway::upstream::count_cache::CountCache;

/// Pause after an upstream that has no counter for a model.
pub(crate) const UNSUPPORTED_TIME: Duration = Duration::from_secs(600);
/// Pauses of all accounts together, and of one account: some 500 KB. What one account has caused holds
/// for no other.
const PAUSES_MAX: (usize, usize) = (10_000, 100);

/// Cached counts, and pauses of counters.
#[derive(Debug)]
pub(crate) struct TokenCounts {
    pub(crate) cache: CountCache,
    /// Accounts for which an upstream is not asked for counts, with the time until when.
    pub(crate) pauses: AccountCache<Instant>,
}

impl TokenCounts {
    pub(crate) fn new() -> Self {
        let (all_max, account_max) = PAUSES_MAX;
        let pauses =
            AccountCache::new(CacheBounds { time: UNSUPPORTED_TIME, all_max, account_max });
        Self { cache: CountCache::new(), pauses }
    }
}
