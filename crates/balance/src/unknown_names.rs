//! Negative cache of model names: chosen by customers for a pattern model, and unknown to an upstream.
//!
//! The same account gets the error again without a call for a short while. Other accounts do not share
//! it: an upstream can answer "not found" for other reasons in a request.

use std::time::{Duration, Instant};

use super::account_cache::{AccountCache, CacheBounds};
use super::channel::{Channel, PlannedCall};

/// Lifetime of an entry; short, since providers add models.
const TIME: Duration = Duration::from_secs(60);
/// Largest number of names of all accounts; some 500 KB.
const NAMES_MAX: usize = 10_000;
/// Maximum number of cached unknown model names per account. An account with more within a minute is guessing
/// names.
const ACCOUNT_NAMES_MAX: usize = 100;

/// Model names that upstreams have answered with "not found".
#[derive(Debug)]
pub(super) struct UnknownNames(AccountCache<()>);

impl Default for UnknownNames {
    fn default() -> Self {
        let (time, all_max, account_max) = (TIME, NAMES_MAX, ACCOUNT_NAMES_MAX);
        Self(AccountCache::new(CacheBounds { time, all_max, account_max }))
    }
}

impl UnknownNames {
    /// True if `channel` recently answered this account's calls of this kind that the model does not
    /// exist.
    pub(super) fn has(
        &self,
        call: PlannedCall,
        channel: &Channel,
        name: &str,
        now: Instant,
    ) -> bool {
        self.0.get(call.caller.account, (channel.seed, call.kind, name), now).is_some()
    }

    /// Record a "not found" answer.
    pub(super) fn add(&self, call: PlannedCall, channel: &Channel, name: &str, now: Instant) {
        self.0.put(call.caller.account, (channel.seed, call.kind, name), (), now);
    }
}
