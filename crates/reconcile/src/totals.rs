//! Sums of our lines that are compared with one line of a statement.

use tollgate_money::price::{Side, Unit, Usage};

use crate::amount::Femtousd;
use crate::own::{OwnKind, OwnLine};
use crate::statement::Measure;

/// Counts of all units, wide enough for sums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnitSums([i128; Unit::COUNT]);

/// Sums of our lines for one day, model and credential.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnSums {
    /// Usage that upstreams reported.
    pub(crate) reported: UnitSums,
    /// Estimated usage of answers whose end the gateway did not see.
    pub(crate) estimated: UnitSums,
    /// Upper bound of the usage of abandoned tries.
    pub(crate) retried: UnitSums,
    /// Cost of all lines together.
    pub(crate) cost: Femtousd,
    /// Cost of estimated answers.
    pub(crate) estimated_cost: Femtousd,
    /// Cost of abandoned tries.
    pub(crate) retried_cost: Femtousd,
    /// Largest further cost of estimated answers.
    pub(crate) loss: Femtousd,
    /// Number of calls and tries.
    pub(crate) calls: i128,
    /// Number of abandoned tries.
    pub(crate) retried_calls: i128,
}

/// Increase of our side of a day if calls counted on the day they began: calls that began then and
/// settled later, minus calls that settled then and began earlier.
#[derive(Clone, Debug, Default)]
pub(crate) struct MidnightShift {
    units: UnitSums,
    pub(crate) cost: Femtousd,
    pub(crate) calls: i128,
}

impl MidnightShift {
    /// Count of a measure.
    pub(crate) fn total(&self, measure: Measure) -> i128 {
        if measure == Measure::Calls { self.calls } else { self.units.get(measure) }
    }

    /// Adds a line to the day on which it began, or takes it from the day on which it was settled.
    pub(crate) fn add_or_take(&mut self, line: &OwnLine, is_settled: bool) {
        let (cost, calls) = (Femtousd::from(line.cost), i128::from(line.calls));
        if is_settled {
            self.units.take(&line.usage);
            self.cost = self.cost.minus(cost);
            self.calls = self.calls.saturating_sub(calls);
        } else {
            self.units.add(&line.usage);
            self.cost = self.cost.plus(cost);
            self.calls = self.calls.saturating_add(calls);
        }
    }
}

impl UnitSums {
    fn take(&mut self, usage: &Usage) {
        for (sum, count) in self.0.iter_mut().zip(usage.counts()) {
            *sum = sum.saturating_sub(i128::from(count));
        }
    }

    fn add(&mut self, usage: &Usage) {
        for (sum, count) in self.0.iter_mut().zip(usage.counts()) {
            *sum = sum.saturating_add(i128::from(count));
        }
    }

    pub(crate) fn get(&self, measure: Measure) -> i128 {
        let units = Unit::ALL.iter().zip(self.0).filter(|(unit, _)| measure.counts(**unit));
        units.fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// The units of which there are some.
    pub(crate) fn units(&self) -> impl Iterator<Item = Unit> {
        Unit::ALL.iter().copied().zip(self.0).filter(|(_, sum)| *sum > 0).map(|(unit, _)| unit)
    }
}

/// Units that providers bill by day, not by model.
const TOOLS: [Unit; 4] =
    [Unit::WebSearches, Unit::FileSearches, Unit::ContainerSessions, Unit::ToolCalls];

impl OwnSums {
    pub(crate) fn add(&mut self, line: &OwnLine) {
        let (cost, calls) = (Femtousd::from(line.cost), i128::from(line.calls));
        self.cost = self.cost.plus(cost);
        self.calls = self.calls.saturating_add(calls);
        match (line.kind, line.is_estimated) {
            // Apart: whether the provider bills an abandoned try is not known, and often the cause of a
            // difference.
            (OwnKind::Retry, _) => {
                self.retried.add(&line.usage);
                self.retried_calls = self.retried_calls.saturating_add(calls);
                self.retried_cost = self.retried_cost.plus(cost);
            }
            (OwnKind::Answer | OwnKind::Unpaid, true) => {
                self.estimated.add(&line.usage);
                self.estimated_cost = self.estimated_cost.plus(cost);
                self.loss = self.loss.plus(line.loss.into());
            }
            (OwnKind::Answer | OwnKind::Unpaid, false) => {
                self.reported.add(&line.usage);
            }
        }
    }

    /// Journal's count of a measure.
    pub(crate) fn total(&self, measure: Measure) -> i128 {
        if measure == Measure::Calls {
            return self.calls;
        }
        self.parts().iter().fold(0_i128, |sum, part| sum.saturating_add(part.get(measure)))
    }

    fn parts(&self) -> [&UnitSums; 3] {
        [&self.reported, &self.estimated, &self.retried]
    }

    /// Units with a non-zero count.
    fn units(&self) -> impl Iterator<Item = Unit> {
        self.parts().into_iter().flat_map(UnitSums::units)
    }

    /// True if it includes tools whose fees are part of the cost.
    pub(crate) fn has_tools(&self) -> bool {
        self.units().any(|unit| TOOLS.contains(&unit))
    }

    /// True if there is input only, as with embeddings.
    pub(crate) fn is_input_alone(&self) -> bool {
        self.units().all(|unit| unit.info().side == Side::Input)
    }

    /// True if it has units that none of these measures counts.
    pub(crate) fn has_more_than<'m>(
        &self,
        measures: impl IntoIterator<Item = &'m Measure> + Clone,
    ) -> bool {
        self.units().any(|unit| !measures.clone().into_iter().any(|measure| measure.counts(unit)))
    }
}
