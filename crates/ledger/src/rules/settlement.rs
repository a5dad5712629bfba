//! What a call or a task came to, as its hold is ended with it.

use tollgate_money::money::Nanousd;
use tollgate_money::price::{Prices, Usage, UsageSource};

/// What a call came to.
#[derive(Clone, Copy, Debug)]
pub struct Settlement {
    /// What it costs. It may exceed the hold: see [`Hold::post`](crate::Hold::post).
    pub charge: Nanousd,
    /// What was used.
    pub usage: Usage,
    /// Who says so.
    pub source: UsageSource,
}

/// How a task's hold ends.
#[derive(Clone, Copy, Debug)]
pub enum TaskSettlement {
    /// With a charge, within the hold.
    Post(Settlement),
    /// Without one.
    Void,
}

impl TaskSettlement {
    /// With what `usage` costs at the task's own prices.
    #[must_use]
    pub fn post(prices: &Prices, usage: Usage, source: UsageSource) -> Self {
        Self::Post(Settlement { charge: prices.cost(&usage), usage, source })
    }
}
