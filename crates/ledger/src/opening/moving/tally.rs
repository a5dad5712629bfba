//! Tallies of both sides of a move. A move is valid only if they are equal.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::projection::window::UsageTotal;
use tollgate_money::money::Nanousd;
use tollgate_types::ids::AccountId;

/// Tally of an account, or of all accounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountTally {
    /// Sum of all credit ever added.
    pub granted: Nanousd,
    /// Sum of available money.
    pub available: Nanousd,
    /// Amount held by open tasks.
    pub held: Nanousd,
    /// Cost of calls, less refunds.
    pub spent: Nanousd,
    /// Debt of the account.
    #[serde(default)]
    pub debt: Nanousd,
    /// The credit line, which is a part of `granted`.
    #[serde(default)]
    pub credit: Nanousd,
    /// Cost of calls that was written off.
    pub written_off: Nanousd,
    /// Keys, whatever became of them.
    pub keys: u64,
    /// Number of grants to accounts.
    pub grants: u64,
    /// Number of refunds to accounts.
    pub refunds: u64,
    /// Number of write-offs of debts.
    #[serde(default)]
    pub write_offs: u64,
    /// Number of possible losses of the operator.
    #[serde(default)]
    pub losses: u64,
    /// Calls in doubt that nobody has looked into.
    pub doubts: u64,
    /// Number of tasks, open and ended.
    pub tasks: u64,
    /// Lines of the statement.
    pub lines: u64,
    /// Number of settled calls.
    pub calls: u64,
    /// Amount of these losses.
    pub cost: Nanousd,
    /// All units that they used, whatever they are.
    pub units: u64,
}

/// Tallies of one side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tallies {
    /// Tallies of the single accounts, by id.
    pub accounts: BTreeMap<AccountId, AccountTally>,
    /// Number of codes that operators have issued.
    pub codes: u64,
    /// Number of uses of codes.
    pub uses: u64,
}

impl AccountTally {
    /// Adds usage.
    pub fn add_usage(&mut self, total: &UsageTotal) {
        self.calls = self.calls.saturating_add(total.calls);
        self.cost = [total.charged, total.owed, total.written_off]
            .into_iter()
            .fold(self.cost, Nanousd::saturating_add);
        self.units = total.usage.counts().into_iter().fold(self.units, u64::saturating_add);
    }

    fn add(&mut self, other: &Self) {
        for (mine, more) in [
            (&mut self.granted, other.granted),
            (&mut self.available, other.available),
            (&mut self.held, other.held),
            (&mut self.spent, other.spent),
            (&mut self.debt, other.debt),
            (&mut self.credit, other.credit),
            (&mut self.written_off, other.written_off),
            (&mut self.cost, other.cost),
        ] {
            *mine = mine.saturating_add(more);
        }
        for (mine, more) in [
            (&mut self.keys, other.keys),
            (&mut self.grants, other.grants),
            (&mut self.refunds, other.refunds),
            (&mut self.write_offs, other.write_offs),
            (&mut self.losses, other.losses),
            (&mut self.doubts, other.doubts),
            (&mut self.tasks, other.tasks),
            (&mut self.lines, other.lines),
            (&mut self.calls, other.calls),
            (&mut self.units, other.units),
        ] {
            *mine = mine.saturating_add(more);
        }
    }
}

impl Tallies {
    /// Sum over all accounts.
    #[must_use]
    pub fn total(&self) -> AccountTally {
        let mut total = AccountTally::default();
        self.accounts.values().for_each(|tally| total.add(tally));
        total
    }

    /// The tally of an account.
    pub fn of(&mut self, account: AccountId) -> &mut AccountTally {
        self.accounts.entry(account).or_default()
    }

    /// Differences of the two sides, in words; empty if there are none.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let ids: BTreeSet<_> = self.accounts.keys().chain(other.accounts.keys()).collect();
        let differ = ids.into_iter().filter_map(|id| {
            let (one, two) = (self.accounts.get(id), other.accounts.get(id));
            (one != two).then(|| format!("{id}: {one:?} is not {two:?}"))
        });
        let mut found: Vec<_> = differ.collect();
        if (self.codes, self.uses) != (other.codes, other.uses) {
            found.push(format!(
                "{} codes with {} uses are not {} with {}",
                self.codes, self.uses, other.codes, other.uses
            ));
        }
        found
    }
}
