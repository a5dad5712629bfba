//! Agenda shared by the nodes of a fleet: each claims as many due tasks as it has room for, exclusively.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::timetable::Timetable;
use super::{DueTask, FoundTask, PollReason, PollResult, Submitter, UpstreamStatus};
use crate::slots::PollSlots;
use tollgate_fleet::postgres::tasks::{self, SharedTasks};
use tollgate_ledger::{AccountId, LedgerError, Task, TaskPhase};
use tollgate_protocols::task::{TaskReport, TaskState};
use tollgate_types::clock::UnixMs;

/// Interval of the query for due tasks: the longest delay of a webhook on top of its polls.
const BEAT: Duration = Duration::from_millis(500);
/// Interval of the count of open tasks.
const COUNT_EVERY: Duration = Duration::from_secs(10);

/// One node's view of the fleet's tasks.
pub(super) struct SharedAgenda {
    tasks: SharedTasks,
    /// Claimed by this node and not started.
    taken: Timetable,
    beats: Mutex<Beats>,
    nodes: AtomicU32,
    open: AtomicU64,
}

struct Beats {
    /// Time of the next query for due tasks.
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

    /// Number of nodes that poll the upstreams, as of the last claim.
    pub(super) fn nodes(&self) -> u32 {
        self.nodes.load(Ordering::Relaxed).max(1)
    }

    /// Number of open tasks that this node submitted, as of the last count.
    pub(super) fn open_count(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn put_off(&self, due: DueTask) {
        self.taken.push(due);
    }

    /// Wait for a due task; `None` if there is none within `wait_max`.
    pub(super) async fn next(&self, wait_max: Duration, room: usize) -> Option<DueTask> {
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
                // From start to start, so that a slow claim does not delay the next one.
                self.beats.lock().claim_at = Instant::now() + BEAT;
                self.claim(room.saturating_sub(self.taken.len())).await;
                self.count().await;
            }
        }
    }

    pub(super) async fn schedule(&self, task: &Task, at: UnixMs) {
        // The record of an ended task has the time of its announcement.
        if task.ended().is_some() {
            return;
        }
        if let Err(error) = self.tasks.schedule(task, at).await {
            // It stays due at its old time, or once its claim expires.
            log::warn!("{} could not be scheduled: {error}", task.id());
        }
    }

    /// Release the claim on an announcement, for any node.
    pub(super) async fn hand_back(&self, due: DueTask) {
        if let Err(error) = self.tasks.put_off(due.task, due.at).await {
            // It is due again once its claim expires.
            log::warn!("{} could not be scheduled: {error}", due.task);
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
            let is_fresh = found.polled_ago.is_some_and(|ago| ago < fresh);
            let is_submitted = matches!(found.task.stage, TaskPhase::Submitted { .. });
            FoundTask {
                status: stored_status(&found.task, found.status),
                needs_poll: is_submitted && !is_fresh,
                task: found.task,
            }
        }))
    }

    pub(super) async fn last_status(&self, task: &Task) -> UpstreamStatus {
        if task.ended().is_some() {
            return UpstreamStatus::initial(task);
        }
        match self.tasks.any_task(task.id()).await {
            Ok(found) => stored_status(task, found.and_then(|found| found.status)),
            Err(error) => {
                log::warn!("{} could not be read: {error}", task.id());
                UpstreamStatus::initial(task)
            }
        }
    }

    /// Grant one poll at a time; concurrent requests get the stored status.
    pub(super) async fn acquire_poll(
        &self,
        task: &Task,
        reason: PollReason,
        slots: &PollSlots,
    ) -> Result<SharedPollPermit<'_>, PollResult> {
        let permit = SharedPollPermit { tasks: &self.tasks };
        // A due task is claimed by this node, so no other node polls it.
        let PollReason::MaxAge(fresh) = reason else { return Ok(permit) };
        if slots.remaining_pause(&task.upstream, Instant::now()).is_some() {
            return Err(PollResult::Open);
        }
        match self.tasks.claim_to_ask(task.id(), fresh).await {
            Ok(true) => Ok(permit),
            Ok(false) => Err(PollResult::Open),
            Err(error) => {
                log::warn!("{} could not be polled: {error}", task.id());
                Err(PollResult::Unknown)
            }
        }
    }

    pub(super) async fn submitter(&self, task: &Task) -> Submitter {
        match self.tasks.is_orphaned(task).await {
            Ok(true) => Submitter::Dead,
            // If it cannot be read, the next check decides.
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
                    // Spaced in the order of the claim.
                    let at = UnixMs(now.0.saturating_sub(1000).saturating_add(place));
                    self.taken.push(DueTask { at, account, task, has_slot: false });
                }
            }
            Err(error) => log::warn!("due tasks could not be claimed: {error}"),
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

/// Permission to poll a task: this node's claim, which ends when the report is recorded or after half a
/// minute.
pub(super) struct SharedPollPermit<'a> {
    tasks: &'a SharedTasks,
}

impl SharedPollPermit<'_> {
    /// Record the report for all nodes.
    pub(super) async fn note(self, task: &Task, report: Option<TaskReport>, next: UnixMs) {
        let report =
            report.as_ref().map(|report| (report.state.as_str(), report.document.as_str()));
        if let Err(error) = self.tasks.note_poll(task.id(), report, next).await {
            log::warn!("the status of {} could not be stored: {error}", task.id());
        }
    }
}

/// Status of a task as the database has it.
fn stored_status(task: &Task, status: Option<tasks::StoredStatus>) -> UpstreamStatus {
    let Some(tasks::StoredStatus { state, document, changed_at }) = status else {
        return UpstreamStatus::initial(task);
    };
    let state = TaskState::of(&state).unwrap_or(TaskState::Processing);
    UpstreamStatus { state, document, changed_at }
}
