//! Writes of operators: accounts, grants, refunds and keys, debts, calls in doubt, and money in
//! suspense.
//!
//! It may import `customers` and the layers below.

pub(crate) mod admin;
pub(crate) mod debt;
pub(crate) mod doubt;
pub(crate) mod price;
pub(crate) mod suspense;
