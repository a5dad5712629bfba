//! Polling of tasks at their upstreams, and settlement by the answers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, Method};

use super::agenda::{DueTask, PollReason, PollResult, Submitter};
use super::{Tasks, as_ms, codec_of, facts_of, given_up};
use tollgate_balance::CredentialFinder;
use tollgate_config::snapshot::{TargetCost, Upstream};
use tollgate_ledger::{
    CallCost, CostKind, KEPT_MS, Loss, LossCause, RequestId, Settlement, Task, TaskPhase,
    TaskSettlement, Webhook,
};
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Usage, UsageSource};
use tollgate_protocols::task::{TaskError, TaskReport, TaskState};
use tollgate_protocols::{Dialect, UpstreamFault};
use tollgate_telemetry::finished::{RequestSettlement, TaskEnded};
use tollgate_types::clock::UnixMs;
use tollgate_upstream_calls::{OutboundError, SignedIn, retry_after};

/// A submit with an unknown outcome is given up after a day: providers' tasks do not take longer.
const DOUBT_MS: u64 = 24 * 3600 * 1000;
/// Upper bound of a submit's duration, retries at other upstreams included.
pub(super) const SUBMIT_MAX: Duration = Duration::from_secs(15 * 60);
/// Time after its expiry for which a task is polled while its upstream reports it as running: it may yet
/// end, and be billed. No provider's task runs for so long, so a clock that is wrong by less ends no
/// task.
const OPEN_PATIENCE_MS: u64 = 7 * 24 * 3600 * 1000;
/// The same for a task whose upstream does not answer; as long as for a submit in doubt.
const UNKNOWN_PATIENCE_MS: u64 = DOUBT_MS;
/// Interval of checks on a submit that another node makes.
const SUBMIT_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Largest answer to a poll, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Interval between polls of one upstream. DashScope allows 20 a second per account; the others publish
/// no limit, and 500 a second is what ten thousand open tasks need.
const DASHSCOPE_SPACING: Duration = Duration::from_millis(67);
const SPACING: Duration = Duration::from_millis(2);
/// Interval of the removal of old tasks, and the most removed at a time.
const FORGET_INTERVAL: Duration = Duration::from_secs(600);
const FORGET_MAX: usize = 10_000;

/// Time at which a task in doubt is given up.
#[must_use]
pub fn doubt_ends_at(task: &Task) -> UnixMs {
    UnixMs((task.intent.at.0 + DOUBT_MS).min(task.intent.expires_at.0))
}

impl PollResult {
    /// True if a task that expires at `expires_at` is given up at `now`. Later than its expiry, since it
    /// may have been done, and be billed, until its upstream says otherwise.
    fn gives_up(self, expires_at: UnixMs, now: UnixMs) -> bool {
        let patience = match self {
            Self::Ended => return false,
            Self::Open => OPEN_PATIENCE_MS,
            Self::Unknown => UNKNOWN_PATIENCE_MS,
        };
        now.0 >= expires_at.0.saturating_add(patience)
    }
}

/// Work on due tasks for as long as the gateway runs.
pub(super) async fn run(tasks: Arc<Tasks>) {
    let mut forgotten = Instant::now();
    loop {
        // Before the wait, so that a schedule without pauses cannot starve the removal.
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
        // The semaphore is never closed, so this always gets a permit.
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

    /// Do the work that is due for a task.
    async fn attend(self: &Arc<Self>, due: DueTask) {
        let task = match self.ledger.task_in_work((due.account, due.task)).await {
            Ok(Some(task)) => task,
            Ok(None) => return,
            Err(error) => return log::warn!("{} could not be read: {error}", due.task),
        };
        match (&task.stage, task.webhook) {
            (TaskPhase::Ended(_), Webhook::Due { .. }) => self.deliver(due, &task).await,
            (TaskPhase::Ended(_), _) => {}
            (TaskPhase::Submitting, _) => self.doubt_submit(&task).await,
            (TaskPhase::InDoubt, _) => self.give_up_doubt(&task).await,
            (TaskPhase::Submitted { .. }, _) => {
                let later = if due.has_slot { self.pause_of(&task) } else { self.slot_of(&task) };
                // A reserved slot is kept while the task waits for it: others line up behind.
                if let Some(later) = later {
                    let at = UnixMs(UnixMs::now().0 + as_ms(later).max(1));
                    self.agenda.put_off(DueTask { at, has_slot: true, ..due });
                    return;
                }
                self.poll_due(&task).await;
            }
        }
    }

    /// Poll a due task, and give it up if it is long past its expiry.
    async fn poll_due(&self, task: &Task) {
        let result = self.poll(task, PollReason::Due).await;
        if result.gives_up(task.intent.expires_at, UnixMs::now()) {
            self.expire(task).await;
        } else if result != PollResult::Ended {
            self.agenda.schedule_poll(task, self.next_poll_at(task));
        }
    }

    /// Handle a submit without a recorded outcome. Its process may still be running; if not, nobody
    /// knows whether the upstream took the task, and the submit is not repeated.
    async fn doubt_submit(&self, task: &Task) {
        let age = UnixMs::now().0.saturating_sub(task.intent.at.0);
        match self.agenda.submitter(task).await {
            Submitter::Own => return self.give_up_doubt(task).await,
            Submitter::Alive if age < as_ms(SUBMIT_MAX) => {
                let next = UnixMs(UnixMs::now().0.saturating_add(as_ms(SUBMIT_CHECK_INTERVAL)));
                return self.agenda.schedule(task, next).await;
            }
            Submitter::Alive | Submitter::Dead => {}
        }
        let doubt = |task: &Task| Task { stage: TaskPhase::InDoubt, ..task.clone() };
        match self.ledger.change_task((task.intent.account, task.id()), doubt).await {
            Ok(Some(task)) => {
                log::warn!("{} is in doubt: its submit was under way", task.id());
                self.agenda.schedule(&task, doubt_ends_at(&task)).await;
            }
            Ok(None) => {}
            Err(error) => log::error!("{} cannot be put in doubt: {error}", task.id()),
        }
    }

    /// Reserve the next poll slot of the upstream: `None` if it is now, else the time until it.
    fn slot_of(&self, task: &Task) -> Option<Duration> {
        let config = self.config.load();
        let is_dashscope = config
            .upstreams
            .get(task.upstream_name())
            .is_some_and(|upstream| upstream.dialect == Dialect::Dashscope);
        let spacing = if is_dashscope { DASHSCOPE_SPACING } else { SPACING } * self.agenda.nodes();
        self.slots.take(&task.upstream, spacing, Instant::now())
    }

    /// Remaining pause that the task's upstream has asked for.
    fn pause_of(&self, task: &Task) -> Option<Duration> {
        self.slots.remaining_pause(&task.upstream, Instant::now())
    }

    /// Time of the next poll: a quarter of the task's age, within bounds and with jitter.
    fn next_poll_at(&self, task: &Task) -> UnixMs {
        let tasks = &self.config.load().tasks;
        let now = UnixMs::now();
        let age = Duration::from_millis(now.0.saturating_sub(task.intent.at.0));
        let pause = (age / 4).clamp(tasks.poll_min, tasks.poll_max);
        // Tasks that were submitted together must not be polled together for ever.
        let jitter = pause.mul_f64(0.8 + 0.4 * fastrand::f64());
        let at = UnixMs(now.0 + as_ms(jitter.max(self.pause_of(task).unwrap_or_default())));
        // At its expiry the upstream may report the task as expired.
        let expires_at = task.intent.expires_at;
        if expires_at > now { at.min(expires_at) } else { at }
    }

    /// Poll a task if no other process or request does, and settle it if it has ended.
    pub(super) async fn poll(&self, task: &Task, reason: PollReason) -> PollResult {
        let mut permit = match self.agenda.acquire_poll(task, reason, &self.slots).await {
            Ok(permit) => permit,
            Err(result) => return result,
        };
        let answer = self.query_upstream(task).await;
        permit.record_poll();
        let report = match answer {
            Ok(report) if report.state.is_end() => {
                self.end(task, report).await;
                return permit.ended(task).await;
            }
            Ok(report) => Some(report),
            Err(cause) => {
                log::warn!("{} could not be polled: {cause}", task.id());
                None
            }
        };
        let result = if report.is_some() { PollResult::Open } else { PollResult::Unknown };
        permit.note(task, report, self.next_poll_at(task)).await;
        result
    }

    async fn query_upstream(&self, task: &Task) -> Result<TaskReport, String> {
        let codec = codec_of(task).ok_or("this build does not speak its protocol")?;
        let id = task.upstream_id().ok_or("it has no id at its upstream")?;
        let upstream = self.upstream_of(task).ok_or("its upstream is not configured any more")?;
        let credential = upstream.credential(task.credential_name());
        if credential.is_none() && !upstream.credentials.is_empty() {
            return Err("its credential is not configured any more".to_owned());
        }
        let path = format!("{}{}", upstream.path_prefix, codec.query_path(id));
        let describe = |error: OutboundError| error.to_string();
        let account = task.intent.account;
        let shown = self.outbound.show(&upstream, credential, account, &Method::GET, &path).await;
        let SignedIn { headers, token } = shown.map_err(|error| error.to_string())?;
        let answer = self.outbound.get(&upstream, &path, headers).await.map_err(describe)?;
        let status = answer.status();
        if !(200..300).contains(&status) {
            self.note_retry_after(task, answer.headers());
        }
        if let Some(token) = &token {
            // The next poll signs in again.
            token.give_up_after(status);
        }
        let body = answer.whole_within(ANSWER_BYTES_MAX).await.map_err(describe)?;
        let finder = CredentialFinder::of_call(credential, token.as_ref());
        if finder.is_some_and(|finder| finder.is_in(&body)) {
            // The document would reach the customer, in the record and in webhooks.
            return Err("its answer holds the operator's credential".to_owned());
        }
        codec.read(status, &body, &facts_of(task)).map_err(|fault| match fault {
            UpstreamFault::Upstreams(cause) => cause,
            UpstreamFault::Busy => format!("the upstream is busy ({status})"),
            UpstreamFault::Relayed(status, _) => format!("the upstream answered {status}"),
            UpstreamFault::Customers(error) => error.to_string(),
        })
    }

    /// Honour a `Retry-After`: no task of this upstream is polled before it.
    fn note_retry_after(&self, task: &Task, headers: &HeaderMap) {
        if let Some(time) = retry_after(headers) {
            self.slots.pause(&task.upstream, time, Instant::now());
        }
    }

    fn upstream_of(&self, task: &Task) -> Option<Arc<Upstream>> {
        let config = self.config.load();
        let upstream = config.upstreams.get(task.upstream_name())?;
        (upstream.dialect.as_str() == task.intent.protocol).then(|| Arc::clone(upstream))
    }

    /// Settle a task by its upstream's final report.
    async fn end(&self, task: &Task, report: TaskReport) {
        let used = match (report.state, report.usage) {
            (_, Some(usage)) => Some((usage, UsageSource::Upstream)),
            // Charged up to the hold, input videos included: nothing shows that it was less.
            (TaskState::Succeeded, None) => {
                Some((facts_of(task).max_usage, UsageSource::Estimated))
            }
            (_, None) => None,
        };
        let usage = used.map_or(Usage::ZERO, |(usage, _)| usage);
        warn_of_bill(task, usage, report.billed);
        let settlement = used.map_or(TaskSettlement::Void, |(usage, source)| {
            TaskSettlement::post(&task.intent.prices, usage, source)
        });
        let price = task.intent.prices.cost(&usage);
        if self.end_as(task, report.state, report.document, settlement).await
            && let Some(billed) = report.billed
        {
            // The part of the upstream's bill that no price here covers.
            self.note_loss(task, LossCause::Unpriced, billed.saturating_sub(price));
        }
    }

    /// Gives up a task long past its expiry: the customer pays nothing, and the operator bears the upstream's
    /// bill, if any.
    async fn expire(&self, task: &Task) {
        log::warn!("{} is given up: its upstream does not say that it has ended", task.id());
        let error = TaskError { code: "Expired", message: "The task was not done in time." };
        let document = given_up(task, &self.agenda.last_status(task).await.document, &error);
        if self.end_as(task, TaskState::Expired, document, TaskSettlement::Void).await {
            self.note_loss(task, LossCause::Untold, bound_of(task));
        }
    }

    /// Reject a submit that the last process had opened and never sent: no upstream has it, and its hold
    /// is released.
    pub(super) async fn reject_unsent(&self, task: &Task) {
        log::info!("{} was never sent: it is over, and costs nothing", task.id());
        let document = r#"{"error":{"code":"rejected","message":"No upstream took the task."}}"#;
        self.end_as(task, TaskState::Failed, document.to_owned(), TaskSettlement::Void).await;
    }

    /// End a submit whose outcome stayed unknown: the customer pays nothing.
    async fn give_up_doubt(&self, task: &Task) {
        if UnixMs::now() < doubt_ends_at(task) {
            self.agenda.schedule(task, doubt_ends_at(task)).await;
            return;
        }
        let message = "It is not known whether the upstream took the task. Nothing was charged.";
        let document = given_up(task, "", &TaskError { code: "InternalError", message });
        if self.end_as(task, TaskState::Failed, document, TaskSettlement::Void).await {
            self.note_loss(task, LossCause::Untold, bound_of(task));
        }
    }

    /// Records what the upstream may bill for a task that its customer does not pay. The task's number
    /// replaces a request's.
    fn note_loss(&self, task: &Task, cause: LossCause, amount: Nanousd) {
        if amount <= Nanousd::ZERO {
            return;
        }
        let intent = &task.intent;
        self.ledger.record_loss(Loss {
            account: intent.account,
            key: intent.key,
            model: Arc::clone(&intent.model),
            upstream: task.upstream_name().to_owned(),
            request: RequestId::from_number(intent.id.number()),
            cause,
            amount,
        });
    }

    /// End a task. Returns false if it had ended already or the ledger failed.
    async fn end_as(
        &self,
        task: &Task,
        state: TaskState,
        document: String,
        settlement: TaskSettlement,
    ) -> bool {
        let id = (task.intent.account, task.id());
        let ended = self.ledger.end_task(id, (state.as_str(), document), settlement);
        match ended.await {
            Ok(Some(task)) => {
                self.finish(&task, state, settlement).await;
                true
            }
            Ok(None) => false,
            Err(error) => {
                log::error!("{} could not be ended: {error}", task.id());
                false
            }
        }
    }

    /// Report an end that is on disk, and schedule its announcement.
    pub(super) async fn finish(&self, task: &Task, state: TaskState, settlement: TaskSettlement) {
        self.report_end(task, state, settlement);
        if let TaskSettlement::Post(settlement) = &settlement {
            self.note_cost(task, settlement);
        }
        if matches!(settlement, TaskSettlement::Void) {
            self.note_unpaid(task.intent.account);
        }
        self.agenda.forget(task.id());
        if let Webhook::Due { at, .. } = task.webhook {
            self.agenda.schedule(task, at).await;
        }
    }

    /// Record what a task cost the operator, at the prices in force when it ends.
    fn note_cost(&self, task: &Task, settlement: &Settlement) {
        let (intent, upstream) = (&task.intent, task.upstream_name());
        let snapshot = self.config.load();
        let Some(model) = snapshot.model(&intent.model) else { return };
        let mut targets = model.targets.iter();
        let Some(target) = targets.find(|target| target.upstream.name == upstream) else { return };
        let Some(TargetCost::Prices(list)) = &target.cost else { return };
        let cost = list.base.cost(&settlement.usage);
        self.metrics.costed(&intent.model, upstream, settlement.charge, cost);
        self.ledger.record_cost(CallCost {
            account: intent.account,
            key: intent.key,
            model: Arc::clone(&intent.model),
            upstream: upstream.into(),
            credential: task.credential_name().into(),
            upstream_model: task.upstream_model.as_str().into(),
            request: RequestId::from_number(intent.id.number()),
            kind: CostKind::Answer,
            usage: settlement.usage,
            source: settlement.source,
            charged: settlement.charge,
            cost,
            at: UnixMs::now(),
        });
    }

    fn report_end(&self, task: &Task, state: TaskState, settlement: TaskSettlement) {
        let Some(ended) = task.ended() else { return };
        let settled = match settlement {
            TaskSettlement::Post(Settlement { charge, usage, source }) => {
                let owed = charge.saturating_sub(ended.charged);
                Some(RequestSettlement { usage, source, cost: ended.charged, owed })
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
            held: bound_of(task),
        }
        .report(&self.metrics, &self.requests);
    }
}

/// Largest possible charge of a task.
fn bound_of(task: &Task) -> Nanousd {
    task.intent.prices.cost(&facts_of(task).max_usage)
}

/// Warn the operator about limits and prices that contradict the upstream's bill.
fn warn_of_bill(task: &Task, usage: Usage, billed: Option<Nanousd>) {
    let (id, model, bound) = (task.id(), &task.intent.model, facts_of(task).max_usage);
    if usage.seconds > bound.seconds || usage.output_tokens > bound.output_tokens {
        log::warn!(
            "{id} used more than a task of the model {model} should: {} seconds and {} tokens, and \
             held were {} and {}. The model's limits in models.yaml are stale",
            usage.seconds,
            usage.output_tokens,
            bound.seconds,
            bound.output_tokens,
        );
    }
    let price = task.intent.prices.cost(&usage);
    if let Some(billed) = billed.filter(|billed| *billed > price) {
        log::warn!(
            "the upstream bills ${billed} for {id}, and the prices of the model {model} in \
             models.yaml come to ${price}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_given_up_when_its_upstream_has_had_time_to_tell() {
        let expires_at = UnixMs(1_000_000);
        let gives_up = |result: PollResult, behind: u64| {
            result.gives_up(expires_at, UnixMs(1_000_000 + behind))
        };
        for (result, patience) in
            [(PollResult::Unknown, UNKNOWN_PATIENCE_MS), (PollResult::Open, OPEN_PATIENCE_MS)]
        {
            assert!(
                !gives_up(result, 0) && !gives_up(result, patience - 1),
                "{result:?}: in doubt"
            );
            assert!(gives_up(result, patience), "{result:?}");
        }
        assert!(!gives_up(PollResult::Ended, u64::MAX / 2), "it is settled");
        let never = UnixMs(u64::MAX);
        assert!(!PollResult::Unknown.gives_up(never, UnixMs(u64::MAX - 1)));
    }
}
