//! What the accounts that called last have seen of something that calls go to: bounded, and each
//! account with one voice.

use std::time::{Duration, Instant};

use super::circuit::Breaker;
use crate::config::snapshot::CircuitRules;

/// Accounts that are told apart. Of more than these, those that called last speak for all.
const ACCOUNTS_MAX: usize = 16;
/// Failures are weighed against successes over this long.
pub(super) const WINDOW: Duration = Duration::from_secs(30);
/// The window is kept in this many pieces, so that it slides.
const WINDOW_PIECES: usize = 6;
/// How long calls are counted in one piece.
const PIECE: Duration = Duration::from_secs(WINDOW.as_secs() / WINDOW_PIECES as u64);
/// A share of failures says little of fewer calls than this.
const WINDOW_CALLS_MIN: u32 = 20;
/// A row of failures of all accounts together has failures of so many accounts at least: each counts
/// for a third of it at most.
const ROW_ACCOUNTS_MIN: u32 = 3;

/// The accounts that called last.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    slots: Vec<Slot>,
    row: FailureStreak,
}

/// Failures of several accounts without a success between them.
#[derive(Debug, Default)]
struct FailureStreak {
    /// Which row it is.
    number: u64,
    /// Its failures, of each account no more than its part.
    failures: u32,
    accounts: u32,
}

/// What is counted of one account.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) account: u64,
    pub(super) breaker: Breaker,
    seen: Instant,
    failures_in_row: u32,
    /// Its last call failed.
    has_failed: bool,
    recent: Recent,
    /// The row of all that it last had a part in, and with how many failures.
    in_row: (u64, u32),
}

impl Accounts {
    pub(super) fn find(&self, account: u64) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.account == account)
    }

    pub(super) fn find_mut(&mut self, account: u64) -> Option<&mut Slot> {
        self.slots.iter_mut().find(|slot| slot.account == account)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }

    /// Those that called within the window, and those whose breaker does something.
    pub(super) fn current(&self, now: Instant) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(move |slot| slot.is_recent(now) || !slot.breaker.is_at_rest(now))
    }

    /// The account's slot. Where there is none it takes that of the account that called longest ago.
    pub(super) fn at(&mut self, account: u64, now: Instant) -> &mut Slot {
        let found = self.slots.iter().position(|slot| slot.account == account);
        let at = found.unwrap_or_else(|| {
            let oldest = self.slots.iter().enumerate().min_by_key(|(_, slot)| slot.seen);
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

    /// A call has succeeded; gives its account's slot.
    pub(super) fn succeeded(&mut self, account: u64, now: Instant) -> &mut Slot {
        let slot = self.answered(account, now);
        slot.recent.add(now, false);
        slot
    }

    /// A call was answered, if not served; gives its account's slot.
    pub(super) fn answered(&mut self, account: u64, now: Instant) -> &mut Slot {
        self.row = FailureStreak { number: self.row.number + 1, ..FailureStreak::default() };
        let slot = self.at(account, now);
        slot.failures_in_row = 0;
        slot.has_failed = false;
        slot
    }

    /// A call has failed. Says whether that is news: the account has no part in the row yet.
    pub(super) fn failed(&mut self, account: u64, now: Instant, rules: &CircuitRules) -> bool {
        let number = self.row.number;
        let part_max = rules.failures.div_ceil(ROW_ACCOUNTS_MIN);
        let slot = self.at(account, now);
        slot.recent.add(now, true);
        slot.failures_in_row = slot.failures_in_row.saturating_add(1);
        slot.has_failed = true;
        let part = if slot.in_row.0 == number { slot.in_row.1 } else { 0 };
        if part < part_max {
            slot.in_row = (number, part + 1);
            self.row.failures = self.row.failures.saturating_add(1);
        }
        self.row.accounts = self.row.accounts.saturating_add(u32::from(part == 0));
        part == 0
    }

    /// Whether calls fail for so many accounts that it is nobody's own doing: they fail in a row, or as
    /// a share of calls, of several accounts that are not the lesser part of those that call. Beside
    /// them count `down_in_row` connections that did not come about.
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

    /// It works again: what was before says nothing of what comes.
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
            recent: Recent::default(),
            in_row: (u64::MAX, 0),
        }
    }

    /// Whether so many of the account's own calls fail that it should make no more.
    pub(super) fn fails(&mut self, now: Instant, rules: &CircuitRules) -> bool {
        let (calls, failures) = self.recent.sum(now);
        self.failures_in_row >= rules.failures
            || calls >= WINDOW_CALLS_MIN && is_share(failures, calls, rules)
    }

    /// Closes its breaker, and says whether that was anything else than closed.
    pub(super) fn close(&mut self, now: Instant) -> bool {
        let was_open = self.breaker.close(now);
        if was_open {
            self.begin_anew();
        }
        was_open
    }

    /// Forgets what one account has seen.
    pub(super) fn begin_anew(&mut self) {
        self.failures_in_row = 0;
        self.has_failed = false;
        self.recent = Recent::default();
    }

    fn is_recent(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.seen) < WINDOW
    }
}

/// Whether `some` are so great a part of `all` as the rules name.
fn is_share(some: u32, all: u32, rules: &CircuitRules) -> bool {
    all > 0 && u64::from(some) * 100 / u64::from(all) >= u64::from(rules.failure_percent)
}

/// Calls of the last [`WINDOW`], in pieces that are used in turn: when a piece began, its calls and
/// its failures.
#[derive(Debug, Default)]
struct Recent {
    pieces: [Option<Piece>; WINDOW_PIECES],
    last: usize,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    began: Instant,
    /// From here on calls count in the next piece: comparing two times takes less than subtracting them.
    ends: Instant,
    calls: u32,
    failures: u32,
}

impl Recent {
    fn add(&mut self, now: Instant, failed: bool) {
        let is_over = |piece: &Piece| now >= piece.ends;
        if self.pieces[self.last].as_ref().is_none_or(is_over) {
            self.last = (self.last + 1) % WINDOW_PIECES;
            self.pieces[self.last] =
                Some(Piece { began: now, ends: now + PIECE, calls: 0, failures: 0 });
        }
        if let Some(piece) = &mut self.pieces[self.last] {
            piece.calls = piece.calls.saturating_add(1);
            piece.failures = piece.failures.saturating_add(u32::from(failed));
        }
    }

    /// The numbers of calls and of failures in the window.
    fn sum(&self, now: Instant) -> (u32, u32) {
        let is_recent = |piece: &&Piece| now.saturating_duration_since(piece.began) < WINDOW;
        let recent = self.pieces.iter().flatten().filter(is_recent);
        recent.fold((0, 0), |(calls, failures), piece| {
            (calls.saturating_add(piece.calls), failures.saturating_add(piece.failures))
        })
    }
}
