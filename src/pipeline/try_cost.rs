//! Where a request was tried, and what that cost the operator.

use std::sync::Arc;

use crate::config::snapshot::Target;
use crate::ledger::CostKind;
use crate::money::Nanousd;
use crate::price::{Usage, UsageSource};

/// Where a try was made: at a target, with the credential of this name.
#[derive(Clone, Debug)]
pub struct TriedAt {
    /// The target that was asked.
    pub target: Arc<Target>,
    /// The name of the credential; empty where the upstream has only one.
    pub credential: String,
}

/// What one try cost the operator.
#[derive(Clone, Debug)]
pub struct TryCost {
    /// Where it was made.
    pub at: TriedAt,
    /// The id of the model: that of the request, or of a fallback.
    pub model: Arc<str>,
    /// What the upstream calls the model.
    pub upstream_model: String,
    /// What the operator pays for.
    pub kind: CostKind,
    /// What was used, and how that is known.
    pub usage: (Usage, UsageSource),
    /// What that costs the operator.
    pub cost: Nanousd,
}
