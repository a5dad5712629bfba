//! Time resolution of usage: hours or days of UTC.

use std::ops::Range;

use tollgate_types::clock::{MS_PER_DAY, MS_PER_HOUR, UnixMs};

/// Time resolution of usage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// Buckets of an hour each.
    Hour,
    /// By the day of UTC.
    Day,
}

impl Grain {
    pub(crate) fn ms(self) -> u64 {
        match self {
            Self::Hour => MS_PER_HOUR,
            Self::Day => MS_PER_DAY,
        }
    }

    /// The hour or day of `at`, counted from 1970.
    pub(crate) fn number(self, at: UnixMs) -> u32 {
        u32::try_from(at.0 / self.ms()).unwrap_or(u32::MAX)
    }

    /// The first millisecond of an hour or day counted from 1970.
    pub(crate) fn begin(self, number: u32) -> UnixMs {
        UnixMs(u64::from(number).saturating_mul(self.ms()))
    }

    /// The hours or days that `range` touches.
    pub(crate) fn touched(self, range: &Range<UnixMs>) -> Range<u32> {
        let last = UnixMs(range.end.0.saturating_sub(1));
        self.number(range.start)..self.number(last).saturating_add(1)
    }
}
