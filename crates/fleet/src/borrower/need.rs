//! What a node knows of one account: who waits for its money, how fast it is spent, and what others
//! want of it.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::time::Duration;

use super::{AHEAD_S, FLOOR, RECALL_BEAT, RECALL_WAIT, Verdict, WAIT_MAX, Waiter};
use crate::lease::Shortage;
use tollgate_money::money::Nanousd;

/// More than what would be spent in this time is given back.
const EXCESS_S: i64 = 8;

/// Someone who waits for money.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) id: Waiter,
    pub(super) amount: Nanousd,
    pub(super) since: Duration,
    /// The exchange that was sent last asks for it.
    pub(super) is_asked: bool,
    /// When the treasury first had not enough for it: other nodes are asked from then on.
    pub(super) short_at: Option<Duration>,
}

/// What is known of an account of which this node has money, or wants some.
#[derive(Debug, Default)]
pub(super) struct Need {
    pub(super) waiting: Vec<Waiting>,
    /// What was set aside of it up to the last exchange.
    pub(super) seen: Nanousd,
    /// What was set aside of it when the pace was last measured.
    reserved: Nanousd,
    /// What was set aside in the second before that, smoothed.
    per_second: i64,
    /// What calls were charged of it, as reported.
    pub(super) charged: Nanousd,
    /// That when the pace was last measured.
    charged_before: Nanousd,
    /// What was charged in the second before that, smoothed.
    charged_per_second: i64,
    /// What was charged lately, each charge counted for less the longer ago it was: at a steady pace,
    /// as much as is charged in the time that is covered, however seldom calls end.
    charged_lately: Nanousd,
    /// What open holds cover now.
    held: Nanousd,
    /// The most that they have covered at one time lately, and in the time before that.
    held_most: [Nanousd; 2],
    held_since: Duration,
    measured_at: Duration,
    pub(super) used_at: Duration,
    /// What the treasury said last when it had not enough.
    pub(super) short: Option<Shortage>,
    /// When it is asked again after that.
    pub(super) ask_at: Duration,
    /// The treasury lent less than was asked for: to ask again soon brings little.
    pub(super) is_scarce: bool,
    /// When someone was told last that money is there: it is taken a moment later.
    told_at: Option<Duration>,
    /// What was given back and not reported yet: it is on its way to the treasury.
    pub(super) returning: Nanousd,
    /// Another node needs it.
    pub(super) is_recalled: bool,
    /// Nobody has used it here for so long that all of it goes back.
    pub(super) is_idle: bool,
}

impl Need {
    /// How much of what is there stays here.
    pub(super) fn kept(&self, available: Nanousd, cover_s: i64, now: Duration) -> Nanousd {
        let is_fresh = |told_at| now.saturating_sub(told_at) < RECALL_BEAT;
        if self.told_at.is_some_and(is_fresh) {
            available
        } else if self.is_recalled || self.is_idle {
            Nanousd::ZERO
        } else if available > self.ahead(EXCESS_S, cover_s.saturating_mul(2)).max(FLOOR) {
            self.enough(cover_s)
        } else {
            available
        }
    }

    /// What the treasury could lend when it was last short, together with what is there.
    fn within_reach(&self, available: Nanousd) -> Nanousd {
        let short = self.short.map_or(Nanousd::ZERO, |short| short.available);
        available.checked_add(short).unwrap_or(Nanousd::MAX)
    }

    /// Who money is asked for: the first, unless there is enough only for one behind.
    pub(super) fn next_to_serve(&self, available: Nanousd) -> Option<&Waiting> {
        let reach = self.within_reach(available);
        let within = self.waiting.iter().find(|waiting| waiting.amount <= reach);
        within.filter(|_| self.short.is_some()).or(self.waiting.first())
    }

    /// Tells those who waited when the exchange was sent what came of it: as many as what is there is
    /// enough for to try again, and those that no money can come any more.
    pub(super) fn tell(
        &mut self,
        available: Nanousd,
        now: Duration,
        told: &mut Vec<(Waiter, Verdict)>,
    ) {
        let mut left = available;
        let served = self.waiting.extract_if(.., |waiting| {
            let is_served = waiting.amount <= left;
            if is_served {
                left = left.saturating_sub(waiting.amount);
            }
            is_served
        });
        let before = told.len();
        told.extend(served.map(|waiting| (waiting.id, Verdict::Again)));
        if told.len() > before {
            self.told_at = Some(now);
        }
        let Some(short) = self.short else { return };
        let reach = self.within_reach(left);
        let may_come = short.elsewhere > Nanousd::ZERO || self.returning > Nanousd::ZERO;
        let gone = self.waiting.extract_if(.., |waiting| {
            if !waiting.is_asked || waiting.amount <= reach {
                return false;
            }
            let asked_for = now.saturating_sub(*waiting.short_at.get_or_insert(now));
            let waited = now.saturating_sub(waiting.since);
            !may_come || asked_for >= RECALL_WAIT || waited >= WAIT_MAX
        });
        told.extend(gone.map(|waiting| (waiting.id, Verdict::Refused(short))));
        let is_in_reach = self.waiting.iter().any(|waiting| waiting.amount <= reach);
        self.ask_at = if is_in_reach { now } else { now.saturating_add(RECALL_BEAT) };
    }

    /// Looks at what was set aside and what holds cover. `cover_s` is how far ahead money is borrowed.
    pub(super) fn measure(&mut self, now: Duration, money: (Nanousd, Nanousd), cover_s: i64) {
        let (reserved, held) = money;
        self.seen = reserved;
        let since = now.saturating_sub(self.measured_at);
        let grown = reserved.saturating_sub(self.reserved);
        let is_new = self.measured_at.is_zero() || grown > Nanousd::ZERO;
        if is_new || held > Nanousd::ZERO || !self.waiting.is_empty() {
            self.used_at = now;
        }
        let cover = Duration::from_secs(u64::try_from(cover_s).unwrap_or(0));
        if now.saturating_sub(self.held_since) >= cover {
            self.held_most = [Nanousd::ZERO, self.held_most[0]];
            self.held_since = now;
        }
        self.held_most[0] = self.held_most[0].max(held);
        self.held = held;
        let ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        // What came within a moment is no pace yet.
        let is_first = self.measured_at.is_zero();
        if ms < 100 && !is_first {
            return;
        }
        let smoothed = |before: i64, grown: Nanousd| {
            let pace = grown.get().saturating_mul(1000).checked_div(ms.max(1)).unwrap_or(0);
            let mean = before.saturating_add(pace).checked_div(2).unwrap_or(0);
            if is_first { 0 } else { pace.max(mean) }
        };
        self.per_second = smoothed(self.per_second, grown);
        let charged = self.charged.saturating_sub(self.charged_before);
        self.charged_per_second = smoothed(self.charged_per_second, charged);
        let cover_ms = cover_s.saturating_mul(1000).max(1);
        let lately = i128::from(self.charged_lately.get());
        let kept = i128::from(cover_ms.saturating_sub(ms).max(0));
        let lately = lately.saturating_mul(kept).checked_div(i128::from(cover_ms)).unwrap_or(0);
        let lately = Nanousd::new(i64::try_from(lately).unwrap_or(i64::MAX));
        self.charged_lately = lately.checked_add(charged).unwrap_or(Nanousd::MAX);
        (self.reserved, self.measured_at) = (reserved, now);
        self.charged_before = self.charged;
    }

    /// What so many seconds of holds set aside, or what the calls of the last time that is covered held
    /// at one time, if that is more; and what they are charged in so long. Without the second, calls
    /// that take long and come seldom would each wait for the treasury. Where money is scarce, none is
    /// kept for calls that may come: others may need it sooner.
    pub(super) fn ahead(&self, seconds: i64, cover_s: i64) -> Nanousd {
        let held = self.held_most[0].max(self.held_most[1]).saturating_sub(self.held);
        let held = if self.is_scarce { Nanousd::ZERO } else { held };
        let holds = self.spent_in(seconds).max(held);
        holds.checked_add(self.charged_in(cover_s)).unwrap_or(Nanousd::MAX)
    }

    /// What is asked for, and kept of what is too much: more than what makes it ask again, so that not
    /// every charge does.
    pub(super) fn enough(&self, cover_s: i64) -> Nanousd {
        let spare = self.charged_in(cover_s).get().checked_div(4).unwrap_or(0);
        let enough = self.ahead(AHEAD_S, cover_s).checked_add(Nanousd::new(spare));
        enough.unwrap_or(Nanousd::MAX).max(FLOOR)
    }

    /// What calls are charged in so many seconds.
    fn charged_in(&self, cover_s: i64) -> Nanousd {
        let at_pace = Nanousd::new(self.charged_per_second.saturating_mul(cover_s));
        at_pace.max(self.charged_lately)
    }

    pub(super) fn spent_in(&self, seconds: i64) -> Nanousd {
        Nanousd::new(self.per_second.saturating_mul(seconds))
    }
}
