//! The memory that request bodies, and what is made of them, take together.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{ErrorKind, GatewayError};
use crate::gateway::wire::memory::eviction::{EvictionScope, IdleStates};
use crate::limits::{Count, InUse};
use crate::metrics::{Metrics, Shed};

/// Delay before a retry when the budget is used up. Bodies leave as fast as upstreams take them.
const RETRY_BUDGET: Duration = Duration::from_secs(1);
/// Number of attempts at one allocation. Each evicts what is missing; an attempt fails only if another
/// request takes the same bytes in between.
const ATTEMPTS_MAX: usize = 4;

/// Budget of memory for all request bodies.
pub(crate) struct BodyBudget {
    held: Count,
    /// Bytes held by accounts without money.
    unfunded: Count,
    /// States of idle connections, which are evicted for others.
    idle: IdleStates,
    metrics: Arc<Metrics>,
}

impl BodyBudget {
    pub(crate) fn new(metrics: Arc<Metrics>) -> Arc<Self> {
        let (held, unfunded) = (Count::default(), Count::default());
        Arc::new(Self { held, unfunded, idle: IdleStates::default(), metrics })
    }

    /// Turns a body away.
    pub(crate) fn shed(&self, full: Full) -> GatewayError {
        let reason = match full {
            Full::All => Shed::BodyMemory,
            Full::Account | Full::Unfunded => Shed::AccountBodyMemory,
        };
        self.metrics.request_shed(reason);
        full.to_error()
    }

    /// The states of idle connections that count in this budget.
    pub(crate) fn idle(&self) -> &IdleStates {
        &self.idle
    }

    /// Evicts states of idle connections until `more` bytes fit.
    ///
    /// # Errors
    /// What has no room for them all the same. Nothing is evicted then.
    pub(crate) fn make_room(
        &self,
        more: usize,
        max: usize,
        account: Option<&AccountMemory>,
    ) -> Result<(), Full> {
        let above = |taken: usize, max: usize| taken.saturating_add(more).saturating_sub(max);
        let short = above(self.held.taken(), max);
        if short > 0 && self.idle.bytes() < short {
            return Err(Full::All);
        }
        if let Some(account) = account {
            let short = above(account.in_use.body_bytes.taken(), account.bytes_max);
            self.evict(short, EvictionScope::Account(account.number))
                .map_err(|()| Full::Account)?;
        }
        if let Some(account) = account.filter(|account| !account.is_funded) {
            let held = self.held.taken().saturating_add(more);
            let short = above(self.unfunded.taken(), unfunded_max(account, held, max));
            self.evict(short, EvictionScope::Unfunded).map_err(|()| Full::Unfunded)?;
        }
        // What was given up so far counts for all.
        self.evict(above(self.held.taken(), max), EvictionScope::All).map_err(|()| Full::All)
    }

    fn evict(&self, bytes: usize, whose: EvictionScope) -> Result<(), ()> {
        if bytes == 0 {
            return Ok(());
        }
        let evicted = self.idle.evict(bytes, whose).ok_or(())?;
        self.metrics.idle_evicted(evicted);
        Ok(())
    }
}

/// The most that accounts without money may have together, in bytes, where `held` are taken of all: what one
/// account may have, or as much as is left free. Any number of them leave others a half.
fn unfunded_max(account: &AccountMemory, held: usize, max: usize) -> usize {
    account.bytes_max.max(max.saturating_sub(held))
}

/// The exhausted budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// The budget of all bodies.
    All,
    /// The account's share.
    Account,
    /// The common share of accounts without money.
    Unfunded,
}

impl Full {
    /// The error for a body that does not fit.
    pub(crate) fn to_error(self) -> GatewayError {
        let (kind, message) = match self {
            Self::Unfunded => (
                ErrorKind::RateLimited,
                "This account has nothing available, and accounts without money share the memory \
                 that is left for bodies, which is taken. Add credit, or try again shortly.",
            ),
            Self::All => {
                (ErrorKind::Overloaded, "Too many large requests are in flight. Try again shortly.")
            }
            Self::Account => (
                ErrorKind::RateLimited,
                "This account's requests in flight take all of its share of the memory for \
                 bodies. Send fewer large ones at one time, and try again when one has ended.",
            ),
        };
        GatewayError::new(kind, message).retry_after(RETRY_BUDGET)
    }
}

/// An account's usage and share of the budget.
#[derive(Clone, Debug)]
pub(crate) struct AccountMemory {
    /// Number of the account.
    pub(crate) number: u64,
    /// Counters of the account.
    pub(crate) in_use: Arc<InUse>,
    /// Share of the account, in bytes.
    pub(crate) bytes_max: usize,
    /// The account has money available. It is not looked up for short bodies.
    pub(crate) is_funded: bool,
}

/// A share of the budget, given back on drop.
pub(crate) struct BudgetShare {
    budget: Arc<BodyBudget>,
    /// Account of the share; `None` if the request is unauthenticated.
    account: Option<AccountMemory>,
    bytes: usize,
}

impl BudgetShare {
    /// An empty share of `account`.
    pub(crate) fn new(budget: &Arc<BodyBudget>, account: Option<AccountMemory>) -> Self {
        Self { budget: Arc::clone(budget), account, bytes: 0 }
    }

    /// An empty share of the same account.
    pub(crate) fn empty(&self) -> Self {
        Self::new(&self.budget, self.account.clone())
    }

    /// The budget of the share.
    pub(super) fn budget(&self) -> &Arc<BodyBudget> {
        &self.budget
    }

    /// The account of the share.
    pub(super) fn account(&self) -> Option<&AccountMemory> {
        self.account.as_ref()
    }

    /// The size of the share, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The account's share of the budget, in bytes; `None` without an account.
    pub(crate) fn account_bytes_max(&self) -> Option<usize> {
        self.account.as_ref().map(|account| account.bytes_max)
    }

    /// Resizes the share to `bytes`; false if the budget has too little. Shrinking always succeeds.
    pub(crate) fn resize(&mut self, bytes: usize, max: usize) -> bool {
        self.try_resize(bytes, max).is_ok()
    }

    pub(crate) fn try_resize(&mut self, bytes: usize, max: usize) -> Result<(), Full> {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.try_grow(more, max),
            None => {
                self.give_back(self.bytes - bytes);
                Ok(())
            }
        }
    }

    /// Returns all bytes of the share.
    pub(crate) fn release(&mut self) {
        self.give_back(self.bytes);
    }

    fn give_back(&mut self, bytes: usize) {
        self.budget.held.give_back(bytes);
        if let Some(account) = &self.account {
            account.in_use.body_bytes.give_back(bytes);
            if !account.is_funded {
                self.budget.unfunded.give_back(bytes);
            }
        }
        self.budget.metrics.body_bytes_sub(bytes);
        self.bytes -= bytes;
    }

    /// Takes `more` bytes from the budget, or nothing.
    pub(crate) fn grow(&mut self, more: usize, max: usize) -> bool {
        self.try_grow(more, max).is_ok()
    }

    pub(crate) fn try_grow(&mut self, more: usize, max: usize) -> Result<(), Full> {
        if more == 0 {
            return Ok(());
        }
        let mut taken = self.take(more, max);
        // Another request may take the room that was just made.
        for _ in 1..ATTEMPTS_MAX {
            if taken.is_ok() {
                break;
            }
            self.budget.make_room(more, max, self.account.as_ref())?;
            taken = self.take(more, max);
        }
        taken
    }

    fn take(&mut self, more: usize, max: usize) -> Result<(), Full> {
        if !self.budget.held.take(more, max) {
            return Err(Full::All);
        }
        if let Some(account) = &self.account
            && let Err(full) = self.take_of(account, more, max)
        {
            // Both or neither: bytes of a share that is refused belong to no one.
            self.budget.held.give_back(more);
            return Err(full);
        }
        self.bytes += more;
        self.budget.metrics.body_bytes_add(more);
        Ok(())
    }

    fn take_of(&self, account: &AccountMemory, more: usize, max: usize) -> Result<(), Full> {
        if !account.in_use.body_bytes.take(more, account.bytes_max) {
            return Err(Full::Account);
        }
        let unfunded_max = unfunded_max(account, self.budget.held.taken(), max);
        if !account.is_funded && !self.budget.unfunded.take(more, unfunded_max) {
            account.in_use.body_bytes.give_back(more);
            return Err(Full::Unfunded);
        }
        Ok(())
    }

    /// Notes whether the account of the share has money available.
    pub(crate) fn set_funded(&mut self, is_funded: bool) {
        let Some(account) = &mut self.account else { return };
        if std::mem::replace(&mut account.is_funded, is_funded) == is_funded {
            return;
        }
        if is_funded {
            self.budget.unfunded.give_back(self.bytes);
        } else {
            // They are held already.
            let _fits = self.budget.unfunded.take(self.bytes, usize::MAX);
        }
    }

    /// Splits `bytes`, or as many as the share has, into a new share.
    pub(crate) fn split(&mut self, bytes: usize) -> Self {
        let mut part = self.empty();
        part.bytes = bytes.min(self.bytes);
        self.bytes -= part.bytes;
        part
    }

    /// Merges a share that was split from this one.
    pub(crate) fn merge(&mut self, mut part: Self) {
        self.bytes += std::mem::take(&mut part.bytes);
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1000;

    fn share_of(budget: &Arc<BodyBudget>, number: u64, in_use: &Arc<InUse>) -> BudgetShare {
        let (in_use, bytes_max) = (Arc::clone(in_use), MAX / 2);
        BudgetShare::new(budget, Some(AccountMemory { number, in_use, bytes_max, is_funded: true }))
    }

    fn budget() -> Arc<BodyBudget> {
        BodyBudget::new(Arc::new(Metrics::new()))
    }

    #[test]
    fn a_share_shrinks_also_while_others_take_everything() {
        let (budget, in_use) = (budget(), Arc::default());
        let mut one = share_of(&budget, 1, &in_use);
        assert!(one.resize(400, MAX) && !one.resize(501, MAX), "half of the budget");
        let mut others = BudgetShare::new(&budget, None);
        assert!(others.resize(600, MAX), "all that is left");
        assert!(one.resize(100, MAX), "a share that shrinks needs no room");
        assert_eq!((budget.held.taken(), in_use.body_bytes.taken()), (700, 100));
        let part = one.split(60);
        assert_eq!((one.bytes(), part.bytes(), budget.held.taken()), (40, 60, 700));
        one.merge(part);
        drop(one);
        assert_eq!((budget.held.taken(), in_use.body_bytes.taken()), (600, 0));
    }

    #[test]
    fn idle_states_are_evicted_where_that_is_enough_and_else_kept() {
        let (budget, idle_account) = (budget(), Arc::default());
        let keep = |bytes: usize| {
            let mut share = share_of(&budget, 1, &idle_account);
            assert!(share.resize(bytes, MAX), "{bytes}");
            share.keep(bytes)
        };
        let (small, large) = (keep(100), keep(300));
        let other = Arc::default();
        let mut body = share_of(&budget, 2, &other);
        let mut rest = BudgetShare::new(&budget, None);
        assert!(rest.resize(500, MAX));
        assert!(!body.grow(501, MAX), "more than its account may have");
        assert!(!rest.grow(501, MAX), "more than there would be without idle states");
        assert!(!small.is_evicted() && !large.is_evicted(), "nothing goes in vain");
        assert!(body.grow(350, MAX), "room is made");
        assert!(large.is_evicted() && !small.is_evicted(), "the largest is enough");
        assert_eq!(budget.held.taken(), 500 + 350 + 100);
        assert_eq!(small.take().map(|(state, share)| (state, share.bytes())), Some((100, 100)));
        assert!(large.take().is_none());
    }

    #[test]
    fn an_account_makes_room_for_itself() {
        let (budget, in_use, others) = (budget(), Arc::default(), Arc::default());
        let mut share = share_of(&budget, 1, &in_use);
        assert!(share.resize(400, MAX));
        let own = share.keep(());
        let mut share = share_of(&budget, 2, &others);
        assert!(share.resize(450, MAX));
        let of_another = share.keep(());
        let mut body = share_of(&budget, 1, &in_use);
        assert!(body.grow(200, MAX), "its own state is evicted");
        assert!(own.is_evicted() && !of_another.is_evicted(), "and no other");
    }

    #[test]
    fn accounts_without_money_leave_others_a_half_and_give_way_among_themselves() {
        let budget = budget();
        let account = |number: u64| {
            let mut share = share_of(&budget, number, &Arc::default());
            share.set_funded(false);
            share
        };
        let mut all: Vec<_> = (0..10).map(account).collect();
        assert!(all[0].grow(MAX / 2, MAX), "one may have all of its share");
        let more = |share: &mut BudgetShare| share.try_grow(100, MAX);
        assert_eq!(all.iter_mut().skip(1).map(more).find(Result::is_ok), None, "and ten no more");
        assert_eq!(budget.held.taken(), MAX / 2);
        let idle = all.remove(0).keep(());
        assert_eq!(more(&mut all[0]), Ok(()), "what is idle gives way");
        assert!(idle.take().is_none());
        let mut funded = share_of(&budget, 99, &Arc::default());
        assert!(funded.grow(MAX / 2, MAX), "others have their half");
        drop(funded);
        // One after the other, in small pieces, as messages come.
        let kept: Vec<_> = (100..120)
            .map(|number| {
                let mut share = account(number);
                (0..15).for_each(|_| assert_eq!(share.try_grow(7, MAX), Ok(()), "{number}"));
                share.keep(())
            })
            .collect();
        assert!(budget.held.taken() <= MAX / 2, "{}", budget.held.taken());
        assert!(kept.last().is_some_and(|last| !last.is_evicted()));
        drop(kept);
        all[0].set_funded(true);
        drop(all);
        assert_eq!((budget.held.taken(), budget.unfunded.taken()), (0, 0));
    }
}
