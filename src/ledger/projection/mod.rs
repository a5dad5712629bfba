//! Sled, which is derived from the journal for queries: windows of records summed up, the store with
//! its layout, checkpoints of it, the state of a start, and the thread that writes it.
//!
//! It may import `records`, `rules`, `files` and the journal.

pub(in crate::ledger) mod checkpoint;
pub(in crate::ledger) mod grain;
pub(in crate::ledger) mod load;
pub(in crate::ledger) mod projected;
pub(in crate::ledger) mod projector;
pub(in crate::ledger) mod store;
pub(in crate::ledger) mod window;
