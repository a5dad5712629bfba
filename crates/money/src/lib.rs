//! Money as integers, and prices: what a unit of usage costs and how usage adds up to an amount.
//!
//! Values and arithmetic only: no I/O, no clock.

// Tests fail by panicking; the product does not.
#![deny(clippy::expect_used)]

pub mod money;
pub mod price;
