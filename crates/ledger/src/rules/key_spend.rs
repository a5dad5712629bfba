//! Spending of a key in a day and a month, and its limits of both.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use serde::{Deserialize, Serialize};
use time::{Date, OffsetDateTime};

use crate::records::key_limits::{KeyLimits, Period, SpendLimitStatus};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::{MS_PER_DAY, UnixMs};

/// Spending of a key on the last day, and in the last month, with a charge. Earlier amounts are in
/// the usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SpendTotals {
    day: u32,
    on_day: Nanousd,
    /// Months since the year 0.
    month: u32,
    in_month: Nanousd,
}

/// The day of `at`, counted from 1970.
pub(crate) fn day(at: UnixMs) -> u32 {
    u32::try_from(at.0.div_euclid(MS_PER_DAY)).unwrap_or(u32::MAX)
}

fn date(day: u32) -> Date {
    let seconds = i64::from(day).saturating_mul(86_400);
    OffsetDateTime::from_unix_timestamp(seconds).map_or(Date::MAX, OffsetDateTime::date)
}

fn month(day: u32) -> u32 {
    let date = date(day);
    let year = u32::try_from(date.year()).unwrap_or(0);
    year.saturating_mul(12).saturating_add(u32::from(u8::from(date.month()))).saturating_sub(1)
}

/// First day of the month after that of `day`.
fn next_month(day: u32) -> u32 {
    let date = date(day);
    let left = date.month().length(date.year()).saturating_sub(date.day());
    day.saturating_add(u32::from(left)).saturating_add(1)
}

pub(crate) fn begin(day: u32) -> UnixMs {
    UnixMs(u64::from(day).saturating_mul(MS_PER_DAY))
}

/// A day, or a month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub(crate) period: Period,
    /// Days since 1970, or months since the year 0.
    number: u32,
    day: u32,
}

impl Span {
    /// The period that contains a time.
    pub fn of(period: Period, at: UnixMs) -> Self {
        let day = day(at);
        let number = match period {
            Period::Day => day,
            Period::Month => month(day),
        };
        Self { period, number, day }
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (self.period, self.number) == (other.period, other.number)
    }

    /// Its first day that is not in it any more, since 1970.
    pub(crate) fn ends_on(&self) -> u32 {
        match self.period {
            Period::Day => self.day.saturating_add(1),
            Period::Month => next_month(self.day),
        }
    }

    /// End of the period, in Unix seconds.
    pub fn ends_at_s(&self) -> i64 {
        i64::try_from(begin(self.ends_on()).seconds()).unwrap_or(i64::MAX)
    }

    /// Such as `day/2026-11-22` or `month/2026-11`.
    pub(crate) fn name(&self) -> String {
        let date = date(self.day);
        let (year, month) = (date.year(), u8::from(date.month()));
        match self.period {
            Period::Day => format!("day/{year:04}-{month:02}-{:02}", date.day()),
            Period::Month => format!("month/{year:04}-{month:02}"),
        }
    }
}

/// Remaining amount of the tighter limit, and that limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemainingLimit {
    pub(crate) amount: Nanousd,
    pub(crate) capped: SpendLimitStatus,
    /// If this node's share is the limit: the amount that it can still request.
    pub(crate) left: Option<Nanousd>,
}

impl SpendTotals {
    /// Adds a charge. One from before the last day, by a clock that was set back, counts for the last:
    /// no limit is passed for it.
    pub(crate) fn add(&mut self, day: u32, charged: Nanousd) {
        let month = month(day);
        if day > self.day {
            (self.day, self.on_day) = (day, Nanousd::ZERO);
        }
        if month > self.month {
            (self.month, self.in_month) = (month, Nanousd::ZERO);
        }
        self.on_day = self.on_day.saturating_add(charged);
        self.in_month = self.in_month.saturating_add(charged);
    }

    pub(crate) fn in_span(&self, span: Span) -> Nanousd {
        match span.period {
            Period::Day => self.on(span.number),
            Period::Month => self.within(span.number),
        }
    }

    fn on(&self, day: u32) -> Nanousd {
        // Also for an earlier day: a clock that was set back must not open a fresh limit.
        if self.day >= day { self.on_day } else { Nanousd::ZERO }
    }

    fn within(&self, month: u32) -> Nanousd {
        if self.month >= month { self.in_month } else { Nanousd::ZERO }
    }
}

impl KeyLimits {
    /// The limit of a period.
    pub(crate) fn of(&self, period: Period) -> Option<Nanousd> {
        match period {
            Period::Day => self.spend_per_day,
            Period::Month => self.spend_per_month,
        }
    }

    /// True if no spending limit is negative.
    pub(crate) fn are_sound(&self) -> bool {
        let limits = [self.spend_per_day, self.spend_per_month];
        limits.into_iter().flatten().all(|limit| !limit.is_negative())
    }
}

/// Limits and spending of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeySpend {
    pub(crate) limits: KeyLimits,
    pub(crate) spent: SpendTotals,
    /// Sum of the key's open holds.
    pub(crate) held: Nanousd,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn money(nanousd: i64) -> Nanousd {
        Nanousd::new(nanousd)
    }

    #[test]
    fn a_clock_that_is_set_back_gives_no_second_day() {
        let mut spent = SpendTotals::default();
        spent.add(10, money(7));
        spent.add(9, money(5));
        assert_eq!((spent.on(10), spent.on(9), spent.on(11)), (money(12), money(12), money(0)));
    }
}
