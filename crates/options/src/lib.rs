//! What an operator decides about the ledger, the database of a fleet, the log of requests, and how the
//! process signs in to upstreams.
//!
//! The configuration builds these values, and those parts take them; neither names the other. A check
//! stands here when the configuration makes it before anything is opened.

// Tests fail by panicking; the product does not.
#![deny(clippy::expect_used)]

pub mod archive;
pub mod auth;
pub mod key_file;
pub mod ledger;
pub mod postgres;
pub mod database_url;
pub mod request_log;
