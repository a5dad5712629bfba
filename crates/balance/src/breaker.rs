//! One circuit breaker: closed, open or half-open, with back-off and slow start.

use std::time::{Duration, Instant};

use tollgate_config::snapshot::CircuitRules;

/// Initial share of a channel in slow start.
const SLOW_START_SHARE_MIN: f64 = 0.1;
/// Time after which a probe no longer blocks others, so that a slow call cannot keep a circuit open.
pub(super) const PROBE_MAX: Duration = Duration::from_secs(10);

/// Availability of a circuit for a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CircuitStanding {
    /// Closed; `share` is above 0, and below 1 only in slow start.
    Ready {
        /// Factor on the weight.
        share: f64,
    },
    /// Half-open: one call may probe it.
    ProbeDue,
    /// Just busy, without a `Retry-After`: others come first.
    Cooling,
    /// Unavailable for this long by the upstream's `Retry-After`.
    Busy(Duration),
    /// Open for this long, because calls failed.
    Open(Duration),
    /// A probe is running.
    Probing,
}

impl CircuitStanding {
    /// Distance from ready, for comparisons.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::Ready { share } if *share >= 1.0 => 0,
            Self::Ready { .. } => 1,
            Self::Cooling => 2,
            Self::ProbeDue => 3,
            Self::Probing => 4,
            Self::Busy(_) => 5,
            Self::Open(_) => 6,
        }
    }

    /// The less available of two.
    pub(super) fn or_worse(self, other: Self) -> Self {
        if other.rank() > self.rank() { other } else { self }
    }
}

/// One circuit breaker with its counters.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    pub(super) state: CircuitState,
    /// Openings since the last success, for the back-off.
    openings: u32,
    busy_until: Option<Instant>,
    /// State of rate limits that concern only long prompts.
    long_busy: Option<LongBusy>,
}

/// A rate limit that long prompts have hit; shorter ones may pass.
#[derive(Clone, Copy, Debug)]
struct LongBusy {
    until: Instant,
    /// Estimated tokens from which prompts are affected.
    tokens_min: u64,
}

/// State of a breaker.
#[derive(Debug, Default)]
pub(super) enum CircuitState {
    #[default]
    Closed,
    /// Closed again since this time, in slow start.
    Recovered(Instant),
    Open {
        until: Instant,
    },
    /// A probe is running since this time.
    Probing(Instant),
}

impl Breaker {
    pub(super) fn standing(
        &self,
        tokens: u64,
        now: Instant,
        rules: &CircuitRules,
    ) -> CircuitStanding {
        match self.state {
            CircuitState::Open { until } if until > now => {
                return CircuitStanding::Open(until - now);
            }
            CircuitState::Probing(since) if !is_over(since, now) => {
                return CircuitStanding::Probing;
            }
            _ => {}
        }
        let of_all = self.busy_until.filter(|until| *until > now);
        let of_long = self.long_busy.filter(|busy| busy.until > now && tokens >= busy.tokens_min);
        if let Some(until) = of_all.max(of_long.map(|busy| busy.until)) {
            return CircuitStanding::Busy(until - now);
        }
        match self.state {
            CircuitState::Open { .. } | CircuitState::Probing(_) => CircuitStanding::ProbeDue,
            CircuitState::Recovered(since) => {
                let age = now.saturating_duration_since(since).as_secs_f64();
                let share = age / rules.slow_start.as_secs_f64().max(f64::EPSILON);
                CircuitStanding::Ready { share: share.clamp(SLOW_START_SHARE_MIN, 1.0) }
            }
            CircuitState::Closed => CircuitStanding::Ready { share: 1.0 },
        }
    }

    /// Block calls with prompts of `tokens_min` and more until `until`.
    pub(super) fn be_busy(&mut self, until: Instant, tokens_min: u64, now: Instant) {
        if tokens_min == 0 {
            self.busy_until = Some(until);
            return;
        }
        let before = self.long_busy.filter(|busy| busy.until > now);
        let tokens_min = before.map_or(tokens_min, |busy| busy.tokens_min.min(tokens_min));
        self.long_busy = Some(LongBusy { until, tokens_min });
    }

    /// Estimated tokens from which prompts are blocked; `None` if none is.
    pub(super) fn busy_from(&self, now: Instant) -> Option<u64> {
        let of_all = self.busy_until.filter(|until| *until > now).map(|_| 0);
        let of_long = self.long_busy.filter(|busy| busy.until > now).map(|busy| busy.tokens_min);
        of_all.or(of_long)
    }

    /// True if closed and not busy.
    pub(super) fn is_at_rest(&self, now: Instant) -> bool {
        matches!(self.state, CircuitState::Closed)
            && self.busy_until.is_none_or(|until| until <= now)
    }

    pub(super) fn begin(&mut self, now: Instant) -> bool {
        let is_due = match self.state {
            CircuitState::Open { until } => until <= now,
            CircuitState::Probing(since) => is_over(since, now),
            CircuitState::Closed | CircuitState::Recovered(_) => false,
        };
        if is_due {
            self.state = CircuitState::Probing(now);
        }
        is_due
    }

    pub(super) fn abandon(&mut self, now: Instant) {
        if matches!(self.state, CircuitState::Probing(_)) {
            // Due again at once, with the same back-off: nothing was learnt.
            self.state = CircuitState::Open { until: now };
        }
    }

    pub(super) fn open(&mut self, now: Instant, rules: &CircuitRules) -> Option<Duration> {
        // 16 doublings are beyond any configured maximum, and the shift cannot overflow.
        let doubled = rules.open.saturating_mul(1 << self.openings.min(16));
        let time = doubled.min(rules.open_max);
        self.openings = self.openings.saturating_add(1);
        self.state = CircuitState::Open { until: now + time };
        Some(time)
    }

    /// Close it. Returns true if it was not closed.
    pub(super) fn close(&mut self, now: Instant) -> bool {
        let was_open = matches!(self.state, CircuitState::Open { .. } | CircuitState::Probing(_));
        if was_open {
            self.state = CircuitState::Recovered(now);
        }
        was_open
    }

    /// Reset the back-off after a success with a prompt of `tokens`.
    pub(super) fn forget(&mut self, tokens: u64) {
        self.openings = 0;
        self.busy_until = None;
        if self.long_busy.is_some_and(|busy| tokens >= busy.tokens_min) {
            self.long_busy = None;
        }
    }
}

fn is_over(probing_since: Instant, now: Instant) -> bool {
    now.saturating_duration_since(probing_since) >= PROBE_MAX
}
