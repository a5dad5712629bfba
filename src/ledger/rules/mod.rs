//! The rules of money as pure state: what a record does to an account, what may happen, and what must
//! hold of the whole. No disk, no lock.
//!
//! It may import `records`.

pub(in crate::ledger) mod account;
pub mod audit;
pub(in crate::ledger) mod cap_shares;
pub mod core;
pub(in crate::ledger) mod house;
pub mod key_rules;
pub(in crate::ledger) mod people;
pub(in crate::ledger) mod shards;
pub(in crate::ledger) mod spend;
pub(in crate::ledger) mod submit;
pub(in crate::ledger) mod text;
