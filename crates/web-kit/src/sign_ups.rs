//! Rate limits of sign-ups: by address, by site, and in all.

use std::net::IpAddr;
use std::time::Duration;

use super::attempts::{AT_ONCE, TryCounter, customer, site};

/// After the first ones, an address opens one in this time.
const EVERY: Duration = Duration::from_secs(120);
/// Accounts at once from one site.
const SITE_AT_ONCE: u32 = 30;
const SITE_EVERY: Duration = Duration::from_secs(60);
/// Accounts at once of everybody: an announcement brings many people, and each account stays in the
/// ledger for ever.
const ALL_AT_ONCE: u32 = 100;
const ALL_EVERY: Duration = Duration::from_secs(10);
/// Interval in which a site that has opened no account may open one although others have used up the total.
const FIRST_EVERY: Duration = Duration::from_secs(3600);
const FIRST_AT_ONCE: u32 = 1_000;
const FIRST_ALL_EVERY: Duration = Duration::from_secs(2);

/// Counts accounts that are opened. Nothing is remembered over a restart.
pub struct SignUps {
    customers: TryCounter<IpAddr>,
    sites: TryCounter<IpAddr>,
    all: TryCounter<()>,
    first: TryCounter<IpAddr>,
    all_first: TryCounter<()>,
}

/// A reserved sign-up, which counts unless it is returned.
#[must_use]
pub struct SignUpPlace<'a> {
    sign_ups: &'a SignUps,
    /// The site whose first one it is.
    first: Option<IpAddr>,
}

impl Default for SignUps {
    fn default() -> Self {
        Self {
            customers: TryCounter::new(AT_ONCE, EVERY),
            sites: TryCounter::new(SITE_AT_ONCE, SITE_EVERY),
            all: TryCounter::new(ALL_AT_ONCE, ALL_EVERY),
            first: TryCounter::new(1, FIRST_EVERY),
            all_first: TryCounter::new(FIRST_AT_ONCE, FIRST_ALL_EVERY),
        }
    }
}

impl SignUps {
    /// A place for one more, if there is one for this address. Who is refused takes none of others'.
    pub fn begin(&self, address: Option<IpAddr>) -> Option<SignUpPlace<'_>> {
        let (customer, site) = (customer(address), site(address));
        if !self.customers.take(customer) {
            return None;
        }
        if !self.sites.take(site) {
            self.customers.give_back(customer);
            return None;
        }
        let place = |first| SignUpPlace { sign_ups: self, first };
        if self.all.take(()) {
            return Some(place(None));
        }
        // Others have used up the total: a site's first account of the hour comes from a reserve, so that a
        // flood cannot close the sign-up for newcomers.
        if self.first.take(site) {
            if self.all_first.take(()) {
                return Some(place(Some(site)));
            }
            self.first.give_back(site);
        }
        self.sites.give_back(site);
        self.customers.give_back(customer);
        None
    }
}

impl SignUpPlace<'_> {
    /// An account was created.
    pub fn keep(self) {}

    /// Returns the reservation of an unsuccessful sign-up, except for the attempts of the address and its
    /// site.
    pub fn give_back(self) {
        match self.first {
            None => self.sign_ups.all.give_back(()),
            Some(site) => {
                self.sign_ups.all_first.give_back(());
                self.sign_ups.first.give_back(site);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(sign_ups: &SignUps, address: &str) -> usize {
        let address = Some(address.parse().expect("an address"));
        (0..200).map_while(|_| sign_ups.begin(address)).count()
    }

    #[test]
    fn ten_addresses_stop_nobody_else() {
        let sign_ups = SignUps::default();
        let of_ten: usize = (0..10).map(|net| opened(&sign_ups, &format!("203.0.{net}.1"))).sum();
        assert_eq!(of_ten, ALL_AT_ONCE as usize, "ten each");
        for net in 0..100 {
            assert_eq!(opened(&sign_ups, &format!("198.51.{net}.1")), 1, "a newcomer");
            assert_eq!(opened(&sign_ups, &format!("198.51.{net}.2")), 0, "the same site");
        }
        assert_eq!(opened(&sign_ups, "203.0.1.1"), 0);
    }

    #[test]
    fn a_site_has_its_share() {
        let sign_ups = SignUps::default();
        let of_one: usize =
            (0..100).map(|host| opened(&sign_ups, &format!("2001:db8:1:{host}::1"))).sum();
        assert_eq!(of_one, SITE_AT_ONCE as usize);
    }

    #[test]
    fn what_opens_no_account_counts_for_its_address_alone() {
        let sign_ups = SignUps::default();
        for net in 0..100 {
            for _ in 0..AT_ONCE {
                let address = Some(format!("203.0.{net}.1").parse().expect("an address"));
                sign_ups.begin(address).expect("a try at a code").give_back();
            }
            assert_eq!(opened(&sign_ups, &format!("203.0.{net}.1")), 0, "it has tried enough");
        }
        assert_eq!(opened(&sign_ups, "198.51.100.1"), AT_ONCE as usize);
    }
}
