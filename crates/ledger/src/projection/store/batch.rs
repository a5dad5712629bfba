//! Rows of one atomic write, and the release of the pages that it replaces.

use std::collections::HashMap;

use sled::IVec;

/// Turns of the collector behind each batch. Sled frees the pages that a batch replaces through it, and
/// it takes no more than eight bags of 64 in a turn, of which sled itself makes one in 128 reads.
const COLLECTIONS: usize = 64;

/// Rows of one atomic write.
#[derive(Default)]
pub(super) struct Batch(HashMap<IVec, Option<IVec>>);

impl Batch {
    pub(super) fn insert(&mut self, key: impl Into<IVec>, value: impl Into<IVec>) {
        self.0.insert(key.into(), Some(value.into()));
    }

    pub(super) fn remove(&mut self, key: impl Into<IVec>) {
        self.0.insert(key.into(), None);
    }

    /// The rows that it writes, and with `None` removes, in no order.
    pub(super) fn changes(&self) -> impl Iterator<Item = (&IVec, Option<&IVec>)> {
        self.0.iter().map(|(key, value)| (key, value.as_ref()))
    }

    pub(super) fn into_sled(self) -> sled::Batch {
        let mut batch = sled::Batch::default();
        for (key, value) in self.0 {
            match value {
                Some(value) => batch.insert(key, value),
                None => batch.remove(key),
            }
        }
        batch
    }
}

/// Frees memory that no reader uses any more.
pub(super) fn collect() {
    for _ in 0..COLLECTIONS {
        crossbeam_epoch::pin().flush();
    }
}
