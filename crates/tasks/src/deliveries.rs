//! Queue of webhook deliveries: a few at a time per account and per receiver, so that a receiver that
//! does not answer delays neither others nor the polls of upstreams.
//!
//! Accounts take turns. After a delivery without an answer, the account's other deliveries to that
//! receiver back off, longer each time; those of other accounts do not.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use url::Url;

use super::agenda::{DueTask, WaitingRules};
use super::{Tasks, as_ms};
use tollgate_config::snapshot::WebhookShares;
use tollgate_ledger::{AccountId, Task, Webhook};
use tollgate_types::clock::UnixMs;

/// Shortest and longest back-off of an account's deliveries to a receiver that does not answer.
const BACKOFF_MIN: Duration = Duration::from_secs(5);
const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// Largest number of back-offs kept.
const BACKOFFS_MAX: usize = 10_000;
/// Delay before a retry when the receiver already has its share of concurrent deliveries.
const FULL_WAIT: Duration = Duration::from_secs(1);

/// A receiver: scheme, host and port.
type Receiver = Arc<str>;

/// A due delivery.
#[derive(Clone, Debug)]
struct Job {
    due: DueTask,
    receiver: Receiver,
    since: Instant,
}

/// Next step for the queue.
enum DeliveryStep {
    /// Send this one right away.
    Begin(Job),
    /// Return this one to the schedule after a delay.
    Later(Job, Duration),
    /// Nothing, until a running delivery ends.
    Wait,
}

/// All deliveries that are due or running.
pub(super) struct Deliveries {
    rules: WaitingRules,
    queues: Mutex<Queues>,
}

#[derive(Default)]
struct Queues {
    running: usize,
    accounts: HashMap<AccountId, AccountQueue>,
    /// Accounts with waiting deliveries, each once, in round-robin order.
    turns: VecDeque<AccountId>,
    receivers: HashMap<Receiver, usize>,
    backoffs: HashMap<(AccountId, Receiver), Backoff>,
}

/// Waiting and running deliveries of one account.
#[derive(Default)]
struct AccountQueue {
    waiting: VecDeque<Job>,
    running: usize,
}

/// Exponential back-off of one account at one receiver.
struct Backoff {
    times: u32,
    until: Instant,
    /// True while one delivery probes whether the receiver answers again.
    is_probing: bool,
}

impl Deliveries {
    /// Create an empty queue with these limits.
    pub(super) fn new(rules: WaitingRules) -> Self {
        Self { rules, queues: Mutex::default() }
    }

    /// Enqueue a delivery. Returned with a delay if the account's queue is full.
    fn enqueue(&self, job: Job, now: Instant) -> Option<(Job, Duration)> {
        let mut queues = self.queues.lock();
        let account = job.due.account;
        let queue = queues.accounts.entry(account).or_default();
        if queue.waiting.len() >= self.rules.per_account_max {
            return Some((job, self.pause()));
        }
        let is_first = queue.waiting.is_empty();
        queue.waiting.push_back(Job { since: now, ..job });
        if is_first {
            queues.turns.push_back(account);
        }
        None
    }

    fn next(&self, shares: WebhookShares, now: Instant) -> DeliveryStep {
        let queues = &mut *self.queues.lock();
        // The end of a running delivery asks again.
        if queues.running >= shares.all {
            return DeliveryStep::Wait;
        }
        // Accounts at their limit are fewer than the slots, so this ends soon.
        for _ in 0..queues.turns.len() {
            let Some(account) = queues.turns.pop_front() else { break };
            let Some(queue) = queues.accounts.get_mut(&account) else { continue };
            if queue.running >= shares.per_account {
                queues.turns.push_back(account);
                continue;
            }
            let Some(job) = queue.waiting.pop_front() else { continue };
            if !queue.waiting.is_empty() {
                queues.turns.push_back(account);
            }
            let wait_so_far = now.saturating_duration_since(job.since);
            let wait = match queues.delay_for(&job, shares, now) {
                Some(wait) => wait.max(self.pause()),
                None if wait_so_far > self.rules.time_max => self.pause(),
                None => {
                    queues.begin(&job);
                    return DeliveryStep::Begin(job);
                }
            };
            queues.drop_idle(account);
            return DeliveryStep::Later(job, wait);
        }
        DeliveryStep::Wait
    }

    /// Release the delivery's slots and record whether the receiver answered.
    fn done(&self, job: &Job, answered: bool, now: Instant) {
        let mut queues = self.queues.lock();
        queues.running = queues.running.saturating_sub(1);
        let account = job.due.account;
        if let Some(queue) = queues.accounts.get_mut(&account) {
            queue.running = queue.running.saturating_sub(1);
        }
        if let Some(running) = queues.receivers.get_mut(&job.receiver) {
            *running = running.saturating_sub(1);
            // Removed at zero, so that the map holds running deliveries only.
            if *running == 0 {
                queues.receivers.remove(&job.receiver);
            }
        }
        queues.drop_idle(account);
        queues.record_answer((account, Arc::clone(&job.receiver)), answered, now);
    }

    /// Delay of a delivery that is handed back, with jitter.
    fn pause(&self) -> Duration {
        self.rules.pause.mul_f64(1.0 + fastrand::f64())
    }
}

impl Queues {
    /// Delay that the receiver's limits impose on a delivery; `None` if it can be sent now.
    fn delay_for(&self, job: &Job, shares: WebhookShares, now: Instant) -> Option<Duration> {
        let running = self.receivers.get(&job.receiver).copied().unwrap_or_default();
        let backoff = self.backoffs.get(&(job.due.account, Arc::clone(&job.receiver)));
        match backoff {
            Some(backoff) if backoff.until > now => Some(backoff.until - now),
            Some(backoff) if backoff.is_probing => Some(FULL_WAIT),
            _ if running >= shares.per_receiver => Some(FULL_WAIT),
            _ => None,
        }
    }

    fn begin(&mut self, job: &Job) {
        self.running += 1;
        self.accounts.entry(job.due.account).or_default().running += 1;
        *self.receivers.entry(Arc::clone(&job.receiver)).or_default() += 1;
        if let Some(backoff) = self.backoffs.get_mut(&(job.due.account, Arc::clone(&job.receiver)))
        {
            backoff.is_probing = true;
        }
    }

    /// Drop the queue of an account with no deliveries.
    fn drop_idle(&mut self, account: AccountId) {
        let is_empty = |queue: &AccountQueue| queue.running == 0 && queue.waiting.is_empty();
        if self.accounts.get(&account).is_some_and(is_empty) {
            self.accounts.remove(&account);
        }
    }

    fn record_answer(&mut self, who: (AccountId, Receiver), answered: bool, now: Instant) {
        if answered {
            self.backoffs.remove(&who);
            return;
        }
        if self.backoffs.len() >= BACKOFFS_MAX {
            self.backoffs.retain(|_, backoff| backoff.until > now);
            // All are in force: forgetting them costs a try each, growing without a bound costs memory.
            if self.backoffs.len() >= BACKOFFS_MAX {
                self.backoffs.clear();
            }
        }
        let new = || Backoff { times: 0, until: now, is_probing: false };
        let backoff = self.backoffs.entry(who).or_insert_with(new);
        backoff.is_probing = false;
        // Of several concurrent failures, one counts.
        if backoff.until <= now {
            let wait = BACKOFF_MIN.saturating_mul(1 << backoff.times.min(10)).min(BACKOFF_MAX);
            (backoff.times, backoff.until) = (backoff.times.saturating_add(1), now + wait);
        }
    }
}

/// Origin of a webhook URL: scheme, host and port.
fn receiver(url: &str) -> Receiver {
    let url = Url::parse(url).ok();
    let origin = url.map(|url| url.origin().ascii_serialization());
    origin.unwrap_or_default().into()
}

impl Tasks {
    /// Queue the announcement of a task's end.
    pub(super) async fn deliver(self: &Arc<Self>, due: DueTask, task: &Task) {
        let receiver = receiver(task.intent.webhook_url.as_deref().unwrap_or_default());
        let job = Job { due, receiver, since: Instant::now() };
        if let Some((job, wait)) = self.deliveries.enqueue(job, Instant::now()) {
            return self.deliver_later(&job, wait).await;
        }
        self.deliver_more().await;
    }

    /// Start every delivery that the limits allow.
    async fn deliver_more(self: &Arc<Self>) {
        loop {
            let shares = self.config.load().tasks.webhooks;
            match self.deliveries.next(shares, Instant::now()) {
                DeliveryStep::Begin(job) => self.begin_delivery(job),
                DeliveryStep::Later(job, wait) => self.deliver_later(&job, wait).await,
                DeliveryStep::Wait => return,
            }
        }
    }

    fn begin_delivery(self: &Arc<Self>, job: Job) {
        let tasks = Arc::clone(self);
        tokio::spawn(async move {
            let mut slot = DeliverySlot { tasks: &tasks, job: &job, answered: true };
            slot.answered = tasks.deliver_now(&job).await;
            drop(slot);
            tasks.deliver_more().await;
        });
    }

    /// Announce the end of a task unless that has been done meanwhile. Returns true if the receiver
    /// answered.
    async fn deliver_now(&self, job: &Job) -> bool {
        match self.ledger.task_in_work((job.due.account, job.due.task)).await {
            Ok(Some(task)) => match (task.ended(), task.webhook) {
                (Some(_), Webhook::Due { .. }) => match self.announce(&task).await {
                    Some(answered) => answered,
                    None => {
                        self.deliver_later(job, FULL_WAIT).await;
                        true
                    }
                },
                _ => true,
            },
            Ok(None) => true,
            Err(error) => {
                log::warn!("{} could not be read: {error}", job.due.task);
                self.deliver_later(job, FULL_WAIT).await;
                true
            }
        }
    }

    async fn deliver_later(&self, job: &Job, wait: Duration) {
        let at = UnixMs(UnixMs::now().0.saturating_add(as_ms(wait)));
        self.agenda.hand_back(DueTask { at, ..job.due }).await;
    }
}

/// Slot of a running delivery, released on drop even after a panic.
struct DeliverySlot<'a> {
    tasks: &'a Tasks,
    job: &'a Job,
    answered: bool,
}

impl Drop for DeliverySlot<'_> {
    fn drop(&mut self) {
        self.tasks.deliveries.done(self.job, self.answered, Instant::now());
    }
}

#[cfg(test)]
mod tests;
