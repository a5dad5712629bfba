//! Asynchronous tasks, the holds that pay for them, and lists of them. `local` and `shared` implement the port
//! `TaskRegistry` for this ledger and for a fleet.
//!
//! It may import `calls`, `reading`, `memory` and the layers below.

pub(crate) mod delivery;
pub(crate) mod local;
pub(crate) mod shared;
pub(crate) mod task;
