//! What stands behind a request: money that is held, or nothing to pay.

use std::sync::Arc;

use crate::ledger::{Hold, LedgerError, PostedCharge, Refusal, Settlement, VoidReason};
use crate::money::Nanousd;
use crate::price::PriceVersion;

/// How a request is paid for.
#[derive(Debug)]
pub enum Payment {
    /// By this hold. Dropping it without settling voids it.
    Held(Hold),
    /// It costs nothing, and leaves no trace in the ledger.
    Free,
    /// A task has taken over what was held.
    PassedOn,
}

impl Payment {
    /// The hold, for a task to take over.
    pub fn pass_on(&mut self) -> Option<Hold> {
        match std::mem::replace(self, Self::PassedOn) {
            Self::Held(hold) => Some(hold),
            other => {
                *self = other;
                None
            }
        }
    }

    /// What is held is held for another model from here on. Says whether it is.
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

    /// Whether there is anything to pay.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(self, Self::Held(_))
    }

    /// The amount that is held; zero where there is no hold.
    pub(super) fn amount(&self) -> Nanousd {
        match self {
            Self::Held(hold) => hold.amount(),
            Self::Free | Self::PassedOn => Nanousd::ZERO,
        }
    }

    /// The part of the amount that is on disk.
    pub(super) fn durable_amount(&self) -> Nanousd {
        match self {
            Self::Held(hold) => hold.durable_amount(),
            Self::Free | Self::PassedOn => Nanousd::ZERO,
        }
    }

    /// The account's money, as far as it is here, that no hold covers.
    pub(super) fn available(&self) -> Nanousd {
        match self {
            Self::Held(hold) => hold.available(),
            Self::Free | Self::PassedOn => Nanousd::ZERO,
        }
    }

    /// Brings money for an extension here from elsewhere in a fleet; `None` where all of it is here.
    pub(super) fn fetch(
        &self,
        amount: Nanousd,
    ) -> Option<impl Future<Output = Result<(), Refusal>> + Send + use<>> {
        match self {
            Self::Held(hold) => hold.fetch(amount),
            Self::Free | Self::PassedOn => None,
        }
    }

    /// Whether what is held is on disk.
    pub(super) fn is_durable(&self) -> bool {
        match self {
            Self::Held(hold) => hold.is_durable(),
            Self::Free | Self::PassedOn => true,
        }
    }

    /// Leaves a trace that outlives the process, before an upstream is asked.
    ///
    /// # Errors
    /// When there can be none: then it is not to be asked.
    pub async fn note_sent(&self) -> Result<(), LedgerError> {
        match self {
            Self::Held(hold) => hold.note_sent().await,
            Self::Free | Self::PassedOn => Ok(()),
        }
    }

    /// Waits until it is.
    ///
    /// # Errors
    /// When the ledger closed before that.
    pub async fn durable(&self) -> Result<(), LedgerError> {
        match self {
            Self::Held(hold) => hold.durable().await,
            Self::Free | Self::PassedOn => Ok(()),
        }
    }

    /// Holds more of what is here.
    pub(super) fn extend(&mut self, amount: Nanousd) -> Result<(), Refusal> {
        match self {
            Self::Held(hold) => hold.extend(amount),
            Self::Free | Self::PassedOn => Ok(()),
        }
    }

    /// Holds more, of what is here or elsewhere.
    pub(super) async fn enlarge(&mut self, amount: Nanousd) -> Result<(), Refusal> {
        match self {
            Self::Held(hold) => hold.enlarge(amount).await,
            Self::Free | Self::PassedOn => Ok(()),
        }
    }

    /// Holds as much of a charge as there is.
    pub(super) async fn cover(&mut self, charge: Nanousd) {
        if let Self::Held(hold) = self {
            hold.cover(charge).await;
        }
    }

    /// Ends it with a charge, and says what the customer paid and owes.
    pub(super) fn post(self, settlement: Settlement) -> PostedCharge {
        match self {
            Self::Held(hold) => hold.post(settlement),
            Self::Free | Self::PassedOn => PostedCharge::NOTHING,
        }
    }

    /// Ends it without one.
    pub(super) fn void(self, reason: VoidReason) {
        match self {
            Self::Held(hold) => hold.void(reason),
            Self::Free | Self::PassedOn => {}
        }
    }
}
