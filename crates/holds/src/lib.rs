//! Sharing of a small balance among an account's parallel calls.
//!
//! A call whose most is small beside its account's balance never comes here. Any other takes a
//! [`QueuedCall`] at the [`HoldQueue`], which counts the parallel calls of each account; [`Funds`] are split
//! among them; and a [`MeansProgress`] goes through the operator's means, in order, until one of them makes the
//! call fit its share. [`fit`] does all of that for a [`TightCall`], which reads the ledger, asks
//! providers and holds the money.

// Tests fail by panicking; the product does not.
#![deny(clippy::expect_used, clippy::arithmetic_side_effects, clippy::float_arithmetic)]

mod queue;
mod fit;
mod funds;
mod plan;

pub use fit::{FitError, HoldFailure, HoldKind, TightCall, fit};
pub use funds::{Allowance, Funds};
pub use plan::{MeansProgress, Needs, PlanStep};
pub use queue::{HoldQueue, QueuedCall, RunningCall};

/// A call is admitted without a look at the other calls of its account where this multiple of its most
/// is available: seven more of its size fit beside it.
pub const PLENTY: i64 = 8;
