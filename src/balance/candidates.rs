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
        Self { left, affinity, rules, budget, began: Instant::now(), tries: 0, granted: false }
    }

    /// The next way to try. After the first, only as far as retries may be made.
    pub fn next(&mut self, now: Instant) -> Option<Candidate> {
        if self.tries > 0 && !std::mem::take(&mut self.granted) {
            match self.retry(now) {
                Retry::Granted => self.granted = false,
                Retry::NoneLeft | Retry::OverBudget => return None,
            }
        }
        let slot = self.pick(now)?;
        let way = self.left.get_mut(slot)?.take()?;
        let is_retry = self.tries > 0;
        self.tries += 1;
        Some(Candidate::begin(way, slot, is_retry, (now, self.rules.circuit)))
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
        self.left.iter_mut().for_each(|left| drop(left.take()));
        if let Some(left) = self.left.get_mut(slot) {
            *left = Some(way);
        }
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
