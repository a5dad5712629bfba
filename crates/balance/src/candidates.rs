//! Channels that one request may still try.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::breaker::CircuitStanding;
use super::budget::RetryBudget;
use super::candidate::{Candidate, RankedChannel, TargetRank};
use super::channel::{Channel, PlannedCall};
use super::choose::{ChannelView, choose};
use super::stored_ids::{ObjectHomes, StoredIdRecorder};
use super::unknown_names::UnknownNames;
use tollgate_config::snapshot::{Balancing, Target};

/// Channels that one request may still try, its retry limits, and its deadline.
#[derive(Debug)]
pub struct Candidates {
    /// Slots of all channels; a tried one is `None`.
    left: Vec<Option<RankedChannel>>,
    owner: RequestOwner,
    affinity: Option<u64>,
    rules: Balancing,
    budget: Arc<RetryBudget>,
    began: Instant,
    tries: u32,
    /// True if the next retry is already debited from the budget.
    granted: bool,
    /// Slot to try next regardless of the selection, after a connection that failed before use.
    first: Option<usize>,
}

/// Account behind the request and its per-account state.
#[derive(Debug)]
pub(super) struct RequestOwner {
    /// Call that each try makes.
    pub(super) call: PlannedCall,
    pub(super) chosen: Option<ChosenName>,
    pub(super) stored: Arc<ObjectHomes>,
}

/// Model name from the request, for a model whose id is a pattern.
#[derive(Debug)]
pub(super) struct ChosenName {
    pub(super) name: String,
    pub(super) unknown: Arc<UnknownNames>,
    /// True if at least one upstream has answered that it has no such model.
    pub(super) is_unknown: bool,
}

/// Decision on a retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Allowed, and debited from the budget.
    Granted,
    /// No channel or no time is left.
    NoneLeft,
    /// The retry budget is exhausted.
    OverBudget,
}

impl Candidates {
    pub(super) fn new(
        left: Vec<Option<RankedChannel>>,
        owner: RequestOwner,
        affinity: Option<u64>,
        rules: Balancing,
        budget: Arc<RetryBudget>,
    ) -> Self {
        budget.deposit(&rules.retries);
        let (began, tries, granted, first) = (Instant::now(), 0, false, None);
        Self { left, owner, affinity, rules, budget, began, tries, granted, first }
    }

    /// Select the next channel: for the first try, or for one that [`Self::retry`] has granted.
    pub fn next(&mut self, now: Instant) -> Option<Candidate> {
        if self.has_tried() && !std::mem::take(&mut self.granted) {
            return None;
        }
        let slot = self.pick(now)?;
        // Once only: should it fail again, the selection decides anew.
        self.first = None;
        let ranked = self.left.get_mut(slot)?.take()?;
        let is_retry = self.tries > 0;
        self.tries += 1;
        let (call, rules) = (self.owner.call, self.rules.circuit);
        Some(Candidate::begin(ranked, slot, is_retry, call, now, rules))
    }

    /// True if a try has been made.
    #[must_use]
    pub fn has_tried(&self) -> bool {
        self.tries > 0
    }

    /// Ask for another try, debiting it from the budget if granted.
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

    /// Skip the last target, which does not have what the request names. This is no failure, so the next
    /// try costs no budget. Returns true if there is a next one.
    pub fn pass_over(&mut self, now: Instant) -> bool {
        self.granted = self.granted || self.may_try(now);
        self.granted
    }

    /// Record that the channel's upstream does not know the chosen model name: it is skipped for a
    /// while.
    pub fn unknown(&mut self, channel: &Channel, now: Instant) {
        let RequestOwner { call, chosen, .. } = &mut self.owner;
        if let Some(chosen) = chosen {
            chosen.is_unknown = true;
            chosen.unknown.add(*call, channel, &chosen.name, now);
        }
    }

    /// True if no reachable upstream knows the chosen model name.
    #[must_use]
    pub fn is_unknown(&self, now: Instant) -> bool {
        let is_unknown = self.owner.chosen.as_ref().is_some_and(|chosen| chosen.is_unknown);
        is_unknown && (self.is_empty() || self.pick(now).is_some())
    }

    /// True if no channel is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left.iter().all(Option::is_none)
    }

    /// Create a recorder of ids that the upstream stores for the candidate's answer.
    #[must_use]
    pub fn id_recorder(&self, candidate: &Candidate) -> StoredIdRecorder {
        let (stored, account) = (Arc::clone(&self.owner.stored), self.owner.call.caller.account);
        StoredIdRecorder { stored, account, home: candidate.channel.home }
    }

    /// Return a candidate's channel, to be tried next: the try never reached the upstream.
    pub fn again(&mut self, candidate: &Candidate) {
        let (target, channel) = (Arc::clone(&candidate.target), Arc::clone(&candidate.channel));
        let Candidate { rank, slot, is_retry, .. } = *candidate;
        let ranked = RankedChannel { rank, target, channel };
        if let Some(left) = self.left.get_mut(slot) {
            *left = Some(ranked);
        }
        self.first = Some(slot);
        self.tries = self.tries.saturating_sub(1);
        self.granted = is_retry;
    }

    /// Shortest `Retry-After` of the remaining channels, if all of them are busy.
    #[must_use]
    pub fn busy_for(&self, now: Instant) -> Option<Duration> {
        let standings = self.left.iter().flatten();
        let (call, rules) = (self.owner.call, &self.rules.circuit);
        let busy = standings.map(|ranked| match ranked.channel.standing_of(call, now, rules) {
            CircuitStanding::Busy(time) => Some(time),
            _ => None,
        });
        // One channel that is not busy, but failing, makes the time of a recovery unknown.
        let all: Option<Vec<Duration>> = busy.collect();
        all?.into_iter().min()
    }

    /// True if a channel, a try and time are left.
    fn may_try(&self, now: Instant) -> bool {
        let retries = &self.rules.retries;
        let in_time = now.saturating_duration_since(self.began) < retries.deadline;
        self.tries < retries.tries_max && in_time && self.pick(now).is_some()
    }

    /// Select the next channel that satisfies `fits` without consuming it: a call over it counts neither
    /// as a try of the request nor for the target's circuit.
    pub fn peek(
        &self,
        now: Instant,
        fits: impl Fn(TargetRank, &Target) -> bool,
    ) -> Option<(Arc<Target>, Arc<Channel>)> {
        let slot = self.pick_of(now, |ranked| fits(ranked.rank, &ranked.target))?;
        let ranked = self.left.get(slot)?.as_ref()?;
        Some((Arc::clone(&ranked.target), Arc::clone(&ranked.channel)))
    }

    /// Retain only the channels of targets that satisfy `fits`.
    pub fn retain(&mut self, fits: impl Fn(TargetRank, &Target) -> bool) {
        for slot in &mut self.left {
            if slot.as_ref().is_some_and(|ranked| !fits(ranked.rank, &ranked.target)) {
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

    fn pick_of(&self, now: Instant, fits: impl Fn(&RankedChannel) -> bool) -> Option<usize> {
        // A fallback model is used when no target of the models before it is available; a target that
        // needs translation, when no native one is.
        let mut before: Option<TargetRank> = None;
        loop {
            let ranks =
                self.left.iter().flatten().filter(|ranked| fits(ranked)).map(|ranked| ranked.rank);
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
        fits: impl Fn(&RankedChannel) -> bool,
    ) -> Option<usize> {
        let (call, rules) = (self.owner.call, &self.rules.circuit);
        let left = self.left.iter().enumerate();
        let views: Vec<(usize, ChannelView)> = left
            .filter_map(|(slot, ranked)| {
                let ranked =
                    ranked.as_ref().filter(|ranked| ranked.rank == rank && fits(ranked))?;
                Some((slot, ranked.channel.view(&ranked.target, call, now, rules)))
            })
            .collect();
        choose(&views, self.affinity, fastrand::f64)
    }
}

#[cfg(test)]
mod tests {
    use super::super::channel::Outcome;
    use super::super::circuit::CallOrigin;
    use super::*;
    use crate::sample;
    use tollgate_config::snapshot::{Affinity, CallKind, CircuitRules, RetryRules, Upstream};

    const CALL: PlannedCall =
        PlannedCall { caller: CallOrigin { account: 1, tokens: 1 }, kind: CallKind::GENERATION };

    fn ranked(model: usize, priority: u32) -> Option<RankedChannel> {
        ranked_as(TargetRank { model, is_translated: false }, priority)
    }

    fn ranked_as(rank: TargetRank, priority: u32) -> Option<RankedChannel> {
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
        Some(RankedChannel { rank, target: Arc::new(target), channel: Arc::new(channel) })
    }

    fn candidates(tries_max: u32, per_second_min: u32) -> Candidates {
        candidates_for(None, tries_max, per_second_min)
    }

    fn candidates_for(
        chosen: Option<ChosenName>,
        tries_max: u32,
        per_second_min: u32,
    ) -> Candidates {
        candidates_over(
            vec![ranked(0, 0), ranked(0, 1), ranked(0, 2)],
            chosen,
            tries_max,
            per_second_min,
        )
    }

    fn candidates_over(
        channels: Vec<Option<RankedChannel>>,
        chosen: Option<ChosenName>,
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
            channels,
            RequestOwner { call: CALL, chosen, stored: Arc::default() },
            None,
            rules,
            budget,
        )
    }

    #[test]
    fn each_channel_is_tried_once_and_only_with_a_granted_retry() {
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
        let channels = || vec![ranked(0, 5), ranked(0, 7), ranked(1, 9), ranked(2, 0)];
        let (mut candidates, now) = (candidates_over(channels(), None, 9, 9), Instant::now());
        let mut tried = Vec::new();
        while !candidates.has_tried() || candidates.retry(now) == Retry::Granted {
            let candidate = candidates.next(now).expect("a way");
            tried.push((candidate.rank.model, candidate.target.priority));
        }
        assert_eq!(tried, [(0, 5), (0, 7), (1, 9), (2, 0)], "whatever the priorities");

        // A target that was just busy comes before a fallback model; one that sent a `Retry-After` does
        // not.
        for (retry_after, first) in [(None, 0), (Some(Duration::from_secs(9)), 1)] {
            let mut busy = candidates_over(channels(), None, 9, 9);
            for _ in 0..2 {
                let mut candidate = busy.next(now).expect("a way");
                candidate.report(Outcome::Busy(retry_after), now);
                busy.again(&candidate);
                (busy.first, busy.tries) = (None, 0);
            }
            let next = busy.next(now).map(|next| next.rank.model);
            assert_eq!(next, Some(first), "{retry_after:?}");
        }
    }

    #[test]
    fn a_target_with_a_translation_comes_behind_those_without_and_before_other_models() {
        let translated = |model| TargetRank { model, is_translated: true };
        let channels = vec![
            ranked(0, 7),
            ranked_as(translated(0), 1),
            ranked(1, 0),
            ranked_as(translated(1), 0),
        ];
        let (mut candidates, now) = (candidates_over(channels, None, 9, 9), Instant::now());
        let mut tried = Vec::new();
        while !candidates.has_tried() || candidates.retry(now) == Retry::Granted {
            tried.push(candidates.next(now).expect("a way").rank);
        }
        assert!(tried.is_sorted() && tried.len() == 4, "{tried:?}");
    }

    #[test]
    fn a_channel_that_was_never_reached_is_tried_again_first() {
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
    fn peeking_consumes_no_channel() {
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
    fn an_unknown_model_name_costs_no_retry_budget() {
        let unknown = Arc::<UnknownNames>::default();
        let (name, is_unknown) = ("x-1".to_owned(), false);
        let chosen = ChosenName { name, unknown: Arc::clone(&unknown), is_unknown };
        let (mut candidates, now) = (candidates_for(Some(chosen), 4, 1), Instant::now());
        for priority in 0..3 {
            assert!(!candidates.is_unknown(now) || priority > 0);
            let mut candidate = candidates.next(now).expect("a way");
            candidate.report(Outcome::NotOffered, now);
            candidates.unknown(&candidate.channel, now);
            let has = |call| unknown.has(call, &candidate.channel, "x-1", now);
            assert!(has(CALL));
            let other = PlannedCall { caller: CallOrigin { account: 2, tokens: 1 }, ..CALL };
            assert!(!has(other), "another account's name");
            let count = PlannedCall { kind: sample::token_count(), ..CALL };
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
