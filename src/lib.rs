//! Tollgate: an AI gateway that bills exactly.
//!
//! The modules in the order in which a request meets them; `ARCHITECTURE.md` is the map.

// Tests and benches fail by panicking; the product does not.
#![deny(clippy::expect_used)]

// The request's path.
pub mod mcp;
pub mod gateway;
pub mod pipeline;
pub use tollgate_protocols as protocols;
pub mod balance;
pub use tollgate_holds as holds;
pub use tollgate_limits as limits;
pub mod tasks;
pub mod outbound;
mod pricing;
pub use tollgate_fleet as fleet;
pub use tollgate_ledger as ledger;
pub use tollgate_options as options;

// What it is told, and what it tells.
use tollgate_catalogue as catalogue;
pub use tollgate_config as config;
pub use tollgate_credentials as credentials;
use tollgate_reconcile as reconcile;
pub mod reload;
mod web;
mod console;
pub mod admin;
pub mod finished;
mod report;
pub mod request_log;
pub mod metrics;
pub mod logging;
#[cfg(feature = "otlp")]
pub mod traces;

// The commands, and upstreams to try them on.
pub mod cli;
pub use tollgate_simulator as sim;

// What everything is made of.
pub use tollgate_money::{money, price};
pub use tollgate_protocols::public_url;
pub use tollgate_types::{clock, error, ids};
use tollgate_types::{closest, printable, words};
mod forwarded;
pub mod resident;
pub mod secret;
pub mod password;
#[cfg(test)]
mod sample;
