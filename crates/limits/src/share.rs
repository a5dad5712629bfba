//! A node's share of a fleet-wide limit: its expiry, and the demand that the node reports for it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::{Limit, Subject, Wait};

/// Parts of a unit are counted in millionths.
pub const MICROS: u64 = 1_000_000;
/// The window over which demand decays. Shares follow demand about as fast, and a pause of a second between
/// two requests moves nothing.
const DEMAND_NS: u64 = 10_000_000_000;
/// Demand is reported per minute.
const DEMANDS_PER_MINUTE: u64 = 6;
/// The renewal interval of an unused share: a third of the shortest useful term.
const RENEWED_NS: u64 = 3_000_000_000;
/// The interval between demand reports while no request waits: a little shorter than the interval of syncs,
/// so that none is skipped for a millisecond.
const REPORT_NS: u64 = 450_000_000;
/// The idle time after which a share is returned.
const IDLE_NS: u64 = 10_000_000_000;
/// The time after the first request for a limit during which requests wait for a share: other nodes learn of
/// it within half a second, and return units that they do not need.
const NEW_NS: u64 = 1_000_000_000;
/// The largest request of so long is what a share must have room for.
const LARGEST_NS: u64 = 30_000_000_000;

/// The progress of a request that waits for a larger share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShareWait {
    /// It has just come: if there may be more, it waits.
    First,
    /// It has waited, and may wait again.
    Again,
    /// It has waited for long enough.
    Expired,
}

/// A node's report and request about one limit, in a sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareRequest {
    /// The owner of the limit.
    pub subject: Subject,
    /// The kind of limit.
    pub kind: Limit,
    /// The limit, by this node's configuration.
    pub limit: u32,
    /// The node's share, already reduced to the last target.
    pub share: u32,
    /// Unused units in the returned share, in millionths.
    pub returned_micros: u64,
    /// Recent demand: units a minute, or requests in flight.
    pub demand: u64,
    /// The size of the largest recent request: a smaller share is useless.
    pub need: u32,
    /// The part that the node cannot return: requests in flight.
    pub floor: u32,
    /// True for an unused limit: the node gives up its share and its row is deleted.
    pub is_over: bool,
}

/// The response to a [`ShareRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareGrant {
    /// The node's share from now on.
    pub share: u32,
    /// Units that come with a larger share, in millionths. The rest of the growth comes empty.
    pub brought_micros: u64,
    /// The share that the node should have. The node applies a smaller one at once, and reports it in the
    /// next sync.
    pub target: u32,
    /// The capacity that no node has claimed.
    pub unclaimed: u32,
}

/// State of one limit's share, without its size, which is stored where it is enforced.
#[derive(Debug)]
pub(super) struct Share {
    /// Units requested since the last sync.
    requested: AtomicU64,
    /// The largest single request, or the peak of requests in flight.
    largest: AtomicU64,
    /// True if a request was refused that a larger share would have passed.
    is_short: AtomicBool,
    /// The expiry of the share; 0 without one.
    until_ns: AtomicU64,
    /// The capacity that no node had claimed at the last sync.
    unclaimed: AtomicU32,
    /// The time of the first request.
    since_ns: u64,
    kept: Mutex<SyncState>,
}

/// State that only syncs use.
#[derive(Debug, Default)]
struct SyncState {
    demand_micros: u64,
    need: u64,
    need_at_ns: u64,
    reported_at_ns: u64,
    busy_at_ns: u64,
    returned_micros: u64,
    /// True if other nodes may count a share for this node.
    is_claimed: bool,
    /// True if the node has less than the others count for it.
    is_lowered: bool,
}

/// A node's demand for one limit.
pub(super) struct Demand {
    pub(super) demand: u64,
    pub(super) need: u32,
    pub(super) returned_micros: u64,
    pub(super) is_over: bool,
}

impl Share {
    pub(super) fn new(now_ns: u64) -> Self {
        Self {
            requested: AtomicU64::new(0),
            largest: AtomicU64::new(0),
            is_short: AtomicBool::new(false),
            until_ns: AtomicU64::new(0),
            unclaimed: AtomicU32::new(0),
            since_ns: now_ns,
            kept: Mutex::new(SyncState { busy_at_ns: now_ns, ..SyncState::default() }),
        }
    }

    /// Counts requested units.
    pub(super) fn request(&self, units: u64) {
        self.requested.fetch_add(units.min(u64::from(u32::MAX)), Ordering::Relaxed);
        // Read first: nearly no request is the largest, and a load costs less than an atomic write.
        if self.largest.load(Ordering::Relaxed) < units {
            self.largest.fetch_max(units, Ordering::Relaxed);
        }
    }

    /// Counts units used beyond the request.
    pub(super) fn charge(&self, units: u64) {
        self.requested.fetch_add(units.min(u64::from(u32::MAX)), Ordering::Relaxed);
    }

    /// Counts how many are in flight at one time.
    pub(super) fn peak(&self, concurrency: u32) {
        if self.largest.load(Ordering::Relaxed) < u64::from(concurrency) {
            self.largest.fetch_max(concurrency.into(), Ordering::Relaxed);
        }
    }

    /// Counts a request for which there was no place.
    pub(super) fn request_slot(&self) {
        self.requested.fetch_add(1, Ordering::Relaxed);
    }

    /// True if no share is valid now.
    pub(super) fn has_ended(&self, now_ns: u64) -> bool {
        now_ns >= self.until_ns.load(Ordering::Acquire)
    }

    /// The wait of a request that the whole limit might have passed.
    pub(super) fn refuse(&self, wait: Wait, now_ns: u64, progress: ShareWait) -> Wait {
        let is_new = now_ns.saturating_sub(self.since_ns) < NEW_NS;
        let has_ended = self.has_ended(now_ns);
        let may_come = has_ended || is_new || self.unclaimed.load(Ordering::Relaxed) > 0;
        if may_come {
            self.is_short.store(true, Ordering::Relaxed);
        }
        // Without a share it waits on even when it has waited enough: so the caller learns that there is
        // none, and no time at which it would pass.
        let waits = has_ended || may_come && progress != ShareWait::Expired;
        if waits { Wait::UntilShared } else { wait }
    }

    /// Records a returned part of the share, and the unused units in it.
    pub(super) fn give_up(&self, unused_micros: u64) {
        let mut kept = self.kept.lock();
        kept.returned_micros = kept.returned_micros.saturating_add(unused_micros);
        kept.is_lowered = true;
    }

    /// A sync is over that was sent a term before `until_ns`.
    pub(super) fn renew(&self, until_ns: u64, unclaimed: u32) {
        // First: whoever sees the new end sees this with it.
        self.unclaimed.store(unclaimed, Ordering::Relaxed);
        self.until_ns.store(until_ns, Ordering::Release);
    }

    /// The others know that there is none any more.
    pub(super) fn end(&self) {
        self.until_ns.store(0, Ordering::Release);
        self.kept.lock().is_claimed = false;
    }

    /// True if other nodes may count a share for this node.
    pub(super) fn is_claimed(&self) -> bool {
        self.kept.lock().is_claimed
    }

    /// True if the state can be dropped.
    pub(super) fn is_forgotten(&self, now_ns: u64) -> bool {
        let kept = self.kept.lock();
        !kept.is_claimed && self.is_idle(&kept, now_ns)
    }

    fn is_idle(&self, kept: &SyncState, now_ns: u64) -> bool {
        let has_demand =
            self.requested.load(Ordering::Relaxed) > 0 || self.largest.load(Ordering::Relaxed) > 0;
        !has_demand && now_ns.saturating_sub(kept.busy_at_ns) >= IDLE_NS
    }

    /// Returns the demand to report, if a report is due. `owed_micros` is the debt beyond the share, in
    /// millionths; `is_busy` is true while requests are in flight.
    pub(super) fn demand_now(
        &self,
        now_ns: u64,
        owed_micros: u64,
        is_busy: bool,
        is_place: bool,
    ) -> Option<Demand> {
        let mut kept = self.kept.lock();
        if is_busy || owed_micros > 0 {
            kept.busy_at_ns = now_ns;
        }
        let is_idle = self.is_idle(&kept, now_ns);
        if is_idle && !kept.is_claimed {
            return None;
        }
        let passed_ns = now_ns.saturating_sub(kept.reported_at_ns);
        let has_demand =
            self.requested.load(Ordering::Relaxed) > 0 || self.largest.load(Ordering::Relaxed) > 0;
        let is_due = self.is_short.load(Ordering::Relaxed)
            || kept.is_lowered
            || (has_demand || is_busy || self.has_ended(now_ns)) && passed_ns >= REPORT_NS
            || passed_ns >= RENEWED_NS;
        if !is_due {
            return None;
        }
        // Before the counts are taken: what is refused in between asks for another sync.
        self.is_short.store(false, Ordering::Relaxed);
        let requested = self.requested.swap(0, Ordering::Relaxed);
        let largest = self.largest.swap(0, Ordering::Relaxed);
        if requested > 0 || largest > 0 {
            kept.busy_at_ns = now_ns;
        }
        let demand = kept.demand(requested, largest, passed_ns, is_place);
        if largest >= kept.need || now_ns.saturating_sub(kept.need_at_ns) >= LARGEST_NS {
            (kept.need, kept.need_at_ns) = (largest, now_ns);
        }
        let need = if is_place { 1 } else { u32::try_from(kept.need).unwrap_or(u32::MAX) };
        kept.reported_at_ns = now_ns;
        kept.is_claimed = true;
        kept.is_lowered = false;
        Some(Demand {
            // At least one while it is used: nothing is what a node asks for that leaves.
            demand: if is_idle { 0 } else { demand.saturating_add(owed_micros / MICROS).max(1) },
            need: need.max(1),
            returned_micros: std::mem::take(&mut kept.returned_micros),
            is_over: is_idle,
        })
    }

    /// True if the next sync should not wait for its interval.
    pub(super) fn is_urgent(&self) -> bool {
        self.is_short.load(Ordering::Relaxed) || self.kept.lock().is_lowered
    }
}

impl SyncState {
    /// Adds new demand to the decaying sum, and returns it per minute, or as requests in flight.
    fn demand(&mut self, requested: u64, largest: u64, passed_ns: u64, is_place: bool) -> u64 {
        let passed_ns = passed_ns.min(DEMAND_NS);
        let decayed =
            u128::from(self.demand_micros) * u128::from(passed_ns) / u128::from(DEMAND_NS);
        let remaining =
            self.demand_micros.saturating_sub(u64::try_from(decayed).unwrap_or(u64::MAX));
        if is_place {
            self.demand_micros =
                remaining.max(requested.saturating_add(largest).saturating_mul(MICROS));
            return self.demand_micros.div_ceil(MICROS);
        }
        self.demand_micros = remaining.saturating_add(requested.saturating_mul(MICROS));
        self.demand_micros.saturating_mul(DEMANDS_PER_MINUTE).div_ceil(MICROS)
    }
}
