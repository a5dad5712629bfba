//! Work that outlives its request, from its submit to the announcement of its end.
//!
//! | File | What it knows |
//! |---|---|
//! | `agenda` | which task must be looked at when; `queue`, in a fleet |
//! | `live` | what an upstream said last of tasks that have not ended |
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
mod live;
mod operate;
mod queue;
mod slots;
mod unpaid;
mod webhook;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::clock::UnixMs;
use crate::config::ConfigHandle;
use crate::fleet::InFleet;
use crate::fleet::postgres::tasks::SharedTasks;
use crate::ledger::{AccountId, Ledger, LedgerError, Stage, Task, Webhook};
use crate::metrics::Metrics;
use crate::outbound::Outbound;
use crate::protocols::Dialect;
use crate::protocols::task::{Error, Facts, Shown, TaskCodec, TaskState};
use crate::protocols::task_codec;
use crate::request_log::RequestLog;
use agenda::{Agenda, Due, Timetable};
use deliveries::Deliveries;
pub use follow::doubt_ends_at as given_up_at;
use live::{AllLive, Live, Said};
pub use operate::{Announced, Resolution};
use queue::Queue;
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
    live: AllLive,
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
        let agenda = match ledger.fleet() {
            None => Agenda::Own(Timetable::default()),
            Some(fleet) => Agenda::Shared(Queue::new(SharedTasks::of(fleet))),
        };
        let tasks = Arc::new(Self {
            ledger,
            config,
            outbound,
            metrics,
            requests,
            signer: Signer::kept_in(data_dir)?,
            live: AllLive::default(),
            deliveries: Deliveries::new(&agenda),
            agenda,
            parallel: Arc::new(Semaphore::new(PARALLEL_MAX)),
            waiting: Semaphore::new(waiting),
            unpaid: Unpaid::default(),
            slots: Slots::default(),
        });
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
                (Stage::Submitting, _) if self.ledger.was_never_sent(task.intent.hold) => {
                    self.reject_unsent(&task).await;
                    continue;
                }
                (Stage::Submitting, _) => {
                    let doubt = |task: &Task| Task { stage: Stage::InDoubt, ..task.clone() };
                    let id = (task.intent.account, task.id());
                    if let Err(error) = self.ledger.change_task(id, doubt).await {
                        log::error!("{} cannot be put in doubt: {error}", task.id());
                    }
                    log::warn!("{} is in doubt: its submit was under way", task.id());
                    follow::doubt_ends_at(&task)
                }
                (Stage::InDoubt, _) => follow::doubt_ends_at(&task),
                (Stage::Ended(_), Webhook::Due { at, .. }) => at,
                (Stage::Submitted { .. } | Stage::Ended(_), _) => UnixMs::now(),
            };
            self.schedule(&task, at).await;
        }
    }

    /// A task was submitted: it is followed from now on.
    pub async fn follow(&self, task: &Task) {
        let first = self.config.load().tasks.poll_min;
        self.schedule(task, UnixMs(UnixMs::now().0 + as_ms(first))).await;
    }

    /// Nobody knows whether the upstream took a task: it is given up when it can be.
    pub async fn doubt(&self, task: &Task) {
        self.schedule(task, follow::doubt_ends_at(task)).await;
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
        if let Agenda::Shared(queue) = &self.agenda {
            return self.shared_record(queue, account, id).await;
        }
        let Some(mut task) =
            self.ledger.task(account, id).await?.filter(|task| is_known_by(task, id))
        else {
            return Ok(None);
        };
        if task.ended().is_none() {
            // In time or not, the record is shown.
            drop(tokio::time::timeout(REFRESH_TIMEOUT, self.refresh(&task, FRESH_FOR)).await);
            task = self.ledger.task(account, id).await?.unwrap_or(task);
        }
        Ok(Some(self.shown(&task).await))
    }

    async fn shared_record(
        &self,
        queue: &Queue,
        account: AccountId,
        id: &str,
    ) -> Result<Option<String>, LedgerError> {
        let found = queue.tasks.task(account, id).await?;
        let Some(mut found) = found.filter(|found| is_known_by(&found.task, id)) else {
            return Ok(None);
        };
        let is_fresh = found.asked_ago.is_some_and(|ago| ago < FRESH_FOR);
        if matches!(found.task.stage, Stage::Submitted { .. }) && !is_fresh {
            // In time or not, and whoever asks: the record is shown.
            let refresh = self.refresh(&found.task, FRESH_FOR);
            drop(tokio::time::timeout(REFRESH_TIMEOUT, refresh).await);
            found = queue.tasks.task(account, id).await?.unwrap_or(found);
        }
        let said = Said::heard(&found.task, found.said.as_ref());
        Ok(Some(shown_as(&found.task, &said)))
    }

    /// Waits for the end of a task, for at most [`WAIT_MAX`], and gives its record as it stands then.
    ///
    /// # Errors
    /// [`TooManyWait`].
    pub async fn wait(&self, task: &Task) -> Result<String, TooManyWait> {
        let _place = self.waiting.try_acquire().map_err(|_| TooManyWait)?;
        let deadline = Instant::now() + WAIT_MAX;
        let (account, id) = (task.intent.account, task.id());
        while matches!(self.agenda, Agenda::Shared(_))
            && Instant::now() < deadline
            && self.is_open(task).await
        {
            let left = deadline.saturating_duration_since(Instant::now());
            drop(tokio::time::timeout(left, self.refresh(task, WAITING_POLL)).await);
            tokio::time::sleep(left.min(WAITING_POLL)).await;
        }
        while Instant::now() < deadline
            && matches!(self.agenda, Agenda::Own(_))
            && let Some(live) = self.live(task).await
        {
            let changed = live.changed.notified();
            let left = deadline.saturating_duration_since(Instant::now());
            drop(tokio::time::timeout(left, self.refresh(task, WAITING_POLL)).await);
            if self.is_open(task).await {
                drop(tokio::time::timeout(left.min(WAITING_POLL), changed).await);
            }
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
        let said = match &self.agenda {
            Agenda::Own(_) => self.live.said(task),
            Agenda::Shared(_) if task.ended().is_some() => Said::nothing(task),
            Agenda::Shared(queue) => match queue.tasks.any_task(task.id()).await {
                Ok(found) => Said::heard(task, found.and_then(|found| found.said).as_ref()),
                Err(error) => {
                    log::warn!("{} could not be read: {error}", task.id());
                    Said::nothing(task)
                }
            },
        };
        shown_as(task, &said)
    }

    /// How many tasks have not ended; in a fleet, of those that this node took.
    #[must_use]
    pub fn open(&self) -> u64 {
        match &self.agenda {
            Agenda::Own(_) => self.ledger.open_tasks(),
            Agenda::Shared(queue) => queue.open(),
        }
    }

    /// Whether a task has not ended. Where that cannot be read it counts as open: whoever ends it
    /// finds out.
    async fn is_open(&self, task: &Task) -> bool {
        match self.ledger.task_in_work((task.intent.account, task.id())).await {
            Ok(known) => known.is_some_and(|task| task.ended().is_none()),
            Err(error) => {
                log::warn!("{} could not be read: {error}", task.id());
                true
            }
        }
    }

    /// What is known of a task that has not ended; `None` once it has.
    async fn live(&self, task: &Task) -> Option<Arc<Live>> {
        let live = self.live.entry(task);
        if self.is_open(task).await {
            return Some(live);
        }
        self.live.let_go(task.id());
        None
    }

    async fn schedule(&self, task: &Task, at: UnixMs) {
        let due = Due { at, account: task.intent.account, task: task.id(), has_slot: false };
        match &self.agenda {
            Agenda::Own(timetable) => timetable.push(due),
            // What has ended says itself when it is announced.
            Agenda::Shared(_) if task.ended().is_some() => {}
            Agenda::Shared(queue) => {
                if let Err(error) = queue.tasks.schedule(task, at).await {
                    // It is due when it was before, or when nobody holds it any more.
                    log::warn!("{} could not be put on the agenda: {error}", task.id());
                }
            }
        }
    }
}

/// The record of a task that has ended, or of which `said` was said last.
fn shown_as(task: &Task, said: &Said) -> String {
    let Some(codec) = codec_of(task) else { return "null".to_owned() };
    let facts = facts_of(task);
    let (state, document, updated_at) = match task.ended() {
        Some(ended) => {
            let state = TaskState::of(&ended.state).unwrap_or(TaskState::Failed);
            (state, &ended.document, ended.at)
        }
        None => (said.state, &said.document, said.changed_at),
    };
    let own = task.id().to_string();
    let id = if codec.is_native() { task.upstream_id().unwrap_or(&own) } else { &own };
    codec.record(&Shown {
        id,
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

fn codec_of(task: &Task) -> Option<&'static dyn TaskCodec> {
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
