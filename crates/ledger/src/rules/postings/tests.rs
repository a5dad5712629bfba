//! The postings of every kind of record, and books into which something wrong was entered.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{BookAccount, Posting, postings};
use crate::records::act::{Act, Actor};
use crate::records::checkpointed::CheckpointRecord;
use crate::records::code::{Code, CodeKind};
use crate::records::cost::{CallCost, CostKind};
use crate::records::hold_end::VoidReason;
use crate::records::key::Key;
use crate::records::key_limits::KeyLimits;
use crate::records::login::Login;
use crate::records::loss::LossRecord;
use crate::records::price::{PriceGroup, PriceNote};
use crate::records::record::{Record, SuspenseEnd};
use crate::records::reservation::Reservation;
use crate::records::task::{DeliveryAttempt, Intent, Task, TaskPhase, Webhook};
use tollgate_money::money::Nanousd;
use tollgate_money::price::{PriceVersion, Prices, Usage, UsageSource};
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, CodeId, HoldId, KeyId, NodeId, RequestId, TaskId};
use tollgate_types::limit::Rates;
use tollgate_types::secret::KeyHash;

const AT: UnixMs = UnixMs(1_000);
const HELD: i64 = 100;
/// Kinds of records: a new one is counted here, and has its example below.
const KINDS: usize = 40;

fn account() -> AccountId {
    AccountId::from_number(1)
}

fn hold() -> HoldId {
    HoldId::from_number(7)
}

fn usd(nanousd: i64) -> Nanousd {
    Nanousd::new(nanousd)
}

/// A number for each kind of record.
fn kind(record: &Record) -> usize {
    match record {
        Record::AccountCreated { .. } => 0,
        Record::Granted { .. } => 1,
        Record::Refunded { .. } => 2,
        Record::KeyCreated(_) => 3,
        Record::KeyUpdated(_) => 4,
        Record::Reserved(_) => 5,
        Record::Extended { .. } => 6,
        Record::Posted { .. } => 7,
        Record::Voided { .. } => 8,
        Record::Recovered { .. } => 9,
        Record::Task(_) => 10,
        Record::KeyLimited { .. } => 11,
        Record::AccountLimited { .. } => 12,
        Record::Acted(_) => 13,
        Record::AccountRenamed { .. } => 14,
        Record::AccountSuspended { .. } => 15,
        Record::LoginSet(_) => 16,
        Record::SessionEnded { .. } => 17,
        Record::CodeCreated(_) => 18,
        Record::CodeRevoked { .. } => 19,
        Record::CodeUsed { .. } => 20,
        Record::DoubtResolved { .. } => 21,
        Record::Announced { .. } => 22,
        Record::Central(_) => 23,
        Record::Followed { .. } => 24,
        Record::Leased { .. } => 25,
        Record::Returned { .. } => 26,
        Record::HandedOver { .. } => 27,
        Record::SuspenseResolved { .. } => 28,
        Record::PostedOwing { .. } => 29,
        Record::DebtPaid { .. } => 30,
        Record::WrittenOff { .. } => 31,
        Record::Lost(_) => 32,
        Record::Checkpointed(_) => 33,
        Record::Costed(_) => 34,
        Record::AccountPriced { .. } => 35,
        Record::GroupPriced(_) => 36,
        Record::PriceNoted(_) => 37,
        Record::CreditSet { .. } => 38,
        Record::AccountHolds { .. } => 39,
    }
}

/// Records that move money, and what each enters.
fn moving() -> Vec<(Record, Vec<(BookAccount, i128)>)> {
    let account = account();
    let mut examples = given(account);
    examples.extend(of_calls(account));
    examples.extend(of_upstreams(account));
    examples
}

fn given(account: AccountId) -> Vec<(Record, Vec<(BookAccount, i128)>)> {
    use BookAccount::{Available, Cash, CreditLines, Held, Receivable, Treasury, WrittenOff};
    let amount = usd(5);
    let line = |limit, lent, withdrawn, owed| {
        let [limit, lent, withdrawn, owed] = [limit, lent, withdrawn, owed].map(usd);
        Record::CreditSet { account, limit, lent, withdrawn, owed, at: AT }
    };
    vec![
        (
            Record::Granted { account, id: "g".into(), amount, at: AT },
            vec![(Cash, 5), (Available, -5)],
        ),
        (Record::Leased { account, amount, at: AT }, vec![(Treasury, 5), (Available, -5)]),
        (Record::Returned { account, amount, at: AT }, vec![(Available, 5), (Treasury, -5)]),
        (Record::HandedOver { account, hold: hold(), at: AT }, vec![(Held, 100), (Treasury, -100)]),
        (Record::DebtPaid { account, amount, at: AT }, vec![(Available, 5), (Receivable, -5)]),
        (
            Record::WrittenOff { account, id: "w".into(), amount, note: "n".into(), at: AT },
            vec![(WrittenOff, 5), (Receivable, -5)],
        ),
        (line(9, 5, 0, 0), vec![(CreditLines, 5), (Available, -5)]),
        (
            line(1, 0, 5, 3),
            vec![(Available, 5), (CreditLines, -5), (Receivable, 3), (CreditLines, -3)],
        ),
    ]
}

fn of_calls(account: AccountId) -> Vec<(Record, Vec<(BookAccount, i128)>)> {
    use BookAccount::{Available, Held, Receivable, Revenue, Unclaimed, WrittenOff};
    let (hold, usage, source) = (hold(), Usage::ZERO, UsageSource::Upstream);
    let reservation = Reservation {
        account,
        key: KeyId::from_number(1),
        model: "m".into(),
        request: RequestId::from_number(1),
        amount: usd(HELD),
        floor: usd(3),
        price: None,
        at: AT,
    };
    vec![
        (Record::Reserved(Arc::new(reservation)), vec![(Available, 100), (Held, -100)]),
        (
            Record::Extended { account, hold, amount: usd(9), at: AT },
            vec![(Available, 9), (Held, -9)],
        ),
        (
            Record::Posted {
                account,
                hold,
                charged: usd(60),
                written_off: usd(4),
                usage,
                source,
                at: AT,
            },
            vec![(Held, 100), (Available, -40), (Revenue, -60), (WrittenOff, 4), (Unclaimed, -4)],
        ),
        (
            Record::PostedOwing {
                account,
                hold,
                charged: usd(100),
                owed: usd(11),
                written_off: usd(2),
                usage,
                source,
                at: AT,
            },
            vec![
                (Held, 100),
                (Revenue, -100),
                (Receivable, 11),
                (Revenue, -11),
                (WrittenOff, 2),
                (Unclaimed, -2),
            ],
        ),
        (
            Record::Voided { account, hold, reason: VoidReason::Unreached, at: AT },
            vec![(Held, 100), (Available, -100)],
        ),
        (
            Record::Recovered { account, hold, charged: usd(3), at: AT },
            vec![(Held, 100), (Available, -97), (Revenue, -3)],
        ),
        (
            Record::Refunded {
                account,
                id: "r".into(),
                hold,
                amount: usd(8),
                charged: usd(60),
                at: AT,
            },
            vec![(Revenue, 8), (Available, -8)],
        ),
    ]
}

fn of_upstreams(account: AccountId) -> Vec<(Record, Vec<(BookAccount, i128)>)> {
    let (key, request, amount) = (KeyId::from_number(1), RequestId::from_number(1), usd(6));
    let costed = |kind| CallCost {
        account,
        key,
        model: "m".into(),
        upstream: "u".into(),
        credential: "c".into(),
        upstream_model: "um".into(),
        request,
        kind,
        usage: Usage::ZERO,
        source: UsageSource::Upstream,
        charged: usd(60),
        cost: amount,
        at: AT,
    };
    let lost = LossRecord {
        account,
        key,
        model: "m".into(),
        upstream: "u".into(),
        request,
        cause: "retry".into(),
        amount,
        at: AT,
    };
    let payable = || BookAccount::Payable { upstream: "u".into(), credential: "c".into() };
    let mut examples: Vec<_> = [CostKind::Answer, CostKind::Unpaid, CostKind::Retry]
        .map(|kind| {
            let record = Record::Costed(Arc::new(costed(kind)));
            (record, vec![(BookAccount::UpstreamCost { kind }, 6), (payable(), -6)])
        })
        .into();
    let cause = || "retry".to_owned();
    examples.push((
        Record::Lost(Arc::new(lost)),
        vec![
            (BookAccount::ExpectedLoss { cause: cause() }, 6),
            (BookAccount::ContingentLiability { cause: cause() }, -6),
        ],
    ));
    examples
}

/// Records that enter nothing.
fn resting() -> Vec<Record> {
    let account = account();
    let mut examples = of_people(account);
    examples.extend(of_keys(account));
    examples.extend(of_tasks(account));
    examples.extend(of_house(account));
    examples
}

fn of_people(account: AccountId) -> Vec<Record> {
    let (email, password) = ("a@example.com".into(), "hash".into());
    let act = Act {
        account,
        by: Actor::Gateway,
        what: "grant".into(),
        subject: "s".into(),
        id: None,
        digest: [0; 32],
        at: AT,
    };
    vec![
        Record::AccountCreated { account, name: "a".into(), at: AT },
        Record::AccountRenamed { account, name: "b".into(), at: AT },
        Record::AccountSuspended { account, suspended: true, at: AT },
        Record::AccountLimited { account, rates: Rates::NONE, at: AT },
        Record::Acted(Arc::new(act)),
        Record::LoginSet(Arc::new(Login { account, email, password, since: AT })),
        Record::SessionEnded { account, session: [0; 16], until: AT, at: AT },
        Record::DoubtResolved { account, hold: hold(), note: "n".into(), at: AT },
    ]
}

fn of_keys(account: AccountId) -> Vec<Record> {
    let key = Arc::new(Key {
        id: KeyId::from_number(1),
        account,
        hash: KeyHash::of(b"key"),
        name: "k".into(),
        models: None,
        expires_at: None,
        disabled: false,
        created_at: AT,
        updated_at: AT,
    });
    let limits = KeyLimits::default();
    vec![
        Record::KeyLimited { account, key: key.id, limits, at: AT },
        Record::KeyCreated(Arc::clone(&key)),
        Record::KeyUpdated(key),
    ]
}

fn of_tasks(account: AccountId) -> Vec<Record> {
    let intent = Intent {
        id: TaskId::from_number(1),
        account,
        key: KeyId::from_number(1),
        hold: hold(),
        model: "m".into(),
        protocol: "p".into(),
        prices: Prices::default(),
        facts: Vec::new(),
        webhook_url: None,
        repeat: None,
        at: AT,
        expires_at: AT,
    };
    let task = Task {
        intent: Arc::new(intent),
        upstream: "u".into(),
        upstream_model: "um".into(),
        stage: TaskPhase::Submitting,
        webhook: Webhook::None,
    };
    let tried = DeliveryAttempt { at: AT, status: Some(200), error: None };
    vec![
        Record::Announced { account, task: task.id(), tried: Arc::new(tried) },
        Record::Task(Arc::new(task)),
    ]
}

fn of_house(account: AccountId) -> Vec<Record> {
    let amount = usd(5);
    let code = Code {
        id: CodeId::from_number(1),
        hash: KeyHash::of(b"code"),
        kind: CodeKind::Credit,
        amount: Some(amount),
        uses_max: 1,
        expires_at: None,
        note: "n".into(),
        created_at: AT,
    };
    let (node, end, note) = (NodeId::default(), SuspenseEnd::Charge, "n".to_owned());
    let noted = PriceNote {
        account,
        version: PriceVersion::from_text("{}"),
        model: "m".into(),
        source: "models.yaml".into(),
        pricing: "{}".into(),
        at: AT,
    };
    let checkpointed = CheckpointRecord { seq: 1, sha256: [0; 32], state_hash: [0; 32], at: AT };
    vec![
        Record::CodeRevoked { code: code.id, at: AT },
        Record::CodeUsed { code: code.id, by: account, at: AT },
        Record::CodeCreated(Arc::new(code)),
        Record::Followed { seq: 1, at: AT },
        Record::SuspenseResolved { account, node, amount, end, note, at: AT },
        Record::AccountPriced { account, prices: Arc::default(), at: AT },
        Record::AccountHolds { account, holds: Arc::default(), at: AT },
        Record::GroupPriced(Arc::new(PriceGroup { name: "g".into(), rules: Vec::new(), at: AT })),
        Record::PriceNoted(Arc::new(noted)),
        Record::Central(Arc::new(Record::Granted { account, id: "c".into(), amount, at: AT })),
        Record::Checkpointed(Arc::new(checkpointed)),
    ]
}

#[test]
fn every_kind_of_record_has_its_postings() {
    let mut examples = moving();
    examples.extend(resting().into_iter().map(|record| (record, Vec::new())));
    let mut kinds = BTreeSet::new();
    for (record, expected) in examples {
        kinds.insert(kind(&record));
        let expected: Vec<_> =
            expected.into_iter().map(|(account, amount)| Posting { account, amount }).collect();
        let found = postings(&record, usd(HELD));
        assert_eq!(found, expected, "{record:?}");
        assert_eq!(found.iter().map(|posting| posting.amount).sum::<i128>(), 0, "{record:?}");
    }
    assert_eq!(kinds, (0..KINDS).collect(), "each kind has an example");
}
