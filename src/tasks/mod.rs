//! Work that outlives its request, from its submit to the announcement of its end.
//!
//! | File | What it knows |
//! |---|---|
//! | `agenda` | which task must be looked at when, whose turn it is to ask, and what an upstream said last: in this process alone, or shared by a fleet |
//! | `follow` | asking upstreams, at due times and within a budget, and what the answers mean for the money |
//! | `slots` | when an upstream may be asked |
//! | `operate` | what operators do with single tasks |
//! | `unpaid` | how many of an account's tasks have come to nothing lately |
//! | `webhook` | announcing ends, signed, until they are taken |
//! | `deliveries` | which announcement is sent when: a few at a time for each account and receiver |
//!
//! What must not be lost is in the [`Ledger`]; what an upstream said last of a task that has not ended
//! is kept in memory and asked for again after a restart. In a fleet both are in its database. The state of a task goes
//! `processing → queued → running → succeeded | failed | expired | cancelled`, with any number of steps
//! left out, and never back from an end.

mod agenda;
mod deliveries;
mod follow;
mod operate;
mod slots;
mod unpaid;
mod webhook;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::clock::UnixMs;
use crate::config::ConfigHandle;
use crate::ledger::{AccountId, Ledger, LedgerError, Task, TaskPhase, Webhook};
use crate::metrics::Metrics;
use crate::outbound::Outbound;
use crate::protocols::Dialect;
use crate::protocols::task::{Error, Facts, Shown, TaskCodec, TaskState};
use crate::protocols::task_codec;
use crate::request_log::RequestLog;
use agenda::{Agenda, Occasion, Said};
use deliveries::Deliveries;
pub use follow::doubt_ends_at as given_up_at;
pub use operate::{Announced, Resolution};
use slots::Slots;
use unpaid::Unpaid;
use webhook::Signer;

/// A customer who asks gets what the upstream said at most this long ago.
const FRESH_FOR: Duration = Duration::from_secs(3);
/// How long a customer who asks waits for the upstream before the record is shown as it stands.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a submit can wait for the end of its task (spec section 8).
pub const WAIT_MAX: Duration = Duration::from_secs(60);
/// How often the end of a task is looked for that a customer waits for.
const WAITING_POLL: Duration = Duration::from_secs(1);
/// Requests to upstreams at one time.
const PARALLEL_MAX: usize = 64;

/// All tasks of a gateway.
pub struct Tasks {
    ledger: Arc<Ledger>,
    config: Arc<ConfigHandle>,
    outbound: Outbound,
    metrics: Arc<Metrics>,
    requests: Arc<RequestLog>,
    signer: Signer,
    agenda: Agenda,
    parallel: Arc<Semaphore>,
    deliveries: Deliveries,
    waiting: Semaphore,
    unpaid: Unpaid,
    slots: Slots,
}

/// Too many customers wait already.
#[derive(Clone, Copy, Debug)]
pub struct TooManyWait;

impl Tasks {
    /// Goes on with the tasks of the ledger. Call it within a runtime, before requests are served.
    ///
    /// # Errors
    /// When the key of the webhooks' signatures cannot be read or made.
    pub fn start(
        ledger: Arc<Ledger>,
        config: Arc<ConfigHandle>,
        outbound: Outbound,
        metrics: Arc<Metrics>,
        requests: Arc<RequestLog>,
        data_dir: &Path,
    ) -> std::io::Result<Arc<Self>> {
        let waiting = config.load().tasks.waiting_max as usize;
        let agenda = Agenda::new(&ledger);
        let tasks = Arc::new(Self {
            ledger,
            config,
            outbound,
            metrics,
            requests,
            signer: Signer::kept_in(data_dir)?,
            deliveries: Deliveries::new(agenda.waiting_rules()),
            agenda,
            parallel: Arc::new(Semaphore::new(PARALLEL_MAX)),
            waiting: Semaphore::new(waiting),
            unpaid: Unpaid::default(),
            slots: Slots::default(),
        });
        // Whoever had an answer of the last process, or none because of its end, repeats it now.
        tasks.ledger.count_submits_from_now(follow::SUBMIT_MAX + WAIT_MAX);
        // Looked for at once: what is submitted from here on is this process's own.
        let left = tasks.ledger.tasks_in_work();
        let resumed = Arc::clone(&tasks);
        tokio::spawn(async move {
            resumed.resume(left).await;
            follow::run(resumed).await;
        });
        Ok(tasks)
    }

    /// Takes up what the last process left. A submit that was under way is in doubt now, unless it is
    /// known that it was not sent: the upstream may have taken it, so it is not repeated.
    async fn resume(&self, left: Vec<Arc<Task>>) {
        for task in left {
            let at = match (&task.stage, task.webhook) {
                (TaskPhase::Submitting, _) if self.ledger.was_never_sent(task.intent.hold) => {
                    self.reject_unsent(&task).await;
                    continue;
                }
                (TaskPhase::Submitting, _) => {
                    let doubt = |task: &Task| Task { stage: TaskPhase::InDoubt, ..task.clone() };
                    let id = (task.intent.account, task.id());
                    if let Err(error) = self.ledger.change_task(id, doubt).await {
                        log::error!("{} cannot be put in doubt: {error}", task.id());
                    }
                    log::warn!("{} is in doubt: its submit was under way", task.id());
                    follow::doubt_ends_at(&task)
                }
                (TaskPhase::InDoubt, _) => follow::doubt_ends_at(&task),
                (TaskPhase::Ended(_), Webhook::Due { at, .. }) => at,
                (TaskPhase::Submitted { .. } | TaskPhase::Ended(_), _) => UnixMs::now(),
            };
            self.agenda.schedule(&task, at).await;
        }
    }

    /// A task was submitted: it is followed from now on.
    pub async fn follow(&self, task: &Task) {
        let first = self.config.load().tasks.poll_min;
        self.agenda.schedule(task, UnixMs(UnixMs::now().0 + as_ms(first))).await;
    }

    /// Nobody knows whether the upstream took a task: it is given up when it can be.
    pub async fn doubt(&self, task: &Task) {
        self.agenda.schedule(task, follow::doubt_ends_at(task)).await;
    }

    /// The record of an account's task, by the id that the customer knows.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn record(
        &self,
        account: AccountId,
        id: &str,
    ) -> Result<Option<String>, LedgerError> {
        let found = self.agenda.find(account, id, FRESH_FOR).await?;
        let Some(mut found) = found.filter(|found| is_known_by(&found.task, id)) else {
            return Ok(None);
        };
        if found.is_worth_asking {
            // In time or not, and whoever asks: the record is shown.
            let asking = self.ask_in_turn(&found.task, Occasion::Wanted(FRESH_FOR));
            drop(tokio::time::timeout(REFRESH_TIMEOUT, asking).await);
            found = self.agenda.find(account, id, FRESH_FOR).await?.unwrap_or(found);
        }
        Ok(Some(shown_as(&found.task, &found.said, UnixMs::now())))
    }

    /// Waits for the end of a task, for at most [`WAIT_MAX`], and gives its record as it stands then.
    ///
    /// # Errors
    /// [`TooManyWait`].
    pub async fn wait(&self, task: &Task) -> Result<String, TooManyWait> {
        let _place = self.waiting.try_acquire().map_err(|_| TooManyWait)?;
        let deadline = Instant::now() + WAIT_MAX;
        let (account, id) = (task.intent.account, task.id());
        while Instant::now() < deadline && agenda::is_open(&self.ledger, task).await {
            let left = deadline.saturating_duration_since(Instant::now());
            let asking = self.ask_in_turn(task, Occasion::Wanted(WAITING_POLL));
            drop(tokio::time::timeout(left, asking).await);
            self.agenda.wait_for_end(task, left.min(WAITING_POLL)).await;
        }
        let known = self.ledger.task(account, &id.to_string()).await.ok().flatten();
        Ok(self.shown(known.as_deref().unwrap_or(task)).await)
    }

    /// Whether another customer may wait.
    #[must_use]
    pub fn has_room_to_wait(&self) -> bool {
        self.waiting.available_permits() > 0
    }

    /// When an account may submit again of which `most` tasks may come to nothing in a minute; `None`
    /// for at once.
    #[must_use]
    pub fn pause(&self, account: AccountId, most: u32) -> Option<Duration> {
        self.unpaid.pause(account, most, Instant::now())
    }

    /// A task came to nothing, and nobody pays for it.
    pub fn note_unpaid(&self, account: AccountId) {
        self.unpaid.note(account, Instant::now());
    }

    /// What the customer's receiver checks the signatures of webhooks with.
    #[must_use]
    pub fn webhook_secret(&self, account: AccountId) -> String {
        self.signer.secret(account)
    }

    /// The record of a task as it stands: JSON.
    pub async fn shown(&self, task: &Task) -> String {
        let said = self.agenda.last_said(task).await;
        shown_as(task, &said, UnixMs::now())
    }

    /// How many tasks have not ended; in a fleet, of those that this node took.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.agenda.open_count()
    }
}

/// What the record says of a task that is [overdue](is_overdue).
const OVERDUE: Error = Error {
    code: "Expired",
    message: "The video was not made in time. Should its upstream end it well all the same, this \
              record has it, and it is charged.",
};

/// Whether the time of a task is over that an upstream has taken and not ended. Its customer reads that
/// it has expired. It ends, and gives back what it holds, only by its upstream's word or when nobody
/// expects one any more: it may yet be made, and billed.
fn is_overdue(task: &Task, now: UnixMs) -> bool {
    matches!(task.stage, TaskPhase::Submitted { .. }) && now >= task.intent.expires_at
}

/// The id by which the customer knows a task: the gateway's, or in family S the upstream's, of which
/// there is none before an upstream has taken the task.
pub(crate) fn customer_id(task: &Task) -> Option<String> {
    if codec_of(task).is_some_and(TaskCodec::is_native) {
        return task.upstream_id().map(str::to_owned);
    }
    Some(task.id().to_string())
}

/// The record, at `now`, of a task that has ended, or of which `said` was said last.
fn shown_as(task: &Task, said: &Said, now: UnixMs) -> String {
    let Some(codec) = codec_of(task) else { return "null".to_owned() };
    let facts = facts_of(task);
    let expired;
    let (state, document, updated_at) = match task.ended() {
        Some(ended) => {
            let state = TaskState::of(&ended.state).unwrap_or(TaskState::Failed);
            (state, &ended.document, ended.at)
        }
        None if is_overdue(task, now) => {
            expired = given_up(task, &said.document, &OVERDUE);
            (TaskState::Expired, &expired, task.intent.expires_at)
        }
        None => (said.state, &said.document, said.changed_at),
    };
    let id = customer_id(task).unwrap_or_else(|| task.id().to_string());
    codec.record(&Shown {
        id: &id,
        model: &task.intent.model,
        state,
        facts: &facts,
        document,
        created_at: task.intent.at.0 / 1000,
        updated_at: updated_at.0 / 1000,
    })
}

/// The document of a task that the gateway ends itself with this error.
fn given_up(task: &Task, said: &str, error: &Error) -> String {
    codec_of(task).map_or_else(|| "null".to_owned(), |codec| codec.given_up(said, error))
}

/// Whether customers call the task by this id: one of the gateway's own, or the upstream's where they
/// got that.
fn is_known_by(task: &Task, id: &str) -> bool {
    let is_native = codec_of(task).is_some_and(TaskCodec::is_native);
    is_native == (task.upstream_id() == Some(id))
}

/// How the upstreams of the task are asked.
pub(crate) fn codec_of(task: &Task) -> Option<&'static dyn TaskCodec> {
    let spoken = |dialect: &&Dialect| dialect.as_str() == task.intent.protocol;
    task_codec(*Dialect::ALL.iter().find(spoken)?)
}

fn facts_of(task: &Task) -> Facts {
    // The gateway wrote them itself; without them the hold still bounds the charge.
    Facts::decode(&task.intent.facts).unwrap_or_default()
}

fn as_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
