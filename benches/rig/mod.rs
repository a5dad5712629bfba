//! Shared parts of the benchmarks: processes, customers, load, and the machine that it all runs on.
#![allow(dead_code, reason = "each benchmark uses a part of it")]

pub(crate) mod account;
#[path = "../../crates/protocols/benches/agent/mod.rs"]
pub(crate) mod agent;
pub(crate) mod body;
#[path = "../../crates/protocols/benches/callgrind/mod.rs"]
pub(crate) mod callgrind;
pub(crate) mod counters;
pub(crate) mod dialect;
pub(crate) mod floor;
pub(crate) mod gateway;
pub(crate) mod http;
pub(crate) mod load;
pub(crate) mod machine;
pub(crate) mod median;
pub(crate) mod process;
