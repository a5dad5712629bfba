//! What an operator decides about the ledger, the database of a fleet and the log of requests.
//!
//! The configuration builds these values, and those parts take them; neither names the other. A check
//! stands here when the configuration makes it before anything is opened.

// Tests fail by panicking; the product does not.
#![deny(clippy::expect_used)]

pub mod archive;
pub mod ledger;
pub mod postgres;
pub mod database_url;
pub mod request_log;
