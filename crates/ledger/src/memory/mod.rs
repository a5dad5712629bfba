//! The open ledger in memory: how a write is decided under locks and committed, who made it, what is
//! noted of calls before they are sent, and what is asked of the places where tasks stand and money is
//! added up.
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
