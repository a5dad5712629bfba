//! Shares of spending limits on a node of a fleet: requested when needed, returned when unused.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::time::Duration;

use crate::calls::lend::FundsRequest;
use crate::memory::Ledger;
use crate::ports::funds::SharedFunds;
use crate::records::error::Refusal;
use crate::records::key_limits::{Period, SpendLimitStatus};
use crate::rules::cap_shares::{CapDemand, CapGrant, CapRequest};
use crate::rules::key_spend::Span;
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, KeyId};

/// A call waits for its key's share for so long at most: other nodes hear within half a second that
/// they should give back what they do not use.
const WAIT_MAX: Duration = Duration::from_secs(2);

impl Ledger {
    /// Collects the share requests for the limits of these keys. Keys without any demand are passed
    /// to `forget`, each with its account locked.
    pub fn cap_asks(
        &self,
        keys: Vec<CapDemand>,
        at: UnixMs,
        forget: impl Fn(AccountId, KeyId),
    ) -> Vec<CapRequest> {
        let mut asks = Vec::new();
        for waiting in keys {
            let CapDemand { account, key, all, .. } = waiting;
            let mut core = self.shard(account).lock();
            let spendings = core.state_mut(account).map(|state| &mut state.spendings);
            let Some(spendings) = spendings else { continue };
            // The account may be closed or the limit removed since the key was listed: nothing is
            // demanded then.
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
                forget(account, key);
            }
        }
        // The database locks them in this order.
        asks.sort_by(|left, right| (left.key, &left.period).cmp(&(right.key, &right.period)));
        asks
    }

    /// Applies the grants of an exchange. True if the node gave back a part of a share, which the next
    /// exchange must report at once.
    pub fn take_caps<'a>(
        &self,
        grants: impl IntoIterator<Item = (&'a CapRequest, CapGrant)>,
    ) -> bool {
        let mut is_lowered = false;
        for (ask, grant) in grants {
            let mut core = self.shard(ask.account).lock();
            let state = core.state_mut(ask.account);
            let Some((spending, shares)) = state.and_then(|state| state.spendings.shares(ask.key))
            else {
                continue;
            };
            let used = spending.spent.in_span(ask.span).saturating_add(spending.held);
            let share = shares.of(ask.span);
            (share.share, share.grant) = (Some(grant.share), grant);
            // The calls that it was asked for come first, or nodes would pass it around; but what does
            // not reach for one of them is of no use here.
            let is_enough = used.saturating_add(ask.least) <= grant.share;
            let needed = if is_enough { used.saturating_add(ask.waits) } else { used };
            if grant.is_missed && grant.share > needed {
                // Given back here before the treasury knows: a call that took it meanwhile would spend
                // it twice.
                (share.share, share.is_untold) = (Some(needed), true);
                is_lowered = true;
            }
        }
        is_lowered
    }

    /// Gives back the unspent shares of key limits when the node stops. Otherwise nobody could spend them
    /// until the period ends.
    pub fn give_up_caps(&self, keys: Vec<CapDemand>) {
        for CapDemand { account, key, .. } in keys {
            let mut core = self.shard(account).lock();
            let state = core.state_mut(account);
            let Some((spending, shares)) = state.and_then(|state| state.spendings.shares(key))
            else {
                continue;
            };
            for share in [&mut shares.day, &mut shares.month].into_iter().flatten() {
                let used = spending.spent.in_span(share.span).saturating_add(spending.held);
                // Open holds count as used: they end after this and must still find their share.
                let kept = share.share.map(|share| share.min(used));
                // What was used lately says nothing of what is ahead.
                (share.share, share.reported_used, share.is_untold) = (kept, used, true);
            }
        }
    }

    /// Marks the contents of a sync whose outcome is unknown for another report. Shares given back with it
    /// would otherwise be lost until the period ends, if the key is no longer used here.
    pub fn retell_caps(&self, asks: &[CapRequest]) {
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
    /// [`Refusal::SpendLimitStatus`] where the limit is used up, and [`Refusal::CutOff`].
    pub(crate) async fn wait_for_share(
        &self,
        funds: &dyn SharedFunds,
        want: FundsRequest,
        (capped, lacks, left): (SpendLimitStatus, Nanousd, Nanousd),
        since: &mut Option<Duration>,
    ) -> Result<(), Refusal> {
        let now = funds.now();
        let has_waited = since.is_some_and(|since| now.saturating_sub(since) >= WAIT_MAX);
        if want.amount > capped.limit || has_waited || since.is_some() && left < lacks {
            return Err(Refusal::Capped(capped));
        }
        since.get_or_insert(now);
        let is_answered = funds.wait_for_share(want.account, want.key, want.amount).await;
        if is_answered { Ok(()) } else { Err(Refusal::CutOff) }
    }
}
