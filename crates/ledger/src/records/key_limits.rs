//! What a key may use and spend, and how a limit of spending stands.

use serde::{Deserialize, Serialize};

use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::limit::Rates;

/// What one key may use; `None` where nothing is said.
///
/// It stands in the journal as it is here: fields are never added, changed or moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyLimits {
    /// Limits in the place of those that the configuration has for every key.
    pub rates: Rates,
    /// The most that is charged on a day.
    pub spend_per_day: Option<Nanousd>,
    /// The most that is charged in a calendar month.
    pub spend_per_month: Option<Nanousd>,
}

/// How long a limit of spending runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// From midnight to midnight, UTC.
    Day,
    /// From the first of a month to the first of the next, UTC.
    Month,
}

/// A limit of spending that would be passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capped {
    /// How long it runs.
    pub period: Period,
    /// The limit.
    pub limit: Nanousd,
    /// What was spent of it.
    pub spent: Nanousd,
    /// What the key's open holds cover.
    pub held: Nanousd,
    /// When the next period begins.
    pub resets_at: UnixMs,
}
