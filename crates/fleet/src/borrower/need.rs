//! A node's view of one account: waiting calls, spending rate, and recalls by other nodes.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::time::Duration;

use super::{AHEAD_S, FLOOR, RECALL_BEAT, RECALL_WAIT, WAIT_MAX, Waiter};
use tollgate_ledger::{LeaseWait, Shortfall};
use tollgate_money::money::Nanousd;

/// Time whose spending a lease may cover at most; more is returned.
const EXCESS_S: i64 = 8;

/// A call that waits for money.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) id: Waiter,
    pub(super) amount: Nanousd,
    pub(super) since: Duration,
    /// True if the last sync requests money for it.
    pub(super) is_requested: bool,
    /// The time at which the treasury first had too little for it; other nodes are recalled from then on.
    pub(super) short_at: Option<Duration>,
}

/// The demand for one account that this node has leased or waits for.
#[derive(Debug, Default)]
pub(super) struct Need {
    pub(super) waiting: Vec<Waiting>,
    /// The sum of holds up to the last sync.
    pub(super) seen: Nanousd,
    /// The sum of holds at the last measurement.
    reserved: Nanousd,
    /// Holds per second at the last measurement, smoothed.
    per_second: i64,
    /// The sum of reported charges.
    pub(super) charged: Nanousd,
    /// The sum of charges at the last measurement.
    charged_before: Nanousd,
    /// Charges per second at the last measurement, smoothed.
    charged_per_second: i64,
    /// Recent charges, decaying over the covered time: at a steady rate, the charges of that time, however
    /// rarely calls end.
    charged_lately: Nanousd,
    /// The money under open holds now.
    held: Nanousd,
    /// Largest amount covered by holds at one time, recently and in the period before.
    held_most: [Nanousd; 2],
    held_since: Duration,
    measured_at: Duration,
    pub(super) used_at: Duration,
    /// The treasury's last answer, if it had too little.
    pub(super) short: Option<Shortfall>,
    /// The earliest time of the next request after that.
    pub(super) ask_at: Duration,
    /// True if the treasury lent less than requested: another request soon would bring little.
    pub(super) is_scarce: bool,
    /// The time at which a waiting call was last released: it takes its money a moment later.
    served_at: Option<Duration>,
    /// Money that was returned and not reported yet.
    pub(super) returning: Nanousd,
    /// Another node needs it.
    pub(super) is_recalled: bool,
    /// True if it has been idle here for so long that all of it is returned.
    pub(super) is_idle: bool,
}

impl Need {
    /// Part of the available money that stays on this node.
    pub(super) fn kept(&self, available: Nanousd, cover_s: i64, now: Duration) -> Nanousd {
        let is_fresh = |served_at| now.saturating_sub(served_at) < RECALL_BEAT;
        if self.served_at.is_some_and(is_fresh) {
            available
        } else if self.is_recalled || self.is_idle {
            Nanousd::ZERO
        // Far above the threshold of a request, or money would travel with each pause of a moment.
        } else if available > self.ahead(EXCESS_S, cover_s.saturating_mul(2)).max(FLOOR) {
            self.enough(cover_s)
        } else {
            available
        }
    }

    /// The available money with the treasury's remainder at the last shortage.
    fn within_reach(&self, available: Nanousd) -> Nanousd {
        let short = self.short.map_or(Nanousd::ZERO, |short| short.available);
        available.saturating_add(short)
    }

    /// The call to request money for: the first, unless there is enough only for a later one.
    pub(super) fn next_to_serve(&self, available: Nanousd) -> Option<&Waiting> {
        let reach = self.within_reach(available);
        // Where the first one asks for more than there is, a smaller one behind it need not fail with it.
        let within = self.waiting.iter().find(|waiting| waiting.amount <= reach);
        within.filter(|_| self.short.is_some()).or(self.waiting.first())
    }

    /// Decides the calls that waited when the sync was sent: those that the available money covers retry, and
    /// those that no money can reach any more are refused.
    pub(super) fn serve(
        &mut self,
        available: Nanousd,
        now: Duration,
        verdicts: &mut Vec<(Waiter, LeaseWait)>,
    ) {
        let mut left = available;
        let served = self.waiting.extract_if(.., |waiting| {
            let is_served = waiting.amount <= left;
            if is_served {
                left = left.saturating_sub(waiting.amount);
            }
            is_served
        });
        let before = verdicts.len();
        verdicts.extend(served.map(|waiting| (waiting.id, LeaseWait::Retry)));
        if verdicts.len() > before {
            self.served_at = Some(now);
        }
        let Some(short) = self.short else { return };
        let reach = self.within_reach(left);
        let may_come = short.elsewhere > Nanousd::ZERO || self.returning > Nanousd::ZERO;
        let expired = self.waiting.extract_if(.., |waiting| {
            // The answer does not speak of calls that came after the sync was sent.
            if !waiting.is_requested || waiting.amount <= reach {
                return false;
            }
            let requested_for = now.saturating_sub(*waiting.short_at.get_or_insert(now));
            let waited = now.saturating_sub(waiting.since);
            !may_come || requested_for >= RECALL_WAIT || waited >= WAIT_MAX
        });
        verdicts.extend(expired.map(|waiting| (waiting.id, LeaseWait::Short(short))));
        let is_in_reach = self.waiting.iter().any(|waiting| waiting.amount <= reach);
        self.ask_at = if is_in_reach { now } else { now.saturating_add(RECALL_BEAT) };
    }

    /// Updates the figures from new holds and open holds. `cover_s` is the period, in seconds, for which
    /// money is leased in advance.
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
            // A rise counts at once and a fall by halves: too little makes calls wait, too much only
            // returns.
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
        self.charged_lately = lately.saturating_add(charged);
        (self.reserved, self.measured_at) = (reserved, now);
        self.charged_before = self.charged;
    }

    /// The money for holds of so many seconds, or the peak of concurrent holds in the covered time if that is
    /// more, plus the charges of so long. Without the peak, long and rare calls would each wait for the
    /// treasury. While money is scarce, none is reserved for future calls, as other nodes may need it sooner.
    pub(super) fn ahead(&self, seconds: i64, cover_s: i64) -> Nanousd {
        let held = self.held_most[0].max(self.held_most[1]).saturating_sub(self.held);
        let held = if self.is_scarce { Nanousd::ZERO } else { held };
        let holds = self.spent_in(seconds).max(held);
        holds.saturating_add(self.charged_in(cover_s))
    }

    /// The target of a request or a return: more than the threshold of a new request, so that not every
    /// charge causes one.
    pub(super) fn enough(&self, cover_s: i64) -> Nanousd {
        let spare = self.charged_in(cover_s).get().checked_div(4).unwrap_or(0);
        let enough = self.ahead(AHEAD_S, cover_s).checked_add(Nanousd::new(spare));
        enough.unwrap_or(Nanousd::MAX).max(FLOOR)
    }

    /// The charges expected in the covered time.
    fn charged_in(&self, cover_s: i64) -> Nanousd {
        let at_pace = Nanousd::new(self.charged_per_second.saturating_mul(cover_s));
        at_pace.max(self.charged_lately)
    }

    pub(super) fn spent_in(&self, seconds: i64) -> Nanousd {
        Nanousd::new(self.per_second.saturating_mul(seconds))
    }
}
