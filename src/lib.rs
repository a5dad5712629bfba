//! Tollgate: an AI gateway that bills exactly.

pub mod config;
pub mod ledger;
pub mod protocols;

pub mod clock;
pub mod error;
pub mod money;
pub mod price;
pub mod secret;

pub mod sim;
