//! Objects that upstreams store for accounts: which credential created them.
//!
//! Upstreams see all accounts as one customer, so an id is accepted only from the account that received
//! it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::account_cache::{AccountCache, CacheBounds};

/// OpenAI keeps responses for 30 days (its API reference, "Conversation state").
const TIME: Duration = Duration::from_secs(30 * 86_400);
/// Ids of all accounts together: some 50 MB.
const IDS_MAX: usize = 500_000;
/// Ids of one account.
const ACCOUNT_IDS_MAX: usize = 50_000;

/// Storage location: an upstream with one of its credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home(pub(super) u64);

/// Storage locations of the objects that upstreams keep, by account and id.
#[derive(Debug)]
pub(super) struct ObjectHomes(AccountCache<Home>);

impl Default for ObjectHomes {
    fn default() -> Self {
        let (time, all_max, account_max) = (TIME, IDS_MAX, ACCOUNT_IDS_MAX);
        Self(AccountCache::new(CacheBounds { time, all_max, account_max }))
    }
}

impl ObjectHomes {
    /// Storage location of the object with this id.
    pub(super) fn home(&self, account: u64, id: &str, now: Instant) -> Option<Home> {
        self.0.get(account, id, now)
    }
}

/// Records the ids of objects that an upstream stores for one answer.
#[derive(Clone, Debug)]
pub struct StoredIdRecorder {
    pub(super) stored: Arc<ObjectHomes>,
    pub(super) account: u64,
    pub(super) home: Home,
}

impl StoredIdRecorder {
    /// Record an id from an answer.
    pub fn record(&self, id: &str, now: Instant) {
        self.stored.0.put(self.account, id, self.home, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_accepted_only_from_the_account_that_received_it() {
        let (stored, now) = (Arc::<ObjectHomes>::default(), Instant::now());
        let id_recorder =
            StoredIdRecorder { stored: Arc::clone(&stored), account: 1, home: Home(7) };
        id_recorder.record("resp_1", now);
        assert_eq!(stored.home(1, "resp_1", now), Some(Home(7)));
        assert_eq!(stored.home(2, "resp_1", now), None, "nobody reads another's");
        assert_eq!(stored.home(1, "resp_1", now + TIME), None);
    }
}
