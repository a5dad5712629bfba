//! Settings of the ledger, holds, a fleet's database, the request log, outgoing connections and
//! credentials.
//!
//! The configuration builds these values, and those parts take them; neither names the other. A check
//! stands here when the configuration makes it before anything is opened.

// Tests fail by panicking; the product does not.
#![deny(clippy::expect_used)]

pub mod archive;
pub mod auth;
pub mod holds;
pub mod key_file;
pub mod ledger;
pub mod network;
pub mod postgres;
pub mod database_url;
pub mod request_log;
