//! The fields of `prices`, of a model and under conditions: their names, units and rates.

use std::fmt::Display;

use crate::raw;
use tollgate_money::money::Rate;
use tollgate_money::price::{Prices, Unit};
use tollgate_protocols::Operation;

/// The unit's field below `prices`.
pub(super) fn field(unit: Unit) -> &'static str {
    unit.info().price
}

/// The units whose prices were typed.
pub(super) fn typed(prices: &raw::PricesSection) -> Vec<Unit> {
    Unit::ALL.iter().copied().filter(|unit| prices.rate(*unit).is_some()).collect()
}

/// The rates. Input that is read from or written to a cache costs what plain input costs, unless the
/// file says otherwise.
pub(super) fn prices(raw: &raw::PricesSection) -> Prices {
    Prices::of_each(|unit, before| {
        let default = || unit.priced_as.map_or(Rate::default(), |other| before[other]);
        raw.rate(unit.unit).unwrap_or_else(default)
    })
}

/// The operations as a sentence lists them: `chat`, `embeddings`.
pub(super) fn listed(operations: &[Operation]) -> String {
    joined(operations.iter().map(|operation| format!("`{operation}`")), ", ")
}

pub(super) fn joined(words: impl IntoIterator<Item = impl Display>, between: &str) -> String {
    let words: Vec<String> = words.into_iter().map(|word| word.to_string()).collect();
    words.join(between)
}
