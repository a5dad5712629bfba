//! How what a key may spend in a period is divided among the nodes of a fleet: pure, and decided under
//! the lock of the key's row.
//!
//! A share is what a node may have spent and held in the period, from its beginning: it grows as the
//! node spends. What is unused of it goes back when the key is not used there, or when another node
//! lacks it. What a lost node had counts as spent until the period ends.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use tollgate_ledger::{CapAsk, CapTold};
use tollgate_money::money::Nanousd;

/// What a node has of a limit of spending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapShare {
    /// What it may have spent and held.
    pub share: Nanousd,
    /// What it has spent.
    pub spent: Nanousd,
    /// What is held for its calls.
    pub held: Nanousd,
    /// What its calls waited for in vain a moment ago.
    pub lacks: Nanousd,
}

fn sum(left: Nanousd, right: Nanousd) -> Nanousd {
    left.checked_add(right).unwrap_or(Nanousd::MAX)
}

fn less(left: Nanousd, right: Nanousd) -> Nanousd {
    left.saturating_sub(right).max(Nanousd::ZERO)
}

impl CapShare {
    fn unused(&self) -> Nanousd {
        less(self.share, sum(self.spent, self.held))
    }
}

/// One node's exchange about one limit of spending: its row from now on, and what it is told. `had` is
/// its row, if it has one; `nodes` is how many there are.
#[must_use]
pub fn settle(
    others: &[CapShare],
    had: Option<CapShare>,
    ask: &CapAsk,
    nodes: u32,
) -> (CapShare, CapTold) {
    let of_others =
        |part: fn(&CapShare) -> Nanousd| others.iter().map(part).fold(Nanousd::ZERO, sum);
    let had = had.map_or(Nanousd::ZERO, |row| row.share);
    let used = sum(ask.spent, ask.held);
    // What was used was used, whatever the limit is now.
    let keeps = ask.share.unwrap_or(had).min(had).max(used);
    let free = less(less(ask.cap, of_others(|row| row.share)), keeps);
    let lacks = |amount: Nanousd| match amount {
        Nanousd::ZERO => Nanousd::ZERO,
        amount => less(sum(used, amount), keeps),
    };
    let (least, waits) = (lacks(ask.least), lacks(ask.waits));
    let part = free.get().checked_div(i64::from(nodes.max(1)).saturating_mul(2)).unwrap_or(0);
    let ahead = less(less(sum(used, ask.ahead), keeps), waits).min(Nanousd::new(part));
    // What does not reach for one call is left to the others.
    let more = if least > free { Nanousd::ZERO } else { sum(waits, ahead).min(free) };
    let row = CapShare {
        share: sum(keeps, more),
        spent: ask.spent,
        held: ask.held,
        lacks: less(waits, more),
    };
    let free = less(free, more);
    let told = CapTold {
        share: row.share,
        left: sum(free, of_others(CapShare::unused)),
        is_missed: of_others(|row| row.lacks) > free,
        spent_elsewhere: of_others(|row| row.spent),
        held_elsewhere: of_others(|row| less(row.share, row.spent)),
    };
    (row, told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_ledger::{AccountId, KeyId, Period, Span};
    use tollgate_types::clock::UnixMs;

    fn usd(amount: i64) -> Nanousd {
        Nanousd::new(amount)
    }

    fn ask(cap: i64, share: Option<i64>, used: i64, waits: &[i64]) -> CapAsk {
        CapAsk {
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
        let (row, told) = settle(&[], None, &ask(100, None, 0, &[10, 10, 10]), 3);
        assert_eq!((row.share, told.share, told.left), (usd(30), usd(30), usd(70)));
        let other = CapShare { share: usd(85), spent: usd(60), ..CapShare::default() };
        let (row, told) = settle(&[other], None, &ask(100, None, 0, &[10, 10, 10]), 3);
        assert_eq!((row.share, row.lacks), (usd(15), usd(15)), "all that is free");
        assert_eq!(
            (told.left, told.spent_elsewhere, told.held_elsewhere),
            (usd(25), usd(60), usd(25))
        );
        let (row, _) = settle(&[other], None, &ask(100, None, 0, &[16, 20]), 3);
        assert_eq!(row.share, usd(0), "it would not reach for one call");
        let (_, told) = settle(&[row], Some(other), &ask(100, Some(85), 60, &[]), 3);
        assert!(told.is_missed, "the other waits for it");
    }

    #[test]
    fn what_is_ahead_is_a_part_of_what_is_free() {
        let ahead = |cap, ahead| {
            let ask = CapAsk { ahead: usd(ahead), ..ask(cap, None, 0, &[5]) };
            settle(&[], None, &ask, 3).0.share.get()
        };
        assert_eq!((ahead(600, 60), ahead(600, 6000), ahead(6, 6000)), (60, 105, 6));
    }

    #[test]
    fn a_share_shrinks_to_what_was_used_and_no_further() {
        let had = CapShare { share: usd(50), ..CapShare::default() };
        let settled = |share, used| settle(&[], Some(had), &ask(60, share, used, &[]), 1).0.share;
        assert_eq!(settled(Some(20), 20), usd(20));
        assert_eq!(settled(None, 20), usd(50), "after a start it has what it had");
        assert_eq!(settled(Some(70), 20), usd(50), "and no more");
        assert_eq!(settled(Some(50), 80), usd(80), "what was used was used");
    }
}
