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

use governor::clock::{Clock as _, Reference as _};
use governor::middleware::StateInformationMiddleware;
use governor::nanos::Nanos;
use governor::state::{NotKeyed, StateStore};
use governor::{Quota, RateLimiter};

use super::{Gauge, Wait};

/// Millionths of a unit in a unit.
const MICROS: i128 = super::share::MICROS as i128;
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
pub(super) struct TokenBucket {
    limit: NonZeroU32,
    /// How long a unit takes to come back; rounded up, so that no more come than the limit says.
    interval_ns: u64,
    full_at: FullAt,
    made_at: Nanos,
    limiter: RateLimiter<NotKeyed, FullAt, Clock, StateInformationMiddleware>,
}

impl TokenBucket {
    /// A bucket that is full: `limit` units can be taken at once.
    pub(super) fn new(limit: NonZeroU32, clock: &Clock) -> Self {
        let interval_ns = MINUTE_NS.div_ceil(u64::from(limit.get()));
        let full_at = FullAt::default();
        let quota = Quota::with_period(Duration::from_nanos(interval_ns))
            .unwrap_or_else(|| Quota::per_minute(limit))
            .allow_burst(limit);
        let made_at = clock.now();
        let limiter = RateLimiter::new(quota, full_at.clone(), clock.clone());
        Self { limit, interval_ns, full_at, made_at, limiter }
    }

    /// A bucket in which so much is left, in millionths of a unit: at most its size. Below zero, more
    /// was used than there was.
    pub(super) fn with_left(limit: NonZeroU32, clock: &Clock, left_micros: i128) -> Self {
        let bucket = Self::new(limit, clock);
        let used_micros = i128::from(limit.get()) * MICROS - left_micros;
        let used_ns = u128::try_from(used_micros).unwrap_or(0) * u128::from(bucket.interval_ns);
        let used_ns = used_ns.div_ceil(MICROS.unsigned_abs());
        let used_ns = u64::try_from(used_ns).unwrap_or(u64::MAX).min(DEBT_MAX_NS);
        bucket.full_at.0.store(used_ns, Ordering::Release);
        bucket
    }

    /// What is left in it, in millionths of a unit, rounded down.
    pub(super) fn left_micros(&self, now: Nanos) -> i128 {
        let used_micros = u128::from(self.used_ns(now)) * MICROS.unsigned_abs();
        let used_micros = used_micros.div_ceil(u128::from(self.interval_ns));
        i128::from(self.limit.get()) * MICROS - i128::try_from(used_micros).unwrap_or(i128::MAX)
    }

    /// A bucket of another size, of which as much is used as of this one.
    pub(super) fn resized(&self, limit: NonZeroU32) -> Self {
        let clock = self.limiter.clock();
        let resized = Self::new(limit, clock);
        let used = self.used_ns(clock.now()) / self.interval_ns;
        resized.charge(used, resized.made_at);
        resized
    }

    pub(super) fn limit(&self) -> NonZeroU32 {
        self.limit
    }

    /// Takes `units` and says how many were left behind them, or when there will be enough. Nobody
    /// else reads the same: what others take at the same moment counts before or after.
    pub(super) fn take(&self, units: u64) -> Result<Option<u32>, Wait> {
        // Governor multiplies before it compares: what is larger than the limit must not get there.
        let fits = u32::try_from(units).ok().filter(|units| *units <= self.limit.get());
        let Some(units) = fits else { return Err(Wait::Never) };
        let Some(units) = NonZeroU32::new(units) else { return Ok(None) };
        match self.limiter.check_n(units) {
            Ok(Ok(after)) => Ok(Some(after.remaining_burst_capacity())),
            Ok(Err(until)) => Err(Wait::For(until.wait_time_from(self.limiter.clock().now()))),
            Err(_) => Err(Wait::Never),
        }
    }

    /// Takes `units` whether they are there or not.
    pub(super) fn charge(&self, units: u64, now: Nanos) {
        let weight = units.saturating_mul(self.interval_ns);
        let now = self.since_made_ns(now);
        self.change(|full_at| {
            full_at.max(now).saturating_add(weight).min(now.saturating_add(DEBT_MAX_NS))
        });
    }

    /// Gives `units` back that were taken and not used.
    pub(super) fn give_back(&self, units: u64) {
        let weight = units.saturating_mul(self.interval_ns);
        self.change(|full_at| full_at.saturating_sub(weight));
    }

    pub(super) fn gauge(&self, now: Nanos) -> Gauge {
        let used_ns = self.used_ns(now);
        let used = used_ns.div_ceil(self.interval_ns);
        let left = u64::from(self.limit.get()).saturating_sub(used);
        Gauge {
            limit: self.limit.get(),
            remaining: u32::try_from(left).unwrap_or(u32::MAX),
            reset: Duration::from_nanos(used_ns),
        }
    }

    /// Whether it is full, as a new one is.
    pub(super) fn is_full(&self, now: Nanos) -> bool {
        self.used_ns(now) == 0
    }

    /// How long it takes to be full.
    fn used_ns(&self, now: Nanos) -> u64 {
        self.full_at.0.load(Ordering::Acquire).saturating_sub(self.since_made_ns(now))
    }

    fn change(&self, change: impl Fn(u64) -> u64) {
        let changed = |full_at: u64| Some(change(full_at));
        // The closure always gives a value, so this does not fail.
        self.full_at.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed).ok();
    }

    fn since_made_ns(&self, now: Nanos) -> u64 {
        now.duration_since(self.made_at).as_u64()
    }
}

impl fmt::Debug for TokenBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.gauge(self.limiter.clock().now()))
    }
}
