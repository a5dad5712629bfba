//! Reconciliation of a provider's invoice with the costs in the journal.
//!
//! [`read`] parses a provider's exports into a [`BilledStatement`]: quantities and amounts by day, model
//! and credential. [`JournalReading`] parses the records of `tollgate ledger export` into [`OwnLine`]s.
//! [`reconcile`] compares them and gives each difference a [`DifferenceClass`]; [`as_text`] and
//! [`as_json`] render the [`Reconciliation`]. Amounts are exact decimals. No I/O.

// Tests fail by panicking; the product does not.
#![deny(clippy::expect_used, clippy::indexing_slicing, clippy::float_arithmetic)]
#![cfg_attr(not(test), deny(clippy::arithmetic_side_effects))]

mod amount;
mod day;
mod json;
mod statement;
mod source;
mod own;
mod journal;
mod names;
mod report;
mod totals;
mod classify;
mod compare;
mod render;

pub use amount::Femtousd;
pub use compare::{CredentialNames, reconcile};
pub use day::Day;
pub use journal::{JournalError, JournalReading};
pub use own::{OwnKind, OwnLine, UpstreamError, select_upstreams};
pub use render::{as_json, as_text};
pub use report::{
    ClassTotal, DifferenceClass, MoneyLine, QuantityLine, Reconciliation, StatementKey,
    UnmatchedLines,
};
pub use source::{STATEMENT_BYTES_MAX, StatementFile, read};
pub use statement::{BilledStatement, Measure, Provider, StatementError};
