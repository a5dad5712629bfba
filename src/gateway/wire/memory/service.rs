//! The budget of bodies for services that hold more than the bodies of their requests.

use std::fmt;
use std::sync::Arc;

use crate::gateway::wire::memory::budget::{BodyBudget, BudgetShare};

/// The budget, for services that hold more than the bodies of their requests.
#[derive(Clone)]
pub struct Memory {
    budget: Arc<BodyBudget>,
    max: usize,
}

impl Memory {
    pub(crate) fn new(budget: &Arc<BodyBudget>, max: usize) -> Self {
        Self { budget: Arc::clone(budget), max }
    }

    /// An empty part of the share.
    #[must_use]
    pub fn part(&self) -> MemoryPart {
        MemoryPart { share: BudgetShare::new(&self.budget, None), max: self.max }
    }
}

/// A part of the budget, returned on drop.
pub struct MemoryPart {
    share: BudgetShare,
    max: usize,
}

impl MemoryPart {
    /// Takes `bytes` more; false if the budget is exhausted.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        self.share.grow(bytes, self.max)
    }
}

impl fmt::Debug for MemoryPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryPart").field("bytes", &self.share.bytes()).finish_non_exhaustive()
    }
}
