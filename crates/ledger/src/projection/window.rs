//! Changes to sled from a window of the journal, summed up before they are written.
//!
//! A hold that is opened and ended within one window leaves no trace among the open holds; balances
//! and usage are written once per window and account, entries as one value per account.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

mod customers;

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use serde::{Deserialize, Serialize};

pub(crate) use self::customers::CustomerChanges;

use crate::records::cost::{MarginCell, MarginTotal};
use crate::records::error::Violation;
use crate::records::hold_end::Charge;
use crate::records::id_map::IdMap;
use crate::records::key::Key;
use crate::records::key_limits::KeyLimits;
use crate::records::loss::LossRecord;
use crate::records::record::{JournaledRecord, Record};
use crate::records::reservation::{OpenHold, Reservation};
use crate::records::task::Task;
use crate::rules::account::{Account, Movement};
use crate::rules::core::{GrantMemo, Refund};
use crate::rules::spend;
use tollgate_money::money::Nanousd;
use tollgate_money::price::Usage;
use tollgate_types::clock::{MS_PER_HOUR, UnixMs};
use tollgate_types::ids::{AccountId, HoldId, KeyId, Seq, TaskId};
use tollgate_types::limit::Rates;

/// A chunk of entries that has reached this length takes no more. It stays below the largest row for
/// which the store's segments are made.
const CHUNK_BYTES: usize = 16 << 10;

/// The hour of `at`, counted from 1970.
fn hour(at: UnixMs) -> u32 {
    u32::try_from(at.0.div_euclid(MS_PER_HOUR)).unwrap_or(u32::MAX)
}

/// Sums by ids that the gateway makes, hours, and names that operators have configured. No customer
/// chooses any of them, so that a hash of a few instructions will do.
pub(crate) type CellMap<K, V> = HashMap<K, V, RandomState>;

/// Everything that one window changes.
#[derive(Default)]
pub(crate) struct Window {
    pub(crate) created: IdMap<AccountId, Account>,
    pub(crate) movements: IdMap<AccountId, Movement>,
    pub(crate) keys: IdMap<KeyId, Arc<Key>>,
    pub(crate) grants: Vec<(AccountId, String, GrantMemo)>,
    pub(crate) refunds: Vec<(AccountId, String, Refund)>,
    pub(crate) write_offs: Vec<(AccountId, String, GrantMemo)>,
    /// Possible losses of the operator.
    pub(crate) losses: Vec<(Seq, Arc<LossRecord>)>,
    /// Holds as they are at the window's end; `None` for those that ended.
    pub(crate) holds: IdMap<HoldId, Option<OpenHold>>,
    /// Tasks as they are at the window's end.
    pub(crate) tasks: IdMap<TaskId, Arc<Task>>,
    /// Holds that a crash had left open.
    pub(crate) in_doubt: Vec<JournaledRecord>,
    pub(crate) entries: IdMap<AccountId, Vec<EntryChunk>>,
    pub(crate) usage: CellMap<UsageCell, UsageTotal>,
    /// Cost and revenue of calls.
    pub(crate) margins: CellMap<MarginCell, MarginTotal>,
    pub(crate) key_limits: IdMap<KeyId, (AccountId, KeyLimits)>,
    pub(crate) rates: IdMap<AccountId, Rates>,
    /// Charges per key, one sum per run of the same day: if a clock is set back, the order of days
    /// matters.
    pub(crate) charges: IdMap<(AccountId, KeyId), Vec<(u32, Nanousd)>>,
    /// Changes to customers.
    pub(crate) customers: CustomerChanges,
    /// Time of each key's last charge, including charges of zero.
    pub(crate) used: IdMap<(AccountId, KeyId), UnixMs>,
    first_seq: Option<Seq>,
}

/// Consecutive entries of one account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryChunk {
    pub first_seq: Seq,
    pub last_seq: Seq,
    /// Time of the last record.
    pub last_at: UnixMs,
    pub bytes: Vec<u8>,
}

/// Key of a usage sum.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UsageCell {
    /// The account whose calls they are.
    pub account: AccountId,
    /// The hour, counted from 1970; in rows by the day, the day.
    pub time: u32,
    /// Key of the call.
    pub key: KeyId,
    /// Model that the request named.
    pub model: Arc<str>,
}

/// Usage and cost of several calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageTotal {
    /// Number of settled calls.
    pub calls: u64,
    /// Amount paid when they were settled.
    pub charged: Nanousd,
    /// Debt from their settlement.
    pub owed: Nanousd,
    /// Amount borne by the operator.
    pub written_off: Nanousd,
    /// Usage of the calls, by unit.
    pub usage: Usage,
}

impl UsageTotal {
    /// Adds `other`. Figures past the range stay at its end: they are statistics, not balances.
    pub fn add(&mut self, other: &Self) {
        self.calls = self.calls.saturating_add(other.calls);
        self.charged = self.charged.saturating_add(other.charged);
        self.owed = self.owed.saturating_add(other.owed);
        self.written_off = self.written_off.saturating_add(other.written_off);
        self.usage = self.usage.plus(&other.usage);
    }
}

/// True if the record has a permanent line in statements. An open hold has a line only while it is
/// open; the record of its end repeats its contents.
pub(crate) fn is_entry(record: &Record) -> bool {
    record.ends_hold()
        || matches!(
            record,
            Record::Granted { .. }
                | Record::Refunded { .. }
                | Record::DebtPaid { .. }
                | Record::WrittenOff { .. }
                | Record::CreditSet { .. }
        )
}

impl Window {
    /// Adds the next record of the journal.
    ///
    /// # Errors
    /// For a record that no [`Core`](crate::rules::core::Core) would have taken.
    pub(crate) fn add(&mut self, journaled: JournaledRecord) -> Result<(), Violation> {
        let JournaledRecord { seq, record, hold } = &journaled;
        let (seq, account) = (*seq, record.account());
        let first_seq = *self.first_seq.get_or_insert(seq);
        let movement = Movement::of(record, hold.as_ref())
            .map_err(|rule| Violation::new(seq, record, rule))?;
        if account != AccountId::OPERATOR {
            let sum = self.movements.entry(account).or_default();
            *sum = sum
                .plus(&movement)
                .ok_or_else(|| Violation::new(seq, record, "the amounts of a window overflow"))?;
        }
        self.customers.add(seq, record);
        self.add_hold(seq, record, hold.as_ref(), first_seq);
        match record.inner() {
            Record::AccountCreated { name, at, .. } => {
                self.created.insert(account, Account::new(account, name.clone(), *at));
            }
            Record::KeyCreated(key) | Record::KeyUpdated(key) => {
                self.keys.insert(key.id, Arc::clone(key));
            }
            Record::Granted { id, amount, .. } => {
                self.grants.push((account, id.clone(), GrantMemo { seq, amount: *amount }));
            }
            Record::Refunded { id, hold, amount, .. } => {
                let refund = Refund { seq, hold: *hold, amount: *amount };
                self.refunds.push((account, id.clone(), refund));
            }
            Record::WrittenOff { id, amount, .. } => {
                self.write_offs.push((account, id.clone(), GrantMemo { seq, amount: *amount }));
            }
            Record::Lost(lost) => self.losses.push((seq, Arc::clone(lost))),
            Record::Costed(costed) => {
                self.margins.entry(costed.cell()).or_default().add(&costed.total());
            }
            Record::Posted { .. } | Record::PostedOwing { .. } => {
                self.add_usage(record, hold.as_ref());
            }
            Record::Recovered { .. } => {
                self.add_usage(record, hold.as_ref());
                self.in_doubt.push(journaled.clone());
            }
            Record::HandedOver { .. } => {
                hold.iter().for_each(|hold| self.add_charge(record, hold));
            }
            Record::Task(task) => {
                self.tasks.insert(task.id(), Arc::clone(task));
            }
            Record::KeyLimited { key, limits, .. } => {
                self.key_limits.insert(*key, (account, *limits));
            }
            Record::AccountLimited { rates, .. } => {
                self.rates.insert(account, *rates);
            }
            // The rest is about holds and people.
            _ => {}
        }
        if is_entry(record) {
            self.add_entry(account, &journaled)
                .map_err(|rule| Violation::new(seq, &journaled.record, rule))?;
        }
        Ok(())
    }

    /// About how many rows of the store it changes: most are holds, four for each task, and
    /// three for each act.
    pub(crate) fn rows(&self) -> usize {
        let tasks = self.tasks.len().saturating_mul(4);
        let losses = self.losses.len();
        self.holds
            .len()
            .saturating_add(tasks)
            .saturating_add(losses)
            .saturating_add(self.customers.rows())
    }

    /// Number of sums: of accounts, usage, costs, and charges of keys.
    pub(crate) fn sums(&self) -> usize {
        self.movements
            .len()
            .saturating_add(self.usage.len())
            .saturating_add(self.margins.len())
            .saturating_add(self.used.len())
    }

    fn add_hold(&mut self, seq: Seq, record: &Record, before: Option<&OpenHold>, first_seq: Seq) {
        match (record, before) {
            (Record::Reserved(reservation), _) => {
                let hold =
                    OpenHold { reservation: Arc::clone(reservation), amount: reservation.amount };
                self.holds.insert(HoldId::from_number(seq), Some(hold));
            }
            (Record::Extended { hold, amount, .. }, Some(before)) => {
                // The core has added the same two without overflow.
                let amount = before.amount.saturating_add(*amount);
                self.holds.insert(*hold, Some(OpenHold { amount, ..before.clone() }));
            }
            _ => match record.open_hold() {
                Some(hold) if hold.number() >= first_seq => {
                    self.holds.remove(&hold);
                }
                Some(hold) => {
                    self.holds.insert(hold, None);
                }
                None => {}
            },
        }
    }

    /// Adds a charge to the key's spending, and marks the key as used.
    fn add_charge(&mut self, record: &Record, hold: &OpenHold) {
        let Reservation { account, key, .. } = *hold.reservation;
        let used = self.used.entry((account, key)).or_default();
        *used = (*used).max(record.at());
        let Some((day, charged)) = spend::charge(record, hold) else { return };
        let of = (hold.reservation.account, hold.reservation.key);
        let days = self.charges.entry(of).or_default();
        match days.last_mut() {
            Some((last, sum)) if *last == day => {
                *sum = sum.saturating_add(charged);
            }
            _ => days.push((day, charged)),
        }
    }

    fn add_usage(&mut self, record: &Record, hold: Option<&OpenHold>) {
        let Some((hold, charged)) = hold.zip(record.charged()) else { return };
        let charge = record.charge();
        let borne = |of: fn(Charge) -> Nanousd| charge.map(of).unwrap_or_default();
        let reservation = &hold.reservation;
        let cell = UsageCell {
            account: reservation.account,
            time: hour(record.at()),
            key: reservation.key,
            model: Arc::clone(&reservation.model),
        };
        let total = UsageTotal {
            calls: 1,
            charged,
            owed: borne(|charge| charge.owed),
            written_off: borne(|charge| charge.written_off),
            usage: charge.map(|charge| charge.usage).unwrap_or_default(),
        };
        self.add_charge(record, hold);
        self.usage.entry(cell).or_default().add(&total);
    }

    fn add_entry(
        &mut self,
        account: AccountId,
        journaled: &JournaledRecord,
    ) -> Result<(), &'static str> {
        let chunks = self.entries.entry(account).or_default();
        if chunks.last().is_none_or(|chunk| chunk.bytes.len() >= CHUNK_BYTES) {
            let (seq, at) = (journaled.seq, journaled.record.at());
            let bytes = Vec::new();
            chunks.push(EntryChunk { first_seq: seq, last_seq: seq, last_at: at, bytes });
        }
        match chunks.last_mut() {
            Some(chunk) => {
                (chunk.last_seq, chunk.last_at) = (journaled.seq, journaled.record.at());
                tollgate_journal::encode(&mut chunk.bytes, journaled)
                    .map_err(|_| "the entry cannot be encoded")
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::key_spend::{KeySpend, SpendTotals};
    use crate::rules::spend::AccountSpend;
    use tollgate_money::price::UsageSource;
    use tollgate_types::ids::{KeyId, RequestId};

    const DAY_MS: u64 = 86_400_000;

    /// A call that was charged `amount` on this day, for tests.
    fn call(seq: Seq, day: u64, amount: i64) -> JournaledRecord {
        let (account, at) = (AccountId::from_number(1), UnixMs(day.saturating_mul(DAY_MS)));
        let charged = Nanousd::new(amount);
        let reservation = Arc::new(Reservation {
            account,
            key: KeyId::from_number(2),
            model: "m".into(),
            price: None,
            request: RequestId::from_number(3),
            amount: charged,
            floor: charged,
            at,
        });
        let record = Record::Posted {
            account,
            hold: HoldId::from_number(seq),
            charged,
            written_off: Nanousd::ZERO,
            usage: Usage::default(),
            source: UsageSource::Upstream,
            at,
        };
        JournaledRecord { seq, record, hold: Some(OpenHold { reservation, amount: charged }) }
    }

    /// Sums by window in sled equal the sums by call in memory, wherever the windows end, across
    /// days and months, and after the clock is set back.
    #[test]
    fn windows_add_up_to_what_keys_have_spent() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..500 {
            let (mut memory, mut sled) = (AccountSpend::default(), SpendTotals::default());
            let (mut window, mut day) = (Window::default(), 20_480_u64);
            for seq in 1..40 {
                if random.u8(..4) == 0 {
                    day = day.saturating_add(random.u64(..20));
                }
                let is_back = random.u8(..6) == 0;
                let charged = random.i64(0..100);
                let journaled = call(seq, day.saturating_sub(u64::from(is_back)), charged);
                memory.apply(&journaled.record, journaled.hold.as_ref());
                window.add(journaled).expect("allowed");
                if random.u8(..5) == 0 || seq == 39 {
                    for (day, charged) in
                        std::mem::take(&mut window).charges.into_values().flatten()
                    {
                        sled.add(day, charged);
                    }
                }
            }
            let spendings: Vec<(KeyId, KeySpend)> =
                memory.iter().map(|(key, spending)| (key, *spending)).collect();
            let [(_, spending)] = spendings.as_slice() else { panic!("{spendings:?}") };
            assert_eq!(spending.spent, sled);
        }
    }
}
