//! When an upstream may be asked how tasks are: at intervals, and not while it has asked for time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// For how long at most an upstream's word is taken that it has no time: customers wait for their videos.
const REST_MAX: Duration = Duration::from_secs(300);

/// All upstreams, by their names and those of the credentials.
#[derive(Default)]
pub(super) struct Slots(Mutex<HashMap<String, Slot>>);

#[derive(Clone, Copy)]
struct Slot {
    /// About a task that is due.
    next: Instant,
    /// About any, also when a customer asks.
    rested: Instant,
}

impl Slot {
    fn at(now: Instant) -> Self {
        Self { next: now, rested: now }
    }
}

impl Slots {
    /// Takes the next slot, `spacing` before the one behind it: `None` when that is at once, else how far
    /// away it is.
    pub(super) fn take(&self, upstream: &str, spacing: Duration, now: Instant) -> Option<Duration> {
        let mut slots = self.0.lock();
        let slot = slots.entry(upstream.to_owned()).or_insert_with(|| Slot::at(now));
        let at = now.max(slot.next).max(slot.rested);
        slot.next = at + spacing;
        Some(at.saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// How long an upstream still wants to be left alone, if it does.
    pub(super) fn rest(&self, upstream: &str, now: Instant) -> Option<Duration> {
        let rested = self.0.lock().get(upstream)?.rested;
        Some(rested.saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// An upstream wants to be left alone for such a time.
    pub(super) fn leave_alone(&self, upstream: &str, time: Duration, now: Instant) {
        let mut slots = self.0.lock();
        let slot = slots.entry(upstream.to_owned()).or_insert_with(|| Slot::at(now));
        slot.rested = slot.rested.max(now + time.min(REST_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_apart_and_wait_for_who_asked_for_time() {
        let (slots, now) = (Slots::default(), Instant::now());
        let second = Duration::from_secs(1);
        let take = |now| slots.take("a", second, now);
        assert_eq!((take(now), take(now), take(now)), (None, Some(second), Some(2 * second)));
        assert_eq!(slots.take("b", second, now), None, "another upstream");
        assert_eq!(slots.rest("a", now), None, "its slots are no rest");
        slots.leave_alone("a", 10 * second, now);
        slots.leave_alone("a", second, now);
        assert_eq!(slots.rest("a", now), Some(10 * second), "the longest");
        assert_eq!((take(now), take(now)), (Some(10 * second), Some(11 * second)));
        assert_eq!(slots.rest("a", now + 10 * second), None);
        assert_eq!(slots.rest("b", now), None);
        slots.leave_alone("b", Duration::MAX, now);
        assert_eq!(slots.rest("b", now), Some(REST_MAX));
    }
}
