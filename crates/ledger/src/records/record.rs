//! Records of the journal: one [`Record`] for each change of money or of a key.
//!
//! Records are encoded with postcard, so the order of variants and fields *is* the format: variants
//! are only ever appended, and a variant that was ever written never changes.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::sync::Arc;

use schemars::JsonSchema;
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::records::act::Act;
use crate::records::checkpointed::CheckpointRecord;
use crate::records::code::Code;
use crate::records::cost::CallCost;
use crate::records::key_limits::KeyLimits;
use crate::records::login::{Login, SessionId};
use crate::records::loss::LossRecord;
use crate::records::price::{AccountPrices, PriceGroup, PriceNote};
use crate::records::task::{DeliveryAttempt, Task};
use tollgate_money::money::Nanousd;
use tollgate_money::price::{PriceVersion, Usage, UsageSource};
use tollgate_options::holds::HoldOverrides;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, CodeId, HoldId, KeyId, NodeId, RequestId, Seq, TaskId};
use tollgate_types::limit::Rates;
use tollgate_types::secret::KeyHash;

/// One thing that happened. Every record belongs to exactly one account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// An account was opened, without money.
    AccountCreated {
        /// Its id.
        account: AccountId,
        /// Display name.
        name: String,
        /// Time of the event.
        at: UnixMs,
    },
    /// The operator gave money.
    Granted {
        /// Account credited.
        account: AccountId,
        /// The caller's id of this grant: the same id is granted once.
        id: String,
        /// Amount; above zero.
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
        /// The settled hold.
        hold: HoldId,
        /// Amount; above zero.
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
        /// The account.
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
        /// The account.
        account: AccountId,
        /// The hold that ends.
        hold: HoldId,
        /// Amount paid by the customer; within the hold.
        charged: Nanousd,
        /// Amount borne by the operator.
        written_off: Nanousd,
        /// Usage.
        usage: Usage,
        /// Source of the usage figures.
        source: UsageSource,
        /// Time of the event.
        at: UnixMs,
    },
    /// A hold ended without a charge.
    Voided {
        /// The account.
        account: AccountId,
        /// The hold that ends.
        hold: HoldId,
        /// Reason.
        reason: VoidReason,
        /// Time of the event.
        at: UnixMs,
    },
    /// A hold that a crash had left open was ended at the next start. It is in doubt what the call
    /// really cost.
    Recovered {
        /// The account.
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
        /// The key.
        key: KeyId,
        /// All that is said of it.
        limits: KeyLimits,
        /// Time of the event.
        at: UnixMs,
    },
    /// The rate limits that all keys of an account share were set; they replace the earlier ones.
    AccountLimited {
        /// The account.
        account: AccountId,
        /// All that is said of it.
        rates: Rates,
        /// Time of the event.
        at: UnixMs,
    },
    /// Someone did something; what it changed stands before it in the same group.
    Acted(Arc<Act>),
    /// An account got another name.
    AccountRenamed {
        /// The account.
        account: AccountId,
        /// New display name.
        name: String,
        /// Time of the event.
        at: UnixMs,
    },
    /// An account was suspended, or taken up again.
    AccountSuspended {
        /// The account.
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
        /// The account.
        account: AccountId,
        /// The session.
        session: SessionId,
        /// Original expiry of the session, which is refused until then.
        until: UnixMs,
        /// Time of the event.
        at: UnixMs,
    },
    /// A code was made.
    CodeCreated(Arc<Code>),
    /// A code was revoked: nobody can use it any more.
    CodeRevoked {
        /// The code.
        code: CodeId,
        /// Time of the event.
        at: UnixMs,
    },
    /// A code was used once more. What it gives stands beside it in the same group.
    CodeUsed {
        /// The code.
        code: CodeId,
        /// Account that used it; the record itself belongs to the operator.
        by: AccountId,
        /// Time of the event.
        at: UnixMs,
    },
    /// Someone has looked into a call that a crash had left in doubt.
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
    /// The end of a task was announced, or was tried to be.
    Announced {
        /// Account of the task.
        account: AccountId,
        /// The task.
        task: TaskId,
        /// The attempt.
        tried: Arc<DeliveryAttempt>,
    },
    /// Something was given, given back or resolved where a fleet keeps its money: known here, and
    /// moving nothing here.
    Central(Arc<Record>),
    /// A node of a fleet has taken over what the fleet's directory says up to this place.
    Followed {
        /// The place in the directory.
        seq: Seq,
        /// Time of the event.
        at: UnixMs,
    },
    /// A node got money to spend.
    Leased {
        /// The account.
        account: AccountId,
        /// Amount; above zero.
        amount: Nanousd,
        /// Time of the event.
        at: UnixMs,
    },
    /// A node gave money back that it had not spent.
    Returned {
        /// The account.
        account: AccountId,
        /// Amount; above zero.
        amount: Nanousd,
        /// Time of the event.
        at: UnixMs,
    },
    /// A hold went with its task to where the fleet keeps its money.
    HandedOver {
        /// The account.
        account: AccountId,
        /// The hold that ends here.
        hold: HoldId,
        /// Time of the event.
        at: UnixMs,
    },
    /// Somebody has said what became of money that a silent node of a fleet had out. It moves in the
    /// treasury, and nothing here.
    SuspenseResolved {
        /// The account.
        account: AccountId,
        /// Node that had it.
        node: NodeId,
        /// Amount; above zero.
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
        /// The account.
        account: AccountId,
        /// The hold that ends.
        hold: HoldId,
        /// Amount paid now; within the hold.
        charged: Nanousd,
        /// Debt: the part that the account could not pay; above zero.
        owed: Nanousd,
        /// Amount borne by the operator.
        written_off: Nanousd,
        /// Usage.
        usage: Usage,
        /// Source of the usage figures.
        source: UsageSource,
        /// Time of the event.
        at: UnixMs,
    },
    /// Money that became available has paid a debt, or a part of it.
    DebtPaid {
        /// The account.
        account: AccountId,
        /// Amount; above zero and within the debt.
        amount: Nanousd,
        /// Time of the event.
        at: UnixMs,
    },
    /// The operator has given up a debt, or a part of it.
    WrittenOff {
        /// Account of the debt.
        account: AccountId,
        /// The caller's id of this write-off.
        id: String,
        /// Amount; above zero and within the debt.
        amount: Nanousd,
        /// Reason.
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
        /// All that is said of them.
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
        /// The account that may draw on it.
        account: AccountId,
        /// The line from here on; zero for none.
        limit: Nanousd,
        /// The amount that was lent in addition; zero where the line was lowered.
        lent: Nanousd,
        /// The amount that was taken back out of what was available.
        withdrawn: Nanousd,
        /// The amount that was taken back after it had been spent: the account owes it now.
        owed: Nanousd,
        /// The time of the change.
        at: UnixMs,
    },
    /// The hold rules of an account were set, in the place of those for all.
    AccountHolds {
        /// The account that has them.
        account: AccountId,
        /// All of its overrides.
        #[serde(with = "crate::records::holds")]
        holds: Arc<HoldOverrides>,
        /// The time of the change.
        at: UnixMs,
    },
}

/// Charge of a settled hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Amount paid by the customer.
    pub charged: Nanousd,
    /// Debt: the part that the account could not pay.
    pub owed: Nanousd,
    /// Amount borne by the operator.
    pub written_off: Nanousd,
    /// Usage.
    pub usage: Usage,
    /// Source of the usage figures.
    pub source: UsageSource,
}

/// Resolution of money in suspense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SuspenseEnd {
    /// The customer can spend it again.
    Release,
    /// It counts as spent.
    Charge,
}

/// Money set aside for one call, as it was asked for.
///
/// The price is written behind the model's id, as [`CalledModel`] says: journals from before there were
/// versions of prices have the id alone.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WrittenReservation")]
pub struct Reservation {
    /// Account that pays.
    pub account: AccountId,
    /// With which key.
    pub key: KeyId,
    /// The public id of the model that is called.
    pub model: Arc<str>,
    /// The price that it is charged by; `None` of calls from before there were versions.
    pub price: Option<PriceVersion>,
    /// The call.
    pub request: RequestId,
    /// The most that it can cost.
    pub amount: Nanousd,
    /// The least that it costs once an upstream has begun on it; within `amount`.
    pub floor: Nanousd,
    /// Time of the hold.
    pub at: UnixMs,
}

/// Every call writes two: one in the journal, and one in the line of its statement.
impl Serialize for Reservation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { account, key, model, price, request, amount, floor, at } = self;
        let mut written = serializer.serialize_struct("Reservation", 7)?;
        written.serialize_field("account", account)?;
        written.serialize_field("key", key)?;
        written.serialize_field("model", &CalledModel(model, *price))?;
        written.serialize_field("request", request)?;
        written.serialize_field("amount", amount)?;
        written.serialize_field("floor", floor)?;
        written.serialize_field("at", at)?;
        written.end()
    }
}

/// A reservation as the journal has it.
#[derive(Deserialize)]
struct WrittenReservation {
    account: AccountId,
    key: KeyId,
    model: CalledModel<Arc<str>>,
    request: RequestId,
    amount: Nanousd,
    floor: Nanousd,
    at: UnixMs,
}

/// A model, and the price by which a call of it is charged.
///
/// It is written as one text: the id, and behind it the characters of the version, of which the first is
/// a control character. Ids have none, so an id alone is one of a journal from before there were versions.
struct CalledModel<T>(T, Option<PriceVersion>);

impl Serialize for CalledModel<&Arc<str>> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self(id, None) => serializer.serialize_str(id),
            Self(id, Some(price)) => {
                let characters = price.characters();
                let price = str::from_utf8(&characters).map_err(serde::ser::Error::custom)?;
                serializer.collect_str(&format_args!("{id}{price}"))
            }
        }
    }
}

impl<'de> Deserialize<'de> for CalledModel<Arc<str>> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let split = text.len().checked_sub(PriceVersion::CHARACTERS);
        let split = split.and_then(|at| text.split_at_checked(at));
        let priced = split.and_then(|(id, price)| {
            let price = PriceVersion::from_characters(price.as_bytes().try_into().ok()?)?;
            Some(Self(id.into(), Some(price)))
        });
        Ok(priced.unwrap_or_else(|| Self(text.into(), None)))
    }
}

impl From<WrittenReservation> for Reservation {
    fn from(written: WrittenReservation) -> Self {
        let WrittenReservation { account, key, model, request, amount, floor, at } = written;
        let CalledModel(model, price) = model;
        Self { account, key, model, price, request, amount, floor, at }
    }
}

/// A customer's API key, without the key itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
    /// Its id.
    pub id: KeyId,
    /// Account that pays for its calls.
    pub account: AccountId,
    /// Hash of the key.
    pub hash: KeyHash,
    /// Name given by the owner.
    pub name: String,
    /// The models that it may call; `None` for all.
    pub models: Option<Vec<String>>,
    /// Expiry; `None` for never.
    pub expires_at: Option<UnixMs>,
    /// True if it was disabled.
    pub disabled: bool,
    /// Creation time.
    pub created_at: UnixMs,
    /// Time of the last change.
    pub updated_at: UnixMs,
}

impl Key {
    /// True if the key has no list of models, or if the list has this name or the model's id.
    #[must_use]
    pub fn may_use(&self, name: &str, model: &str) -> bool {
        let is_listed =
            |models: &Vec<String>| models.iter().any(|listed| listed == name || listed == model);
        self.models.as_ref().is_none_or(is_listed)
    }

    /// True if it was revoked: disabled, with an expiry in the past. It is kept because old charges
    /// refer to it.
    #[must_use]
    pub fn is_revoked(&self) -> bool {
        self.disabled && self.is_expired(self.updated_at)
    }

    /// True if it has expired.
    #[must_use]
    pub fn is_expired(&self, now: UnixMs) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }
}

/// Reason why a hold ended without a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VoidReason {
    /// No upstream could be reached, or none took the request.
    Unreached,
    /// The upstream answered with an error and no usage.
    UpstreamError,
    /// The client disconnected before the upstream had begun.
    #[serde(rename = "client_gone")]
    ClientDisconnected,
    /// The hold was let go without a word: a bug, and logged as one.
    Abandoned,
    /// Another model was asked in the place of this one: the same call goes on with a hold for that one.
    Replaced,
}

impl VoidReason {
    /// The word used in logs and the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreached => "unreached",
            Self::UpstreamError => "upstream_error",
            Self::ClientDisconnected => "client_gone",
            Self::Abandoned => "abandoned",
            Self::Replaced => "replaced",
        }
    }
}

/// A hold that has not ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenHold {
    /// Reservation that the hold covers.
    pub reservation: Arc<Reservation>,
    /// Amount set aside, extensions included.
    pub amount: Nanousd,
}

/// A record with its place, and the hold that it touches as it stood just before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournaledRecord {
    /// The place.
    pub seq: Seq,
    /// The event.
    pub record: Record,
    /// The hold that is extended or ended.
    pub hold: Option<OpenHold>,
}

/// The largest record that says what a customer or an operator has said, in bytes. Every text in one
/// has a limit of its own, and the largest of them, a key with a hundred models, comes to 13 KiB.
pub(crate) const WRITE_BYTES_MAX: usize = 16 << 10;
/// The largest end of a task, in bytes: what its upstream answered stands in it, of which answers of
/// 1 MiB are read, and which is spelt anew where the gateway cannot keep it as it came.
pub(crate) const RESULT_BYTES_MAX: usize = 4 << 20;

impl Record {
    /// The most bytes that such a record can come to.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        match self {
            Self::Task(task) if task.ended().is_some() => RESULT_BYTES_MAX,
            _ => WRITE_BYTES_MAX,
        }
    }

    /// Account of the record.
    #[must_use]
    pub fn account(&self) -> AccountId {
        match self {
            Self::AccountCreated { account, .. }
            | Self::Granted { account, .. }
            | Self::Refunded { account, .. }
            | Self::Extended { account, .. }
            | Self::Posted { account, .. }
            | Self::Voided { account, .. }
            | Self::Recovered { account, .. }
            | Self::KeyLimited { account, .. }
            | Self::AccountLimited { account, .. }
            | Self::AccountPriced { account, .. }
            | Self::AccountRenamed { account, .. }
            | Self::AccountSuspended { account, .. }
            | Self::SessionEnded { account, .. }
            | Self::DoubtResolved { account, .. }
            | Self::Announced { account, .. }
            | Self::Leased { account, .. }
            | Self::Returned { account, .. }
            | Self::HandedOver { account, .. }
            | Self::SuspenseResolved { account, .. }
            | Self::PostedOwing { account, .. }
            | Self::DebtPaid { account, .. }
            | Self::CreditSet { account, .. }
            | Self::AccountHolds { account, .. }
            | Self::WrittenOff { account, .. } => *account,
            Self::Lost(lost) => lost.account,
            Self::Costed(costed) => costed.account,
            Self::PriceNoted(note) => note.account,
            Self::GroupPriced(_) => AccountId::OPERATOR,
            Self::Central(record) => record.account(),
            Self::Acted(act) => act.account,
            Self::LoginSet(login) => login.account,
            Self::CodeCreated(_)
            | Self::CodeRevoked { .. }
            | Self::CodeUsed { .. }
            | Self::Checkpointed(_)
            | Self::Followed { .. } => AccountId::OPERATOR,
            Self::KeyCreated(key) | Self::KeyUpdated(key) => key.account,
            Self::Reserved(reservation) => reservation.account,
            Self::Task(task) => task.intent.account,
        }
    }

    /// Time of the event.
    #[must_use]
    pub fn at(&self) -> UnixMs {
        match self {
            Self::AccountCreated { at, .. }
            | Self::Granted { at, .. }
            | Self::Refunded { at, .. }
            | Self::Extended { at, .. }
            | Self::Posted { at, .. }
            | Self::Voided { at, .. }
            | Self::Recovered { at, .. }
            | Self::KeyLimited { at, .. }
            | Self::AccountLimited { at, .. }
            | Self::AccountPriced { at, .. }
            | Self::AccountRenamed { at, .. }
            | Self::AccountSuspended { at, .. }
            | Self::SessionEnded { at, .. }
            | Self::CodeRevoked { at, .. }
            | Self::CodeUsed { at, .. }
            | Self::DoubtResolved { at, .. }
            | Self::Followed { at, .. }
            | Self::Leased { at, .. }
            | Self::Returned { at, .. }
            | Self::HandedOver { at, .. }
            | Self::SuspenseResolved { at, .. }
            | Self::PostedOwing { at, .. }
            | Self::DebtPaid { at, .. }
            | Self::CreditSet { at, .. }
            | Self::AccountHolds { at, .. }
            | Self::WrittenOff { at, .. } => *at,
            Self::Lost(lost) => lost.at,
            Self::Costed(costed) => costed.at,
            Self::PriceNoted(note) => note.at,
            Self::GroupPriced(group) => group.at,
            Self::Checkpointed(checkpoint) => checkpoint.at,
            Self::Central(record) => record.at(),
            Self::Acted(act) => act.at,
            Self::LoginSet(login) => login.since,
            Self::CodeCreated(code) => code.created_at,
            Self::Announced { tried, .. } => tried.at,
            Self::KeyCreated(key) | Self::KeyUpdated(key) => key.updated_at,
            Self::Reserved(reservation) => reservation.at,
            Self::Task(task) => task.ended().map_or(task.intent.at, |ended| ended.at),
        }
    }

    /// The open hold that it extends or ends.
    #[must_use]
    pub fn open_hold(&self) -> Option<HoldId> {
        match self {
            Self::Extended { hold, .. }
            | Self::Posted { hold, .. }
            | Self::PostedOwing { hold, .. }
            | Self::Voided { hold, .. }
            | Self::Recovered { hold, .. }
            | Self::HandedOver { hold, .. } => Some(*hold),
            _ => None,
        }
    }

    /// The inner record, for one that wraps another whose money moved elsewhere.
    #[must_use]
    pub fn inner(&self) -> &Self {
        match self {
            Self::Central(record) => record,
            record => record,
        }
    }

    /// True if the record ends the hold that it names.
    #[must_use]
    pub fn ends_hold(&self) -> bool {
        matches!(
            self,
            Self::Posted { .. }
                | Self::PostedOwing { .. }
                | Self::Voided { .. }
                | Self::Recovered { .. }
        )
    }

    /// Charge of a settled call; `None` for every other record.
    pub fn charge(&self) -> Option<Charge> {
        match *self {
            Self::Posted { charged, written_off, usage, source, .. } => {
                Some(Charge { charged, owed: Nanousd::ZERO, written_off, usage, source })
            }
            Self::PostedOwing { charged, owed, written_off, usage, source, .. } => {
                Some(Charge { charged, owed, written_off, usage, source })
            }
            _ => None,
        }
    }

    /// Amount that the end of a hold took from the account; `None` for a record that took none.
    #[must_use]
    pub fn charged(&self) -> Option<Nanousd> {
        match self {
            Self::Recovered { charged, .. } => Some(*charged),
            record => record.charge().map(|charge| charge.charged),
        }
    }
}
