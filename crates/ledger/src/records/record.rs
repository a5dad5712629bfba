//! Records of the journal: one [`Record`] for each change of money or of a key.
//!
//! Records are encoded with postcard, so the order of variants and fields *is* the format: variants
//! are only ever appended, and a variant that was ever written never changes.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

mod fields;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::records::act::Act;
use crate::records::checkpointed::CheckpointRecord;
use crate::records::code::Code;
use crate::records::cost::CallCost;
use crate::records::hold_end::VoidReason;
use crate::records::key::Key;
use crate::records::key_limits::KeyLimits;
use crate::records::login::{Login, SessionId};
use crate::records::loss::LossRecord;
use crate::records::price::{AccountPrices, PriceGroup, PriceNote};
use crate::records::reservation::{OpenHold, Reservation};
use crate::records::task::{DeliveryAttempt, Task};
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Usage, UsageSource};
use tollgate_options::holds::HoldOverrides;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, CodeId, HoldId, KeyId, NodeId, Seq, TaskId};
use tollgate_types::limit::Rates;

/// One thing that happened. Every record belongs to exactly one account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// An account was opened, without money.
    AccountCreated {
        /// Unique id, assigned at creation.
        account: AccountId,
        /// Name shown to its owner.
        name: String,
        /// Time of the event.
        at: UnixMs,
    },
    /// An operator added credit.
    Granted {
        /// Account credited.
        account: AccountId,
        /// The caller's id of this grant: the same id is granted once.
        id: String,
        /// Amount of money, above zero.
        amount: Nanousd,
        /// Time of the event.
        at: UnixMs,
    },
    /// The operator gave back what a settled hold had cost.
    Refunded {
        /// Account credited.
        account: AccountId,
        /// The caller's id of this refund.
        id: String,
        /// Hold whose charge is refunded.
        hold: HoldId,
        /// Amount of money, above zero.
        amount: Nanousd,
        /// Charge of the hold: the bound of all its refunds together.
        charged: Nanousd,
        /// Time of the event.
        at: UnixMs,
    },
    /// An API key was made.
    KeyCreated(Arc<Key>),
    /// An API key was changed; this is what it is from here on.
    KeyUpdated(Arc<Key>),
    /// Money was set aside for a call. The record's place names the hold.
    Reserved(Arc<Reservation>),
    /// More money was set aside under an open hold.
    Extended {
        /// Account that the record concerns.
        account: AccountId,
        /// The open hold.
        hold: HoldId,
        /// Additional amount; above zero.
        amount: Nanousd,
        /// Time of the event.
        at: UnixMs,
    },
    /// A hold ended with a charge; what it did not need is available again.
    Posted {
        /// Account that the record concerns.
        account: AccountId,
        /// The hold that ends.
        hold: HoldId,
        /// Amount paid by the customer; within the hold.
        charged: Nanousd,
        /// Amount borne by the operator.
        written_off: Nanousd,
        /// Usage of the call, by unit.
        usage: Usage,
        /// Source of the usage figures.
        source: UsageSource,
        /// Time of the event.
        at: UnixMs,
    },
    /// A hold ended without a charge.
    Voided {
        /// Account that the record concerns.
        account: AccountId,
        /// The hold that ends.
        hold: HoldId,
        /// Reason why the call was not charged.
        reason: VoidReason,
        /// Time of the event.
        at: UnixMs,
    },
    /// A hold that a crash had left open was ended at the next start. It is in doubt what the call
    /// really cost.
    Recovered {
        /// Account that the record concerns.
        account: AccountId,
        /// The hold that ends.
        hold: HoldId,
        /// Amount paid under the recovery policy; within the hold.
        charged: Nanousd,
        /// Time of the event.
        at: UnixMs,
    },
    /// A task was opened or changed; this is what it is from here on.
    Task(Arc<Task>),
    /// The limits of a key were set; they replace the earlier ones.
    KeyLimited {
        /// Account of the key.
        account: AccountId,
        /// Key that the record concerns.
        key: KeyId,
        /// All limits of the key.
        limits: KeyLimits,
        /// Time of the event.
        at: UnixMs,
    },
    /// The rate limits that all keys of an account share were set; they replace the earlier ones.
    AccountLimited {
        /// Account that the record concerns.
        account: AccountId,
        /// All rate limits of the account.
        rates: Rates,
        /// Time of the event.
        at: UnixMs,
    },
    /// Actor of a write; its changes precede this record in the same group.
    Acted(Arc<Act>),
    /// An account was renamed.
    AccountRenamed {
        /// Account that the record concerns.
        account: AccountId,
        /// New display name.
        name: String,
        /// Time of the event.
        at: UnixMs,
    },
    /// An account was suspended or resumed.
    AccountSuspended {
        /// Account that the record concerns.
        account: AccountId,
        /// True if the account's keys are refused from now on.
        suspended: bool,
        /// Time of the event.
        at: UnixMs,
    },
    /// The login of a customer was set; it replaces the earlier one.
    LoginSet(Arc<Login>),
    /// A session was logged out: a customer's, or an operator's if the account is
    /// [`AccountId::OPERATOR`].
    SessionEnded {
        /// Account that the record concerns.
        account: AccountId,
        /// The session.
        session: SessionId,
        /// Original expiry of the session, which is refused until then.
        until: UnixMs,
        /// Time of the event.
        at: UnixMs,
    },
    /// A code was created.
    CodeCreated(Arc<Code>),
    /// A code was revoked: nobody can use it any more.
    CodeRevoked {
        /// Code that the record concerns.
        code: CodeId,
        /// Time of the event.
        at: UnixMs,
    },
    /// A code was used. The credit that it gives is in the same group.
    CodeUsed {
        /// Code that the record concerns.
        code: CodeId,
        /// Account that used it; the record itself belongs to the operator.
        by: AccountId,
        /// Time of the event.
        at: UnixMs,
    },
    /// An operator resolved a call that a crash had left in doubt.
    DoubtResolved {
        /// Account of the call.
        account: AccountId,
        /// The hold that the crash left open.
        hold: HoldId,
        /// Resolution, in the operator's words.
        note: String,
        /// Time of the event.
        at: UnixMs,
    },
    /// Delivery of a task's webhook was attempted.
    Announced {
        /// Account of the task.
        account: AccountId,
        /// Task that the record concerns.
        task: TaskId,
        /// The attempt.
        tried: Arc<DeliveryAttempt>,
    },
    /// Something was given, given back or resolved where a fleet keeps its money: known here, and
    /// moving nothing here.
    Central(Arc<Record>),
    /// A fleet node has applied the fleet's directory up to this position.
    Followed {
        /// Position in the directory.
        seq: Seq,
        /// Time of the event.
        at: UnixMs,
    },
    /// A node got money to spend.
    Leased {
        /// Account that the record concerns.
        account: AccountId,
        /// Amount of money, above zero.
        amount: Nanousd,
        /// Time of the event.
        at: UnixMs,
    },
    /// A node gave money back that it had not spent.
    Returned {
        /// Account that the record concerns.
        account: AccountId,
        /// Amount of money, above zero.
        amount: Nanousd,
        /// Time of the event.
        at: UnixMs,
    },
    /// A hold went with its task to where the fleet keeps its money.
    HandedOver {
        /// Account that the record concerns.
        account: AccountId,
        /// The hold that ends here.
        hold: HoldId,
        /// Time of the event.
        at: UnixMs,
    },
    /// Somebody has said what became of money that a silent node of a fleet had out. It moves in the
    /// treasury, and nothing here.
    SuspenseResolved {
        /// Account that the record concerns.
        account: AccountId,
        /// Node that had leased the money.
        node: NodeId,
        /// Amount of money, above zero.
        amount: Nanousd,
        /// Resolution of the suspense.
        end: SuspenseEnd,
        /// Operator's finding.
        note: String,
        /// Time of the event.
        at: UnixMs,
    },
    /// A hold ended with a charge of which the account could not pay all: the rest is its debt.
    PostedOwing {
        /// Account that the record concerns.
        account: AccountId,
        /// The hold that ends.
        hold: HoldId,
        /// Amount paid now; within the hold.
        charged: Nanousd,
        /// Debt: the part that the account could not pay; above zero.
        owed: Nanousd,
        /// Amount borne by the operator.
        written_off: Nanousd,
        /// Usage of the call, by unit.
        usage: Usage,
        /// Source of the usage figures.
        source: UsageSource,
        /// Time of the event.
        at: UnixMs,
    },
    /// Money that became available paid a debt, wholly or in part.
    DebtPaid {
        /// Account that the record concerns.
        account: AccountId,
        /// Amount; above zero and within the debt.
        amount: Nanousd,
        /// Time of the event.
        at: UnixMs,
    },
    /// An operator wrote off a debt, wholly or in part.
    WrittenOff {
        /// Account of the debt.
        account: AccountId,
        /// The caller's id of this write-off.
        id: String,
        /// Amount; above zero and within the debt.
        amount: Nanousd,
        /// Reason for the write-off, chosen by the operator.
        note: String,
        /// Time of the event.
        at: UnixMs,
    },
    /// A call may have cost the operator what no customer pays. No customer's money moves.
    Lost(Arc<LossRecord>),
    /// A checkpoint was written: everything that a start needs of the records up to some place.
    Checkpointed(Arc<CheckpointRecord>),
    /// A call has cost the operator something. No customer's money moves.
    Costed(Arc<CallCost>),
    /// The price rules of an account were set; they replace the earlier ones.
    AccountPriced {
        /// The account that pays them.
        account: AccountId,
        /// All price rules of the account.
        prices: Arc<AccountPrices>,
        /// Time of the change.
        at: UnixMs,
    },
    /// The rules of a group were set; these are what holds from here on.
    GroupPriced(Arc<PriceGroup>),
    /// A price is about to be charged for the first time.
    PriceNoted(Arc<PriceNote>),
    /// The credit line of an account was set: money that the operator lends it. Within
    /// [`Record::Central`] only the limit counts; the treasury's own record has what moved.
    CreditSet {
        /// Account with the credit line.
        account: AccountId,
        /// The line from here on; zero for none.
        limit: Nanousd,
        /// The amount that was lent in addition; zero where the line was lowered.
        lent: Nanousd,
        /// Amount withdrawn from the available money.
        withdrawn: Nanousd,
        /// The amount that was taken back after it had been spent: the account owes it now.
        owed: Nanousd,
        /// The time of the change.
        at: UnixMs,
    },
    /// The hold rules of an account were set.
    AccountHolds {
        /// Account with the rules.
        account: AccountId,
        /// All its hold rules.
        #[serde(with = "crate::records::holds")]
        holds: Arc<HoldOverrides>,
        /// The time of the change.
        at: UnixMs,
    },
}

/// Resolution of money in suspense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SuspenseEnd {
    /// The customer can spend it again.
    Release,
    /// The money counts as spent.
    Charge,
}

/// A record with its place, and the hold that it touches as it stood just before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournaledRecord {
    /// Position in the journal.
    pub seq: Seq,
    /// The event.
    pub record: Record,
    /// Hold that the record extends or ends.
    pub hold: Option<OpenHold>,
}

/// The largest record that says what a customer or an operator has said, in bytes. Every text in one
/// has a limit of its own, and the largest of them, a key with a hundred models, comes to 13 KiB.
pub(crate) const WRITE_BYTES_MAX: usize = 16 << 10;
/// The largest end of a task, in bytes: what its upstream answered stands in it, of which answers of
/// 1 MiB are read, and which is spelt anew where the gateway cannot keep it as it came.
pub(crate) const RESULT_BYTES_MAX: usize = 4 << 20;
