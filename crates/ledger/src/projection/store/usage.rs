//! Usage, summed by hour and by day: of accounts by key and model, and of the whole gateway by model.
//! So a chart reads one row for each of its points, whatever was used between them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::{Batch, SPENT, Store, StoreError, key, put};
use crate::projection::grain::Grain;
use crate::projection::window::{UsageCell, UsageTotal, Window};
use crate::rules::key_spend::SpendTotals;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, KeyId};

const BY_HOUR: u8 = b'u';
const BY_DAY: u8 = b'D';
const OF_ALL_BY_HOUR: u8 = b'H';
const OF_ALL_BY_DAY: u8 = b'Y';
/// Prefixes of all usage rows.
pub(super) const PREFIXES: [u8; 4] = [BY_HOUR, BY_DAY, OF_ALL_BY_HOUR, OF_ALL_BY_DAY];

const HOURS_PER_DAY: u32 = 24;

/// Usage of the whole gateway: the number of the hour or day, the model, and its usage.
pub(crate) type GatewayUsage = (u32, Arc<str>, UsageTotal);

impl Store {
    /// Adds the usage of a window to all rows that it belongs to.
    pub(super) fn put_usage(&self, batch: &mut Batch, window: &Window) -> Result<(), StoreError> {
        let mut rows: HashMap<Vec<u8>, UsageTotal> = HashMap::new();
        for (cell, total) in &window.usage {
            for row in rows_of(cell) {
                rows.entry(row).or_default().add(total);
            }
        }
        for (row, more) in rows {
            let mut sum: UsageTotal = self.value(&row)?.unwrap_or_default();
            sum.add(&more);
            put(batch, row, &sum)?;
        }
        Ok(())
    }

    /// The usage of an account in the hours or days of `times`, by that, key and model.
    pub(crate) fn usage(
        &self,
        account: AccountId,
        grain: Grain,
        times: Range<u32>,
    ) -> Result<Vec<(UsageCell, UsageTotal)>, StoreError> {
        let account = account.number().to_be_bytes();
        let mut found = Vec::new();
        for RowRange { by_day, times, hours } in self.stretches(grain, times)? {
            let prefix = if by_day { BY_DAY } else { BY_HOUR };
            let bound = |time: u32| key(prefix, &[&account, &time.to_be_bytes()]);
            for row in self.db.range(bound(times.start)..bound(times.end)) {
                let (key, value) = row?;
                let mut cell = read_key(&key).ok_or_else(unreadable)?;
                cell.time = cell.time.saturating_mul(hours);
                found.push((cell, postcard::from_bytes(&value)?));
            }
        }
        Ok(found)
    }

    /// The same of all accounts together, by model.
    pub(crate) fn usage_of_all(
        &self,
        grain: Grain,
        times: Range<u32>,
    ) -> Result<Vec<GatewayUsage>, StoreError> {
        let mut found = Vec::new();
        for RowRange { by_day, times, hours } in self.stretches(grain, times)? {
            let prefix = if by_day { OF_ALL_BY_DAY } else { OF_ALL_BY_HOUR };
            let bound = |time: u32| key(prefix, &[&time.to_be_bytes()]);
            for row in self.db.range(bound(times.start)..bound(times.end)) {
                let (key, value) = row?;
                let (time, model) = read_key_of_all(&key).ok_or_else(unreadable)?;
                found.push((time.saturating_mul(hours), model, postcard::from_bytes(&value)?));
            }
        }
        Ok(found)
    }

    /// The rows that tell of `times`. Where hours are not kept any more, the row of a day stands at its
    /// first hour, so that stretches of time that follow each other still add up.
    fn stretches(&self, grain: Grain, times: Range<u32>) -> Result<Vec<RowRange>, StoreError> {
        if grain == Grain::Day {
            return Ok(vec![RowRange { by_day: true, times, hours: 1 }]);
        }
        let from = self.hours_from()?;
        let day = |hour: u32| hour.div_ceil(HOURS_PER_DAY);
        let days = day(times.start)..day(times.end.min(from));
        let hours = times.start.max(from)..times.end;
        let by_day = RowRange { by_day: true, times: days, hours: HOURS_PER_DAY };
        let by_hour = RowRange { by_day: false, times: hours, hours: 1 };
        let mut stretches = vec![by_day, by_hour];
        stretches.retain(|stretch| stretch.times.start < stretch.times.end);
        Ok(stretches)
    }

    /// Time of each key's last charge. Unused keys are absent.
    pub(crate) fn keys_last_used(
        &self,
        account: AccountId,
    ) -> Result<HashMap<KeyId, UnixMs>, StoreError> {
        let rows = self.db.scan_prefix(key(SPENT, &[&account.number().to_be_bytes()]));
        let read = |row: sled::Result<(sled::IVec, sled::IVec)>| {
            let row: (AccountId, KeyId, SpendTotals, UnixMs) = postcard::from_bytes(&row?.1)?;
            Ok((row.1, row.3))
        };
        rows.map(read).collect()
    }
}

/// Rows by the hour or by the day.
struct RowRange {
    by_day: bool,
    /// Of these hours or days.
    times: Range<u32>,
    /// Length of a period in hours.
    hours: u32,
}

/// The hour of a row of usage by the hour, counted from 1970.
pub(super) fn hour_of(key: &[u8]) -> Option<u32> {
    let from = match *key.first()? {
        BY_HOUR => 1 + size_of::<u64>(),
        OF_ALL_BY_HOUR => 1,
        _ => return None,
    };
    Some(u32::from_be_bytes(*key.get(from..)?.first_chunk()?))
}

fn unreadable() -> StoreError {
    StoreError::new("a usage row's key cannot be read".to_owned())
}

/// The keys of the rows that a cell counts in. A cell is of one hour.
fn rows_of(cell: &UsageCell) -> [Vec<u8>; 4] {
    let (account, id) = (cell.account.number().to_be_bytes(), cell.key.number().to_be_bytes());
    let (hour, day) = (cell.time.to_be_bytes(), (cell.time / HOURS_PER_DAY).to_be_bytes());
    let model = cell.model.as_bytes();
    [
        key(BY_HOUR, &[&account, &hour, &id, model]),
        key(BY_DAY, &[&account, &day, &id, model]),
        key(OF_ALL_BY_HOUR, &[&hour, model]),
        key(OF_ALL_BY_DAY, &[&day, model]),
    ]
}

fn read_key(key: &[u8]) -> Option<UsageCell> {
    let (account, rest) = key.get(1..)?.split_first_chunk()?;
    let (time, rest) = rest.split_first_chunk()?;
    let (key, model) = rest.split_first_chunk()?;
    Some(UsageCell {
        account: AccountId::from_number(u64::from_be_bytes(*account)),
        time: u32::from_be_bytes(*time),
        key: KeyId::from_number(u64::from_be_bytes(*key)),
        model: std::str::from_utf8(model).ok()?.into(),
    })
}

fn read_key_of_all(key: &[u8]) -> Option<(u32, Arc<str>)> {
    let (time, model) = key.get(1..)?.split_first_chunk()?;
    Some((u32::from_be_bytes(*time), std::str::from_utf8(model).ok()?.into()))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashSet};

    use super::*;
    use tollgate_money::money::Nanousd;
    use tollgate_money::price::Usage;

    /// Wherever windows end, the rows of days are the sums of those of their hours, and the rows of
    /// all are the sums over accounts and keys.
    #[test]
    fn rows_of_days_and_of_all_add_up_to_the_same() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(&dir.path().join("sled")).expect("opens");
        let mut calls: Vec<UsageCell> = Vec::new();
        let mut window = Window::default();
        for _ in 0..2_000 {
            let cell = UsageCell {
                account: AccountId::from_number(random.u64(1..4)),
                time: 480_000 + random.u32(..24 * 5),
                key: KeyId::from_number(random.u64(1..3)),
                model: ["a", "b", "c"][random.usize(..3)].into(),
            };
            let usage = Usage { output_tokens: 7, ..Usage::ZERO };
            let charged = Nanousd::new(3);
            let total = UsageTotal { calls: 1, charged, usage, ..UsageTotal::default() };
            window.usage.entry(cell.clone()).or_default().add(&total);
            calls.push(cell);
            if random.u8(..20) == 0 {
                write(&store, &std::mem::take(&mut window));
            }
        }
        write(&store, &window);
        let expected = |grain: Grain| {
            let mut sums: BTreeMap<_, u64> = BTreeMap::new();
            for cell in &calls {
                let time = if grain == Grain::Day { cell.time / 24 } else { cell.time };
                *sums.entry((cell.account, time, cell.key, cell.model.clone())).or_default() += 1;
            }
            sums
        };
        for grain in [Grain::Hour, Grain::Day] {
            let mut found = BTreeMap::new();
            for account in (1..5).map(AccountId::from_number) {
                for (cell, total) in store.usage(account, grain, 0..u32::MAX).expect("rows") {
                    assert_eq!((cell.account, total.charged.get() % 3), (account, 0));
                    assert_eq!(total.usage.output_tokens, total.calls * 7);
                    found.insert((cell.account, cell.time, cell.key, cell.model), total.calls);
                }
            }
            let sums = expected(grain);
            assert_eq!(found, sums);
            let mut of_all: BTreeMap<_, u64> = BTreeMap::new();
            for ((_, time, _, model), calls) in sums {
                *of_all.entry((time, model)).or_default() += calls;
            }
            let all = store.usage_of_all(grain, 0..u32::MAX).expect("rows");
            let all: BTreeMap<_, _> =
                all.into_iter().map(|(time, model, sum)| ((time, model), sum.calls)).collect();
            assert_eq!(all, of_all);
            let days: HashSet<u32> = all.keys().map(|(time, _)| *time).collect();
            let some = store.usage_of_all(grain, 20_001..480_050).expect("rows");
            assert!(some.iter().all(|(time, ..)| days.contains(time) && *time < 480_050));
            assert!(some.len() < all.len() || grain == Grain::Day, "a part of them");
        }
    }

    fn write(store: &Store, window: &Window) {
        let mut batch = Batch::default();
        store.put_usage(&mut batch, window).expect("written");
        store.write(batch).expect("applied");
    }
}
