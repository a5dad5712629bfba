//! Contents of the journal: records, and the reasons for which a record or a request is refused.
//!
//! The lowest layer: it imports nothing of the ledger.

pub(crate) mod act;
pub(crate) mod checkpointed;
pub(crate) mod code;
pub(crate) mod cost;
pub(crate) mod error;
pub(crate) mod hold_end;
pub(crate) mod holds;
pub(crate) mod id_map;
pub(crate) mod key;
pub(crate) mod key_limits;
pub(crate) mod login;
pub(crate) mod loss;
pub(crate) mod price;
pub(crate) mod record;
pub(crate) mod reservation;
pub(crate) mod task;
