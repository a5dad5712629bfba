//! The money of calls: holds are made, extended, posted and voided, and wait for leased money.
//!
//! It may import `reading`, `memory` and the layers below.

pub(in crate::ledger) mod cap;
pub(in crate::ledger) mod hold;
pub(in crate::ledger) mod lend;
