//! The real binary as a child process, an upstream that records what reaches it, and raw sockets.
#![allow(dead_code, unused_imports, reason = "each test file uses a part of it")]

mod admin;
mod alone;
pub(crate) mod attack;
pub(crate) mod child;
pub(crate) mod container;
mod demo;
mod digest;
pub(crate) mod expressions;
mod faketime;
pub(crate) mod fleet;
mod forward_proxy;
mod gateway;
mod http;
mod install;
pub(crate) mod ledger;
pub(crate) mod load;
pub(crate) mod node;
pub(crate) mod nodes;
mod names;
mod pages;
pub(crate) mod postgres;
pub(crate) mod prometheus;
pub(crate) mod python;
mod recorder;
mod responder;
mod scripted;
mod rounds;
mod tool;
mod simulated;
pub(crate) mod task_contract;
pub(crate) mod tight;
pub(crate) mod tls;
mod visitor;
mod wait;
mod wire;

pub(crate) use admin::{Admin, Customer};
pub(crate) use alone::{alone, test_process};
pub(crate) use demo::{Demo, spawn_demo};
pub(crate) use digest::sha256;
pub(crate) use faketime::fake_clock;
pub(crate) use forward_proxy::{ForwardProxy, ProxyRule};
pub(crate) use gateway::{Gateway, UPSTREAM_KEY};
pub(crate) use http::{http, http_builder};
pub(crate) use names::names;
pub(crate) use pages::{Page, Pages};
pub(crate) use postgres::free_address;
pub(crate) use recorder::{Recorded, Recorder};
pub(crate) use responder::{Reply, Responder};
pub(crate) use rounds::rounds;
pub(crate) use scripted::{Act, Scripted, paced_stream};
pub(crate) use simulated::{VIDEO_MODELS, chat_model, simulator, videos};
pub(crate) use tool::tool;
pub(crate) use visitor::{Shown, Visitor};
pub(crate) use wait::{
    TIMEOUT, away_from_midnight, eventually, eventually_async, hang, let_pass, let_pass_async,
    next_millisecond, poll, poll_async, within, within_async,
};
pub(crate) use wire::{Answer, ask, ask_over, begin, connect, read_events, rest};
