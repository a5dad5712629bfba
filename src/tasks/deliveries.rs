//! Which announcement is sent when: a few at a time for each account and each receiver, so that
//! receivers that do not answer hold up nobody else's, nor the questions to upstreams.
//!
//! Accounts take turns. What an account's receiver leaves without an answer makes its other
//! announcements to that receiver wait, longer each time; another account's are not held up by it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use url::Url;

use super::agenda::{Due, WaitingRules};
use super::{Tasks, as_ms};
use crate::clock::UnixMs;
use crate::config::snapshot::WebhookShares;
use crate::ledger::{AccountId, Task, Webhook};

/// How long an account's announcements to a receiver wait after one that was not answered, at first and
/// at most.
const SILENCE_MIN: Duration = Duration::from_secs(5);
const SILENCE_MAX: Duration = Duration::from_secs(300);
/// Silent receivers that are remembered.
const SILENT_MAX: usize = 10_000;
/// When an announcement is looked at again whose receiver gets as many as it can.
const FULL_WAIT: Duration = Duration::from_secs(1);

/// A receiver: scheme, host and port.
type Receiver = Arc<str>;

/// An announcement that is due.
#[derive(Clone, Debug)]
struct Job {
    due: Due,
    receiver: Receiver,
    since: Instant,
}

/// What is to be done with the announcements that wait.
enum Next {
    /// This one is sent.
    Begin(Job),
    /// This one is looked at later.
    Later(Job, Duration),
    /// Nothing, until one that is being sent is done.
    Wait,
}

/// All announcements that are due or being sent.
pub(super) struct Deliveries {
    rules: WaitingRules,
    lines: Mutex<Lines>,
}

#[derive(Default)]
struct Lines {
    running: usize,
    accounts: HashMap<AccountId, Line>,
    /// Accounts with something that waits, each once, in the order of their turns.
    turns: VecDeque<AccountId>,
    receivers: HashMap<Receiver, usize>,
    silent: HashMap<(AccountId, Receiver), Silence>,
}

/// An account's.
#[derive(Default)]
struct Line {
    waiting: VecDeque<Job>,
    running: usize,
}

/// What a receiver has left without an answer.
struct Silence {
    times: u32,
    until: Instant,
    /// One finds out whether it answers again.
    is_tried: bool,
}

impl Deliveries {
    /// None yet; they are to wait by these rules.
    pub(super) fn new(rules: WaitingRules) -> Self {
        Self { rules, lines: Mutex::default() }
    }

    /// Takes in an announcement. It is given back, with when to look again, where it cannot wait here.
    fn enter(&self, job: Job, now: Instant) -> Option<(Job, Duration)> {
        let mut lines = self.lines.lock();
        let account = job.due.account;
        let line = lines.accounts.entry(account).or_default();
        if line.waiting.len() >= self.rules.per_account_max {
            return Some((job, self.pause()));
        }
        let is_first = line.waiting.is_empty();
        line.waiting.push_back(Job { since: now, ..job });
        if is_first {
            lines.turns.push_back(account);
        }
        None
    }

    fn next(&self, shares: WebhookShares, now: Instant) -> Next {
        let lines = &mut *self.lines.lock();
        if lines.running >= shares.all {
            return Next::Wait;
        }
        // Those that have as many as they may get are fewer than the places, so this ends soon.
        for _ in 0..lines.turns.len() {
            let Some(account) = lines.turns.pop_front() else { break };
            let Some(line) = lines.accounts.get_mut(&account) else { continue };
            if line.running >= shares.per_account {
                lines.turns.push_back(account);
                continue;
            }
            let Some(job) = line.waiting.pop_front() else { continue };
            if !line.waiting.is_empty() {
                lines.turns.push_back(account);
            }
            let has_waited = now.saturating_duration_since(job.since);
            let wait = match lines.in_the_way(&job, shares, now) {
                Some(wait) => wait.max(self.pause()),
                None if has_waited > self.rules.time_max => self.pause(),
                None => {
                    lines.begin(&job);
                    return Next::Begin(job);
                }
            };
            lines.let_go(account);
            return Next::Later(job, wait);
        }
        Next::Wait
    }

    /// An announcement was sent, and answered or not.
    fn done(&self, job: &Job, answered: bool, now: Instant) {
        let mut lines = self.lines.lock();
        lines.running = lines.running.saturating_sub(1);
        let account = job.due.account;
        if let Some(line) = lines.accounts.get_mut(&account) {
            line.running = line.running.saturating_sub(1);
        }
        if let Some(running) = lines.receivers.get_mut(&job.receiver) {
            *running = running.saturating_sub(1);
            if *running == 0 {
                lines.receivers.remove(&job.receiver);
            }
        }
        lines.let_go(account);
        lines.heard((account, Arc::clone(&job.receiver)), answered, now);
    }

    /// After which time what is handed back is due again; not all at once.
    fn pause(&self) -> Duration {
        self.rules.pause.mul_f64(1.0 + fastrand::f64())
    }
}

impl Lines {
    /// How long a job waits for its receiver; `None` when it can be sent.
    fn in_the_way(&self, job: &Job, shares: WebhookShares, now: Instant) -> Option<Duration> {
        let running = self.receivers.get(&job.receiver).copied().unwrap_or_default();
        let silence = self.silent.get(&(job.due.account, Arc::clone(&job.receiver)));
        match silence {
            Some(silence) if silence.until > now => Some(silence.until - now),
            Some(silence) if silence.is_tried => Some(FULL_WAIT),
            _ if running >= shares.per_receiver => Some(FULL_WAIT),
            _ => None,
        }
    }

    fn begin(&mut self, job: &Job) {
        self.running += 1;
        self.accounts.entry(job.due.account).or_default().running += 1;
        *self.receivers.entry(Arc::clone(&job.receiver)).or_default() += 1;
        if let Some(silence) = self.silent.get_mut(&(job.due.account, Arc::clone(&job.receiver))) {
            silence.is_tried = true;
        }
    }

    /// Forgets an account that has nothing here.
    fn let_go(&mut self, account: AccountId) {
        let is_empty = |line: &Line| line.running == 0 && line.waiting.is_empty();
        if self.accounts.get(&account).is_some_and(is_empty) {
            self.accounts.remove(&account);
        }
    }

    fn heard(&mut self, who: (AccountId, Receiver), answered: bool, now: Instant) {
        if answered {
            self.silent.remove(&who);
            return;
        }
        if self.silent.len() >= SILENT_MAX {
            self.silent.retain(|_, silence| silence.until > now);
            if self.silent.len() >= SILENT_MAX {
                self.silent.clear();
            }
        }
        let new = || Silence { times: 0, until: now, is_tried: false };
        let silence = self.silent.entry(who).or_insert_with(new);
        silence.is_tried = false;
        // Of several that were sent at one time, one counts.
        if silence.until <= now {
            let wait = SILENCE_MIN.saturating_mul(1 << silence.times.min(10)).min(SILENCE_MAX);
            (silence.times, silence.until) = (silence.times.saturating_add(1), now + wait);
        }
    }
}

/// Where a URL leads, as far as its receiver is told apart by it.
fn receiver(url: &str) -> Receiver {
    let url = Url::parse(url).ok();
    let origin = url.map(|url| url.origin().ascii_serialization());
    origin.unwrap_or_default().into()
}

impl Tasks {
    /// The end of a task is to be announced, as soon as it is its turn.
    pub(super) async fn deliver(self: &Arc<Self>, due: Due, task: &Task) {
        let receiver = receiver(task.intent.webhook_url.as_deref().unwrap_or_default());
        let job = Job { due, receiver, since: Instant::now() };
        if let Some((job, wait)) = self.deliveries.enter(job, Instant::now()) {
            return self.deliver_later(&job, wait).await;
        }
        self.deliver_more().await;
    }

    /// Sends what may be sent now.
    async fn deliver_more(self: &Arc<Self>) {
        loop {
            let shares = self.config.load().tasks.webhooks;
            match self.deliveries.next(shares, Instant::now()) {
                Next::Begin(job) => self.begin_delivery(job),
                Next::Later(job, wait) => self.deliver_later(&job, wait).await,
                Next::Wait => return,
            }
        }
    }

    fn begin_delivery(self: &Arc<Self>, job: Job) {
        let tasks = Arc::clone(self);
        tokio::spawn(async move {
            let mut place = Place { tasks: &tasks, job: &job, answered: true };
            place.answered = tasks.deliver_now(&job).await;
            drop(place);
            tasks.deliver_more().await;
        });
    }

    /// Announces the end of a task, unless that was done meanwhile. Whether the receiver answered.
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
        self.agenda.hand_back(Due { at, ..job.due }).await;
    }
}

/// A place among the announcements that are sent, which is free again whatever happens.
struct Place<'a> {
    tasks: &'a Tasks,
    job: &'a Job,
    answered: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.tasks.deliveries.done(self.job, self.answered, Instant::now());
    }
}

#[cfg(test)]
mod tests;
