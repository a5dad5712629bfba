//! An account's money, and how a record moves it.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use serde::{Deserialize, Serialize};

use crate::records::record::Record;
use crate::records::reservation::OpenHold;
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::AccountId;

/// Balance of an account. Always `granted = available + held + spent`, and no part is negative.
///
/// What calls have cost beyond the account's money is its debt: no part of the sum until it is paid.
/// A credit line is money that the operator has lent: a part of `granted`, spent after the account's
/// own (`rules::credit`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balance {
    /// Sum of all credit ever added.
    pub granted: Nanousd,
    /// Amount that new holds can use.
    pub available: Nanousd,
    /// Amount that open holds cover.
    pub held: Nanousd,
    /// Paid cost of settled calls, less refunds.
    pub spent: Nanousd,
    /// Unpaid cost of settled calls. Incoming money pays it first, and no hold is made until then.
    pub debt: Nanousd,
    /// The credit line: what of `granted` is lent. It stands behind an account's row where there is
    /// one, so that rows from before there were lines can be read.
    #[serde(skip)]
    pub credit: Nanousd,
}

/// An account with its current balance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Unique id, assigned at creation.
    pub id: AccountId,
    /// Name shown to its owner.
    pub name: String,
    /// Time of the creation.
    pub created_at: UnixMs,
    /// Current balance of the account.
    pub balance: Balance,
    /// Cost of its calls that was written off, borne by the operator.
    pub written_off: Nanousd,
    /// True if its keys are refused.
    pub suspended: bool,
}

impl Balance {
    /// Checks that `granted = available + held + spent`, that nothing is negative, and that no more
    /// is lent than was granted (I1, I2).
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let parts = [self.available, self.held, self.spent];
        let sum = parts.iter().try_fold(Nanousd::ZERO, |sum, part| sum.checked_add(*part));
        sum == Some(self.granted)
            && parts.iter().chain([&self.debt, &self.credit]).all(|part| !part.is_negative())
            && self.credit <= self.granted
    }

    /// Part of the debt that the available money can pay.
    #[must_use]
    pub fn payable(&self) -> Nanousd {
        self.available.min(self.debt)
    }
}

impl Account {
    /// An account without money.
    #[must_use]
    pub fn new(id: AccountId, name: String, created_at: UnixMs) -> Self {
        Self {
            id,
            name,
            created_at,
            balance: Balance::default(),
            written_off: Nanousd::ZERO,
            suspended: false,
        }
    }

    /// The balance and the written-off amount after `movement`.
    ///
    /// # Errors
    /// The rule that it would break.
    pub fn after(&self, movement: &Movement) -> Result<(Balance, Nanousd), &'static str> {
        const OVERFLOW: &str = "the amount does not fit the account";
        let moved = |from: Nanousd, by: Nanousd| from.checked_add(by).ok_or(OVERFLOW);
        let balance = Balance {
            granted: moved(self.balance.granted, movement.granted)?,
            available: moved(self.balance.available, movement.available)?,
            held: moved(self.balance.held, movement.held)?,
            spent: moved(self.balance.spent, movement.spent)?,
            debt: moved(self.balance.debt, movement.debt)?,
            credit: moved(self.balance.credit, movement.credit)?,
        };
        if balance.debt.is_negative() {
            return Err("more is paid or written off than is owed");
        }
        if !balance.is_sound() {
            return Err("the account would be overdrawn");
        }
        Ok((balance, moved(self.written_off, movement.written_off)?))
    }
}

/// Changes of a record to the parts of an account; negative for a decrease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Movement {
    granted: Nanousd,
    available: Nanousd,
    held: Nanousd,
    spent: Nanousd,
    debt: Nanousd,
    credit: Nanousd,
    written_off: Nanousd,
}

impl Movement {
    /// Movement of `record`; `hold` is the hold that it extends or ends, in its earlier state.
    ///
    /// # Errors
    /// The rule that the record breaks.
    pub fn of(record: &Record, hold: Option<&OpenHold>) -> Result<Self, &'static str> {
        let held = hold.map_or(Nanousd::ZERO, |hold| hold.amount);
        match record {
            Record::AccountCreated { .. }
            | Record::KeyCreated(_)
            | Record::KeyUpdated(_)
            | Record::Task(_)
            | Record::KeyLimited { .. }
            | Record::AccountLimited { .. }
            | Record::AccountPriced { .. }
            | Record::AccountHolds { .. }
            | Record::GroupPriced(_)
            | Record::PriceNoted(_)
            | Record::Acted(_)
            | Record::AccountRenamed { .. }
            | Record::AccountSuspended { .. }
            | Record::LoginSet(_)
            | Record::SessionEnded { .. }
            | Record::CodeCreated(_)
            | Record::CodeRevoked { .. }
            | Record::CodeUsed { .. }
            | Record::DoubtResolved { .. }
            | Record::Announced { .. }
            | Record::Central(_)
            | Record::Followed { .. }
            | Record::SuspenseResolved { .. }
            | Record::Lost(_)
            | Record::Costed(_)
            | Record::Checkpointed(_) => Ok(Self::default()),
            Record::Granted { amount, .. } | Record::Leased { amount, .. } => {
                Ok(Self { granted: *amount, available: *amount, ..Self::default() })
            }
            Record::Refunded { amount, .. } => {
                Ok(Self { available: *amount, spent: negated(*amount)?, ..Self::default() })
            }
            Record::Reserved(reservation) => Self::set_aside(reservation.amount),
            Record::Extended { amount, .. } => Self::set_aside(*amount),
            Record::Posted { charged, written_off, .. } => {
                Ok(Self { written_off: *written_off, ..Self::ended(held, *charged)? })
            }
            Record::PostedOwing { charged, owed, written_off, .. } => {
                let ended = Self::ended(held, *charged)?;
                Ok(Self { debt: *owed, written_off: *written_off, ..ended })
            }
            Record::DebtPaid { amount, .. } => {
                let decrease = negated(*amount)?;
                Ok(Self { available: decrease, spent: *amount, debt: decrease, ..Self::default() })
            }
            Record::WrittenOff { amount, .. } => {
                Ok(Self { debt: negated(*amount)?, written_off: *amount, ..Self::default() })
            }
            Record::CreditSet { lent, withdrawn, owed, .. } => Self::lent(*lent, *withdrawn, *owed),
            Record::Recovered { charged, .. } => Self::ended(held, *charged),
            Record::Voided { .. } => Self::ended(held, Nanousd::ZERO),
            Record::Returned { amount, .. } => {
                let decrease = negated(*amount)?;
                Ok(Self { granted: decrease, available: decrease, ..Self::default() })
            }
            Record::HandedOver { .. } => {
                let decrease = negated(held)?;
                Ok(Self { granted: decrease, held: decrease, ..Self::default() })
            }
        }
    }

    fn set_aside(amount: Nanousd) -> Result<Self, &'static str> {
        Ok(Self { available: negated(amount)?, held: amount, ..Self::default() })
    }

    fn ended(held: Nanousd, charged: Nanousd) -> Result<Self, &'static str> {
        let released = held.checked_sub(charged).filter(|released| !released.is_negative());
        Ok(Self {
            available: released.ok_or("more was charged than the hold covers")?,
            held: negated(held)?,
            spent: charged,
            ..Self::default()
        })
    }

    /// The movement of a change of a credit line. Lent money that is taken back after it was spent moves
    /// from `spent` to the debt.
    fn lent(lent: Nanousd, withdrawn: Nanousd, owed: Nanousd) -> Result<Self, &'static str> {
        const RANGE: &str = "the amount is out of range";
        let available = lent.checked_sub(withdrawn).ok_or(RANGE)?;
        let credit = available.checked_sub(owed).ok_or(RANGE)?;
        let (spent, debt) = (negated(owed)?, owed);
        Ok(Self { granted: credit, available, spent, debt, credit, ..Self::default() })
    }

    /// Both movements together, or `None` past the range.
    pub fn plus(&self, other: &Self) -> Option<Self> {
        Some(Self {
            granted: self.granted.checked_add(other.granted)?,
            available: self.available.checked_add(other.available)?,
            held: self.held.checked_add(other.held)?,
            spent: self.spent.checked_add(other.spent)?,
            debt: self.debt.checked_add(other.debt)?,
            credit: self.credit.checked_add(other.credit)?,
            written_off: self.written_off.checked_add(other.written_off)?,
        })
    }
}

fn negated(amount: Nanousd) -> Result<Nanousd, &'static str> {
    Nanousd::ZERO.checked_sub(amount).ok_or("the amount is out of range")
}

/// Sums over all accounts, saturating.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of accounts in it.
    pub accounts: usize,
    /// Their money.
    pub balance: Balance,
    /// Spent part of all credit lines.
    pub credit_used: Nanousd,
    /// Amount borne by the operator.
    pub written_off: Nanousd,
}
