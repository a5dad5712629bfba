//! Values that every crate uses: ids, time, secrets, error kinds and rate limits.
//!
//! No I/O: the only system calls read the clock and the operating system's random numbers.

// Tests fail by panicking; the product does not.
#![deny(clippy::expect_used)]

pub mod ids;
pub mod clock;
pub mod secret;
pub mod error;
pub mod limit;
pub mod words;
pub mod closest;
pub mod printable;
