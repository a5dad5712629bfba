//! Schedule of polls and announcements, and the right to poll: the boundary between the work on tasks
//! and the store that holds them.
//!
//! A single gateway keeps both in memory (`local`); the nodes of a fleet keep both in their database
//! (`shared`). The choice is made at the start, and only this file matches on it: the rest of `tasks` is
//! the same for both.
//!
//! | | `local` | `shared` |
//! |---|---|---|
//! | due tasks | a timetable in memory, rebuilt from the ledger at a start | the database: a node claims what it has room for, for a while |
//! | concurrent polls of a task | the first one polls; the others wait for its result | the claiming node polls; the others use the stored status |
//! | latest status | in memory, until the end | beside the task in the database |
//! | a submit without an outcome | was this process's own | may be another node's, and still running |
//! | announcements | queue here as long as they must | return to all nodes after a short time |

mod live;
mod local;
mod shared;
mod timetable;

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use super::slots::PollSlots;
use local::{LocalAgenda, LocalPollPermit};
use shared::{SharedAgenda, SharedPollPermit};
use tollgate_fleet::HasFleet;
use tollgate_fleet::postgres::tasks::SharedTasks;
use tollgate_ledger::{AccountId, Ledger, LedgerError, Task, TaskId};
use tollgate_protocols::task::{TaskReport, TaskState};
use tollgate_types::clock::UnixMs;

/// A task with the time at which it must be polled or announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DueTask {
    pub(super) at: UnixMs,
    pub(super) account: AccountId,
    pub(super) task: TaskId,
    /// True if a poll slot at its upstream is already reserved for this time.
    pub(super) has_slot: bool,
}

impl Ord for DueTask {
    /// Reversed, so that a `BinaryHeap` yields the earliest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.task).cmp(&(self.at, self.task))
    }
}

impl PartialOrd for DueTask {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Latest state of a task as reported by its upstream.
#[derive(Clone, Debug)]
pub(super) struct UpstreamStatus {
    pub(super) state: TaskState,
    pub(super) document: String,
    /// Time of the last change of `state`.
    pub(super) changed_at: UnixMs,
}

impl UpstreamStatus {
    /// Status of a task before its first report: processing since its submit.
    fn initial(task: &Task) -> Self {
        Self { state: TaskState::Processing, document: String::new(), changed_at: task.intent.at }
    }
}

/// A task of an account with its latest status, for the customer's GET.
pub(super) struct FoundTask {
    pub(super) task: Arc<Task>,
    pub(super) status: UpstreamStatus,
    /// True if the upstream should be polled first: `status` may be stale.
    pub(super) needs_poll: bool,
}

/// Reason for a poll, which decides how fresh a status suffices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PollReason {
    /// The agenda gave the task as due.
    Due,
    /// A customer waits, and accepts a status of at most this age.
    MaxAge(Duration),
}

/// Result of polling a task's upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PollResult {
    /// The task has ended.
    Ended,
    /// The task has not ended.
    Open,
    /// No usable answer: the upstream or the database failed.
    Unknown,
}

/// Process that is submitting a task whose stage is `Submitting`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Submitter {
    /// This process: the submit was interrupted, since its outcome would have been recorded.
    Own,
    /// A live node, or one whose state could not be read: the submit may still be running.
    Alive,
    /// The process has ended.
    Dead,
}

/// Limits on announcements queued in this process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitingRules {
    /// Largest number queued per account; any more are handed back.
    pub(super) per_account_max: usize,
    /// Longest time in the queue before an announcement is handed back.
    pub(super) time_max: Duration,
    /// Shortest delay before an announcement that was handed back is due again; the longest is twice
    /// this.
    pub(super) pause: Duration,
}

impl WaitingRules {
    /// Rules of a single gateway: unlimited, since no other process would announce them.
    pub(super) const LOCAL: Self =
        Self { per_account_max: usize::MAX, time_max: Duration::MAX, pause: Duration::ZERO };

    /// Rules of a fleet's node. Its claim on a task lasts half a minute, so the queue is short and
    /// short-lived; then any node may take over.
    pub(super) const SHARED: Self = Self {
        per_account_max: 16,
        time_max: Duration::from_secs(10),
        pause: Duration::from_secs(10),
    };
}

/// Schedule of the tasks that have work left, and arbiter of polls.
pub(super) struct Agenda(AgendaForm);

enum AgendaForm {
    /// A single gateway.
    Local(LocalAgenda),
    /// The nodes of a fleet share one schedule.
    Shared(SharedAgenda),
}

impl Agenda {
    /// Create the agenda for this ledger: shared if the ledger belongs to a node of a fleet.
    pub(super) fn new(ledger: &Arc<Ledger>) -> Self {
        match ledger.fleet() {
            None => Self(AgendaForm::Local(LocalAgenda::new(Arc::clone(ledger)))),
            Some(fleet) => Self(AgendaForm::Shared(SharedAgenda::new(SharedTasks::of(fleet)))),
        }
    }

    /// Wait for the next due task; `None` if none is due within `wait_max`. `room` is the number that
    /// can be started now.
    pub(super) async fn next(&self, wait_max: Duration, room: usize) -> Option<DueTask> {
        match &self.0 {
            AgendaForm::Local(local) => local.next(wait_max).await,
            AgendaForm::Shared(shared) => shared.next(wait_max, room).await,
        }
    }

    /// Schedule the next work on a task, for any process.
    pub(super) async fn schedule(&self, task: &Task, at: UnixMs) {
        match &self.0 {
            AgendaForm::Local(local) => local.schedule(task, at),
            AgendaForm::Shared(shared) => shared.schedule(task, at).await,
        }
    }

    /// Schedule the next poll of a task that was polled because it was [`PollReason::DueTask`].
    pub(super) fn schedule_poll(&self, task: &Task, at: UnixMs) {
        match &self.0 {
            AgendaForm::Local(local) => local.schedule(task, at),
            // Recorded together with the report.
            AgendaForm::Shared(_) => {}
        }
    }

    /// Postpone the work on a task, keeping it in this process.
    pub(super) fn put_off(&self, due: DueTask) {
        match &self.0 {
            AgendaForm::Local(local) => local.push(due),
            AgendaForm::Shared(shared) => shared.put_off(due),
        }
    }

    /// Return an announcement to the schedule, for any process from `due.at`.
    pub(super) async fn hand_back(&self, due: DueTask) {
        match &self.0 {
            AgendaForm::Local(local) => local.push(due),
            AgendaForm::Shared(shared) => shared.hand_back(due).await,
        }
    }

    /// Number of processes that poll the upstreams.
    pub(super) fn nodes(&self) -> u32 {
        match &self.0 {
            AgendaForm::Local(_) => 1,
            AgendaForm::Shared(shared) => shared.nodes(),
        }
    }

    /// Number of open tasks; in a fleet, of those that this node submitted.
    pub(super) fn open_count(&self) -> u64 {
        match &self.0 {
            AgendaForm::Local(local) => local.open_count(),
            AgendaForm::Shared(shared) => shared.open_count(),
        }
    }

    /// Limits on announcements queued in this process.
    pub(super) fn waiting_rules(&self) -> WaitingRules {
        match &self.0 {
            AgendaForm::Local(_) => WaitingRules::LOCAL,
            AgendaForm::Shared(_) => WaitingRules::SHARED,
        }
    }

    /// Find an account's task by its id or by its upstream's id. A status younger than `fresh` needs no
    /// poll.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub(super) async fn find(
        &self,
        account: AccountId,
        id: &str,
        fresh: Duration,
    ) -> Result<Option<FoundTask>, LedgerError> {
        match &self.0 {
            AgendaForm::Local(local) => local.find(account, id).await,
            AgendaForm::Shared(shared) => shared.find(account, id, fresh).await,
        }
    }

    /// Latest status of a task; the initial one if the task has ended or cannot be read.
    pub(super) async fn last_status(&self, task: &Task) -> UpstreamStatus {
        match &self.0 {
            AgendaForm::Local(local) => local.last_status(task),
            AgendaForm::Shared(shared) => shared.last_status(task).await,
        }
    }

    /// Wait for permission to poll a task. No other process or request polls the same task while the
    /// permit lives. `slots` tells when the upstream has asked for a pause.
    ///
    /// # Errors
    /// The result to use without polling: another poll is running or recent, or the upstream has asked
    /// for a pause.
    pub(super) async fn acquire_poll(
        &self,
        task: &Task,
        reason: PollReason,
        slots: &PollSlots,
    ) -> Result<PollPermit<'_>, PollResult> {
        Ok(PollPermit(match &self.0 {
            AgendaForm::Local(local) => {
                PollPermitForm::Local(local.acquire_poll(task, reason, slots).await?)
            }
            AgendaForm::Shared(shared) => {
                PollPermitForm::Shared(shared.acquire_poll(task, reason, slots).await?)
            }
        }))
    }

    /// Process that is submitting a task in [`TaskPhase::Submitting`](tollgate_ledger::TaskPhase::Submitting).
    pub(super) async fn submitter(&self, task: &Task) -> Submitter {
        match &self.0 {
            AgendaForm::Local(_) => Submitter::Own,
            AgendaForm::Shared(shared) => shared.submitter(task).await,
        }
    }

    /// Wait until this process learns that a task has ended, for at most `wait_max`.
    pub(super) async fn wait_for_end(&self, task: &Task, wait_max: Duration) {
        match &self.0 {
            AgendaForm::Local(local) => local.wait_for_end(task, wait_max).await,
            AgendaForm::Shared(_) => tokio::time::sleep(wait_max).await,
        }
    }

    /// Drop the status of a task that has ended.
    pub(super) fn forget(&self, task: TaskId) {
        match &self.0 {
            AgendaForm::Local(local) => local.forget(task),
            // The end has replaced it in the database.
            AgendaForm::Shared(_) => {}
        }
    }
}

/// Permission to poll a task once.
pub(super) struct PollPermit<'a>(PollPermitForm<'a>);

enum PollPermitForm<'a> {
    /// Excludes other polls in this process until dropped.
    Local(LocalPollPermit<'a>),
    /// Excludes polls of other nodes until the result is recorded, or for half a minute.
    Shared(SharedPollPermit<'a>),
}

impl PollPermit<'_> {
    /// Record the time of the poll, whatever its result.
    pub(super) fn record_poll(&mut self) {
        match &mut self.0 {
            PollPermitForm::Local(permit) => permit.record_poll(),
            // That is noted with what was heard.
            PollPermitForm::Shared(_) => {}
        }
    }

    /// Wake everyone who waits for the end of the task, and return the resulting state.
    pub(super) async fn ended(self, task: &Task) -> PollResult {
        match self.0 {
            PollPermitForm::Local(permit) => permit.ended(task).await,
            PollPermitForm::Shared(_) => PollResult::Ended,
        }
    }

    /// Record the report on a task that has not ended (`None` after a failed poll) and the time of the
    /// next poll.
    pub(super) async fn note(self, task: &Task, report: Option<TaskReport>, next: UnixMs) {
        match self.0 {
            PollPermitForm::Local(permit) => permit.note(report),
            PollPermitForm::Shared(permit) => permit.note(task, report, next).await,
        }
    }
}

/// True if a task has not ended, or cannot be read: ending it later detects that.
pub(super) async fn is_open(ledger: &Ledger, task: &Task) -> bool {
    match ledger.task_in_work((task.intent.account, task.id())).await {
        Ok(stored) => stored.is_some_and(|task| task.ended().is_none()),
        Err(error) => {
            log::warn!("{} could not be read: {error}", task.id());
            true
        }
    }
}
