//! The messages between a node and the treasury about money: numbered [`SyncRequest`]s, each applied once
//! however often it is sent.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use serde::{Deserialize, Serialize};

use tollgate_ledger::{AccountId, LeaseReport, NodeId, Seq, Shortfall};
use tollgate_money::money::Nanousd;

/// A node's number among the joins of its identity: each process that joins as a node has one more
/// than the one before, which is shut out by it.
pub type Epoch = u64;
/// A node's syncs, counted.
pub type Turn = u64;

/// A node's message to the treasury: one transaction. An unanswered one is sent again unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SyncRequest {
    /// The node that makes the sync.
    pub node: NodeId,
    /// Number of the node's join.
    pub epoch: Epoch,
    /// Number of the sync, one more than that of the previous one.
    pub turn: Turn,
    /// Changes of leased money since the last report.
    pub report: Option<LeaseReport>,
    /// True if the node has no leased money left: any lease that the treasury still counts was lost in
    /// transit.
    pub is_clear: bool,
    /// Accounts that the node needs money of, in their order.
    pub requests: Vec<LoanRequest>,
}

/// A node needs money of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoanRequest {
    /// The account to lend money of.
    pub account: AccountId,
    /// The smallest useful loan: the shortfall of one hold. Zero if no call waits.
    pub least: Nanousd,
    /// Maximum useful amount.
    pub most: Nanousd,
}

/// The treasury's response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncResponse {
    /// The outcome of each loan request, in their order.
    pub loans: Vec<(AccountId, Loan)>,
    /// Accounts that another node is short of: what is not needed of them should come back.
    pub recalled: Vec<AccountId>,
    /// The last place of the directory.
    pub directory: Seq,
    /// Nodes in their term.
    pub nodes: u32,
}

/// The outcome of a loan request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Loan {
    /// The loan.
    Lent(Nanousd),
    /// The account has not enough.
    Shortage(Shortfall),
}

/// A sync that the treasury rejects. It has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncRefusal {
    /// The node does not exist.
    UnknownNode,
    /// Another process has joined as this node.
    Superseded,
    /// The report does not follow the last one, or the turn the last turn.
    OutOfOrder {
        /// The last record that the treasury has.
        reported: Seq,
        /// Last turn of the node.
        turn: Turn,
    },
    /// A reported or requested account does not exist, or its money does not add up.
    Unsound(AccountId),
}

/// The state of a node when it joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinResponse {
    /// Its new epoch.
    pub epoch: Epoch,
    /// The last turn of the node.
    pub turn: Turn,
    /// The last record of its journal that the treasury has.
    pub reported: Seq,
}

/// The size of a loan for a node that needs at least `least` and at most `most`, from `available` among so
/// many nodes; `None` if the account has too little. A node gets at most half of its part, so that the others
/// find some too; when money is short, exactly what one hold needs.
#[must_use]
pub fn loan(available: Nanousd, nodes: u32, least: Nanousd, most: Nanousd) -> Option<Nanousd> {
    let shares = i64::from(nodes.max(1)).saturating_mul(2);
    let part = Nanousd::new(available.get().checked_div(shares).unwrap_or(0));
    let amount = most.min(part).max(least);
    (amount <= available && amount > Nanousd::ZERO).then_some(amount)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loan_is_half_a_part_and_at_least_a_hold() {
        let usd = Nanousd::new;
        let of = |available, nodes, least, most| {
            loan(usd(available), nodes, usd(least), usd(most)).map(Nanousd::get)
        };
        assert_eq!(of(600, 3, 1, 50), Some(50), "what is asked for");
        assert_eq!(of(600, 3, 1, 500), Some(100), "half of a third");
        assert_eq!(of(600, 3, 150, 500), Some(150), "one hold");
        assert_eq!(of(600, 3, 600, 900), Some(600), "all of it");
        assert_eq!(of(600, 3, 601, 900), None, "not enough for the hold");
        assert_eq!(of(5, 3, 0, 10), None, "nobody waits, and a sixth of it is nothing");
        assert_eq!(of(600, 0, 1, 900), Some(300), "alone");
    }
}
