//! Asynchronous tasks, from their submit to the announcement of their end.
//!
//! | File | Responsibility |
//! |---|---|
//! | `agenda` | schedule, poll permits and latest statuses: in this process alone, or shared by a fleet |
//! | `follow` | polls of upstreams, at due times and within a budget, and settlement by the answers |
//! | `slots` | pacing of polls per upstream |
//! | `operate` | operators' actions on single tasks |
//! | `unpaid` | rate limit on tasks that end without a charge |
//! | `webhook` | signed announcements of ends, with retries |
//! | `deliveries` | queue of announcements: a few at a time per account and receiver |
//!
//! Durable state is in the [`Ledger`]; the latest status of an open task is kept in memory and polled
//! for again after a restart. In a fleet both are in its database. The state of a task goes

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

use agenda::{Agenda, PollReason, UpstreamStatus};
use deliveries::Deliveries;
pub use follow::doubt_ends_at as given_up_at;
pub use operate::{ReannounceOutcome, Resolution};
use slots::PollSlots;
use tollgate_config::ConfigHandle;
use tollgate_ledger::{AccountId, Ledger, LedgerError, Task, TaskPhase, Webhook};
use tollgate_protocols::Dialect;
use tollgate_protocols::task::{TaskCodec, TaskError, TaskFacts, TaskRecordView, TaskState};
use tollgate_protocols::task_codec;
use tollgate_telemetry::metrics::Metrics;
use tollgate_telemetry::request_log::RequestLog;
use tollgate_types::clock::UnixMs;
use tollgate_upstream_calls::Outbound;
use unpaid::UnpaidTasks;
use webhook::WebhookSigner;

/// Largest age of a status that is returned to a customer without a poll.
const FRESH_FOR: Duration = Duration::from_secs(3);
/// Longest wait of a GET for the upstream before the stored record is returned.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait of a submit for the end of its task (spec section 8).
pub const WAIT_MAX: Duration = Duration::from_secs(60);
/// Interval of polls while a customer waits for the end of a task.
const WAITING_POLL: Duration = Duration::from_secs(1);
/// Largest number of concurrent polls.
const PARALLEL_MAX: usize = 64;

/// Worker that polls, settles and announces the tasks of a gateway.
pub struct Tasks {
    ledger: Arc<Ledger>,
    config: Arc<ConfigHandle>,
    outbound: Outbound,
    metrics: Arc<Metrics>,
    requests: Arc<RequestLog>,
    signer: WebhookSigner,
    agenda: Agenda,
    parallel: Arc<Semaphore>,
    deliveries: Deliveries,
    waiting: Semaphore,
    unpaid: UnpaidTasks,
    slots: PollSlots,
}

/// Too many submits wait for the end of their task already.
#[derive(Clone, Copy, Debug)]
pub struct TooManyWait;

impl Tasks {
    /// Resume the tasks of the ledger. Call it within a runtime, before requests are served.
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
            signer: WebhookSigner::load_or_create(data_dir)?,
            deliveries: Deliveries::new(agenda.waiting_rules()),
            agenda,
            parallel: Arc::new(Semaphore::new(PARALLEL_MAX)),
            waiting: Semaphore::new(waiting),
            unpaid: UnpaidTasks::default(),
            slots: PollSlots::default(),
        });
        // Customers of the last process repeat their submits now, answered or not.
        tasks.ledger.count_submits_from_now(follow::SUBMIT_MAX + WAIT_MAX);
        // Listed before any request is served: later submits are this process's own.
        let left = tasks.ledger.tasks_in_work();
        let resumed = Arc::clone(&tasks);
        tokio::spawn(async move {
            resumed.resume(left).await;
            follow::run(resumed).await;
        });
        Ok(tasks)
    }

    /// Schedule the tasks that the last process left. A submit that was under way is in doubt now unless
    /// it was certainly not sent: the upstream may have taken it, so it is not repeated.
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

    /// Starts polling a submitted task.
    pub async fn follow(&self, task: &Task) {
        let first = self.config.load().tasks.poll_min;
        self.agenda.schedule(task, UnixMs(UnixMs::now().0 + as_ms(first))).await;
    }

    /// Schedule the end of a task whose submit has an unknown outcome.
    pub async fn doubt(&self, task: &Task) {
        self.agenda.schedule(task, follow::doubt_ends_at(task)).await;
    }

    /// Record of an account's task as JSON, by the customer's id for it; polled first if the stored
    /// status is stale.
    ///
    /// # Errors
    /// [`LedgerError`].
    pub async fn record(
        &self,
        account: AccountId,
        id: &str,
    ) -> Result<Option<String>, LedgerError> {
        let found = self.agenda.find(account, id, FRESH_FOR).await?;
        let Some(mut found) = found.filter(|found| has_customer_id(&found.task, id)) else {
            return Ok(None);
        };
        if found.needs_poll {
            // The record is returned whether or not the poll finished in time.
            let poll = self.poll(&found.task, PollReason::MaxAge(FRESH_FOR));
            drop(tokio::time::timeout(REFRESH_TIMEOUT, poll).await);
            found = self.agenda.find(account, id, FRESH_FOR).await?.unwrap_or(found);
        }
        Ok(Some(render_record(&found.task, &found.status, UnixMs::now())))
    }

    /// Wait for the end of a task, for at most [`WAIT_MAX`], and return its record at that time.
    ///
    /// # Errors
    /// [`TooManyWait`].
    pub async fn wait(&self, task: &Task) -> Result<String, TooManyWait> {
        let _place = self.waiting.try_acquire().map_err(|_| TooManyWait)?;
        let deadline = Instant::now() + WAIT_MAX;
        let (account, id) = (task.intent.account, task.id());
        while Instant::now() < deadline && agenda::is_open(&self.ledger, task).await {
            let left = deadline.saturating_duration_since(Instant::now());
            let poll = self.poll(task, PollReason::MaxAge(WAITING_POLL));
            drop(tokio::time::timeout(left, poll).await);
            self.agenda.wait_for_end(task, left.min(WAITING_POLL)).await;
        }
        let task_now = self.ledger.task(account, &id.to_string()).await.ok().flatten();
        Ok(self.shown(task_now.as_deref().unwrap_or(task)).await)
    }

    /// True if another submit may wait for the end of its task.
    #[must_use]
    pub fn has_room_to_wait(&self) -> bool {
        self.waiting.available_permits() > 0
    }

    /// Time until an account may submit again that may have `most` unpaid tasks a minute; `None` for
    /// now.
    #[must_use]
    pub fn pause(&self, account: AccountId, most: u32) -> Option<Duration> {
        self.unpaid.pause(account, most, Instant::now())
    }

    /// Count a task that ended without a charge.
    pub fn note_unpaid(&self, account: AccountId) {
        self.unpaid.note(account, Instant::now());
    }

    /// Secret with which the customer's receiver verifies webhook signatures.
    #[must_use]
    pub fn webhook_secret(&self, account: AccountId) -> String {
        self.signer.secret(account)
    }

    /// Current record of a task, as JSON.
    pub async fn shown(&self, task: &Task) -> String {
        let status = self.agenda.last_status(task).await;
        render_record(task, &status, UnixMs::now())
    }

    /// Number of open tasks; in a fleet, of those that this node submitted.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.agenda.open_count()
    }
}

/// Error in the record of an [overdue](is_overdue) task.
const OVERDUE: TaskError = TaskError {
    code: "Expired",
    message: "The video was not made in time. Should its upstream end it well all the same, this \
              record has it, and it is charged.",
};

/// True if a submitted task is past its expiry. Its record shows it as expired, but it ends, and
/// releases its hold, only by its upstream's report or when it is given up: it may yet be made, and
/// billed.
fn is_overdue(task: &Task, now: UnixMs) -> bool {
    matches!(task.stage, TaskPhase::Submitted { .. }) && now >= task.intent.expires_at
}

/// Customer-facing id of a task: the gateway's, or in family S the upstream's, which is `None` until an
/// upstream has taken the task.
pub fn customer_id(task: &Task) -> Option<String> {
    if codec_of(task).is_some_and(TaskCodec::is_native) {
        return task.upstream_id().map(str::to_owned);
    }
    Some(task.id().to_string())
}

/// Record at `now` of a task that has ended, or whose latest status is `status`.
fn render_record(task: &Task, status: &UpstreamStatus, now: UnixMs) -> String {
    let Some(codec) = codec_of(task) else { return "null".to_owned() };
    let facts = facts_of(task);
    let expired;
    let (state, document, updated_at) = match task.ended() {
        Some(ended) => {
            let state = TaskState::of(&ended.state).unwrap_or(TaskState::Failed);
            (state, &ended.document, ended.at)
        }
        None if is_overdue(task, now) => {
            expired = given_up(task, &status.document, &OVERDUE);
            (TaskState::Expired, &expired, task.intent.expires_at)
        }
        None => (status.state, &status.document, status.changed_at),
    };
    let id = customer_id(task).unwrap_or_else(|| task.id().to_string());
    codec.record(&TaskRecordView {
        id: &id,
        model: &task.intent.model,
        state,
        facts: &facts,
        document,
        created_at: task.intent.at.0 / 1000,
        updated_at: updated_at.0 / 1000,
    })
}

/// Document of a task that the gateway itself ends with this error.
fn given_up(task: &Task, status: &str, error: &TaskError) -> String {
    codec_of(task).map_or_else(|| "null".to_owned(), |codec| codec.given_up(status, error))
}

/// True if this is the customer-facing id of the task: one of the gateway's own, or the upstream's for
/// native families.
fn has_customer_id(task: &Task, id: &str) -> bool {
    let is_native = codec_of(task).is_some_and(TaskCodec::is_native);
    is_native == (task.upstream_id() == Some(id))
}

/// Codec of the protocol that the task's upstream speaks.
pub fn codec_of(task: &Task) -> Option<&'static dyn TaskCodec> {
    let spoken = |dialect: &&Dialect| dialect.as_str() == task.intent.protocol;
    task_codec(*Dialect::ALL.iter().find(spoken)?)
}

fn facts_of(task: &Task) -> TaskFacts {
    // Written by the gateway itself; without them the hold still bounds the charge.
    TaskFacts::decode(&task.intent.facts).unwrap_or_default()
}

fn as_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
