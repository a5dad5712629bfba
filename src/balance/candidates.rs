//! The ways to a model that one request may still try.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::budget::RetryBudget;
use super::channel::{Candidate, Channel};
use super::choose::{View, choose};
use super::circuit::Standing;
use crate::config::snapshot::{Balancing, Target};

/// The ways to a model that one request may still try, and whether it may.
#[derive(Debug)]
pub struct Candidates {
    /// Those that were tried are gone.
    left: Vec<Option<(Arc<Target>, Arc<Channel>)>>,
    affinity: Option<u64>,
    rules: Balancing,
    budget: Arc<RetryBudget>,
    began: Instant,
    tries: u32,
    /// The next retry is paid for.
    granted: bool,
    /// The way that comes next, whatever the others are like.
    first: Option<usize>,
}

/// Whether another try may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Yes.
    Granted,
    /// There is nothing left to try, or no time.
    NoneLeft,
    /// Too many retries are being made already.
    OverBudget,
}

impl Candidates {
    pub(super) fn new(
        left: Vec<Option<(Arc<Target>, Arc<Channel>)>>,
        affinity: Option<u64>,
        rules: Balancing,
        budget: Arc<RetryBudget>,
    ) -> Self {
        budget.deposit(&rules.retries);
        let began = Instant::now();
        Self { left, affinity, rules, budget, began, tries: 0, granted: false, first: None }
    }

    /// The next way to try: the first, or one that [`Self::retry`] has granted.
    pub fn next(&mut self, now: Instant) -> Option<Candidate> {
        if self.has_tried() && !std::mem::take(&mut self.granted) {
            return None;
        }
        let slot = self.pick(now)?;
        self.first = None;
        let way = self.left.get_mut(slot)?.take()?;
        let is_retry = self.tries > 0;
        self.tries += 1;
        Some(Candidate::begin(way, slot, is_retry, (now, self.rules.circuit)))
    }

    /// Whether the next try would be another one.
    #[must_use]
    pub fn has_tried(&self) -> bool {
        self.tries > 0
    }

    /// Whether another try may be made; if so, the next one is paid for.
    pub fn retry(&mut self, now: Instant) -> Retry {
        if self.granted {
            return Retry::Granted;
        }
        let retries = &self.rules.retries;
        let in_time = now.saturating_duration_since(self.began) < retries.deadline;
        if self.tries >= retries.tries_max || !in_time || self.pick(now).is_none() {
            return Retry::NoneLeft;
        }
        if !self.budget.withdraw(now, retries) {
            return Retry::OverBudget;
        }
        self.granted = true;
        Retry::Granted
    }

    /// The same way may be tried once more, and first: the try never reached it.
    pub fn again(&mut self, candidate: &Candidate) {
        let way = (Arc::clone(&candidate.target), Arc::clone(&candidate.channel));
        let Candidate { slot, is_retry, .. } = *candidate;
        if let Some(left) = self.left.get_mut(slot) {
            *left = Some(way);
        }
        self.first = Some(slot);
        self.tries = self.tries.saturating_sub(1);
        self.granted = is_retry;
    }

    /// How long until one of those left may be tried again, if all of them have said so.
    #[must_use]
    pub fn busy_for(&self, now: Instant) -> Option<Duration> {
        let standings = self.left.iter().flatten();
        let busy = standings.map(|(_, channel)| match channel.standing(now, &self.rules.circuit) {
            Standing::Busy(time) => Some(time),
            _ => None,
        });
        let all: Option<Vec<Duration>> = busy.collect();
        all?.into_iter().min()
    }

    fn pick(&self, now: Instant) -> Option<usize> {
        if self.first.is_some() {
            return self.first;
        }
        let left = self.left.iter().enumerate();
        let views: Vec<(usize, View)> = left
            .filter_map(|(slot, way)| {
                let (target, channel) = way.as_ref()?;
                Some((slot, channel.view(target, now, &self.rules.circuit)))
            })
            .collect();
        choose(&views, self.affinity, fastrand::f64)
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::super::channel::Outcome;
    use super::*;
    use crate::config::snapshot::{Affinity, CircuitRules, RetryRules, Upstream, UpstreamTimeouts};
    use crate::protocols::Dialect;

    fn way(priority: u32) -> Option<(Arc<Target>, Arc<Channel>)> {
        let second = Duration::from_secs(1);
        let upstream = Upstream {
            name: format!("u{priority}"),
            dialect: Dialect::Openai,
            tls: false,
            host: "127.0.0.1".to_owned(),
            port: 1,
            authority: "127.0.0.1:1".to_owned(),
            path_prefix: String::new(),
            credentials: Vec::new(),
            health_check: None,
            timeouts: UpstreamTimeouts {
                connect: second,
                read: second,
                write: second,
                total: second,
            },
        };
        let target =
            Target { index: 0, upstream: Arc::new(upstream), model: None, priority, weight: 1 };
        let channel = Channel {
            credential: None,
            upstream: Arc::default(),
            account: Arc::default(),
            circuit: Mutex::default(),
            in_flight: 0.into(),
            seed: 0,
            last_failure: Mutex::new(None),
        };
        Some((Arc::new(target), Arc::new(channel)))
    }

    fn candidates(tries_max: u32, per_second_min: u32) -> Candidates {
        let second = Duration::from_secs(1);
        let rules = Balancing {
            affinity: Affinity::None,
            circuit: CircuitRules {
                failures: 5,
                failure_percent: 50,
                open: second,
                open_max: second,
                slow_start: second,
            },
            retries: RetryRules { tries_max, budget_percent: 0, per_second_min, deadline: second },
        };
        let budget = Arc::new(RetryBudget::new(Instant::now()));
        Candidates::new(vec![way(0), way(1), way(2)], None, rules, budget)
    }

    #[test]
    fn each_way_is_tried_once_and_only_as_far_as_retries_are_granted() {
        let (mut candidates, now) = (candidates(3, 1), Instant::now());
        for priority in 0..3 {
            let granted = !candidates.has_tried() || candidates.retry(now) == Retry::Granted;
            assert!(granted, "try {priority}");
            let candidate = candidates.next(now).expect("a way");
            assert_eq!(candidate.target.priority, priority);
            assert_eq!(candidate.is_retry, priority > 0);
            assert!(candidates.next(now).is_none(), "not granted");
        }
        assert_eq!(candidates.retry(now), Retry::NoneLeft);
    }

    #[test]
    fn a_way_that_was_never_reached_comes_again_and_the_others_stay() {
        let (mut candidates, now) = (candidates(3, 1), Instant::now());
        let first = candidates.next(now).expect("a way");
        candidates.again(&first);
        drop(first);
        let mut again = candidates.next(now).expect("the same way");
        assert_eq!((again.target.priority, again.is_retry), (0, false), "it costs no retry");
        again.report(Outcome::Failed, now);
        assert_eq!(candidates.retry(now), Retry::Granted);
        assert_eq!(candidates.next(now).map(|next| next.target.priority), Some(1));
    }

    #[test]
    fn a_deadline_ends_the_tries() {
        let (mut candidates, now) = (candidates(3, 1), Instant::now());
        assert!(candidates.next(now).is_some());
        assert_eq!(candidates.retry(now + Duration::from_secs(2)), Retry::NoneLeft);
    }
}
