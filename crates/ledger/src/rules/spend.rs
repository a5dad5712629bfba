//! Spending limits of keys per day and month, and the amounts spent.
//!
//! Days and months are UTC's. What counts is when a call is settled, and until then its hold: a hold
//! is made, or made larger, if what the key has spent in the period and what its open holds could still
//! cost stay together within its limit. What a call costs beyond its hold is charged all the same, so
//! the sum may pass the limit by that.
#![deny(clippy::arithmetic_side_effects, clippy::float_arithmetic)]

use crate::records::id_map::IdMap;
use crate::records::key_limits::{KeyLimits, Period, SpendLimitStatus};
use crate::records::record::Record;
use crate::records::reservation::OpenHold;
use crate::rules::cap_shares::CapShares;
use crate::rules::key_spend::{KeySpend, RemainingLimit, Span, SpendTotals, begin, day};
use tollgate_money::money::Nanousd;
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::KeyId;

impl KeyLimits {
    /// Remaining amount of this key at a time, and the limit that bounds it; `None` without limits.
    /// The tighter limit decides; of two equal ones, the longer. In a fleet `shares` bounds it too.
    pub(crate) fn room(
        &self,
        spent: &SpendTotals,
        held: Nanousd,
        at: UnixMs,
        shares: Option<&CapShares>,
    ) -> Option<RemainingLimit> {
        let room = |period| {
            let limit = self.of(period)?;
            let span = Span::of(period, at);
            let capped = SpendLimitStatus {
                period,
                limit,
                spent: spent.in_span(span),
                held,
                resets_at: begin(span.ends_on()),
            };
            Some(match shares {
                None => RemainingLimit {
                    amount: limit
                        .saturating_sub(capped.spent.saturating_add(held))
                        .max(Nanousd::ZERO),
                    capped,
                    left: None,
                },
                Some(shares) => shares.room(span, capped),
            })
        };
        match (room(Period::Day), room(Period::Month)) {
            (Some(by_day), Some(by_month)) if by_day.amount < by_month.amount => Some(by_day),
            (by_day, by_month) => by_month.or(by_day),
        }
    }
}

/// The same for the keys of an account.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccountSpend {
    of: IdMap<KeyId, KeySpend>,
    /// Shares of each key's limits on this node. Not kept across restarts.
    shares: IdMap<KeyId, CapShares>,
}

impl AccountSpend {
    /// See [`KeyLimits::room`]; `is_shared` in a fleet.
    pub(crate) fn room(&self, key: KeyId, at: UnixMs, is_shared: bool) -> Option<RemainingLimit> {
        let KeySpend { limits, spent, held } = self.of.get(&key)?;
        let shares = is_shared.then(|| self.shares.get(&key).unwrap_or(&CapShares::NONE));
        limits.room(spent, *held, at, shares)
    }

    /// Limits and spending of a key, and this node's shares of its limits.
    pub(crate) fn shares(&mut self, key: KeyId) -> Option<(KeySpend, &mut CapShares)> {
        let spending = *self.of.get(&key)?;
        Some((spending, self.shares.entry(key).or_default()))
    }

    /// This node has nothing of a key's limits.
    pub(crate) fn forget_shares(&mut self, key: KeyId) {
        self.shares.remove(&key);
    }

    /// Applies a record; `hold` is the state of the hold that it extends or ends, before the record.
    pub(crate) fn apply(&mut self, record: &Record, hold: Option<&OpenHold>) {
        match (record, hold) {
            (Record::KeyLimited { key, limits, .. }, _) => self.restore_limits(*key, *limits),
            (Record::Reserved(reservation), _) => {
                self.restore_held(reservation.key, reservation.amount);
            }
            (Record::Extended { amount, .. }, Some(hold)) => {
                self.restore_held(hold.reservation.key, *amount);
            }
            (_, Some(hold)) => {
                let spending = self.of.entry(hold.reservation.key).or_default();
                spending.held = spending.held.saturating_sub(hold.amount);
                // The day of the settlement, not of the hold: a call over midnight counts where its cost
                // became known.
                if let Some((day, charged)) = charge(record, hold) {
                    spending.spent.add(day, charged);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn restore_limits(&mut self, key: KeyId, limits: KeyLimits) {
        self.of.entry(key).or_default().limits = limits;
    }

    pub(crate) fn restore_spent(&mut self, key: KeyId, spent: SpendTotals) {
        self.of.entry(key).or_default().spent = spent;
    }

    pub(crate) fn restore_held(&mut self, key: KeyId, amount: Nanousd) {
        let spending = self.of.entry(key).or_default();
        // The account's `held` has taken the same sum without overflow.
        spending.held = spending.held.saturating_add(amount);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (KeyId, &KeySpend)> {
        self.of.iter().map(|(key, spending)| (*key, spending))
    }
}

/// Charge at the end of a hold, debts included, and its day; `None` for no charge. A hold that
/// leaves a node with its task counts in full: the node does not learn the task's final cost.
pub(crate) fn charge(record: &Record, hold: &OpenHold) -> Option<(u32, Nanousd)> {
    match record {
        Record::HandedOver { at, .. } => Some((day(*at), hold.amount)),
        record => {
            let owed = record.charge().map_or(Nanousd::ZERO, |charge| charge.owed);
            let cost = record.charged()?.saturating_add(owed);
            Some((day(record.at()), cost)).filter(|_| !cost.is_zero())
        }
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
        let mut spent = SpendTotals::default();
        let room = |spent: &SpendTotals, time: &str| {
            let RemainingLimit { amount, capped, .. } =
                limits.room(spent, money(10), at(time), None).expect("limits");
            (amount.get(), capped.period, capped.resets_at.to_rfc3339())
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
    fn the_end_of_time_is_no_trouble() {
        let limits = KeyLimits { spend_per_month: Some(money(1)), ..KeyLimits::default() };
        let mut spent = SpendTotals::default();
        spent.add(u32::MAX, Nanousd::MAX);
        spent.add(u32::MAX, Nanousd::MAX);
        let room = limits.room(&spent, Nanousd::MAX, UnixMs(u64::MAX), None).expect("a limit");
        assert_eq!(room.amount, Nanousd::ZERO);
    }
}
