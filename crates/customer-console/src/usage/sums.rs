//! Usage summed up in the ways in which it is shown.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_ledger::{KeyId, UsageRow, UsageTotal};
use tollgate_types::clock::UnixMs;

/// The sums of a page.
#[derive(Debug, Default)]
pub(super) struct UsageSums {
    pub(super) total: UsageTotal,
    pub(super) days: BTreeMap<UnixMs, UsageTotal>,
    /// The sums of each model, the dearest first.
    pub(super) models: Vec<(Arc<str>, UsageTotal)>,
    /// The sums of each key, the dearest first.
    pub(super) keys: Vec<(KeyId, UsageTotal)>,
    /// Sums by model and day.
    pub(super) models_by_day: BTreeMap<Arc<str>, BTreeMap<UnixMs, UsageTotal>>,
}

impl UsageSums {
    /// Sums over all rows of `used`.
    pub(super) fn add_up(used: &[UsageRow]) -> Self {
        let mut sums = Self::default();
        let mut models: BTreeMap<Arc<str>, UsageTotal> = BTreeMap::new();
        let mut keys: BTreeMap<KeyId, UsageTotal> = BTreeMap::new();
        for UsageRow { begin: day, model, key, total } in used {
            sums.total.add(total);
            sums.days.entry(*day).or_default().add(total);
            models.entry(Arc::clone(model)).or_default().add(total);
            keys.entry(*key).or_default().add(total);
            let days = sums.models_by_day.entry(Arc::clone(model)).or_default();
            days.entry(*day).or_default().add(total);
        }
        sums.models = dearest_first(models);
        sums.keys = dearest_first(keys);
        sums
    }
}

/// Sorts sums by cost, then by the number of calls.
fn dearest_first<T: Ord>(sums: BTreeMap<T, UsageTotal>) -> Vec<(T, UsageTotal)> {
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, total)| std::cmp::Reverse((total.charged, total.calls)));
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_money::money::Nanousd;
    use tollgate_money::price::Usage;

    fn used(day: u64, model: &str, key: u64, nanousd: i64) -> UsageRow {
        let usage = Usage { input_tokens: 10, ..Usage::ZERO };
        let charged = Nanousd::new(nanousd);
        let total = UsageTotal { calls: 1, charged, usage, ..UsageTotal::default() };
        let day = UnixMs(day * 86_400_000);
        UsageRow { begin: day, key: KeyId::from_number(key), model: model.into(), total }
    }

    #[test]
    fn every_way_of_summing_gives_the_same_total() {
        let used =
            [used(0, "a", 1, 12), used(1, "a", 1, 11), used(1, "b", 1, 100), used(1, "a", 2, 13)];
        let sums = UsageSums::add_up(&used);
        let charged = |totals: Vec<&UsageTotal>| -> Vec<i64> {
            totals.iter().map(|total| total.charged.get()).collect()
        };
        assert_eq!((sums.total.charged.get(), sums.total.calls), (136, 4));
        assert_eq!(charged(sums.days.values().collect()), [12, 124]);
        assert_eq!(charged(sums.models.iter().map(|(_, total)| total).collect()), [100, 36]);
        assert_eq!(charged(sums.keys.iter().map(|(_, total)| total).collect()), [123, 13]);
        let by_model = sums.models_by_day.values().flatten();
        assert_eq!(by_model.map(|(_, total)| total.charged.get()).sum::<i64>(), 136);
        assert_eq!(sums.total.usage.input_tokens, 40);
    }
}
