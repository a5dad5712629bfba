//! The share of one account in a model's concurrency limit, which all accounts use together.
//!
//! An upstream that is at work cannot be taken back from a request, for up to an hour: so no account may
//! take all of a model's places, however many requests it makes and however many answers it abandons. Its
//! share shrinks as others take theirs, by the rule of [`share_of`]; where places are few, rounding up must
//! not make it all of them. The last place is for an account that has none: two accounts that abandon all
//! their answers would else close a model to everybody.

use super::pool::share_of;

/// The account that a request is made for, and what part of a model's places may be its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountShare {
    /// The number of the account.
    pub account: u64,
    /// From 1 to 100: the share of a single account. With 100 it may take all places.
    pub percent: u32,
}

impl AccountShare {
    /// True if an account may use the whole limit.
    pub(super) fn is_whole(self) -> bool {
        self.percent >= 100
    }
}

/// The largest part of a concurrency limit for one account while `taken` slots are in use, its own included.
pub(super) fn concurrency_share(concurrency: u32, taken: u32, percent: u32) -> u32 {
    let free = concurrency.saturating_sub(taken);
    if free <= 1 {
        return 1;
    }
    let alone = u64::from(concurrency) * u64::from(percent.min(100)) / 100;
    let alone = u32::try_from(alone).unwrap_or(concurrency).max(1);
    let number = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
    let shrunk = share_of(number(free), number(percent));
    alone.min(u32::try_from(shrunk).unwrap_or(u32::MAX))
}
