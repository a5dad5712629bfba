//! The treasury's rules as a pure state machine: no I/O, no clock.
//!
//! PostgreSQL keeps the rows: a sync there locks those that it touches, puts them into a
//! [`Treasury`], lets this decide, and writes what has changed (`postgres/sync.rs`). The simulation
//! of a fleet runs over a whole one.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::BTreeMap;
use std::time::Duration;

use super::lease::{
    Epoch, JoinResponse, Loan, LoanRequest, SyncRefusal, SyncRequest, SyncResponse, Turn, loan,
};
use tollgate_ledger::{AccountId, CreditChange, CreditFault, CreditState, NodeId, Seq};
use tollgate_ledger::{LeaseReport, LeaseSettlement, Shortfall};
use tollgate_money::money::Nanousd;

/// The terms after which a node counts as silent, from its last sync by the treasury's clock. That is later
/// than by the node's clock, and by so much that the clock of a new primary may differ.
pub const TERMS_WAITED: u32 = 2;
/// The lifetime of a recall: as long as nodes without notifications take to learn of it.
pub const RECALL_FOR: Duration = Duration::from_secs(1);

/// The money of an account, by location. Always `granted = available + leased + held + spent + suspense`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountFunds {
    /// Sum of all credit ever added.
    pub granted: Nanousd,
    /// Money that can be leased.
    pub available: Nanousd,
    /// Leases of nodes.
    pub leased: Nanousd,
    /// Holds of open tasks.
    pub held: Nanousd,
    /// Charges of calls, less refunds.
    pub spent: Nanousd,
    /// Leases of silent nodes.
    pub suspense: Nanousd,
    /// Costs of calls beyond the account's money, which it owes: money that becomes available pays them
    /// first.
    pub debt: Nanousd,
    /// Costs of calls that are no longer owed.
    pub written_off: Nanousd,
    /// The credit line: what of `granted` is lent.
    pub credit: Nanousd,
}

impl AccountFunds {
    /// True if everything adds up, nothing is negative, and no more is lent than was granted (I1, I2).
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let parts = [self.available, self.leased, self.held, self.spent, self.suspense];
        let sum = parts.iter().try_fold(Nanousd::ZERO, |sum, part| sum.checked_add(*part));
        sum == Some(self.granted)
            && parts
                .iter()
                .chain([&self.debt, &self.written_off, &self.credit])
                .all(|part| !part.is_negative())
            && self.credit <= self.granted
    }

    /// The money that a change of the credit line depends on. All leases count as in flight, under holds or
    /// not.
    #[must_use]
    pub fn credit_state(&self) -> CreditState {
        let out = [self.leased, self.held, self.suspense];
        let in_flight = out.into_iter().try_fold(Nanousd::ZERO, Nanousd::checked_add);
        CreditState {
            granted: self.granted,
            available: self.available,
            in_flight: in_flight.unwrap_or(Nanousd::MAX),
            credit: self.credit,
            debt: self.debt,
        }
    }

    /// Pays the debt from the available money.
    fn pay(&mut self) {
        let paid = self.available.min(self.debt);
        shift(&mut self.available, &mut self.spent, paid);
        self.debt = self.debt.saturating_sub(paid);
    }
}

/// The part of a node's lease that operators have taken out of suspense. The treasury keeps it until the
/// node's next sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SuspenseRelease {
    /// The amount made available again.
    pub released: Nanousd,
    /// Amount counted as spent.
    pub charged: Nanousd,
}

/// The treasury's record of a node. Times are relative to any fixed moment.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeRecord {
    pub(super) epoch: Epoch,
    pub(super) turn: Turn,
    pub(super) answer: SyncResponse,
    pub(super) reported: Seq,
    pub(super) term_ends: Duration,
    pub(super) is_suspended: bool,
    pub(super) leases: BTreeMap<AccountId, Nanousd>,
    pub(super) resolved: BTreeMap<AccountId, SuspenseRelease>,
}

/// All money of a fleet, or the part that a sync needs.
#[derive(Clone, Debug, Default)]
pub struct Treasury {
    pub(super) accounts: BTreeMap<AccountId, AccountFunds>,
    pub(super) nodes: BTreeMap<NodeId, NodeRecord>,
    /// Recalled accounts, with the expiry of each recall.
    pub(super) recalls: BTreeMap<AccountId, Duration>,
    /// The last place of the directory.
    pub(super) directory: Seq,
}

/// Moves `amount` between two parts of an account's money. Both are parts of one sum that fits.
fn shift(from: &mut Nanousd, to: &mut Nanousd, amount: Nanousd) {
    *from = from.saturating_sub(amount);
    *to = to.saturating_add(amount);
}

impl Treasury {
    /// The accounts, in their order.
    pub fn accounts(&self) -> impl Iterator<Item = (AccountId, &AccountFunds)> {
        self.accounts.iter().map(|(id, funds)| (*id, funds))
    }

    /// The money of an account.
    #[must_use]
    pub fn funds(&self, account: AccountId) -> Option<&AccountFunds> {
        self.accounts.get(&account)
    }

    /// A node's lease of an account.
    #[must_use]
    pub fn leased(&self, node: NodeId, account: AccountId) -> Nanousd {
        let lease = self.nodes.get(&node).and_then(|node| node.leases.get(&account));
        lease.copied().unwrap_or_default()
    }

    /// The resolved part of a node's lease of an account.
    #[must_use]
    pub fn resolved(&self, node: NodeId, account: AccountId) -> SuspenseRelease {
        let resolved = self.nodes.get(&node).and_then(|node| node.resolved.get(&account));
        resolved.copied().unwrap_or_default()
    }

    /// True if a node's leases are in suspense.
    #[must_use]
    pub fn is_suspended(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.is_suspended)
    }

    /// Adds money to an account, which is created if necessary.
    pub fn grant(&mut self, account: AccountId, amount: Nanousd) {
        let funds = self.accounts.entry(account).or_default();
        funds.granted = funds.granted.saturating_add(amount);
        funds.available = funds.available.saturating_add(amount);
        funds.pay();
    }

    /// Sets the credit line of an account, and returns the moved amounts.
    ///
    /// # Errors
    /// [`CreditFault`]; nothing has moved then.
    pub fn set_credit(
        &mut self,
        account: AccountId,
        limit: Nanousd,
    ) -> Result<CreditChange, CreditFault> {
        // What counts as spent of a silent node's money is the node's again when it is heard of.
        let resolved = self.nodes.values().filter_map(|node| node.resolved.get(&account));
        let charged =
            resolved.fold(Nanousd::ZERO, |sum, resolved| sum.saturating_add(resolved.charged));
        let funds = self.accounts.get_mut(&account).ok_or(CreditFault::Unfit)?;
        let state = funds.credit_state();
        let in_flight = state.in_flight.saturating_add(charged);
        let change = CreditChange::new(limit, CreditState { in_flight, ..state })?;
        let CreditChange { lent, withdrawn, owed, .. } = change;
        let granted = funds.granted.checked_add(lent).ok_or(CreditFault::Unfit)?;
        funds.granted = granted.saturating_sub(withdrawn).saturating_sub(owed);
        let available = funds.available.checked_add(lent).ok_or(CreditFault::Unfit)?;
        funds.available = available.saturating_sub(withdrawn);
        funds.spent = funds.spent.saturating_sub(owed);
        funds.debt = funds.debt.checked_add(owed).ok_or(CreditFault::Unfit)?;
        funds.credit = limit;
        funds.pay();
        Ok(change)
    }

    /// Writes off at most `amount` of an account's debt. Returns the amount.
    pub fn write_off(&mut self, account: AccountId, amount: Nanousd) -> Nanousd {
        let Some(funds) = self.accounts.get_mut(&account) else { return Nanousd::ZERO };
        let given_up = amount.min(funds.debt);
        funds.debt = funds.debt.saturating_sub(given_up);
        funds.written_off = funds.written_off.saturating_add(given_up);
        given_up
    }

    /// Adds a process as a node, or replaces the previous process of the node.
    pub fn join(&mut self, node: NodeId) -> JoinResponse {
        let row = self
            .nodes
            .entry(node)
            .or_insert_with(|| NodeRecord { reported: node.begin(), ..NodeRecord::default() });
        row.epoch = row.epoch.saturating_add(1);
        JoinResponse { epoch: row.epoch, turn: row.turn, reported: row.reported }
    }

    /// Moves the leases of nodes whose term is over to suspense.
    pub fn sweep(&mut self, now: Duration) {
        for node in self.nodes.values_mut() {
            if node.is_suspended || node.term_ends > now {
                continue;
            }
            node.is_suspended = true;
            for (account, amount) in &node.leases {
                if let Some(funds) = self.accounts.get_mut(account) {
                    shift(&mut funds.leased, &mut funds.suspense, *amount);
                }
            }
        }
    }

    /// Applies a sync that arrives at `now` from a node whose term is `term`.
    ///
    /// # Errors
    /// [`SyncRefusal`].
    pub fn sync(
        &mut self,
        sync: &SyncRequest,
        now: Duration,
        term: Duration,
    ) -> Result<SyncResponse, SyncRefusal> {
        let id = sync.node;
        let row = self.nodes.get(&id).ok_or(SyncRefusal::UnknownNode)?;
        if row.epoch != sync.epoch {
            return Err(SyncRefusal::Superseded);
        }
        if row.turn == sync.turn && row.turn > 0 {
            return Ok(row.answer.clone());
        }
        let follows = sync.report.as_ref().is_none_or(|report| report.from == row.reported);
        if row.turn.checked_add(1) != Some(sync.turn) || !follows {
            return Err(SyncRefusal::OutOfOrder { reported: row.reported, turn: row.turn });
        }
        // Decided on a copy: a report that is refused half-way must change nothing.
        let mut next = self.clone();
        next.resume(id, now.saturating_add(term.saturating_mul(TERMS_WAITED)));
        if let Some(report) = &sync.report {
            next.take(id, report)?;
            next.recall_owing(report, now);
        }
        if sync.is_clear {
            next.clear(id);
        }
        let answer = SyncResponse {
            // Behind the report: what it returns can be lent in the same turn.
            loans: next.lend(id, &sync.requests, now)?,
            recalled: next.recalled(id),
            directory: next.directory,
            nodes: next.alive(now),
        };
        if let Some(row) = next.nodes.get_mut(&id) {
            (row.turn, row.answer) = (sync.turn, answer.clone());
        }
        *self = next;
        Ok(answer)
    }

    /// Begins another term. Leases in suspense return to the node, and so does money that operators have
    /// resolved meanwhile, as far as it is available: the node's report is applied as if it had never been
    /// silent.
    fn resume(&mut self, id: NodeId, term_ends: Duration) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        node.term_ends = term_ends;
        if !std::mem::take(&mut node.is_suspended) {
            return;
        }
        for (account, amount) in &node.leases {
            if let Some(funds) = self.accounts.get_mut(account) {
                shift(&mut funds.suspense, &mut funds.leased, *amount);
            }
        }
        for (account, resolved) in std::mem::take(&mut node.resolved) {
            let Some(funds) = self.accounts.get_mut(&account) else { continue };
            let charged = resolved.charged.min(funds.spent);
            let released = resolved.released.min(funds.available);
            shift(&mut funds.spent, &mut funds.leased, charged);
            shift(&mut funds.available, &mut funds.leased, released);
            let back = charged.saturating_add(released);
            if back > Nanousd::ZERO {
                let lease = node.leases.entry(account).or_default();
                *lease = lease.saturating_add(back);
            }
        }
    }

    fn take(&mut self, id: NodeId, report: &LeaseReport) -> Result<(), SyncRefusal> {
        let node = self.nodes.get_mut(&id).ok_or(SyncRefusal::UnknownNode)?;
        node.reported = report.to;
        for settled in report.settled.iter().copied() {
            let LeaseSettlement { account, charged, owed, written_off, returned } = settled;
            let funds = self.accounts.get_mut(&account).ok_or(SyncRefusal::Unsound(account))?;
            let lease = node.leases.entry(account).or_default();
            let paid = charged.min(*lease);
            let back = returned.min(lease.saturating_sub(paid));
            *lease = lease.saturating_sub(paid).saturating_sub(back);
            shift(&mut funds.leased, &mut funds.spent, paid);
            shift(&mut funds.leased, &mut funds.available, back);
            // What was lent covers everything, unless the treasury has forgotten the loan (it was
            // restored, or a standby took over that had not heard of it): the money never left then.
            // Or an operator has released it, and it is gone.
            let charged = charged.saturating_sub(paid);
            let paid = charged.min(funds.available);
            shift(&mut funds.available, &mut funds.spent, paid);
            let unpaid = charged.saturating_sub(paid);
            // An upstream can report anything to several nodes: the sum stays at the end of its range.
            for more in [written_off, unpaid] {
                funds.written_off = funds.written_off.saturating_add(more);
            }
            funds.debt = funds.debt.saturating_add(owed);
            funds.pay();
        }
        node.leases.retain(|_, amount| *amount > Nanousd::ZERO);
        Ok(())
    }

    /// Recalls leases of accounts in debt, to pay the debt.
    fn recall_owing(&mut self, report: &LeaseReport, now: Duration) {
        for settled in &report.settled {
            let funds = self.accounts.get(&settled.account).copied().unwrap_or_default();
            if funds.debt > Nanousd::ZERO && funds.leased > Nanousd::ZERO {
                self.recalls.insert(settled.account, now.saturating_add(RECALL_FOR));
            }
        }
    }

    /// Returns the leases that a node has lost track of.
    fn clear(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        for (account, amount) in std::mem::take(&mut node.leases) {
            if let Some(funds) = self.accounts.get_mut(&account) {
                shift(&mut funds.leased, &mut funds.available, amount);
                funds.pay();
            }
        }
    }

    fn lend(
        &mut self,
        id: NodeId,
        requests: &[LoanRequest],
        now: Duration,
    ) -> Result<Vec<(AccountId, Loan)>, SyncRefusal> {
        let nodes = self.alive(now);
        self.recalls.retain(|_, until| *until > now);
        let mut loans = Vec::with_capacity(requests.len());
        for LoanRequest { account, least, most } in requests.iter().copied() {
            let funds = self.accounts.get_mut(&account).ok_or(SyncRefusal::Unsound(account))?;
            let node = self.nodes.get_mut(&id).ok_or(SyncRefusal::UnknownNode)?;
            let own = node.leases.get(&account).copied().unwrap_or_default();
            // Others wait for it: nobody gets more than a hold needs, or nothing would come together.
            let most = if self.recalls.contains_key(&account) { least } else { most };
            let Some(amount) = loan(funds.available, nodes, least, most) else {
                let elsewhere = funds.leased.saturating_sub(own);
                if least > Nanousd::ZERO && elsewhere > Nanousd::ZERO {
                    self.recalls.insert(account, now.saturating_add(RECALL_FOR));
                }
                let held = funds.held.saturating_add(funds.suspense);
                let (available, debt) = (funds.available, funds.debt);
                let short = Shortfall { available, elsewhere, held, debt };
                loans.push((account, Loan::Shortage(short)));
                continue;
            };
            shift(&mut funds.available, &mut funds.leased, amount);
            let lease = node.leases.entry(account).or_default();
            *lease = lease.saturating_add(amount);
            loans.push((account, Loan::Lent(amount)));
        }
        Ok(loans)
    }

    fn recalled(&self, id: NodeId) -> Vec<AccountId> {
        let leases = self.nodes.get(&id).map(|node| &node.leases);
        let has = |account: &&AccountId| leases.is_some_and(|leases| leases.contains_key(account));
        self.recalls.keys().filter(has).copied().collect()
    }

    fn alive(&self, now: Duration) -> u32 {
        let alive = self.nodes.values().filter(|node| node.term_ends > now).count();
        u32::try_from(alive).unwrap_or(u32::MAX)
    }

    /// Resolves a suspended node's lease of an account for an operator: it becomes available again, or counts
    /// as spent. Returns the amount. A process that still counts it as its own is excluded: it must join
    /// again, which reverts this.
    pub fn resolve(&mut self, node: NodeId, account: AccountId, was_spent: bool) -> Nanousd {
        let row = self.nodes.get_mut(&node).filter(|node| node.is_suspended);
        let Some(node) = row else { return Nanousd::ZERO };
        let Some(amount) = node.leases.remove(&account) else { return Nanousd::ZERO };
        node.epoch = node.epoch.saturating_add(1);
        if let Some(funds) = self.accounts.get_mut(&account) {
            let to = if was_spent { &mut funds.spent } else { &mut funds.available };
            shift(&mut funds.suspense, to, amount);
            funds.pay();
        }
        let resolved = node.resolved.entry(account).or_default();
        let total = if was_spent { &mut resolved.charged } else { &mut resolved.released };
        *total = total.saturating_add(amount);
        amount
    }
}

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "a test adds small figures")]
mod tests;
