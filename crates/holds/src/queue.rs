//! Counts each account's parallel calls, and queues them for money.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tollgate_types::ids::AccountId;

/// For how long an account is expected to have as many parallel calls again as it had: agents run tools
/// between two calls, and come back with the next.
const PEAK_FOR: Duration = Duration::from_secs(60);
/// Poll interval of a waiting call, for money that no queued call returns: grants, small calls,
/// other nodes of a fleet.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Accounts that are remembered, for their calls or their peaks, before those that need not be are let go.
const REMEMBERED_MAX: usize = 10_000;

/// The calls of all accounts for which money is tight.
#[derive(Debug, Default)]
pub struct HoldQueue {
    accounts: Mutex<HashMap<AccountId, AccountCalls, foldhash::fast::RandomState>>,
    /// The number of accounts from which on they are looked through. It follows what is left, so that the
    /// lock is not held for all of them at each new account of a busy minute.
    crowded_at: AtomicUsize,
    next: AtomicU64,
}

/// The calls of one account.
#[derive(Debug, Default)]
struct AccountCalls {
    /// Calls without a hold, by their numbers.
    deciding: Vec<u64>,
    /// Calls of the account that wait for money, in order of arrival.
    waiting: VecDeque<(u64, Arc<Notify>)>,
    /// Calls with a hold.
    running: u64,
    peak: u64,
    peak_at: Option<Instant>,
}

/// A call without a hold. Dropping it leaves the line.
#[derive(Debug)]
pub struct QueuedCall {
    queue: Arc<HoldQueue>,
    account: AccountId,
    number: u64,
    woken: Arc<Notify>,
    is_left: bool,
}

/// A call with a hold. Dropping it says that the call is over.
#[derive(Debug)]
pub struct RunningCall {
    queue: Arc<HoldQueue>,
    account: AccountId,
}

impl AccountCalls {
    fn parallel(&self) -> u64 {
        self.running.saturating_add(self.deciding.len() as u64)
    }

    fn note_peak(&mut self, now: Instant) {
        let parallel = self.parallel();
        if parallel >= self.recent_peak(now) {
            (self.peak, self.peak_at) = (parallel, Some(now));
        }
    }

    fn recent_peak(&self, now: Instant) -> u64 {
        let is_recent = |at| now.saturating_duration_since(at) < PEAK_FOR;
        if self.peak_at.is_some_and(is_recent) { self.peak } else { 0 }
    }

    fn wake_first(&self) {
        if let Some((_, first)) = self.waiting.front() {
            // One at a time: the next in line is woken when this one has a hold or leaves.
            first.notify_one();
        }
    }

    fn leave(&mut self, number: u64) {
        self.deciding.retain(|one| *one != number);
        self.stop_waiting(number);
    }

    fn stop_waiting(&mut self, number: u64) {
        let before = self.waiting.len();
        self.waiting.retain(|(one, _)| *one != number);
        if self.waiting.len() < before {
            self.wake_first();
        }
    }

    fn is_forgettable(&self, now: Instant) -> bool {
        self.parallel() == 0 && self.recent_peak(now) == 0
    }
}

impl HoldQueue {
    /// Adds a call without a hold.
    #[must_use]
    pub fn enqueue(self: &Arc<Self>, account: AccountId) -> QueuedCall {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let mut accounts = self.accounts.lock();
        let crowded_at = self.crowded_at.load(Ordering::Relaxed).max(REMEMBERED_MAX);
        if accounts.len() >= crowded_at && !accounts.contains_key(&account) {
            accounts.retain(|_, line| !line.is_forgettable(now));
            self.crowded_at.store(accounts.len().saturating_mul(2), Ordering::Relaxed);
        }
        let line = accounts.entry(account).or_default();
        line.deciding.push(number);
        line.note_peak(now);
        drop(accounts);
        let (queue, woken) = (Arc::clone(self), Arc::default());
        QueuedCall { queue, account, number, woken, is_left: false }
    }

    /// Accounts that have calls here, or had many lately.
    #[must_use]
    pub fn accounts(&self) -> usize {
        self.accounts.lock().len()
    }

    fn line<T>(
        &self,
        account: AccountId,
        change: impl FnOnce(&mut AccountCalls) -> T,
    ) -> Option<T> {
        let now = Instant::now();
        let mut accounts = self.accounts.lock();
        let line = accounts.get_mut(&account)?;
        let changed = change(line);
        // A peak of one says nothing that an absent line does not say.
        if line.is_forgettable(now) || line.parallel() == 0 && line.peak <= 1 {
            accounts.remove(&account);
        }
        Some(changed)
    }
}

impl QueuedCall {
    /// Number of calls that share the account's money, and number of calls without a hold; both
    /// include this one. The first is at least the peak of the last minute.
    #[must_use]
    pub fn shares(&self) -> (u64, u64) {
        let now = Instant::now();
        let counted = self.queue.line(self.account, |line| {
            (line.parallel().max(line.recent_peak(now)), line.deciding.len() as u64)
        });
        counted.unwrap_or((1, 1))
    }

    /// Waits for its turn: until calls before it have ended and those that came earlier are served, at
    /// most until `deadline`. Says whether it is worthwhile to try again. The first of the line is woken
    /// for each call that ends, and looks by itself now and then.
    pub async fn turn(&self, deadline: Instant) -> bool {
        self.queue.line(self.account, |line| {
            let is_new = line.waiting.iter().all(|(number, _)| *number != self.number);
            if is_new {
                // Numbers grow: who came first stands first, whenever it began to wait.
                let at = line.waiting.partition_point(|(number, _)| *number < self.number);
                line.waiting.insert(at, (self.number, Arc::clone(&self.woken)));
            }
        });
        loop {
            if Instant::now() >= deadline {
                return false;
            }
            let look = deadline.min(Instant::now().checked_add(LOOK_EVERY).unwrap_or(deadline));
            // Woken for a place that another has taken meanwhile, it waits on.
            timeout_at(look, self.woken.notified()).await.ok();
            let is_first = self.queue.line(self.account, |line| {
                line.waiting.front().is_some_and(|(number, _)| *number == self.number)
            });
            if is_first.unwrap_or(true) {
                return true;
            }
        }
    }

    /// True if earlier calls wait for money, which is theirs first.
    #[must_use]
    pub fn is_behind_others(&self) -> bool {
        let behind = self.queue.line(self.account, |line| {
            line.waiting.front().is_some_and(|(number, _)| *number < self.number)
        });
        behind.unwrap_or(false)
    }

    /// The call has a hold now.
    #[must_use]
    pub fn start(mut self) -> RunningCall {
        self.is_left = true;
        let (queue, account) = (Arc::clone(&self.queue), self.account);
        queue.line(account, |line| {
            line.running = line.running.saturating_add(1);
            line.leave(self.number);
        });
        RunningCall { queue, account }
    }
}

impl Drop for QueuedCall {
    fn drop(&mut self) {
        if !self.is_left {
            self.queue.line(self.account, |line| line.leave(self.number));
        }
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.queue.line(self.account, |line| {
            line.running = line.running.saturating_sub(1);
            line.wake_first();
        });
    }
}

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "a test adds small figures")]
mod tests {
    use super::*;

    const ACCOUNT: AccountId = AccountId::from_number(7);

    fn queue() -> Arc<HoldQueue> {
        Arc::default()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_counted_and_expected_again_for_a_minute() {
        let queue = queue();
        let first = queue.enqueue(ACCOUNT);
        assert_eq!(first.shares(), (1, 1));
        let second = queue.enqueue(ACCOUNT);
        let running_call = first.start();
        assert_eq!(second.shares(), (2, 1));
        drop((running_call, second));
        let later = queue.enqueue(ACCOUNT);
        assert_eq!(later.shares(), (2, 1), "the other comes back, as far as anybody knows");
        tokio::time::advance(PEAK_FOR).await;
        assert_eq!(later.shares(), (1, 1));
        drop(later);
        assert_eq!(queue.accounts(), 0, "nothing is remembered of who is alone");
    }

    /// If more accounts than the limit had parallel calls within a minute, none can be evicted, and
    /// a new account does not trigger a scan of all.
    #[tokio::test(start_paused = true)]
    async fn a_crowd_is_looked_through_each_time_it_has_doubled() {
        let queue = queue();
        let agents = |numbers: std::ops::Range<usize>| {
            for number in numbers {
                let account = AccountId::from_number(number as u64);
                drop((queue.enqueue(account), queue.enqueue(account)));
            }
        };
        agents(0..REMEMBERED_MAX + 1);
        assert_eq!(queue.crowded_at.load(Ordering::Relaxed), 2 * REMEMBERED_MAX);
        agents(REMEMBERED_MAX + 1..2 * REMEMBERED_MAX);
        assert_eq!(queue.accounts(), 2 * REMEMBERED_MAX, "all of them had calls just now");
        assert_eq!(queue.crowded_at.load(Ordering::Relaxed), 2 * REMEMBERED_MAX, "once");
        tokio::time::advance(PEAK_FOR).await;
        agents(2 * REMEMBERED_MAX..2 * REMEMBERED_MAX + 1);
        assert_eq!(queue.accounts(), 1, "the others are let go");
    }

    #[tokio::test(start_paused = true)]
    async fn money_goes_to_who_came_first() {
        let queue = queue();
        let running_call = queue.enqueue(ACCOUNT).start();
        let (early, late) = (queue.enqueue(ACCOUNT), queue.enqueue(ACCOUNT));
        assert!(!early.is_behind_others() && !late.is_behind_others(), "nobody waits yet");
        let deadline = soon();
        let late = tokio::spawn(async move { (late.turn(deadline).await, Instant::now(), late) });
        tokio::task::yield_now().await;
        let waits = tokio::spawn(async move { (early.turn(deadline).await, early) });
        tokio::time::advance(Duration::from_millis(1)).await;
        let newcomer = queue.enqueue(ACCOUNT);
        assert!(newcomer.is_behind_others());
        drop(running_call);
        let (is_turn, early) = waits.await.expect("no panic");
        assert!(is_turn);
        let sat_at = Instant::now();
        let running_call = early.start();
        let (is_turn, at, late) = late.await.expect("no panic");
        assert!(is_turn && at >= sat_at, "it is next once the first has been served");
        drop((running_call, late, newcomer));
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_call_leaves_at_once_and_no_call_waits_for_ever() {
        let queue = queue();
        let running_call = queue.enqueue(ACCOUNT).start();
        let (first, second) = (queue.enqueue(ACCOUNT), queue.enqueue(ACCOUNT));
        let deadline = soon();
        let leaves = tokio::time::timeout(Duration::from_millis(50), first.turn(deadline)).await;
        // It looked by itself before, or was cut off while it waited.
        assert!(leaves.is_err());
        drop(first);
        assert_eq!(second.shares(), (3, 1), "as many are expected as were there");
        assert!(!second.is_behind_others());
        let began = Instant::now();
        assert!(second.turn(deadline).await, "it looks by itself, although nobody has ended");
        assert_eq!(began.elapsed(), LOOK_EVERY);
        let past = Instant::now();
        assert!(!second.turn(past).await);
        drop(running_call);
    }
}
