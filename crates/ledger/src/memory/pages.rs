//! Pages of accounts and keys, cut from ordered indexes: a page costs what it shows, not what there is.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use crate::memory::Ledger;
use crate::records::key::Key;
use crate::rules::account::Account;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, KeyId};

/// Place of an account in lists: its creation, then its id.
pub(crate) type AccountPlace = (UnixMs, AccountId);

/// Place of an account in lists, which are ordered by creation.
pub(crate) fn place(account: &Account) -> AccountPlace {
    (account.created_at, account.id)
}

/// Place of a key in the lists of all accounts: its account, its creation, then its id.
pub(crate) type KeyPlace = (AccountId, UnixMs, KeyId);

/// The first and the last place that a key of this account can have.
fn all_keys_of(account: AccountId) -> (KeyPlace, KeyPlace) {
    let end = (account, UnixMs(u64::MAX), KeyId::from_number(u64::MAX));
    ((account, UnixMs(0), KeyId::from_number(0)), end)
}

/// Accounts that a search looks at before it lets go of the index: it must not keep writers waiting.
const SEARCHED_AT_ONCE: usize = 512;

/// Direction of a list of accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListOrder {
    /// By creation, the oldest first.
    OldestFirst,
    /// By creation, the newest first.
    NewestFirst,
}

impl Ledger {
    /// The first `limit` accounts that `fits` accepts behind `after` in this order, or from the beginning of
    /// the list. Each account is looked at once, and locked for that moment only; where few fit, all are
    /// looked at, so that such a search belongs on a thread that serves no requests. In a fleet the money of
    /// the accounts is what this node has: see [`Ledger::with_figures`].
    #[must_use]
    pub fn list_accounts(
        &self,
        order: ListOrder,
        after: Option<&Account>,
        limit: usize,
        mut fits: impl FnMut(&Account) -> bool,
    ) -> Vec<Account> {
        let mut found = Vec::new();
        let mut after = after.map(place);
        // Where all fit, the first step is the page and no more is copied.
        let mut step = limit.min(SEARCHED_AT_ONCE);
        while found.len() < limit {
            let places = self.account_places(order, after, step);
            let Some(last) = places.last() else { break };
            after = Some(*last);
            for (_, id) in places {
                if found.len() == limit {
                    break;
                }
                // A place is noted just before its account is made, under the lock that this takes. It is free
                // again for `fits`, which may look into the shard itself.
                found.extend(self.account(id).filter(|account| fits(account)));
            }
            step = SEARCHED_AT_ONCE;
        }
        found
    }

    /// At most `limit` keys of an account, oldest first, behind the place of `after` or from the beginning.
    #[must_use]
    pub fn list_keys(
        &self,
        account: AccountId,
        after: Option<&Key>,
        limit: usize,
    ) -> Vec<Arc<Key>> {
        let (first, last) = all_keys_of(account);
        let begin = match after {
            Some(key) => Bound::Excluded((account, key.created_at, key.id)),
            None => Bound::Included(first),
        };
        let keys = self.keys.read();
        let places = keys.by_account.range((begin, Bound::Included(last))).take(limit);
        places.filter_map(|(_, _, id)| keys.by_id.get(id).cloned()).collect()
    }

    /// At most `limit` keys of an account, newest first.
    #[must_use]
    pub fn newest_keys(&self, account: AccountId, limit: usize) -> Vec<Arc<Key>> {
        let (first, last) = all_keys_of(account);
        let keys = self.keys.read();
        let places = keys.by_account.range(first..=last).rev().take(limit);
        places.filter_map(|(_, _, id)| keys.by_id.get(id).cloned()).collect()
    }

    /// Number of an account's keys, revoked ones included.
    #[must_use]
    pub fn key_count(&self, account: AccountId) -> usize {
        self.shard(account).lock().key_count(account)
    }

    /// The next places in this order. The lock of the index is free again when it returns: the shards, which
    /// writers lock first, must not be locked under it.
    fn account_places(
        &self,
        order: ListOrder,
        after: Option<AccountPlace>,
        limit: usize,
    ) -> Vec<AccountPlace> {
        let places: &BTreeSet<AccountPlace> = &self.account_places.read();
        let excluded = after.map_or(Bound::Unbounded, Bound::Excluded);
        match order {
            ListOrder::OldestFirst => {
                places.range((excluded, Bound::Unbounded)).take(limit).copied().collect()
            }
            ListOrder::NewestFirst => {
                places.range((Bound::Unbounded, excluded)).rev().take(limit).copied().collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;
    use crate::{NewKey, Options};

    /// The way without an index: everything sorted, then cut.
    fn cut(
        mut accounts: Vec<Account>,
        order: ListOrder,
        after: Option<&Account>,
        limit: usize,
        fits: impl Fn(&Account) -> bool,
    ) -> Vec<Account> {
        accounts.sort_by_key(place);
        if order == ListOrder::NewestFirst {
            accounts.reverse();
        }
        let begin = after.and_then(|after| accounts.iter().position(|it| it.id == after.id));
        let begin = begin.map_or(0, |at| at.saturating_add(1));
        accounts.into_iter().skip(begin).filter(|it| fits(it)).take(limit).collect()
    }

    /// Makes accounts at one time, so that many have one time of creation and their ids decide.
    async fn make(ledger: &Arc<Ledger>, count: u32) {
        let mut making = JoinSet::new();
        for number in 0..count {
            let ledger = Arc::clone(ledger);
            making.spawn(async move { ledger.create_account(&number.to_string()).await });
        }
        for made in making.join_all().await {
            made.expect("creates");
        }
    }

    #[tokio::test]
    async fn pages_are_those_that_sorting_everything_gives() {
        let seed = fastrand::u64(..);
        let mut random = fastrand::Rng::with_seed(seed);
        let dir = tempfile::tempdir().expect("a directory");
        for is_reopened in [false, true] {
            // The second time the index comes from the files.
            let (ledger, _) = Ledger::open(Options::new(dir.path())).expect("opens");
            make(&ledger, if is_reopened { 20 } else { 1_200 }).await;
            let all = ledger.accounts();
            for round in 0..100 {
                let order = *random
                    .choice(&[ListOrder::OldestFirst, ListOrder::NewestFirst])
                    .expect("an order");
                let after = random.bool().then(|| &all[random.usize(..all.len())]);
                let (limit, divisor) = (random.usize(0..1_300), random.u64(1..60));
                let fits = |it: &Account| it.name.parse::<u64>().is_ok_and(|n| n % divisor == 0);
                let page = ledger.list_accounts(order, after, limit, fits);
                let expected = cut(all.clone(), order, after, limit, fits);
                assert_eq!(page, expected, "seed {seed}, round {round}, {is_reopened}");
            }
            ledger.close();
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_walk_through_all_pages_misses_nobody_while_others_are_made() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ledger, _) = Ledger::open(Options::new(dir.path())).expect("opens");
        make(&ledger, 300).await;
        let before: Vec<_> = ledger.accounts().iter().map(|account| account.id).collect();
        let making = tokio::spawn({
            let ledger = Arc::clone(&ledger);
            async move { make(&ledger, 300).await }
        });
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = ledger.list_accounts(ListOrder::OldestFirst, after.as_ref(), 7, |_| true);
            let Some(last) = page.last() else { break };
            after = Some(last.clone());
            seen.extend(page);
            tokio::task::yield_now().await;
        }
        making.await.expect("makes them");
        assert!(seen.windows(2).all(|pair| place(&pair[0]) < place(&pair[1])), "in order, once");
        let kept: Vec<_> = seen.iter().map(|it| it.id).filter(|id| before.contains(id)).collect();
        assert_eq!(kept, before, "all that there were");
        assert_eq!(ledger.list_accounts(ListOrder::OldestFirst, None, 1_000, |_| true).len(), 600);
        ledger.close();
    }

    #[tokio::test]
    async fn keys_are_listed_by_account() {
        let dir = tempfile::tempdir().expect("a directory");
        let (ledger, _) = Ledger::open(Options::new(dir.path())).expect("opens");
        make(&ledger, 3).await;
        let mut making = JoinSet::new();
        for account in ledger.accounts() {
            for _ in 0..40 {
                let ledger = Arc::clone(&ledger);
                let new = NewKey { name: "k".to_owned(), ..NewKey::default() };
                making.spawn(async move { ledger.create_key(account.id, new).await });
            }
        }
        for made in making.join_all().await {
            made.expect("creates");
        }
        for account in ledger.accounts() {
            let all = ledger.keys_of(account.id);
            let (mut seen, mut after): (Vec<Arc<Key>>, Option<Arc<Key>>) = (Vec::new(), None);
            loop {
                let page = ledger.list_keys(account.id, after.as_deref(), 9);
                let Some(last) = page.last() else { break };
                after = Some(Arc::clone(last));
                seen.extend(page);
            }
            assert_eq!(seen, all);
            assert_eq!(ledger.key_count(account.id), 40);
            let newest: Vec<_> = all.into_iter().rev().take(7).collect();
            assert_eq!(ledger.newest_keys(account.id, 7), newest);
        }
        ledger.close();
    }
}
