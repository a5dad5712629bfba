//! Files beside the journal: the directory's lock, and the mark of a ledger that has moved elsewhere.
//!
//! It may import `records` and `rules`.

pub(in crate::ledger) mod directory;
pub(in crate::ledger) mod fatal;
pub(in crate::ledger) mod lock;
pub(crate) mod moved;
