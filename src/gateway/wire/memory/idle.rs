//! State of connections without a request under way, which counts in the budget of bodies and is evicted
//! when a body finds no room there.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::gateway::wire::memory::budget::{BodyBudget, BudgetShare};
use crate::gateway::wire::memory::eviction::{Evict, StateKey, StateOwner};

/// A state that an idle connection keeps; given up when it is dropped.
pub(crate) struct IdleState<T: Send + 'static> {
    slot: Arc<KeptState<T>>,
    budget: Arc<BodyBudget>,
    owner: StateOwner,
    key: StateKey,
}

/// The state itself, and its share of the budget.
struct KeptState<T> {
    kept: Mutex<Option<(T, BudgetShare)>>,
    evicted: Notify,
}

impl BudgetShare {
    /// Keeps `state`, which takes the bytes of this share, until it is taken again or evicted for others.
    pub(crate) fn keep<T: Send + 'static>(self, state: T) -> IdleState<T> {
        let owner = self.account().map_or(StateOwner::NOBODY, |account| StateOwner {
            account: account.number,
            is_funded: account.is_funded,
        });
        let budget = Arc::clone(self.budget());
        IdleState::new(state, self, budget, owner)
    }
}

impl<T: Send> Evict for KeptState<T> {
    fn evict(&self) {
        let kept = self.kept.lock().take();
        if kept.is_some() {
            self.evicted.notify_one();
        }
    }
}

impl<T: Send + 'static> IdleState<T> {
    /// Keeps `state`, which takes the bytes of `share`, a share of `budget`.
    pub(crate) fn new(
        state: T,
        share: BudgetShare,
        budget: Arc<BodyBudget>,
        owner: StateOwner,
    ) -> Self {
        let bytes = share.bytes();
        let kept = Mutex::new(Some((state, share)));
        let slot = Arc::new(KeptState { kept, evicted: Notify::new() });
        let evict: Arc<dyn Evict> = Arc::<KeptState<T>>::clone(&slot);
        let key = budget.idle().insert(owner, bytes, evict);
        Self { slot, budget, owner, key }
    }

    /// The state and its share, to go on with; `None` once it was evicted.
    pub(crate) fn take(self) -> Option<(T, BudgetShare)> {
        self.slot.kept.lock().take()
    }

    /// Waits until the state is evicted.
    pub(crate) async fn evicted(&self) {
        self.slot.evicted.notified().await;
    }

    /// True if the state was evicted.
    #[cfg(test)]
    pub(crate) fn is_evicted(&self) -> bool {
        self.slot.kept.lock().is_none()
    }
}

impl<T: Send + 'static> Drop for IdleState<T> {
    fn drop(&mut self) {
        let state = self.budget.idle().remove(self.owner.account, &self.key);
        // The lock is free again before a large state goes with it.
        drop(state);
    }
}

impl<T: Send + 'static> fmt::Debug for IdleState<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleState")
            .field("owner", &self.owner)
            .field("bytes", &self.key.0)
            .finish_non_exhaustive()
    }
}
