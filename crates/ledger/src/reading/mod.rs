//! Reads of a ledger: statements, usage, figures, losses, exports, reports, and verification of the
//! journal. Nothing is decided here. `local` and `shared` implement the port `Books` for this
//! ledger and for a fleet.
//!
//! It may import `memory` and the layers below.

pub(crate) mod call;
mod cost;
pub(crate) mod export;
pub(crate) mod exporter;
pub(crate) mod figures;
mod focus;
pub(crate) mod local;
pub(crate) mod loss;
pub(crate) mod offline;
pub(crate) mod past;
pub(crate) mod report;
pub(crate) mod scan;
pub(crate) mod shared;
pub(crate) mod node_status;
pub(crate) mod statement;
pub(crate) mod usage;
pub(crate) mod compare;
pub(crate) mod verify;
