//! What a provider says it billed, held against what the journal says that calls cost.
//!
//! [`read`] turns a provider's exports into a [`BilledStatement`]: quantities and amounts by day, model and
//! credential. [`JournalReading`] turns the records of `tollgate ledger export` into [`OwnLine`]s.
//! [`reconcile`] holds one against the other and gives each difference a [`DifferenceClass`];
//! [`as_text`] and [`as_json`] show the [`Reconciliation`] to people and to programs. Amounts are exact
//! decimals. Nothing here opens a file or calls anybody.

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

#[cfg(test)]
mod seeded;

pub use amount::Femtousd;
pub use compare::{CredentialNames, reconcile};
pub use day::Day;
pub use journal::{JournalError, JournalReading};
pub use own::{OwnKind, OwnLine, UpstreamError, select_upstreams};
pub use render::{as_json, as_text};
pub use report::{
    ClassTotal, DifferenceClass, MoneyLine, QuantityLine, Reconciliation, Skipped, StatementKey,
};
pub use source::{STATEMENT_BYTES_MAX, StatementFile, read};
pub use statement::{BilledStatement, Measure, Provider, StatementError};
