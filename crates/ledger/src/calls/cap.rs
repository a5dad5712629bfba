//! What a node of a fleet may let its keys spend of their limits: a share of each, which it asks for,
//! and gives back when it does not need it.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::time::Duration;

use crate::calls::lend::FundsRequest;
use crate::memory::ledger::Ledger;
use crate::records::error::Refusal;
use crate::records::key_limits::{Capped, Period};
use crate::rules::cap_shares::{CapGrant, CapRequest, Waiting};
use crate::rules::spend::{Span, sum};
use crate::seam::funds::SharedFunds;
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, KeyId};

/// A call waits for its key's share for so long at most: other nodes hear within half a second that
/// they should give back what they do not use.
const WAIT_MAX: Duration = Duration::from_secs(2);

impl Ledger {
    /// What is to be told about limits of these keys, and asked for. Keys that need nothing any more
    /// are given to `forget`, each while its account is locked.
    pub fn cap_asks(
        &self,
        keys: Vec<Waiting>,
        at: UnixMs,
        forget: impl Fn(AccountId, KeyId),
    ) -> Vec<CapRequest> {
        let mut asks = Vec::new();
        for waiting in keys {
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
                forget(account, key);
            }
        }
        // The database locks them in this order.
        asks.sort_by(|left, right| (left.key, &left.period).cmp(&(right.key, &right.period)));
        asks
    }

    /// Takes what the exchange brought. Whether something was given up that is to be told at once.
    pub fn take_caps<'a>(
        &self,
        told: impl IntoIterator<Item = (&'a CapRequest, CapGrant)>,
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
    pub fn give_up_caps(&self, keys: Vec<Waiting>) {
        for Waiting { account, key, .. } in keys {
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
    /// [`Refusal::Capped`] where the limit is used up, and [`Refusal::CutOff`].
    pub(crate) async fn wait_for_share(
        &self,
        funds: &dyn SharedFunds,
        want: FundsRequest,
        (capped, lacks, left): (Capped, Nanousd, Nanousd),
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
