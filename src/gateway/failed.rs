//! How a call ended that the gateway made itself and that has no answer.

use bytes::Bytes;

use super::peer;
use crate::balance::Outcome;
use crate::error::GatewayError;
use crate::protocols::Fault;

/// What the customer gets in the place of an answer.
pub(super) enum Failed {
    /// The upstream's own words.
    Relayed(u16, Bytes),
    /// An error of ours.
    Ours(GatewayError),
    /// Another target may do better; else this error of ours.
    Next(Outcome, GatewayError),
    /// An error of ours; the upstream may have taken the work, and is not asked again.
    InDoubt(Outcome, GatewayError),
}

impl Failed {
    /// What came of a try; `None` when the upstream has no part in it.
    pub(super) fn outcome_of<T>(asked: &Result<T, Self>) -> Option<Outcome> {
        match asked {
            Ok(_) => Some(Outcome::Ok),
            Err(Self::Relayed(..)) => Some(Outcome::Refused),
            Err(Self::Ours(_)) => None,
            Err(Self::Next(outcome, _) | Self::InDoubt(outcome, _)) => Some(*outcome),
        }
    }
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Relayed(status, body) => Self::Relayed(status, body),
            Fault::Customers(error) => Self::Ours(error),
            Fault::Busy => Self::Next(Outcome::Busy(None), peer::busy_without_word()),
            Fault::Upstreams(cause) => Self::Next(Outcome::Failed, peer::at_fault(cause)),
        }
    }
}
