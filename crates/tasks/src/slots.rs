//! Pacing of polls per upstream: fixed intervals, and pauses that the upstream asks for.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Longest pause that an upstream may ask for: customers wait for their videos.
const REST_MAX: Duration = Duration::from_secs(300);

/// Poll slots, keyed by upstream and credential name.
#[derive(Default)]
pub(super) struct PollSlots(Mutex<HashMap<String, PollSlot>>);

#[derive(Clone, Copy)]
struct PollSlot {
    /// Time of the next poll of a due task.
    next: Instant,
    /// End of the pause, which holds for customers' requests too.
    paused_until: Instant,
}

impl PollSlot {
    fn at(now: Instant) -> Self {
        Self { next: now, paused_until: now }
    }
}

impl PollSlots {
    /// Reserve the next slot, `spacing` before the following one: `None` if it is now, else the time
    /// until it.
    pub(super) fn take(&self, upstream: &str, spacing: Duration, now: Instant) -> Option<Duration> {
        let mut slots = self.0.lock();
        let slot = slots.entry(upstream.to_owned()).or_insert_with(|| PollSlot::at(now));
        let at = now.max(slot.next).max(slot.paused_until);
        // Reserved at once, so that the next caller lines up behind.
        slot.next = at + spacing;
        Some(at.saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// Remaining pause that the upstream has asked for.
    pub(super) fn remaining_pause(&self, upstream: &str, now: Instant) -> Option<Duration> {
        let paused_until = self.0.lock().get(upstream)?.paused_until;
        Some(paused_until.saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// Pause the polls of an upstream, for at most [`REST_MAX`].
    pub(super) fn pause(&self, upstream: &str, time: Duration, now: Instant) {
        let mut slots = self.0.lock();
        let slot = slots.entry(upstream.to_owned()).or_insert_with(|| PollSlot::at(now));
        // A shorter pause never cuts a longer one.
        slot.paused_until = slot.paused_until.max(now + time.min(REST_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_spaced_and_honour_pauses() {
        let (slots, now) = (PollSlots::default(), Instant::now());
        let second = Duration::from_secs(1);
        let take = |now| slots.take("a", second, now);
        assert_eq!((take(now), take(now), take(now)), (None, Some(second), Some(2 * second)));
        assert_eq!(slots.take("b", second, now), None, "another upstream");
        assert_eq!(slots.remaining_pause("a", now), None, "its slots are no rest");
        slots.pause("a", 10 * second, now);
        slots.pause("a", second, now);
        assert_eq!(slots.remaining_pause("a", now), Some(10 * second), "the longest");
        assert_eq!((take(now), take(now)), (Some(10 * second), Some(11 * second)));
        assert_eq!(slots.remaining_pause("a", now + 10 * second), None);
        assert_eq!(slots.remaining_pause("b", now), None);
        slots.pause("b", Duration::MAX, now);
        assert_eq!(slots.remaining_pause("b", now), Some(REST_MAX));
    }
}
