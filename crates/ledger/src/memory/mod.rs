//! The open ledger in memory: how a write is decided under locks and committed, who made it, and what
//! is noted of calls before they are sent.
//!
//! It may import the layers below, from `upkeep` on.

pub(crate) mod act;
pub(crate) mod follow;
pub(crate) mod ledger;
pub(crate) mod sent;
pub(crate) mod write;
