//! What a node of a fleet has of what a key may spend: a share of each limit, which it asks for, and
//! gives back when it does not need it.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use crate::records::error::Refusal;
use crate::records::key_limits::{Capped, Period};
use crate::rules::spend::{Room, Span, Spending, sum};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, KeyId};

/// A key that nobody used for so long keeps nothing here that it has not spent.
const IDLE_MS: u64 = 1_000;

/// A node with a part of a key's limit that it does not use asks so often whether another lacks it: a
/// little less than the pace of the exchanges.
const UNUSED_MS: u64 = 400;

/// What was used since the last exchange, half a second ago, is asked for so many times over: two
/// seconds of it.
const AHEAD: i64 = 4;

/// What a node tells about what a key spends in a period, and asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapRequest {
    /// Whose key it is.
    pub account: AccountId,
    /// Whose limit it is.
    pub key: KeyId,
    /// The period, such as `day/2026-11-22` or `month/2026-11`.
    pub period: String,
    /// The same for the ledger.
    pub span: Span,
    /// The limit, as this node knows it.
    pub cap: Nanousd,
    /// What the node has of it, and keeps to already where that is less than it was; `None` if it has
    /// just started and does not know.
    pub share: Option<Nanousd>,
    /// What was spent here in the period.
    pub spent: Nanousd,
    /// What is held here.
    pub held: Nanousd,
    /// What the smallest of the calls that wait can cost; zero if none waits.
    pub least: Nanousd,
    /// What all of them can cost.
    pub waits: Nanousd,
    /// What is likely to be spent before long.
    pub ahead: Nanousd,
}

/// What it is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapGrant {
    /// What it may have spent and held of the limit.
    pub share: Nanousd,
    /// What may still be had: what no node has, and what the others have and do not use.
    pub left: Nanousd,
    /// Whether another node lacks what is not used here.
    pub is_missed: bool,
    /// What the others have spent.
    pub spent_elsewhere: Nanousd,
    /// What the others have beyond that.
    pub held_elsewhere: Nanousd,
}

/// What the calls of a key wait for.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// The account of the key.
    pub account: AccountId,
    /// The key that has a cap.
    pub key: KeyId,
    /// What the smallest can cost; zero if none waits.
    pub least: Nanousd,
    /// What all of them can cost.
    pub all: Nanousd,
}

/// A key's shares at this node.
#[derive(Clone, Debug, Default)]
pub(crate) struct CapShares {
    pub(crate) day: Option<CapShare>,
    pub(crate) month: Option<CapShare>,
}

/// A share of what a key may spend in a period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CapShare {
    pub(crate) span: Span,
    /// What may be spent and held here; `None` until the node was told.
    pub(crate) share: Option<Nanousd>,
    pub(crate) told: CapGrant,
    /// What was spent and held when that was last told.
    pub(crate) told_used: Nanousd,
    pub(crate) told_at: UnixMs,
    pub(crate) active_at: UnixMs,
    /// Whether the others do not know how it stands: it is less, or they were told in vain.
    pub(crate) is_untold: bool,
}

impl CapShares {
    pub(crate) const NONE: Self = Self { day: None, month: None };

    /// What may still be held in a period, of a limit that stands as `capped` says, for this node.
    pub(crate) fn room(&self, span: Span, capped: Capped) -> Room {
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
        let amount = share.min(capped.limit).saturating_sub(used).max(Nanousd::ZERO);
        Room { amount, capped, left: Some(left) }
    }

    pub(crate) fn slot(&mut self, period: Period) -> &mut Option<CapShare> {
        match period {
            Period::Day => &mut self.day,
            Period::Month => &mut self.month,
        }
    }

    pub(crate) fn of(&mut self, span: Span) -> &mut CapShare {
        let slot = self.slot(span.period);
        let known = slot.filter(|known| known.span.is_same(&span));
        slot.insert(known.unwrap_or(CapShare {
            span,
            share: None,
            told: CapGrant::default(),
            told_used: Nanousd::ZERO,
            told_at: UnixMs(0),
            active_at: UnixMs(0),
            is_untold: false,
        }))
    }
}

impl Room {
    /// Why an amount does not fit into it.
    pub(crate) fn refusal(&self, amount: Nanousd) -> Refusal {
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
    pub(crate) fn ask(
        &mut self,
        spending: &Spending,
        cap: Nanousd,
        of: Waiting,
        at: UnixMs,
    ) -> Option<CapRequest> {
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
        Some(CapRequest {
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
    pub(crate) fn is_over(&self, spending: &Spending, at: UnixMs) -> bool {
        let used = sum(spending.spent.in_span(self.span), spending.held);
        at.0.saturating_sub(self.active_at.0) >= IDLE_MS
            && !self.is_untold
            && self.share.is_none_or(|share| share <= used)
    }
}
