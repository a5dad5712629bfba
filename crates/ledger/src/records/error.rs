//! Refusals and failures of the ledger.

use std::fmt;
use std::io;
use std::path::PathBuf;

use tollgate_journal::checked::CorruptFile;

use crate::records::code::CodeRefusal;
use crate::records::key_limits::SpendLimitStatus;
use crate::records::record::Record;
use tollgate_money::money::Nanousd;
use tollgate_types::ids::{AccountId, CodeId, HoldId, KeyId, NodeId, Seq, TaskId};

/// Refusal of a hold. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The account has less than was asked for, even with nothing in flight.
    Insufficient {
        /// Amount that the account could spend.
        available: Nanousd,
    },
    /// The account has the money, but open holds cover it.
    Held {
        /// Amount that the account could spend.
        available: Nanousd,
        /// Amount that open holds cover.
        held: Nanousd,
    },
    /// The account owes what earlier calls have cost: nothing is held for it before that is paid.
    InDebt {
        /// Debt of the account.
        debt: Nanousd,
        /// Amount that the account could spend without the debt.
        available: Nanousd,
    },
    /// The key would pass what it may spend.
    Capped(SpendLimitStatus),
    /// The key would pass what this node of a fleet may let it spend.
    ShareUsed {
        /// Status of the limit, as far as this node knows.
        capped: SpendLimitStatus,
        /// Missing amount.
        lacks: Nanousd,
        /// Rest of the limit that can still be requested.
        left: Nanousd,
    },
    /// The account does not exist.
    UnknownAccount,
    /// The disk is nearly full; the rest is kept for settlements.
    DiskFull,
    /// A node of a fleet has not heard of the treasury for so long that its leases are over, or needs
    /// money and gets no answer.
    CutOff,
    /// The ledger is closed.
    Stopped,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Insufficient { available } => {
                write!(f, "the balance is too low: {available} available")
            }
            Self::Held { available, held } => {
                write!(f, "calls in flight hold the balance: {available} available, {held} held")
            }
            Self::InDebt { debt, .. } => write!(f, "the account owes {debt}"),
            Self::Capped(SpendLimitStatus { limit, spent, held, .. })
            | Self::ShareUsed { capped: SpendLimitStatus { limit, spent, held, .. }, .. } => {
                write!(f, "the key may spend {limit}: {spent} spent, {held} held")
            }
            Self::UnknownAccount => f.write_str("there is no such account"),
            Self::DiskFull => f.write_str("the ledger's disk is nearly full"),
            Self::CutOff => f.write_str("the treasury does not answer, and the leases are over"),
            Self::Stopped => f.write_str("the ledger is closed"),
        }
    }
}

impl std::error::Error for Refusal {}

/// Failure of an operator's request. Nothing has changed, except possibly under
/// [`LedgerError::Stopped`]: then the caller repeats the request with the same id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerError {
    /// The account does not exist.
    UnknownAccount(AccountId),
    /// The key does not exist.
    UnknownKey(KeyId),
    /// The account has no settled hold of this id.
    UnknownHold(HoldId),
    /// The id was used before, with another content.
    Conflict,
    /// The precondition failed: the value was replaced meanwhile.
    Changed,
    /// The write's id was used before, with another request.
    OtherRequest,
    /// Another account has this address.
    EmailTaken,
    /// No code has this id.
    UnknownCode(CodeId),
    /// The code that was presented cannot be used.
    Code(CodeRefusal),
    /// The hold was not left open by a crash, or someone has looked into it.
    NotInDoubt(HoldId),
    /// The task is not in doubt.
    NoDoubt(TaskId),
    /// The node is not silent, or has nothing out of the account.
    NotInSuspense(NodeId, AccountId),
    /// The gateway is in no fleet.
    NoFleet,
    /// The account owes less than this.
    NotOwed,
    /// Calls in flight hold this much of the credit line: it cannot be set to less now.
    CreditInFlight(Nanousd),
    /// The refunds of one hold would exceed what it was charged.
    RefundTooLarge {
        /// Charge of the hold.
        charged: Nanousd,
        /// Amount refunded before.
        refunded: Nanousd,
    },
    /// A value is out of its range; the text says which and what would do.
    Invalid(&'static str),
    /// The ledger closed before the change was on disk.
    Stopped,
    /// The database that the nodes of a fleet share cannot be reached, or did not say what became of
    /// the change. Whether it was made is known by repeating the request with the same id.
    Unavailable(String),
    /// The whole journal is being read by as many as may do so at one time.
    Busy,
    /// The journal cannot be read.
    Journal(String),
    /// The sled ledger cannot be read or written; it is rebuilt from the journal at the next start.
    Store(String),
}

impl fmt::Display for LedgerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownAccount(id) => write!(f, "there is no account {id}"),
            Self::UnknownKey(id) => write!(f, "there is no key {id}"),
            Self::UnknownHold(id) => write!(f, "the account has no settled hold {id}"),
            Self::OtherRequest => {
                f.write_str("this idempotency id was used before with another request")
            }
            Self::Changed => f.write_str("it was changed meanwhile"),
            Self::EmailTaken => f.write_str("another account has this e-mail address"),
            Self::UnknownCode(id) => write!(f, "there is no code {id}"),
            Self::Code(refusal) => write!(f, "{refusal}"),
            Self::NotInDoubt(id) => write!(f, "{id} is not in doubt"),
            Self::NoDoubt(id) => write!(f, "{id} is not in doubt"),
            Self::NotInSuspense(node, account) => {
                write!(f, "nothing that {node} has out of {account} is in suspense")
            }
            Self::NoFleet => f.write_str("this gateway is in no fleet"),
            Self::Conflict => f.write_str("this id was used before with another content"),
            Self::NotOwed => f.write_str("the account does not owe so much"),
            Self::CreditInFlight(held) => write!(
                f,
                "calls in flight hold {held} of the credit line; try again when they have ended, or set \
                 it to at least {held}"
            ),
            Self::RefundTooLarge { charged, refunded } => write!(
                f,
                "refunds cannot exceed the charge: {charged} charged, {refunded} refunded before"
            ),
            Self::Invalid(what) => f.write_str(what),
            Self::Stopped => f.write_str("the ledger closed before the change was on disk"),
            Self::Unavailable(cause) => {
                write!(f, "the shared database cannot be reached or used now: {cause}")
            }
            Self::Busy => f.write_str("the journal is being read by as many as may do so at once"),
            Self::Journal(cause) => write!(f, "the journal cannot be read: {cause}"),
            Self::Store(cause) => write!(f, "the sled ledger failed: {cause}"),
        }
    }
}

impl std::error::Error for LedgerError {}

/// A record that the state before it does not allow. In a journal it means damage or a bug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The record's place.
    pub seq: Seq,
    /// Account of the record.
    pub account: AccountId,
    /// Violated rule.
    pub rule: &'static str,
}

impl Violation {
    pub(crate) fn new(seq: Seq, record: &Record, rule: &'static str) -> Self {
        Self { seq, account: record.account(), rule }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {} of {}: {}", self.seq, self.account, self.rule)
    }
}

impl std::error::Error for Violation {}

/// Failure to open a ledger.
#[derive(Debug)]
pub enum OpenError {
    /// A file or directory cannot be used.
    Io {
        /// Path concerned.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Another process has the directory open.
    InUse(PathBuf),
    /// The journal is another node's, or a single gateway's.
    OtherNode {
        /// The data directory.
        dir: PathBuf,
        /// Node of the existing journal.
        found: NodeId,
        /// Expected node.
        expected: NodeId,
    },
    /// The ledger was moved elsewhere, or is not complete.
    Moved {
        /// Path of the marker file.
        path: PathBuf,
        /// Contents of the file as found.
        says: String,
    },
    /// The journal has bytes that were not written like this.
    Damaged {
        /// The segment.
        path: PathBuf,
        /// Offset of the damage, in bytes.
        offset: u64,
        /// Description of the damage.
        what: String,
    },
    /// The journal ends before what was already applied from it.
    JournalBehind {
        /// The last record found.
        journal: Seq,
        /// The last record applied.
        applied: Seq,
    },
    /// The directory is a copy of another one, or has the journal of another one: history would go two
    /// ways from here.
    Forked {
        /// The directory.
        dir: PathBuf,
        /// Contents of the file as found.
        says: String,
    },
    /// The journal is readable, but contains an impossible sequence of records.
    Violation(Violation),
    /// A fresh sled ledger cannot be made.
    Store(String),
    /// There is no room for the sled ledger.
    NoRoom(String),
    /// The sled ledger was not made from this journal.
    OtherJournal {
        /// File in which the last record applied to sled should end.
        path: PathBuf,
        /// The same in bytes from the segment's beginning.
        offset: u64,
        /// The last record that sled has.
        applied: Seq,
    },
    /// The journal was closed while it was opened.
    Closed,
}

impl OpenError {
    /// Builds an error of an I/O failure on `path`.
    pub fn io(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Self::InUse(path) => write!(
                f,
                "{}: another process uses this ledger; stop it first, or choose another directory",
                path.display()
            ),
            Self::OtherNode { dir, found: NodeId::SINGLE, .. } => write!(
                f,
                "{}: this is the ledger of a gateway that is in no fleet. Move it in with `tollgate \
                 migrate ledger --to postgres`, then start the node on an empty directory",
                dir.display()
            ),
            Self::OtherNode { dir, found, expected: NodeId::SINGLE } => write!(
                f,
                "{}: this is the ledger of {found} of a fleet, and `store.postgres` is not \
                 configured: alone it knows only a part of the money",
                dir.display()
            ),
            Self::OtherNode { dir, found, expected } => {
                write!(f, "{}: this is the ledger of {found}, not of {expected}", dir.display())
            }
            Self::Moved { path, says } => write!(f, "{}: {says}", path.display()),
            Self::Damaged { path, offset, what } => write!(
                f,
                "{}: damaged at byte {offset}: {what}. Nothing was changed. Restore this file from \
                 a backup; if there is none, `tollgate ledger repair` shows what can be saved and what \
                 it costs",
                path.display()
            ),
            Self::JournalBehind { journal, applied } => write!(
                f,
                "the journal ends at record {journal}, but record {applied} was already applied: \
                 the journal lost acknowledged records. Nothing was changed. `tollgate ledger repair` \
                 shows what sled has of them and puts it back, or does without them"
            ),
            Self::Forked { dir, says } => write!(
                f,
                "{}: {says}. Nothing was changed. If the other one still runs, or has run since, each \
                 of the two has calls that the other does not have, and both spend the same money. \
                 Make sure that only this one goes on, and start it once with `--accept-fork`; \
                 `tollgate restore` makes a directory that starts without",
                dir.display()
            ),
            Self::Violation(violation) => write!(
                f,
                "the journal contradicts itself: {violation}. Nothing was changed. Run `tollgate \
                 ledger verify` and restore the journal from a backup"
            ),
            Self::Store(cause) => write!(f, "the sled ledger cannot be made: {cause}"),
            Self::NoRoom(cause) => write!(f, "there is no room for the sled ledger: {cause}"),
            Self::OtherJournal { path, offset, applied } => write!(
                f,
                "{}: the sled ledger has record {applied} as ending at byte {offset}, and the journal \
                 says otherwise there: the two are of different ledgers, as when copies were mixed, or \
                 the journal is damaged. Nothing was changed. Run `tollgate ledger repair`, which \
                 tells which it is and what to do",
                path.display()
            ),
            Self::Closed => f.write_str("the ledger was closed while it was opened"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Violation(violation) => Some(violation),
            _ => None,
        }
    }
}

impl From<tollgate_journal::Error> for OpenError {
    fn from(error: tollgate_journal::Error) -> Self {
        use tollgate_journal::Error;

        match error {
            Error::Io { path, source } => Self::Io { path, source: with_advice(source) },
            Error::Damaged { path, offset, what } => Self::Damaged { path, offset, what },
            Error::Behind { end, expected } => {
                Self::JournalBehind { journal: end, applied: expected }
            }
            Error::Forked { dir, what } => Self::Forked { dir, says: what },
            Error::OtherJournal { path, offset, seq } => {
                Self::OtherJournal { path, offset, applied: seq }
            }
        }
    }
}

/// Adds advice about a changed file beside the journal to an error.
fn with_advice(error: io::Error) -> io::Error {
    let is_changed =
        error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<CorruptFile>);
    if !is_changed {
        return error;
    }
    let says = format!(
        "{error}. Put this file back from a backup; if there is none, `tollgate ledger repair` makes it \
         anew where the journal itself is whole"
    );
    io::Error::new(error.kind(), says)
}
