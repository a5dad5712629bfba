//! A single gateway's ledger moves into a fleet, and a fleet's money back into the ledger of a single
//! gateway.
//!
//! Either way there is one moment at which the one ends and the other begins, and what is counted is
//! the same on both sides, or nothing has moved.
//!
//! | File | What it knows |
//! |---|---|
//! | `inward` | a ledger's way into the database |
//! | `outward` | everything's way out of the database |
//! | `account` | the money of one account, told once more in an order that holds |
//! | `calls` | the calls of an account, whichever nodes made them, in the order of time |

mod account;
mod calls;
mod inward;
mod outward;

use std::fmt;

pub use self::inward::{move_in, survey};
pub use self::outward::move_out;
use super::FleetError;
use super::postgres::{Db, DbError};
use tollgate_ledger::moving::DirectoryState;
pub use tollgate_ledger::moving::{AccountTally, Tallies};
use tollgate_ledger::{OpenError, Record, Seq};

/// Maximum number of directory writes read at once.
const PULLED_MAX: u32 = 1000;
/// Maximum number of errors in a message.
const LISTED_MAX: usize = 20;

/// The result of a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveReport {
    /// Counts that are equal on both sides.
    pub tallies: Tallies,
    /// True if an earlier run had completed the move.
    pub was_done: bool,
}

/// The reason why nothing has moved.
#[derive(Debug)]
pub enum MoveError {
    /// An error of the database.
    Db(DbError),
    /// A ledger cannot be read or written.
    Ledger(OpenError),
    /// The ledger contradicts itself.
    Unsound(Vec<String>),
    /// Holds that a crash left open.
    LeftOpen(usize),
    /// The ledger is empty.
    Empty,
    /// The fleet has other objects with the same names.
    Collides(Vec<String>),
    /// The counts of both sides differ.
    Differs(Vec<String>),
    /// The ledger moved in before, and went on afterwards.
    WentOn,
    /// Nodes run, or have money out.
    NotStopped(Vec<String>),
    /// Everything was moved out of the database before, into another directory.
    MovedOut,
}

impl fmt::Display for MoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Db(error) => write!(f, "{error}"),
            Self::Ledger(error) => write!(f, "{error}"),
            Self::Unsound(found) => {
                write!(f, "the ledger is not sound, so it does not move: {}", listed(found))
            }
            Self::LeftOpen(count) => write!(
                f,
                "{count} holds are open that a crash has left behind: start and stop the gateway \
                 once, so that they are settled, or say how with --recovery"
            ),
            Self::Empty => f.write_str("there is nothing in this ledger: start a node instead"),
            Self::Collides(found) => write!(
                f,
                "the fleet has other things of the same names, so nothing was moved: {}",
                listed(found)
            ),
            Self::Differs(found) => {
                write!(
                    f,
                    "not everything would have arrived, so nothing was moved: {}",
                    listed(found)
                )
            }
            Self::WentOn => f.write_str(
                "this ledger was moved in before, and a gateway has gone on with it afterwards: \
                 there are two copies, of which only the fleet's counts",
            ),
            Self::NotStopped(found) => {
                write!(
                    f,
                    "every node must be stopped, and have given back all money: {}",
                    listed(found)
                )
            }
            Self::MovedOut => f.write_str(
                "everything was moved out of this database before, into another directory",
            ),
        }
    }
}

impl std::error::Error for MoveError {}

impl From<DbError> for MoveError {
    fn from(error: DbError) -> Self {
        Self::Db(error)
    }
}

impl From<OpenError> for MoveError {
    fn from(error: OpenError) -> Self {
        Self::Ledger(error)
    }
}

impl From<FleetError> for MoveError {
    fn from(error: FleetError) -> Self {
        match error {
            FleetError::Db(error) => Self::Db(error),
            FleetError::Io { path, source } => Self::Ledger(OpenError::Io { path, source }),
            error => Self::Db(DbError::Failed(error.to_string())),
        }
    }
}

/// The part of the fleet's directory that was read.
#[derive(Default)]
struct ReadDirectory {
    followed: DirectoryState,
    head: Seq,
}

impl ReadDirectory {
    /// Reads to its end, and hands each record on in its order.
    async fn catch_up(
        &mut self,
        db: &Db,
        mut each: impl FnMut(Record) -> Result<(), MoveError>,
    ) -> Result<(), MoveError> {
        loop {
            let pulled = db.pull(self.head, PULLED_MAX).await?;
            for group in pulled.groups {
                let records: Vec<Record> = postcard::from_bytes(&group.bytes).map_err(|error| {
                    let at = group.seq;
                    DbError::Failed(format!("the directory cannot be read at {at}: {error}"))
                })?;
                self.followed.take(&records)?;
                self.head = group.seq;
                records.into_iter().try_for_each(&mut each)?;
            }
            if self.head >= pulled.head {
                return Ok(());
            }
        }
    }
}

fn listed(found: &[String]) -> String {
    let mut listing = found.iter().take(LISTED_MAX).cloned().collect::<Vec<_>>().join("; ");
    if found.len() > LISTED_MAX {
        listing = format!("{listing}; and {} more", found.len().saturating_sub(LISTED_MAX));
    }
    listing
}
