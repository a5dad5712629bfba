//! Recent results per account at one endpoint: a bounded number of accounts, each with one vote.

use std::time::{Duration, Instant};

use super::breaker::Breaker;
use tollgate_config::snapshot::CircuitRules;

/// Number of accounts that are tracked. Of more than these, only the latest callers are.
const ACCOUNTS_MAX: usize = 16;
/// Sliding window over which the share of failures is measured.
pub(super) const WINDOW: Duration = Duration::from_secs(30);
/// Buckets of the sliding window.
const WINDOW_PIECES: usize = 6;
/// Length of one bucket.
const PIECE: Duration = Duration::from_secs(WINDOW.as_secs() / WINDOW_PIECES as u64);
/// Fewest calls in the window for which a share of failures is judged.
const WINDOW_CALLS_MIN: u32 = 20;
/// Minimum number of accounts behind a streak of failures that opens the circuit for all: each account counts
/// for at most a third of it.
const ROW_ACCOUNTS_MIN: u32 = 3;

/// Latest callers, least recently seen replaced first.
#[derive(Debug, Default)]
pub(super) struct RecentCallers {
    slots: Vec<Slot>,
    row: FailureStreak,
}

/// Consecutive failures of all accounts, without a success between them.
#[derive(Debug, Default)]
struct FailureStreak {
    /// Sequence number of the streak.
    number: u64,
    /// Failures in the streak, capped per account.
    failures: u32,
    accounts: u32,
}

/// Counters and breaker of one account.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) account: u64,
    pub(super) breaker: Breaker,
    seen: Instant,
    failures_in_row: u32,
    /// True if the latest call failed.
    has_failed: bool,
    recent: RecentCalls,
    /// Number of the shared streak that it last contributed to, and its contribution.
    in_row: (u64, u32),
}

impl RecentCallers {
    pub(super) fn find(&self, account: u64) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.account == account)
    }

    pub(super) fn find_mut(&mut self, account: u64) -> Option<&mut Slot> {
        self.slots.iter_mut().find(|slot| slot.account == account)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }

    /// Accounts with calls in the window or with a breaker that is not closed.
    pub(super) fn current(&self, now: Instant) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(move |slot| slot.is_recent(now) || !slot.breaker.is_at_rest(now))
    }

    /// Slot of an account, created if missing in place of the least recent caller.
    pub(super) fn at(&mut self, account: u64, now: Instant) -> &mut Slot {
        let found = self.slots.iter().position(|slot| slot.account == account);
        let at = found.unwrap_or_else(|| {
            let oldest = self.slots.iter().enumerate().min_by_key(|(_, slot)| slot.seen);
            // Replaced rather than dropped: the vector never grows beyond its bound.
            match oldest.map(|(at, _)| at).filter(|_| self.slots.len() >= ACCOUNTS_MAX) {
                Some(at) => {
                    self.slots[at] = Slot::new(account, now);
                    at
                }
                None => {
                    self.slots.push(Slot::new(account, now));
                    self.slots.len() - 1
                }
            }
        });
        let slot = &mut self.slots[at];
        slot.seen = now;
        slot
    }

    /// Record a success and return the account's slot.
    pub(super) fn succeeded(&mut self, account: u64, now: Instant) -> &mut Slot {
        let slot = self.answered(account, now);
        slot.recent.add(now, false);
        slot
    }

    /// Record an answer, served or not, and return the account's slot.
    pub(super) fn answered(&mut self, account: u64, now: Instant) -> &mut Slot {
        self.row = FailureStreak { number: self.row.number + 1, ..FailureStreak::default() };
        let slot = self.at(account, now);
        slot.failures_in_row = 0;
        slot.has_failed = false;
        slot
    }

    /// Record a failure. Returns true if it is the account's first in the current streak.
    pub(super) fn failed(&mut self, account: u64, now: Instant, rules: &CircuitRules) -> bool {
        let number = self.row.number;
        let part_max = rules.failures.div_ceil(ROW_ACCOUNTS_MIN);
        let slot = self.at(account, now);
        slot.recent.add(now, true);
        slot.failures_in_row = slot.failures_in_row.saturating_add(1);
        slot.has_failed = true;
        let part = if slot.in_row.0 == number { slot.in_row.1 } else { 0 };
        // No account can fill the streak alone: what fails for one customer may be that customer's doing.
        if part < part_max {
            slot.in_row = (number, part + 1);
            self.row.failures = self.row.failures.saturating_add(1);
        }
        self.row.accounts = self.row.accounts.saturating_add(u32::from(part == 0));
        part == 0
    }

    /// True if failures are too widespread to be caused by single accounts: a streak, or a share of
    /// calls, of several accounts that are not a minority of the callers. `down_in_row` failed
    /// connections count beside them.
    pub(super) fn many_fail(
        &mut self,
        down_in_row: u32,
        now: Instant,
        rules: &CircuitRules,
    ) -> bool {
        let (mut accounts, mut calls, mut failing, mut fail_often) = (0_u32, 0_u32, 0_u32, 0_u32);
        for slot in self.slots.iter_mut().filter(|slot| slot.is_recent(now)) {
            let (made, failed) = slot.recent.sum(now);
            accounts += 1;
            calls = calls.saturating_add(made);
            failing += u32::from(slot.has_failed);
            fail_often += u32::from(is_share(failed, made, rules));
        }
        let in_row = self.row.accounts >= 2
            && self.row.failures.saturating_add(down_in_row) >= rules.failures
            && is_share(failing, accounts, rules);
        let often =
            fail_often >= 2 && calls >= WINDOW_CALLS_MIN && is_share(fail_often, accounts, rules);
        in_row || often
    }

    /// Reset all counters after a recovery.
    pub(super) fn begin_anew(&mut self) {
        self.row = FailureStreak { number: self.row.number + 1, ..FailureStreak::default() };
        self.slots.iter_mut().for_each(Slot::begin_anew);
    }
}

impl Slot {
    fn new(account: u64, now: Instant) -> Self {
        Self {
            account,
            breaker: Breaker::default(),
            seen: now,
            failures_in_row: 0,
            has_failed: false,
            recent: RecentCalls::default(),
            in_row: (u64::MAX, 0),
        }
    }

    /// True if the account's own failures should open its breaker.
    pub(super) fn fails(&mut self, now: Instant, rules: &CircuitRules) -> bool {
        let (calls, failures) = self.recent.sum(now);
        self.failures_in_row >= rules.failures
            || calls >= WINDOW_CALLS_MIN && is_share(failures, calls, rules)
    }

    /// Close the breaker. Returns true if it was not closed.
    pub(super) fn close(&mut self, now: Instant) -> bool {
        let was_open = self.breaker.close(now);
        if was_open {
            self.begin_anew();
        }
        was_open
    }

    /// Reset the account's counters.
    pub(super) fn begin_anew(&mut self) {
        self.failures_in_row = 0;
        self.has_failed = false;
        self.recent = RecentCalls::default();
    }

    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.seen) < WINDOW
    }
}

/// True if `some` of `all` reach the failure percentage of the rules.
fn is_share(some: u32, all: u32, rules: &CircuitRules) -> bool {
    all > 0 && u64::from(some) * 100 / u64::from(all) >= u64::from(rules.failure_percent)
}

/// Calls and failures of the last [`WINDOW`], in buckets that are reused in turn.
#[derive(Debug, Default)]
struct RecentCalls {
    pieces: [Option<CallBucket>; WINDOW_PIECES],
    last: usize,
}

#[derive(Clone, Copy, Debug)]
struct CallBucket {
    began: Instant,
    /// End of the bucket, stored because comparing two times is cheaper than subtracting them.
    ends: Instant,
    calls: u32,
    failures: u32,
}

impl RecentCalls {
    fn add(&mut self, now: Instant, failed: bool) {
        let is_over = |piece: &CallBucket| now >= piece.ends;
        if self.pieces[self.last].as_ref().is_none_or(is_over) {
            self.last = (self.last + 1) % WINDOW_PIECES;
            self.pieces[self.last] =
                Some(CallBucket { began: now, ends: now + PIECE, calls: 0, failures: 0 });
        }
        if let Some(piece) = &mut self.pieces[self.last] {
            piece.calls = piece.calls.saturating_add(1);
            piece.failures = piece.failures.saturating_add(u32::from(failed));
        }
    }

    /// Numbers of calls and failures in the window.
    fn sum(&self, now: Instant) -> (u32, u32) {
        let is_recent = |piece: &&CallBucket| now.saturating_duration_since(piece.began) < WINDOW;
        let recent = self.pieces.iter().flatten().filter(is_recent);
        recent.fold((0, 0), |(calls, failures), piece| {
            (calls.saturating_add(piece.calls), failures.saturating_add(piece.failures))
        })
    }
}
