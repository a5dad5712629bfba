//! Prices that depend on what is asked for, on what is used and on what an answer shows.
//!
//! A model has base prices, and branches in order: conditions with the prices of requests that meet
//! them. The first branch whose conditions all hold has the prices, and none of them means the base.
//! Some conditions are decided when a request is taken in, such as the size of an image or the time of
//! day. Others are known at its end alone: the tier that served it, the tokens that went in. Of those a
//! hold covers the dearest branch that the request can still come to, and its bill is of the branch
//! that the answer shows.

use std::fmt;
use std::sync::Arc;

use super::{Prices, Usage};
use crate::money::Factor;
use tollgate_types::clock::UnixMs;
use tollgate_types::words::words;

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
            let met = self.when.iter().find(|(condition, _)| condition.is_met(request, bound, now));
            return Quote::Fixed(met.map_or(self.base, |(_, prices)| *prices));
        }
        let mut dearest = self.base;
        for (condition, prices) in &self.when {
            if condition.can_be_met(request, bound, now) {
                dearest = dearest.dearer(prices);
            }
        }
        let (list, request) = (Arc::clone(self), *request);
        Quote::Open(Box::new(OpenQuote { list, request, taken_in: now, dearest }))
    }

    /// The prices of what was asked for, used and served, of a request that was taken in at `taken_in`.
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

/// Condition of a price branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Traits of the request and of its response.
    pub traits: Traits,
    /// More tokens go in than this, cached ones among them. Then the branch has the prices of the whole
    /// request, as providers bill it.
    pub input_tokens_above: Option<u64>,
    /// It is taken in within this time of the day.
    pub time_utc: Option<DayWindow>,
}

impl Condition {
    /// True if only the response decides it.
    const fn is_decided_late(&self) -> bool {
        let Traits { service_tier, speed, inference_geo, thinking, .. } = self.traits;
        self.input_tokens_above.is_some()
            || service_tier.is_some()
            || speed.is_some()
            || inference_geo.is_some()
            || thinking.is_some()
    }

    /// True if the usage and the traits of the response meet it.
    fn is_met(&self, traits: &Traits, usage: &Usage, taken_in: UnixMs) -> bool {
        self.traits.are_early_met_by(traits)
            && self.traits.are_late_met_by(traits)
            && self.input_tokens_above.is_none_or(|above| usage.input_tokens_total() > above)
            && self.time_utc.is_none_or(|window| window.contains(taken_in))
    }

    /// True if a request that uses at most `bound` can still meet it.
    fn can_be_met(&self, request: &Traits, bound: &Usage, now: UnixMs) -> bool {
        self.traits.are_early_met_by(request)
            && self.traits.can_be_late_met_by(request)
            && self.input_tokens_above.is_none_or(|above| bound.input_tokens_total() > above)
            && self.time_utc.is_none_or(|window| window.contains(now))
    }

    /// True if everything that meets this condition meets `other` as well: a later condition so
    /// implied has no effect.
    #[must_use]
    pub fn implies(&self, other: &Self) -> bool {
        let is_above = match (self.input_tokens_above, other.input_tokens_above) {
            (_, None) => true,
            (Some(own), Some(others)) => own >= others,
            (None, Some(_)) => false,
        };
        other.traits.are_early_met_by(&self.traits)
            && other.traits.are_late_met_by(&self.traits)
            && is_above
            && (other.time_utc.is_none() || other.time_utc == self.time_utc)
    }
}

/// Traits that a price can depend on. Of a request: its parameters, `None` if open or not
/// applicable. Of a response: its actual values. Of a condition: the required values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traits {
    /// The resolution of a video.
    pub resolution: Option<Resolution>,
    /// The size of an image.
    pub size: Option<ImageSize>,
    /// The quality of an image.
    pub quality: Option<Quality>,
    /// True for a video with sound.
    pub audio: Option<bool>,
    /// True for a draft of a video.
    pub draft: Option<bool>,
    /// True if a video is among the inputs.
    pub video_input: Option<bool>,
    /// The tier in which the request is served. An upstream may serve it in another than was asked for.
    pub service_tier: Option<ServiceTier>,
    /// Inference speed.
    pub speed: Option<Speed>,
    /// Region of inference.
    pub inference_geo: Option<InferenceGeo>,
    /// True if the model thinks before it answers.
    pub thinking: Option<bool>,
}

impl Traits {
    /// True if a request with these traits meets the part of `self` that is decided on arrival.
    fn are_early_met_by(&self, has: &Self) -> bool {
        met(has.resolution, self.resolution)
            && met(has.size, self.size)
            && met(has.quality, self.quality)
            && met(has.audio, self.audio)
            && met(has.draft, self.draft)
            && met(has.video_input, self.video_input)
    }

    /// True if a response with these traits meets the part of `self` that the response decides.
    fn are_late_met_by(&self, has: &Self) -> bool {
        met(has.service_tier, self.service_tier)
            && met(has.speed, self.speed)
            && met(has.inference_geo, self.inference_geo)
            && met(has.thinking, self.thinking)
    }

    /// True if the response to a request with these traits can still meet them.
    fn can_be_late_met_by(&self, request: &Self) -> bool {
        // Who does not ask for a tier is served in the default one.
        let tier = match (self.service_tier, request.service_tier) {
            (None | Some(ServiceTier::Default), _) => true,
            // Accounts are set to another tier than this one, which is asked for by its name alone.
            (Some(ServiceTier::Ultrafast), Some(ServiceTier::Auto)) => false,
            (_, Some(ServiceTier::Auto)) => true,
            (demanded, request) => demanded == request,
        };
        // The answer alone shows whether a model has thought that nobody told to, or not to.
        let thinking = request.thinking.is_none() || met(request.thinking, self.thinking);
        tier && thinking
            && met(request.speed, self.speed)
            && met(request.inference_geo, self.inference_geo)
    }

    /// These, as far as an answer does not show otherwise.
    #[must_use]
    pub fn as_served(&self, served: &Self) -> Self {
        Self {
            service_tier: served.service_tier.or(self.service_tier),
            speed: served.speed.or(self.speed),
            inference_geo: served.inference_geo.or(self.inference_geo),
            thinking: served.thinking.or(self.thinking),
            ..*self
        }
    }
}

fn met<T: PartialEq>(has: Option<T>, demanded: Option<T>) -> bool {
    demanded.is_none() || has == demanded
}

/// A time of the day in UTC, from one minute up to another, over midnight where that is the earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayWindow {
    /// The first minute of the day in it.
    from: u16,
    /// The first minute behind it.
    until: u16,
}

const MINUTE_MS: u64 = 60 * 1000;
const DAY_MINUTES: u64 = 24 * 60;

impl DayWindow {
    /// Reads `16:30-00:30`. `None` for what is no such time, and for one without a length.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let minute = |text: &str| {
            let (hour, minute) = text.split_once(':')?;
            let number = |text: &str, below: u16| {
                let is_plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
                text.parse().ok().filter(|number: &u16| is_plain && *number < below)
            };
            number(hour, 24)?.checked_mul(60)?.checked_add(number(minute, 60)?)
        };
        let (from, until) = text.split_once('-')?;
        let window = Self { from: minute(from)?, until: minute(until)? };
        (window.from != window.until).then_some(window)
    }

    /// True if the time is within the window.
    #[must_use]
    pub fn contains(self, at: UnixMs) -> bool {
        let minute = at.0 / MINUTE_MS % DAY_MINUTES;
        let (from, until) = (u64::from(self.from), u64::from(self.until));
        if from < until {
            (from..until).contains(&minute)
        } else {
            minute >= from || minute < until
        }
    }
}

impl fmt::Display for DayWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, until } = self;
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, until / 60, until % 60)
    }
}

words! {
    /// The tier in which a request is served.
    ServiceTier {
        /// The usual one, which is meant where nothing is said.
        Default = "default",
        /// Whichever the upstream's account is set to; asked for alone.
        Auto = "auto",
        /// A slower one that costs less.
        Flex = "flex",
        /// A faster one that costs more.
        Priority = "priority",
        /// Capacity that was bought before.
        Scale = "scale",
        /// One that answers within a day.
        Batch = "batch",
        /// The fastest one, which accounts are admitted to.
        Ultrafast = "ultrafast",
    }
}

impl ServiceTier {
    /// The tier that a provider means by this word: Anthropic calls the usual one `standard`, and OpenAI
    /// calls `priority` `fast` as well.
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        match word {
            "standard" => Some(Self::Default),
            "fast" => Some(Self::Priority),
            word => Self::of(word),
        }
    }
}

words! {
    /// Inference speed.
    Speed {
        /// As fast as usual.
        Standard = "standard",
        /// Faster, at a higher price.
        Fast = "fast",
    }
}

words! {
    /// Region of inference.
    InferenceGeo {
        /// Wherever there is room.
        Global = "global",
        /// In the United States.
        Us = "us",
        /// In the European Union.
        Eu = "eu",
    }
}

words! {
    /// The resolution of a video.
    Resolution {
        /// 480 lines.
        P480 = "480p",
        /// 720 lines.
        P720 = "720p",
        /// 1080 lines.
        P1080 = "1080p",
    }
}

words! {
    /// The quality of an image.
    Quality {
        /// GPT-style models.
        Low = "low",
        /// GPT-style models.
        Medium = "medium",
        /// GPT-style models.
        High = "high",
        /// DALL-E-style models.
        Standard = "standard",
        /// DALL-E-style models.
        Hd = "hd",
    }
}

/// The size of an image, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ImageSize {
    /// From left to right.
    pub width: u16,
    /// From top to bottom.
    pub height: u16,
}

impl ImageSize {
    /// Reads `1024x1024`, or `1024*1024` as one provider writes it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let length = |part: &str| {
            let plain = part.bytes().all(|byte| byte.is_ascii_digit()) && !part.starts_with('0');
            part.parse().ok().filter(|_| plain)
        };
        let (width, height) = text.split_once(['x', '*'])?;
        Some(Self { width: length(width)?, height: length(height)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::money::{Nanousd, Rate};

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

    #[test]
    fn sizes_are_plain_numbers() {
        let size = Some(ImageSize { width: 1664, height: 928 });
        assert_eq!(ImageSize::parse("1664x928"), size);
        assert_eq!(ImageSize::parse("1664*928"), size);
        for text in ["", "auto", "x", "1x", "0x1", "+1x1", "01x1", "1x1x1", "1X1", "70000x1"] {
            assert_eq!(ImageSize::parse(text), None, "{text:?}");
        }
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
