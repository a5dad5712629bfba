//! Distribution of accounts over locks.

use crate::rules::core::Core;
use tollgate_types::ids::AccountId;

/// Accounts are spread over this many locks: many more than there are threads, so that two calls
/// seldom meet.
const SHARDS: usize = 64;

/// The shard of an account; below [`SHARDS`]. Ids are random, so the remainder spreads them.
pub(crate) fn shard_index(account: AccountId) -> usize {
    usize::try_from(account.number() % SHARDS as u64).unwrap_or(0)
}

/// Empty state, one part per shard.
pub(crate) fn new_cores() -> Vec<Core> {
    (0..SHARDS).map(|_| Core::default()).collect()
}
