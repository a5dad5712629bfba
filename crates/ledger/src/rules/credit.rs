//! Credit lines: money that the operator lends an account.
//!
//! What is lent is a part of the account's money like any other, so that it can be held, leased and
//! spent by the same rules. The account's own money counts as spent first.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use crate::records::record::Record;
use crate::rules::account::Balance;
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::AccountId;

/// The money of an account that a change of its line looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreditState {
    /// Sum of all money added or lent.
    pub granted: Nanousd,
    /// Money that no call holds.
    pub available: Nanousd,
    /// Money that calls hold, or that nodes of a fleet have out.
    pub in_flight: Nanousd,
    /// Current credit line.
    pub credit: Nanousd,
    /// The debt of the account.
    pub debt: Nanousd,
}

/// The reason that a credit line cannot be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreditFault {
    /// The limit is negative, or the sum does not fit the account.
    Unfit,
    /// Calls in flight hold this much of the line: it cannot be set to less.
    InFlight(Nanousd),
}

/// The amounts that a change of a credit line moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreditChange {
    /// The new credit line.
    pub limit: Nanousd,
    /// Amount that was lent in addition.
    pub lent: Nanousd,
    /// Amount withdrawn from the available money.
    pub withdrawn: Nanousd,
    /// The amount that is taken back after it was spent, and is owed from here on.
    pub owed: Nanousd,
}

impl CreditChange {
    /// The change of a line to `limit`. A lower line takes what is available first; the rest must have
    /// been spent, and becomes debt.
    ///
    /// # Errors
    /// [`CreditFault`].
    pub fn new(limit: Nanousd, state: CreditState) -> Result<Self, CreditFault> {
        let CreditState { granted, available, in_flight, credit, debt } = state;
        if limit.is_negative() {
            return Err(CreditFault::Unfit);
        }
        let nothing = Self { limit, ..Self::default() };
        if limit >= credit {
            let lent = limit.saturating_sub(credit);
            granted.checked_add(lent).ok_or(CreditFault::Unfit)?;
            return Ok(Self { lent, ..nothing });
        }
        let bound = bound(credit, available, in_flight);
        if limit < bound {
            return Err(CreditFault::InFlight(bound));
        }
        let less = credit.saturating_sub(limit);
        let withdrawn = less.min(available);
        let owed = less.saturating_sub(withdrawn);
        debt.checked_add(owed).ok_or(CreditFault::Unfit)?;
        Ok(Self { withdrawn, owed, ..nothing })
    }

    /// True where any money moves.
    #[must_use]
    pub fn moves(&self) -> bool {
        [self.lent, self.withdrawn, self.owed].iter().any(|amount| !amount.is_zero())
    }

    /// Journal record of the change.
    #[must_use]
    pub fn record(&self, account: AccountId, at: UnixMs) -> Record {
        let Self { limit, lent, withdrawn, owed } = *self;
        Record::CreditSet { account, limit, lent, withdrawn, owed, at }
    }
}

/// The credit lines of all accounts together. Figures past the range stay at its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CreditSums {
    /// The sum of all lines, drawn or not.
    pub lines: Nanousd,
    /// Spent part of all credit lines.
    pub used: Nanousd,
}

/// The part of a line that is held by calls in flight: neither available nor spent.
fn bound(credit: Nanousd, available: Nanousd, in_flight: Nanousd) -> Nanousd {
    credit.saturating_sub(available).max(Nanousd::ZERO).min(in_flight)
}

impl Balance {
    /// Spent part of the credit line.
    #[must_use]
    pub fn credit_used(&self) -> Nanousd {
        let left = self.available.saturating_add(self.held);
        self.credit.saturating_sub(left).max(Nanousd::ZERO)
    }

    /// Unspent part of the credit line.
    #[must_use]
    pub fn credit_unused(&self) -> Nanousd {
        self.credit.saturating_sub(self.credit_used())
    }

    /// Part of the available money that is lent.
    #[must_use]
    pub fn credit_available(&self) -> Nanousd {
        self.available.min(self.credit)
    }

    /// Part of the available money that is the account's own.
    #[must_use]
    pub fn own_available(&self) -> Nanousd {
        self.available.saturating_sub(self.credit_available())
    }

    /// Sum of all credit ever added, without money lent.
    #[must_use]
    pub fn paid_in(&self) -> Nanousd {
        self.granted.saturating_sub(self.credit)
    }
}

#[cfg(test)]
#[expect(clippy::arithmetic_side_effects, reason = "a test adds small figures, or wide ones")]
mod tests;
