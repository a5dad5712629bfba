//! Files beside the journal: the directory's lock, seals, the marker of a moved ledger, and files that only
//! their owner can read.
//!
//! It may import `records` and `rules`.

pub(crate) mod directory;
pub(crate) mod fatal;
pub(crate) mod lock;
pub mod moved;
pub(crate) mod private;
pub(crate) mod seal;
