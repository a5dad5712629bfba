//! What is due, and who asks: the seam between the work on tasks and where tasks are kept.
//!
//! A process that has its tasks to itself keeps both in its memory (`local`); the nodes of a fleet keep
//! both in their database (`shared`). Which it is is chosen at the start, and only this file matches on
//! it: the rest of `tasks` does not know. What each kind of agenda does:
//!
//! | | `local` | `shared` |
//! |---|---|---|
//! | what is due | in a timetable, which a start fills from the ledger | in the database: a node takes what it has room for, and holds it for a while |
//! | who asks, of many who want to know | the first of this process; the others wait for it | the node that holds the task; the others go without |
//! | what an upstream said last | is remembered here, until the end | stands beside the task |
//! | a submit of which nothing was heard | was this process's own | may be another node's, which may still be at it |
//! | announcements | wait here as long as they must | are any node's again after a short time |

mod live;
mod local;
mod shared;
mod timetable;

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Duration;

use super::slots::Slots;
use crate::clock::UnixMs;
use crate::fleet::InFleet;
use crate::fleet::postgres::tasks::SharedTasks;
use crate::ledger::{AccountId, Ledger, LedgerError, Task, TaskId};
use crate::protocols::task::{Report, TaskState};
use local::{LocalAgenda, LocalAsking};
use shared::{SharedAgenda, SharedAsking};

/// When a task must be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) at: UnixMs,
    pub(super) account: AccountId,
    pub(super) task: TaskId,
    /// Its upstream is to be asked at this very time: the slot is taken.
    pub(super) has_slot: bool,
}

impl Ord for Due {
    /// The earliest is the greatest: that is what a heap gives first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.task).cmp(&(self.at, self.task))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What the upstream of a task said last.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) state: TaskState,
    pub(super) document: String,
    /// When the state became another.
    pub(super) changed_at: UnixMs,
}

impl Said {
    /// What is known of a task of which its upstream has said nothing.
    fn nothing(task: &Task) -> Self {
        Self { state: TaskState::Processing, document: String::new(), changed_at: task.intent.at }
    }
}

/// An account's task, as a customer finds it.
pub(super) struct FoundTask {
    pub(super) task: Arc<Task>,
    pub(super) said: Said,
    /// Its upstream may know more than `said`.
    pub(super) is_worth_asking: bool,
}

/// Why an upstream is to be asked how a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// The agenda gave the task as due.
    Due,
    /// Somebody waits for an answer, and takes one that is at most this old.
    Wanted(Duration),
}

/// What came of asking how a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// The task has ended.
    Ended,
    /// The task has not ended.
    Unended,
    /// Nobody told whether it has.
    Unheard,
}

/// Who makes the submit of which a task says that it is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Submitter {
    /// This process, which would have said what came of it if it could.
    Own,
    /// A node that is alive, or of which nothing could be read: it may still be at it.
    Alive,
    /// A process that is no more.
    Gone,
}

/// How announcements wait in the memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitingRules {
    /// How many of an account wait here; any more are handed back.
    pub(super) per_account_max: usize,
    /// For how long one waits here before it is handed back.
    pub(super) time_max: Duration,
    /// The shortest time after which one that was handed back is due again; the longest is twice this.
    pub(super) pause: Duration,
}

impl WaitingRules {
    /// Of a process that has its tasks to itself: nobody else would announce them.
    pub(super) const LOCAL: Self =
        Self { per_account_max: usize::MAX, time_max: Duration::MAX, pause: Duration::ZERO };

    /// Of a node of a fleet. A task is this node's for half a minute: little waits here, and not for
    /// long; then any node may take it.
    pub(super) const SHARED: Self = Self {
        per_account_max: 16,
        time_max: Duration::from_secs(10),
        pause: Duration::from_secs(10),
    };
}

/// What is due when, and who asks upstreams about it.
pub(super) struct Agenda(AgendaForm);

enum AgendaForm {
    /// This process has its tasks to itself.
    Local(LocalAgenda),
    /// The nodes of a fleet share them.
    Shared(SharedAgenda),
}

impl Agenda {
    /// The agenda of the tasks that this ledger has: shared where it is that of a fleet's node.
    pub(super) fn new(ledger: &Arc<Ledger>) -> Self {
        match ledger.fleet() {
            None => Self(AgendaForm::Local(LocalAgenda::new(Arc::clone(ledger)))),
            Some(fleet) => Self(AgendaForm::Shared(SharedAgenda::new(SharedTasks::of(fleet)))),
        }
    }

    /// Waits for the next that is due; `None` when there was none within `wait_max`. `room` is how many
    /// can be done at this time.
    pub(super) async fn next(&self, wait_max: Duration, room: usize) -> Option<Due> {
        match &self.0 {
            AgendaForm::Local(local) => local.next(wait_max).await,
            AgendaForm::Shared(shared) => shared.next(wait_max, room).await,
        }
    }

    /// Says when a task must be looked at next, by whoever it may be.
    pub(super) async fn schedule(&self, task: &Task, at: UnixMs) {
        match &self.0 {
            AgendaForm::Local(local) => local.schedule(task, at),
            AgendaForm::Shared(shared) => shared.schedule(task, at).await,
        }
    }

    /// Says when a task must be looked at next that was looked at because it was [`Occasion::Due`].
    pub(super) fn look_again(&self, task: &Task, at: UnixMs) {
        match &self.0 {
            AgendaForm::Local(local) => local.schedule(task, at),
            // That was noted with what was heard.
            AgendaForm::Shared(_) => {}
        }
    }

    /// A look at a task comes later than was planned, by the same process.
    pub(super) fn put_off(&self, due: Due) {
        match &self.0 {
            AgendaForm::Local(local) => local.push(due),
            AgendaForm::Shared(shared) => shared.put_off(due),
        }
    }

    /// An end that this process was to announce now is announced at `due.at`, by whoever it may be.
    pub(super) async fn hand_back(&self, due: Due) {
        match &self.0 {
            AgendaForm::Local(local) => local.push(due),
            AgendaForm::Shared(shared) => shared.hand_back(due).await,
        }
    }

    /// How many processes ask the upstreams.
    pub(super) fn nodes(&self) -> u32 {
        match &self.0 {
            AgendaForm::Local(_) => 1,
            AgendaForm::Shared(shared) => shared.nodes(),
        }
    }

    /// How many tasks have not ended; in a fleet, of those that this node took.
    pub(super) fn open_count(&self) -> u64 {
        match &self.0 {
            AgendaForm::Local(local) => local.open_count(),
            AgendaForm::Shared(shared) => shared.open_count(),
        }
    }

    /// How announcements wait in this process.
    pub(super) fn waiting_rules(&self) -> WaitingRules {
        match &self.0 {
            AgendaForm::Local(_) => WaitingRules::LOCAL,
            AgendaForm::Shared(_) => WaitingRules::SHARED,
        }
    }

    /// The account's task of this id, or of this upstream's id. What was heard within `fresh` is worth
    /// no further question.
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

    /// What the upstream said last of a task; nothing, once the task has ended or where it cannot be
    /// read.
    pub(super) async fn last_said(&self, task: &Task) -> Said {
        match &self.0 {
            AgendaForm::Local(local) => local.last_said(task),
            AgendaForm::Shared(shared) => shared.last_said(task).await,
        }
    }

    /// Waits for the turn of this process to ask how a task is. While a turn lasts nobody else has one
    /// for the same task. `slots` say whether its upstream wants to be left alone.
    ///
    /// # Errors
    /// What is known of the task where it is nobody's turn: somebody asks, or has asked, or may not.
    pub(super) async fn turn_to_ask(
        &self,
        task: &Task,
        occasion: Occasion,
        slots: &Slots,
    ) -> Result<Asking<'_>, Look> {
        Ok(Asking(match &self.0 {
            AgendaForm::Local(local) => {
                AskingForm::Local(local.turn_to_ask(task, occasion, slots).await?)
            }
            AgendaForm::Shared(shared) => {
                AskingForm::Shared(shared.turn_to_ask(task, occasion, slots).await?)
            }
        }))
    }

    /// Who makes the submit of a task that is [`TaskPhase::Submitting`](crate::ledger::TaskPhase::Submitting).
    pub(super) async fn submitter(&self, task: &Task) -> Submitter {
        match &self.0 {
            AgendaForm::Local(_) => Submitter::Own,
            AgendaForm::Shared(shared) => shared.submitter(task).await,
        }
    }

    /// Waits until a task has ended as far as this process can hear of it, for at most `wait_max`.
    pub(super) async fn wait_for_end(&self, task: &Task, wait_max: Duration) {
        match &self.0 {
            AgendaForm::Local(local) => local.wait_for_end(task, wait_max).await,
            AgendaForm::Shared(_) => tokio::time::sleep(wait_max).await,
        }
    }

    /// Forgets what was said of a task: it has ended.
    pub(super) fn let_go(&self, task: TaskId) {
        match &self.0 {
            AgendaForm::Local(local) => local.let_go(task),
            // The end took the place of it in the database.
            AgendaForm::Shared(_) => {}
        }
    }
}

/// A turn of this process to ask how a task is.
pub(super) struct Asking<'a>(AskingForm<'a>);

enum AskingForm<'a> {
    /// Whoever else wants to know in this process waits until it is dropped.
    Local(LocalAsking<'a>),
    /// No other node asks until something is noted, or for half a minute.
    Shared(SharedAsking<'a>),
}

impl Asking<'_> {
    /// The upstream was asked, whatever it said.
    pub(super) fn asked(&mut self) {
        match &mut self.0 {
            AskingForm::Local(asking) => asking.asked(),
            // That is noted with what was heard.
            AskingForm::Shared(_) => {}
        }
    }

    /// Tells whoever waits that the task was ended, and says whether it was.
    pub(super) async fn ended(self, task: &Task) -> Look {
        match self.0 {
            AskingForm::Local(asking) => asking.ended(task).await,
            AskingForm::Shared(_) => Look::Ended,
        }
    }

    /// Notes what was heard of a task that has not ended, `None` for nothing, and when it is looked at
    /// again.
    pub(super) async fn note(self, task: &Task, heard: Option<Report>, next: UnixMs) {
        match self.0 {
            AskingForm::Local(asking) => asking.note(heard),
            AskingForm::Shared(asking) => asking.note(task, heard, next).await,
        }
    }
}

/// Whether a task has not ended. Where that cannot be read it counts as open: whoever ends it finds out.
pub(super) async fn is_open(ledger: &Ledger, task: &Task) -> bool {
    match ledger.task_in_work((task.intent.account, task.id())).await {
        Ok(known) => known.is_some_and(|task| task.ended().is_none()),
        Err(error) => {
            log::warn!("{} could not be read: {error}", task.id());
            true
        }
    }
}
