//! What is read of a ledger: statements, usage, figures, losses, exports, reports, and the check of the
//! whole journal. Nothing is decided here.
//!
//! It may import `memory` and the layers below.

pub(in crate::ledger) mod call;
pub(in crate::ledger) mod export;
pub(in crate::ledger) mod figures;
pub(in crate::ledger) mod loss;
pub(in crate::ledger) mod offline;
pub(in crate::ledger) mod past;
pub(in crate::ledger) mod report;
pub(in crate::ledger) mod scan;
pub(in crate::ledger) mod standing;
pub(in crate::ledger) mod statement;
pub(in crate::ledger) mod usage;
pub(in crate::ledger) mod verify;
