//! Limits of free calls, per account and per upstream.
//!
//! Accounts without money can make free calls, which use the operator's credential. So each account has
//! a rate limit, and each upstream a rate limit and a concurrency limit, of which one account's share
//! shrinks as others use it. Calls without a slot queue for a while, and the account with the fewest
//! calls in flight is served next.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use tollgate_config::snapshot::FreeCallLimits;
use tollgate_limits::{Limiter, Rates, Subject, Wait, share_of};

/// Longest wait for a slot: together with the call itself it stays below 10 s, the shortest client
/// timeout.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Most queued calls of one account at one upstream. Claude Code counts each tool and file of a session
/// concurrently, up to some 200.
const ACCOUNT_WAITING_MAX: usize = 256;
/// Most queued calls of all accounts at one upstream; a scan of them takes some microseconds.
const WAITING_MAX: usize = 1024;
/// Bucket length and number of buckets of the sliding minute, in seconds.
const PIECE_SECONDS: u64 = 10;
const PIECES: usize = 6;
/// `Retry-After` of a call without a slot: slots free up within tenths of a second.
const RETRY_PLACE: Duration = Duration::from_secs(1);

/// Reason to refuse a free call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeRefusal {
    /// The account's rate limit a minute, and the time until the next call.
    AccountRate(NonZeroU32, Duration),
    /// The upstream's rate limit, or the account's share of it, is used up for this long.
    UpstreamRate(Duration),
    /// All slots and queue places are taken; retry after this long.
    Places(Duration),
}

/// Limiter of a gateway's free calls.
pub struct FreeCalls {
    began: Instant,
    account_rates: Limiter,
    upstreams: Mutex<HashMap<String, UpstreamQueue>>,
}

/// Running and queued free calls at one upstream.
#[derive(Debug, Default)]
struct UpstreamQueue {
    /// Accounts of the calls in flight.
    running: Vec<u64>,
    waiting: VecDeque<QueuedFreeCall>,
    /// Number of slots and percentage per account, as of the latest call.
    places: (usize, usize),
    /// Calls of the last minute: of all accounts, and of each active one.
    minute: CallsOfMinute,
    minutes: HashMap<u64, CallsOfMinute>,
}

/// Sliding count of the calls of the last minute.
#[derive(Clone, Copy, Debug, Default)]
struct CallsOfMinute {
    calls: [u32; PIECES],
    /// Number of the newest bucket since the start.
    newest: u64,
}

#[derive(Debug)]
struct QueuedFreeCall {
    account: u64,
    turn: oneshot::Sender<FreeCall>,
}

/// Guard of a free call's slot, released on drop.
pub struct FreeCall {
    all: Arc<FreeCalls>,
    upstream: String,
    account: u64,
}

impl FreeCalls {
    /// Create a limiter that has counted no calls.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let (began, account_rates) = (Instant::now(), Limiter::new());
        Arc::new(Self { began, account_rates, upstreams: Mutex::default() })
    }

    /// Count a call against its account's rate limit.
    ///
    /// # Errors
    /// [`FreeRefusal::AccountRate`]; nothing was counted then.
    pub fn count(&self, account: u64, limits: &FreeCallLimits) -> Result<(), FreeRefusal> {
        let limit = limits.account_per_minute;
        let rates = Rates { requests_per_minute: Some(limit), ..Rates::default() };
        let taken = self.account_rates.take([(Subject::Account(account), rates)], None);
        // Only counted: concurrency is limited per upstream.
        taken.map(drop).map_err(|refused| match refused.wait {
            Wait::For(wait) => FreeRefusal::AccountRate(limit, wait),
            Wait::UntilOneEnds | Wait::UntilShared | Wait::Never => {
                FreeRefusal::AccountRate(limit, RETRY_PLACE)
            }
        })
    }

    /// Acquire a slot at an upstream, counted against its rate limit, waiting for at most [`WAIT_MAX`].
    ///
    /// # Errors
    /// [`FreeRefusal::UpstreamRate`] or [`FreeRefusal::Places`].
    pub async fn enter(
        self: &Arc<Self>,
        upstream: &str,
        account: u64,
        limits: &FreeCallLimits,
    ) -> Result<FreeCall, FreeRefusal> {
        let turn = {
            let mut upstreams = self.upstreams.lock();
            let queue = upstreams.entry(upstream.to_owned()).or_default();
            queue.count(account, self.seconds(), limits).map_err(FreeRefusal::UpstreamRate)?;
            if queue.begin(account, limits) {
                return Ok(self.call(upstream, account));
            }
            queue.wait(account).ok_or(FreeRefusal::Places(RETRY_PLACE))?
        };
        // A slot granted during the timeout is released with the channel.
        let turn = tokio::time::timeout(WAIT_MAX, turn).await;
        turn.ok().and_then(Result::ok).ok_or(FreeRefusal::Places(RETRY_PLACE))
    }

    /// Acquire a slot at an upstream without waiting, counted against both rate limits.
    ///
    /// # Errors
    /// Any [`FreeRefusal`].
    pub fn try_enter(
        self: &Arc<Self>,
        upstream: &str,
        account: u64,
        limits: &FreeCallLimits,
    ) -> Result<FreeCall, FreeRefusal> {
        self.count(account, limits)?;
        let mut upstreams = self.upstreams.lock();
        let queue = upstreams.entry(upstream.to_owned()).or_default();
        queue.count(account, self.seconds(), limits).map_err(FreeRefusal::UpstreamRate)?;
        let has_begun = queue.begin(account, limits);
        has_begun.then(|| self.call(upstream, account)).ok_or(FreeRefusal::Places(RETRY_PLACE))
    }

    fn seconds(&self) -> u64 {
        self.began.elapsed().as_secs()
    }

    fn call(self: &Arc<Self>, upstream: &str, account: u64) -> FreeCall {
        FreeCall { all: Arc::clone(self), upstream: upstream.to_owned(), account }
    }
}

impl CallsOfMinute {
    /// Number of calls in the last minute.
    fn count(&mut self, seconds: u64) -> u32 {
        let piece = seconds / PIECE_SECONDS;
        if piece >= self.newest + PIECES as u64 {
            self.calls = [0; PIECES];
        } else {
            (self.newest + 1..=piece).for_each(|over| self.calls[slot(over)] = 0);
        }
        self.newest = self.newest.max(piece);
        self.calls.iter().fold(0, |sum, calls| sum.saturating_add(*calls))
    }

    /// Add a call; call [`Self::count`] first.
    fn add(&mut self) {
        let calls = &mut self.calls[slot(self.newest)];
        *calls = calls.saturating_add(1);
    }

    /// Time until the oldest bucket expires.
    fn until_fewer(&self, seconds: u64) -> Duration {
        let mut pieces = (0..PIECES as u64).rev().filter_map(|age| self.newest.checked_sub(age));
        let oldest = pieces.find(|piece| self.calls[slot(*piece)] > 0);
        let over_at = (oldest.unwrap_or(self.newest) + PIECES as u64) * PIECE_SECONDS;
        Duration::from_secs(over_at.saturating_sub(seconds).max(1))
    }
}

/// Index of a bucket.
fn slot(piece: u64) -> usize {
    usize::try_from(piece % PIECES as u64).unwrap_or(0)
}

impl UpstreamQueue {
    /// Count a call of `account`, or return the time until one is allowed.
    fn count(
        &mut self,
        account: u64,
        seconds: u64,
        limits: &FreeCallLimits,
    ) -> Result<(), Duration> {
        let newest = self.minute.newest;
        let all = self.minute.count(seconds);
        if self.minute.newest > newest {
            // Once a bucket, which bounds the map by the accounts of the last minute.
            self.minutes.retain(|_, calls| calls.count(seconds) > 0);
        }
        let left = limits.upstream_per_minute.get().saturating_sub(all) as usize;
        let mut calls = self.minutes.get(&account).copied().unwrap_or_default();
        let own = calls.count(seconds) as usize;
        if left == 0 || own >= share_of(left, limits.account_percent) {
            let oldest = if own > 0 { calls } else { self.minute };
            return Err(oldest.until_fewer(seconds));
        }
        calls.add();
        self.minutes.insert(account, calls);
        self.minute.add();
        Ok(())
    }

    /// Take a slot for `account` if one is free.
    fn begin(&mut self, account: u64, limits: &FreeCallLimits) -> bool {
        self.places = (limits.upstream_concurrent_max, limits.account_percent);
        let has_place = self.has_place(self.running_of(account));
        if has_place {
            self.running.push(account);
        }
        has_place
    }

    /// True if an account with `own` calls in flight may take a slot.
    fn has_place(&self, own: usize) -> bool {
        let (max, percent) = self.places;
        let free = max.saturating_sub(self.running.len());
        free > 0 && own < share_of(free, percent)
    }

    /// Queue a call of `account`; `None` if the queue is full.
    fn wait(&mut self, account: u64) -> Option<oneshot::Receiver<FreeCall>> {
        // Callers that timed out leave their entry behind: it must not count against the limits.
        self.waiting.retain(|call| !call.turn.is_closed());
        let own = self.waiting.iter().filter(|call| call.account == account).count();
        if self.waiting.len() >= WAITING_MAX || own >= ACCOUNT_WAITING_MAX {
            return None;
        }
        let (turn, receiver) = oneshot::channel();
        self.waiting.push_back(QueuedFreeCall { account, turn });
        Some(receiver)
    }

    /// Release a slot of `account` and return the queued call that takes it: of the account with the
    /// fewest calls in flight, the one that has waited longest.
    fn end(&mut self, account: u64) -> Option<QueuedFreeCall> {
        if let Some(at) = self.running.iter().position(|running| *running == account) {
            self.running.swap_remove(at);
        }
        self.waiting.retain(|call| !call.turn.is_closed());
        let waiting = self.waiting.iter().enumerate();
        let counted = waiting.map(|(at, call)| (self.running_of(call.account), at));
        let (_, at) = counted.filter(|(own, _)| self.has_place(*own)).min()?;
        let next = self.waiting.remove(at)?;
        self.running.push(next.account);
        Some(next)
    }

    fn running_of(&self, account: u64) -> usize {
        self.running.iter().filter(|running| **running == account).count()
    }
}

impl Drop for FreeCall {
    fn drop(&mut self) {
        let next = {
            let mut upstreams = self.all.upstreams.lock();
            upstreams.get_mut(&self.upstream).and_then(|queue| queue.end(self.account))
        };
        if let Some(next) = next {
            // If the receiver has just given up, dropping the call passes the slot on.
            drop(next.turn.send(self.all.call(&self.upstream, next.account)));
        }
    }
}

impl fmt::Debug for FreeCalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FreeCalls").finish_non_exhaustive()
    }
}

impl fmt::Debug for FreeCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FreeCall({}, {})", self.upstream, self.account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> FreeCallLimits {
        let many = NonZeroU32::new(1000).expect("more than none");
        FreeCallLimits {
            account_per_minute: many,
            upstream_per_minute: many,
            upstream_concurrent_max: 4,
            account_percent: 50,
        }
    }

    fn per_minute(count: u32) -> NonZeroU32 {
        NonZeroU32::new(count).expect("more than none")
    }

    #[test]
    fn an_account_has_its_share_and_an_upstream_its_limit() {
        let (calls, limits) = (FreeCalls::new(), limits());
        let begin = |upstream, account| calls.try_enter(upstream, account, &limits).ok();
        let mut begun = vec![begin("a", 1), begin("a", 1)];
        assert!(begun.iter().all(Option::is_some));
        assert!(begin("a", 1).is_none(), "its share");
        assert!(begin("b", 1).is_some(), "another upstream");
        begun.extend([begin("a", 2), begin("a", 3)]);
        assert!(begun.iter().all(Option::is_some));
        assert!(begin("a", 4).is_none(), "as many as may be");
        begun.pop();
        assert!(begin("a", 4).is_some());
        begun.clear();
        let left = calls.upstreams.lock().values().map(|queue| queue.running.len()).sum::<usize>();
        assert_eq!(left, 0, "all places are given back");
    }

    #[tokio::test(start_paused = true)]
    async fn the_account_with_fewest_calls_in_flight_is_next_and_a_timeout_refuses() {
        let (calls, limits) = (FreeCalls::new(), limits());
        let enter = |account| {
            let calls = Arc::clone(&calls);
            async move { calls.enter("a", account, &limits).await }
        };
        let hostile = [enter(1).await, enter(1).await, enter(2).await, enter(3).await];
        assert!(hostile.iter().all(Result::is_ok));
        // Many calls of the same accounts are queued before the other one.
        let waiting: Vec<_> = (0..20).map(|at| tokio::spawn(enter(1 + at % 2))).collect();
        tokio::task::yield_now().await;
        let other = tokio::spawn(enter(4));
        tokio::task::yield_now().await;
        let [first, ..] = hostile;
        drop(first);
        let other = other.await.expect("joined");
        assert!(other.is_ok(), "it has the first place that is free");
        for call in waiting {
            let refused = call.await.expect("joined").err();
            assert_eq!(refused, Some(FreeRefusal::Places(RETRY_PLACE)), "after five seconds");
        }
        drop(other);
        assert!(enter(5).await.is_ok(), "those that have gone hold nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_is_bounded() {
        let (calls, limits) = (FreeCalls::new(), limits());
        let under_way = [calls.enter("a", 1, &limits).await, calls.enter("a", 1, &limits).await];
        let enter = || {
            let calls = Arc::clone(&calls);
            tokio::spawn(async move { calls.enter("a", 1, &limits).await.map(drop) })
        };
        let waiting: Vec<_> = (0..ACCOUNT_WAITING_MAX + 10).map(|_| enter()).collect();
        for _ in 0..waiting.len() {
            tokio::task::yield_now().await;
        }
        let refused = waiting.iter().filter(|call| call.is_finished()).count();
        assert_eq!(refused, 10, "at once");
        drop(under_way);
        let mut served = 0;
        for call in waiting {
            served += usize::from(call.await.expect("joined").is_ok());
        }
        assert_eq!(served, ACCOUNT_WAITING_MAX, "one after the other");
    }

    #[test]
    fn rates_are_of_an_account_and_of_an_upstream() {
        let calls = FreeCalls::new();
        let limits = FreeCallLimits {
            account_per_minute: per_minute(3),
            upstream_per_minute: per_minute(5),
            ..limits()
        };
        let make = |account| calls.try_enter("a", account, &limits).map(drop);
        assert!((0..3).all(|_| make(1).is_ok()));
        let Err(FreeRefusal::AccountRate(limit, wait)) = make(1) else { panic!("its own limit") };
        assert!(limit.get() == 3 && wait <= Duration::from_secs(20), "{wait:?}");
        assert!(make(2).is_ok(), "another account");
        let Err(FreeRefusal::UpstreamRate(wait)) = make(2) else { panic!("its share") };
        assert!(wait <= Duration::from_secs(60), "{wait:?}");
        assert!(make(3).is_ok(), "the last one is for who had none");
        assert!(matches!(make(4), Err(FreeRefusal::UpstreamRate(_))), "all that the upstream gets");
        assert!(calls.try_enter("b", 2, &limits).is_ok(), "another upstream");
    }

    #[test]
    fn a_minute_slides_and_idle_accounts_are_dropped() {
        let limits = FreeCallLimits { upstream_per_minute: per_minute(100), ..limits() };
        let mut queue = UpstreamQueue::default();
        let mut make = |account, seconds| queue.count(account, seconds, &limits);
        let made = (0..100).filter(|_| make(1, 5).is_ok()).count();
        assert_eq!(made, 50, "an account alone has its percentage");
        for (account, share) in [(2, 25), (3, 13), (4, 6)] {
            let made = (0..100).filter(|_| make(account, 25).is_ok()).count();
            assert_eq!(made, share, "and each that comes leaves the same part of the rest");
        }
        assert_eq!(make(1, 25), Err(Duration::from_secs(35)), "when the first are a minute ago");
        assert!(make(1, 59).is_err() && make(1, 60).is_ok());
        assert!(make(9, 1_000_000).is_ok());
        assert_eq!(queue.minutes.len(), 1, "of one account");
        assert_eq!(queue.minute.count(1_000_000), 1);
    }
}
