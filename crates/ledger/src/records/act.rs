//! Audit records: one [`Act`] beside each write of an operator or a customer.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use tollgate_types::clock::UnixMs;
use tollgate_types::ids::AccountId;

/// Retention of idempotency keys of writes. A caller that retries later has to check first. Ids of
/// grants and refunds are kept forever.
pub const IDS_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Author of a write.
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

    /// Name of the operator in `admin.operators`.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Operator(name) => Some(name),
            Self::Customer | Self::Gateway => None,
        }
    }
}

/// One write in the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Act {
    /// Account concerned; [`AccountId::OPERATOR`] if it is no customer's.
    pub account: AccountId,
    /// Author.
    pub by: Actor,
    /// Action, such as `account.create`.
    pub what: String,
    /// Id of the changed object.
    pub subject: String,
    /// Idempotency key chosen by the caller.
    pub id: Option<String>,
    /// The SHA-256 of the request; zeros where there was none.
    pub digest: [u8; 32],
    /// Time of the write.
    pub at: UnixMs,
}
