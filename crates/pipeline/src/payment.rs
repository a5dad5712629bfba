//! Payment of a request: a hold, or none for free requests.

use std::sync::Arc;

use tollgate_ledger::{Hold, LedgerError, PostedCharge, Refusal, Settlement, VoidReason};
use tollgate_money::money::Nanousd;
use tollgate_money::price::PriceVersion;

/// Payment of a request.
#[derive(Debug)]
pub enum Payment {
    /// A hold. Dropping it without settling voids it.
    Held(Hold),
    /// Free, without a trace in the ledger.
    Free,
    /// A task has taken over the hold.
    PassedOn,
}

impl Payment {
    /// Take the hold, for a task.
    pub fn pass_on(&mut self) -> Option<Hold> {
        match std::mem::replace(self, Self::PassedOn) {
            Self::Held(hold) => Some(hold),
            other => {
                *self = other;
                None
            }
        }
    }

    /// Move the hold to another model. Returns false if there is none or it cannot move.
    pub(super) fn move_to(&mut self, model: Arc<str>, price: PriceVersion, floor: Nanousd) -> bool {
        let moved = match std::mem::replace(self, Self::PassedOn) {
            Self::Held(hold) => hold.move_to(model, Some(price), floor).ok(),
            other => {
                *self = other;
                None
            }
        };
        let Some(hold) = moved else { return false };
        *self = Self::Held(hold);
        true
    }

    /// True if a hold pays for the request.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self, Self::Held(_))
    }

    fn hold(&self) -> Option<&Hold> {
        match self {
            Self::Held(hold) => Some(hold),
            Self::Free | Self::PassedOn => None,
        }
    }

    /// Amount of the hold; zero without one.
    pub(super) fn amount(&self) -> Nanousd {
        self.hold().map_or(Nanousd::ZERO, Hold::amount)
    }

    /// Durable part of the amount.
    pub(super) fn durable_amount(&self) -> Nanousd {
        self.hold().map_or(Nanousd::ZERO, Hold::durable_amount)
    }

    /// Account's free money on this node.
    pub(super) fn available(&self) -> Nanousd {
        self.hold().map_or(Nanousd::ZERO, Hold::available)
    }

    /// Transfer money for an extension from the fleet to this node; `None` if it is all here.
    pub(super) fn fetch(
        &self,
        amount: Nanousd,
    ) -> Option<impl Future<Output = Result<(), Refusal>> + Send + use<>> {
        self.hold()?.fetch(amount)
    }

    /// True if the hold is durable.
    pub(super) fn is_durable(&self) -> bool {
        self.hold().is_none_or(Hold::is_durable)
    }

    /// Write a crash-safe note before a request is sent upstream.
    ///
    /// # Errors
    /// If the note cannot be written; then nothing may be sent.
    pub async fn note_sent(&self) -> Result<(), LedgerError> {
        match self.hold() {
            Some(hold) => hold.note_sent().await,
            None => Ok(()),
        }
    }

    /// Wait until the hold is durable.
    ///
    /// # Errors
    /// If the ledger stops before that.
    pub async fn durable(&self) -> Result<(), LedgerError> {
        match self.hold() {
            Some(hold) => hold.durable().await,
            None => Ok(()),
        }
    }

    /// Extend the hold by money on this node.
    pub(super) fn extend(&mut self, amount: Nanousd) -> Result<(), Refusal> {
        match self {
            Self::Held(hold) => hold.extend(amount),
            Self::Free | Self::PassedOn => Ok(()),
        }
    }

    /// Extend the hold by money on this node or in the fleet.
    pub(super) async fn enlarge(&mut self, amount: Nanousd) -> Result<(), Refusal> {
        match self {
            Self::Held(hold) => hold.enlarge(amount).await,
            Self::Free | Self::PassedOn => Ok(()),
        }
    }

    /// Extend the hold towards a charge, as far as money is available.
    pub(super) async fn cover(&mut self, charge: Nanousd) {
        if let Self::Held(hold) = self {
            hold.cover(charge).await;
        }
    }

    /// Post a charge, and return the paid and owed amounts.
    pub(super) fn post(self, settlement: Settlement) -> PostedCharge {
        match self {
            Self::Held(hold) => hold.post(settlement),
            Self::Free | Self::PassedOn => PostedCharge::NOTHING,
        }
    }

    /// Void the hold.
    pub(super) fn void(self, reason: VoidReason) {
        match self {
            Self::Held(hold) => hold.void(reason),
            Self::Free | Self::PassedOn => {}
        }
    }
}
