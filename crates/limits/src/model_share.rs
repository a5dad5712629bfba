//! What one account may have of the places of a model, which are for all accounts together.
//!
//! An upstream that is at work cannot be taken back from a request, for up to an hour: so no account may
//! take all of a model's places, however many requests it makes and however many answers it abandons. Its
//! share shrinks as others take theirs, by the rule of [`share_of`]; where places are few, rounding up must
//! not make it all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::pool::share_of;

/// The account that a request is made for, and what part of a model's places may be its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountShare {
    /// The number of the account.
    pub account: u64,
    /// From 1 to 100: what an account may have that is alone. With 100 it may take all places.
    pub percent: u32,
}

impl AccountShare {
    /// Whether an account may take all places.
    pub(super) fn is_whole(self) -> bool {
        self.percent >= 100
    }
}

/// The places of one model that one account has taken, abandoned answers included.
#[derive(Debug, Default)]
pub(super) struct ModelPlaces(AtomicU32);

impl ModelPlaces {
    /// Whether a new one would say the same.
    pub(super) fn is_idle(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    /// Counts one more place of the account, unless it has `share` of them.
    pub(super) fn take(self: &Arc<Self>, share: u32) -> Option<TakenPlace> {
        let within = |taken: u32| (taken < share).then(|| taken + 1);
        let taken = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, within);
        taken.ok().map(|_| TakenPlace(Arc::clone(self)))
    }
}

/// The most of `places` that one account may have while so many are taken, by itself and others.
pub(super) fn share_of_places(places: u32, taken: u32, percent: u32) -> u32 {
    let alone = u64::from(places) * u64::from(percent.min(100)) / 100;
    let alone = u32::try_from(alone).unwrap_or(places).max(1);
    let number = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
    let shrunk = share_of(number(places.saturating_sub(taken)), number(percent));
    alone.min(u32::try_from(shrunk).unwrap_or(u32::MAX))
}

/// A place of a model that an account has taken, given back on drop.
#[derive(Debug)]
pub(super) struct TakenPlace(Arc<ModelPlaces>);

impl Drop for TakenPlace {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}
