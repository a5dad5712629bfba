//! Shares of spending limits on a node of a fleet: requested when needed, returned when unused.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use crate::records::error::Refusal;
use crate::records::key_limits::{Period, SpendLimitStatus};
use crate::rules::key_spend::{KeySpend, RemainingLimit, Span};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, KeyId};

/// A key that nobody used for so long keeps nothing here that it has not spent.
const IDLE_MS: u64 = 1_000;

/// A node with a part of a key's limit that it does not use asks so often whether another lacks it: a
/// little less than the pace of the exchanges.
const UNUSED_MS: u64 = 400;

/// Factor on the use since the last exchange, half a second ago, to be requested in advance: two
/// seconds' worth.
const AHEAD: i64 = 4;

/// A node's report and request for a key's spending limit in one period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapRequest {
    /// Account of the key.
    pub account: AccountId,
    /// Key with the limit.
    pub key: KeyId,
    /// The period, such as `day/2026-11-22` or `month/2026-11`.
    pub period: String,
    /// Period in the form that the ledger uses.
    pub span: Span,
    /// The limit, as this node knows it.
    pub cap: Nanousd,
    /// Share of the node, already reduced if the node gives some back; `None` after a start, when
    /// it knows none.
    pub share: Option<Nanousd>,
    /// Amount spent here in the period.
    pub spent: Nanousd,
    /// Amount held here.
    pub held: Nanousd,
    /// Maximum cost of the smallest waiting call; zero if none waits.
    pub least: Nanousd,
    /// Maximum cost of all waiting calls.
    pub waits: Nanousd,
    /// Expected spending in the near future.
    pub ahead: Nanousd,
}

/// Answer to a [`CapRequest`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapGrant {
    /// Amount of the limit that the node may spend and hold.
    pub share: Nanousd,
    /// Amount that can still be requested: unassigned, or assigned to other nodes and unused.
    pub left: Nanousd,
    /// True if another node needs the unused part of this share.
    pub is_missed: bool,
    /// Amount spent by the other nodes.
    pub spent_elsewhere: Nanousd,
    /// Shares of the other nodes beyond that.
    pub held_elsewhere: Nanousd,
}

/// Demand of a key's waiting calls.
#[derive(Clone, Copy, Debug)]
pub struct CapDemand {
    /// The account of the key.
    pub account: AccountId,
    /// Key with the limit.
    pub key: KeyId,
    /// Maximum cost of the smallest one; zero if none waits.
    pub least: Nanousd,
    /// Maximum cost of all of them.
    pub all: Nanousd,
}

/// A key's shares at this node.
#[derive(Clone, Debug, Default)]
pub(crate) struct CapShares {
    pub(crate) day: Option<GrantedCapShare>,
    pub(crate) month: Option<GrantedCapShare>,
}

/// A share of what a key may spend in a period.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrantedCapShare {
    pub(crate) span: Span,
    /// Share of this node; `None` until the first answer.
    pub(crate) share: Option<Nanousd>,
    pub(crate) grant: CapGrant,
    /// Amount spent and held at the last report.
    pub(crate) reported_used: Nanousd,
    pub(crate) reported_at: UnixMs,
    pub(crate) active_at: UnixMs,
    /// True if the next exchange must report it: the share is smaller, or the last report was lost.
    pub(crate) is_untold: bool,
}

impl CapShares {
    pub(crate) const NONE: Self = Self { day: None, month: None };

    /// Remaining amount of a period for this node, for a limit in the status `capped`.
    pub(crate) fn room(&self, span: Span, capped: SpendLimitStatus) -> RemainingLimit {
        let current = match span.period {
            Period::Day => self.day,
            Period::Month => self.month,
        };
        let current = current.filter(|current| current.span.is_same(&span));
        let grant = current.filter(|current| current.share.is_some()).map(|current| current.grant);
        let share = current.and_then(|current| current.share).unwrap_or_default();
        let used = capped.spent.saturating_add(capped.held);
        // Before it was told, it may be anything.
        let left = grant.map_or(Nanousd::MAX, |grant| grant.left);
        let elsewhere = grant.unwrap_or_default();
        let capped = SpendLimitStatus {
            spent: capped.spent.saturating_add(elsewhere.spent_elsewhere),
            held: capped.held.saturating_add(elsewhere.held_elsewhere),
            ..capped
        };
        // A limit that was just lowered binds at once, before the treasury has shrunk the shares.
        let amount = share.min(capped.limit).saturating_sub(used).max(Nanousd::ZERO);
        RemainingLimit { amount, capped, left: Some(left) }
    }

    pub(crate) fn slot(&mut self, period: Period) -> &mut Option<GrantedCapShare> {
        match period {
            Period::Day => &mut self.day,
            Period::Month => &mut self.month,
        }
    }

    pub(crate) fn of(&mut self, span: Span) -> &mut GrantedCapShare {
        let slot = self.slot(span.period);
        let current = slot.filter(|current| current.span.is_same(&span));
        // A new day or month begins without a share: the old one was a part of another amount.
        slot.insert(current.unwrap_or(GrantedCapShare {
            span,
            share: None,
            grant: CapGrant::default(),
            reported_used: Nanousd::ZERO,
            reported_at: UnixMs(0),
            active_at: UnixMs(0),
            is_untold: false,
        }))
    }
}

impl RemainingLimit {
    /// Refusal of an amount that does not fit.
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

impl GrantedCapShare {
    /// Request to send now, if one is due.
    pub(crate) fn ask(
        &mut self,
        spending: &KeySpend,
        cap: Nanousd,
        of: CapDemand,
        at: UnixMs,
    ) -> Option<CapRequest> {
        let spent = spending.spent.in_span(self.span);
        let used = spent.saturating_add(spending.held);
        let more = used.saturating_sub(self.reported_used).max(Nanousd::ZERO);
        let waits = of.all > Nanousd::ZERO;
        if waits || !spending.held.is_zero() || used != self.reported_used {
            self.active_at = at;
        }
        let since = |then: UnixMs| at.0.saturating_sub(then.0);
        let is_idle = since(self.active_at) >= IDLE_MS;
        let share = self.share.unwrap_or_default();
        // Kept here, it would be refused to keys on other nodes until the period ends.
        if is_idle && share > used {
            (self.share, self.is_untold) = (Some(used), true);
        }
        let is_due = waits
            || used > share
            || used != self.reported_used
            || self.is_untold
            || share > used && since(self.reported_at) >= UNUSED_MS;
        if !is_due {
            return None;
        }
        // Noted as reported before the exchange; where its answer is lost, `retell_caps` takes it back.
        (self.reported_used, self.reported_at, self.is_untold) = (used, at, false);
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

    /// True if the other nodes know that nothing of it is unused, and it is no longer used here.
    pub(crate) fn is_over(&self, spending: &KeySpend, at: UnixMs) -> bool {
        let used = spending.spent.in_span(self.span).saturating_add(spending.held);
        at.0.saturating_sub(self.active_at.0) >= IDLE_MS
            && !self.is_untold
            && self.share.is_none_or(|share| share <= used)
    }
}
