//! A fleet of three processes, with everything going wrong under load that can: nothing is charged
//! twice, nothing is lost, nobody spends what is not there, and the sums of the treasury are right.
//!
//! Each fault comes in rounds from a seed that is printed. `TOLLGATE_FLEET_ROUNDS` sets how many, and
//! `TOLLGATE_FLEET_SEED` plays one again.

mod harness;
#[path = "fleet_faults/books.rs"]
mod books;
#[path = "fleet_faults/clocks.rs"]
mod clocks;
#[path = "fleet_faults/database.rs"]
mod database;
#[path = "fleet_faults/lost.rs"]
mod lost;
#[path = "fleet_faults/place.rs"]
mod place;
#[path = "fleet_faults/together.rs"]
mod together;
