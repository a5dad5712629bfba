//! Connections of the admin address: how many there may be, and which gives way to one that comes when
//! there are as many. Whoever reaches the address without a token keeps neither probes nor operators
//! out, however many connections they open and whatever they leave half done on them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Pause after a search for a connection to close that found none.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Time in which a connection must show a token, and for which one that has shown a token may be idle, before
/// a newcomer can have its slot. Many simultaneous requests of operators wait for each other, and none of
/// them is cut.
const MOMENT: Duration = Duration::from_millis(250);

/// Table of open connections.
pub(super) struct ConnectionSlots {
    max: usize,
    taken: Mutex<Vec<Arc<ConnectionSlot>>>,
    freed: Notify,
}

/// A connection, as far as the others need to know of it.
pub(super) struct ConnectionSlot {
    state: Mutex<SlotState>,
    leave: Notify,
}

struct SlotState {
    came: Instant,
    /// Time at which a request began or ended last, or the connection came.
    since: Instant,
    /// Requests in flight, until their responses were sent.
    requests: usize,
    /// True if a valid token was used on the connection.
    is_authenticated: bool,
    is_leaving: bool,
}

/// A connection's slot, free again on drop.
pub(super) struct SlotGuard {
    slots: Arc<ConnectionSlots>,
    slot: Arc<ConnectionSlot>,
}

/// A request in flight, until dropped.
pub(super) struct ActiveRequest(Arc<ConnectionSlot>);

impl ConnectionSlots {
    /// A table with `max` free slots.
    pub(super) fn new(max: usize) -> Arc<Self> {
        // At least one, so that a configured zero does not shut the operator out.
        Arc::new(Self { max: max.max(1), taken: Mutex::default(), freed: Notify::new() })
    }

    /// A slot for one who has come, as soon as there is one.
    pub(super) async fn take(self: &Arc<Self>) -> SlotGuard {
        loop {
            if let Some(taken) = self.take_now() {
                return taken;
            }
            // One that gives way is gone at once; who could not may be able to later.
            drop(tokio::time::timeout(LOOK_AGAIN, self.freed.notified()).await);
        }
    }

    /// A free slot, if there is one; otherwise an idle connection is asked to close.
    fn take_now(self: &Arc<Self>) -> Option<SlotGuard> {
        let mut taken = self.taken.lock();
        if taken.len() < self.max {
            let slot = Arc::new(ConnectionSlot::new());
            taken.push(Arc::clone(&slot));
            return Some(SlotGuard { slots: Arc::clone(self), slot });
        }
        let ranked = taken.iter().filter_map(|slot| Some((slot.rank()?, slot)));
        let first = ranked.min_by_key(|(rank, _)| *rank).map(|(_, slot)| Arc::clone(slot));
        drop(taken);
        if let Some(slot) = first {
            slot.give_way();
        }
        None
    }
}

impl ConnectionSlot {
    fn new() -> Self {
        let came = Instant::now();
        let state = SlotState {
            came,
            since: came,
            requests: 0,
            is_authenticated: false,
            is_leaving: false,
        };
        Self { state: Mutex::new(state), leave: Notify::new() }
    }

    /// Order in which connections are closed for newcomers, smallest first. `None` for an operator's request
    /// in flight, for a connection that has just come or been used, and for one that was asked to close
    /// already.
    fn rank(&self) -> Option<(bool, bool, Instant)> {
        let state = self.state.lock();
        let is_busy = state.requests > 0;
        // Whoever is not known gains nothing by asking again and again.
        let is_new =
            if state.is_authenticated { state.since } else { state.came }.elapsed() < MOMENT;
        let may = !(state.is_leaving || is_new || (is_busy && state.is_authenticated));
        // Idle before busy, strangers before operators, and of equals the one that was idle the longest.
        may.then_some((is_busy, state.is_authenticated, state.since))
    }

    fn give_way(&self) {
        self.state.lock().is_leaving = true;
        self.leave.notify_one();
    }

    fn know(&self) {
        self.state.lock().is_authenticated = true;
    }

    /// Notes that a request begins on this connection, until what is returned is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> ActiveRequest {
        let mut state = self.state.lock();
        (state.requests, state.since) = (state.requests + 1, Instant::now());
        ActiveRequest(Arc::clone(self))
    }

    /// Ends when the connection has to give way.
    pub(super) async fn wait_to_leave(&self) {
        self.leave.notified().await;
    }
}

/// A token was shown with a request, or the cookie of an operator's session: its connection is not cut
/// in the middle of one for others.
pub(super) fn mark_authenticated(extensions: &http::Extensions) {
    if let Some(slot) = extensions.get::<Arc<ConnectionSlot>>() {
        slot.know();
    }
}

impl SlotGuard {
    /// The connection, as others see it.
    pub(super) fn slot(&self) -> &Arc<ConnectionSlot> {
        &self.slot
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.slots.taken.lock().retain(|slot| !Arc::ptr_eq(slot, &self.slot));
        // One notification is stored when nobody waits yet, so a slot freed between the look and the wait is
        // not missed.
        self.slots.freed.notify_one();
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        (state.requests, state.since) = (state.requests.saturating_sub(1), Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slot, taken a while ago.
    fn open(slots: &Arc<ConnectionSlots>) -> SlotGuard {
        let taken = slots.take_now().expect("a free slot");
        age(&taken, 2 * MOMENT);
        taken
    }

    fn age(taken: &SlotGuard, by: Duration) {
        let mut state = taken.slot.state.lock();
        let ago = |at: Instant| at.checked_sub(by).expect("an earlier time");
        (state.came, state.since) = (ago(state.came), ago(state.since));
    }

    /// The connection to close for a newcomer.
    fn who_leaves(slots: &Arc<ConnectionSlots>, all: &[SlotGuard]) -> Option<usize> {
        let is_leaving = |taken: &SlotGuard| taken.slot.state.lock().is_leaving;
        let before: Vec<_> = all.iter().map(is_leaving).collect();
        assert!(slots.take_now().is_none(), "there is no free slot");
        all.iter().zip(before).position(|(taken, before)| is_leaving(taken) && !before)
    }

    #[test]
    fn who_is_idle_gives_way_then_strangers_and_no_operator_at_work() {
        let slots = ConnectionSlots::new(6);
        let all: Vec<_> = (0..6).map(|_| open(&slots)).collect();
        let authenticated = [0, 1];
        authenticated.into_iter().for_each(|at| all[at].slot.know());
        let _busy: Vec<_> = [0, 2, 3].map(|at| all[at].slot.begin()).into();
        let order: Vec<_> = (0..6).map(|_| who_leaves(&slots, &all)).collect();
        let expected = [Some(4), Some(5), Some(1), Some(2), Some(3), None];
        assert_eq!(order, expected, "strangers who are idle, then operators, then strangers");
    }

    #[test]
    fn who_has_only_just_come_does_not_give_way() {
        let slots = ConnectionSlots::new(2);
        let all = [slots.take_now(), slots.take_now()].map(|taken| taken.expect("a free slot"));
        all[1].slot.know();
        let _busy = all[0].slot.begin();
        assert_eq!(who_leaves(&slots, &all), None, "each may be about to ask");
        all.iter().for_each(|taken| age(taken, 2 * MOMENT));
        assert_eq!([who_leaves(&slots, &all), who_leaves(&slots, &all)], [Some(1), Some(0)]);
    }

    #[tokio::test]
    async fn who_comes_gets_the_slot_of_the_one_who_leaves() {
        let slots = ConnectionSlots::new(1);
        let first = open(&slots);
        let leaves = async {
            first.slot().wait_to_leave().await;
            drop(first);
        };
        let (second, ()) = tokio::join!(slots.take(), leaves);
        assert_eq!(slots.taken.lock().len(), 1, "the second has it");
        drop(second);
        assert!(slots.taken.lock().is_empty(), "free again");
    }
}
