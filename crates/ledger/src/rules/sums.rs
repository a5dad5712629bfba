//! Sums over the accounts of a core, kept with each change: no reader passes over the accounts.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use crate::rules::account::{Account, Balance, Totals};
use tollgate_money::money::Nanousd;

/// The parts of an account that are summed up, in the order of [`parts`].
const PARTS: usize = 8;

/// Exact sums over accounts. An `i128` cannot overflow: 2^64 accounts with the largest amounts fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AccountSums {
    accounts: usize,
    sums: [i128; PARTS],
}

/// The summed parts of an account with this balance.
fn parts(balance: &Balance, written_off: Nanousd) -> [Nanousd; PARTS] {
    let Balance { granted, available, held, spent, debt, credit } = *balance;
    [granted, available, held, spent, debt, credit, balance.credit_used(), written_off]
}

impl AccountSums {
    /// Adds a new account and its balance.
    pub(crate) fn insert(&mut self, account: &Account) {
        self.accounts = self.accounts.saturating_add(1);
        let parts = parts(&account.balance, account.written_off);
        for (sum, part) in self.sums.iter_mut().zip(parts) {
            *sum = sum.saturating_add(part.get().into());
        }
    }

    /// Takes an account out.
    pub(crate) fn remove(&mut self, account: &Account) {
        self.accounts = self.accounts.saturating_sub(1);
        let parts = parts(&account.balance, account.written_off);
        for (sum, part) in self.sums.iter_mut().zip(parts) {
            *sum = sum.saturating_sub(part.get().into());
        }
    }

    /// Replaces the figures of `account`, which is in the sums, with these.
    pub(crate) fn update(&mut self, account: &Account, balance: &Balance, written_off: Nanousd) {
        let before = parts(&account.balance, account.written_off);
        let after = parts(balance, written_off);
        for ((sum, before), after) in self.sums.iter_mut().zip(before).zip(after) {
            let change = i128::from(after.get()).saturating_sub(before.get().into());
            *sum = sum.saturating_add(change);
        }
    }

    /// Adds the sums of another core.
    pub(crate) fn add(&mut self, other: &Self) {
        self.accounts = self.accounts.saturating_add(other.accounts);
        for (sum, more) in self.sums.iter_mut().zip(other.sums) {
            *sum = sum.saturating_add(more);
        }
    }

    /// The sums as amounts. No part is negative, so that one past the range stays at its end.
    pub(crate) fn totals(&self) -> Totals {
        let amount = |sum: i128| i64::try_from(sum).map_or(Nanousd::MAX, Nanousd::new);
        let [granted, available, held, spent, debt, credit, credit_used, written_off] =
            self.sums.map(amount);
        Totals {
            accounts: self.accounts,
            balance: Balance { granted, available, held, spent, debt, credit },
            credit_used,
            written_off,
        }
    }
}
