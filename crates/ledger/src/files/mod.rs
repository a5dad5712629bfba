//! Files beside the journal: the directory's lock, seals, the mark of a ledger that has moved elsewhere, and
//! secrets that only their owner can read.
//!
//! It may import `records` and `rules`.

pub(crate) mod directory;
pub(crate) mod fatal;
pub(crate) mod lock;
pub mod moved;
pub(crate) mod private;
pub(crate) mod seal;
