//! One limit a minute of one subject: all of it, or in a fleet this node's share of it.
//!
//! A share is a smaller bucket. What is in it stays in it when the share grows, but for what comes
//! along with the growth; when it shrinks, what no longer fits is given up. So nothing is made by
//! moving shares around: what all nodes have together was refilled by all of them together, and that
//! is no faster than one bucket of the whole limit.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::bucket::{Clock, TokenBucket};
use super::share::{MICROS, Share, ShareGrant, ShareRequest, ShareWait};
use super::{Limit, LimitStatus, Subject, Wait};

/// The retry interval of a request without a share: nodes sync shares twice a second.
const RETRY_SHARE: Duration = Duration::from_secs(1);

/// A limit per minute.
pub(super) struct MinuteLimit {
    limit: NonZeroU32,
    clock: Clock,
    /// Of the size of the limit, or of the share; `None` without a share.
    bucket: Option<TokenBucket>,
    /// The debt that was left when the bucket was removed, in millionths of a unit.
    owed_micros: AtomicU64,
    /// The node's share of the limit; `None` outside a fleet.
    share: Option<Box<Share>>,
}

impl MinuteLimit {
    /// A full bucket; in a fleet, an empty share.
    pub(super) fn new(limit: NonZeroU32, clock: &Clock, is_shared: bool) -> Self {
        Self {
            limit,
            clock: clock.clone(),
            bucket: (!is_shared).then(|| TokenBucket::new(limit, clock)),
            owed_micros: AtomicU64::new(0),
            share: is_shared.then(|| Box::new(Share::new(clock.now_ns()))),
        }
    }

    pub(super) fn limit(&self) -> NonZeroU32 {
        self.limit
    }

    /// Changes the limit and keeps the units in use. A larger share is cut to the limit.
    pub(super) fn resize(&mut self, limit: NonZeroU32) {
        self.limit = limit;
        match &self.share {
            None => self.bucket = self.bucket.as_ref().map(|bucket| bucket.resized(limit)),
            Some(_) if self.size() > limit.get() => self.lower(limit.get()),
            Some(_) => {}
        }
    }

    /// Takes `units` and returns the units remaining after them, or the wait until they fit.
    pub(super) fn take(&self, units: u64, progress: ShareWait) -> Result<Option<u32>, Wait> {
        let Some(share) = &self.share else {
            return self.bucket.as_ref().map_or(Err(Wait::Never), |bucket| bucket.take(units));
        };
        // By the whole limit: a share that is too small today can grow.
        if units > u64::from(self.limit.get()) {
            return Err(Wait::Never);
        }
        // Once for a request, however often it tries, or waiting would itself be demand.
        if progress == ShareWait::First {
            share.request(units);
        }
        let now_ns = self.clock.now_ns();
        let wait = match &self.bucket {
            _ if units == 0 => return Ok(None),
            // Before the bucket: other nodes may use by now what is in it.
            _ if share.has_ended(now_ns) => Wait::UntilShared,
            Some(bucket) if units <= u64::from(bucket.limit().get()) => match bucket.take(units) {
                Ok(remaining) => return Ok(remaining),
                Err(wait) => wait,
            },
            _ => Wait::For(RETRY_SHARE),
        };
        Err(share.refuse(wait, now_ns, progress))
    }

    /// Charges `units`, even beyond the limit.
    pub(super) fn charge(&self, units: u64, now_ns: u64) {
        if let Some(share) = self.share.as_ref().filter(|_| units > 0) {
            share.charge(units);
        }
        match &self.bucket {
            Some(bucket) => bucket.charge(units, now_ns),
            None => self.owe(|owed| owed.saturating_add(units.saturating_mul(MICROS))),
        }
    }

    /// Returns unused `units`.
    pub(super) fn give_back(&self, units: u64) {
        match &self.bucket {
            Some(bucket) => bucket.give_back(units),
            None => self.owe(|owed| owed.saturating_sub(units.saturating_mul(MICROS))),
        }
    }

    /// The state of the limit; in a fleet, the remainder of this node's share.
    pub(super) fn gauge(&self, now_ns: u64) -> LimitStatus {
        let limit = self.limit.get();
        let gauge = self.bucket.as_ref().map(|bucket| bucket.gauge(now_ns));
        let gauge = gauge.unwrap_or(LimitStatus { limit, remaining: 0, reset: RETRY_SHARE });
        LimitStatus { limit, ..gauge }
    }

    /// True if a new counter would behave the same.
    pub(super) fn is_idle(&self, now_ns: u64) -> bool {
        match &self.share {
            None => self.bucket.as_ref().is_none_or(|bucket| bucket.is_full(now_ns)),
            Some(share) => self.owed_micros(now_ns) == 0 && share.is_forgotten(now_ns),
        }
    }

    /// Builds the share request for the next sync, if one is due.
    pub(super) fn request(&mut self, subject: &Subject, kind: Limit) -> Option<ShareRequest> {
        let now_ns = self.clock.now_ns();
        let owed_micros = self.owed_micros(now_ns);
        let share = self.share.as_ref()?;
        let demand_now = share.demand_now(now_ns, owed_micros, false, false)?;
        let mut returned_micros = demand_now.returned_micros;
        if share.has_ended(now_ns) {
            // What came back since it ended is not this node's.
            self.set(0, 0);
            returned_micros = 0;
        } else if demand_now.is_over {
            returned_micros = returned_micros.saturating_add(self.set(0, 0));
        }
        Some(ShareRequest {
            subject: subject.clone(),
            kind,
            limit: self.limit.get(),
            share: self.size(),
            returned_micros,
            demand: demand_now.demand,
            need: demand_now.need.min(self.limit.get()),
            floor: 0,
            is_over: demand_now.is_over,
        })
    }

    /// Applies the grant of a sync, which ends at `until_ns`. True if something was given back.
    pub(super) fn apply(&mut self, grant: &ShareGrant, until_ns: u64, is_over: bool) -> bool {
        let Some(share) = &self.share else { return false };
        if is_over {
            share.end();
            return false;
        }
        share.renew(until_ns, grant.unclaimed);
        let size = grant.share.min(self.limit.get());
        if size != self.size() || grant.brought_micros > 0 {
            self.set(size, grant.brought_micros);
        }
        let is_less = grant.target < size;
        if is_less {
            self.lower(grant.target);
        }
        is_less
    }

    /// True if the next sync should not wait for its interval.
    pub(super) fn is_urgent(&self) -> bool {
        self.share.as_ref().is_some_and(|share| share.is_urgent())
    }

    fn size(&self) -> u32 {
        self.bucket.as_ref().map_or(0, |bucket| bucket.limit().get())
    }

    fn lower(&mut self, size: u32) {
        let unused_micros = self.set(size, 0);
        if let Some(share) = &self.share {
            share.give_up(unused_micros);
        }
    }

    /// Resizes the share, adds the units that come with it, and returns those that no longer fit.
    fn set(&mut self, size: u32, brought_micros: u64) -> u64 {
        let now_ns = self.clock.now_ns();
        let remaining = self.remaining_micros(now_ns).saturating_add(i128::from(brought_micros));
        let room = i128::from(size) * i128::from(MICROS);
        let kept = remaining.min(room);
        self.bucket =
            NonZeroU32::new(size).map(|size| TokenBucket::with_remaining(size, &self.clock, kept));
        // A bucket holds its own debt; without one, it must be kept, or giving the share up would pay it.
        let owed = if size == 0 { kept.saturating_neg().max(0) } else { 0 };
        self.owed_micros.store(u64::try_from(owed).unwrap_or(u64::MAX), Ordering::Release);
        u64::try_from(remaining.saturating_sub(kept)).unwrap_or(0)
    }

    /// The units available now, in millionths; negative in debt.
    fn remaining_micros(&self, now_ns: u64) -> i128 {
        match &self.bucket {
            Some(bucket) => bucket.remaining_micros(now_ns),
            None => -i128::from(self.owed_micros.load(Ordering::Acquire)),
        }
    }

    fn owed_micros(&self, now_ns: u64) -> u64 {
        u64::try_from(self.remaining_micros(now_ns).saturating_neg().max(0)).unwrap_or(u64::MAX)
    }

    fn owe(&self, change: impl Fn(u64) -> u64) {
        let changed = |owed| Some(change(owed));
        // The closure always gives a value, so this does not fail.
        self.owed_micros.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed).ok();
    }
}

impl fmt::Debug for MinuteLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.gauge(self.clock.now_ns()))
    }
}
