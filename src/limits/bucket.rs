//! One limit a minute: `governor` decides, and this moves what it decides by when a request turns out
//! to have used more or less than it was let through with.
//!
//! All that the algorithm (GCRA) remembers is one moment: when the bucket will be full again. To use
//! `n` units is to move that moment by `n` intervals, and to give them back is to move it the other
//! way; a moment in the past means a full bucket.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use governor::clock::Reference as _;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{NotKeyed, StateStore};
use governor::{Quota, RateLimiter};

use super::{Gauge, Wait};

const MINUTE_NS: u64 = 60_000_000_000;
/// Tokens that were used without being counted before refuse others for at most this long. It keeps
/// the arithmetic far from its end, whatever an upstream reports.
const DEBT_MAX_NS: u64 = 24 * 60 * MINUTE_NS;

/// A clock that can be replaced.
#[derive(Clone)]
pub(super) struct Clock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Clock {
    pub(super) fn new(now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", (self.0)())
    }
}

impl governor::clock::Clock for Clock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        (self.0)().into()
    }
}

/// When the bucket will be full, in nanoseconds since it was made.
#[derive(Clone, Default)]
struct FullAt(Arc<AtomicU64>);

impl StateStore for FullAt {
    type Key = NotKeyed;

    fn measure_and_replace<T, F, E>(&self, _: &NotKeyed, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let mut before = self.0.load(Ordering::Acquire);
        loop {
            let (outcome, after) = decide(Some(before.into()))?;
            let swapped = self.0.compare_exchange_weak(
                before,
                after.as_u64(),
                Ordering::AcqRel,
                Ordering::Acquire,
            );
            match swapped {
                Ok(_) => return Ok(outcome),
                Err(now) => before = now,
            }
        }
    }
}

/// So many units a minute, and as many at once.
pub(super) struct Bucket {
    limit: NonZeroU32,
    /// How long a unit takes to come back; rounded up, so that no more come than the limit says.
    interval_ns: u64,
    full_at: FullAt,
    made_at: Nanos,
    clock: Clock,
    limiter: RateLimiter<NotKeyed, FullAt, Clock, NoOpMiddleware<Nanos>>,
}

impl Bucket {
    /// A full bucket.
    pub(super) fn new(limit: NonZeroU32, clock: &Clock) -> Self {
        let interval_ns = MINUTE_NS.div_ceil(u64::from(limit.get()));
        let full_at = FullAt::default();
        let quota = Quota::with_period(Duration::from_nanos(interval_ns))
            .unwrap_or_else(|| Quota::per_minute(limit))
            .allow_burst(limit);
        let made_at = governor::clock::Clock::now(clock);
        let limiter = RateLimiter::new(quota, full_at.clone(), clock.clone());
        Self { limit, interval_ns, full_at, made_at, clock: clock.clone(), limiter }
    }

    /// A bucket of another size, of which as much is used as of this one.
    pub(super) fn resized(&self, limit: NonZeroU32) -> Self {
        let resized = Self::new(limit, &self.clock);
        let used = self.used_ns() / self.interval_ns;
        resized.charge(used);
        resized
    }

    pub(super) fn limit(&self) -> NonZeroU32 {
        self.limit
    }

    /// Takes `units`, or says when they will be there.
    pub(super) fn take(&self, units: u64) -> Result<(), Wait> {
        // Governor multiplies before it compares: what is larger than the limit must not get there.
        let fits = u32::try_from(units).ok().filter(|units| *units <= self.limit.get());
        let Some(units) = fits else { return Err(Wait::Never) };
        let Some(units) = NonZeroU32::new(units) else { return Ok(()) };
        match self.limiter.check_n(units) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(until)) => Err(Wait::For(until.wait_time_from(self.now()))),
            Err(_) => Err(Wait::Never),
        }
    }

    /// Takes `units` whether they are there or not.
    pub(super) fn charge(&self, units: u64) {
        let weight = units.saturating_mul(self.interval_ns);
        self.change(|full_at, now| {
            full_at.max(now).saturating_add(weight).min(now.saturating_add(DEBT_MAX_NS))
        });
    }

    /// Gives `units` back.
    pub(super) fn give_back(&self, units: u64) {
        let weight = units.saturating_mul(self.interval_ns);
        self.change(|full_at, _| full_at.saturating_sub(weight));
    }

    pub(super) fn gauge(&self) -> Gauge {
        let used_ns = self.used_ns();
        let used = used_ns.div_ceil(self.interval_ns);
        let left = u64::from(self.limit.get()).saturating_sub(used);
        Gauge {
            limit: self.limit.get(),
            remaining: u32::try_from(left).unwrap_or(u32::MAX),
            reset: Duration::from_nanos(used_ns),
        }
    }

    /// Whether it is full, as a new one is.
    pub(super) fn is_full(&self) -> bool {
        self.used_ns() == 0
    }

    /// How long it takes to be full.
    fn used_ns(&self) -> u64 {
        self.full_at.0.load(Ordering::Acquire).saturating_sub(self.since_made_ns())
    }

    fn change(&self, change: impl Fn(u64, u64) -> u64) {
        let now = self.since_made_ns();
        let changed = |full_at: u64| Some(change(full_at, now));
        // The closure always gives a value, so this does not fail.
        self.full_at.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed).ok();
    }

    fn now(&self) -> Nanos {
        governor::clock::Clock::now(&self.clock)
    }

    fn since_made_ns(&self) -> u64 {
        self.now().duration_since(self.made_at).as_u64()
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.gauge())
    }
}
