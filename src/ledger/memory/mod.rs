//! The open ledger in memory: how a write is decided under locks and committed, who made it, and what
//! is noted of calls before they are sent.
//!
//! It may import the layers below, from `upkeep` on.

pub(in crate::ledger) mod act;
pub(in crate::ledger) mod follow;
pub(in crate::ledger) mod ledger;
pub(in crate::ledger) mod sent;
pub(in crate::ledger) mod write;
