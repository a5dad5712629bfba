//! Circuit breaker with half-open probes, back-off and slow start.
//!
//! Pure: time comes from the caller. A circuit is closed while calls succeed, opens when they fail, and
//! after a pause lets one call through at a time as a probe (half-open).
//!
//! There is one breaker for all accounts and one for each recent caller. A failure can be caused by the
//! request itself, deliberately or repeatedly. So an account's failures open its own breaker; they open
//! the shared one only together with those of other accounts, and each account has one vote however many
//! calls it makes. A failed connection is never caused by a request, and counts in full.

use std::time::{Duration, Instant};

use super::accounts::{RecentCallers, Slot};
use super::breaker::{Breaker, CircuitStanding, CircuitState};
use tollgate_config::snapshot::CircuitRules;

/// First and longest pause after a busy answer without a `Retry-After`; doubled while the provider stays
/// busy.
const COOLING: Duration = Duration::from_secs(1);
const COOLING_MAX: Duration = Duration::from_secs(30);
/// Longest `Retry-After` that is honoured: some providers name the end of a billing period.
const BUSY_MAX: Duration = Duration::from_secs(60);
/// Estimated tokens from which a prompt counts as long. Providers have separate limits for long prompts,
/// and none begins below 128,000 tokens (Anthropic 200,000, OpenAI 272,000, Google 200,000); estimates
/// are off by up to a factor of two.
const LONG_TOKENS: u64 = 64_000;

/// Account that makes a call, and the size of its prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallOrigin {
    /// Number of the account.
    pub account: u64,
    /// Estimated tokens of the prompt.
    pub tokens: u64,
}

/// Evidence of a call's outcome for the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Served, or refused for the customer's fault: the upstream works.
    Good,
    /// The answer has begun: closes the circuit, but keeps the count of failures, since it may yet break
    /// off.
    Begun,
    /// The upstream is busy, with its `Retry-After`.
    Busy(Option<Duration>),
    /// Failed over an established connection.
    Bad,
    /// No connection was opened, so the request cannot be the cause.
    Down,
}

/// Transition caused by a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CircuitTransition {
    /// The circuit opened for all, for this long.
    Opened(Duration),
    /// Opened for the account whose call failed, for this long.
    OpenedForOne(Duration),
    /// Closed again after a success.
    Closed,
}

/// Breakers for which a call is the half-open probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HalfOpenProbe {
    shared: bool,
    own: bool,
}

impl HalfOpenProbe {
    /// True if the call is a probe of any breaker.
    #[must_use]
    pub fn is_any(self) -> bool {
        self.shared || self.own
    }
}

/// Shared and per-account breakers of one endpoint.
#[derive(Debug, Default)]
pub struct Circuit {
    shared: Breaker,
    accounts: RecentCallers,
    cooling_until: Option<Instant>,
    /// Estimated tokens from which prompts are affected.
    cooling_from: u64,
    /// Number of consecutive busy answers.
    busy_in_row: u32,
    /// Number of consecutive failed connections.
    down_in_row: u32,
    /// True while the shared breaker is open because of failed connections.
    is_down: bool,
}

impl Circuit {
    /// Availability for a call of `caller` at `now`.
    #[must_use]
    pub fn standing(
        &self,
        caller: CallOrigin,
        now: Instant,
        rules: &CircuitRules,
    ) -> CircuitStanding {
        let shared = self.shared_standing(caller.tokens, now, rules);
        match self.accounts.find(caller.account) {
            Some(slot) => shared.or_worse(slot.breaker.standing(caller.tokens, now, rules)),
            None => shared,
        }
    }

    /// Availability for calls of other kinds: only a shared opening affects them, not rate limits or
    /// single accounts' failures. They are no probes, since a waiting one would keep calls of this kind
    /// from probing.
    #[must_use]
    pub fn standing_for_other_kinds(&self, now: Instant) -> CircuitStanding {
        match self.shared.state {
            CircuitState::Open { until } if until > now => CircuitStanding::Open(until - now),
            _ => CircuitStanding::Ready { share: 1.0 },
        }
    }

    /// Availability for the average caller: that of the shared breaker, or the best of the recent
    /// accounts' own breakers if that is worse.
    #[must_use]
    pub fn standing_for_all(&self, now: Instant, rules: &CircuitRules) -> CircuitStanding {
        let shared = self.shared_standing(0, now, rules);
        let own = self.accounts.current(now).map(|slot| slot.breaker.standing(0, now, rules));
        match own.min_by_key(CircuitStanding::rank) {
            Some(own) => shared.or_worse(own),
            None => shared,
        }
    }

    /// Number of recent callers whose own breaker is open.
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

    /// Begin a call. If the returned probe is any, the call must end in [`Self::report`] or
    /// [`Self::abandon`].
    pub fn begin(&mut self, account: u64, now: Instant) -> HalfOpenProbe {
        let own = self.accounts.find_mut(account).is_some_and(|slot| slot.breaker.begin(now));
        HalfOpenProbe { shared: self.shared.begin(now), own }
    }

    /// Record that a call of another kind connected. Closes a circuit that failed connections have
    /// opened.
    pub fn connected(&mut self, now: Instant) -> Option<CircuitTransition> {
        self.down_in_row = 0;
        if self.is_down { self.close_shared(false, now) } else { None }
    }

    /// End a probe without a result, such as when its client disconnects.
    pub fn abandon(&mut self, account: u64, probe: HalfOpenProbe, now: Instant) {
        if probe.shared {
            self.shared.abandon(now);
        }
        if let Some(slot) = self.accounts.find_mut(account).filter(|_| probe.own) {
            slot.breaker.abandon(now);
        }
    }

    /// Record the verdict on a call of `caller`.
    pub fn report(
        &mut self,
        caller: CallOrigin,
        verdict: Verdict,
        now: Instant,
        rules: &CircuitRules,
    ) -> Option<CircuitTransition> {
        let CallOrigin { account, tokens } = caller;
        match verdict {
            Verdict::Good => {
                self.down_in_row = 0;
                self.busy_in_row = 0;
                self.cooling_until = None;
                // Only limits that a prompt of this length has passed are over.
                self.shared.forget(tokens);
                let slot = self.accounts.succeeded(account, now);
                slot.breaker.forget(tokens);
                let own = slot.close(now);
                self.close_shared(own, now)
            }
            Verdict::Begun => self.close(account, now),
            Verdict::Busy(retry_after) => {
                self.be_busy(caller, retry_after, now);
                // A busy answer proves that the upstream is up.
                self.accounts.answered(account, now);
                self.down_in_row = 0;
                self.close(account, now)
            }
            Verdict::Bad => self.fail(account, now, rules),
            Verdict::Down => self.be_down(now, rules),
        }
    }

    fn close(&mut self, account: u64, now: Instant) -> Option<CircuitTransition> {
        let own = self.accounts.at(account, now).close(now);
        self.close_shared(own, now)
    }

    /// Close the shared breaker; `own` is true if an account's breaker was closed too.
    fn close_shared(&mut self, own: bool, now: Instant) -> Option<CircuitTransition> {
        let shared = self.shared.close(now);
        if shared {
            self.accounts.begin_anew();
            self.down_in_row = 0;
            self.is_down = false;
        }
        (own || shared).then_some(CircuitTransition::Closed)
    }

    /// Apply a busy answer. A `Retry-After` holds for the account that got it, and for all once a second
    /// account gets one, for prompts as long as both had: some limits depend on a request's size.
    fn be_busy(&mut self, caller: CallOrigin, retry_after: Option<Duration>, now: Instant) {
        let CallOrigin { account, tokens } = caller;
        // Prompts half as long may pass; below the threshold, length is irrelevant.
        let tokens_min = if tokens < LONG_TOKENS { 0 } else { tokens / 2 };
        let is_cooling = self.cooling_until.is_some_and(|until| until > now);
        let before = if is_cooling { self.cooling_from } else { tokens_min };
        self.cooling_from = before.min(tokens_min);
        let doubled = COOLING.saturating_mul(1 << self.busy_in_row.min(5));
        self.cooling_until = Some(now + doubled.min(COOLING_MAX));
        self.busy_in_row = self.busy_in_row.saturating_add(1);
        let Some(retry_after) = retry_after else { return };
        let until = now + retry_after.min(BUSY_MAX);
        let others = self.accounts.all().filter(|slot| slot.account != account);
        let others = others.filter_map(|slot| slot.breaker.busy_from(now)).min();
        if let Some(others) = others {
            self.shared.be_busy(until, tokens_min.max(others), now);
        }
        self.accounts.at(account, now).breaker.be_busy(until, tokens_min, now);
    }

    fn fail(
        &mut self,
        account: u64,
        now: Instant,
        rules: &CircuitRules,
    ) -> Option<CircuitTransition> {
        let is_news = self.accounts.failed(account, now, rules);
        let shared = match self.shared.state {
            CircuitState::Probing(_) if is_news => self.shared.open(now, rules),
            CircuitState::Probing(_) => {
                // A repeated failure of the same account is no reason for a longer shared back-off.
                // There was a connection.
                self.is_down = false;
                self.shared.state = CircuitState::Open { until: now + rules.open };
                let slot = self.accounts.at(account, now);
                return slot.breaker.open(now, rules).map(CircuitTransition::OpenedForOne);
            }
            // Late results of calls that began before the opening do not count.
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
        shared.map(CircuitTransition::Opened).or(own.map(CircuitTransition::OpenedForOne))
    }

    fn be_down(&mut self, now: Instant, rules: &CircuitRules) -> Option<CircuitTransition> {
        self.down_in_row = self.down_in_row.saturating_add(1);
        let is_over = match self.shared.state {
            CircuitState::Probing(_) => true,
            // A call of another kind acts as the probe.
            CircuitState::Open { until } => until <= now,
            CircuitState::Closed | CircuitState::Recovered(_) => self.down_in_row >= rules.failures,
        };
        self.is_down = self.is_down || is_over;
        is_over.then(|| self.shared.open(now, rules)).flatten().map(CircuitTransition::Opened)
    }
}

#[cfg(test)]
mod tests;
