//! Rate limits and their status.

use std::num::NonZeroU32;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words::words;

/// Limits of one key, account or model; `null` for no limit.
///
/// It stands in the ledger's journal as it is here: fields are never added, changed or moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rates {
    /// Requests per minute. A full minute's requests may arrive at once.
    pub requests_per_minute: Option<NonZeroU32>,
    /// Input and output tokens per minute.
    pub tokens_per_minute: Option<NonZeroU32>,
    /// Limit of concurrent requests.
    pub concurrent_requests: Option<NonZeroU32>,
}

impl Rates {
    /// No limit at all.
    pub const NONE: Self =
        Self { requests_per_minute: None, tokens_per_minute: None, concurrent_requests: None };

    /// True if no limit is set.
    #[must_use]
    pub fn are_none(&self) -> bool {
        *self == Self::NONE
    }

    /// These limits, with `defaults` for missing ones.
    #[must_use]
    pub fn or(self, defaults: Self) -> Self {
        Self {
            requests_per_minute: self.requests_per_minute.or(defaults.requests_per_minute),
            tokens_per_minute: self.tokens_per_minute.or(defaults.tokens_per_minute),
            concurrent_requests: self.concurrent_requests.or(defaults.concurrent_requests),
        }
    }
}

words! {
    /// Limited quantity.
    Limit {
        /// Requests per minute are limited.
        Requests = "requests",
        /// Tokens per minute are limited.
        Tokens = "tokens",
        /// Limit of concurrent requests.
        Concurrency = "concurrency",
        /// Money a day or a month.
        Spend = "spend",
    }
}

words! {
    /// Scope of a limit.
    Scope {
        /// An API key.
        Key = "key",
        /// An account, with all its keys.
        Account = "account",
        /// A model's: all customers together.
        Model = "model",
    }
}

/// Status of one limit, as in the `RateLimit` headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitStatus {
    /// Its value.
    pub limit: u32,
    /// Rest of the limit.
    pub remaining: u32,
    /// Time until the full limit is available again, without further use.
    pub reset: Duration,
}

/// The limits closest to exhaustion; `None` for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RateLimitStatus {
    /// Limit of requests per minute.
    pub requests: Option<LimitStatus>,
    /// Limit of tokens per minute.
    pub tokens: Option<LimitStatus>,
}

impl RateLimitStatus {
    /// Keeps the one of which less is left.
    pub fn nearest(nearest: &mut Option<LimitStatus>, gauge: Option<LimitStatus>) {
        let is_nearer =
            |gauge: &LimitStatus| nearest.is_none_or(|nearest| gauge.remaining < nearest.remaining);
        if let Some(gauge) = gauge.filter(is_nearer) {
            *nearest = Some(gauge);
        }
    }
}
