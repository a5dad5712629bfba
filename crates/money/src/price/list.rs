//! Prices that depend on what is asked for, on what is used and on what an answer shows.
//!
//! A model has base prices, and branches in order: conditions with the prices of requests that meet
//! them. The first branch whose conditions all hold has the prices, and none of them means the base.
//! Some conditions are decided when a request is taken in, such as the size of an image or the time of
//! day. Others are known at its end alone: the tier that served it, the tokens that went in. Of those a
//! hold covers the dearest branch that the request can still come to, and its bill is of the branch
//! that the answer shows.

use std::sync::Arc;

use super::condition::Condition;
use super::traits::Traits;
use super::{Prices, Usage};
use crate::money::Factor;
use tollgate_types::clock::UnixMs;

/// A model's prices, and those that apply where a request meets conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriceList {
    /// Prices of a request that meets no condition.
    pub base: Prices,
    /// Conditions and the prices of requests that meet them; the first that is met counts.
    pub when: Vec<(Condition, Prices)>,
}

impl PriceList {
    /// Quote for a request with these traits that arrives at `now` and uses at most `bound`.
    #[must_use]
    pub fn quote(self: &Arc<Self>, request: &Traits, bound: &Usage, now: UnixMs) -> Quote {
        if !self.when.iter().any(|(condition, _)| condition.is_decided_late()) {
            // Nothing is decided late, so the bound stands in for the usage without a difference.
            let met = self.when.iter().find(|(condition, _)| condition.is_met(request, bound, now));
            return Quote::Fixed(met.map_or(self.base, |(_, prices)| *prices));
        }
        let mut dearest = self.base;
        for (condition, prices) in &self.when {
            if condition.can_be_met(request, bound, now) {
                // Per unit, not per branch: which units the answer will have is as open as the branch.
                dearest = dearest.dearer(prices);
            }
        }
        let (list, request) = (Arc::clone(self), *request);
        Quote::Open(Box::new(OpenQuote { list, request, taken_in: now, dearest }))
    }

    /// Prices that apply to a request with these properties, received at `taken_in`.
    #[must_use]
    pub fn prices(
        &self,
        request: &Traits,
        served: &Traits,
        usage: &Usage,
        taken_in: UnixMs,
    ) -> &Prices {
        let traits = request.as_served(served);
        let met =
            |(condition, _): &&(Condition, Prices)| condition.is_met(&traits, usage, taken_in);
        self.when.iter().find(met).map_or(&self.base, |(_, prices)| prices)
    }

    /// All prices multiplied, each rounded up to a femto-dollar.
    #[must_use]
    pub fn times(&self, factor: Factor) -> Self {
        let times = |prices: &Prices| prices.map(|rate| factor.times(rate));
        let when = self.when.iter().map(|(condition, prices)| (*condition, times(prices)));
        Self { base: times(&self.base), when: when.collect() }
    }
}

/// Prices of one request, fixed when it arrives: a reload does not change them.
#[derive(Clone, Debug)]
pub enum Quote {
    /// These prices, whatever the answer shows.
    Fixed(Prices),
    /// Prices that the answer decides on.
    Open(Box<OpenQuote>),
}

/// Prices of which the answer shows those that apply.
#[derive(Clone, Debug)]
pub struct OpenQuote {
    list: Arc<PriceList>,
    request: Traits,
    taken_in: UnixMs,
    dearest: Prices,
}

impl Default for Quote {
    fn default() -> Self {
        Self::Fixed(Prices::default())
    }
}

impl Quote {
    /// The dearest price of each unit that the request can still come to: what a hold must assume.
    #[must_use]
    pub fn dearest(&self) -> &Prices {
        match self {
            Self::Fixed(prices) => prices,
            Self::Open(open) => &open.dearest,
        }
    }

    /// The prices of what was used, as an answer shows it.
    #[must_use]
    pub fn prices(&self, usage: &Usage, served: &Traits) -> &Prices {
        match self {
            Self::Fixed(prices) => prices,
            Self::Open(open) => open.list.prices(&open.request, served, usage, open.taken_in),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::money::{Nanousd, Rate};
    use crate::price::condition::{DAY_MINUTES, DayWindow, MINUTE_MS};
    use crate::price::traits::{ImageSize, Quality, ServiceTier};

    const NOON: UnixMs = UnixMs(12 * 60 * MINUTE_MS);

    fn priced(nanousd: i64) -> Prices {
        let rate = Rate::from_femtousd(nanousd.saturating_mul(1_000_000));
        Prices { input: rate, image: rate, ..Prices::default() }
    }

    fn list(when: &[(Condition, i64)]) -> Arc<PriceList> {
        let when = when.iter().map(|(condition, price)| (*condition, priced(*price))).collect();
        Arc::new(PriceList { base: priced(10), when })
    }

    fn when(traits: Traits) -> Condition {
        Condition { traits, ..Condition::default() }
    }

    fn above(tokens: u64) -> Condition {
        Condition { input_tokens_above: Some(tokens), ..Condition::default() }
    }

    fn input(tokens: u64) -> Usage {
        Usage { input_tokens: tokens, ..Usage::ZERO }
    }

    fn tier(tier: ServiceTier) -> Traits {
        Traits { service_tier: Some(tier), ..Traits::default() }
    }

    fn moment(hour: u64, minute: u64) -> UnixMs {
        let minutes = (20_000 * DAY_MINUTES).saturating_add(hour.saturating_mul(60));
        UnixMs(minutes.saturating_add(minute).saturating_mul(MINUTE_MS).saturating_add(999))
    }

    fn rate(prices: &Prices) -> Nanousd {
        prices.cost(&input(1))
    }

    #[test]
    fn the_first_condition_that_is_met_counts() {
        let small = Traits { size: ImageSize::parse("256x256"), ..Traits::default() };
        let finer = Traits { quality: Some(Quality::Hd), ..small };
        let list = list(&[(when(finer), 3), (when(small), 2), (when(finer), 1)]);
        let costs = |request: &Traits| {
            let quote = list.quote(request, &Usage::ZERO, NOON);
            assert_eq!(
                quote.dearest(),
                quote.prices(&Usage::ZERO, request),
                "known from the first"
            );
            rate(quote.dearest())
        };
        assert_eq!(costs(&Traits::default()), Nanousd::new(10), "a request that says nothing");
        assert_eq!(costs(&small), Nanousd::new(2), "one of two conditions is met");
        assert_eq!(costs(&finer), Nanousd::new(3), "the first of several");
    }

    #[test]
    fn the_whole_request_has_the_price_of_its_size() {
        let list = list(&[(above(400), 40), (above(200), 20)]);
        let request = Traits::default();
        for (bound, held, used, paid) in [
            (200, 10, 200, 10),
            (201, 20, 201, 20),
            (400, 20, 200, 10),
            (401, 40, 400, 20),
            (500, 40, 401, 40),
            // More than it can be, by an upstream that has the last word.
            (100, 10, 201, 20),
        ] {
            let quote = list.quote(&request, &input(bound), NOON);
            assert_eq!(rate(quote.dearest()), Nanousd::new(held), "held for {bound}");
            let prices = quote.prices(&input(used), &request);
            assert_eq!(rate(prices), Nanousd::new(paid), "paid for {used}");
        }
        let quote = list.quote(&request, &input(500), NOON);
        let cached = Usage { cache_read_tokens: 150, cache_write_tokens: 50, ..input(1) };
        assert_eq!(rate(quote.prices(&cached, &request)), Nanousd::new(20), "cached tokens count");
    }

    #[test]
    fn a_tier_is_held_as_requested_and_paid_as_served() {
        use ServiceTier::{Auto, Default, Flex, Priority, Ultrafast};
        let tiers = [(Priority, 20), (Flex, 5), (Ultrafast, 60)];
        let list = list(&tiers.map(|(one, price)| (when(tier(one)), price)));
        let nothing = Traits::default();
        for (request, held, shown, paid) in [
            (nothing, 10, nothing, 10),
            (nothing, 10, tier(Priority), 20),
            (tier(Default), 10, tier(Default), 10),
            (tier(Priority), 20, tier(Priority), 20),
            (tier(Priority), 20, tier(Default), 10),
            (tier(Priority), 20, nothing, 20),
            (tier(Flex), 10, tier(Flex), 5),
            (tier(Flex), 10, tier(Default), 10),
            (tier(Auto), 20, tier(Priority), 20),
            (tier(Auto), 20, nothing, 10),
            (tier(Ultrafast), 60, tier(Ultrafast), 60),
            (tier(Ultrafast), 60, tier(Default), 10),
        ] {
            let quote = list.quote(&request, &input(1), NOON);
            assert_eq!(rate(quote.dearest()), Nanousd::new(held), "{request:?}");
            assert_eq!(rate(quote.prices(&input(1), &shown)), Nanousd::new(paid), "{shown:?}");
        }
    }

    #[test]
    fn who_leaves_thinking_to_the_model_is_held_for_the_dearer() {
        let thinks = |thinking| Traits { thinking, ..Traits::default() };
        let list = list(&[(when(thinks(Some(true))), 30), (when(thinks(Some(false))), 3)]);
        for (request, held, shown, paid) in [
            (None, 30, Some(true), 30),
            (None, 30, Some(false), 3),
            (Some(false), 10, None, 3),
            (Some(true), 30, None, 30),
        ] {
            let quote = list.quote(&thinks(request), &input(1), NOON);
            assert_eq!(rate(quote.dearest()), Nanousd::new(held), "{request:?}");
            let prices = quote.prices(&input(1), &thinks(shown));
            assert_eq!(rate(prices), Nanousd::new(paid), "{shown:?}");
        }
    }

    #[test]
    fn a_time_of_day_is_that_in_which_a_request_is_taken_in() {
        let night = DayWindow::parse("16:30-00:30").expect("a window");
        assert_eq!(night.to_string(), "16:30-00:30");
        let list = list(&[(Condition { time_utc: Some(night), ..Condition::default() }, 5)]);
        for (hour, minute, price) in
            [(0, 0, 5), (0, 29, 5), (0, 30, 10), (16, 29, 10), (16, 30, 5), (23, 59, 5)]
        {
            let quote = list.quote(&Traits::default(), &input(1), moment(hour, minute));
            assert_eq!(rate(quote.dearest()), Nanousd::new(price), "{hour}:{minute}");
        }
        for text in ["", "1:00-2:00", "24:00-01:00", "01:60-02:00", "01:00-01:00", "+1:00-02:00"] {
            assert_eq!(DayWindow::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn prices_are_multiplied_and_rounded_up() {
        let list = list(&[(above(200), 40)]);
        let factor = Factor::parse("0.75").expect("a factor");
        let part = list.times(factor);
        assert_eq!(rate(&part.base), Nanousd::new(8), "7.5, rounded up once");
        assert_eq!(part.base.cost(&input(2)), Nanousd::new(15));
        let long = part.prices(&Traits::default(), &Traits::default(), &input(201), NOON);
        assert_eq!(rate(long), Nanousd::new(30));
        for text in ["", "-1", "1e3", "1001", "0.1234567", ".5", "1.", "+1"] {
            assert_eq!(Factor::parse(text), None, "{text:?}");
        }
        for (text, shown) in [("0", "0"), ("1", "1"), ("0.80", "0.8"), ("1000", "1000")] {
            assert_eq!(Factor::parse(text).map(|one| one.to_string()).as_deref(), Some(shown));
        }
    }

    #[test]
    fn what_a_later_branch_adds_counts_and_what_it_repeats_does_not() {
        let priority = when(tier(ServiceTier::Priority));
        let long = Condition { input_tokens_above: Some(200), ..priority };
        assert!(long.implies(&priority) && !priority.implies(&long));
        assert!(above(400).implies(&above(200)) && !above(200).implies(&above(400)));
        assert!(!above(200).implies(&priority) && above(200).implies(&above(200)));
    }

    proptest::proptest! {
        /// A hold covers every branch that a response can reach with usage within the bound.
        #[test]
        fn a_hold_covers_every_branch_that_the_answer_can_show(
            branches in proptest::collection::vec((0..4_usize, 0..500_u64, 1..99_i64), 0..6),
            request in 0..4_usize,
            bound in 0..600_u64,
            used in 0..600_u64,
        ) {
            use ServiceTier::{Default, Flex, Priority};
            let tiers = [None, Some(Default), Some(Flex), Some(Priority)];
            let branches: Vec<_> = branches.into_iter().map(|(tier, above, price)| {
                let traits = Traits { service_tier: tiers[tier], ..Traits::default() };
                let input_tokens_above = (above > 100).then_some(above);
                (Condition { traits, input_tokens_above, time_utc: None }, price)
            }).collect();
            let request = Traits { service_tier: tiers[request], ..Traits::default() };
            let quote = list(&branches).quote(&request, &input(bound), NOON);
            let used = input(used.min(bound));
            for shown in [Traits::default(), tier(Default), request] {
                let paid = quote.prices(&used, &shown).cost(&used);
                proptest::prop_assert!(paid <= quote.dearest().cost(&used), "{quote:?} {shown:?}");
            }
        }
    }
}
