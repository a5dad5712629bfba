//! Tollgate: an AI gateway that bills exactly.

pub mod config;
pub mod gateway;
pub mod ledger;
pub mod protocols;

pub mod clock;
pub mod error;
pub mod finished;
pub mod logging;
pub mod metrics;
pub mod money;
pub mod price;
pub mod secret;
