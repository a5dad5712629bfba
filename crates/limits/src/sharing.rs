//! What a node's limits tell the other nodes of the fleet, and are told.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Limits;
use super::entries::SHARDS;
use super::share::{ShareGrant, ShareRequest};
use super::subject::Entry;

impl Limits {
    /// What is to be told to the other nodes now: what changed, and what is to be told again before
    /// it ends; of `asks_max` limits at a time, or of up to two more. Nothing if nothing is limited.
    ///
    /// What a node gave up, it keeps to from here on, whatever becomes of the exchange.
    #[must_use]
    pub fn share_requests(&self, asks_max: usize) -> Vec<ShareRequest> {
        let mut share_requests = Vec::new();
        let first = self.next_told.load(Ordering::Relaxed);
        for index in (0..SHARDS).map(|index| (first + index) % SHARDS) {
            for (subject, entry) in self.entries.of_part(index) {
                if share_requests.len() >= asks_max {
                    self.next_told.store(index, Ordering::Relaxed);
                    return share_requests;
                }
                entry.request(&subject, &mut share_requests);
            }
        }
        share_requests
    }

    /// Takes what an exchange brought that began at `sent_at`, by [`Limits::now`]: the shares end a
    /// `term` after that. Whether something was given up that is to be told at once.
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
            let entry = self.entries.known(&request.subject);
            is_less |= entry.is_some_and(|entry| entry.apply(request, &grant, until_ns));
        }
        is_less
    }

    /// Whether a request waits for a share, or something is to be told at once.
    #[must_use]
    pub fn are_urgent(&self) -> bool {
        self.entries.any(Entry::is_urgent)
    }

    /// The moment that shares end by.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.clock.now_ns())
    }
}
