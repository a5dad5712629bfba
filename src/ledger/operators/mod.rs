//! What operators write: accounts, grants, refunds and keys, debts, calls in doubt, and money in
//! suspense.
//!
//! It may import `people` and the layers below.

pub(in crate::ledger) mod admin;
pub(in crate::ledger) mod debt;
pub(in crate::ledger) mod doubt;
pub(in crate::ledger) mod suspense;
