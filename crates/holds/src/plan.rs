//! Means that make a call fit, in the operator's order.

use tollgate_money::money::Nanousd;
use tollgate_options::holds::{HoldRules, Means};

use crate::funds::Allowance;

/// Largest factor by which counting a prompt reduces its bound: English has four to six bytes a
/// token, and long runs of one letter some more.
const COUNT_GAIN_MAX: i64 = 16;

/// Amount to hold for a call, for each way of serving it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Maximum cost of the unchanged call.
    pub whole: Nanousd,
    /// Maximum cost at the lowest output limit to which the call may be clamped; `None` if it may not be.
    pub at_floor: Option<Nanousd>,
    /// Its input and a first slice of its output; `None` where not all that it costs is shown.
    pub slice: Option<Nanousd>,
}

impl Needs {
    /// The least with which the call can be served by the means that `rules` allow.
    #[must_use]
    pub fn least(&self, rules: &HoldRules) -> Nanousd {
        let clamped = self.at_floor.filter(|_| rules.allows(Means::Clamp));
        let rolling = self.slice.filter(|_| rules.allows(Means::Rolling));
        [clamped, rolling].into_iter().flatten().fold(self.whole, Nanousd::min)
    }
}

/// Next step for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanStep {
    /// Hold the maximum cost.
    HoldWhole,
    /// Ask the provider how many tokens its prompt has, and come back with smaller needs.
    Count,
    /// Lower its output limit to the most that costs no more than this, and hold that.
    Clamp(Nanousd),
    /// Hold a slice, and extend it while the answer streams.
    Roll,
    /// Wait until there is more, where the rules allow it, and else refuse.
    Wait,
    /// Refuse: the account has too little even with nothing in flight.
    Refuse,
}

/// Progress of a call through the means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeansProgress {
    is_counted: bool,
    is_unclampable: bool,
}

impl MeansProgress {
    /// The plan of a call that has waited: its prompt is the same, and so is its count.
    #[must_use]
    pub fn anew(self) -> Self {
        Self { is_unclampable: false, ..self }
    }

    /// Go on without clamping.
    pub fn skip_clamp(&mut self) {
        self.is_unclampable = true;
    }

    /// The next step for a call with these needs. `own` is what it may take of the account's own money,
    /// and `all` what it may with the credit line.
    ///
    /// A call fits where it costs no more than its share at most. One that no means makes fit takes what
    /// is available, as if it were alone: to refuse it would help nobody.
    pub fn next(
        &mut self,
        rules: &HoldRules,
        needs: &Needs,
        own: &Allowance,
        all: &Allowance,
    ) -> PlanStep {
        let mut allowance = own;
        if needs.whole <= allowance.share {
            return PlanStep::HoldWhole;
        }
        for means in &rules.means {
            match means {
                Means::Credit => allowance = all,
                Means::Count if !self.is_counted && may_help(needs.least(rules), allowance) => {
                    // Set before the answer is known: a provider that fails to count is not asked twice
                    // for one call.
                    self.is_counted = true;
                    return PlanStep::Count;
                }
                Means::Count => {}
                Means::Clamp => {
                    let floor = needs.at_floor.filter(|_| !self.is_unclampable);
                    if let Some(floor) = floor.filter(|floor| *floor <= allowance.available) {
                        // More than the share where the floor needs it: an output that is shorter still
                        // would be useless.
                        return PlanStep::Clamp(allowance.share.max(floor));
                    }
                }
                Means::Rolling => {
                    if needs.slice.is_some_and(|slice| slice <= allowance.available) {
                        return PlanStep::Roll;
                    }
                }
            }
            if needs.whole <= allowance.share {
                return PlanStep::HoldWhole;
            }
        }
        let least = needs.least(rules);
        match allowance {
            // No means helped, and the share alone stands against it.
            allowance if needs.whole <= allowance.available => PlanStep::HoldWhole,
            allowance if least <= allowance.total => PlanStep::Wait,
            _ => PlanStep::Refuse,
        }
    }
}

/// True if a count can make a call fit that needs at least this much. Providers are not asked for
/// accounts that are empty, or nearly so.
fn may_help(least: Nanousd, allowance: &Allowance) -> bool {
    let most = allowance.total.get().saturating_mul(COUNT_GAIN_MAX);
    allowance.total > Nanousd::ZERO && least.get() <= most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn money(nanousd: i64) -> Nanousd {
        Nanousd::new(nanousd)
    }

    fn allowance(share: i64, available: i64, total: i64) -> Allowance {
        Allowance { share: money(share), available: money(available), total: money(total) }
    }

    fn rules(means: &[Means]) -> HoldRules {
        HoldRules { means: means.to_vec(), ..HoldRules::default() }
    }

    const ALL: &[Means] = Means::ALL;

    #[test]
    fn what_fits_is_held_as_it_is() {
        let needs = Needs { whole: money(10), at_floor: Some(money(5)), slice: Some(money(1)) };
        let own = allowance(10, 80, 80);
        assert_eq!(
            MeansProgress::default().next(&rules(ALL), &needs, &own, &own),
            PlanStep::HoldWhole
        );
    }

    #[test]
    fn means_are_tried_in_their_order() {
        let needs = Needs { whole: money(50), at_floor: Some(money(8)), slice: Some(money(4)) };
        let (own, all) = (allowance(10, 80, 80), allowance(20, 160, 160));
        let steps = |means: &[Means]| {
            let (rules, mut plan) = (rules(means), MeansProgress::default());
            let first = plan.next(&rules, &needs, &own, &all);
            (first, plan.next(&rules, &needs, &own, &all))
        };
        let clamp = |amount| PlanStep::Clamp(money(amount));
        use Means::{Clamp, Count, Credit, Rolling};
        assert_eq!(steps(&[Credit, Count, Clamp, Rolling]), (PlanStep::Count, clamp(20)));
        assert_eq!(steps(&[Count, Clamp, Credit]), (PlanStep::Count, clamp(10)));
        assert_eq!(steps(&[Rolling, Clamp]), (PlanStep::Roll, PlanStep::Roll));
        assert_eq!(
            steps(&[Count]),
            (PlanStep::Count, PlanStep::HoldWhole),
            "there is nothing to share by"
        );
        assert_eq!(steps(&[]), (PlanStep::HoldWhole, PlanStep::HoldWhole));
    }

    #[test]
    fn the_floor_is_served_above_the_share_while_there_is_as_much() {
        let needs = Needs { whole: money(50), at_floor: Some(money(8)), slice: None };
        let next = |own: &Allowance| {
            MeansProgress { is_counted: true, ..MeansProgress::default() }.next(
                &rules(ALL),
                &needs,
                own,
                own,
            )
        };
        assert_eq!(next(&allowance(5, 10, 100)), PlanStep::Clamp(money(8)));
        assert_eq!(next(&allowance(5, 7, 100)), PlanStep::Wait);
        assert_eq!(next(&allowance(5, 7, 7)), PlanStep::Refuse);
    }

    #[test]
    fn no_count_is_requested_for_an_empty_account() {
        let needs = Needs { whole: money(50), at_floor: Some(money(32)), slice: None };
        let next = |total: i64| {
            let own = allowance(total, total, total);
            MeansProgress::default().next(&rules(ALL), &needs, &own, &own)
        };
        let (refuse, count) = (PlanStep::Refuse, PlanStep::Count);
        assert_eq!((next(0), next(1), next(2)), (refuse, refuse, count));
    }

    #[test]
    fn the_line_alone_may_make_a_call_fit() {
        let needs = Needs { whole: money(50), at_floor: None, slice: None };
        let (own, all) = (allowance(10, 10, 10), allowance(60, 60, 60));
        let next =
            |means: &[Means]| MeansProgress::default().next(&rules(means), &needs, &own, &all);
        assert_eq!(next(&[Means::Credit]), PlanStep::HoldWhole);
        assert_eq!(next(&[Means::Clamp]), PlanStep::Refuse, "the line is not to be used");
        assert_eq!(next(&[]), PlanStep::Refuse);
    }
}
