//! The real binary as a child process, an upstream that records what reaches it, and raw sockets.
#![allow(dead_code, unused_imports, reason = "each test file uses a part of it")]

mod gateway;
mod recorder;
mod wire;

pub(crate) use gateway::Gateway;
pub(crate) use recorder::Recorder;
pub(crate) use wire::{Answer, ask, connect};
