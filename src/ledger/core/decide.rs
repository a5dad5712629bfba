//! What may happen: the record of it, or why it may not. Nothing changes here.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::sync::Arc;

use super::Core;
use crate::clock::UnixMs;
use crate::ledger::account::{Balance, Movement};
use crate::ledger::error::{LedgerError, Refusal};
use crate::ledger::record::{Record, Reservation};
use crate::ledger::{AccountId, HoldId, KeyId, RecoveryPolicy, Seq};
use crate::money::Nanousd;
use crate::price::{Usage, UsageSource};

/// Why a grant is refused for its amount.
pub(in crate::ledger) const UNFIT_GRANT: LedgerError =
    LedgerError::Invalid("a grant must be above zero and fit the account");

/// What a request that carries its own id comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is new: this happens.
    New(Record),
    /// It was done before, at this place.
    Repeated(Seq),
}

/// How a charge is covered: see [`Core::decide_post`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Post {
    /// What must be set aside first, when the charge exceeds the hold.
    pub extension: Option<Record>,
    /// The end of the hold.
    pub record: Record,
    /// What the customer pays.
    pub charged: Nanousd,
    /// What falls on the operator.
    pub written_off: Nanousd,
}

impl Core {
    /// A grant of `amount` under the caller's `id`.
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
        let decision = self.decide_grant_elsewhere(account, id, amount, at)?;
        if let Decision::New(record) = &decision {
            let account = &self.state(account)?.account;
            let fits = Movement::of(record, None).and_then(|movement| account.after(&movement));
            fits.map_err(|_| UNFIT_GRANT)?;
        }
        Ok(decision)
    }

    /// The same where only a part of the account's money is here: whether the amount fits the account
    /// is decided where all of it is.
    ///
    /// # Errors
    /// As [`Core::decide_grant`].
    pub fn decide_grant_elsewhere(
        &self,
        account: AccountId,
        id: &str,
        amount: Nanousd,
        at: UnixMs,
    ) -> Result<Decision, LedgerError> {
        if let Some(grant) = self.state(account)?.grants.get(id) {
            return repeated(grant.amount == amount, grant.seq);
        }
        if amount <= Nanousd::ZERO {
            return Err(UNFIT_GRANT);
        }
        Ok(Decision::New(Record::Granted { account, id: id.to_owned(), amount, at }))
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
        Ok(Decision::New(Record::Refunded {
            account,
            id: id.to_owned(),
            hold,
            amount,
            charged,
            at,
        }))
    }

    /// Sets money aside for a call.
    ///
    /// # Errors
    /// [`Refusal::UnknownAccount`], [`Refusal::Insufficient`], [`Refusal::Capped`] or
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
    /// the account can pay it and the key may spend it, and the rest is written off, up to
    /// [`Nanousd::MAX`] per account.
    /// `None` if the hold is not open.
    #[must_use]
    pub fn decide_post(
        &self,
        hold: HoldId,
        charge: Nanousd,
        (usage, source): (Usage, UsageSource),
        at: UnixMs,
    ) -> Option<Post> {
        let open = self.holds.get(&hold)?;
        let account = open.reservation.account;
        let state = self.accounts.get(&account)?;
        let before = &state.account;
        let charge = charge.max(Nanousd::ZERO);
        let excess = charge.saturating_sub(open.amount);
        // A clock may have been set back; what counts for a day was checked against that day.
        let at = at.max(open.reservation.at);
        let room = state.spendings.room(open.reservation.key, at, self.is_shared);
        let room = room.map_or(Nanousd::MAX, |room| room.amount);
        let covered = excess.min(before.balance.available).min(room);
        let uncovered = excess.saturating_sub(covered);
        let charged = charge.saturating_sub(uncovered);
        // An upstream can report any usage, and a write-off has no balance that bounds it: the sum
        // stays at the end of its range, as absurd as it is there, rather than past it.
        let written_off = uncovered.min(Nanousd::MAX.saturating_sub(before.written_off));
        let extension = (covered > Nanousd::ZERO).then_some(Record::Extended {
            account,
            hold,
            amount: covered,
            at,
        });
        let record = Record::Posted { account, hold, charged, written_off, usage, source, at };
        Some(Post { extension, record, charged, written_off })
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

    /// Of several reasons against it the one that lasts longest is told.
    fn can_hold(
        &self,
        account: AccountId,
        key: Option<KeyId>,
        amount: Nanousd,
        at: UnixMs,
    ) -> Result<(), Refusal> {
        let state = self.accounts.get(&account).ok_or(Refusal::UnknownAccount)?;
        let Balance { available, held, .. } = state.account.balance;
        if amount > available.checked_add(held).unwrap_or(Nanousd::MAX) {
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
