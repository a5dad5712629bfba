//! The ways to a model that one request may still try.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::budget::RetryBudget;
use super::candidate::{Candidate, TargetRank, UntriedWay};
use super::channel::{Channel, PlannedCall};
use super::choose::{View, choose};
use super::circuit::CircuitStanding;
use super::stored::{Keeper, Stored};
use super::unknown::UnknownNames;
use crate::config::snapshot::{Balancing, Target};

/// The ways to a model that one request may still try, and whether it may.
#[derive(Debug)]
pub struct Candidates {
    /// A way that was tried is gone.
    left: Vec<Option<UntriedWay>>,
    whose: Whose,
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

/// Whose request it is, and what is known of that account.
#[derive(Debug)]
pub(super) struct Whose {
    /// The call that each try makes.
    pub(super) call: PlannedCall,
    pub(super) chosen: Option<Chosen>,
    pub(super) stored: Arc<Stored>,
}

/// A name that the customer has chosen for the model.
#[derive(Debug)]
pub(super) struct Chosen {
    pub(super) name: String,
    pub(super) unknown: Arc<UnknownNames>,
    /// Some upstream does not know it.
    pub(super) is_unknown: bool,
}

/// Whether another try may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Another try may be made, and is paid for.
    Granted,
    /// There is nothing left to try, or no time.
    NoneLeft,
    /// Too many retries are being made already.
    OverBudget,
}

impl Candidates {
    pub(super) fn new(
        left: Vec<Option<UntriedWay>>,
        whose: Whose,
        affinity: Option<u64>,
        rules: Balancing,
        budget: Arc<RetryBudget>,
    ) -> Self {
        budget.deposit(&rules.retries);
        let (began, tries, granted, first) = (Instant::now(), 0, false, None);
        Self { left, whose, affinity, rules, budget, began, tries, granted, first }
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
        let (call, rules) = (self.whose.call, self.rules.circuit);
        Some(Candidate::begin(way, slot, is_retry, call, now, rules))
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
        if !self.may_try(now) {
            return Retry::NoneLeft;
        }
        if !self.budget.withdraw(now, &self.rules.retries) {
            return Retry::OverBudget;
        }
        self.granted = true;
        Retry::Granted
    }

    /// The target that was tried last does not have what the request names. That is no failure of it,
    /// so another try takes nothing from the budget. Says whether there is one.
    pub fn pass_over(&mut self, now: Instant) -> bool {
        self.granted = self.granted || self.may_try(now);
        self.granted
    }

    /// The upstream does not know the name of the model that the customer has chosen: it is not asked
    /// again for a while.
    pub fn unknown(&mut self, channel: &Channel, now: Instant) {
        let Whose { call, chosen, .. } = &mut self.whose;
        if let Some(chosen) = chosen {
            chosen.is_unknown = true;
            chosen.unknown.add(*call, channel, &chosen.name, now);
        }
    }

    /// Whether no upstream knows the name that the customer has chosen, as far as they were asked: those
    /// that are out of order were not.
    #[must_use]
    pub fn is_unknown(&self, now: Instant) -> bool {
        let is_unknown = self.whose.chosen.as_ref().is_some_and(|chosen| chosen.is_unknown);
        is_unknown && (self.is_empty() || self.pick(now).is_some())
    }

    /// Whether there is no way at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left.iter().all(Option::is_none)
    }

    /// Notes what the upstream keeps of the answer that has come this way.
    #[must_use]
    pub fn keeper(&self, candidate: &Candidate) -> Keeper {
        let (stored, account) = (Arc::clone(&self.whose.stored), self.whose.call.caller.account);
        Keeper { stored, account, home: candidate.channel.home }
    }

    /// Puts the way of `candidate` back, to be tried next: the try never reached it.
    pub fn again(&mut self, candidate: &Candidate) {
        let (target, channel) = (Arc::clone(&candidate.target), Arc::clone(&candidate.channel));
        let Candidate { rank, slot, is_retry, .. } = *candidate;
        let way = UntriedWay { rank, target, channel };
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
        let (call, rules) = (self.whose.call, &self.rules.circuit);
        let busy = standings.map(|way| match way.channel.standing_of(call, now, rules) {
            CircuitStanding::Busy(time) => Some(time),
            _ => None,
        });
        let all: Option<Vec<Duration>> = busy.collect();
        all?.into_iter().min()
    }

    /// Whether there is something left to try, and time.
    fn may_try(&self, now: Instant) -> bool {
        let retries = &self.rules.retries;
        let in_time = now.saturating_duration_since(self.began) < retries.deadline;
        self.tries < retries.tries_max && in_time && self.pick(now).is_some()
    }

    /// The way that would come next of those that `fits` takes, without taking it: a call over it is
    /// none of the request's tries, and what comes of the call is nobody's verdict on the target.
    pub fn peek(
        &self,
        now: Instant,
        fits: impl Fn(TargetRank, &Target) -> bool,
    ) -> Option<(Arc<Target>, Arc<Channel>)> {
        let slot = self.pick_of(now, |way| fits(way.rank, &way.target))?;
        let way = self.left.get(slot)?.as_ref()?;
        Some((Arc::clone(&way.target), Arc::clone(&way.channel)))
    }

    /// Keep only the ways to targets of which `fits` is true.
    pub fn retain(&mut self, fits: impl Fn(TargetRank, &Target) -> bool) {
        for slot in &mut self.left {
            if slot.as_ref().is_some_and(|way| !fits(way.rank, &way.target)) {
                *slot = None;
            }
        }
    }

    fn pick(&self, now: Instant) -> Option<usize> {
        if self.first.is_some() {
            return self.first;
        }
        self.pick_of(now, |_| true)
    }

    fn pick_of(&self, now: Instant, fits: impl Fn(&UntriedWay) -> bool) -> Option<usize> {
        // A fallback comes when no target of the models before it is worth a call, and a target that
        // the request is translated for when none is that speaks its protocol.
        let mut before: Option<TargetRank> = None;
        loop {
            let ranks = self.left.iter().flatten().filter(|way| fits(way)).map(|way| way.rank);
            let rank = ranks.filter(|rank| before.is_none_or(|before| *rank > before)).min()?;
            if let Some(slot) = self.pick_of_rank(rank, now, &fits) {
                return Some(slot);
            }
            before = Some(rank);
        }
    }

    fn pick_of_rank(
        &self,
        rank: TargetRank,
        now: Instant,
        fits: impl Fn(&UntriedWay) -> bool,
    ) -> Option<usize> {
        let (call, rules) = (self.whose.call, &self.rules.circuit);
        let left = self.left.iter().enumerate();
        let views: Vec<(usize, View)> = left
            .filter_map(|(slot, way)| {
                let way = way.as_ref().filter(|way| way.rank == rank && fits(way))?;
                Some((slot, way.channel.view(&way.target, call, now, rules)))
            })
            .collect();
        choose(&views, self.affinity, fastrand::f64)
    }
}

#[cfg(test)]
mod tests {
    use super::super::channel::Outcome;
    use super::super::circuit::Caller;
    use super::super::kind::CallKind;
    use super::*;
    use crate::config::snapshot::{Affinity, CircuitRules, RetryRules, Upstream};
    use crate::protocols::Operation;
    use crate::sample;

    const CALL: PlannedCall =
        PlannedCall { caller: Caller { account: 1, tokens: 1 }, kind: CallKind::GENERATION };

    fn way(model: usize, priority: u32) -> Option<UntriedWay> {
        way_at(TargetRank { model, is_translated: false }, priority)
    }

    fn way_at(rank: TargetRank, priority: u32) -> Option<UntriedWay> {
        let upstream = Upstream { name: format!("u{priority}"), ..sample::upstream() };
        let target = Target {
            index: 0,
            upstream: Arc::new(upstream),
            model: None,
            priority,
            weight: 1,
            cost: None,
            pass_headers: Arc::default(),
        };
        let channel = Channel::unused(CallKind::GENERATION);
        Some(UntriedWay { rank, target: Arc::new(target), channel: Arc::new(channel) })
    }

    fn candidates(tries_max: u32, per_second_min: u32) -> Candidates {
        candidates_for(None, tries_max, per_second_min)
    }

    fn candidates_for(chosen: Option<Chosen>, tries_max: u32, per_second_min: u32) -> Candidates {
        candidates_over(vec![way(0, 0), way(0, 1), way(0, 2)], chosen, tries_max, per_second_min)
    }

    fn candidates_over(
        ways: Vec<Option<UntriedWay>>,
        chosen: Option<Chosen>,
        tries_max: u32,
        per_second_min: u32,
    ) -> Candidates {
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
        Candidates::new(
            ways,
            Whose { call: CALL, chosen, stored: Arc::default() },
            None,
            rules,
            budget,
        )
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
    fn a_fallback_comes_when_no_target_of_the_models_before_it_is_left() {
        let ways = || vec![way(0, 5), way(0, 7), way(1, 9), way(2, 0)];
        let (mut candidates, now) = (candidates_over(ways(), None, 9, 9), Instant::now());
        let mut tried = Vec::new();
        while !candidates.has_tried() || candidates.retry(now) == Retry::Granted {
            let candidate = candidates.next(now).expect("a way");
            tried.push((candidate.rank.model, candidate.target.priority));
        }
        assert_eq!(tried, [(0, 5), (0, 7), (1, 9), (2, 0)], "whatever the priorities");

        // A target that was busy a moment ago comes before another model, and one that has asked for
        // time does not.
        for (asked, first) in [(None, 0), (Some(Duration::from_secs(9)), 1)] {
            let mut busy = candidates_over(ways(), None, 9, 9);
            for _ in 0..2 {
                let mut candidate = busy.next(now).expect("a way");
                candidate.report(Outcome::Busy(asked), now);
                busy.again(&candidate);
                (busy.first, busy.tries) = (None, 0);
            }
            let next = busy.next(now).map(|next| next.rank.model);
            assert_eq!(next, Some(first), "{asked:?}");
        }
    }

    #[test]
    fn a_target_with_a_translation_comes_behind_those_without_and_before_other_models() {
        let translated = |model| TargetRank { model, is_translated: true };
        let ways = vec![way(0, 7), way_at(translated(0), 1), way(1, 0), way_at(translated(1), 0)];
        let (mut candidates, now) = (candidates_over(ways, None, 9, 9), Instant::now());
        let mut tried = Vec::new();
        while !candidates.has_tried() || candidates.retry(now) == Retry::Granted {
            tried.push(candidates.next(now).expect("a way").rank);
        }
        assert!(tried.is_sorted() && tried.len() == 4, "{tried:?}");
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
    fn a_way_that_is_looked_at_is_still_to_be_tried() {
        let (mut candidates, now) = (candidates(3, 1), Instant::now());
        let peeked = |candidates: &Candidates, not: u32| {
            let found = candidates.peek(now, |_, target| target.priority != not);
            found.map(|(target, _)| target.priority)
        };
        assert_eq!((peeked(&candidates, 9), peeked(&candidates, 0)), (Some(0), Some(1)));
        assert!(!candidates.has_tried(), "a look is no try");
        candidates.retain(|_, target| target.priority == 2);
        assert_eq!((peeked(&candidates, 9), peeked(&candidates, 2)), (Some(2), None));
        let first = candidates.next(now).expect("a way");
        assert_eq!((first.target.priority, first.is_retry), (2, false));
        assert_eq!(candidates.retry(now), Retry::NoneLeft);
    }

    #[test]
    fn a_name_that_nobody_knows_takes_nothing_from_the_budget() {
        let unknown = Arc::<UnknownNames>::default();
        let (name, is_unknown) = ("x-1".to_owned(), false);
        let chosen = Chosen { name, unknown: Arc::clone(&unknown), is_unknown };
        let (mut candidates, now) = (candidates_for(Some(chosen), 4, 1), Instant::now());
        for priority in 0..3 {
            assert!(!candidates.is_unknown(now) || priority > 0);
            let mut candidate = candidates.next(now).expect("a way");
            candidate.report(Outcome::NotOffered, now);
            candidates.unknown(&candidate.channel, now);
            let has = |call| unknown.has(call, &candidate.channel, "x-1", now);
            assert!(has(CALL));
            let other = PlannedCall { caller: Caller { account: 2, tokens: 1 }, ..CALL };
            assert!(!has(other), "another account's name");
            let count = PlannedCall { kind: CallKind::from(Operation::CountTokens), ..CALL };
            assert!(!has(count), "another endpoint may know it");
            assert_eq!(candidates.pass_over(now), priority < 2);
        }
        assert!(candidates.is_unknown(now));
        let left = std::iter::from_fn(|| {
            candidates.budget.withdraw(now, &candidates.rules.retries).then_some(())
        });
        assert_eq!(left.count(), 10, "all of the budget is there");
    }

    #[test]
    fn a_deadline_ends_the_tries() {
        let (mut candidates, now) = (candidates(3, 1), Instant::now());
        assert!(candidates.next(now).is_some());
        assert_eq!(candidates.retry(now + Duration::from_secs(2)), Retry::NoneLeft);
    }
}
