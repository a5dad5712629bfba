//! The order in which states of idle connections are evicted.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

/// All idle states of a budget in the order of eviction: accounts without money first, then the account with
/// the most memory; within an account the largest state, and the oldest of equal ones.
#[derive(Default)]
pub(crate) struct IdleStates(Mutex<EvictionIndex>);

/// The account that a state belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StateOwner {
    /// Number of the account; 0 for none.
    pub(crate) account: u64,
    /// The account has money available, and so pays for what it does with the state.
    pub(crate) is_funded: bool,
}

impl StateOwner {
    /// Owner of a share without an account.
    pub(crate) const NOBODY: Self = Self { account: 0, is_funded: true };
}

/// The states among which some are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EvictionScope {
    /// States of all accounts, in their order.
    All,
    /// States of accounts without money.
    Unfunded,
    /// States of the account with this number.
    Account(u64),
}

/// A state that can be evicted. The budget cannot name its type, which belongs to modules above.
pub(crate) trait Evict: Send + Sync {
    /// Drops the state with its share, unless its connection has taken it meanwhile.
    fn evict(&self);
}

/// Size of a state, in bytes, and its number: the greatest is evicted first.
pub(crate) type StateKey = (usize, Reverse<u64>);

/// Eviction order of an account: unfunded, bytes, number. The greatest is evicted first.
type AccountRank = (bool, usize, u64);

#[derive(Default)]
struct EvictionIndex {
    accounts: HashMap<u64, AccountStates>,
    order: BTreeSet<AccountRank>,
    bytes: usize,
    /// Bytes of accounts without money.
    unfunded_bytes: usize,
    numbers: u64,
}

#[derive(Default)]
struct AccountStates {
    is_unfunded: bool,
    bytes: usize,
    states: BTreeMap<StateKey, Arc<dyn Evict>>,
}

impl AccountStates {
    fn rank(&self, account: u64) -> AccountRank {
        (self.is_unfunded, self.bytes, account)
    }
}

impl EvictionIndex {
    /// Changes what an account has, and its place in the order with it.
    fn change<R>(&mut self, account: u64, change: impl FnOnce(&mut AccountStates) -> R) -> R {
        let of_account = self.accounts.entry(account).or_default();
        let before = of_account.rank(account);
        let changed = change(of_account);
        let after = of_account.rank(account);
        let unfunded = |rank: AccountRank| if rank.0 { rank.1 } else { 0 };
        self.bytes = self.bytes + after.1 - before.1;
        self.unfunded_bytes = self.unfunded_bytes + unfunded(after) - unfunded(before);
        if of_account.states.is_empty() {
            self.accounts.remove(&account);
            self.order.remove(&before);
        } else if before != after || !self.order.contains(&after) {
            self.order.remove(&before);
            self.order.insert(after);
        }
        changed
    }

    fn insert(&mut self, owner: StateOwner, bytes: usize, state: Arc<dyn Evict>) -> StateKey {
        let key = (bytes, Reverse(self.numbers));
        self.numbers += 1;
        self.change(owner.account, |of_account| {
            // The balance at the last state is the one that is known best.
            of_account.is_unfunded = !owner.is_funded;
            of_account.bytes += bytes;
            of_account.states.insert(key, state);
        });
        key
    }

    fn remove(&mut self, account: u64, key: &StateKey) -> Option<Arc<dyn Evict>> {
        if !self.accounts.contains_key(&account) {
            return None;
        }
        self.change(account, |of_account| {
            let state = of_account.states.remove(key)?;
            of_account.bytes -= key.0;
            Some(state)
        })
    }

    fn bytes_of(&self, whose: EvictionScope) -> usize {
        match whose {
            EvictionScope::All => self.bytes,
            EvictionScope::Unfunded => self.unfunded_bytes,
            EvictionScope::Account(account) => {
                self.accounts.get(&account).map_or(0, |of_account| of_account.bytes)
            }
        }
    }

    /// The state to be evicted next, and its size.
    fn pop(&mut self, whose: EvictionScope) -> Option<(usize, Arc<dyn Evict>)> {
        let account = match whose {
            EvictionScope::Account(account) => account,
            EvictionScope::All => self.order.last()?.2,
            EvictionScope::Unfunded => self.order.last().filter(|rank| rank.0)?.2,
        };
        let key = *self.accounts.get(&account)?.states.last_key_value()?.0;
        Some((key.0, self.remove(account, &key)?))
    }
}

impl IdleStates {
    /// Adds a state of so many `bytes`, and returns its key.
    pub(crate) fn insert(
        &self,
        owner: StateOwner,
        bytes: usize,
        state: Arc<dyn Evict>,
    ) -> StateKey {
        self.0.lock().insert(owner, bytes, state)
    }

    /// Removes the state with this key of an account; `None` once it was evicted.
    pub(crate) fn remove(&self, account: u64, key: &StateKey) -> Option<Arc<dyn Evict>> {
        self.0.lock().remove(account, key)
    }

    /// Bytes of all states.
    pub(crate) fn bytes(&self) -> usize {
        self.0.lock().bytes
    }

    /// Evicts states until `bytes` are free; returns their number. `None`, and nothing is evicted, where all
    /// of them are not enough.
    pub(crate) fn evict(&self, bytes: usize, whose: EvictionScope) -> Option<usize> {
        let mut index = self.0.lock();
        if index.bytes_of(whose) < bytes {
            return None;
        }
        let (mut free, mut evicted) = (0_usize, Vec::new());
        while free < bytes {
            let Some((size, state)) = index.pop(whose) else { break };
            free += size;
            evicted.push(state);
        }
        drop(index);
        // Large blocks are unmapped here, which takes longer than all of the above.
        evicted.iter().for_each(|state| state.evict());
        Some(evicted.len())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    struct EvictionProbe(u64, Arc<Mutex<Vec<u64>>>);

    impl Evict for EvictionProbe {
        fn evict(&self) {
            self.1.lock().push(self.0);
        }
    }

    fn add(index: &IdleStates, account: u64, is_funded: bool, bytes: usize, state: EvictionProbe) {
        index.0.lock().insert(StateOwner { account, is_funded }, bytes, Arc::new(state));
    }

    #[test]
    fn who_does_not_pay_gives_way_first_then_who_has_the_most() {
        let (index, noted) = (IdleStates::default(), Arc::<Mutex<Vec<u64>>>::default());
        for (name, account, is_funded, bytes) in [
            (1, 1, true, 30),
            (2, 2, true, 50),
            (3, 2, true, 50),
            (4, 3, false, 1),
            (5, 1, true, 60),
            (6, 3, false, 2),
        ] {
            add(&index, account, is_funded, bytes, EvictionProbe(name, Arc::clone(&noted)));
        }
        let names = || std::mem::take(&mut *noted.lock());
        assert_eq!(index.evict(194, EvictionScope::All), None, "there are 193");
        assert_eq!(
            (index.evict(3, EvictionScope::Unfunded), names()),
            (Some(2), vec![6, 4]),
            "without money"
        );
        assert_eq!(
            (index.evict(1, EvictionScope::All), names()),
            (Some(1), vec![2]),
            "the older one of the most"
        );
        assert_eq!(
            (index.evict(61, EvictionScope::All), names()),
            (Some(2), vec![5, 3]),
            "then 90 against 50"
        );
        assert_eq!(
            index.evict(1, EvictionScope::Account(2)),
            None,
            "the account has none any more"
        );
        assert_eq!((index.evict(30, EvictionScope::Account(1)), names()), (Some(1), vec![1]));
        let index = index.0.lock();
        assert!(index.accounts.is_empty() && index.order.is_empty() && index.bytes == 0);
    }

    #[test]
    fn ten_thousand_states_are_kept_and_evicted_within_milliseconds() {
        let (index, noted) = (IdleStates::default(), Arc::default());
        for (name, bytes) in (0..10_000).zip((1..=7).cycle()) {
            add(&index, name % 100, true, bytes, EvictionProbe(name, Arc::clone(&noted)));
        }
        let begun = Instant::now();
        for _ in 0..1_000 {
            assert!(index.evict(1, EvictionScope::All).is_some());
        }
        let each = begun.elapsed() / 1_000;
        // 2 µs in a release build; tests are built without optimizations.
        assert!(each.as_micros() < 1_000, "{each:?} each");
    }
}
