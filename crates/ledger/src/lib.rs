//! Money: accounts, keys, holds and settlements, exact across crashes.
//!
//! Life of a call: [`Ledger::reserve`] → [`Hold::durable`] before the first byte to the customer
//! → [`Hold::post`] or [`Hold::void`].
//!
//! The folders are layers, from the bottom up. Each may import the rows above it in this table only:
//!
//! | Folder | Contents |
//! |---|---|
//! | `records` | contents of the journal: records, and reasons of refusals |
//! | `rules` | pure state machine: effects of records, decisions, invariants |
//! | `files` | small files beside the journal |
//! | `journal`, `archive` | source of truth: records in groups, hash-chained, flushed once per group; archive of closed files |
//! | `projection` | sled, derived from the journal for queries |
//! | `maintenance` | seals, checkpoints, and the move of closed files to the archive |
//! | `ports` | traits for money, tasks and writes that several ledgers share |
//! | `memory` | the open ledger: decisions under locks, commits; ports of tasks and figures |
//! | `reading` | statements, usage, figures, losses, exports, verification of the journal |
//! | `calls` | holds: reserve, extend, post, void |
//! | `tasks` | asynchronous tasks, and the holds that pay for them |
//! | `customers` | writes of customers: logins, codes, sign-up, limits |
//! | `operators` | writes of operators: accounts, grants, keys, debts, doubts, suspense |
//! | `opening` | a ledger from its files: open, repair, restore, migrate |
//!
//! `tests/ledger/layers.rs` checks the imports.

mod archive;
mod calls;
mod files;
mod memory;
mod opening;
mod operators;
mod customers;
mod projection;
mod reading;
mod records;
mod rules;
mod ports;
mod tasks;
mod maintenance;
mod journal;

use std::time::Duration;

pub use self::archive::{Archive, ArchiveTo, BucketOptions, buckets_of, connect};
pub use self::calls::hold::{PostedCharge, Reserve};
pub use self::customers::account::AccountPatch;
pub use self::customers::code::NewCode;
pub use self::customers::holds::HoldsPatch;
pub use self::customers::limit::{KeyLimitsPatch, RatesPatch};
pub use self::customers::login::normal_email;
pub use self::customers::sign_up::SignUp;
pub use self::files::moved;
pub use self::files::private::write_private;
pub use self::journal::records::Records;
pub use self::maintenance::worker::{MaintenanceEvent, MaintenanceOptions, OnMaintenance};
pub use self::memory::Ledger;
pub use self::memory::act::{ActorScope, IdempotencyKey, ListedAct, WriteOutcome};
pub use self::memory::hold::Hold;
pub use self::memory::pages::ListOrder;
pub use self::opening::moving;
pub use self::opening::options::Options;
pub use self::opening::recovery::RecoveryReport;
pub use self::opening::repair::{DamageFound, Repair, RepairCost, repair};
pub use self::opening::restore::{CopySummary, OmittedRecords, backup, restore};
pub use self::operators::admin::{KeyPatch, NewKey, WriteReceipt};
pub use self::operators::doubt::DoubtRefund;
pub use self::operators::price::{IfMatch, MatchedRule};
pub use self::operators::suspense::ResolvedSuspense;
pub use self::ports::funds::{LeaseWait, SharedFunds, Shortfall, UsageOfModel};
pub use self::ports::node_status::{JournalProgress, NodeStatus};
pub use self::ports::tasks::{
    ChangeTask, DecideEnd, ListedTask, OpenTask, PreparedOpening, TaskEnding, TaskFilter,
    TaskOpened, TaskPage, TaskQuery, TaskStore, TaskStoreError,
};
pub use self::ports::writes::{AppendOutcome, WriteGroup, WriteLog, WritePage, WriteTurn};
pub use self::projection::grain::Grain;
pub use self::projection::projected::ProjectionState;
pub use self::projection::projector::Pruning;
pub use self::projection::store::read_chunk;
pub use self::projection::store::{CallName, charged_in};
pub use self::projection::window::{UsageCell, UsageTotal};
pub use self::reading::call::CallMoney;
pub use self::reading::compare::SledReading;
pub use self::reading::export::{CSV_COLUMNS, ExportFormat, ExportedRecord};
pub use self::reading::exporter::Exporter;
pub use self::reading::loss::Loss;
pub use self::reading::offline::OfflineRecords;
pub use self::reading::report::Reporter;
pub use self::reading::report::{FleetHistory, LeaseReport, LeaseSettlement, RECORDS_MAX, settled};
pub use self::reading::scan::Scan;
pub use self::reading::statement::{EntryKind, InDoubt, StatementCall, StatementEntry};
pub use self::reading::usage::{UsageOfAll, UsageRow};
pub use self::reading::verify::{BooksReport, VerificationReport, verify};
pub use self::records::act::{Act, Actor, IDS_KEPT};
pub use self::records::checkpointed::CheckpointRecord;
pub use self::records::code::{Code, CodeKind, CodeRefusal, IssuedCode};
pub use self::records::cost::{CallCost, CostKind, MarginCell, MarginTotal};
pub use self::records::error::{LedgerError, OpenError, Refusal, Violation};
pub use self::records::hold_end::Charge;
pub use self::records::hold_end::VoidReason;
pub use self::records::key::Key;
pub use self::records::key_limits::{KeyLimits, Period, SpendLimitStatus};
pub use self::records::login::{Login, SessionId};
pub use self::records::loss::{
    CAUSE_BYTES_MAX, ListedLoss, LossCause, LossRecord, LossReport, LossSum, LossSums,
};
pub use self::records::price::{AccountPrices, PriceGroup, PriceNote};
pub use self::records::record::{JournaledRecord, Record, SuspenseEnd};
pub use self::records::reservation::{OpenHold, Reservation};
pub use self::records::task::{
    DeliveryAttempt, EndedTask, Intent, RepeatKey, Task, TaskPhase, UpstreamTask, Webhook,
};
pub use self::rules::account::{Account, Balance, Totals};
pub use self::rules::cap_shares::CapDemand;
pub use self::rules::cap_shares::{CapGrant, CapRequest};
pub use self::rules::core::{UNFIT_CREDIT, UNFIT_GRANT, UNPAID_REFUND};
pub use self::rules::credit::{CreditChange, CreditFault, CreditState, CreditSums};
pub use self::rules::general_ledger::{BookLine, BookState, GeneralLedger, TrialBalance};
pub use self::rules::key_spend::Span;
pub use self::rules::postings::{BookAccount, Posting, postings};
pub use self::rules::settlement::{Settlement, TaskSettlement};
pub use self::rules::submit::{RepeatLookup, is_unanswered};
pub use self::rules::{audit, core, key_rules};
pub use self::tasks::task::KEPT_MS;
pub use tollgate_options::ledger::{REPEATED_WITHIN, RecoveryPolicy};
pub use tollgate_types::ids::{
    AccountId, CodeId, HoldId, KeyId, NodeId, ParseIdError, RequestId, Seq, TaskId, WriteId,
};

/// One group commit, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Number of records in the commit.
    pub records: usize,
    /// Bytes that the journal grew by.
    pub bytes: u64,
    /// Duration of the write and the flush.
    pub took: Duration,
}

/// Called by the committer thread after each group commit; must be quick.
pub type OnCommit = Box<dyn Fn(Commit) + Send + Sync>;
