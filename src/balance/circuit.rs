//! Whether calls are worth making: a circuit breaker with half-open probes, back-off and slow start.
//!
//! Pure: time comes from the caller. A circuit is closed while calls succeed, opens when they fail,
//! and after a pause lets one call through at a time to find out (half-open).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::config::snapshot::CircuitRules;

/// Failures are weighed against successes over this long.
const WINDOW: Duration = Duration::from_secs(30);
/// A share of failures says little of fewer calls than this.
const WINDOW_CALLS_MIN: u32 = 20;
/// The window is kept in this many pieces, so that it slides.
const WINDOW_PIECES: u32 = 6;
/// How long a provider that is busy and does not say for how long is left to others; doubled while
/// it stays busy.
const COOLING: Duration = Duration::from_secs(1);
const COOLING_MAX: Duration = Duration::from_secs(30);
/// A provider that asks for more time than this is asked again all the same: some name the end of a
/// billing period.
const BUSY_MAX: Duration = Duration::from_secs(60);
/// What a call's share begins with after a recovery.
const SLOW_START_SHARE_MIN: f64 = 0.1;

/// What came of a call, as far as the next one is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was served; or refused for the customer's own fault, which says that the upstream works.
    Good,
    /// An answer has begun: enough to get calls again, not to forget failures. It may yet break off.
    Begun,
    /// The upstream is busy, for as long as it says.
    Busy(Option<Duration>),
    /// It failed.
    Bad,
}

/// Whether a call is worth making now.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Standing {
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

/// What a report changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The circuit has opened for this long.
    Opened(Duration),
    /// It has closed again.
    Closed,
}

/// The breaker of one thing that calls go to.
#[derive(Debug, Default)]
pub struct Circuit {
    state: State,
    failures_in_row: u32,
    recent: Recent,
    /// How often it has opened since the last success.
    openings: u32,
    busy_until: Option<Instant>,
    cooling_until: Option<Instant>,
    /// How often it was busy in a row.
    busy_in_row: u32,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Closed,
    /// Closed again since this time: its share grows.
    Recovered(Instant),
    Open {
        until: Instant,
    },
    /// A call is finding out.
    Probing,
}

impl Circuit {
    /// Whether a call is worth making at `now`.
    #[must_use]
    pub fn standing(&self, now: Instant, rules: &CircuitRules) -> Standing {
        let ahead = |until: Option<Instant>| until.filter(|until| *until > now);
        match self.state {
            State::Open { until } if until > now => return Standing::Open(until - now),
            State::Probing => return Standing::Probing,
            _ => {}
        }
        if let Some(until) = ahead(self.busy_until) {
            return Standing::Busy(until - now);
        }
        match self.state {
            State::Open { .. } => Standing::ProbeDue,
            _ if ahead(self.cooling_until).is_some() => Standing::Cooling,
            State::Recovered(since) => {
                let age = now.saturating_duration_since(since).as_secs_f64();
                let share = age / rules.slow_start.as_secs_f64().max(f64::EPSILON);
                Standing::Ready { share: share.clamp(SLOW_START_SHARE_MIN, 1.0) }
            }
            _ => Standing::Ready { share: 1.0 },
        }
    }

    /// A call begins. Says whether it is the one that finds out; that one must end in
    /// [`Self::report`] or [`Self::abandon`].
    pub fn begin(&mut self, now: Instant) -> bool {
        let is_due = matches!(self.state, State::Open { until } if until <= now);
        if is_due {
            self.state = State::Probing;
        }
        is_due
    }

    /// The call that was to find out ended without an answer, such as when its customer left.
    pub fn abandon(&mut self, now: Instant) {
        if matches!(self.state, State::Probing) {
            self.state = State::Open { until: now };
        }
    }

    /// What came of a call.
    pub fn report(
        &mut self,
        verdict: Verdict,
        now: Instant,
        rules: &CircuitRules,
    ) -> Option<Change> {
        match verdict {
            Verdict::Good => self.succeed(now),
            Verdict::Begun => self.close(now),
            Verdict::Busy(asked) => {
                self.be_busy(asked, now);
                // It answers, so it works.
                self.failures_in_row = 0;
                self.close(now)
            }
            Verdict::Bad => self.fail(now, rules),
        }
    }

    fn succeed(&mut self, now: Instant) -> Option<Change> {
        self.recent.add(now, false);
        self.failures_in_row = 0;
        self.busy_in_row = 0;
        (self.busy_until, self.cooling_until) = (None, None);
        let closed = self.close(now);
        self.openings = 0;
        closed
    }

    fn close(&mut self, now: Instant) -> Option<Change> {
        match self.state {
            State::Open { .. } | State::Probing => {
                self.state = State::Recovered(now);
                self.recent = Recent::default();
                self.failures_in_row = 0;
                Some(Change::Closed)
            }
            State::Closed | State::Recovered(_) => None,
        }
    }

    fn be_busy(&mut self, asked: Option<Duration>, now: Instant) {
        match asked {
            Some(asked) => self.busy_until = Some(now + asked.min(BUSY_MAX)),
            None => {
                let doubled = COOLING.saturating_mul(1 << self.busy_in_row.min(5));
                self.cooling_until = Some(now + doubled.min(COOLING_MAX));
                self.busy_in_row = self.busy_in_row.saturating_add(1);
            }
        }
    }

    fn fail(&mut self, now: Instant, rules: &CircuitRules) -> Option<Change> {
        self.recent.add(now, true);
        self.failures_in_row = self.failures_in_row.saturating_add(1);
        let is_over = match self.state {
            State::Probing => true,
            // Calls that began before it opened change nothing.
            State::Open { .. } => false,
            State::Closed | State::Recovered(_) => {
                self.failures_in_row >= rules.failures
                    || self.recent.failure_percent(now) >= Some(rules.failure_percent)
            }
        };
        is_over.then(|| {
            let doubled = rules.open.saturating_mul(1 << self.openings.min(16));
            let time = doubled.min(rules.open_max);
            self.openings = self.openings.saturating_add(1);
            self.state = State::Open { until: now + time };
            Change::Opened(time)
        })
    }
}

/// Calls of the last [`WINDOW`], in pieces: when a piece began, its calls and its failures.
#[derive(Debug, Default)]
struct Recent(VecDeque<(Instant, u32, u32)>);

impl Recent {
    fn add(&mut self, now: Instant, failed: bool) {
        let piece = WINDOW / WINDOW_PIECES;
        let is_over = |(began, ..): &(Instant, u32, u32)| now.duration_since(*began) >= piece;
        if self.0.back().is_none_or(is_over) {
            self.forget(now);
            self.0.push_back((now, 0, 0));
        }
        if let Some((_, calls, failures)) = self.0.back_mut() {
            *calls = calls.saturating_add(1);
            *failures = failures.saturating_add(u32::from(failed));
        }
    }

    fn forget(&mut self, now: Instant) {
        self.0.retain(|(began, ..)| now.duration_since(*began) < WINDOW);
    }

    /// The share of failures; `None` of too few calls.
    fn failure_percent(&mut self, now: Instant) -> Option<u32> {
        self.forget(now);
        let sum = |(calls, failures): (u32, u32), (_, more, failed): &(Instant, u32, u32)| {
            (calls.saturating_add(*more), failures.saturating_add(*failed))
        };
        let (calls, failures) = self.0.iter().fold((0, 0), sum);
        (calls >= WINDOW_CALLS_MIN).then(|| {
            let percent = u64::from(failures) * 100 / u64::from(calls.max(1));
            u32::try_from(percent).unwrap_or(100)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: CircuitRules = CircuitRules {
        failures: 3,
        failure_percent: 50,
        open: Duration::from_secs(5),
        open_max: Duration::from_secs(15),
        slow_start: Duration::from_secs(10),
    };
    const READY: Standing = Standing::Ready { share: 1.0 };

    fn secs(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn it_opens_after_failures_in_a_row_and_closes_by_one_probe() {
        let (mut circuit, now) = (Circuit::default(), Instant::now());
        assert_eq!(circuit.report(Verdict::Bad, now, &RULES), None);
        assert_eq!(circuit.report(Verdict::Good, now, &RULES), None);
        assert_eq!(circuit.report(Verdict::Bad, now, &RULES), None);
        assert_eq!(circuit.report(Verdict::Bad, now, &RULES), None, "the row was broken");
        assert_eq!(circuit.report(Verdict::Bad, now, &RULES), Some(Change::Opened(secs(5))));
        assert_eq!(circuit.standing(now + secs(1), &RULES), Standing::Open(secs(4)));
        assert!(!circuit.begin(now + secs(1)), "not due yet");
        let due = now + secs(5);
        assert_eq!(circuit.standing(due, &RULES), Standing::ProbeDue);
        assert!(circuit.begin(due), "the first finds out");
        assert!(!circuit.begin(due), "one at a time");
        assert_eq!(circuit.standing(due, &RULES), Standing::Probing);
        assert_eq!(circuit.report(Verdict::Good, due, &RULES), Some(Change::Closed));
        assert_eq!(circuit.standing(due, &RULES), Standing::Ready { share: 0.1 });
        assert_eq!(circuit.standing(due + secs(5), &RULES), Standing::Ready { share: 0.5 });
        assert_eq!(circuit.standing(due + secs(20), &RULES), READY);
    }

    #[test]
    fn a_probe_that_fails_doubles_the_pause_and_one_that_ends_without_an_answer_does_not() {
        let (mut circuit, mut now) = (Circuit::default(), Instant::now());
        for _ in 0..3 {
            circuit.report(Verdict::Bad, now, &RULES);
        }
        for pause in [5, 10, 15] {
            assert_eq!(circuit.standing(now, &RULES), Standing::Open(secs(pause)));
            now += secs(pause);
            assert!(circuit.begin(now), "due");
            circuit.abandon(now);
            assert!(circuit.begin(now), "due again at once");
            circuit.report(Verdict::Bad, now, &RULES);
        }
        assert_eq!(circuit.standing(now, &RULES), Standing::Open(secs(15)), "the most");
    }

    #[test]
    fn answers_that_break_off_are_failures_in_a_row() {
        let (mut circuit, now) = (Circuit::default(), Instant::now());
        for call in 0..3 {
            assert_eq!(circuit.report(Verdict::Begun, now, &RULES), None);
            assert_eq!(circuit.report(Verdict::Bad, now, &RULES).is_some(), call == 2);
        }
    }

    #[test]
    fn a_share_of_failures_opens_it_and_old_ones_are_forgotten() {
        let (mut circuit, now) = (Circuit::default(), Instant::now());
        for call in 0..18 {
            let verdict = if call % 2 == 0 { Verdict::Bad } else { Verdict::Good };
            assert_eq!(circuit.report(verdict, now, &RULES), None, "too few calls");
        }
        let later = now + WINDOW;
        for call in 0..18 {
            let verdict = if call % 2 == 0 { Verdict::Bad } else { Verdict::Good };
            assert_eq!(circuit.report(verdict, later, &RULES), None, "the first are forgotten");
        }
        circuit.report(Verdict::Good, later, &RULES);
        let opened = circuit.report(Verdict::Bad, later, &RULES);
        assert_eq!(opened, Some(Change::Opened(secs(5))), "10 of 20");
    }

    #[test]
    fn who_says_for_how_long_is_left_alone_and_who_does_not_comes_last() {
        let (mut circuit, now) = (Circuit::default(), Instant::now());
        circuit.report(Verdict::Busy(Some(secs(7))), now, &RULES);
        assert_eq!(circuit.standing(now + secs(2), &RULES), Standing::Busy(secs(5)));
        assert_eq!(circuit.standing(now + secs(7), &RULES), READY);
        circuit.report(Verdict::Busy(Some(secs(86_400))), now, &RULES);
        assert_eq!(circuit.standing(now, &RULES), Standing::Busy(BUSY_MAX));
        circuit.report(Verdict::Good, now, &RULES);
        circuit.report(Verdict::Busy(None), now, &RULES);
        circuit.report(Verdict::Busy(None), now, &RULES);
        assert_eq!(circuit.standing(now + secs(1), &RULES), Standing::Cooling);
        assert_eq!(circuit.standing(now + secs(2), &RULES), READY);
    }
}
