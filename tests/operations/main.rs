//! Operators' tasks: configuration, command line, life cycle, deployment, documents; and the repository
//! itself.

#[path = "../harness/mod.rs"]
mod harness;

mod access_log;
mod agents;
mod backup;
mod billing;
mod claude_code;
mod codex;
mod cli;
mod config;
mod deploy;
mod drift;
mod foreign_models;
mod front;
mod handover;
mod lifecycle;
mod mcp_clients;
mod migrate;
mod modules;
mod names;
mod observability;
mod price_lists;
mod python;
mod readme;
mod recipes;
mod reconcile;
mod reload;
mod request_log;
mod request_log_files;
mod rolling;
mod sources;
mod supervisor;
mod tidy;
mod without_keys;
