//! What a node's limits tell the other nodes of the fleet, and are told.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Limits;
use super::entries::SHARDS;
use super::share::{Ask, Told};
use super::subject::Entry;

impl Limits {
    /// What is to be told to the other nodes now: what changed, and what is to be told again before
    /// it ends; of `asks_max` limits at a time, or of up to two more. Nothing if nothing is limited.
    ///
    /// What a node gave up, it keeps to from here on, whatever becomes of the exchange.
    #[must_use]
    pub fn asks(&self, asks_max: usize) -> Vec<Ask> {
        let mut asks = Vec::new();
        let first = self.next_told.load(Ordering::Relaxed);
        for index in (0..SHARDS).map(|index| (first + index) % SHARDS) {
            for (subject, entry) in self.entries.of_part(index) {
                if asks.len() >= asks_max {
                    self.next_told.store(index, Ordering::Relaxed);
                    return asks;
                }
                entry.ask(&subject, &mut asks);
            }
        }
        asks
    }

    /// Takes what an exchange brought that began at `sent_at`, by [`Limits::now`]: the shares end a
    /// `term` after that. Whether something was given up that is to be told at once.
    pub fn apply_exchange<'a>(
        &self,
        sent_at: Duration,
        term: Duration,
        told: impl IntoIterator<Item = (&'a Ask, Told)>,
    ) -> bool {
        let until = sent_at.saturating_add(term);
        let until_ns = u64::try_from(until.as_nanos()).unwrap_or(u64::MAX);
        let mut is_less = false;
        for (ask, told) in told {
            let entry = self.entries.known(&ask.subject);
            is_less |= entry.is_some_and(|entry| entry.apply(ask, &told, until_ns));
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
