//! Work that outlives its request: tasks, the holds that pay for them, and lists of them.
//!
//! It may import `calls`, `reading`, `memory` and the layers below.

pub(in crate::ledger) mod delivery;
pub(in crate::ledger) mod shared;
pub(in crate::ledger) mod task;
