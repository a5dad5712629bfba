//! A ledger from its files: opened with what a crash left, repaired, restored from a backup, and moved
//! into a fleet or out of it.
//!
//! The topmost layer: it may import all others.

pub(crate) mod moving;
pub(in crate::ledger) mod options;
pub(in crate::ledger) mod recovery;
pub(in crate::ledger) mod repair;
pub(in crate::ledger) mod restore;
