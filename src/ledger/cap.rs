//! What a node of a fleet may let its keys spend of their limits: a share of each, which it asks for,
//! and gives back when it does not need it.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::time::Duration;

use super::Ledger;
use super::error::Refusal;
use super::lend::Want;
use super::spend::{Capped, Period, Room, Span, Spending, sum};
use crate::clock::UnixMs;
use crate::fleet::Fleet;
use crate::fleet::caps::{CapAsk, CapTold};
use crate::fleet::desk::Waiting;
use crate::money::Nanousd;

/// A call waits for its key's share for so long at most: other nodes hear within half a second that
/// they should give back what they do not use.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// A key that nobody used for so long keeps nothing here that it has not spent.
const IDLE_MS: u64 = 1_000;
/// A node with a part of a key's limit that it does not use asks so often whether another lacks it: a
/// little less than the pace of the exchanges.
const UNUSED_MS: u64 = 400;
/// What was used since the last exchange, half a second ago, is asked for so many times over: two
/// seconds of it.
const AHEAD: i64 = 4;

/// A key's shares at this node.
#[derive(Clone, Debug, Default)]
pub(super) struct CapShares {
    day: Option<CapShare>,
    month: Option<CapShare>,
}

/// A share of what a key may spend in a period.
#[derive(Clone, Copy, Debug)]
struct CapShare {
    span: Span,
    /// What may be spent and held here; `None` until the node was told.
    share: Option<Nanousd>,
    told: CapTold,
    /// What was spent and held when that was last told.
    told_used: Nanousd,
    told_at: UnixMs,
    active_at: UnixMs,
    /// Whether the others do not know how it stands: it is less, or they were told in vain.
    is_untold: bool,
}

impl CapShares {
    pub(super) const NONE: Self = Self { day: None, month: None };

    /// What may still be held in a period, of a limit that stands as `capped` says, for this node.
    pub(super) fn room(&self, span: Span, capped: Capped) -> Room {
        let known = match span.period {
            Period::Day => self.day,
            Period::Month => self.month,
        };
        let known = known.filter(|known| known.span.is_same(&span));
        let told = known.filter(|known| known.share.is_some()).map(|known| known.told);
        let share = known.and_then(|known| known.share).unwrap_or_default();
        let used = sum(capped.spent, capped.held);
        // Before it was told, it may be anything.
        let left = told.map_or(Nanousd::MAX, |told| told.left);
        let elsewhere = told.unwrap_or_default();
        let capped = Capped {
            spent: sum(capped.spent, elsewhere.spent_elsewhere),
            held: sum(capped.held, elsewhere.held_elsewhere),
            ..capped
        };
        Room { amount: share.min(capped.limit).saturating_sub(used), capped, left: Some(left) }
    }

    fn slot(&mut self, period: Period) -> &mut Option<CapShare> {
        match period {
            Period::Day => &mut self.day,
            Period::Month => &mut self.month,
        }
    }

    fn of(&mut self, span: Span) -> &mut CapShare {
        let slot = self.slot(span.period);
        let known = slot.filter(|known| known.span.is_same(&span));
        slot.insert(known.unwrap_or(CapShare {
            span,
            share: None,
            told: CapTold::default(),
            told_used: Nanousd::ZERO,
            told_at: UnixMs(0),
            active_at: UnixMs(0),
            is_untold: false,
        }))
    }
}

impl Room {
    /// Why an amount does not fit into it.
    pub(super) fn refusal(&self, amount: Nanousd) -> Refusal {
        match self.left {
            None => Refusal::Capped(self.capped),
            Some(left) => {
                let lacks = amount.saturating_sub(self.amount.max(Nanousd::ZERO));
                Refusal::ShareUsed { capped: self.capped, lacks, left }
            }
        }
    }
}

impl CapShare {
    /// What to tell about it and to ask for, if it is time to.
    fn ask(
        &mut self,
        spending: &Spending,
        cap: Nanousd,
        of: Waiting,
        at: UnixMs,
    ) -> Option<CapAsk> {
        let spent = spending.spent.in_span(self.span);
        let used = sum(spent, spending.held);
        let more = used.saturating_sub(self.told_used).max(Nanousd::ZERO);
        let waits = of.all > Nanousd::ZERO;
        if waits || !spending.held.is_zero() || used != self.told_used {
            self.active_at = at;
        }
        let since = |then: UnixMs| at.0.saturating_sub(then.0);
        let is_idle = since(self.active_at) >= IDLE_MS;
        let share = self.share.unwrap_or_default();
        if is_idle && share > used {
            (self.share, self.is_untold) = (Some(used), true);
        }
        let is_due = waits
            || used > share
            || used != self.told_used
            || self.is_untold
            || share > used && since(self.told_at) >= UNUSED_MS;
        if !is_due {
            return None;
        }
        (self.told_used, self.told_at, self.is_untold) = (used, at, false);
        let ahead = more.get().saturating_mul(AHEAD);
        Some(CapAsk {
            account: of.account,
            key: of.key,
            period: self.span.name(),
            span: self.span,
            cap,
            share: self.share,
            spent,
            held: spending.held,
            least: of.least,
            waits: of.all,
            ahead: if is_idle { Nanousd::ZERO } else { Nanousd::new(ahead) },
        })
    }

    /// Whether the others know that nothing of it is unused, and nobody uses it.
    fn is_over(&self, spending: &Spending, at: UnixMs) -> bool {
        let used = sum(spending.spent.in_span(self.span), spending.held);
        at.0.saturating_sub(self.active_at.0) >= IDLE_MS
            && !self.is_untold
            && self.share.is_none_or(|share| share <= used)
    }
}

impl Ledger {
    /// What is to be told about limits of keys, and asked for. Keys that need nothing any more leave
    /// the desk.
    pub(crate) fn cap_asks(&self, fleet: &Fleet, at: UnixMs) -> Vec<CapAsk> {
        let mut asks = Vec::new();
        for waiting in fleet.desk().waiting() {
            let Waiting { account, key, all, .. } = waiting;
            let mut core = self.shard(account).lock();
            let spendings = core.state_mut(account).map(|state| &mut state.spendings);
            let Some(spendings) = spendings else { continue };
            let Some((spending, shares)) = spendings.shares(key) else { continue };
            let mut is_over = all.is_zero() && spending.held.is_zero();
            for period in [Period::Day, Period::Month] {
                let Some(cap) = spending.limits.of(period) else { continue };
                let share = shares.of(Span::of(period, at));
                match share.ask(&spending, cap, waiting, at) {
                    Some(ask) => {
                        is_over = false;
                        asks.push(ask);
                    }
                    None => is_over = is_over && share.is_over(&spending, at),
                }
            }
            if is_over {
                spendings.forget_shares(key);
                fleet.desk().forget(account, key);
            }
        }
        // The database locks them in this order.
        asks.sort_by(|left, right| (left.key, &left.period).cmp(&(right.key, &right.period)));
        asks
    }

    /// Takes what the exchange brought. Whether something was given up that is to be told at once.
    pub(crate) fn take_caps<'a>(
        &self,
        told: impl IntoIterator<Item = (&'a CapAsk, CapTold)>,
    ) -> bool {
        let mut is_lowered = false;
        for (ask, told) in told {
            let mut core = self.shard(ask.account).lock();
            let state = core.state_mut(ask.account);
            let Some((spending, shares)) = state.and_then(|state| state.spendings.shares(ask.key))
            else {
                continue;
            };
            let used = sum(spending.spent.in_span(ask.span), spending.held);
            let share = shares.of(ask.span);
            (share.share, share.told) = (Some(told.share), told);
            // The calls that it was asked for come first, or nodes would pass it around; but what does
            // not reach for one of them is of no use here.
            let is_enough = sum(used, ask.least) <= told.share;
            let needed = if is_enough { sum(used, ask.waits) } else { used };
            if told.is_missed && told.share > needed {
                (share.share, share.is_untold) = (Some(needed), true);
                is_lowered = true;
            }
        }
        is_lowered
    }

    /// The node stops: of what its keys may spend it keeps what they have spent. The rest would be
    /// nobody's until the period ends.
    pub(crate) fn give_up_caps(&self, fleet: &Fleet) {
        for Waiting { account, key, .. } in fleet.desk().waiting() {
            let mut core = self.shard(account).lock();
            let state = core.state_mut(account);
            let Some((spending, shares)) = state.and_then(|state| state.spendings.shares(key))
            else {
                continue;
            };
            for share in [&mut shares.day, &mut shares.month].into_iter().flatten() {
                let used = sum(spending.spent.in_span(share.span), spending.held);
                let kept = share.share.map(|share| share.min(used));
                // What was used lately says nothing of what is ahead.
                (share.share, share.told_used, share.is_untold) = (kept, used, true);
            }
        }
    }

    /// Nobody can say whether an exchange was heard: all that it told is told again. What was given up
    /// with it would be nobody's until the period ends, if the key is not used here any more.
    pub(crate) fn retell_caps(&self, asks: &[CapAsk]) {
        for ask in asks {
            let mut core = self.shard(ask.account).lock();
            let state = core.state_mut(ask.account);
            let shares = state.and_then(|state| state.spendings.shares(ask.key));
            let slot = shares.and_then(|(_, shares)| shares.slot(ask.span.period).as_mut());
            if let Some(share) = slot.filter(|share| share.span.is_same(&ask.span)) {
                share.is_untold = true;
            }
        }
    }

    /// Waits for a larger share of what a key may spend, of which `left` may still be had. `since` is
    /// when the call began to.
    ///
    /// # Errors
    /// [`Refusal::Capped`] where the limit is used up, and [`Refusal::CutOff`].
    pub(super) async fn wait_for_share(
        &self,
        fleet: &Fleet,
        want: Want,
        (capped, lacks, left): (Capped, Nanousd, Nanousd),
        since: &mut Option<Duration>,
    ) -> Result<(), Refusal> {
        let now = fleet.now();
        let has_waited = since.is_some_and(|since| now.saturating_sub(since) >= WAIT_MAX);
        if want.amount > capped.limit || has_waited || since.is_some() && left < lacks {
            return Err(Refusal::Capped(capped));
        }
        since.get_or_insert(now);
        let _call = fleet.desk().call(want.account, want.key, want.amount);
        if fleet.desk().wait().await { Ok(()) } else { Err(Refusal::CutOff) }
    }
}
