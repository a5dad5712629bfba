//! The customers' console, the operators' console and the admin API.

#[path = "../harness/mod.rs"]
mod harness;

mod admin;
mod console;
mod console_data;
mod openapi;
mod operator;
mod operator_prices;
