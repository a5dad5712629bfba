//! Targets that a request was tried at, and their cost to the operator.

use std::sync::Arc;

use tollgate_config::snapshot::Target;
use tollgate_ledger::CostKind;
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Usage, UsageSource};

/// Target and credential of a try.
#[derive(Clone, Debug)]
pub struct TryTarget {
    /// Target of the try.
    pub target: Arc<Target>,
    /// Credential name; empty for an upstream with one unnamed credential.
    pub credential: String,
}

/// Operator's cost of one try.
#[derive(Clone, Debug)]
pub struct TryCost {
    /// Target and credential of the try.
    pub at: TryTarget,
    /// Id of the model, requested or fallback.
    pub model: Arc<str>,
    /// Upstream's name for the model.
    pub upstream_model: String,
    /// Kind of the cost.
    pub kind: CostKind,
    /// Usage and its source.
    pub usage: (Usage, UsageSource),
    /// Cost to the operator.
    pub cost: Nanousd,
}
