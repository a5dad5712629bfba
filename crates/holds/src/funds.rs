//! Funds of an account, and the allowance of one call.

use tollgate_money::money::Nanousd;

/// Funds of an account, read from its balance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Funds {
    /// Money that no open hold covers, the unused part of the credit line among it.
    pub available: Nanousd,
    /// Money that the holds of calls in flight cover; most of it comes back when they end.
    pub held: Nanousd,
    /// The unused part of the account's credit line.
    pub unused_credit: Nanousd,
}

/// Allowance of one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Its fair share of all that the account has.
    pub share: Nanousd,
    /// Money that no open hold covers.
    pub available: Nanousd,
    /// All money of the account, if every call in flight ended without a charge.
    pub total: Nanousd,
}

impl Funds {
    /// Allowance of one of `parallel` calls, of which `deciding` have no hold yet, itself included.
    ///
    /// The share of a call is an equal part of what all of them have, but never so much that those
    /// without a hold could not have as much each.
    #[must_use]
    pub fn allowance(&self, parallel: u64, deciding: u64, with_credit: bool) -> Allowance {
        let credit = if with_credit { Nanousd::ZERO } else { self.unused_credit };
        let all = self.available.saturating_add(self.held);
        let total = all.saturating_sub(credit).max(Nanousd::ZERO);
        let available = self.available.saturating_sub(credit).max(Nanousd::ZERO);
        let share = part(total, parallel).min(part(available, deciding));
        Allowance { share, available, total }
    }
}

/// An equal share of `amount`, rounded down.
fn part(amount: Nanousd, parts: u64) -> Nanousd {
    let parts = i64::try_from(parts.max(1)).unwrap_or(i64::MAX);
    Nanousd::new(amount.get().checked_div(parts).unwrap_or(0))
}

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "a test adds small figures")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn money(nanousd: i64) -> Nanousd {
        Nanousd::new(nanousd)
    }

    #[test]
    fn parallel_calls_have_equal_parts_of_all_there_is() {
        let funds = Funds { available: money(500), held: money(300), unused_credit: money(100) };
        let allowance = funds.allowance(8, 5, true);
        assert_eq!(
            (allowance.share, allowance.available, allowance.total),
            (money(100), money(500), money(800))
        );
        let own = funds.allowance(8, 5, false);
        assert_eq!((own.share, own.available, own.total), (money(80), money(400), money(700)));
        assert_eq!(
            funds.allowance(1, 1, true).share,
            money(500),
            "a lone call has all that is free"
        );
        assert_eq!(funds.allowance(0, 0, true).share, money(500));
        let drawn = Funds { available: money(50), held: money(0), unused_credit: money(100) };
        assert_eq!(drawn.allowance(1, 1, false).available, Nanousd::ZERO);
    }

    proptest! {
        #[test]
        fn shares_never_exceed_what_is_there(
            available in 0..i64::MAX, held in 0..i64::MAX, credit in 0..i64::MAX,
            deciding in 1..100_u64, flying in 0..100_u64, with_credit: bool,
        ) {
            let funds = Funds {
                available: money(available), held: money(held), unused_credit: money(credit),
            };
            let allowance = funds.allowance(deciding + flying, deciding, with_credit);
            let all = allowance.share.get().checked_mul(i64::try_from(deciding).expect("few"));
            prop_assert!(all.is_some_and(|all| all <= allowance.available.get()));
            prop_assert!(allowance.share >= Nanousd::ZERO);
            prop_assert!(allowance.available <= allowance.total);
        }
    }
}
