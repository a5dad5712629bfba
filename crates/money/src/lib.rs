//! What everything is made of: amounts, prices and what was used, names of things, the clock, secrets,
//! kinds of errors.
//!
//! Values only. Nothing here reads or writes a file, or waits; the clock and the operating system's
//! source of randomness are all that it asks.

// Tests fail by panicking; the product does not.
#![deny(clippy::expect_used)]

pub mod money;
pub mod price;
pub mod ids;
pub mod limit;
pub mod error;
pub mod clock;
pub mod secret;
pub mod words;
pub mod closest;
pub mod printable;
