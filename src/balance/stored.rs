//! What upstreams keep for accounts: which credential made it.
//!
//! Upstreams know all accounts as one, so an id is worth nothing here unless the account itself was
//! given it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::memory::{Bounds, Memory};

/// OpenAI keeps responses for 30 days (its API reference, "Conversation state").
const TIME: Duration = Duration::from_secs(30 * 86_400);
/// Ids of all accounts together: some 50 MB.
const IDS_MAX: usize = 500_000;
/// Ids of one account.
const ACCOUNT_IDS_MAX: usize = 50_000;

/// Where something is kept: an upstream, with one of its credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home(pub(super) u64);

/// What upstreams keep for accounts.
#[derive(Debug)]
pub(super) struct Stored(Memory<Home>);

impl Default for Stored {
    fn default() -> Self {
        let (time, all_max, account_max) = (TIME, IDS_MAX, ACCOUNT_IDS_MAX);
        Self(Memory::new(Bounds { time, all_max, account_max }))
    }
}

impl Stored {
    /// Where that is kept which the account was given this id for.
    pub(super) fn home(&self, account: u64, id: &str, now: Instant) -> Option<Home> {
        self.0.get(account, id, now)
    }
}

/// Notes what an upstream keeps of one answer.
#[derive(Clone, Debug)]
pub struct Keeper {
    pub(super) stored: Arc<Stored>,
    pub(super) account: u64,
    pub(super) home: Home,
}

impl Keeper {
    /// The upstream keeps something with this id.
    pub fn keep(&self, id: &str, now: Instant) {
        self.stored.0.put(self.account, id, self.home, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_known_to_the_account_that_was_given_it() {
        let (stored, now) = (Arc::<Stored>::default(), Instant::now());
        let keeper = Keeper { stored: Arc::clone(&stored), account: 1, home: Home(7) };
        keeper.keep("resp_1", now);
        assert_eq!(stored.home(1, "resp_1", now), Some(Home(7)));
        assert_eq!(stored.home(2, "resp_1", now), None, "nobody reads another's");
        assert_eq!(stored.home(1, "resp_1", now + TIME), None);
    }
}
