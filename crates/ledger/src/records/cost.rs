//! What calls cost the operator at the upstreams that answered them, as the journal has it, and sums of
//! it beside what customers were charged for the same calls.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tollgate_money::money::Nanousd;
use tollgate_money::price::{Usage, UsageSource};
use tollgate_types::clock::{MS_PER_DAY, UnixMs};
use tollgate_types::ids::{AccountId, KeyId, RequestId};

/// What the operator pays an upstream for. Kinds are only ever appended: the journal has their places.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CostKind {
    /// The answer that the customer was charged for.
    Answer,
    /// An answer that broke or never came, for which the customer paid nothing.
    Unpaid,
    /// A try that was followed by another, and may have been worked on all the same.
    Retry,
}

/// What one call, or one try of it, cost the operator. Customers never see it, and no money of theirs moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Costed {
    /// Whose call it was.
    pub account: AccountId,
    /// The key that it was made with.
    pub key: KeyId,
    /// The public id of the model that was called.
    pub model: Arc<str>,
    /// The upstream that was asked.
    pub upstream: Arc<str>,
    /// The name of the credential that it was asked with; empty where it has only one.
    pub credential: Arc<str>,
    /// What the upstream calls the model.
    pub upstream_model: Arc<str>,
    /// The call; of a task its number in the place of a request's.
    pub request: RequestId,
    /// What the operator pays for.
    pub kind: CostKind,
    /// What was used of the upstream.
    pub usage: Usage,
    /// How that is known: what is estimated is the most that it can have been.
    pub source: UsageSource,
    /// What the customer was charged for it, and owes for it.
    pub charged: Nanousd,
    /// What it costs the operator; not negative.
    pub cost: Nanousd,
    /// When it was settled.
    pub at: UnixMs,
}

impl Costed {
    /// What it is summed by.
    pub(crate) fn cell(&self) -> MarginCell {
        MarginCell {
            day: u32::try_from(self.at.0.div_euclid(MS_PER_DAY)).unwrap_or(u32::MAX),
            account: self.account,
            model: Arc::clone(&self.model),
            upstream: Arc::clone(&self.upstream),
        }
    }

    /// What it adds to a sum.
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

    /// Whether no amount is negative.
    pub(crate) fn is_sound(&self) -> bool {
        !self.charged.is_negative() && !self.cost.is_negative()
    }
}

/// What costs are summed by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MarginCell {
    /// The day, counted from 1970.
    pub day: u32,
    /// The account whose calls they are.
    pub account: AccountId,
    /// The model that was asked for.
    pub model: Arc<str>,
    /// The upstream that answered.
    pub upstream: Arc<str>,
}

/// What some calls brought in, and what they cost. Only calls whose cost is known are in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MarginTotal {
    /// How many calls those are.
    pub calls: u64,
    /// What customers were charged for them, and owe for them.
    pub charged: Nanousd,
    /// What they cost the operator.
    pub cost: Nanousd,
    /// The most that tries cost beside them for which no customer paid.
    pub unpaid: Nanousd,
}

impl MarginTotal {
    /// Adds `other`. Figures past the range stay at its end: they are statistics, not balances.
    pub fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.charged = self.charged.checked_add(other.charged).unwrap_or(Nanousd::MAX);
        self.cost = self.cost.checked_add(other.cost).unwrap_or(Nanousd::MAX);
        self.unpaid = self.unpaid.checked_add(other.unpaid).unwrap_or(Nanousd::MAX);
    }
}
