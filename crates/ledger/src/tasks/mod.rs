//! Work that outlives its request: tasks, the holds that pay for them, and lists of them.
//!
//! It may import `calls`, `reading`, `memory` and the layers below.

pub(crate) mod delivery;
pub(crate) mod shared;
pub(crate) mod task;
