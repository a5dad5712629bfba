//! Tollgate: an AI gateway that bills exactly.
//!
//! The modules in the order in which a request meets them; `ARCHITECTURE.md` is the map.

// Tests and benches fail by panicking; the product does not.
#![deny(clippy::expect_used)]

// The request's path.
pub mod mcp;
pub mod gateway;
pub mod pipeline;
pub mod protocols;
pub mod balance;
pub mod limits;
pub mod tasks;
pub mod outbound;
pub mod ledger;
pub mod fleet;

// What it is told, and what it tells.
pub mod config;
pub mod reload;
mod web;
mod console;
pub mod admin;
pub mod finished;
pub mod request_log;
pub mod metrics;
pub mod logging;
#[cfg(feature = "otlp")]
pub mod traces;

// The commands, and upstreams to try them on.
pub mod cli;
pub mod sim;

// What everything is made of.
pub mod error;
pub mod money;
pub mod price;
pub mod public_url;
mod words;
pub mod secret;
pub mod password;
pub mod clock;
