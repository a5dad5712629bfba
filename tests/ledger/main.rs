//! The ledger as a library: its rules, its journal, its files, and what crashes and damage leave of them.

#[path = "../harness/mod.rs"]
mod harness;

mod archive;
mod crash;
mod credit;
mod descriptors;
mod export;
mod focus;
mod formats;
mod life;
mod layers;
mod limits;
mod money;
mod people;
mod prune;
mod repair;
mod registry;
mod rolling;
mod rules;
mod tasks;
mod tight;
