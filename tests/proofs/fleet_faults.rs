//! A fleet of three processes, with everything going wrong under load that can: nothing is charged
//! twice, nothing is lost, nobody spends what is not there, and the sums of the treasury are right.
//!
//! Each fault comes in rounds from a seed that is printed. `TOLLGATE_PROOF_PERCENT` sets how many,
//! and `TOLLGATE_FLEET_SEED` plays one again.

mod books;
mod clocks;
mod database;
mod lost;
mod outage;
mod place;
mod sessions;
mod together;
