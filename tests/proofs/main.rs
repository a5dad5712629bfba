//! Slow tests, and tests that need root or a browser. All are ignored by default: `cargo test --test proofs
//! -- --ignored`. `TOLLGATE_PROOF_PERCENT` scales the number of rounds.

#[path = "../harness/mod.rs"]
mod harness;

mod attack_crashes;
mod attacks;
mod browser;
mod console_browser;
mod crash;
mod fleet_faults;
mod fleet_limits;
mod ledger_figures;
mod ledger_full_disk;
mod ledger_kills;
mod ledger_memory;
mod ledger_power;
mod ledger_size;
mod monitored;
mod operator_browser;
mod read_only_root;
mod small_container;
