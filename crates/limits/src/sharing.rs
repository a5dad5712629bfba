//! The fleet's side of limits: share requests for the next sync, and the grants that it brings.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Limiter;
use super::entries::SHARDS;
use super::share::{ShareGrant, ShareRequest};
use super::subject::SubjectCounters;

impl Limiter {
    /// Collects the share requests of the next sync: changed demand, and shares due for renewal;
    /// `requests_max` limits at a time, or up to two more.
    ///
    /// What a node gave up, it keeps to from here on, whatever becomes of the sync.
    #[must_use]
    pub fn share_requests(&self, requests_max: usize) -> Vec<ShareRequest> {
        let mut share_requests = Vec::new();
        let first = self.next_shard.load(Ordering::Relaxed);
        for index in (0..SHARDS).map(|index| (first + index) % SHARDS) {
            for (subject, entry) in self.entries.of_part(index) {
                if share_requests.len() >= requests_max {
                    // The next sync goes on here, so that none is left out for ever.
                    self.next_shard.store(index, Ordering::Relaxed);
                    return share_requests;
                }
                entry.request(&subject, &mut share_requests);
            }
        }
        share_requests
    }

    /// Applies the grants of a sync that began at `sent_at`, by [`Limiter::now`]: the shares expire a `term`
    /// later. Returns true if a share was reduced, which the next sync should report at once.
    pub fn apply_grants<'a>(
        &self,
        sent_at: Duration,
        term: Duration,
        grant: impl IntoIterator<Item = (&'a ShareRequest, ShareGrant)>,
    ) -> bool {
        let until = sent_at.saturating_add(term);
        let until_ns = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        let mut is_less = false;
        for (request, grant) in grant {
            let entry = self.entries.get(&request.subject);
            // An entry that is gone meanwhile had nothing in use; its share ends by itself.
            is_less |= entry.is_some_and(|entry| entry.apply(request, &grant, until_ns));
        }
        is_less
    }

    /// True if a request waits for a share, or a reduced share should be reported at once.
    #[must_use]
    pub fn needs_sync(&self) -> bool {
        self.entries.any(SubjectCounters::is_urgent)
    }

    /// The moment that shares end by.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.clock.now_ns())
    }
}
