//! Money of calls: holds are reserved, extended, posted and voided, and wait for leased money.
//!
//! It may import `reading`, `memory` and the layers below.

pub(crate) mod cap;
pub(crate) mod hold;
pub(crate) mod lend;
