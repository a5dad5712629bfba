//! Ends of holds: the charge of a settled one, and the reason for one without a charge.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tollgate_money::money::Nanousd;
use tollgate_money::price::{Usage, UsageSource};

/// Charge of a settled hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Amount paid by the customer.
    pub charged: Nanousd,
    /// Debt: the part that the account could not pay.
    pub owed: Nanousd,
    /// Amount borne by the operator.
    pub written_off: Nanousd,
    /// Usage of the call, by unit.
    pub usage: Usage,
    /// Source of the usage figures.
    pub source: UsageSource,
}

/// Reason why a hold ended without a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VoidReason {
    /// No upstream could be reached, or none accepted the request.
    Unreached,
    /// The upstream answered with an error and no usage.
    UpstreamError,
    /// The client disconnected before the upstream had begun to process the call.
    #[serde(rename = "client_gone")]
    ClientDisconnected,
    /// The hold was dropped without an outcome: a bug, logged as such.
    Abandoned,
    /// A fallback model was used: the call continues with a hold for that model.
    Replaced,
}

impl VoidReason {
    /// The word used in logs and the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreached => "unreached",
            Self::UpstreamError => "upstream_error",
            Self::ClientDisconnected => "client_gone",
            Self::Abandoned => "abandoned",
            Self::Replaced => "replaced",
        }
    }
}
