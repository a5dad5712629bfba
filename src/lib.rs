//! Tollgate: an AI gateway that bills exactly.
//!
//! The modules in the order in which a request meets them; `ARCHITECTURE.md` is the map.

// Tests and benches fail by panicking; the product does not.
#![deny(clippy::expect_used)]

// The request's path.
pub use tollgate_mcp as mcp;
pub mod gateway;
pub mod pipeline;
pub use tollgate_protocols as protocols;
pub mod balance;
pub use tollgate_holds as holds;
pub use tollgate_limits as limits;
pub mod tasks;
pub use tollgate_fleet as fleet;
pub use tollgate_ledger as ledger;
pub use tollgate_options as options;
use tollgate_pricing as pricing;
pub use tollgate_upstream_calls as outbound;

// What it is told, and what it tells.
pub use tollgate_config as config;
pub use tollgate_credentials as credentials;
pub use tollgate_reload as reload;
use tollgate_web_kit as web;
mod console;
pub mod admin;
pub use tollgate_telemetry::{finished, logging, metrics, request_log};
#[cfg(feature = "otlp")]
pub use tollgate_traces as traces;

// The commands, and upstreams to try them on.
pub use tollgate_cli as cli;
pub mod server;
pub use tollgate_simulator as sim;

// What everything is made of.
use tollgate_client_address as forwarded;
pub use tollgate_money::{money, price};
pub use tollgate_protocols::public_url;
pub use tollgate_types::{clock, error, ids, secret};
use tollgate_types::{closest, words};
pub use tollgate_web_kit::password;
#[cfg(test)]
mod sample;
