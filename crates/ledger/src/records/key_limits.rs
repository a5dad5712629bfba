//! Limits of a key, and the status of its spending limit.

use serde::{Deserialize, Serialize};

use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::limit::Rates;

/// Limits of a key; `None` for no limit.
///
/// It stands in the journal as it is here: fields are never added, changed or moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyLimits {
    /// Limits in the place of those that the configuration has for every key.
    pub rates: Rates,
    /// Maximum charges per day.
    pub spend_per_day: Option<Nanousd>,
    /// Maximum charges per calendar month.
    pub spend_per_month: Option<Nanousd>,
}

/// Period of a spending limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// From midnight to midnight, UTC.
    Day,
    /// From the first of a month to the first of the next, UTC.
    Month,
}

/// A limit of spending that would be passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpendLimitStatus {
    /// Period of the limit.
    pub period: Period,
    /// The limit.
    pub limit: Nanousd,
    /// Amount spent in the period.
    pub spent: Nanousd,
    /// Amount that the key's open holds cover.
    pub held: Nanousd,
    /// Start of the next period.
    pub resets_at: UnixMs,
}
