//! One limit a minute, by the generic cell rate algorithm (GCRA, ITU-T I.371), with charges and
//! returns after the decision.
//!
//! The state is one moment: when the bucket will be full again. Taking `n` units moves that moment `n`
//! intervals forward, and giving them back moves it the other way; a moment in the past means a full
//! bucket. Units fit if the moment stays within a minute from now.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{LimitStatus, Wait};

/// Millionths of a unit in a unit.
const MICROS: i128 = super::share::MICROS as i128;
const MINUTE_NS: u64 = 60_000_000_000;
/// The longest time for which tokens that were used without being counted before refuse others. It
/// keeps the arithmetic far from its end, whatever an upstream reports.
const DEBT_MAX_NS: u64 = 24 * 60 * MINUTE_NS;

/// A clock that tests can replace.
#[derive(Clone)]
pub(super) struct Clock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Clock {
    pub(super) fn new(now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Nanoseconds since the clock's zero; they last for 584 years.
    pub(super) fn now_ns(&self) -> u64 {
        u64::try_from((self.0)().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", (self.0)())
    }
}

/// A bucket of `limit` units, refilled evenly within a minute.
pub(super) struct TokenBucket {
    limit: NonZeroU32,
    /// The refill time of one unit; rounded up, so that no more come than the limit allows.
    interval_ns: u64,
    /// The moment the bucket is full again, in nanoseconds since `made_at_ns`.
    full_at_ns: AtomicU64,
    made_at_ns: u64,
    clock: Clock,
}

impl TokenBucket {
    /// A full bucket: `limit` units can be taken at once.
    pub(super) fn new(limit: NonZeroU32, clock: &Clock) -> Self {
        let interval_ns = MINUTE_NS.div_ceil(u64::from(limit.get()));
        let (full_at_ns, made_at_ns) = (AtomicU64::new(0), clock.now_ns());
        Self { limit, interval_ns, full_at_ns, made_at_ns, clock: clock.clone() }
    }

    /// A bucket with this many millionths of a unit remaining: at most its size; negative in debt.
    pub(super) fn with_remaining(limit: NonZeroU32, clock: &Clock, remaining_micros: i128) -> Self {
        let bucket = Self::new(limit, clock);
        let used_micros = i128::from(limit.get()) * MICROS - remaining_micros;
        let used_ns = u128::try_from(used_micros).unwrap_or(0) * u128::from(bucket.interval_ns);
        let used_ns = used_ns.div_ceil(MICROS.unsigned_abs());
        let used_ns = u64::try_from(used_ns).unwrap_or(u64::MAX).min(DEBT_MAX_NS);
        bucket.full_at_ns.store(used_ns, Ordering::Release);
        bucket
    }

    /// The remaining units, in millionths, rounded down; below zero in debt.
    pub(super) fn remaining_micros(&self, now_ns: u64) -> i128 {
        let used_micros = u128::from(self.used_ns(now_ns)) * MICROS.unsigned_abs();
        let used_micros = used_micros.div_ceil(u128::from(self.interval_ns));
        i128::from(self.limit.get()) * MICROS - i128::try_from(used_micros).unwrap_or(i128::MAX)
    }

    /// A bucket of another size with as many units used as in this one.
    pub(super) fn resized(&self, limit: NonZeroU32) -> Self {
        let resized = Self::new(limit, &self.clock);
        let used = self.used_ns(self.clock.now_ns()) / self.interval_ns;
        resized.charge(used, resized.made_at_ns);
        resized
    }

    pub(super) fn limit(&self) -> NonZeroU32 {
        self.limit
    }

    /// Takes `units` and returns the units remaining after them (`None` for zero units), or the wait
    /// until they fit. No two callers read the same remainder: concurrent takes count before or after.
    pub(super) fn take(&self, units: u64) -> Result<Option<u32>, Wait> {
        if units > u64::from(self.limit.get()) {
            return Err(Wait::Never);
        }
        if units == 0 {
            return Ok(None);
        }
        let now_ns = self.since_made_ns(self.clock.now_ns());
        // Both are about a minute at most, since no more than the limit is taken.
        let (weight_ns, capacity_ns) = (units * self.interval_ns, self.capacity_ns());
        let taken = |full_at_ns: u64| {
            let next = full_at_ns.max(now_ns).saturating_add(weight_ns);
            (next <= now_ns.saturating_add(capacity_ns)).then_some(next)
        };
        let (order, before) = (Ordering::AcqRel, Ordering::Acquire);
        match self.full_at_ns.fetch_update(order, before, taken) {
            Ok(before_ns) => {
                let used_ns = before_ns.saturating_sub(now_ns).saturating_add(weight_ns);
                let remaining = capacity_ns.saturating_sub(used_ns) / self.interval_ns;
                Ok(Some(u32::try_from(remaining).unwrap_or(u32::MAX)))
            }
            Err(full_at_ns) => {
                let fits_at_ns = full_at_ns.saturating_add(weight_ns).saturating_sub(capacity_ns);
                // By a second reading of the clock, as the wait starts when the caller learns of it.
                let later_ns = self.since_made_ns(self.clock.now_ns());
                Err(Wait::For(Duration::from_nanos(fits_at_ns.saturating_sub(later_ns))))
            }
        }
    }

    /// Takes `units` even if they do not fit.
    pub(super) fn charge(&self, units: u64, now_ns: u64) {
        let weight_ns = units.saturating_mul(self.interval_ns);
        let now_ns = self.since_made_ns(now_ns);
        self.change(|full_at_ns| {
            full_at_ns.max(now_ns).saturating_add(weight_ns).min(now_ns.saturating_add(DEBT_MAX_NS))
        });
    }

    /// Returns `units` that were taken and not used.
    pub(super) fn give_back(&self, units: u64) {
        let weight_ns = units.saturating_mul(self.interval_ns);
        self.change(|full_at_ns| full_at_ns.saturating_sub(weight_ns));
    }

    pub(super) fn gauge(&self, now_ns: u64) -> LimitStatus {
        let used_ns = self.used_ns(now_ns);
        let used = used_ns.div_ceil(self.interval_ns);
        let remaining = u64::from(self.limit.get()).saturating_sub(used);
        LimitStatus {
            limit: self.limit.get(),
            remaining: u32::try_from(remaining).unwrap_or(u32::MAX),
            reset: Duration::from_nanos(used_ns),
        }
    }

    /// True if nothing is used, as in a new bucket.
    pub(super) fn is_full(&self, now_ns: u64) -> bool {
        self.used_ns(now_ns) == 0
    }

    /// The time from empty to full.
    fn capacity_ns(&self) -> u64 {
        self.interval_ns * u64::from(self.limit.get())
    }

    /// The time until it is full.
    fn used_ns(&self, now_ns: u64) -> u64 {
        self.full_at_ns.load(Ordering::Acquire).saturating_sub(self.since_made_ns(now_ns))
    }

    fn change(&self, change: impl Fn(u64) -> u64) {
        let changed = |full_at_ns: u64| Some(change(full_at_ns));
        // The closure always gives a value, so this does not fail.
        self.full_at_ns.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed).ok();
    }

    fn since_made_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.made_at_ns)
    }
}

impl fmt::Debug for TokenBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.gauge(self.clock.now_ns()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A clock that stands at `now_ns`.
    fn clock() -> (Arc<AtomicU64>, Clock) {
        let now_ns = Arc::new(AtomicU64::new(1_000));
        let of_clock = Arc::clone(&now_ns);
        (now_ns, Clock::new(move || Duration::from_nanos(of_clock.load(Ordering::Relaxed))))
    }

    proptest! {
        /// Against the leaky bucket in whole nanoseconds of refill, which is too simple to be wrong.
        #[test]
        fn it_decides_and_waits_as_a_leaky_bucket(
            limit in 1_u32..5000,
            steps in prop::collection::vec((0_u64..6000, 0_u64..3_000_000_000), 1..60),
        ) {
            let (now_ns, clock) = clock();
            let bucket = TokenBucket::new(NonZeroU32::new(limit).expect("some"), &clock);
            let interval_ns = MINUTE_NS.div_ceil(u64::from(limit));
            let capacity_ns = u64::from(limit) * interval_ns;
            let mut level_ns = 0_u64;
            for (units, pause_ns) in steps {
                let weight_ns = units * interval_ns;
                let expected = if units > u64::from(limit) {
                    Err(Wait::Never)
                } else if units == 0 {
                    Ok(None)
                } else if level_ns + weight_ns > capacity_ns {
                    Err(Wait::For(Duration::from_nanos(level_ns + weight_ns - capacity_ns)))
                } else {
                    level_ns += weight_ns;
                    Ok(Some(u32::try_from((capacity_ns - level_ns) / interval_ns).expect("fits")))
                };
                prop_assert_eq!(bucket.take(units), expected);
                now_ns.fetch_add(pause_ns, Ordering::Relaxed);
                level_ns = level_ns.saturating_sub(pause_ns);
            }
        }

        /// The stated wait is exact: one nanosecond earlier is refused, and at the moment itself is not.
        #[test]
        fn a_refusal_states_the_exact_wait(limit in 1_u32..100_000, part in 1_u32..1000) {
            let (now_ns, clock) = clock();
            let bucket = TokenBucket::new(NonZeroU32::new(limit).expect("some"), &clock);
            let units = u64::from(limit.div_ceil(part));
            bucket.take(u64::from(limit)).expect("full");
            let Err(Wait::For(wait)) = bucket.take(units) else { panic!("it is empty") };
            let wait_ns = u64::try_from(wait.as_nanos()).expect("a minute");
            now_ns.fetch_add(wait_ns - 1, Ordering::Relaxed);
            prop_assert_eq!(bucket.take(units), Err(Wait::For(Duration::from_nanos(1))));
            now_ns.fetch_add(1, Ordering::Relaxed);
            prop_assert!(bucket.take(units).is_ok());
        }

        /// Within any minute no more than the limit beyond the burst is taken.
        #[test]
        fn no_more_than_burst_and_refill_pass(
            limit in 1_u32..2000,
            steps in prop::collection::vec((1_u64..200, 0_u64..500_000_000), 1..200),
        ) {
            let (now_ns, clock) = clock();
            let bucket = TokenBucket::new(NonZeroU32::new(limit).expect("some"), &clock);
            let (mut taken, mut passed_ns) = (0, 0);
            for (units, pause_ns) in steps {
                if bucket.take(units).is_ok() {
                    taken += units;
                }
                let refill = u128::from(passed_ns) * u128::from(limit) / u128::from(MINUTE_NS);
                prop_assert!(u128::from(taken) <= u128::from(limit) + refill);
                now_ns.fetch_add(pause_ns, Ordering::Relaxed);
                passed_ns += pause_ns;
            }
        }
    }

    #[test]
    fn the_largest_limit_does_not_overflow() {
        let (_, clock) = clock();
        let bucket = TokenBucket::new(NonZeroU32::MAX, &clock);
        assert_eq!(bucket.take(u64::from(u32::MAX)), Ok(Some(0)));
        assert_eq!(bucket.take(u64::MAX), Err(Wait::Never));
        bucket.charge(u64::MAX, clock.now_ns());
        let wait = Duration::from_nanos(DEBT_MAX_NS + bucket.interval_ns - bucket.capacity_ns());
        assert_eq!(bucket.take(1), Err(Wait::For(wait)));
    }
}
