//! A ledger from its files: opened after a crash, repaired, restored from a backup, and migrated into a fleet
//! or out of it.
//!
//! The topmost layer: it may import all others.

pub mod moving;
pub(crate) mod options;
pub(crate) mod recovery;
pub(crate) mod repair;
pub(crate) mod restore;
#[cfg(test)]
mod sled_checks;
