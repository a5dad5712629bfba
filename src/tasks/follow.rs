//! Asking upstreams how tasks are, and what the answers mean for the money.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::agenda::{Agenda, Due};
use super::queue::Queue;
use super::{Tasks, as_ms, codec_of, facts_of};
use crate::clock::UnixMs;
use crate::config::snapshot::Upstream;
use crate::finished::{Settled, TaskEnded};
use crate::ledger::{KEPT_MS, Settlement, Stage, Task, TaskSettlement, Webhook};
use crate::outbound::OutboundError;
use crate::price::{Usage, UsageSource};
use crate::protocols::task::{Report, TaskState};
use crate::protocols::{Dialect, Fault};

/// A submit whose outcome nobody knows is given up after a day: providers' tasks do not take longer.
const DOUBT_MS: u64 = 24 * 3600 * 1000;
/// A submit takes less, with all upstreams that are tried one after the other.
const SUBMIT_MAX: Duration = Duration::from_secs(15 * 60);
/// How often a submit is looked at that another node makes.
const SUBMIT_LOOK: Duration = Duration::from_secs(10);
/// The largest answer about a task.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The time between two questions to one upstream. DashScope allows 20 a second for an account; the
/// others say nothing, and 500 a second is what ten thousand open tasks need.
const DASHSCOPE_SPACING: Duration = Duration::from_millis(67);
const SPACING: Duration = Duration::from_millis(2);
/// How often ended tasks are forgotten, and how many at a time.
const FORGET_INTERVAL: Duration = Duration::from_secs(600);
const FORGET_MAX: usize = 10_000;

/// When a task that is in doubt is given up.
#[must_use]
pub fn doubt_ends_at(task: &Task) -> UnixMs {
    UnixMs((task.intent.at.0 + DOUBT_MS).min(task.intent.expires_at.0))
}

/// Looks at tasks when they are due, for as long as the gateway runs.
pub(super) async fn run(tasks: Arc<Tasks>) {
    let mut forgotten = Instant::now();
    loop {
        if forgotten.elapsed() >= FORGET_INTERVAL {
            forgotten = Instant::now();
            let before = UnixMs(UnixMs::now().0.saturating_sub(KEPT_MS));
            if let Err(error) = tasks.ledger.forget_tasks(before, FORGET_MAX).await {
                log::warn!("old tasks could not be forgotten: {error}");
            }
        }
        let wait_max = FORGET_INTERVAL.saturating_sub(forgotten.elapsed());
        let room = tasks.parallel.available_permits();
        let Some(due) = tasks.agenda.next(wait_max, room).await else { continue };
        let tasks = Arc::clone(&tasks);
        // Never closed, so there is always a place sooner or later.
        let Ok(place) = Arc::clone(&tasks).parallel_place().await else { return };
        tokio::spawn(async move {
            tasks.attend(due).await;
            drop(place);
        });
    }
}

impl Tasks {
    async fn parallel_place(
        self: Arc<Self>,
    ) -> Result<tokio::sync::OwnedSemaphorePermit, tokio::sync::AcquireError> {
        Arc::clone(&self.parallel).acquire_owned().await
    }

    /// Does what is due for a task.
    async fn attend(&self, due: Due) {
        let task = match self.ledger.task_in_work((due.account, due.task)).await {
            Ok(Some(task)) => task,
            Ok(None) => return,
            Err(error) => return log::warn!("{} could not be read: {error}", due.task),
        };
        match (&task.stage, task.webhook) {
            (Stage::Ended(_), Webhook::Due { .. }) => self.announce(&task).await,
            (Stage::Ended(_), _) => {}
            (Stage::Submitting, _) => self.doubt_submit(&task).await,
            (Stage::InDoubt, _) => self.give_up_doubt(&task).await,
            (Stage::Submitted { .. }, _) => {
                if !due.has_slot
                    && let Some(later) = self.slot_of(&task)
                {
                    let at = UnixMs(UnixMs::now().0 + as_ms(later).max(1));
                    self.agenda.put_off(Due { at, has_slot: true, ..due });
                    return;
                }
                self.look_at(&task).await;
            }
        }
    }

    /// Asks how a task is, and gives it up when its time is over.
    async fn look_at(&self, task: &Task) {
        let is_open = match &self.agenda {
            Agenda::Own(_) => {
                self.refresh(task, Duration::ZERO).await;
                self.is_open(task).await
            }
            // This node holds it, so nobody else asks.
            Agenda::Shared(queue) => !self.ask_for_all(queue, task).await,
        };
        if is_open && UnixMs::now() >= task.intent.expires_at {
            self.expire(task).await;
        } else if is_open && matches!(self.agenda, Agenda::Own(_)) {
            self.schedule(task, self.next_look(task)).await;
        }
    }

    /// A submit of which nothing was heard. In a fleet the node that makes it may still be at it;
    /// else nobody knows whether its upstream took it, and it is not repeated.
    async fn doubt_submit(&self, task: &Task) {
        let Agenda::Shared(queue) = &self.agenda else { return self.give_up_doubt(task).await };
        let age = UnixMs::now().0.saturating_sub(task.intent.at.0);
        // Where it cannot be read, another look will tell.
        let is_left = queue.tasks.is_orphaned(task).await.unwrap_or(false);
        if !is_left && age < as_ms(SUBMIT_MAX) {
            let next = UnixMs(UnixMs::now().0.saturating_add(as_ms(SUBMIT_LOOK)));
            return self.schedule(task, next).await;
        }
        let doubt = |task: &Task| Task { stage: Stage::InDoubt, ..task.clone() };
        match self.ledger.change_task((task.intent.account, task.id()), doubt).await {
            Ok(Some(task)) => {
                log::warn!("{} is in doubt: its submit was under way", task.id());
                self.schedule(&task, doubt_ends_at(&task)).await;
            }
            Ok(None) => {}
            Err(error) => log::error!("{} cannot be put in doubt: {error}", task.id()),
        }
    }

    /// Asks how a task is that this node holds, and tells all nodes. Says whether it has ended.
    async fn ask_for_all(&self, queue: &Queue, task: &Task) -> bool {
        let heard = match self.ask(task).await {
            Ok(report) if report.state.is_end() => {
                self.end(task, report).await;
                return true;
            }
            Ok(report) => Some((report.state.as_str(), report.document.to_string())),
            Err(cause) => {
                log::warn!("{} could not be asked about: {cause}", task.id());
                None
            }
        };
        let heard = heard.as_ref().map(|(state, document)| (*state, document.as_str()));
        let noted = queue.tasks.note_asked(task.id(), heard, self.next_look(task)).await;
        if let Err(error) = noted {
            log::warn!("what was heard of {} could not be noted: {error}", task.id());
        }
        false
    }

    /// Takes the next slot in which the upstream may be asked: `None` when that is at once, else how far away it is.
    fn slot_of(&self, task: &Task) -> Option<Duration> {
        let now = Instant::now();
        let config = self.config.load();
        let is_dashscope = config
            .upstreams
            .get(task.upstream_name())
            .is_some_and(|upstream| upstream.dialect == Dialect::Dashscope);
        let spacing = if is_dashscope { DASHSCOPE_SPACING } else { SPACING } * self.agenda.nodes();
        let mut slots = self.slots.lock();
        let next = slots.entry(task.upstream.clone()).or_insert(now);
        let slot = now.max(*next);
        *next = slot + spacing;
        Some(slot.saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// The older a task, the longer until the next question; not all at once.
    fn next_look(&self, task: &Task) -> UnixMs {
        let tasks = &self.config.load().tasks;
        let now = UnixMs::now();
        let age = Duration::from_millis(now.0.saturating_sub(task.intent.at.0));
        let pause = (age / 4).clamp(tasks.poll_min, tasks.poll_max);
        let jitter = pause.mul_f64(0.8 + 0.4 * fastrand::f64());
        let at = UnixMs(now.0 + as_ms(jitter));
        at.min(task.intent.expires_at).max(UnixMs(now.0 + 1))
    }

    /// Asks how a task is, unless that was done within `fresh`, and ends it if it has ended. Of many who
    /// want to know, one asks.
    pub(super) async fn refresh(&self, task: &Task, fresh: Duration) {
        if let Agenda::Shared(queue) = &self.agenda {
            match queue.tasks.claim_to_ask(task.id(), fresh).await {
                Ok(true) => {
                    self.ask_for_all(queue, task).await;
                }
                Ok(false) => {}
                Err(error) => log::warn!("{} could not be asked about: {error}", task.id()),
            }
            return;
        }
        let Some(live) = self.live(task).await else { return };
        let mut asked = live.asked.lock().await;
        let is_fresh = |asked: Instant| asked.elapsed() < fresh;
        if asked.is_some_and(is_fresh) || !self.is_open(task).await {
            return;
        }
        let answer = self.ask(task).await;
        *asked = Some(Instant::now());
        match answer {
            Ok(report) if report.state.is_end() => {
                self.end(task, report).await;
                live.changed.notify_waiters();
            }
            Ok(report) => {
                let mut said = live.said.lock();
                if said.state != report.state {
                    said.changed_at = UnixMs::now();
                }
                (said.state, said.document) = (report.state, report.document);
            }
            Err(cause) => log::warn!("{} could not be asked about: {cause}", task.id()),
        }
    }

    async fn ask(&self, task: &Task) -> Result<Report, String> {
        let codec = codec_of(task).ok_or("this build does not speak its protocol")?;
        let id = task.upstream_id().ok_or("it has no id at its upstream")?;
        let upstream = self.upstream_of(task).ok_or("its upstream is not configured any more")?;
        let credential = upstream.credential(task.credential_name());
        if credential.is_none() && !upstream.credentials.is_empty() {
            return Err("its credential is not configured any more".to_owned());
        }
        let credential =
            credential.map(|one| upstream.dialect.credential_header(one.secret.expose()));
        let path = format!("{}{}", upstream.path_prefix, codec.query_path(id));
        let told = |error: OutboundError| error.to_string();
        let answer = self.outbound.get(&upstream, &path, credential).await.map_err(told)?;
        let status = answer.status();
        let body = answer.whole_within(ANSWER_BYTES_MAX).await.map_err(told)?;
        codec.read(status, &body, &facts_of(task)).map_err(|fault| match fault {
            Fault::Upstreams(cause) => cause,
            Fault::Busy => format!("the upstream is busy ({status})"),
            Fault::Relayed(status, _) => format!("the upstream answered {status}"),
            Fault::Customers(error) => error.to_string(),
        })
    }

    fn upstream_of(&self, task: &Task) -> Option<Arc<Upstream>> {
        let config = self.config.load();
        let upstream = config.upstreams.get(task.upstream_name())?;
        (upstream.dialect.as_str() == task.intent.protocol).then(|| Arc::clone(upstream))
    }

    /// Settles a task by its upstream's word.
    async fn end(&self, task: &Task, report: Report) {
        let used = match (report.state, report.usage) {
            (_, Some(usage)) => Some((usage, UsageSource::Upstream)),
            (TaskState::Succeeded, None) => Some((asked_for(task), UsageSource::Estimated)),
            (_, None) => None,
        };
        let settlement = used.map_or(TaskSettlement::Void, |(usage, source)| {
            TaskSettlement::post(&task.intent.prices, usage, source)
        });
        self.end_as(task, report.state, &report.document, settlement).await;
    }

    /// The time is over, and the upstream has not said that the task has ended: nobody pays.
    async fn expire(&self, task: &Task) {
        let document = json!({"error": {
            "code": "Expired",
            "message": "The task was not done in time.",
        }});
        self.end_as(task, TaskState::Expired, &document, TaskSettlement::Void).await;
    }

    /// Nobody could find out what became of a submit: nobody pays.
    async fn give_up_doubt(&self, task: &Task) {
        if UnixMs::now() < doubt_ends_at(task) {
            self.schedule(task, doubt_ends_at(task)).await;
            return;
        }
        let document = json!({"error": {
            "code": "InternalError",
            "message": "It is not known whether the upstream took the task. Nothing was charged.",
        }});
        self.end_as(task, TaskState::Failed, &document, TaskSettlement::Void).await;
    }

    async fn end_as(
        &self,
        task: &Task,
        state: TaskState,
        document: &Value,
        settlement: TaskSettlement,
    ) {
        let id = (task.intent.account, task.id());
        let ended = self.ledger.end_task(id, (state.as_str(), document.to_string()), settlement);
        match ended.await {
            Ok(Some(task)) => self.has_ended(&task, state, settlement).await,
            Ok(None) => {}
            Err(error) => log::error!("{} could not be ended: {error}", task.id()),
        }
    }

    /// The end of a task is on disk: it is told, and announced when that is due.
    pub(super) async fn has_ended(
        &self,
        task: &Task,
        state: TaskState,
        settlement: TaskSettlement,
    ) {
        self.report_end(task, state, settlement);
        self.live.let_go(task.id());
        if let Webhook::Due { at, .. } = task.webhook {
            self.schedule(task, at).await;
        }
    }

    fn report_end(&self, task: &Task, state: TaskState, settlement: TaskSettlement) {
        let Some(ended) = task.ended() else { return };
        let settled = match settlement {
            TaskSettlement::Post(Settlement { usage, source, .. }) => {
                Some(Settled { usage, source, cost: ended.charged })
            }
            TaskSettlement::Void => None,
        };
        let intent = &task.intent;
        TaskEnded {
            task_id: intent.id,
            account_id: intent.account,
            key_id: intent.key,
            model: &intent.model,
            upstream: task.upstream_name(),
            state: state.as_str(),
            duration: Duration::from_millis(ended.at.0.saturating_sub(intent.at.0)),
            settled,
        }
        .report(&self.metrics, &self.requests);
    }
}

/// What a task used that has succeeded without telling: what was asked for.
fn asked_for(task: &Task) -> Usage {
    let facts = facts_of(task);
    if facts.bound.seconds > 0 {
        Usage { seconds: u64::from(facts.seconds), ..Usage::ZERO }
    } else {
        facts.bound
    }
}
