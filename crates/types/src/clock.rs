//! The one place that asks what time it is.
//!
//! Wall-clock time goes into records and logs; durations are measured with [`std::time::Instant`].

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Milliseconds in an hour.
pub const MS_PER_HOUR: u64 = 3_600_000;
/// Milliseconds in a day of UTC, which has no leap seconds here.
pub const MS_PER_DAY: u64 = 24 * MS_PER_HOUR;

/// A moment, in milliseconds since 1970-01-01T00:00:00Z.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct UnixMs(pub u64);

impl UnixMs {
    /// Now, by the system's clock. A clock set before 1970 reads as 1970.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the clock that the ban points to")]
    pub fn now() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Of seconds and a rest: milliseconds in 128 bits take as long as the clock takes to be read.
        let whole_ms = since_epoch.as_secs().saturating_mul(1000);
        Self(whole_ms.saturating_add(since_epoch.subsec_millis().into()))
    }

    /// Whole seconds since 1970.
    #[must_use]
    pub fn seconds(self) -> u64 {
        self.0 / 1000
    }

    /// RFC 3339 in UTC with milliseconds, `2026-01-31T12:00:00.123Z`. Past the year 9999: the number.
    #[must_use]
    pub fn to_rfc3339(self) -> String {
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000_000)
            .ok()
            .and_then(|time| time.format(&Rfc3339).ok())
            .unwrap_or_else(|| self.0.to_string())
    }

    /// Reads RFC 3339 with any offset. `None` if it is not that, or before 1970.
    #[must_use]
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
        u64::try_from(time.unix_timestamp_nanos() / 1_000_000).ok().map(Self)
    }
}

/// Time since boot, suspend included. A lease ends on time although the machine slept, when
/// [`std::time::Instant`] would have stood still.
#[must_use]
pub fn uptime() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = rustix::time::ClockId::Boottime;
    // Elsewhere the monotonic clock is the one that goes on.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = rustix::time::ClockId::Monotonic;
    let time = rustix::time::clock_gettime(clock);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3339_round_trip() {
        let time = UnixMs(1_769_860_800_123);
        assert_eq!(time.to_rfc3339(), "2026-01-31T12:00:00.123Z");
        assert_eq!(UnixMs::parse_rfc3339("2026-01-31T13:00:00.123+01:00"), Some(time));
        assert_eq!(UnixMs::parse_rfc3339("yesterday"), None);
    }
}
