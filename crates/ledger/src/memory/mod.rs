//! The open ledger in memory: decisions under locks, commits, audit records, notes of calls in flight, and the
//! ports of tasks and figures.
//!
//! It may import the layers below, from `maintenance` on.

pub(crate) mod act;
pub(crate) mod books;
pub(crate) mod follow;
pub(crate) mod hold;
pub(crate) mod ledger;
pub(crate) mod registry;
pub(crate) mod in_flight;
pub(crate) mod write;
