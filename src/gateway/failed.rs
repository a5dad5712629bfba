//! How a call ended that the gateway made itself and that has no answer.

use bytes::Bytes;

use super::peer;
use crate::error::GatewayError;
use crate::protocols::Fault;

/// What the customer gets in the place of an answer.
pub(super) enum Failed {
    /// The upstream's own words.
    Relayed(u16, Bytes),
    /// An error of ours.
    Ours(GatewayError),
    /// Another target may do better; else this error of ours.
    Next(GatewayError),
    /// An error of ours; the upstream may have taken the work, and is not asked again.
    InDoubt(GatewayError),
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Relayed(status, body) => Self::Relayed(status, body),
            Fault::Customers(error) => Self::Ours(error),
            Fault::Busy => Self::Next(peer::busy_without_word()),
            Fault::Upstreams(cause) => Self::Next(peer::at_fault(cause)),
        }
    }
}
