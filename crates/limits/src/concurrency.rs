//! Requests of one subject at one time; in a fleet, within this node's share of the places.
//!
//! How many there may be and how many there are is one number, so that a share cannot shrink while a
//! request takes the place that is given up.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::in_use::{InUse, InUseGuard};
use super::model_share::concurrency_share;
use super::share::{Share, ShareGrant, ShareRequest, ShareWait};
use super::{Limit, Subject, Wait};

/// A concurrency limit and its requests in flight.
#[derive(Debug)]
pub(super) struct ConcurrencyLimit {
    /// Two counters in one word: the node's allowed requests in the upper half (in a fleet only), the
    /// requests in flight in the lower.
    counts: AtomicU64,
    /// The node's share of the limit; `None` outside a fleet.
    share: Option<Box<Share>>,
    /// The whole limit as the last request saw it; 0 without one.
    limit: AtomicU32,
    /// Requests whose customers have left, and that are no longer in a place.
    orphans: AtomicU32,
}

/// An account's requests in flight to a model, and the percentage of the model's limit that bounds them.
pub(super) struct AccountConcurrency {
    pub(super) of_account: Arc<InUse>,
    pub(super) percent: u32,
}

/// A refusal by a concurrency limit.
pub(super) struct ConcurrencyRefusal {
    pub(super) wait: Wait,
    /// Share of the account, if it applies.
    pub(super) share: Option<u32>,
}

fn joined(allowed: u32, in_flight: u32) -> u64 {
    u64::from(allowed) << 32 | u64::from(in_flight)
}

fn parted(counts: u64) -> (u32, u32) {
    let half = |number: u64| u32::try_from(number & u64::from(u32::MAX)).unwrap_or(u32::MAX);
    (half(counts >> 32), half(counts))
}

impl ConcurrencyLimit {
    /// Nothing is in flight. `now_ns` is there in a fleet.
    pub(super) fn new(now_ns: Option<u64>) -> Self {
        Self {
            counts: AtomicU64::new(0),
            share: now_ns.map(|now_ns| Box::new(Share::new(now_ns))),
            limit: AtomicU32::new(0),
            orphans: AtomicU32::new(0),
        }
    }

    pub(super) fn in_flight(&self) -> u32 {
        parted(self.counts.load(Ordering::Acquire)).1
    }

    /// Counts one more request, or refuses it above the limit. `now_ns` is called in a fleet only.
    pub(super) fn enter(
        &self,
        limit: Option<NonZeroU32>,
        now_ns: impl Fn() -> u64,
        progress: ShareWait,
    ) -> Result<(), Wait> {
        match limit {
            Some(limit) => self.enter_within(limit, limit.get(), now_ns, progress),
            None => {
                self.note_limit(0);
                self.count(None, |_| {}).map_err(|()| Wait::Never)
            }
        }
    }

    /// Notes the whole limit, for the syncs of a fleet and for orphans.
    fn note_limit(&self, whole: u32) {
        if self.limit.load(Ordering::Relaxed) != whole {
            self.limit.store(whole, Ordering::Relaxed);
        }
    }

    /// Counts one more request, unless there are `concurrency` of them, or as many as this node may have of
    /// `limit`.
    fn enter_within(
        &self,
        limit: NonZeroU32,
        concurrency: u32,
        now_ns: impl Fn() -> u64,
        progress: ShareWait,
    ) -> Result<(), Wait> {
        self.note_limit(limit.get());
        let Some(share) = &self.share else {
            return self.count(Some(concurrency), |_| {}).map_err(|()| Wait::UntilOneEnds);
        };
        let now_ns = now_ns();
        let entered = if share.has_ended(now_ns) {
            Err(Wait::UntilShared)
        } else {
            let within_share =
                self.count_within(concurrency, |concurrency| share.peak(concurrency));
            within_share.map_err(|()| Wait::UntilOneEnds)
        };
        entered.map_err(|wait| {
            if progress == ShareWait::First {
                share.request_slot();
            }
            share.refuse(wait, now_ns, progress)
        })
    }

    /// Counts one more request of an account that has no more than its share of the places: in a fleet, of
    /// those that this node has.
    pub(super) fn enter_within_share(
        &self,
        limit: NonZeroU32,
        shared: &AccountConcurrency,
        now_ns: impl Fn() -> u64,
        progress: ShareWait,
    ) -> Result<InUseGuard, ConcurrencyRefusal> {
        let AccountConcurrency { of_account, percent } = shared;
        let (allowed, in_flight) = parted(self.counts.load(Ordering::Acquire));
        let concurrency = match &self.share {
            None => limit.get(),
            Some(_) => allowed.min(limit.get()),
        };
        let share_at = |taken| concurrency_share(concurrency, taken, *percent);
        let share = share_at(in_flight);
        let share_max = usize::try_from(share).unwrap_or(usize::MAX);
        let held = of_account.enter(|in_use| &in_use.requests, share_max);
        // A node asks the others for more places where an account has its share as where all are taken.
        let bound = if held.is_some() { concurrency } else { 0 };
        match (self.enter_within(limit, bound, now_ns, progress), held) {
            (Ok(()), Some(place)) => {
                // Requests of one account that come together have all seen the same free places.
                let share = share_at(self.in_flight().saturating_sub(1));
                if u32::try_from(of_account.requests.taken()).is_ok_and(|own| own <= share) {
                    return Ok(place);
                }
                self.leave();
                Err(ConcurrencyRefusal { wait: Wait::UntilOneEnds, share: Some(share) })
            }
            (entered, held) => {
                let wait = entered.err().unwrap_or(Wait::UntilOneEnds);
                let is_own = held.is_none() && in_flight < concurrency;
                Err(ConcurrencyRefusal { wait, share: is_own.then_some(share) })
            }
        }
    }

    /// Counts a request as over.
    pub(super) fn leave(&self) {
        self.counts.fetch_sub(1, Ordering::AcqRel);
    }

    /// Releases the slot of an abandoned request that continues upstream, unless as many abandoned requests
    /// as the limit continue already. Returns true if it was released.
    ///
    /// So a customer who leaves and comes back has at most twice its limit at work upstream.
    pub(super) fn orphan(&self) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let one_more = |orphans: u32| (orphans < limit).then(|| orphans + 1);
        if self.orphans.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more).is_err() {
            return false;
        }
        self.leave();
        true
    }

    /// Ends a call begun with [`Self::orphan`].
    pub(super) fn orphan_end(&self) {
        self.orphans.fetch_sub(1, Ordering::AcqRel);
    }

    fn count(&self, limit: Option<u32>, counted: impl Fn(u32)) -> Result<(), ()> {
        self.change(|(_, in_flight)| limit.is_none_or(|limit| in_flight < limit), counted)
    }

    fn count_within(&self, limit: u32, counted: impl Fn(u32)) -> Result<(), ()> {
        self.change(|(allowed, in_flight)| in_flight < allowed.min(limit), counted)
    }

    fn change(
        &self,
        is_free: impl Fn((u32, u32)) -> bool,
        counted: impl Fn(u32),
    ) -> Result<(), ()> {
        let enter = |counts| is_free(parted(counts)).then(|| counts + 1);
        let before = self.counts.fetch_update(Ordering::AcqRel, Ordering::Acquire, enter);
        counted(parted(before.map_err(|_| ())?).1.saturating_add(1));
        Ok(())
    }

    /// True if a new counter would behave the same.
    pub(super) fn is_idle(&self, now_ns: u64) -> bool {
        // A new one would know nothing of the orphans, and let as many go on again.
        self.in_flight() == 0
            && self.orphans.load(Ordering::Acquire) == 0
            && self.share.as_ref().is_none_or(|share| share.is_forgotten(now_ns))
    }

    /// Builds the share request for the next sync, if one is due.
    pub(super) fn request(&self, subject: &Subject, now_ns: u64) -> Option<ShareRequest> {
        let share = self.share.as_ref()?;
        let limit = self.limit.load(Ordering::Relaxed);
        let is_limited = limit > 0;
        if !is_limited && !share.is_claimed() {
            return None;
        }
        let demand_now = share.demand_now(now_ns, 0, is_limited && self.in_flight() > 0, true)?;
        if demand_now.is_over || share.has_ended(now_ns) {
            self.allow(0);
        }
        // Requests leave meanwhile, and none comes above what is allowed: this is the most there are.
        let (allowed, in_flight) = parted(self.counts.load(Ordering::Acquire));
        let is_over = demand_now.is_over || !is_limited;
        Some(ShareRequest {
            subject: subject.clone(),
            kind: Limit::Concurrency,
            limit,
            share: if is_over { 0 } else { allowed.max(in_flight) },
            returned_micros: 0,
            demand: demand_now.demand,
            need: 1,
            floor: in_flight,
            is_over,
        })
    }

    /// Applies the grant of a sync, which ends at `until_ns`. True if something was given back.
    pub(super) fn apply(&self, grant: &ShareGrant, until_ns: u64, is_over: bool) -> bool {
        let Some(share) = &self.share else { return false };
        if is_over {
            share.end();
            return false;
        }
        self.allow(grant.share.min(grant.target));
        share.renew(until_ns, grant.unclaimed);
        // What is in flight above the target is told with the next sync, when some have ended.
        let is_less = grant.target < grant.share && self.in_flight() < grant.share;
        if is_less {
            share.give_up(0);
        }
        is_less
    }

    /// True if the next sync should not wait for its interval.
    pub(super) fn is_urgent(&self) -> bool {
        self.share.as_ref().is_some_and(|share| share.is_urgent())
    }

    fn allow(&self, concurrency: u32) {
        let allow = |counts| Some(joined(concurrency, parted(counts).1));
        // The closure always gives a value, so this does not fail.
        self.counts.fetch_update(Ordering::AcqRel, Ordering::Acquire, allow).ok();
    }
}
