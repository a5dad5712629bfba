//! Tollgate: an AI gateway that bills exactly.
//!
//! The modules in the order in which a request meets them; `ARCHITECTURE.md` is the map.

// Tests and benches fail by panicking; the product does not.
#![deny(clippy::expect_used)]

// The request's path.
pub use tollgate_mcp as mcp;
pub mod gateway;
pub use tollgate_balance as balance;
pub use tollgate_fleet as fleet;
pub use tollgate_holds as holds;
pub use tollgate_ledger as ledger;
pub use tollgate_limits as limits;
pub use tollgate_options as options;
pub use tollgate_pipeline as pipeline;
use tollgate_pricing as pricing;
pub use tollgate_protocols as protocols;
pub use tollgate_tasks as tasks;
pub use tollgate_upstream_calls as outbound;

// What it is told, and what it tells.
pub use tollgate_admin as admin;
pub use tollgate_config as config;
pub use tollgate_credentials as credentials;
use tollgate_customer_console as console;
pub use tollgate_reload as reload;
pub use tollgate_telemetry::{finished, logging, metrics, request_log};
pub use tollgate_traces as traces;

// The commands, and upstreams to try them on.
pub use tollgate_cli as cli;
pub mod server;
pub use tollgate_simulator as sim;

// What everything is made of.
use tollgate_client_address as forwarded;
pub use tollgate_money::{money, price};
pub use tollgate_protocols::public_url;
use tollgate_types::closest;
pub use tollgate_types::{clock, error, ids, secret};
pub use tollgate_web_kit::password;
