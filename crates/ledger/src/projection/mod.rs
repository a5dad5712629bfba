//! The sled projection, derived from the journal for queries: windows of records summed up as they are
//! committed, the store with its layout, checkpoints, the state of a start, and the thread that writes sled.
//!
//! It may import `records`, `rules`, `files` and the journal.

pub(crate) mod backlog;
pub(crate) mod checkpoint;
pub(crate) mod grain;
pub(crate) mod load;
pub(crate) mod projected;
pub(crate) mod projector;
pub(crate) mod store;
pub(crate) mod window;
