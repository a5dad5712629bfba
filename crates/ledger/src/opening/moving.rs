//! A closed ledger on its way into a fleet, and a new one made of what a fleet has.
//!
//! | File | What it knows |
//! |---|---|
//! | `leaving` | a single gateway's journal, as a node of a fleet would have told it |
//! | `arriving` | a single gateway's journal, made of what is said in a fleet |
//! | `tally` | what is counted on both sides of a move |
//! | `alike` | whether two states say the same of everything that moves |

mod alike;
mod arriving;
mod leaving;
mod tally;

pub use self::alike::DirectoryState;
pub use self::arriving::MoveTarget;
pub use self::leaving::{
    MovePart, MoveParts, MoveSource, MovedSubmit, MovedTask, lines, read_lines,
};
pub use self::tally::{AccountTally, Tallies};
