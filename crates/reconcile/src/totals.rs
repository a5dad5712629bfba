//! Sums of our lines that are compared with one line of a statement.

use tollgate_money::price::{Side, Unit, Usage};

use crate::amount::Femtousd;
use crate::own::{OwnKind, OwnLine};
use crate::statement::Measure;

/// Counts of all units, wide enough for sums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UnitSums([i128; Unit::COUNT]);

/// What our lines of one day, model and credential come to.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnSums {
    /// What the upstream itself has said that answers used.
    pub(crate) known: UnitSums,
    /// What was estimated of answers whose end the gateway did not see.
    pub(crate) estimated: UnitSums,
    /// The most that tries used which were followed by others.
    pub(crate) retried: UnitSums,
    /// What all of it cost.
    pub(crate) cost: Femtousd,
    /// What of it estimated answers cost.
    pub(crate) estimated_cost: Femtousd,
    /// What of it tries cost that were followed by others.
    pub(crate) retried_cost: Femtousd,
    /// The most that estimated answers can have cost beyond that.
    pub(crate) loss: Femtousd,
    /// How many calls and tries they are.
    pub(crate) calls: i128,
    /// How many of them are tries that were followed by others.
    pub(crate) retried_calls: i128,
}

/// By how much our side of a day were more, if calls counted on the day on which they began: what
/// began then and was settled later, less what was settled then and began earlier.
#[derive(Clone, Debug, Default)]
pub(crate) struct MidnightShift {
    units: UnitSums,
    pub(crate) cost: Femtousd,
    pub(crate) calls: i128,
}

impl MidnightShift {
    /// How much of a measure it is.
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

/// What providers bill by the day and not by the model.
const TOOLS: [Unit; 4] =
    [Unit::WebSearches, Unit::FileSearches, Unit::ContainerSessions, Unit::ToolCalls];

impl OwnSums {
    pub(crate) fn add(&mut self, line: &OwnLine) {
        let (cost, calls) = (Femtousd::from(line.cost), i128::from(line.calls));
        self.cost = self.cost.plus(cost);
        self.calls = self.calls.saturating_add(calls);
        match (line.kind, line.is_estimated) {
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
                self.known.add(&line.usage);
            }
        }
    }

    /// How much of a measure the journal has.
    pub(crate) fn total(&self, measure: Measure) -> i128 {
        if measure == Measure::Calls {
            return self.calls;
        }
        self.parts().iter().fold(0_i128, |sum, part| sum.saturating_add(part.get(measure)))
    }

    fn parts(&self) -> [&UnitSums; 3] {
        [&self.known, &self.estimated, &self.retried]
    }

    /// The units that were used.
    fn units(&self) -> impl Iterator<Item = Unit> {
        self.parts().into_iter().flat_map(UnitSums::units)
    }

    /// Whether tools were used whose fees are a part of what it cost.
    pub(crate) fn has_tools(&self) -> bool {
        self.units().any(|unit| TOOLS.contains(&unit))
    }

    /// Whether all that was used went in, as it is with embeddings.
    pub(crate) fn is_input_alone(&self) -> bool {
        self.units().all(|unit| unit.info().side == Side::Input)
    }

    /// Whether it has units of which none of these measures counts anything.
    pub(crate) fn has_more_than<'m>(
        &self,
        measures: impl IntoIterator<Item = &'m Measure> + Clone,
    ) -> bool {
        self.units().any(|unit| !measures.clone().into_iter().any(|measure| measure.counts(unit)))
    }
}
