//! Ports: traits for money, tasks and writes that several ledgers share. The caller of
//! `Ledger::open` chooses the implementation; without one the ledger has everything itself.
//!
//! It may import the layers below, from `maintenance` on.

pub(crate) mod funds;
pub(crate) mod node_status;
pub(crate) mod tasks;
pub(crate) mod writes;
