//! How many counts are under way at each upstream, and of each account there.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Counts under way at one upstream: providers limit them apart from paid calls, and answer within
/// tenths of a second.
const UPSTREAM_MAX: usize = 32;
/// Counts of one account among them, so that none takes all.
const ACCOUNT_MAX: usize = 8;

/// The counts that are under way.
#[derive(Clone, Debug, Default)]
pub(super) struct CountsUnderWay(Arc<Mutex<HashMap<String, Vec<u64>>>>);

/// A count that is under way until this is dropped.
#[derive(Debug)]
pub(super) struct CountUnderWay {
    all: CountsUnderWay,
    upstream: String,
    account: u64,
}

impl CountsUnderWay {
    /// A place for a count at an upstream for an account; `None` where all of them are taken.
    pub(super) fn begin(&self, upstream: &str, account: u64) -> Option<CountUnderWay> {
        let mut all = self.0.lock();
        let accounts = all.entry(upstream.to_owned()).or_default();
        let own = accounts.iter().filter(|other| **other == account).count();
        if accounts.len() >= UPSTREAM_MAX || own >= ACCOUNT_MAX {
            return None;
        }
        accounts.push(account);
        Some(CountUnderWay { all: self.clone(), upstream: upstream.to_owned(), account })
    }
}

impl Drop for CountUnderWay {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        let Some(accounts) = all.get_mut(&self.upstream) else { return };
        if let Some(at) = accounts.iter().position(|account| *account == self.account) {
            accounts.swap_remove(at);
        }
        if accounts.is_empty() {
            all.remove(&self.upstream);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_its_share_and_an_upstream_its_limit() {
        let all = CountsUnderWay::default();
        let mut begun: Vec<_> = (0..ACCOUNT_MAX).map(|_| all.begin("a", 1)).collect();
        assert!(begun.iter().all(Option::is_some));
        assert!(all.begin("a", 1).is_none(), "its share");
        assert!(all.begin("b", 1).is_some(), "another upstream");
        begun.extend(
            (2..=4).flat_map(|account| [account; ACCOUNT_MAX]).map(|one| all.begin("a", one)),
        );
        assert!(begun.iter().all(Option::is_some));
        assert!(all.begin("a", 5).is_none(), "as many as may be");
        begun.pop();
        assert!(all.begin("a", 5).is_some());
        begun.clear();
        assert!(all.0.lock().is_empty(), "nothing is left behind");
    }
}
