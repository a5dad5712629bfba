//! Whether calls are worth making: a circuit breaker with half-open probes, back-off and slow start.
//!
//! Pure: time comes from the caller. A circuit is closed while calls succeed, opens when they fail,
//! and after a pause lets one call through at a time to find out (half-open).
//!
//! There is one breaker for all accounts and one for each of those that called last. A failure can be
//! of a request's making, and whoever makes such requests makes them on purpose or again and again. So
//! the failures of an account shut the circuit for that account; for all they do so only together with
//! those of others, and an account counts as one however many calls it makes. A connection that does
//! not come about is nobody's request's making, and counts in full.

use std::time::{Duration, Instant};

use super::accounts::{Accounts, Slot};
use crate::config::snapshot::CircuitRules;

/// How long a provider that is busy and does not say for how long is left to others; doubled while
/// it stays busy.
const COOLING: Duration = Duration::from_secs(1);
const COOLING_MAX: Duration = Duration::from_secs(30);
/// A provider that asks for more time than this is asked again all the same: some name the end of a
/// billing period.
const BUSY_MAX: Duration = Duration::from_secs(60);
/// What a call's share begins with after a recovery.
const SLOW_START_SHARE_MIN: f64 = 0.1;
/// A call that finds out keeps others waiting for so long: nobody shuts a circuit with a slow one.
const PROBE_MAX: Duration = Duration::from_secs(10);
/// The estimated tokens from which a prompt is long. Providers have limits of their own for long prompts,
/// and none begins below 128,000 tokens (Anthropic 200,000, OpenAI 272,000, Google 200,000); estimates are
/// off by up to two.
const LONG_TOKENS: u64 = 64_000;

/// The account that makes a call, and the size of the prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The number of the account.
    pub account: u64,
    /// Estimated tokens of the prompt.
    pub tokens: u64,
}

/// What came of a call, as far as the next one is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was served; or refused for the customer's own fault, which says that the upstream works.
    Good,
    /// An answer has begun: enough to get calls again, not to forget failures. It may yet break off.
    Begun,
    /// The upstream is busy, for as long as it says.
    Busy(Option<Duration>),
    /// The call failed although there was a connection.
    Bad,
    /// No connection came about, so the request has no part in it.
    Down,
}

/// Whether a call is worth making now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CircuitStanding {
    /// It is; `share` is above 0 and at most 1, and below 1 in a slow start.
    Ready {
        /// What the weight is multiplied by.
        share: f64,
    },
    /// One call may find out whether it is again.
    ProbeDue,
    /// It was busy a moment ago, and has not said for how long: others first.
    Cooling,
    /// It is not for this long, because the upstream said so.
    Busy(Duration),
    /// It is not for this long, because calls failed.
    Open(Duration),
    /// One call is finding out.
    Probing,
}

impl CircuitStanding {
    /// The further from ready, the greater.
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

    /// The one further from ready.
    pub(super) fn or_worse(self, other: Self) -> Self {
        if other.rank() > self.rank() { other } else { self }
    }
}

/// What a report changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The circuit has opened for this long.
    Opened(Duration),
    /// It has opened for this long for the account whose call failed.
    OpenedForOne(Duration),
    /// It has closed again.
    Closed,
}

/// Which of the breakers a call finds out for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    shared: bool,
    own: bool,
}

impl Probe {
    /// Whether the call finds anything out.
    #[must_use]
    pub fn is_any(self) -> bool {
        self.shared || self.own
    }
}

/// The breakers of one thing that calls go to.
#[derive(Debug, Default)]
pub struct Circuit {
    shared: Breaker,
    accounts: Accounts,
    cooling_until: Option<Instant>,
    /// Estimated tokens from which prompts are concerned by that.
    cooling_from: u64,
    /// How often it was busy in a row.
    busy_in_row: u32,
    /// Connections in a row that did not come about.
    down_in_row: u32,
    /// Set while the breaker for all is open because connections did not come about.
    is_down: bool,
}

/// One circuit breaker, with what it has counted.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    state: CircuitState,
    /// How often it has opened since the last success.
    openings: u32,
    busy_until: Option<Instant>,
    /// What keeps long prompts away for a while, and no others.
    long_busy: Option<LongBusy>,
}

/// A limit that long prompts have met: shorter ones may pass.
#[derive(Clone, Copy, Debug)]
struct LongBusy {
    until: Instant,
    /// Estimated tokens from which prompts are concerned.
    tokens_min: u64,
}

#[derive(Debug, Default)]
enum CircuitState {
    #[default]
    Closed,
    /// Closed again since this time: its share grows.
    Recovered(Instant),
    Open {
        until: Instant,
    },
    /// A call is finding out since this time.
    Probing(Instant),
}

impl Circuit {
    /// Whether a call of `caller` is worth making at `now`.
    #[must_use]
    pub fn standing(&self, caller: Caller, now: Instant, rules: &CircuitRules) -> CircuitStanding {
        let shared = self.shared_standing(caller.tokens, now, rules);
        match self.accounts.find(caller.account) {
            Some(slot) => shared.or_worse(slot.breaker.standing(caller.tokens, now, rules)),
            None => shared,
        }
    }

    /// The part of the standing that holds for calls of other kinds too: the target is shut for all. Its rate
    /// limits and the failures of single accounts concern its own kind alone. Calls of other kinds are no
    /// probes, since one of them that waits would keep those of this kind from finding out.
    #[must_use]
    pub fn standing_for_other_kinds(&self, now: Instant) -> CircuitStanding {
        match self.shared.state {
            CircuitState::Open { until } if until > now => CircuitStanding::Open(until - now),
            _ => CircuitStanding::Ready { share: 1.0 },
        }
    }

    /// How it is for those who call it: as the breaker for all says, or, where that is in order and all
    /// accounts that called last are shut out by their own, as the best of those says.
    #[must_use]
    pub fn standing_for_all(&self, now: Instant, rules: &CircuitRules) -> CircuitStanding {
        let shared = self.shared_standing(0, now, rules);
        let own = self.accounts.current(now).map(|slot| slot.breaker.standing(0, now, rules));
        match own.min_by_key(CircuitStanding::rank) {
            Some(own) => shared.or_worse(own),
            None => shared,
        }
    }

    /// How many accounts get no calls because their own failed, of those that called last.
    #[must_use]
    pub fn accounts_shut_out(&self, now: Instant, rules: &CircuitRules) -> usize {
        let shut =
            |slot: &&Slot| matches!(slot.breaker.standing(0, now, rules), CircuitStanding::Open(_));
        self.accounts.all().filter(shut).count()
    }

    fn shared_standing(&self, tokens: u64, now: Instant, rules: &CircuitRules) -> CircuitStanding {
        let shared = self.shared.standing(tokens, now, rules);
        let cools = self.cooling_until.is_some_and(|until| until > now);
        if cools && tokens >= self.cooling_from {
            shared.or_worse(CircuitStanding::Cooling)
        } else {
            shared
        }
    }

    /// A call begins. Says what it finds out; one that does must end in [`Self::report`] or
    /// [`Self::abandon`].
    pub fn begin(&mut self, account: u64, now: Instant) -> Probe {
        let own = self.accounts.find_mut(account).is_some_and(|slot| slot.breaker.begin(now));
        Probe { shared: self.shared.begin(now), own }
    }

    /// A call of another kind had a connection to the target, whatever came of it then. That closes a circuit
    /// that is open for want of one.
    pub fn connected(&mut self, now: Instant) -> Option<Change> {
        self.down_in_row = 0;
        if self.is_down { self.close_shared(false, now) } else { None }
    }

    /// The call that was to find out ended without an answer, such as when its customer left.
    pub fn abandon(&mut self, account: u64, probe: Probe, now: Instant) {
        if probe.shared {
            self.shared.abandon(now);
        }
        if let Some(slot) = self.accounts.find_mut(account).filter(|_| probe.own) {
            slot.breaker.abandon(now);
        }
    }

    /// What came of a call of `caller`.
    pub fn report(
        &mut self,
        caller: Caller,
        verdict: Verdict,
        now: Instant,
        rules: &CircuitRules,
    ) -> Option<Change> {
        let Caller { account, tokens } = caller;
        match verdict {
            Verdict::Good => {
                self.down_in_row = 0;
                self.busy_in_row = 0;
                self.cooling_until = None;
                self.shared.forget(tokens);
                let slot = self.accounts.succeeded(account, now);
                slot.breaker.forget(tokens);
                let own = slot.close(now);
                self.close_shared(own, now)
            }
            Verdict::Begun => self.close(account, now),
            Verdict::Busy(asked) => {
                self.be_busy(caller, asked, now);
                // It answers, so it works.
                self.accounts.answered(account, now);
                self.down_in_row = 0;
                self.close(account, now)
            }
            Verdict::Bad => self.fail(account, now, rules),
            Verdict::Down => self.be_down(now, rules),
        }
    }

    fn close(&mut self, account: u64, now: Instant) -> Option<Change> {
        let own = self.accounts.at(account, now).close(now);
        self.close_shared(own, now)
    }

    /// Closes the breaker for all; `own` says whether that of one account was closed.
    fn close_shared(&mut self, own: bool, now: Instant) -> Option<Change> {
        let shared = self.shared.close(now);
        if shared {
            self.accounts.begin_anew();
            self.down_in_row = 0;
            self.is_down = false;
        }
        (own || shared).then_some(Change::Closed)
    }

    /// A `Retry-After` keeps the account away whose call got it. For others it counts when one of them gets
    /// one too, and then for prompts as long as both had: some limits are of a request's size.
    fn be_busy(&mut self, caller: Caller, asked: Option<Duration>, now: Instant) {
        let Caller { account, tokens } = caller;
        // A prompt half as long has a chance, and one that is not long is like any other.
        let tokens_min = if tokens < LONG_TOKENS { 0 } else { tokens / 2 };
        let is_cooling = self.cooling_until.is_some_and(|until| until > now);
        let known = if is_cooling { self.cooling_from } else { tokens_min };
        self.cooling_from = known.min(tokens_min);
        let doubled = COOLING.saturating_mul(1 << self.busy_in_row.min(5));
        self.cooling_until = Some(now + doubled.min(COOLING_MAX));
        self.busy_in_row = self.busy_in_row.saturating_add(1);
        let Some(asked) = asked else { return };
        let until = now + asked.min(BUSY_MAX);
        let others = self.accounts.all().filter(|slot| slot.account != account);
        let others = others.filter_map(|slot| slot.breaker.busy_from(now)).min();
        if let Some(others) = others {
            self.shared.be_busy(until, tokens_min.max(others), now);
        }
        self.accounts.at(account, now).breaker.be_busy(until, tokens_min, now);
    }

    fn fail(&mut self, account: u64, now: Instant, rules: &CircuitRules) -> Option<Change> {
        let is_news = self.accounts.failed(account, now, rules);
        let shared = match self.shared.state {
            CircuitState::Probing(_) if is_news => self.shared.open(now, rules),
            CircuitState::Probing(_) => {
                // It has said so before: that is no reason to keep others from finding out for longer
                // and longer. There was a connection.
                self.is_down = false;
                self.shared.state = CircuitState::Open { until: now + rules.open };
                let slot = self.accounts.at(account, now);
                return slot.breaker.open(now, rules).map(Change::OpenedForOne);
            }
            // Calls that began before it opened change nothing.
            CircuitState::Open { .. } => None,
            CircuitState::Closed | CircuitState::Recovered(_) => {
                let is_over = self.accounts.many_fail(self.down_in_row, now, rules);
                is_over.then(|| self.shared.open(now, rules)).flatten()
            }
        };
        if shared.is_some() {
            self.is_down = false;
        }
        let slot = self.accounts.at(account, now);
        let is_over = match slot.breaker.state {
            CircuitState::Probing(_) => true,
            CircuitState::Open { .. } => false,
            CircuitState::Closed | CircuitState::Recovered(_) => slot.fails(now, rules),
        };
        let own = is_over.then(|| slot.breaker.open(now, rules)).flatten();
        shared.map(Change::Opened).or(own.map(Change::OpenedForOne))
    }

    fn be_down(&mut self, now: Instant, rules: &CircuitRules) -> Option<Change> {
        self.down_in_row = self.down_in_row.saturating_add(1);
        let is_over = match self.shared.state {
            CircuitState::Probing(_) => true,
            // A call of another kind has found out instead of a probe.
            CircuitState::Open { until } => until <= now,
            CircuitState::Closed | CircuitState::Recovered(_) => self.down_in_row >= rules.failures,
        };
        self.is_down = self.is_down || is_over;
        is_over.then(|| self.shared.open(now, rules)).flatten().map(Change::Opened)
    }
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

    /// Leaves calls with prompts of `tokens_min` and more to others until then.
    fn be_busy(&mut self, until: Instant, tokens_min: u64, now: Instant) {
        if tokens_min == 0 {
            self.busy_until = Some(until);
            return;
        }
        let known = self.long_busy.filter(|busy| busy.until > now);
        let tokens_min = known.map_or(tokens_min, |busy| busy.tokens_min.min(tokens_min));
        self.long_busy = Some(LongBusy { until, tokens_min });
    }

    /// Estimated tokens from which prompts have to wait; `None` where none has to.
    fn busy_from(&self, now: Instant) -> Option<u64> {
        let of_all = self.busy_until.filter(|until| *until > now).map(|_| 0);
        let of_long = self.long_busy.filter(|busy| busy.until > now).map(|busy| busy.tokens_min);
        of_all.or(of_long)
    }

    /// Whether it does more than let calls through.
    pub(super) fn is_at_rest(&self, now: Instant) -> bool {
        matches!(self.state, CircuitState::Closed)
            && self.busy_until.is_none_or(|until| until <= now)
    }

    fn begin(&mut self, now: Instant) -> bool {
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

    fn abandon(&mut self, now: Instant) {
        if matches!(self.state, CircuitState::Probing(_)) {
            self.state = CircuitState::Open { until: now };
        }
    }

    fn open(&mut self, now: Instant, rules: &CircuitRules) -> Option<Duration> {
        let doubled = rules.open.saturating_mul(1 << self.openings.min(16));
        let time = doubled.min(rules.open_max);
        self.openings = self.openings.saturating_add(1);
        self.state = CircuitState::Open { until: now + time };
        Some(time)
    }

    /// Says whether it was anything else than closed.
    pub(super) fn close(&mut self, now: Instant) -> bool {
        let was_open = matches!(self.state, CircuitState::Open { .. } | CircuitState::Probing(_));
        if was_open {
            self.state = CircuitState::Recovered(now);
        }
        was_open
    }

    /// A call with a prompt of `tokens` has succeeded: what was before counts no more.
    fn forget(&mut self, tokens: u64) {
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

#[cfg(test)]
mod tests;
