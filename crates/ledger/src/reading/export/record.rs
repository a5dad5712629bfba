//! A record as it is exported, in the words of the API.

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use crate::records::act::Act;
use crate::records::code::{Code, CodeKind};
use crate::records::cost::{CallCost, CostKind};
use crate::records::hold_end::{Charge, VoidReason};
use crate::records::key::Key;
use crate::records::key_limits::KeyLimits;
use crate::records::loss::LossRecord;
use crate::records::price::PriceNote;
use crate::records::record::{Record, SuspenseEnd};
use crate::records::reservation::Reservation;
use crate::records::task::{DeliveryAttempt, Task, TaskPhase};
use tollgate_journal::checked::hex;
use tollgate_money::money::Nanousd;
use tollgate_money::price::{PriceVersion, Usage, UsageSource};
use tollgate_options::holds::HoldOverrides;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, CodeId, HoldId, KeyId, RequestId, Seq, TaskId};
use tollgate_types::limit::Rates;

/// One record in an export of the journal.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LedgerRecord")]
pub struct ExportedRecord<'a> {
    /// Position in the journal.
    seq: Seq,
    /// Time of the event.
    at: Timestamp,
    /// Account of the record.
    account_id: AccountId,
    #[serde(flatten)]
    event: ExportedEvent<'a>,
}

/// The event, named as in an account's entries if it has one.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum ExportedEvent<'a> {
    /// An account was created.
    AccountCreated { name: &'a str },
    /// Credit was added.
    Grant { id: &'a str, amount: Nanousd },
    /// A charge was refunded, wholly or in part.
    Refund { id: &'a str, hold: HoldId, amount: Nanousd },
    /// A key was created.
    KeyCreated(KeyLine<'a>),
    /// A key was changed; the record holds its new state.
    KeyUpdated(KeyLine<'a>),
    /// The maximum cost of a call was held.
    Hold {
        hold: HoldId,
        key_id: KeyId,
        request_id: RequestId,
        model: &'a str,
        /// Version of the price at which the call is charged.
        #[serde(skip_serializing_if = "Option::is_none")]
        price: Option<PriceVersion>,
        amount: Nanousd,
    },
    /// A hold was extended.
    Extension { hold: HoldId, amount: Nanousd },
    /// A call was charged.
    Settlement {
        hold: HoldId,
        charged: Nanousd,
        /// Debt: the part that the account could not pay.
        owed: Nanousd,
        written_off: Nanousd,
        usage: Usage,
        usage_source: UsageSource,
    },
    /// A call was not charged.
    Void { hold: HoldId, reason: VoidReason },
    /// A crash interrupted a call.
    InDoubt { hold: HoldId, charged: Nanousd },
    /// A task was created or changed.
    Task(TaskLine<'a>),
    /// The limits of a key were set.
    KeyLimited { key_id: KeyId, limits: LimitsLine },
    /// The rate limits that all keys of an account share were set.
    AccountLimited { limits: Rates },
    /// Actor of the preceding write.
    Act(ActLine<'a>),
    /// An account was renamed.
    AccountRenamed { name: &'a str },
    /// An account was suspended or resumed.
    AccountSuspended { suspended: bool },
    /// The login of a customer was set.
    LoginSet { email: &'a str },
    /// A customer logged out.
    SessionEnded,
    /// A code was created.
    CodeCreated(CodeLine<'a>),
    /// A code was revoked.
    CodeRevoked { code_id: CodeId },
    /// A code was used by this account.
    CodeUsed { code_id: CodeId, by: AccountId },
    /// An operator resolved a call that a crash had left in doubt.
    DoubtResolved { hold: HoldId, note: &'a str },
    /// Delivery of a task's webhook was attempted.
    Announced { task_id: TaskId, status: Option<u16>, error: Option<&'a str> },
    /// A fleet node has applied the fleet's directory up to this position.
    Followed { directory: Seq },
    /// A fleet node leased money.
    Lease { amount: Nanousd },
    /// A fleet node returned unspent money.
    LeaseReturned { amount: Nanousd },
    /// A hold was handed to the fleet's treasury together with its task.
    HandedOver { hold: HoldId },
    /// An operator resolved the leases of a silent fleet node.
    SuspenseResolved { node: u16, amount: Nanousd, end: SuspenseEnd, note: &'a str },
    /// Money that became available paid a debt, wholly or in part.
    DebtPayment { amount: Nanousd },
    /// An operator wrote off a debt, wholly or in part.
    WriteOff { id: &'a str, amount: Nanousd, note: &'a str },
    /// The credit line of an account was set.
    CreditLine {
        limit: Nanousd,
        /// Amount that was lent in addition.
        lent: Nanousd,
        /// Withdrawn from the available money.
        withdrawn: Nanousd,
        /// Withdrawn after it had been spent: the account's debt.
        owed: Nanousd,
    },
    /// A call may have caused a cost that no customer pays.
    Loss(LossLine<'a>),
    /// The cost of a call to the operator.
    Cost(CostLine<'a>),
    /// A checkpoint was written.
    Checkpoint(CheckpointLine),
    /// The price rules of an account were set.
    AccountPriced { group: Option<&'a str>, rules: usize },
    /// The hold rules of an account were set.
    AccountHolds { holds: HoldsLine },
    /// The rules of a price group were set.
    GroupPriced { group: &'a str, rules: usize },
    /// A price was used for the first time.
    PriceNoted { price: PriceVersion, model: &'a str, source: &'a str, pricing: &'a str },
}

/// Hold rules of an account; `null` for the configured ones.
#[derive(Serialize, JsonSchema)]
struct HoldsLine {
    /// The means in the order in which they are tried.
    means: Option<Vec<&'static str>>,
    output_floor: Option<u64>,
    slice: Option<u64>,
    wait_ms: Option<u64>,
}

impl HoldsLine {
    fn from_overrides(holds: &HoldOverrides) -> Self {
        Self {
            means: holds.means_words(),
            output_floor: holds.output_floor,
            slice: holds.slice,
            wait_ms: holds.wait_ms(),
        }
    }
}

#[derive(Serialize, JsonSchema)]
struct CheckpointLine {
    /// Position of the last record in the checkpoint.
    last_seq: Seq,
    /// Hash of the checkpoint's file, in hex.
    sha256: String,
}

#[derive(Serialize, JsonSchema)]
struct LossLine<'a> {
    key_id: KeyId,
    request_id: RequestId,
    model: &'a str,
    upstream: &'a str,
    cause: &'a str,
    /// Upper bound of the loss.
    amount: Nanousd,
}

#[derive(Serialize, JsonSchema)]
struct CostLine<'a> {
    key_id: KeyId,
    request_id: RequestId,
    model: &'a str,
    upstream: &'a str,
    /// Name of the credential; empty if the upstream has only one.
    credential: &'a str,
    /// The upstream's name of the model.
    upstream_model: &'a str,
    /// The kind of cost.
    cost_kind: CostKind,
    usage: Usage,
    usage_source: UsageSource,
    /// The customer's charge for the same call, debt included.
    charged: Nanousd,
    cost: Nanousd,
}

#[derive(Serialize, JsonSchema)]
struct ActLine<'a> {
    /// `operator`, `customer` or `gateway`.
    by: &'static str,
    /// Name of the operator in `admin.operators`.
    operator: Option<&'a str>,
    act: &'a str,
    subject: &'a str,
    idempotency_key: Option<&'a str>,
}

#[derive(Serialize, JsonSchema)]
struct CodeLine<'a> {
    code_id: CodeId,
    code_kind: CodeKind,
    amount: Option<Nanousd>,
    uses_max: u32,
    expires_at: Option<Timestamp>,
    note: &'a str,
}

#[derive(Serialize, JsonSchema)]
struct KeyLine<'a> {
    key_id: KeyId,
    name: &'a str,
    models: Option<&'a [String]>,
    expires_at: Option<Timestamp>,
    disabled: bool,
}

#[derive(Serialize, JsonSchema)]
struct TaskLine<'a> {
    task_id: TaskId,
    hold: HoldId,
    key_id: KeyId,
    model: &'a str,
    upstream: &'a str,
    upstream_model: &'a str,
    upstream_id: Option<&'a str>,
    /// `submitting`, `in_doubt`, `submitted`, or the final state.
    state: &'a str,
}

#[derive(Serialize, JsonSchema)]
struct LimitsLine {
    #[serde(flatten)]
    rates: Rates,
    spend_per_day: Option<Nanousd>,
    spend_per_month: Option<Nanousd>,
}

/// A time in RFC 3339.
#[derive(Clone, Copy, JsonSchema)]
#[schemars(inline, transparent)]
struct Timestamp(#[schemars(with = "String", extend("format" = "date-time"))] UnixMs);

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_rfc3339())
    }
}

impl<'a> ExportedRecord<'a> {
    /// The record at `seq`.
    #[must_use]
    pub fn of(seq: Seq, record: &'a Record) -> Self {
        Self {
            seq,
            at: Timestamp(record.at()),
            account_id: record.account(),
            event: ExportedEvent::of(seq, record),
        }
    }
}

impl<'a> LossLine<'a> {
    fn from_record(lost: &'a LossRecord) -> Self {
        Self {
            key_id: lost.key,
            request_id: lost.request,
            model: &lost.model,
            upstream: &lost.upstream,
            cause: &lost.cause,
            amount: lost.amount,
        }
    }
}

impl<'a> CostLine<'a> {
    fn from_record(costed: &'a CallCost) -> Self {
        Self {
            key_id: costed.key,
            request_id: costed.request,
            model: &costed.model,
            upstream: &costed.upstream,
            credential: &costed.credential,
            upstream_model: &costed.upstream_model,
            cost_kind: costed.kind,
            usage: costed.usage,
            usage_source: costed.source,
            charged: costed.charged,
            cost: costed.cost,
        }
    }
}

impl<'a> ExportedEvent<'a> {
    fn of(seq: Seq, record: &'a Record) -> Self {
        match record {
            Record::Central(record) => Self::of(seq, record),
            Record::Followed { seq, .. } => Self::Followed { directory: *seq },
            Record::Leased { amount, .. } => Self::Lease { amount: *amount },
            Record::Returned { amount, .. } => Self::LeaseReturned { amount: *amount },
            Record::HandedOver { hold, .. } => Self::HandedOver { hold: *hold },
            Record::SuspenseResolved { node, amount, end, note, .. } => {
                let (node, amount, end) = (node.number(), *amount, *end);
                Self::SuspenseResolved { node, amount, end, note }
            }
            Record::AccountCreated { name, .. } => Self::AccountCreated { name },
            Record::Granted { id, amount, .. } => Self::Grant { id, amount: *amount },
            Record::Refunded { id, hold, amount, .. } => {
                Self::Refund { id, hold: *hold, amount: *amount }
            }
            Record::KeyCreated(key) => Self::KeyCreated(KeyLine::of(key)),
            Record::KeyUpdated(key) => Self::KeyUpdated(KeyLine::of(key)),
            Record::Reserved(reservation) => Self::set_aside(seq, reservation),
            Record::Extended { hold, amount, .. } => {
                Self::Extension { hold: *hold, amount: *amount }
            }
            Record::Posted { hold, .. } | Record::PostedOwing { hold, .. } => {
                Self::settled(*hold, record)
            }
            Record::DebtPaid { amount, .. } => Self::DebtPayment { amount: *amount },
            Record::WrittenOff { id, amount, note, .. } => {
                Self::WriteOff { id, amount: *amount, note }
            }
            Record::CreditSet { limit, lent, withdrawn, owed, .. } => {
                Self::credit_line([*limit, *lent, *withdrawn, *owed])
            }
            Record::Lost(lost) => Self::Loss(LossLine::from_record(lost)),
            Record::AccountPriced { prices, .. } => {
                Self::AccountPriced { group: prices.group.as_deref(), rules: prices.rules.len() }
            }
            Record::AccountHolds { holds, .. } => {
                Self::AccountHolds { holds: HoldsLine::from_overrides(holds) }
            }
            Record::GroupPriced(group) => {
                Self::GroupPriced { group: &group.name, rules: group.rules.len() }
            }
            Record::PriceNoted(note) => Self::noted(note),
            Record::Costed(costed) => Self::Cost(CostLine::from_record(costed)),
            Record::Voided { hold, reason, .. } => Self::Void { hold: *hold, reason: *reason },
            Record::Recovered { hold, charged, .. } => {
                Self::InDoubt { hold: *hold, charged: *charged }
            }
            Record::Task(task) => Self::Task(TaskLine::of(task)),
            Record::KeyLimited { key, limits, .. } => {
                Self::KeyLimited { key_id: *key, limits: (*limits).into() }
            }
            Record::AccountLimited { rates, .. } => Self::AccountLimited { limits: *rates },
            Record::Announced { task, tried, .. } => Self::announced(*task, tried),
            Record::AccountRenamed { name, .. } => Self::AccountRenamed { name },
            Record::AccountSuspended { suspended, .. } => {
                Self::AccountSuspended { suspended: *suspended }
            }
            Record::LoginSet(login) => Self::LoginSet { email: &login.email },
            Record::SessionEnded { .. } => Self::SessionEnded,
            Record::CodeCreated(code) => Self::CodeCreated(CodeLine::of(code)),
            Record::CodeRevoked { code, .. } => Self::CodeRevoked { code_id: *code },
            Record::CodeUsed { code, by, .. } => Self::CodeUsed { code_id: *code, by: *by },
            Record::DoubtResolved { hold, note, .. } => Self::DoubtResolved { hold: *hold, note },
            Record::Acted(act) => Self::Act(ActLine::of(act)),
            Record::Checkpointed(checkpoint) => {
                let (last_seq, sha256) = (checkpoint.seq, hex(&checkpoint.sha256));
                Self::Checkpoint(CheckpointLine { last_seq, sha256 })
            }
        }
    }

    fn settled(hold: HoldId, record: &Record) -> Self {
        let charge = record.charge();
        let amount = |of: fn(Charge) -> Nanousd| charge.map(of).unwrap_or_default();
        Self::Settlement {
            hold,
            charged: amount(|charge| charge.charged),
            owed: amount(|charge| charge.owed),
            written_off: amount(|charge| charge.written_off),
            usage: charge.map(|charge| charge.usage).unwrap_or_default(),
            usage_source: charge.map_or(UsageSource::Estimated, |charge| charge.source),
        }
    }

    fn announced(task_id: TaskId, tried: &'a DeliveryAttempt) -> Self {
        Self::Announced { task_id, status: tried.status, error: tried.error.as_deref() }
    }

    fn credit_line([limit, lent, withdrawn, owed]: [Nanousd; 4]) -> Self {
        Self::CreditLine { limit, lent, withdrawn, owed }
    }

    fn noted(note: &'a PriceNote) -> Self {
        Self::PriceNoted {
            price: note.version,
            model: &note.model,
            source: &note.source,
            pricing: &note.pricing,
        }
    }

    fn set_aside(seq: Seq, reservation: &'a Reservation) -> Self {
        Self::Hold {
            hold: HoldId::from_number(seq),
            key_id: reservation.key,
            request_id: reservation.request,
            model: &reservation.model,
            price: reservation.price,
            amount: reservation.amount,
        }
    }
}

impl<'a> ActLine<'a> {
    fn of(act: &'a Act) -> Self {
        Self {
            by: act.by.kind(),
            operator: act.by.name(),
            act: &act.what,
            subject: &act.subject,
            idempotency_key: act.id.as_deref(),
        }
    }
}

impl<'a> CodeLine<'a> {
    fn of(code: &'a Code) -> Self {
        Self {
            code_id: code.id,
            code_kind: code.kind,
            amount: code.amount,
            uses_max: code.uses_max,
            expires_at: code.expires_at.map(Timestamp),
            note: &code.note,
        }
    }
}

impl<'a> KeyLine<'a> {
    fn of(key: &'a Key) -> Self {
        Self {
            key_id: key.id,
            name: &key.name,
            models: key.models.as_deref(),
            expires_at: key.expires_at.map(Timestamp),
            disabled: key.disabled,
        }
    }
}

impl<'a> TaskLine<'a> {
    fn of(task: &'a Task) -> Self {
        let state = match &task.stage {
            TaskPhase::Submitting => "submitting",
            TaskPhase::InDoubt => "in_doubt",
            TaskPhase::Submitted { .. } => "submitted",
            TaskPhase::Ended(ended) => &ended.state,
        };
        Self {
            task_id: task.id(),
            hold: task.intent.hold,
            key_id: task.intent.key,
            model: &task.intent.model,
            upstream: &task.upstream,
            upstream_model: &task.upstream_model,
            upstream_id: task.upstream_id(),
            state,
        }
    }
}

impl From<KeyLimits> for LimitsLine {
    fn from(limits: KeyLimits) -> Self {
        let KeyLimits { rates, spend_per_day, spend_per_month } = limits;
        Self { rates, spend_per_day, spend_per_month }
    }
}
