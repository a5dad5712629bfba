//! Days in UTC, by which both sides are compared.

use std::fmt;

use tollgate_types::clock::{MS_PER_DAY, UnixMs};

/// A day in UTC, counted from 1970-01-01.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(u32);

/// Seconds in a day.
const SECONDS_PER_DAY: u64 = 86_400;
/// The last day that is read, 9999-12-31.
const DAY_MAX: u32 = 2_932_896;

impl Day {
    /// The day with this number; `None` past the year 9999.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        (number <= DAY_MAX).then_some(Self(number))
    }

    /// The day in which a moment is.
    #[must_use]
    pub fn at(moment: UnixMs) -> Option<Self> {
        Self::from_number(u32::try_from(moment.0.checked_div(MS_PER_DAY)?).ok()?)
    }

    /// Reads a date such as `2026-01-31`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_date = text.len() == "2026-01-31".len();
        Self::at(UnixMs::parse_rfc3339(&format!("{text}T00:00:00Z")).filter(|_| is_date)?)
    }

    /// The day behind this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The day in which a bucket from `start` to `end` is, in seconds since 1970; `None` where it is
    /// empty, or reaches into another day.
    pub(crate) fn around(start: u64, end: u64) -> Option<Self> {
        let number = start.checked_div(SECONDS_PER_DAY)?;
        // The end is exclusive: midnight belongs to the next day.
        let last = end.checked_sub(1)?.checked_div(SECONDS_PER_DAY)?;
        if end <= start || last != number {
            return None;
        }
        Self::from_number(u32::try_from(number).ok()?)
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moment = UnixMs(u64::from(self.0).saturating_mul(MS_PER_DAY)).to_rfc3339();
        f.write_str(moment.get(..10).unwrap_or(&moment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_read_and_print_the_same_value() {
        for text in ["1970-01-01", "2024-02-29", "2026-01-31", "9999-12-31"] {
            assert_eq!(Day::parse(text).expect(text).to_string(), text);
        }
        for text in ["", "2026-1-1", "2026-02-30", "2026-01-01T00:00:00Z", "1969-12-31", "today"] {
            assert_eq!(Day::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_bucket_is_within_one_day() {
        let day = Day::parse("2026-01-01").expect("a day");
        let start = 1_767_225_600;
        assert_eq!(Day::around(start, start + 86_400), Some(day));
        assert_eq!(Day::around(start + 3_600, start + 7_200), Some(day));
        assert_eq!(Day::around(start, start + 86_401), None, "a second too long");
        assert_eq!(Day::around(start - 1, start + 1), None, "over midnight");
        assert_eq!(Day::around(start, start), None, "empty");
        assert_eq!(Day::around(u64::MAX - 1, u64::MAX), None, "past all years");
    }
}
