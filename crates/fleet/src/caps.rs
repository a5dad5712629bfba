//! Shares of a key's spending limit among the nodes of a fleet: pure, decided under the lock of the key's
//! row.
//!
//! A share is what a node may have spent and held in the period, from its beginning: it grows as the
//! node spends. What is unused of it goes back when the key is not used there, or when another node
//! lacks it. What a lost node had counts as spent until the period ends.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use tollgate_ledger::{CapGrant, CapRequest};
use tollgate_money::money::Nanousd;

/// A node's share of a spending limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCapShare {
    /// The bound of its spending and holds.
    pub share: Nanousd,
    /// Its spending.
    pub spent: Nanousd,
    /// The holds of its calls.
    pub held: Nanousd,
    /// Amount that its calls recently waited for in vain.
    pub lacks: Nanousd,
}

fn less(left: Nanousd, right: Nanousd) -> Nanousd {
    left.saturating_sub(right).max(Nanousd::ZERO)
}

impl NodeCapShare {
    fn unused(&self) -> Nanousd {
        less(self.share, self.spent.saturating_add(self.held))
    }
}

/// Decides one node's sync about one spending limit: its new row, and the grant. `previous` is its row, if it
/// has one; `nodes` is the number of nodes.
#[must_use]
pub fn settle(
    others: &[NodeCapShare],
    previous: Option<NodeCapShare>,
    request: &CapRequest,
    nodes: u32,
) -> (NodeCapShare, CapGrant) {
    let of_others = |part: fn(&NodeCapShare) -> Nanousd| {
        others.iter().map(part).fold(Nanousd::ZERO, Nanousd::saturating_add)
    };
    let previous = previous.map_or(Nanousd::ZERO, |row| row.share);
    let used = request.spent.saturating_add(request.held);
    // What was used was used, whatever the limit is now.
    let keeps = request.share.unwrap_or(previous).min(previous).max(used);
    let free = less(less(request.cap, of_others(|row| row.share)), keeps);
    let lacks = |amount: Nanousd| match amount {
        Nanousd::ZERO => Nanousd::ZERO,
        amount => less(used.saturating_add(amount), keeps),
    };
    let (least, waits) = (lacks(request.least), lacks(request.waits));
    let part = free.get().checked_div(i64::from(nodes.max(1)).saturating_mul(2)).unwrap_or(0);
    let ahead =
        less(less(used.saturating_add(request.ahead), keeps), waits).min(Nanousd::new(part));
    // What does not reach for one call is left to the others.
    let more = if least > free { Nanousd::ZERO } else { waits.saturating_add(ahead).min(free) };
    let row = NodeCapShare {
        share: keeps.saturating_add(more),
        spent: request.spent,
        held: request.held,
        lacks: less(waits, more),
    };
    let free = less(free, more);
    let grant = CapGrant {
        share: row.share,
        left: free.saturating_add(of_others(NodeCapShare::unused)),
        is_missed: of_others(|row| row.lacks) > free,
        spent_elsewhere: of_others(|row| row.spent),
        held_elsewhere: of_others(|row| less(row.share, row.spent)),
    };
    (row, grant)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_ledger::{AccountId, KeyId, Period, Span};
    use tollgate_types::clock::UnixMs;

    fn usd(amount: i64) -> Nanousd {
        Nanousd::new(amount)
    }

    fn request(cap: i64, share: Option<i64>, used: i64, waits: &[i64]) -> CapRequest {
        CapRequest {
            account: AccountId::from_number(1),
            key: KeyId::from_number(1),
            period: "day/2026-11-22".to_owned(),
            span: Span::of(Period::Day, UnixMs(0)),
            cap: usd(cap),
            share: share.map(usd),
            spent: usd(used),
            held: Nanousd::ZERO,
            least: usd(waits.iter().min().copied().unwrap_or(0)),
            waits: usd(waits.iter().sum()),
            ahead: Nanousd::ZERO,
        }
    }

    #[test]
    fn calls_that_wait_get_what_there_is() {
        let (row, grant) = settle(&[], None, &request(100, None, 0, &[10, 10, 10]), 3);
        assert_eq!((row.share, grant.share, grant.left), (usd(30), usd(30), usd(70)));
        let other = NodeCapShare { share: usd(85), spent: usd(60), ..NodeCapShare::default() };
        let (row, grant) = settle(&[other], None, &request(100, None, 0, &[10, 10, 10]), 3);
        assert_eq!((row.share, row.lacks), (usd(15), usd(15)), "all that is free");
        assert_eq!(
            (grant.left, grant.spent_elsewhere, grant.held_elsewhere),
            (usd(25), usd(60), usd(25))
        );
        let (row, _) = settle(&[other], None, &request(100, None, 0, &[16, 20]), 3);
        assert_eq!(row.share, usd(0), "it would not reach for one call");
        let (_, grant) = settle(&[row], Some(other), &request(100, Some(85), 60, &[]), 3);
        assert!(grant.is_missed, "the other waits for it");
    }

    #[test]
    fn what_is_ahead_is_a_part_of_what_is_free() {
        let ahead = |cap, ahead| {
            let request = CapRequest { ahead: usd(ahead), ..request(cap, None, 0, &[5]) };
            settle(&[], None, &request, 3).0.share.get()
        };
        assert_eq!((ahead(600, 60), ahead(600, 6000), ahead(6, 6000)), (60, 105, 6));
    }

    #[test]
    fn a_share_shrinks_to_what_was_used_and_no_further() {
        let previous = NodeCapShare { share: usd(50), ..NodeCapShare::default() };
        let settled =
            |share, used| settle(&[], Some(previous), &request(60, share, used, &[]), 1).0.share;
        assert_eq!(settled(Some(20), 20), usd(20));
        assert_eq!(settled(None, 20), usd(50), "after a start it has what it had");
        assert_eq!(settled(Some(70), 20), usd(50), "and no more");
        assert_eq!(settled(Some(50), 80), usd(80), "what was used was used");
    }
}
