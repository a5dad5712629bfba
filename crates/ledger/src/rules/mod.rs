//! The rules of money as a pure state machine: effects of records, decisions, and invariants. No disk, no
//! lock.
//!
//! It may import `records`.

pub(crate) mod account;
pub mod audit;
pub(crate) mod cap_shares;
pub mod core;
pub(crate) mod credit;
pub(crate) mod general_ledger;
pub(crate) mod operator;
pub mod key_rules;
pub(crate) mod key_spend;
pub(crate) mod customers;
pub(crate) mod postings;
pub(crate) mod settlement;
pub(crate) mod shards;
pub(crate) mod spend;
pub(crate) mod submit;
pub(crate) mod sums;
pub(crate) mod text;
