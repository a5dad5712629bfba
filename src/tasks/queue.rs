//! What is due in a fleet: each node takes of it what it has room for, and nobody else looks at that
//! meanwhile.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::agenda::{Due, Timetable};
use crate::clock::UnixMs;
use crate::fleet::postgres::tasks::SharedTasks;

/// How often the database is asked what is due: customers who do not ask hear this much later.
const BEAT: Duration = Duration::from_millis(500);
/// How often the tasks are counted that have not ended.
const COUNT_EVERY: Duration = Duration::from_secs(10);

/// The tasks of a fleet, as one node works on them.
pub(super) struct Queue {
    pub(super) tasks: SharedTasks,
    /// What this node has taken and not begun.
    taken: Timetable,
    beats: Mutex<Beats>,
    nodes: AtomicU32,
    open: AtomicU64,
}

struct Beats {
    /// When the database is asked again.
    claim_at: Instant,
    count_at: Instant,
}

impl Queue {
    pub(super) fn new(tasks: SharedTasks) -> Self {
        let now = Instant::now();
        Self {
            tasks,
            taken: Timetable::default(),
            beats: Mutex::new(Beats { claim_at: now, count_at: now }),
            nodes: AtomicU32::new(1),
            open: AtomicU64::new(0),
        }
    }

    /// How many nodes ask the upstreams, as far as is known.
    pub(super) fn nodes(&self) -> u32 {
        self.nodes.load(Ordering::Relaxed).max(1)
    }

    /// How many tasks that this node took had not ended when they were counted last.
    pub(super) fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn put_off(&self, due: Due) {
        self.taken.push(due);
    }

    /// Waits for something to do; `None` when there was nothing within `wait_max`.
    pub(super) async fn next(&self, wait_max: Duration, room: usize) -> Option<Due> {
        let until = Instant::now() + wait_max;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let claim_at = self.beats.lock().claim_at;
            let beat = claim_at.saturating_duration_since(Instant::now());
            if let Some(due) = self.taken.next(beat.min(left)).await {
                return Some(due);
            }
            if left.is_zero() {
                return None;
            }
            if Instant::now() >= claim_at {
                self.beats.lock().claim_at = Instant::now() + BEAT;
                self.claim(room.saturating_sub(self.taken.len())).await;
                self.count().await;
            }
        }
    }

    async fn claim(&self, limit: usize) {
        if limit == 0 {
            return;
        }
        match self.tasks.claim(limit).await {
            Ok(None) => {}
            Ok(Some(claims)) => {
                self.nodes.store(claims.nodes, Ordering::Relaxed);
                let now = UnixMs::now();
                for (place, (account, task)) in (0..).zip(claims.tasks) {
                    // In their order.
                    let at = UnixMs(now.0.saturating_sub(1000).saturating_add(place));
                    self.taken.push(Due { at, account, task, has_slot: false });
                }
            }
            Err(error) => log::warn!("nobody knows which tasks are due: {error}"),
        }
    }

    async fn count(&self) {
        if Instant::now() < self.beats.lock().count_at {
            return;
        }
        self.beats.lock().count_at = Instant::now() + COUNT_EVERY;
        match self.tasks.count_own().await {
            Ok(open) => self.open.store(open, Ordering::Relaxed),
            Err(error) => log::warn!("the open tasks could not be counted: {error}"),
        }
    }
}
