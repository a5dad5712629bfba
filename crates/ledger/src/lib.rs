//! Money: accounts, keys, holds and settlements, exact across crashes.
//!
//! The way of a call: [`Ledger::reserve`] → [`Hold::durable`] before the first byte to the customer
//! → [`Hold::post`] or [`Hold::void`].
//!
//! Its folders are layers. Each may name those above it in this list, and nothing below:
//!
//! | Folder | What it knows |
//! |---|---|
//! | `records` | what the journal says: records, and why one is refused |
//! | `rules` | what records do to accounts, what may happen, and what must hold: pure |
//! | `files` | small files beside the journal |
//! | `journal`, `archive` | the truth: records in groups, hash-chained, flushed once per group; where closed files go |
//! | `projection` | sled, derived from the journal for queries |
//! | `upkeep` | seals, checkpoints, and the way of closed files to the archive |
//! | `seam` | where money, tasks and what people write are, when several ledgers share them |
//! | `memory` | the open ledger: decided under locks, committed, applied; what is asked of where its tasks stand and its money is added up |
//! | `reading` | statements, usage, figures, losses, exports, and the check of the whole journal |
//! | `calls` | holds: made, extended, posted, voided |
//! | `tasks` | work that outlives its request, and the hold that pays for it |
//! | `people` | what customers write: logins, codes, signing up, limits |
//! | `operators` | what operators write: accounts, grants, keys, debts, doubts, suspense |
//! | `opening` | a ledger from its files: opened, repaired, restored, moved |
//!
//! `tests/ledger/layers.rs` reads the imports and holds the folders to it.

mod archive;
mod calls;
mod files;
mod memory;
mod opening;
mod operators;
mod people;
mod projection;
mod reading;
mod records;
mod rules;
mod seam;
mod tasks;
mod upkeep;
mod journal;

use std::time::Duration;

pub use self::archive::{Archive, ArchiveTo, BucketOptions, buckets_of, connect};
pub use self::calls::hold::{Posted, Reserve};
pub use self::files::moved;
pub use self::files::private::write_private;
pub use self::journal::records::Records;
pub use self::memory::act::{Asked, By, ListedAct, Written};
pub use self::memory::hold::Hold;
pub use self::memory::ledger::Ledger;
pub use self::opening::moving;
pub use self::opening::options::Options;
pub use self::opening::recovery::Recovery;
pub use self::opening::repair::{Cost, DamageFound, Repair, repair};
pub use self::opening::restore::{Copied, LeftOut, backup, restore};
pub use self::operators::admin::{Granted, KeyPatch, NewKey};
pub use self::operators::doubt::DoubtRefund;
pub use self::operators::price::{FoundRule, Replaces};
pub use self::operators::suspense::ResolvedSuspense;
pub use self::people::code::NewCode;
pub use self::people::holds::HoldsPatch;
pub use self::people::limit::{KeyLimitsPatch, RatesPatch};
pub use self::people::login::{AccountPatch, normal_email};
pub use self::people::sign_up::SignUp;
pub use self::projection::grain::Grain;
pub use self::projection::projected::ProjectionState;
pub use self::projection::projector::Pruning;
pub use self::projection::store::read_chunk;
pub use self::projection::store::{CallName, charged_in};
pub use self::projection::window::{UsageCell, UsageTotal};
pub use self::reading::call::CallMoney;
pub use self::reading::compare::SledReading;
pub use self::reading::export::{CSV_COLUMNS, ExportFormat, Exported};
pub use self::reading::exporter::Exporter;
pub use self::reading::loss::Loss;
pub use self::reading::offline::OfflineRecords;
pub use self::reading::report::Reporter;
pub use self::reading::report::{History, LeaseReport, LeaseSettlement, RECORDS_MAX, settled};
pub use self::reading::scan::Scan;
pub use self::reading::statement::{Call, Entry, EntryKind, InDoubt};
pub use self::reading::usage::{UsageOfAll, UsageRow};
pub use self::reading::verify::{BooksReport, Report, verify};
pub use self::records::act::{Act, Actor, IDS_KEPT};
pub use self::records::checkpointed::Checkpointed;
pub use self::records::code::{Code, CodeKind, CodeRefusal, IssuedCode};
pub use self::records::cost::{CostKind, Costed, MarginCell, MarginTotal};
pub use self::records::error::{LedgerError, OpenError, Refusal, Violation};
pub use self::records::key_limits::{Capped, KeyLimits, Period};
pub use self::records::login::{Login, SessionId};
pub use self::records::loss::{
    CAUSE_BYTES_MAX, ListedLoss, LossCause, LossSum, LossSums, Losses, Lost,
};
pub use self::records::price::{AccountPrices, PriceGroup, PriceNote};
pub use self::records::record::Charge;
pub use self::records::record::{
    Journaled, Key, OpenHold, Record, Reservation, SuspenseEnd, VoidReason,
};
pub use self::records::task::{Ended, Intent, Repeat, Stage, Taken, Task, Tried, Webhook};
pub use self::rules::account::{Account, Balance, Totals};
pub use self::rules::cap_shares::Waiting;
pub use self::rules::cap_shares::{CapGrant, CapRequest};
pub use self::rules::core::{UNFIT_CREDIT, UNFIT_GRANT, UNPAID_REFUND};
pub use self::rules::credit::{CreditChange, CreditFault, CreditState, CreditSums};
pub use self::rules::general_ledger::{BookLine, BookState, GeneralLedger, TrialBalance};
pub use self::rules::postings::{BookAccount, Posting, postings};
pub use self::rules::settlement::{Settlement, TaskSettlement};
pub use self::rules::spend::Span;
pub use self::rules::submit::{Repeated, is_unanswered};
pub use self::rules::{audit, core, key_rules};
pub use self::seam::funds::{LeaseWait, SharedFunds, Shortfall, UsageOfModel};
pub use self::seam::standing::{Progress, Standing};
pub use self::seam::tasks::{
    ChangeTask, DecideEnd, ListedTask, OpenTask, PreparedOpening, TaskEnding, TaskFilter,
    TaskOpened, TaskPage, TaskQuery, TaskStore, TaskStoreError,
};
pub use self::seam::writes::{Group, Logged, Page, Turn, WriteLog};
pub use self::tasks::task::KEPT_MS;
pub use self::upkeep::keeper::{Keeping, Kept, OnKept};
pub use tollgate_options::ledger::{REPEATED_WITHIN, RecoveryPolicy};
pub use tollgate_types::ids::{
    AccountId, CodeId, HoldId, KeyId, NodeId, ParseIdError, RequestId, Seq, TaskId, WriteId,
};

/// One group commit, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Records in it.
    pub records: usize,
    /// Bytes that the journal grew by.
    pub bytes: u64,
    /// How long the write and the flush took.
    pub took: Duration,
}

/// Called by the committer thread after each group commit; must be quick.
pub type OnCommit = Box<dyn Fn(Commit) + Send + Sync>;
