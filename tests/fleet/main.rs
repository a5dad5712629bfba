//! Several gateways on one PostgreSQL: as a simulation, in one process, and as processes of their own.

#[path = "../harness/mod.rs"]
mod harness;

mod contract;
mod database;
mod deploy;
mod directory;
mod limits;
mod money;
mod moving;
mod operator;
mod reads;
mod simulation;
mod tasks;
mod tight;
