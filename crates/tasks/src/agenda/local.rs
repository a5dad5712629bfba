//! Agenda of a single gateway.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;

use super::live::{LiveTask, LiveTasks};
use super::timetable::Timetable;
use super::{DueTask, FoundTask, PollReason, PollResult, UpstreamStatus, is_open};
use crate::slots::PollSlots;
use tollgate_ledger::{AccountId, Ledger, LedgerError, Task, TaskId};
use tollgate_protocols::task::TaskReport;
use tollgate_types::clock::UnixMs;

/// Schedule and statuses in memory: a start rebuilds the schedule from the ledger and polls for the
/// statuses.
pub(super) struct LocalAgenda {
    ledger: Arc<Ledger>,
    timetable: Timetable,
    live: LiveTasks,
}

impl LocalAgenda {
    pub(super) fn new(ledger: Arc<Ledger>) -> Self {
        Self { ledger, timetable: Timetable::default(), live: LiveTasks::default() }
    }

    pub(super) async fn next(&self, wait_max: Duration) -> Option<DueTask> {
        self.timetable.next(wait_max).await
    }

    pub(super) fn push(&self, due: DueTask) {
        self.timetable.push(due);
    }

    pub(super) fn schedule(&self, task: &Task, at: UnixMs) {
        self.push(DueTask { at, account: task.intent.account, task: task.id(), has_slot: false });
    }

    pub(super) fn open_count(&self) -> u64 {
        self.ledger.open_tasks()
    }

    pub(super) async fn find(
        &self,
        account: AccountId,
        id: &str,
    ) -> Result<Option<FoundTask>, LedgerError> {
        let found = self.ledger.task(account, id).await?;
        Ok(found.map(|task| FoundTask {
            status: self.live.last_status(&task),
            // The age of the status is checked when the permit is granted.
            needs_poll: task.ended().is_none(),
            task,
        }))
    }

    pub(super) fn last_status(&self, task: &Task) -> UpstreamStatus {
        self.live.last_status(task)
    }

    pub(super) fn forget(&self, task: TaskId) {
        self.live.forget(task);
    }

    /// Grant one poll at a time: the requests that waited find its result.
    pub(super) async fn acquire_poll(
        &self,
        task: &Task,
        reason: PollReason,
        slots: &PollSlots,
    ) -> Result<LocalPollPermit<'_>, PollResult> {
        let fresh = match reason {
            PollReason::Due => Duration::ZERO,
            PollReason::MaxAge(fresh) => fresh,
        };
        let live = self.live(task).await.ok_or(PollResult::Ended)?;
        // Locked across the poll: requests that come meanwhile wait here, and find it fresh.
        let last_poll = Arc::clone(&live.last_poll).lock_owned().await;
        let is_fresh = last_poll.is_some_and(|last_poll| last_poll.elapsed() < fresh);
        if is_fresh || slots.remaining_pause(&task.upstream, Instant::now()).is_some() {
            return Err(PollResult::Open);
        }
        // After the lock: the poll before may have ended the task.
        if !is_open(&self.ledger, task).await {
            return Err(PollResult::Ended);
        }
        Ok(LocalPollPermit { ledger: &self.ledger, live, last_poll })
    }

    /// Wait for an end that this process learns by polling.
    pub(super) async fn wait_for_end(&self, task: &Task, wait_max: Duration) {
        let live = self.live.entry(task);
        // Registered before the check, so that no end is missed between the two.
        let ended = live.ended.notified();
        if is_open(&self.ledger, task).await {
            drop(tokio::time::timeout(wait_max, ended).await);
        } else {
            self.live.forget(task.id());
        }
    }

    /// Entry of an open task; `None` if the task has ended.
    async fn live(&self, task: &Task) -> Option<Arc<LiveTask>> {
        let live = self.live.entry(task);
        if is_open(&self.ledger, task).await {
            return Some(live);
        }
        self.live.forget(task.id());
        None
    }
}

/// Permission to poll a task; other requests wait until it is dropped.
pub(super) struct LocalPollPermit<'a> {
    ledger: &'a Ledger,
    live: Arc<LiveTask>,
    last_poll: OwnedMutexGuard<Option<Instant>>,
}

impl LocalPollPermit<'_> {
    pub(super) fn record_poll(&mut self) {
        *self.last_poll = Some(Instant::now());
    }

    pub(super) async fn ended(self, task: &Task) -> PollResult {
        self.live.ended.notify_waiters();
        if is_open(self.ledger, task).await { PollResult::Open } else { PollResult::Ended }
    }

    pub(super) fn note(self, report: Option<TaskReport>) {
        let Some(report) = report else { return };
        let mut status = self.live.status.lock();
        if status.state != report.state {
            status.changed_at = UnixMs::now();
        }
        (status.state, status.document) = (report.state, report.document);
    }
}
