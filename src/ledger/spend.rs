//! What a key may spend a day and a month, and what it has spent.
//!
//! Days and months are UTC's. What counts is when a call is settled, and until then its hold: at any
//! moment, what a key has spent in the period and what its open holds could still cost stay together
//! within its limit.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use time::{Date, OffsetDateTime};

use crate::clock::{MS_PER_DAY, UnixMs};
use crate::ledger::KeyId;
use crate::ledger::record::{OpenHold, Record};
use crate::limits::Rates;
use crate::money::Nanousd;

/// What one key may use; `None` where nothing is said.
///
/// It stands in the journal as it is here: fields are never added, changed or moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyLimits {
    /// Limits in the place of those that the configuration has for every key.
    pub rates: Rates,
    /// The most that is charged on a day.
    pub spend_per_day: Option<Nanousd>,
    /// The most that is charged in a calendar month.
    pub spend_per_month: Option<Nanousd>,
}

/// How long a limit of spending runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// From midnight to midnight, UTC.
    Day,
    /// From the first of a month to the first of the next, UTC.
    Month,
}

/// A limit of spending that would be passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capped {
    /// How long it runs.
    pub period: Period,
    /// The limit.
    pub limit: Nanousd,
    /// What was spent of it.
    pub spent: Nanousd,
    /// What the key's open holds cover.
    pub held: Nanousd,
    /// When the next period begins.
    pub resets_at: UnixMs,
}

/// What a key has spent on the last day, and in the last month, on which it was charged. Earlier ones
/// are in the usage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Spent {
    day: u32,
    on_day: Nanousd,
    /// Months since the year 0.
    month: u32,
    in_month: Nanousd,
}

/// The day of `at`, counted from 1970.
pub(super) fn day(at: UnixMs) -> u32 {
    u32::try_from(at.0.div_euclid(MS_PER_DAY)).unwrap_or(u32::MAX)
}

fn date(day: u32) -> Date {
    let seconds = i64::from(day).saturating_mul(86_400);
    OffsetDateTime::from_unix_timestamp(seconds).map_or(Date::MAX, OffsetDateTime::date)
}

fn month(day: u32) -> u32 {
    let date = date(day);
    let year = u32::try_from(date.year()).unwrap_or(0);
    year.saturating_mul(12).saturating_add(u32::from(u8::from(date.month()))).saturating_sub(1)
}

/// The first day of the month behind the one that `day` is in.
fn next_month(day: u32) -> u32 {
    let date = date(day);
    let left = date.month().length(date.year()).saturating_sub(date.day());
    day.saturating_add(u32::from(left)).saturating_add(1)
}

fn begin(day: u32) -> UnixMs {
    UnixMs(u64::from(day).saturating_mul(MS_PER_DAY))
}

impl Spent {
    /// Adds a charge. One from before the last day, by a clock that was set back, counts for the last:
    /// no limit is passed for it.
    pub(super) fn add(&mut self, day: u32, charged: Nanousd) {
        let month = month(day);
        if day > self.day {
            (self.day, self.on_day) = (day, Nanousd::ZERO);
        }
        if month > self.month {
            (self.month, self.in_month) = (month, Nanousd::ZERO);
        }
        let sum = |spent: Nanousd| spent.checked_add(charged).unwrap_or(Nanousd::MAX);
        self.on_day = sum(self.on_day);
        self.in_month = sum(self.in_month);
    }

    fn on(&self, day: u32) -> Nanousd {
        if self.day >= day { self.on_day } else { Nanousd::ZERO }
    }

    fn within(&self, month: u32) -> Nanousd {
        if self.month >= month { self.in_month } else { Nanousd::ZERO }
    }
}

impl KeyLimits {
    /// What this key may still hold at a moment, and the limit that says so; `None` without limits.
    /// Of two limits the tighter one, and of two as tight the one that lasts longer.
    pub(super) fn room(
        &self,
        spent: &Spent,
        held: Nanousd,
        at: UnixMs,
    ) -> Option<(Nanousd, Capped)> {
        let day = day(at);
        let room = |limit: Option<Nanousd>, period, spent: Nanousd, resets_on| {
            let limit = limit?;
            let used = spent.checked_add(held).unwrap_or(Nanousd::MAX);
            let resets_at = begin(resets_on);
            Some((limit.saturating_sub(used), Capped { period, limit, spent, held, resets_at }))
        };
        let by_day = room(self.spend_per_day, Period::Day, spent.on(day), day.saturating_add(1));
        let by_month =
            room(self.spend_per_month, Period::Month, spent.within(month(day)), next_month(day));
        match (by_day, by_month) {
            (Some(by_day), Some(by_month)) if by_day.0 < by_month.0 => Some(by_day),
            (by_day, by_month) => by_month.or(by_day),
        }
    }

    /// Whether a limit of spending is below zero, which no amount can be.
    pub(super) fn are_sound(&self) -> bool {
        let limits = [self.spend_per_day, self.spend_per_month];
        limits.into_iter().flatten().all(|limit| !limit.is_negative())
    }
}

/// What one key may use and spends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spending {
    pub(super) limits: KeyLimits,
    pub(super) spent: Spent,
    /// What the key's open holds cover: their sum.
    pub(super) held: Nanousd,
}

/// The same for the keys of an account.
#[derive(Clone, Debug, Default)]
pub(super) struct Spendings(HashMap<KeyId, Spending>);

impl Spendings {
    /// See [`KeyLimits::room`].
    pub(super) fn room(&self, key: KeyId, at: UnixMs) -> Option<(Nanousd, Capped)> {
        let Spending { limits, spent, held } = self.0.get(&key)?;
        limits.room(spent, *held, at)
    }

    /// Takes a record, where `hold` is the hold that it extends or ends, as it stood before.
    pub(super) fn apply(&mut self, record: &Record, hold: Option<&OpenHold>) {
        match (record, hold) {
            (Record::KeyLimited { key, limits, .. }, _) => self.restore_limits(*key, *limits),
            (Record::Reserved(reservation), _) => {
                self.restore_held(reservation.key, reservation.amount);
            }
            (Record::Extended { amount, .. }, Some(hold)) => {
                self.restore_held(hold.reservation.key, *amount);
            }
            (_, Some(hold)) => {
                let spending = self.0.entry(hold.reservation.key).or_default();
                spending.held = spending.held.saturating_sub(hold.amount);
                if let Some((day, charged)) = charge(record) {
                    spending.spent.add(day, charged);
                }
            }
            _ => {}
        }
    }

    pub(super) fn restore_limits(&mut self, key: KeyId, limits: KeyLimits) {
        self.0.entry(key).or_default().limits = limits;
    }

    pub(super) fn restore_spent(&mut self, key: KeyId, spent: Spent) {
        self.0.entry(key).or_default().spent = spent;
    }

    pub(super) fn restore_held(&mut self, key: KeyId, amount: Nanousd) {
        let spending = self.0.entry(key).or_default();
        // The account's `held` has taken the same sum without overflow.
        spending.held = spending.held.checked_add(amount).unwrap_or(Nanousd::MAX);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (KeyId, &Spending)> {
        self.0.iter().map(|(key, spending)| (*key, spending))
    }
}

/// What the end of a hold charges, and on which day; `None` for nothing.
pub(super) fn charge(record: &Record) -> Option<(u32, Nanousd)> {
    match record {
        Record::Posted { charged, at, .. } | Record::Recovered { charged, at, .. } => {
            Some((day(*at), *charged)).filter(|_| !charged.is_zero())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> UnixMs {
        UnixMs::parse_rfc3339(text).expect("a time")
    }

    fn money(nanousd: i64) -> Nanousd {
        Nanousd::new(nanousd)
    }

    #[test]
    fn days_and_months_begin_at_midnight_utc() {
        let limits = KeyLimits {
            spend_per_day: Some(money(100)),
            spend_per_month: Some(money(150)),
            ..KeyLimits::default()
        };
        let mut spent = Spent::default();
        let room = |spent: &Spent, time: &str| {
            let (room, capped) = limits.room(spent, money(10), at(time)).expect("limits");
            (room.get(), capped.period, capped.resets_at.to_rfc3339())
        };
        let last = "2028-02-28T23:59:59.999Z";
        let next_day = "2028-02-29T00:00:00Z";
        assert_eq!(room(&spent, last), (90, Period::Day, "2028-02-29T00:00:00Z".to_owned()));
        spent.add(day(at(last)), money(80));
        assert_eq!(room(&spent, last).0, 10);
        let month_end = "2028-03-01T00:00:00Z".to_owned();
        assert_eq!(room(&spent, next_day), (60, Period::Month, month_end));
        spent.add(day(at(next_day)), money(5));
        assert_eq!(room(&spent, next_day).0, 55);
        let march = "2028-03-01T00:00:00Z";
        assert_eq!(room(&spent, march), (90, Period::Day, "2028-03-02T00:00:00Z".to_owned()));
        assert_eq!(room(&spent, "2028-12-31T12:00:00Z").1, Period::Day);
    }

    #[test]
    fn a_clock_that_is_set_back_gives_no_second_day() {
        let mut spent = Spent::default();
        spent.add(10, money(7));
        spent.add(9, money(5));
        assert_eq!((spent.on(10), spent.on(9), spent.on(11)), (money(12), money(12), money(0)));
    }

    #[test]
    fn the_end_of_time_is_no_trouble() {
        let limits = KeyLimits { spend_per_month: Some(money(1)), ..KeyLimits::default() };
        let mut spent = Spent::default();
        spent.add(u32::MAX, Nanousd::MAX);
        spent.add(u32::MAX, Nanousd::MAX);
        let (room, _) = limits.room(&spent, Nanousd::MAX, UnixMs(u64::MAX)).expect("a limit");
        assert_eq!(room, Nanousd::ZERO);
    }
}
