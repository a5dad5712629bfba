//! What the journal says: records and why a record or a request is refused.
//!
//! The lowest layer: it imports nothing of the ledger.

pub(in crate::ledger) mod act;
pub(in crate::ledger) mod checkpointed;
pub(in crate::ledger) mod code;
pub(in crate::ledger) mod error;
pub(in crate::ledger) mod key_limits;
pub(in crate::ledger) mod login;
pub(in crate::ledger) mod loss;
pub(in crate::ledger) mod record;
pub(in crate::ledger) mod task;
