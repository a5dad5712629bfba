//! Classification of differences in quantities, and of amount differences that no quantities explain.

use std::collections::{BTreeMap, BTreeSet};

use tollgate_money::price::{Side, Unit};

use crate::amount::Femtousd;
use crate::day::Day;
use crate::report::{DifferenceClass, StatementKey};
use crate::statement::Measure;
use crate::totals::{MidnightShift, OwnSums, UnitSums};

/// The most days over which a difference may come back: providers count a call by its end, or by when
/// they have written it down, and not weeks later.
const LAG_DAYS_MAX: usize = 7;
/// Largest difference that counts as agreement: a micro-dollar.
pub(crate) const TOLERANCE: Femtousd = Femtousd::new(1_000_000_000);
/// The most by which the rounding of one call can have raised our amount: a nano-dollar.
const ROUNDING_PER_CALL: i128 = 1_000_000;

/// Quantities of both sides for one day, model and credential.
#[derive(Debug, Default)]
pub(crate) struct QuantityGroup {
    /// Measures in the provider's pages of the model; only these are compared.
    pub(crate) measures: BTreeSet<Measure>,
    pub(crate) theirs: BTreeMap<Measure, i128>,
    pub(crate) own: OwnSums,
    /// Our calls that ran past midnight.
    pub(crate) shift: MidnightShift,
    /// Provider's number of requests, if reported.
    pub(crate) calls: Option<i128>,
    /// True if the journal never used the model or the credential.
    pub(crate) is_foreign: bool,
    /// Differences found, by their measure.
    pub(crate) differences: BTreeMap<Measure, QuantityDifference>,
}

/// Excess of the provider's quantity over ours, and its class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuantityDifference {
    pub(crate) amount: i128,
    pub(crate) class: Option<DifferenceClass>,
}

/// Amounts of both sides for one day, model and credential.
#[derive(Debug, Default)]
pub(crate) struct AmountGroup {
    pub(crate) theirs: Femtousd,
    pub(crate) items: BTreeMap<String, Femtousd>,
    pub(crate) own: OwnSums,
    /// Our calls that ran past midnight.
    pub(crate) shift: MidnightShift,
    pub(crate) is_foreign: bool,
}

/// Find and classify the differences in groups of quantities, by the rules of [`reconcile`], in order.
///
/// [`reconcile`]: crate::reconcile
pub(crate) fn classify_quantities(groups: &mut BTreeMap<StatementKey, QuantityGroup>) {
    for group in groups.values_mut() {
        group.find_differences();
        group.classify_at_once();
    }
    // Over all groups of a model: a lag shows as two days with opposite signs. Only after what a day explains
    // by itself, so that a unit mix-up is not paired with another day's.
    for (key, measure) in lagging(groups) {
        let group = groups.get_mut(&key);
        if let Some(found) = group.and_then(|group| group.differences.get_mut(&measure)) {
            found.class = Some(DifferenceClass::Lag);
        }
    }
    for group in groups.values_mut() {
        group.classify_rest();
    }
}

impl QuantityGroup {
    fn find_differences(&mut self) {
        for measure in &self.measures {
            let amount = self.their_count(*measure).saturating_sub(self.own.total(*measure));
            if amount != 0 {
                self.differences.insert(*measure, QuantityDifference { amount, class: None });
            }
        }
        let calls = self.calls.map_or(0, |calls| calls.saturating_sub(self.own.calls));
        // An array of inputs that was sent in parts is one call of ours, and several requests.
        let is_in_parts = calls > 0 && self.own.calls > 0 && self.own.is_input_alone();
        if self.differences.is_empty() && calls != 0 && !is_in_parts {
            let difference = QuantityDifference { amount: calls, class: None };
            self.differences.insert(Measure::Calls, difference);
        }
    }

    /// Provider's count of a measure.
    pub(crate) fn their_count(&self, measure: Measure) -> i128 {
        let count = if measure == Measure::Calls { self.calls } else { None };
        count.or_else(|| self.theirs.get(&measure).copied()).unwrap_or_default()
    }

    /// Class of a difference in the number of requests only.
    fn calls_class(&self, amount: i128) -> DifferenceClass {
        if amount > 0 {
            DifferenceClass::Elsewhere
        } else if self.own.retried_calls.saturating_add(amount) >= 0 {
            DifferenceClass::Retry
        } else {
            DifferenceClass::Unknown
        }
    }

    /// Classify differences that the group explains exactly by itself, such as calls past midnight.
    fn classify_at_once(&mut self) {
        // A model or credential that the journal never had: nothing of ours can explain it.
        if self.is_foreign {
            self.set_all(|_| true, DifferenceClass::Elsewhere);
            return;
        }
        let is_token = |measure: Measure| measure.side() != Side::Made;
        // The same number of tokens under other names, such as cached for plain ones.
        if self.sum(is_token) == 0 {
            self.set_all(is_token, DifferenceClass::Unit);
        }
        for side in [Side::Input, Side::Output] {
            if self.sum(|measure| measure.side() == side) == 0 {
                self.set_all(|measure| measure.side() == side, DifferenceClass::Unit);
            }
        }
        for (measure, difference) in &mut self.differences {
            if difference.amount == self.shift.total(*measure) {
                difference.class.get_or_insert(DifferenceClass::Lag);
            }
        }
    }

    fn sum(&self, counts: impl Fn(Measure) -> bool) -> i128 {
        let counted = self.differences.iter().filter(|(measure, _)| counts(**measure));
        counted.fold(0, |sum, (_, difference)| sum.saturating_add(difference.amount))
    }

    fn set_all(&mut self, counts: impl Fn(Measure) -> bool, class: DifferenceClass) {
        let counted = self.differences.iter_mut().filter(|(measure, _)| counts(**measure));
        for (_, difference) in counted {
            difference.class = Some(class);
        }
    }

    fn classify_rest(&mut self) {
        let measures: Vec<Measure> = self.differences.keys().copied().collect();
        for measure in measures {
            let class = self.rest_class(measure);
            if let Some(difference) = self.differences.get_mut(&measure) {
                difference.class.get_or_insert(class);
            }
        }
    }

    /// True if the provider has more requests than ours. Ours include estimated answers and abandoned
    /// tries, which have no requests of their own there.
    pub(crate) fn has_more_calls(&self) -> bool {
        let begun = self.own.calls.saturating_add(self.shift.calls);
        self.calls.is_some_and(|calls| calls > self.own.calls.max(begun))
    }

    /// Class of a difference that is neither exact nor reversed later. Tokens of one side are summed:
    /// the cached part of an estimate is unknown.
    fn rest_class(&self, measure: Measure) -> DifferenceClass {
        if let Some(calls) = self.differences.get(&Measure::Calls) {
            return self.calls_class(calls.amount);
        }
        let side = measure.side();
        let is_peer = |other: Measure| match side {
            Side::Made => other == measure,
            Side::Input | Side::Output => other.side() == side,
        };
        let sum = |sums: &UnitSums| {
            let units = Unit::ALL.iter().map(|unit| Measure::Of(*unit));
            let counts = match measure {
                Measure::Of(_) => units.filter(|unit| is_peer(*unit)).map(|unit| sums.get(unit)),
                Measure::AllInput | Measure::AllOutput | Measure::Calls => {
                    return sums.get(measure);
                }
            };
            counts.fold(0_i128, i128::saturating_add)
        };
        let (retried, estimated) = (sum(&self.own.retried), sum(&self.own.estimated));
        let difference = self.sum(is_peer);
        // The provider's count must cover everything that its answers reported.
        let covers_reported = self
            .differences
            .keys()
            .copied()
            .filter(|other| is_peer(*other))
            .all(|other| self.their_count(other) >= self.own.reported.get(other));
        let is_more = self.differences.get(&measure).is_some_and(|one| one.amount > 0);
        if covers_reported && difference < 0 && retried.saturating_add(difference) >= 0 {
            DifferenceClass::Retry
        } else if is_more && self.has_more_calls() {
            DifferenceClass::Elsewhere
        } else if covers_reported && estimated > 0 {
            DifferenceClass::Tail
        } else {
            DifferenceClass::Unknown
        }
    }
}

/// Unclassified differences that the following days reverse.
fn lagging(groups: &BTreeMap<StatementKey, QuantityGroup>) -> Vec<(StatementKey, Measure)> {
    let mut series: BTreeMap<_, Vec<(Day, i128)>> = BTreeMap::new();
    for (key, group) in groups {
        for (measure, difference) in &group.differences {
            if difference.class.is_none() {
                let place = (key.model.clone(), key.credential.clone(), *measure);
                series.entry(place).or_default().push((key.day, difference.amount));
            }
        }
    }
    let mut found = Vec::new();
    for ((model, credential, measure), days) in series {
        for day in days_that_cancel(&days, |sum| sum == 0) {
            let (model, credential) = (model.clone(), credential.clone());
            found.push((StatementKey { day, model, credential }, measure));
        }
    }
    found
}

/// Days of runs of consecutive differences that sum to nothing. `days` are in order.
fn days_that_cancel(days: &[(Day, i128)], is_nothing: impl Fn(i128) -> bool) -> Vec<Day> {
    let mut found = Vec::new();
    let mut rest = days;
    while let Some(((first, amount), behind)) = rest.split_first() {
        let (mut sum, mut last) = (*amount, *first);
        let mut run = vec![*first];
        for (day, amount) in behind.iter().take(LAG_DAYS_MAX.saturating_sub(1)) {
            // A gap of a day means that the provider did not just book later.
            if *day != last.next() {
                break;
            }
            sum = sum.saturating_add(*amount);
            last = *day;
            run.push(*day);
            if is_nothing(sum) {
                break;
            }
        }
        // One day alone cannot cancel itself: a difference of zero is not listed.
        let is_run = run.len() > 1 && is_nothing(sum);
        let taken = if is_run { run.len() } else { 1 };
        if is_run {
            found.append(&mut run);
        }
        rest = rest.get(taken..).unwrap_or_default();
    }
    found
}

/// True if an amount difference is below the tolerance plus the rounding of this many calls.
pub(crate) fn is_agreement(difference: Femtousd, calls: i128) -> bool {
    let rounding = Femtousd::new(calls.saturating_mul(ROUNDING_PER_CALL));
    // Not symmetric: each of our charges is rounded up to a nano-dollar, so only ours may be larger.
    difference < TOLERANCE && Femtousd::ZERO.minus(difference) < TOLERANCE.plus(rounding)
}

impl AmountGroup {
    /// Excess of the provider's amount over ours.
    pub(crate) fn difference(&self) -> Femtousd {
        self.theirs.minus(self.own.cost)
    }

    /// True if both sides agree within the tolerance and the rounding of our calls.
    pub(crate) fn agrees(&self) -> bool {
        is_agreement(self.difference(), self.own.calls)
    }

    /// True if the difference equals the cost of our calls past midnight.
    pub(crate) fn is_shifted(&self) -> bool {
        let calls = self.own.calls.saturating_add(self.shift.calls);
        is_agreement(self.difference().minus(self.shift.cost), calls.max(self.own.calls))
    }

    /// Class of an amount difference without quantities: retries if they explain all of it, else foreign
    /// requests if the provider has more of them, else estimates if the provider's amount covers all
    /// other calls.
    pub(crate) fn class_alone(&self, has_more_calls: bool) -> DifferenceClass {
        let less = Femtousd::ZERO.minus(self.difference());
        let has = |cost: Femtousd| cost > Femtousd::ZERO;
        let uncertain = self.own.estimated_cost.plus(self.own.retried_cost);
        if has(self.own.retried_cost) && has(less) && less < self.own.retried_cost.plus(TOLERANCE) {
            DifferenceClass::Retry
        } else if has_more_calls && has(self.difference()) {
            DifferenceClass::Elsewhere
        } else if has(self.own.estimated_cost) && less < uncertain.plus(TOLERANCE) {
            DifferenceClass::Tail
        } else {
            DifferenceClass::Unknown
        }
    }
}

/// Keys of amounts that differ by calls past midnight, or are reversed by the following days.
pub(crate) fn lagging_amounts<'g>(
    differing: impl Iterator<Item = (&'g StatementKey, &'g AmountGroup)>,
) -> BTreeSet<StatementKey> {
    let mut found = BTreeSet::new();
    let mut series: BTreeMap<_, Vec<(Day, i128)>> = BTreeMap::new();
    for (key, group) in differing {
        let place = (key.model.clone(), key.credential.clone());
        if group.is_shifted() {
            found.insert(key.clone());
        } else {
            series.entry(place).or_default().push((key.day, group.difference().get()));
        }
    }
    let is_nothing = |sum: i128| Femtousd::new(sum).magnitude() < TOLERANCE;
    for ((model, credential), days) in series {
        for day in days_that_cancel(&days, is_nothing) {
            let (model, credential) = (model.clone(), credential.clone());
            found.insert(StatementKey { day, model, credential });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_days_cancel() {
        let day = |number| Day::from_number(number).expect("a day");
        let days = |pairs: &[(u32, i128)]| -> Vec<u32> {
            let days: Vec<_> = pairs.iter().map(|(number, sum)| (day(*number), *sum)).collect();
            let found = days_that_cancel(&days, |sum| sum == 0);
            pairs.iter().map(|(number, _)| *number).filter(|n| found.contains(&day(*n))).collect()
        };
        assert_eq!(days(&[(1, -5), (2, 5)]), [1, 2]);
        assert_eq!(days(&[(1, 9), (2, -5), (3, 2), (4, 3), (5, 1)]), [2, 3, 4]);
        assert_eq!(days(&[(1, -5), (3, 5)]), [0_u32; 0], "not neighbours");
        assert_eq!(days(&[(1, -5), (2, 4)]), [0_u32; 0], "not opposite");
        let long: Vec<_> = (1..=8).map(|n| (n, if n == 8 { 7 } else { -1 })).collect();
        assert_eq!(days(&long), [0_u32; 0], "longer than a week");
    }
}
