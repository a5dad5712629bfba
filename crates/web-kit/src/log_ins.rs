//! Rate limits of password attempts: by address, by name, and by device where the owner has logged in before.
//!
//! Only wrong passwords count: a try is taken before a password is compared, since many come at one
//! time, and given back when it was right. Whoever wants to keep somebody out has these in their way:
//!
//! - An address that has no try left is turned away before anything else is counted.
//! - One site has at most [`AT_ONCE`] of the [`NAME_AT_ONCE`] tries at a name, and one in
//!   [`NAME_FROM_EVERY`] after that, which is half of what the name gets back: it alone shuts no name.
//! - A known device has tries of its own, whatever others do at its address or name.
//!
//! Names that have no login are counted apart from those that have one, and in the same way: the answer
//! does not tell which have, and no flood of them lets a count of the others be forgotten.

use std::net::IpAddr;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::attempts::{AT_ONCE, EVERY, TryCounter, customer, site};
use super::device::DeviceId;
use tollgate_types::secret::random_bytes;

/// Tries at once from one site, of which an IPv6 network of 48 bits has 65,536 customers: no more
/// passwords are compared for them all than this.
const SITE_AT_ONCE: u32 = 100;
const SITE_EVERY: Duration = Duration::from_secs(3);
/// Tries at one name at once, from everywhere.
const NAME_AT_ONCE: u32 = 50;
/// After its first tries at a name, a site has one in this time.
const NAME_FROM_EVERY: Duration = Duration::from_secs(60);
/// Log-ins of one name at once that are right: comparing those takes as long.
const RIGHT_AT_ONCE: u32 = 20;

/// A name, hashed: a long one takes no more room than a short one.
type NameMark = [u8; 16];

/// Tries at names of one kind.
struct NameTries {
    all: TryCounter<NameMark>,
    from: TryCounter<(NameMark, IpAddr)>,
}

impl Default for NameTries {
    fn default() -> Self {
        Self {
            all: TryCounter::new(NAME_AT_ONCE, EVERY),
            from: TryCounter::new(AT_ONCE, NAME_FROM_EVERY),
        }
    }
}

/// Counts tries at passwords. Nothing is remembered over a restart.
pub struct LogIns {
    customers: TryCounter<IpAddr>,
    sites: TryCounter<IpAddr>,
    existing: NameTries,
    unknown: NameTries,
    devices: TryCounter<DeviceId>,
    right: TryCounter<NameMark>,
    salt: [u8; 16],
}

/// A login attempt.
#[derive(Clone, Copy, Debug)]
pub struct Trying<'a> {
    /// The address that they call from; `None` where it is not known.
    pub address: Option<IpAddr>,
    /// With which name, in one spelling.
    pub name: &'a str,
    /// True if the name has a login.
    pub has_login: bool,
    /// The device, if they were logged in there before.
    pub device: Option<DeviceId>,
}

/// An attempt, which counts unless it is forgotten.
#[must_use]
pub struct Try<'a> {
    log_ins: &'a LogIns,
    name: NameMark,
    taken: TakenTries,
}

#[derive(Clone, Copy)]
enum TakenTries {
    Of(DeviceId),
    From { customer: IpAddr, site: IpAddr, has_login: bool },
}

impl Default for LogIns {
    fn default() -> Self {
        Self {
            customers: TryCounter::default(),
            sites: TryCounter::new(SITE_AT_ONCE, SITE_EVERY),
            existing: NameTries::default(),
            unknown: NameTries::default(),
            devices: TryCounter::default(),
            right: TryCounter::new(RIGHT_AT_ONCE, EVERY),
            salt: random_bytes(),
        }
    }
}

impl LogIns {
    /// A try, if there may be one more.
    pub fn begin(&self, trying: Trying<'_>) -> Option<Try<'_>> {
        let name = self.mark(trying.name);
        let taken = match trying.device {
            Some(device) => self.devices.take(device).then_some(TakenTries::Of(device)),
            None => self.take_anywhere(name, trying),
        };
        let begun = Try { log_ins: self, name, taken: taken? };
        // Right passwords cost a hash as well: who knows one could keep the pool busy with it.
        if self.right.has_room(name) {
            return Some(begun);
        }
        begun.forget();
        None
    }

    /// Uses an attempt of each limit in turn. The first exhausted limit is returned before later ones are
    /// charged.
    fn take_anywhere(&self, name: NameMark, trying: Trying<'_>) -> Option<TakenTries> {
        let (customer, site) = (customer(trying.address), site(trying.address));
        let names = self.names(trying.has_login);
        if !self.customers.take(customer) {
            return None;
        }
        if !self.sites.take(site) {
            self.customers.give_back(customer);
            return None;
        }
        let may = names.from.take((name, site));
        if may && names.all.take(name) {
            return Some(TakenTries::From { customer, site, has_login: trying.has_login });
        }
        if may {
            names.from.give_back((name, site));
        }
        self.sites.give_back(site);
        self.customers.give_back(customer);
        None
    }

    fn names(&self, has_login: bool) -> &NameTries {
        if has_login { &self.existing } else { &self.unknown }
    }

    /// Salted hash of a name, so that nobody can search for two names with the same hash.
    fn mark(&self, name: &str) -> NameMark {
        let digest = Sha256::new().chain_update(self.salt).chain_update(name).finalize();
        let mut mark = [0; 16];
        mark.copy_from_slice(&digest[..16]);
        mark
    }
}

impl Try<'_> {
    /// The password was wrong.
    pub fn was_wrong(self) {}

    /// The password was right.
    pub fn was_right(self) {
        // Has room, or had it a moment ago.
        let _had_room = self.log_ins.right.take(self.name);
        self.forget();
    }

    /// Returns the attempt: no password was compared.
    pub fn forget(self) {
        let LogIns { customers, sites, devices, .. } = self.log_ins;
        match self.taken {
            TakenTries::Of(device) => devices.give_back(device),
            TakenTries::From { customer, site, has_login } => {
                let names = self.log_ins.names(has_login);
                names.all.give_back(self.name);
                names.from.give_back((self.name, site));
                sites.give_back(site);
                customers.give_back(customer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from<'a>(address: &str, name: &'a str) -> Trying<'a> {
        let address = Some(address.parse().expect("an address"));
        Trying { address, name, has_login: true, device: None }
    }

    /// True if an attempt with a wrong password was allowed.
    fn guess(log_ins: &LogIns, trying: Trying<'_>) -> bool {
        log_ins.begin(trying).is_some()
    }

    /// Guesses until there is no more, and says how many there were.
    fn guess_all(log_ins: &LogIns, trying: Trying<'_>) -> u32 {
        (0..1_000).find(|_| !guess(log_ins, trying)).expect("an end")
    }

    #[test]
    fn an_address_that_is_refused_counts_against_nobody() {
        let log_ins = LogIns::default();
        assert_eq!(guess_all(&log_ins, from("192.0.2.1", "anybody")), AT_ONCE);
        for _ in 0..10_000 {
            assert!(!guess(&log_ins, from("192.0.2.1", "victim")));
        }
        assert_eq!(guess_all(&log_ins, from("198.51.100.1", "victim")), AT_ONCE, "as if untried");
    }

    #[test]
    fn one_site_shuts_no_name_and_many_do() {
        let log_ins = LogIns::default();
        for host in 0..100 {
            guess_all(&log_ins, from(&format!("2001:db8:1:{host}::1"), "victim"));
        }
        assert!(guess(&log_ins, from("198.51.100.1", "victim")), "all of one /48");
        for site in 0..10 {
            guess_all(&log_ins, from(&format!("203.0.{site}.1"), "victim"));
        }
        assert!(!guess(&log_ins, from("198.51.100.2", "victim")), "without an end to guesses");
        assert!(guess(&log_ins, from("198.51.100.2", "another")));
        // Who was there before is not kept out, nor may they guess for ever.
        let device = |name| Trying { device: Some([7; 16]), ..from("203.0.0.1", name) };
        assert_eq!(guess_all(&log_ins, device("victim")), AT_ONCE);
    }

    #[test]
    fn one_network_has_no_end_of_customers_and_an_end_of_tries() {
        let log_ins = LogIns::default();
        let tries = (0..50).map(|host| {
            guess_all(&log_ins, from(&format!("2001:db8:1:{host}::1"), &format!("name {host}")))
        });
        assert_eq!(tries.sum::<u32>(), SITE_AT_ONCE);
    }

    #[test]
    fn right_passwords_do_not_count() {
        let log_ins = LogIns::default();
        for number in 0..100 {
            let name = format!("name {number}");
            let begun = log_ins.begin(from("192.0.2.1", &name)).expect("an office");
            begun.was_right();
        }
        assert_eq!(guess_all(&log_ins, from("192.0.2.1", "name 1")), AT_ONCE);
        // Comparing them is work: nobody has it done without end.
        let right = (0..1_000)
            .map_while(|_| log_ins.begin(from("192.0.2.2", "another")))
            .map(Try::was_right);
        assert_eq!(right.count(), RIGHT_AT_ONCE as usize);
        for _ in 0..100 {
            log_ins.begin(from("192.0.2.3", "name 3")).expect("nothing was compared").forget();
        }
    }

    #[test]
    fn names_without_a_login_are_refused_alike() {
        let allowed = |has_login| {
            let log_ins = LogIns::default();
            let addresses = (0..80).map(|number| format!("192.0.{}.{}", number / 10, number % 10));
            let allowed = addresses.map(|address| {
                guess_all(&log_ins, Trying { has_login, ..from(&address, "somebody") })
            });
            allowed.collect::<Vec<_>>()
        };
        assert_eq!(allowed(true), allowed(false), "the bounds tell who has a login");
        assert_eq!(allowed(true).iter().sum::<u32>(), NAME_AT_ONCE);
    }

    /// The flood that kept everybody out: more names than are remembered, from a few addresses.
    #[test]
    fn a_flood_of_names_locks_nobody_out() {
        let log_ins = LogIns::default();
        for number in 0..108_000 {
            let name = format!("name {number}");
            let address = format!("192.0.2.{}", number % 4);
            let trying = Trying { has_login: false, ..from(&address, &name) };
            guess(&log_ins, trying);
        }
        let kept = [&log_ins.unknown, &log_ins.existing].map(|names| names.all.len());
        assert_eq!(kept, [4 * AT_ONCE as usize, 0], "who is refused leaves nothing");
        for number in 0..1_000 {
            let (address, name) = (format!("198.51.{}.1", number % 250), format!("own {number}"));
            assert!(guess(&log_ins, from(&address, &name)), "{name}");
        }
    }
}
