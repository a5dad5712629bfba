//! Who did what: one [`Act`] beside each write of an operator or a customer.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use tollgate_types::clock::UnixMs;
use tollgate_types::ids::AccountId;

/// How long a write's id is remembered: a caller that has not heard of its write for a week looks
/// before it writes again. The ids of grants and refunds are kept for ever.
pub const IDS_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Who did something.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Actor {
    /// An operator, by the name of the token or session.
    Operator(Arc<str>),
    /// The customer whose account it is.
    Customer,
    /// The gateway itself: a start, a test, the demo.
    Gateway,
}

impl Actor {
    /// The operator of this name.
    #[must_use]
    pub fn operator(name: &str) -> Self {
        Self::Operator(name.into())
    }

    /// The word for the kind of actor, in logs and the API.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Operator(_) => "operator",
            Self::Customer => "customer",
            Self::Gateway => "gateway",
        }
    }

    /// The operator's name.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Operator(name) => Some(name),
            Self::Customer | Self::Gateway => None,
        }
    }
}

/// One thing that someone did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Act {
    /// On which account; the house's where it is no customer's.
    pub account: AccountId,
    /// Who.
    pub by: Actor,
    /// What, in a short word such as `account.create`.
    pub what: String,
    /// The id of the thing that was written.
    pub subject: String,
    /// What the caller calls the write.
    pub id: Option<String>,
    /// The SHA-256 of the request; zeros where there was none.
    pub digest: [u8; 32],
    /// When.
    pub at: UnixMs,
}
