//! Asking upstreams how tasks are, and what the answers mean for the money.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, Method};

use super::agenda::{Due, Look, Occasion, Submitter};
use super::{Tasks, as_ms, codec_of, facts_of, given_up};
use crate::balance::CredentialFinder;
use crate::clock::UnixMs;
use crate::config::snapshot::{TargetCost, Upstream};
use crate::finished::{Settled, TaskEnded};
use crate::ledger::{
    CallCost, CostKind, KEPT_MS, Loss, LossCause, RequestId, Settlement, Task, TaskPhase,
    TaskSettlement, Webhook,
};
use crate::money::Nanousd;
use crate::outbound::{OutboundError, SignedIn, retry_after};
use crate::price::{Usage, UsageSource};
use crate::protocols::task::{Error, Report, TaskState};
use crate::protocols::{Dialect, Fault};

/// A submit whose outcome nobody knows is given up after a day: providers' tasks do not take longer.
const DOUBT_MS: u64 = 24 * 3600 * 1000;
/// A submit takes less, with all upstreams that are tried one after the other.
pub(super) const SUBMIT_MAX: Duration = Duration::from_secs(15 * 60);
/// How long behind its time a task is asked about whose upstream still says that it is at work: it may
/// yet end, and be billed. No upstream that is known works for so long, so a clock that was wrong by
/// less ends no task.
const UNENDED_MS: u64 = 7 * 24 * 3600 * 1000;
/// The same for a task of which the upstream does not tell, as long as for a submit in doubt.
const UNHEARD_MS: u64 = DOUBT_MS;
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

impl Look {
    /// Whether a task with this end of its time is given up at `now`. It may have been done, and be
    /// billed, until its upstream says otherwise.
    fn gives_up(self, expires_at: UnixMs, now: UnixMs) -> bool {
        let patience = match self {
            Self::Ended => return false,
            Self::Unended => UNENDED_MS,
            Self::Unheard => UNHEARD_MS,
        };
        now.0 >= expires_at.0.saturating_add(patience)
    }
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
    async fn attend(self: &Arc<Self>, due: Due) {
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
                let later = if due.has_slot { self.rest_of(&task) } else { self.slot_of(&task) };
                if let Some(later) = later {
                    let at = UnixMs(UnixMs::now().0 + as_ms(later).max(1));
                    self.agenda.put_off(Due { at, has_slot: true, ..due });
                    return;
                }
                self.look_at(&task).await;
            }
        }
    }

    /// Asks how a task is, and gives it up when its time is long over.
    async fn look_at(&self, task: &Task) {
        let look = self.ask_in_turn(task, Occasion::Due).await;
        if look.gives_up(task.intent.expires_at, UnixMs::now()) {
            self.expire(task).await;
        } else if look != Look::Ended {
            self.agenda.look_again(task, self.next_look(task));
        }
    }

    /// A submit of which nothing was heard. Whoever makes it may still be at it; else nobody knows
    /// whether its upstream took it, and it is not repeated.
    async fn doubt_submit(&self, task: &Task) {
        let age = UnixMs::now().0.saturating_sub(task.intent.at.0);
        match self.agenda.submitter(task).await {
            Submitter::Own => return self.give_up_doubt(task).await,
            Submitter::Alive if age < as_ms(SUBMIT_MAX) => {
                let next = UnixMs(UnixMs::now().0.saturating_add(as_ms(SUBMIT_LOOK)));
                return self.agenda.schedule(task, next).await;
            }
            Submitter::Alive | Submitter::Gone => {}
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

    /// Takes the next slot in which the upstream may be asked: `None` when that is at once, else how far away it is.
    fn slot_of(&self, task: &Task) -> Option<Duration> {
        let config = self.config.load();
        let is_dashscope = config
            .upstreams
            .get(task.upstream_name())
            .is_some_and(|upstream| upstream.dialect == Dialect::Dashscope);
        let spacing = if is_dashscope { DASHSCOPE_SPACING } else { SPACING } * self.agenda.nodes();
        self.slots.take(&task.upstream, spacing, Instant::now())
    }

    /// How long the task's upstream still wants to be left alone, if it does.
    fn rest_of(&self, task: &Task) -> Option<Duration> {
        self.slots.rest(&task.upstream, Instant::now())
    }

    /// The older a task, the longer until the next question; not all at once.
    fn next_look(&self, task: &Task) -> UnixMs {
        let tasks = &self.config.load().tasks;
        let now = UnixMs::now();
        let age = Duration::from_millis(now.0.saturating_sub(task.intent.at.0));
        let pause = (age / 4).clamp(tasks.poll_min, tasks.poll_max);
        let jitter = pause.mul_f64(0.8 + 0.4 * fastrand::f64());
        let at = UnixMs(now.0 + as_ms(jitter.max(self.rest_of(task).unwrap_or_default())));
        // At the end of its time the upstream may say that it has given up.
        let expires_at = task.intent.expires_at;
        if expires_at > now { at.min(expires_at) } else { at }
    }

    /// Asks how a task is, where that is up to this process now, and ends it if it has ended. Of many who
    /// want to know, one asks.
    pub(super) async fn ask_in_turn(&self, task: &Task, occasion: Occasion) -> Look {
        let mut asking = match self.agenda.turn_to_ask(task, occasion, &self.slots).await {
            Ok(asking) => asking,
            Err(look) => return look,
        };
        let answer = self.ask(task).await;
        asking.asked();
        let heard = match answer {
            Ok(report) if report.state.is_end() => {
                self.end(task, report).await;
                return asking.ended(task).await;
            }
            Ok(report) => Some(report),
            Err(cause) => {
                log::warn!("{} could not be asked about: {cause}", task.id());
                None
            }
        };
        let look = if heard.is_some() { Look::Unended } else { Look::Unheard };
        asking.note(task, heard, self.next_look(task)).await;
        look
    }

    async fn ask(&self, task: &Task) -> Result<Report, String> {
        let codec = codec_of(task).ok_or("this build does not speak its protocol")?;
        let id = task.upstream_id().ok_or("it has no id at its upstream")?;
        let upstream = self.upstream_of(task).ok_or("its upstream is not configured any more")?;
        let credential = upstream.credential(task.credential_name());
        if credential.is_none() && !upstream.credentials.is_empty() {
            return Err("its credential is not configured any more".to_owned());
        }
        let path = format!("{}{}", upstream.path_prefix, codec.query_path(id));
        let told = |error: OutboundError| error.to_string();
        let account = task.intent.account;
        let shown = self.outbound.show(&upstream, credential, account, &Method::GET, &path).await;
        let SignedIn { headers, token } = shown.map_err(|error| error.to_string())?;
        let answer = self.outbound.get(&upstream, &path, headers).await.map_err(told)?;
        let status = answer.status();
        if !(200..300).contains(&status) {
            self.leave_alone(task, answer.headers());
        }
        if let Some(token) = &token {
            // The next question is asked with another one.
            token.give_up_after(status);
        }
        let body = answer.whole_within(ANSWER_BYTES_MAX).await.map_err(told)?;
        let finder = CredentialFinder::of_call(credential, token.as_ref());
        if finder.is_some_and(|finder| finder.is_in(&body)) {
            // Its words would be the customer's, in the record and in webhooks.
            return Err("its answer holds the operator's credential".to_owned());
        }
        codec.read(status, &body, &facts_of(task)).map_err(|fault| match fault {
            Fault::Upstreams(cause) => cause,
            Fault::Busy => format!("the upstream is busy ({status})"),
            Fault::Relayed(status, _) => format!("the upstream answered {status}"),
            Fault::Customers(error) => error.to_string(),
        })
    }

    /// An upstream that has no time and says when to come again is asked about no task before that.
    fn leave_alone(&self, task: &Task, headers: &HeaderMap) {
        if let Some(time) = retry_after(headers) {
            self.slots.leave_alone(&task.upstream, time, Instant::now());
        }
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
            // What the hold covers, input videos included: nobody knows that it was less.
            (TaskState::Succeeded, None) => Some((facts_of(task).bound, UsageSource::Estimated)),
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
            // What the upstream says it bills beyond all that has a price here.
            self.note_loss(task, LossCause::Unpriced, billed.saturating_sub(price));
        }
    }

    /// The time is long over, and the upstream has not said that the task has ended: the customer pays
    /// nothing, and what the upstream may bill falls on the operator.
    async fn expire(&self, task: &Task) {
        log::warn!("{} is given up: its upstream does not say that it has ended", task.id());
        let error = Error { code: "Expired", message: "The task was not done in time." };
        let document = given_up(task, &self.agenda.last_said(task).await.document, &error);
        if self.end_as(task, TaskState::Expired, document, TaskSettlement::Void).await {
            self.note_loss(task, LossCause::Untold, bound_of(task));
        }
    }

    /// A submit that the last process had opened and never sent: no upstream has it, and its money is free.
    pub(super) async fn reject_unsent(&self, task: &Task) {
        log::info!("{} was never sent: it is over, and costs nothing", task.id());
        let document = r#"{"error":{"code":"rejected","message":"No upstream took the task."}}"#;
        self.end_as(task, TaskState::Failed, document.to_owned(), TaskSettlement::Void).await;
    }

    /// Nobody could find out what became of a submit: nobody pays.
    async fn give_up_doubt(&self, task: &Task) {
        if UnixMs::now() < doubt_ends_at(task) {
            self.agenda.schedule(task, doubt_ends_at(task)).await;
            return;
        }
        let message = "It is not known whether the upstream took the task. Nothing was charged.";
        let document = given_up(task, "", &Error { code: "InternalError", message });
        if self.end_as(task, TaskState::Failed, document, TaskSettlement::Void).await {
            self.note_loss(task, LossCause::Untold, bound_of(task));
        }
    }

    /// Notes what the upstream may bill for a task that its customer does not pay. A task's loss has its
    /// number in the place of a request's.
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

    /// Ends a task. False when it had ended already, or could not be.
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
                self.has_ended(&task, state, settlement).await;
                true
            }
            Ok(None) => false,
            Err(error) => {
                log::error!("{} could not be ended: {error}", task.id());
                false
            }
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
        if let TaskSettlement::Post(settlement) = &settlement {
            self.note_cost(task, settlement);
        }
        if matches!(settlement, TaskSettlement::Void) {
            self.note_unpaid(task.intent.account);
        }
        self.agenda.let_go(task.id());
        if let Webhook::Due { at, .. } = task.webhook {
            self.agenda.schedule(task, at).await;
        }
    }

    /// Notes what a task has cost the operator, by the prices that are in force when it ends.
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
                Some(Settled { usage, source, cost: ended.charged, owed })
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

/// The most that a task can cost.
fn bound_of(task: &Task) -> Nanousd {
    task.intent.prices.cost(&facts_of(task).bound)
}

/// Tells the operator of limits and prices that are not those of the upstream.
fn warn_of_bill(task: &Task, usage: Usage, billed: Option<Nanousd>) {
    let (id, model, bound) = (task.id(), &task.intent.model, facts_of(task).bound);
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
        let gives_up =
            |look: Look, behind: u64| look.gives_up(expires_at, UnixMs(1_000_000 + behind));
        for (look, patience) in [(Look::Unheard, UNHEARD_MS), (Look::Unended, UNENDED_MS)] {
            assert!(!gives_up(look, 0) && !gives_up(look, patience - 1), "{look:?}: in doubt");
            assert!(gives_up(look, patience), "{look:?}");
        }
        assert!(!gives_up(Look::Ended, u64::MAX / 2), "it is settled");
        let never = UnixMs(u64::MAX);
        assert!(!Look::Unheard.gives_up(never, UnixMs(u64::MAX - 1)));
    }
}
