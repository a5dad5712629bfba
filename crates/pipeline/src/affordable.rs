//! Search for the largest output limit that an account can pay.

use crate::quote::{dearest_prices, quote_bound};
use tollgate_config::snapshot::Pricing;
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Prices, Usage};
use tollgate_protocols::{Call, OutputBound};
use tollgate_types::clock::UnixMs;

/// Largest cost of one reading as a function of its output limit.
#[derive(Clone, Copy, Debug)]
pub struct OutputCost {
    /// Largest cost with the limit as requested.
    full: Nanousd,
    /// Dearest rates with a lowered limit.
    prices: Prices,
    /// Largest usage apart from the output that the limit bounds.
    fixed: Usage,
    /// Output as a function of the limit; `None` if the limit bounds no output.
    output: Option<OutputBound>,
}

impl OutputCost {
    /// The cost of `call` at these prices, of which `full` is the most as the request stands.
    pub(super) fn new(pricing: &Pricing, call: &dyn Call, full: Nanousd, now: UnixMs) -> Self {
        let (bound, output) = (call.max_usage(), call.output_bound());
        // The field that the limit needs may lift the input above a step of the price.
        let input_tokens = bound.input_tokens.saturating_add(output.field_tokens_max);
        let grown = Usage { input_tokens, requests: 1, ..bound };
        let quote = quote_bound(pricing, call, &grown, now);
        Self::by_prices(dearest_prices(quote.dearest(), call), grown, output, full)
    }

    fn by_prices(prices: Prices, grown: Usage, output: OutputBound, full: Nanousd) -> Self {
        // A bound at the end of its range has lost what it consists of, and nothing is taken off it.
        let limited = output.limit.checked_mul(output.per_token);
        let is_exact = grown.output_tokens < u64::MAX;
        let rest = limited.and_then(|limited| grown.output_tokens.checked_sub(limited));
        match rest.filter(|_| is_exact && output.limit > 0) {
            Some(output_tokens) => {
                Self { full, prices, fixed: Usage { output_tokens, ..grown }, output: Some(output) }
            }
            None => Self { full, prices, fixed: grown, output: None },
        }
    }

    /// Largest cost with an output limit of `tokens` per choice.
    fn at(&self, tokens: u64) -> Nanousd {
        let limited = self
            .output
            .map_or(0, |output| tokens.min(output.limit).saturating_mul(output.per_token));
        let output_tokens = self.fixed.output_tokens.saturating_add(limited);
        self.prices.cost(&Usage { output_tokens, ..self.fixed })
    }

    /// Current limit; zero if there is none.
    fn limit(&self) -> u64 {
        self.output.map_or(0, |output| output.limit)
    }
}

/// The largest output limit for each choice with which every reading in `costs` costs no more than
/// `funds`, exact to the token, and never above the limit that holds already. `None` where no limit makes
/// the request so cheap, or none bounds its output.
#[must_use]
pub fn affordable_output(costs: &[OutputCost], funds: Nanousd) -> Option<u64> {
    let limit = costs.iter().map(OutputCost::limit).max().filter(|limit| *limit > 0)?;
    if costs.iter().all(|cost| cost.full <= funds) {
        return Some(limit);
    }
    let fits = |tokens: u64| cost_at(costs, tokens) <= funds;
    // A limit of zero asks for no answer.
    let (mut most, mut too_much) = (1, limit);
    if limit <= 1 || !fits(most) {
        return None;
    }
    // `most` fits, and `too_much` does not: the cost never falls as the limit rises.
    while too_much.saturating_sub(most) > 1 {
        let middle = most.midpoint(too_much);
        if fits(middle) { most = middle } else { too_much = middle }
    }
    Some(most)
}

/// Largest cost over all readings with an output limit of `tokens`.
#[must_use]
pub fn cost_at(costs: &[OutputCost], tokens: u64) -> Nanousd {
    costs.iter().map(|cost| cost.at(tokens)).max().unwrap_or(Nanousd::ZERO)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use tollgate_money::money::Rate;

    fn cost(input: u64, rest: u64, output: OutputBound, rates: [i64; 3]) -> OutputCost {
        let [input_rate, output_rate, request] = rates.map(Rate::from_femtousd);
        let prices =
            Prices { input: input_rate, output: output_rate, request, ..Prices::default() };
        let output_tokens = rest + output.limit * output.per_token;
        let bound = Usage { input_tokens: input, output_tokens, requests: 1, ..Usage::ZERO };
        let input_tokens = input + output.field_tokens_max;
        let grown = Usage { input_tokens, ..bound };
        OutputCost::by_prices(prices, grown, output, prices.cost(&bound))
    }

    fn any_cost() -> impl Strategy<Value = OutputCost> {
        let output = (0..400_u64, 0..12_u64, 0..3_u64).prop_map(|(limit, per_token, field)| {
            OutputBound { limit, per_token, field_tokens_max: field * 32 }
        });
        let rates = [0..50_000_000_i64, 0..90_000_000_i64, 0..2_000_000_000_i64];
        (0..2_000_u64, 0..500_u64, output, rates)
            .prop_map(|(input, rest, output, rates)| cost(input, rest, output, rates))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// The largest of all limits that fit, tried one by one: exact to the token, and monotone.
        #[test]
        fn the_affordable_limit_is_the_largest_that_fits_every_reading(
            costs in prop::collection::vec(any_cost(), 1..4),
            funds in 0..4_000_000_i64,
        ) {
            let funds = Nanousd::new(funds);
            let limit = costs.iter().map(OutputCost::limit).max().unwrap_or(0);
            let fits = |tokens: &u64| costs.iter().all(|cost| match tokens {
                tokens if *tokens == limit => cost.full <= funds,
                tokens => cost.at(*tokens) <= funds,
            });
            let largest = (1..=limit).rev().find(fits);
            prop_assert_eq!(affordable_output(&costs, funds), largest);
            for tokens in 1..=limit {
                let (less, more) = (cost_at(&costs, tokens - 1), cost_at(&costs, tokens));
                prop_assert!(less <= more, "{less} at one token less than {more}");
            }
            if let Some(tokens) = largest {
                let more = affordable_output(&costs, Nanousd::new(funds.get() + 1_000));
                prop_assert!(more >= Some(tokens), "more money buys no less");
            }
        }
    }

    #[test]
    fn a_bound_that_has_left_its_range_is_not_lowered() {
        let output = OutputBound { limit: 8, per_token: u64::MAX, field_tokens_max: 0 };
        let prices = Prices { output: Rate::from_femtousd(1_000_000), ..Prices::default() };
        let bound = Usage { output_tokens: u64::MAX, ..Usage::ZERO };
        let cost = OutputCost::by_prices(prices, bound, output, prices.cost(&bound));
        assert_eq!(cost.at(1), prices.cost(&bound));
        assert_eq!(affordable_output(&[cost], Nanousd::new(1_000_000)), None);
    }
}
