//! Cost of calls at the upstreams that answered them, as recorded in the journal, and its sums next
//! to the customers' charges.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tollgate_money::money::Nanousd;
use tollgate_money::price::{Usage, UsageSource};
use tollgate_types::clock::{MS_PER_DAY, UnixMs};
use tollgate_types::ids::{AccountId, KeyId, RequestId};

/// Kind of cost. New kinds are appended only: the journal stores their index.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CostKind {
    /// The answer that the customer was charged for.
    Answer,
    /// An answer that broke off or never came, for which the customer was not charged.
    Unpaid,
    /// An attempt that was followed by another and may have been processed anyway.
    Retry,
}

/// Cost of one call, or of one attempt. Customers do not see it, and none of their money moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCost {
    /// Account of the call.
    pub account: AccountId,
    /// Key of the call.
    pub key: KeyId,
    /// The public id of the model that was called.
    pub model: Arc<str>,
    /// Upstream that was called.
    pub upstream: Arc<str>,
    /// Name of the credential used; empty if the upstream has only one.
    pub credential: Arc<str>,
    /// The upstream's name of the model.
    pub upstream_model: Arc<str>,
    /// Id of the request; for a task, its number.
    pub request: RequestId,
    /// Kind of cost to the operator.
    pub kind: CostKind,
    /// Usage billed by the upstream.
    pub usage: Usage,
    /// Source of the usage; an estimate is an upper bound.
    pub source: UsageSource,
    /// The customer's charge for the same call, debt included.
    pub charged: Nanousd,
    /// Cost to the operator; not negative.
    pub cost: Nanousd,
    /// Time of the settlement.
    pub at: UnixMs,
}

impl CallCost {
    /// Key of its sum.
    pub(crate) fn cell(&self) -> MarginCell {
        MarginCell {
            day: u32::try_from(self.at.0.div_euclid(MS_PER_DAY)).unwrap_or(u32::MAX),
            account: self.account,
            model: Arc::clone(&self.model),
            upstream: Arc::clone(&self.upstream),
        }
    }

    /// Contribution to a sum.
    pub(crate) fn total(&self) -> MarginTotal {
        match self.kind {
            CostKind::Answer => MarginTotal {
                calls: 1,
                charged: self.charged,
                cost: self.cost,
                ..MarginTotal::default()
            },
            CostKind::Unpaid | CostKind::Retry => {
                MarginTotal { unpaid: self.cost, ..MarginTotal::default() }
            }
        }
    }

    /// True if no amount is negative.
    pub(crate) fn is_sound(&self) -> bool {
        !self.charged.is_negative() && !self.cost.is_negative()
    }
}

/// Key of a cost sum.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MarginCell {
    /// The day, counted from 1970.
    pub day: u32,
    /// The account whose calls they are.
    pub account: AccountId,
    /// Model that the request named.
    pub model: Arc<str>,
    /// The upstream that answered.
    pub upstream: Arc<str>,
}

/// Revenue and cost of calls. Calls of unknown cost are not included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MarginTotal {
    /// Number of calls.
    pub calls: u64,
    /// Customers' charges, debts included.
    pub charged: Nanousd,
    /// Cost to the operator.
    pub cost: Nanousd,
    /// Maximum cost of additional tries that no customer paid for.
    pub unpaid: Nanousd,
}

impl MarginTotal {
    /// Adds `other`. Figures past the range stay at its end: they are statistics, not balances.
    pub fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.charged = self.charged.saturating_add(other.charged);
        self.cost = self.cost.saturating_add(other.cost);
        self.unpaid = self.unpaid.saturating_add(other.unpaid);
    }
}
