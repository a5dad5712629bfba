//! How often somebody may try to log in: from one address, and at one name.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

/// Tries at once: a person who mistypes, and a family or office behind one address.
const AT_ONCE: u32 = 10;
/// After those, one in this time.
const EVERY: Duration = Duration::from_secs(30);
/// Subjects that are remembered before those that have not tried lately are forgotten.
const REMEMBERED_MAX: usize = 50_000;

/// Counts tries. Nothing is remembered over a restart.
pub(crate) struct Attempts {
    limiter: DefaultKeyedRateLimiter<String>,
}

impl Default for Attempts {
    /// As many tries as somebody needs who mistypes a password.
    fn default() -> Self {
        Self::new(AT_ONCE, EVERY)
    }
}

impl Attempts {
    /// So many tries at once, and after those one in each `every`.
    pub(crate) fn new(at_once: u32, every: Duration) -> Self {
        let at_once = NonZeroU32::new(at_once).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::with_period(every).unwrap_or(Quota::per_minute(NonZeroU32::MIN));
        Self { limiter: RateLimiter::keyed(quota.allow_burst(at_once)) }
    }

    /// Whether one more try from `address` at `name` may be made. It counts for both either way.
    /// Where there is one name only, none is given: nobody can then keep others out.
    pub(crate) fn may_try(&self, address: Option<IpAddr>, name: Option<&str>) -> bool {
        if self.limiter.len() > REMEMBERED_MAX {
            self.limiter.retain_recent();
        }
        // Names are told apart from addresses, and a long one costs no more than a short one.
        let from = address.map(|address| format!("from {}", network(address)));
        let at = name.map(|name| format!("at {}", name.chars().take(254).collect::<String>()));
        let (from, at) = (self.count(from), self.count(at));
        // Past that many, somebody is trying from everywhere: nobody gets in for a moment.
        from && at && self.limiter.len() <= REMEMBERED_MAX.saturating_mul(2)
    }

    fn count(&self, subject: Option<String>) -> bool {
        subject.is_none_or(|subject| self.limiter.check_key(&subject).is_ok())
    }
}

/// What one customer has: an IPv4 address, or an IPv6 network of 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 64 << 64).into()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_are_bounded_by_address_and_by_name() {
        let attempts = Attempts::default();
        let address = |text: &str| Some(text.parse::<IpAddr>().expect("an address"));
        for number in 0..AT_ONCE {
            assert!(attempts.may_try(address("2001:db8::1"), Some(&format!("name {number}"))));
        }
        assert!(!attempts.may_try(address("2001:db8::2"), Some("another")), "the same network");
        assert!(attempts.may_try(address("192.0.2.1"), Some("another")), "another network");
        let attempts = Attempts::default();
        for number in 0..AT_ONCE {
            assert!(attempts.may_try(address(&format!("192.0.2.{number}")), Some("name")));
        }
        assert!(!attempts.may_try(address("192.0.2.99"), Some("name")), "one name from everywhere");
        assert!(attempts.may_try(address("192.0.2.99"), Some("another")));
    }
}
