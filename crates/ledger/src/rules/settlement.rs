//! Settlement of a call or a task.

use tollgate_money::money::Nanousd;
use tollgate_money::price::{Prices, Usage, UsageSource};

/// Settlement of a call.
#[derive(Clone, Copy, Debug)]
pub struct Settlement {
    /// Cost. It may exceed the hold: see [`Hold::post`](crate::Hold::post).
    pub charge: Nanousd,
    /// Usage of the call, by unit.
    pub usage: Usage,
    /// Source of the usage figures.
    pub source: UsageSource,
}

/// Settlement of a task's hold.
#[derive(Clone, Copy, Debug)]
pub enum TaskSettlement {
    /// With a charge, within the hold.
    Post(Settlement),
    /// The hold ends without a charge.
    Void,
}

impl TaskSettlement {
    /// With what `usage` costs at the task's own prices.
    #[must_use]
    pub fn post(prices: &Prices, usage: Usage, source: UsageSource) -> Self {
        Self::Post(Settlement { charge: prices.cost(&usage), usage, source })
    }
}
