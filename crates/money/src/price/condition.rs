//! Conditions of price branches: traits, the size of the input, the time of day.

use std::fmt;

use super::Usage;
use super::traits::Traits;
use tollgate_types::clock::UnixMs;

/// Condition of a price branch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Traits of the request and of its response.
    pub traits: Traits,
    /// Applies to requests with more input tokens than this, including cached ones. The prices apply to the
    /// whole request, as providers bill it.
    pub input_tokens_above: Option<u64>,
    /// Applies to requests received within this time of day.
    pub time_utc: Option<DayWindow>,
}

impl Condition {
    /// True if only the response decides it.
    pub(super) const fn is_decided_late(&self) -> bool {
        let Traits { service_tier, speed, inference_geo, thinking, .. } = self.traits;
        self.input_tokens_above.is_some()
            || service_tier.is_some()
            || speed.is_some()
            || inference_geo.is_some()
            || thinking.is_some()
    }

    /// True if the usage and the traits of the response meet it.
    pub(super) fn is_met(&self, traits: &Traits, usage: &Usage, taken_in: UnixMs) -> bool {
        self.traits.are_early_met_by(traits)
            && self.traits.are_late_met_by(traits)
            && self.input_tokens_above.is_none_or(|above| usage.input_tokens_total() > above)
            && self.time_utc.is_none_or(|window| window.contains(taken_in))
    }

    /// True if a request that uses at most `bound` can still meet it.
    pub(super) fn can_be_met(&self, request: &Traits, bound: &Usage, now: UnixMs) -> bool {
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
            // A window within another is not compared: at worst a branch without effect stays unreported.
            && (other.time_utc.is_none() || other.time_utc == self.time_utc)
    }
}

/// A time of the day in UTC, from one minute up to another, over midnight where that is the earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayWindow {
    /// The first minute of the day in it.
    from: u16,
    /// End of the window in minutes, exclusive.
    until: u16,
}

pub(super) const MINUTE_MS: u64 = 60 * 1000;
pub(super) const DAY_MINUTES: u64 = 24 * 60;

impl DayWindow {
    /// Parses `16:30-00:30`. `None` if malformed or empty.
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
        // Equal ends could mean the whole day or nothing.
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
            // Over midnight: two stretches of the same UTC day.
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
