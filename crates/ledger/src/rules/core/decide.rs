//! Decisions: the record of a permitted change, or the reason of its refusal. Nothing changes here.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::sync::Arc;

use super::Core;
use crate::records::error::{LedgerError, Refusal};
use crate::records::record::Record;
use crate::records::reservation::{OpenHold, Reservation};
use crate::rules::account::{Balance, Movement};
use crate::rules::credit::{CreditChange, CreditFault, CreditState};
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Usage, UsageSource};
use tollgate_options::ledger::RecoveryPolicy;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId, KeyId, Seq};

/// Error for a grant's amount.
pub const UNFIT_GRANT: LedgerError =
    LedgerError::Invalid("a grant must be above zero and fit the account");

/// Error for a refund beyond the amount that the account has paid.
pub const UNPAID_REFUND: LedgerError = LedgerError::Invalid(
    "the account has not paid so much: what it owes is written off in the place of a refund",
);

/// Error for a credit line's amount.
pub const UNFIT_CREDIT: LedgerError =
    LedgerError::Invalid("a credit line must not be negative, and must fit the account");

impl From<CreditFault> for LedgerError {
    fn from(fault: CreditFault) -> Self {
        match fault {
            CreditFault::Unfit => UNFIT_CREDIT,
            CreditFault::InFlight(held) => Self::CreditInFlight(held),
        }
    }
}

/// Decision on a request with an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "one is made for each write of a person, and its record moves on at once"
)]
pub enum Decision {
    /// It is new: this happens.
    New(Record),
    /// It was done before, at this place.
    Repeated(Seq),
}

/// Coverage of a charge: see [`Core::decide_post`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    /// Extension to make first if the charge exceeds the hold.
    pub extension: Option<Record>,
    /// The end of the hold.
    pub record: Record,
    /// Amount paid now.
    pub charged: Nanousd,
    /// Debt: the part that the account cannot pay.
    pub owed: Nanousd,
}

/// Division of a bill between the hold, the available money, and debt: one rule for calls and
/// tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BillSplit {
    /// Amount paid now, from the hold and the available money.
    charged: Nanousd,
    /// Part of the charge taken from the available money.
    taken: Nanousd,
    /// Debt: the part that the account cannot pay.
    owed: Nanousd,
}

impl BillSplit {
    /// Splits a bill. What the hold does not cover is taken from the available money, regardless of the key's
    /// limits, which only control admission. What the account cannot pay becomes debt.
    fn of(charge: Nanousd, held: Nanousd, (available, debt): (Nanousd, Nanousd)) -> Self {
        let charge = charge.max(Nanousd::ZERO);
        let excess = charge.saturating_sub(held).max(Nanousd::ZERO);
        let taken = excess.min(available);
        let missing = excess.saturating_sub(taken);
        // An upstream can report any usage, and a debt has no balance that bounds it: the sum stays at
        // the end of its range, as absurd as it is there, rather than past it.
        let owed = missing.min(Nanousd::MAX.saturating_sub(debt));
        Self { charged: charge.saturating_sub(missing), taken, owed }
    }

    /// The end of a hold that was split so.
    fn record(
        &self,
        (account, hold): (AccountId, HoldId),
        (usage, source): (Usage, UsageSource),
        at: UnixMs,
    ) -> Record {
        let Self { charged, owed, .. } = *self;
        let written_off = Nanousd::ZERO;
        if owed.is_zero() {
            return Record::Posted { account, hold, charged, written_off, usage, source, at };
        }
        Record::PostedOwing { account, hold, charged, owed, written_off, usage, source, at }
    }
}

/// Money and debt of an account, apart from the hold that ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OtherFunds {
    /// Available amount.
    pub(crate) available: Nanousd,
    /// Debt.
    pub(crate) debt: Nanousd,
}

impl Post {
    /// Settlement of an open hold for `charge`, for calls and for tasks, wherever the account's
    /// money is. A charge above the hold is first set aside as far as the account can pay; the rest
    /// is debt, up to [`Nanousd::MAX`].
    pub(crate) fn over(
        hold: HoldId,
        open: &OpenHold,
        beside: OtherFunds,
        charge: Nanousd,
        used: (Usage, UsageSource),
        at: UnixMs,
    ) -> Self {
        let account = open.reservation.account;
        // A clock may have been set back; what counts for a day was checked against that day.
        let at = at.max(open.reservation.at);
        let split = BillSplit::of(charge, open.amount, (beside.available, beside.debt));
        let extension = (split.taken > Nanousd::ZERO).then_some(Record::Extended {
            account,
            hold,
            amount: split.taken,
            at,
        });
        let record = split.record((account, hold), used, at);
        Self { extension, record, charged: split.charged, owed: split.owed }
    }

    /// Amount under the hold at its end, for a hold of `amount`.
    pub(crate) fn held(&self, amount: Nanousd) -> Nanousd {
        match &self.extension {
            Some(Record::Extended { amount: more, .. }) => amount.saturating_add(*more),
            _ => amount,
        }
    }
}

impl Core {
    /// A grant of `amount` under the caller's `id`. At a node of a fleet, which has a part of the
    /// account's money, whether the amount fits the account is left to where all of it is.
    ///
    /// # Errors
    /// [`LedgerError::UnknownAccount`], [`LedgerError::Conflict`], and [`LedgerError::Invalid`] for
    /// an amount that is not positive or does not fit the account.
    pub fn decide_grant(
        &self,
        account: AccountId,
        id: &str,
        amount: Nanousd,
        at: UnixMs,
    ) -> Result<Decision, LedgerError> {
        let state = self.state(account)?;
        if let Some(grant) = state.grants.get(id) {
            return repeated(grant.amount == amount, grant.seq);
        }
        if amount <= Nanousd::ZERO {
            return Err(UNFIT_GRANT);
        }
        let record = Record::Granted { account, id: id.to_owned(), amount, at };
        if !self.is_shared {
            let fits = Movement::of(&record, None).and_then(|moved| state.account.after(&moved));
            fits.map_err(|_| UNFIT_GRANT)?;
        }
        Ok(Decision::New(record))
    }

    /// True if an interrupted call can be taken off the list of doubts. On a node of a fleet always
    /// true: the list is at the treasury.
    pub(crate) fn may_be_in_doubt(&self, account: AccountId, hold: HoldId) -> bool {
        let state = self.accounts.get(&account);
        self.is_shared || state.is_some_and(|state| state.customers.doubts.contains(&hold))
    }

    /// A refund of `amount` on `hold`, which was settled for `charged`.
    ///
    /// # Errors
    /// As for a grant, and [`LedgerError::RefundTooLarge`].
    pub fn decide_refund(
        &self,
        (account, id): (AccountId, &str),
        (hold, charged): (HoldId, Nanousd),
        amount: Nanousd,
        at: UnixMs,
    ) -> Result<Decision, LedgerError> {
        let state = self.state(account)?;
        if let Some(refund) = state.refunds.get(id) {
            return repeated((refund.hold, refund.amount) == (hold, amount), refund.seq);
        }
        if amount <= Nanousd::ZERO {
            return Err(LedgerError::Invalid("a refund must be above zero"));
        }
        if !state.can_refund(hold, charged, amount) {
            let refunded = state.refunded.get(&hold).copied().unwrap_or_default();
            return Err(LedgerError::RefundTooLarge { charged, refunded });
        }
        // What a lower credit line has made a debt is spent no more. What a node has of it says nothing.
        if !self.is_shared && amount > state.account.balance.spent {
            return Err(UNPAID_REFUND);
        }
        Ok(Decision::New(Record::Refunded {
            account,
            id: id.to_owned(),
            hold,
            amount,
            charged,
            at,
        }))
    }

    /// Writes off `amount` of the account's debt, under the caller's `id`.
    ///
    /// # Errors
    /// As for a grant, and [`LedgerError::NotOwed`].
    pub fn decide_write_off(
        &self,
        (account, id): (AccountId, &str),
        amount: Nanousd,
        note: &str,
        at: UnixMs,
    ) -> Result<Decision, LedgerError> {
        let state = self.state(account)?;
        if let Some(before) = state.write_offs.get(id) {
            return repeated(before.amount == amount, before.seq);
        }
        // What an account of a fleet owes is known where the fleet's money is.
        if amount <= Nanousd::ZERO {
            return Err(LedgerError::Invalid("a write-off must be above zero"));
        }
        if !self.is_shared && amount > state.account.balance.debt {
            return Err(LedgerError::NotOwed);
        }
        let (id, note) = (id.to_owned(), note.to_owned());
        Ok(Decision::New(Record::WrittenOff { account, id, amount, note, at }))
    }

    /// Sets the credit line of an account; `None` if it does not change. For a fleet node, which has part of
    /// the account's money, the treasury decides the movements.
    ///
    /// # Errors
    /// [`LedgerError::UnknownAccount`], [`LedgerError::Invalid`] for a line that does not fit the account,
    /// and [`LedgerError::CreditInFlight`].
    pub fn decide_credit(
        &self,
        account: AccountId,
        limit: Nanousd,
        at: UnixMs,
    ) -> Result<Option<Record>, LedgerError> {
        let balance = self.state(account)?.account.balance;
        if self.is_shared {
            let change = CreditChange { limit, ..CreditChange::default() };
            return if limit.is_negative() {
                Err(UNFIT_CREDIT)
            } else {
                Ok(Some(change.record(account, at)))
            };
        }
        let Balance { granted, available, held, debt, credit, .. } = balance;
        let state = CreditState { granted, available, in_flight: held, credit, debt };
        let change = CreditChange::new(limit, state)?;
        Ok(change.moves().then(|| change.record(account, at)))
    }

    /// The payment of a debt out of what is available; `None` where nothing is owed, or nothing is
    /// there to pay it: that is so nearly always, and then nobody asks what time it is. At a node of a
    /// fleet, which has a part of the account's money, nothing is paid.
    #[must_use]
    pub fn decide_payment(
        &self,
        account: AccountId,
        at: impl FnOnce() -> UnixMs,
    ) -> Option<Record> {
        let amount = self.accounts.get(&account)?.account.balance.payable();
        let is_due = !self.is_shared && amount > Nanousd::ZERO;
        is_due.then(|| Record::DebtPaid { account, amount, at: at() })
    }

    /// Sets money aside for a call.
    ///
    /// # Errors
    /// [`Refusal::UnknownAccount`], [`Refusal::InDebt`], [`Refusal::Insufficient`], [`Refusal::SpendLimitStatus`] or
    /// [`Refusal::Held`].
    pub fn decide_reserve(&self, reservation: Arc<Reservation>) -> Result<Record, Refusal> {
        let Reservation { account, key, amount, at, .. } = *reservation;
        self.can_hold(account, Some(key), amount, at)?;
        Ok(Record::Reserved(reservation))
    }

    /// Sets `amount` more aside under an open hold of `account`.
    ///
    /// # Errors
    /// As for a reservation.
    pub fn decide_extend(
        &self,
        account: AccountId,
        hold: HoldId,
        amount: Nanousd,
        at: UnixMs,
    ) -> Result<Record, Refusal> {
        let key = self.hold(hold).map(|hold| hold.reservation.key);
        self.can_hold(account, key, amount, at)?;
        Ok(Record::Extended { account, hold, amount, at })
    }

    /// Settles an open hold for `charge`. What the hold does not cover is set aside first as far as
    /// the account can pay it, whatever its key may spend, and the rest is the account's debt, up to
    /// [`Nanousd::MAX`]. `None` if the hold is not open.
    #[must_use]
    pub fn decide_post(
        &self,
        hold: HoldId,
        charge: Nanousd,
        used: (Usage, UsageSource),
        at: UnixMs,
    ) -> Option<Post> {
        let open = self.holds.get(&hold)?;
        let before = &self.accounts.get(&open.reservation.account)?.account.balance;
        let beside = OtherFunds { available: before.available, debt: before.debt };
        Some(Post::over(hold, open, beside, charge, used, at))
    }

    /// Ends a hold that a crash left open. `None` if it is not open.
    #[must_use]
    pub fn decide_recovery(
        &self,
        hold: HoldId,
        policy: RecoveryPolicy,
        at: UnixMs,
    ) -> Option<Record> {
        let open = self.holds.get(&hold)?;
        let charged = match policy {
            RecoveryPolicy::Void => Nanousd::ZERO,
            RecoveryPolicy::Floor => open.reservation.floor.min(open.amount),
        };
        let at = at.max(open.reservation.at);
        Some(Record::Recovered { account: open.reservation.account, hold, charged, at })
    }

    /// Checks a hold. Of several reasons to refuse, the longest-lasting one is returned.
    fn can_hold(
        &self,
        account: AccountId,
        key: Option<KeyId>,
        amount: Nanousd,
        at: UnixMs,
    ) -> Result<(), Refusal> {
        let state = self.accounts.get(&account).ok_or(Refusal::UnknownAccount)?;
        let Balance { available, held, debt, .. } = state.account.balance;
        // A node of a fleet has what it was lent; the treasury lends nothing to who owes.
        if !self.is_shared && debt > Nanousd::ZERO {
            return Err(Refusal::InDebt { debt, available });
        }
        if amount > available.saturating_add(held) {
            return Err(Refusal::Insufficient { available });
        }
        match key.and_then(|key| state.spendings.room(key, at, self.is_shared)) {
            Some(room) if amount > room.amount => return Err(room.refusal(amount)),
            _ => {}
        }
        if amount <= available { Ok(()) } else { Err(Refusal::Held { available, held }) }
    }
}

fn repeated(same: bool, seq: Seq) -> Result<Decision, LedgerError> {
    if same { Ok(Decision::Repeated(seq)) } else { Err(LedgerError::Conflict) }
}
