//! Work that outlives its request: tasks, the holds that pay for them, and lists of them. Where they
//! stand is `memory`'s `TaskRegistry`: `local` in this ledger, `shared` with those of other ledgers.
//!
//! It may import `calls`, `reading`, `memory` and the layers below.

pub(crate) mod delivery;
pub(crate) mod local;
pub(crate) mod shared;
pub(crate) mod task;
