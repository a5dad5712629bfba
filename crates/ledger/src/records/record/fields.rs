//! Fields that many records have: account, time, hold and charge.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use super::{RESULT_BYTES_MAX, Record, WRITE_BYTES_MAX};
use crate::records::hold_end::Charge;
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, HoldId};

impl Record {
    /// Maximum encoded size of a record of this kind, in bytes.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        match self {
            Self::Task(task) if task.ended().is_some() => RESULT_BYTES_MAX,
            _ => WRITE_BYTES_MAX,
        }
    }

    /// Account of the record.
    #[must_use]
    pub fn account(&self) -> AccountId {
        match self {
            Self::AccountCreated { account, .. }
            | Self::Granted { account, .. }
            | Self::Refunded { account, .. }
            | Self::Extended { account, .. }
            | Self::Posted { account, .. }
            | Self::Voided { account, .. }
            | Self::Recovered { account, .. }
            | Self::KeyLimited { account, .. }
            | Self::AccountLimited { account, .. }
            | Self::AccountPriced { account, .. }
            | Self::AccountRenamed { account, .. }
            | Self::AccountSuspended { account, .. }
            | Self::SessionEnded { account, .. }
            | Self::DoubtResolved { account, .. }
            | Self::Announced { account, .. }
            | Self::Leased { account, .. }
            | Self::Returned { account, .. }
            | Self::HandedOver { account, .. }
            | Self::SuspenseResolved { account, .. }
            | Self::PostedOwing { account, .. }
            | Self::DebtPaid { account, .. }
            | Self::CreditSet { account, .. }
            | Self::AccountHolds { account, .. }
            | Self::WrittenOff { account, .. } => *account,
            Self::Lost(lost) => lost.account,
            Self::Costed(costed) => costed.account,
            Self::PriceNoted(note) => note.account,
            Self::GroupPriced(_) => AccountId::OPERATOR,
            Self::Central(record) => record.account(),
            Self::Acted(act) => act.account,
            Self::LoginSet(login) => login.account,
            Self::CodeCreated(_)
            | Self::CodeRevoked { .. }
            | Self::CodeUsed { .. }
            | Self::Checkpointed(_)
            | Self::Followed { .. } => AccountId::OPERATOR,
            Self::KeyCreated(key) | Self::KeyUpdated(key) => key.account,
            Self::Reserved(reservation) => reservation.account,
            Self::Task(task) => task.intent.account,
        }
    }

    /// Time of the event.
    #[must_use]
    pub fn at(&self) -> UnixMs {
        match self {
            Self::AccountCreated { at, .. }
            | Self::Granted { at, .. }
            | Self::Refunded { at, .. }
            | Self::Extended { at, .. }
            | Self::Posted { at, .. }
            | Self::Voided { at, .. }
            | Self::Recovered { at, .. }
            | Self::KeyLimited { at, .. }
            | Self::AccountLimited { at, .. }
            | Self::AccountPriced { at, .. }
            | Self::AccountRenamed { at, .. }
            | Self::AccountSuspended { at, .. }
            | Self::SessionEnded { at, .. }
            | Self::CodeRevoked { at, .. }
            | Self::CodeUsed { at, .. }
            | Self::DoubtResolved { at, .. }
            | Self::Followed { at, .. }
            | Self::Leased { at, .. }
            | Self::Returned { at, .. }
            | Self::HandedOver { at, .. }
            | Self::SuspenseResolved { at, .. }
            | Self::PostedOwing { at, .. }
            | Self::DebtPaid { at, .. }
            | Self::CreditSet { at, .. }
            | Self::AccountHolds { at, .. }
            | Self::WrittenOff { at, .. } => *at,
            Self::Lost(lost) => lost.at,
            Self::Costed(costed) => costed.at,
            Self::PriceNoted(note) => note.at,
            Self::GroupPriced(group) => group.at,
            Self::Checkpointed(checkpoint) => checkpoint.at,
            Self::Central(record) => record.at(),
            Self::Acted(act) => act.at,
            Self::LoginSet(login) => login.since,
            Self::CodeCreated(code) => code.created_at,
            Self::Announced { tried, .. } => tried.at,
            Self::KeyCreated(key) | Self::KeyUpdated(key) => key.updated_at,
            Self::Reserved(reservation) => reservation.at,
            Self::Task(task) => task.ended().map_or(task.intent.at, |ended| ended.at),
        }
    }

    /// The open hold that it extends or ends.
    #[must_use]
    pub fn open_hold(&self) -> Option<HoldId> {
        match self {
            Self::Extended { hold, .. }
            | Self::Posted { hold, .. }
            | Self::PostedOwing { hold, .. }
            | Self::Voided { hold, .. }
            | Self::Recovered { hold, .. }
            | Self::HandedOver { hold, .. } => Some(*hold),
            _ => None,
        }
    }

    /// The inner record, for one that wraps another whose money moved elsewhere.
    #[must_use]
    pub fn inner(&self) -> &Self {
        match self {
            Self::Central(record) => record,
            record => record,
        }
    }

    /// True if the record ends the hold that it names.
    #[must_use]
    pub fn ends_hold(&self) -> bool {
        matches!(
            self,
            Self::Posted { .. }
                | Self::PostedOwing { .. }
                | Self::Voided { .. }
                | Self::Recovered { .. }
        )
    }

    /// Charge of a settled call; `None` for every other record.
    pub fn charge(&self) -> Option<Charge> {
        match *self {
            Self::Posted { charged, written_off, usage, source, .. } => {
                Some(Charge { charged, owed: Nanousd::ZERO, written_off, usage, source })
            }
            Self::PostedOwing { charged, owed, written_off, usage, source, .. } => {
                Some(Charge { charged, owed, written_off, usage, source })
            }
            _ => None,
        }
    }

    /// Amount that the end of a hold took from the account; `None` for a record that took none.
    #[must_use]
    pub fn charged(&self) -> Option<Nanousd> {
        match self {
            Self::Recovered { charged, .. } => Some(*charged),
            record => record.charge().map(|charge| charge.charged),
        }
    }
}
