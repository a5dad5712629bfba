//! The agenda that the nodes of a fleet share: each takes of what is due what it has room for, and
//! nobody else looks at that meanwhile.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::timetable::Timetable;
use super::{Due, FoundTask, Look, Occasion, Said, Submitter};
use crate::clock::UnixMs;
use crate::fleet::postgres::tasks::{self, SharedTasks};
use crate::ledger::{AccountId, LedgerError, Task, TaskPhase};
use crate::protocols::task::{Report, TaskState};
use crate::tasks::slots::Slots;

/// How often the database is asked what is due: customers who do not ask hear this much later.
const BEAT: Duration = Duration::from_millis(500);
/// How often the tasks are counted that have not ended.
const COUNT_EVERY: Duration = Duration::from_secs(10);

/// The tasks of a fleet, as one node works on them.
pub(super) struct SharedAgenda {
    tasks: SharedTasks,
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

impl SharedAgenda {
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
    pub(super) fn open_count(&self) -> u64 {
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

    pub(super) async fn schedule(&self, task: &Task, at: UnixMs) {
        // What has ended says itself when it is announced.
        if task.ended().is_some() {
            return;
        }
        if let Err(error) = self.tasks.schedule(task, at).await {
            // It is due when it was before, or when nobody holds it any more.
            log::warn!("{} could not be put on the agenda: {error}", task.id());
        }
    }

    /// An end that this node was to announce is any node's again.
    pub(super) async fn hand_back(&self, due: Due) {
        if let Err(error) = self.tasks.put_off(due.task, due.at).await {
            // It is due again when nobody holds it any more.
            log::warn!("{} could not be put on the agenda: {error}", due.task);
        }
    }

    pub(super) async fn find(
        &self,
        account: AccountId,
        id: &str,
        fresh: Duration,
    ) -> Result<Option<FoundTask>, LedgerError> {
        let found = self.tasks.task(account, id).await?;
        Ok(found.map(|found| {
            let is_fresh = found.asked_ago.is_some_and(|ago| ago < fresh);
            let is_submitted = matches!(found.task.stage, TaskPhase::Submitted { .. });
            FoundTask {
                said: heard_of(&found.task, found.said),
                is_worth_asking: is_submitted && !is_fresh,
                task: found.task,
            }
        }))
    }

    pub(super) async fn last_said(&self, task: &Task) -> Said {
        if task.ended().is_some() {
            return Said::nothing(task);
        }
        match self.tasks.any_task(task.id()).await {
            Ok(found) => heard_of(task, found.and_then(|found| found.said)),
            Err(error) => {
                log::warn!("{} could not be read: {error}", task.id());
                Said::nothing(task)
            }
        }
    }

    /// Of many who want to know, one asks; whoever comes meanwhile goes without.
    pub(super) async fn turn_to_ask(
        &self,
        task: &Task,
        occasion: Occasion,
        slots: &Slots,
    ) -> Result<SharedAsking<'_>, Look> {
        let asking = SharedAsking { tasks: &self.tasks };
        // What is due this node holds, so nobody else asks.
        let Occasion::Wanted(fresh) = occasion else { return Ok(asking) };
        if slots.rest(&task.upstream, Instant::now()).is_some() {
            return Err(Look::Unended);
        }
        match self.tasks.claim_to_ask(task.id(), fresh).await {
            Ok(true) => Ok(asking),
            Ok(false) => Err(Look::Unended),
            Err(error) => {
                log::warn!("{} could not be asked about: {error}", task.id());
                Err(Look::Unheard)
            }
        }
    }

    pub(super) async fn submitter(&self, task: &Task) -> Submitter {
        match self.tasks.is_orphaned(task).await {
            Ok(true) => Submitter::Gone,
            // Where it cannot be read, another look will tell.
            Ok(false) | Err(_) => Submitter::Alive,
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

/// A turn to ask how a task is: this node holds it, until what was heard is noted, or for half a minute.
pub(super) struct SharedAsking<'a> {
    tasks: &'a SharedTasks,
}

impl SharedAsking<'_> {
    /// Tells all nodes.
    pub(super) async fn note(self, task: &Task, heard: Option<Report>, next: UnixMs) {
        let heard = heard.as_ref().map(|report| (report.state.as_str(), report.document.as_str()));
        if let Err(error) = self.tasks.note_asked(task.id(), heard, next).await {
            log::warn!("what was heard of {} could not be noted: {error}", task.id());
        }
    }
}

/// What the nodes have heard of a task.
fn heard_of(task: &Task, said: Option<tasks::Said>) -> Said {
    let Some(tasks::Said { state, document, changed_at }) = said else {
        return Said::nothing(task);
    };
    let state = TaskState::of(&state).unwrap_or(TaskState::Processing);
    Said { state, document, changed_at }
}
