//! The most and the least that a request can cost, by the prices that its account pays at one moment.

use std::sync::Arc;

use crate::validate::ProtocolReading;
use crate::{ResolvedRequest, ValidatedRequest};
use tollgate_config::snapshot::{Model, Pricing};
use tollgate_ledger::Ledger;
use tollgate_money::money::{Nanousd, Rate};
use tollgate_money::price::{Prices, Quote, Traits, Usage};
use tollgate_pricing as pricing;
use tollgate_protocols::Call;
use tollgate_types::clock::UnixMs;

/// Part of a request's maximum cost that is held before an upstream is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// The largest cost of the request.
    Whole,
    /// The input and a slice of output; the hold grows while the answer streams. Only for requests that
    /// [can roll](Validated::can_roll).
    Slice {
        /// Initial output and smallest extension, in tokens.
        output_tokens: u64,
    },
}

impl Holding {
    /// Part of `bound` that the initial hold covers.
    pub(super) fn part_of(self, bound: Usage) -> Usage {
        match self {
            Self::Whole => bound,
            Self::Slice { output_tokens } => {
                Usage { output_tokens: bound.output_tokens.min(output_tokens), ..bound }
            }
        }
    }
}

/// Account's prices of all models that may serve a request; unaffected by reloads.
#[derive(Debug)]
pub(super) struct RequestPrices {
    pub(super) own: Arc<Pricing>,
    pub(super) fallbacks: Vec<Arc<Pricing>>,
}

impl RequestPrices {
    /// Look up the current prices. Those of fallbacks are journaled before they are charged.
    pub(super) fn new(ledger: &Ledger, resolved: &ResolvedRequest, now: UnixMs) -> Self {
        let (account, model) = (resolved.key.account, &resolved.model);
        let name = resolved.requested_name.as_deref().unwrap_or(&model.id);
        let own = pricing::prices_for(ledger, account, (model, name), now);
        let priced = |model: &Arc<Model>| {
            let prices = pricing::prices_for(ledger, account, (model, &model.id), now);
            pricing::noted_version(ledger, account, model, &prices);
            prices
        };
        Self { own, fallbacks: resolved.fallbacks.iter().map(priced).collect() }
    }

    /// Prices of the model of this [rank](Resolved::model_at).
    pub(super) fn at(&self, rank: usize) -> &Pricing {
        let fallback = rank.checked_sub(1).and_then(|at| self.fallbacks.get(at));
        fallback.unwrap_or(&self.own)
    }
}

/// Amounts of a request by the prices of one moment.
pub(super) struct RequestAmounts {
    /// Quote of the first reading.
    pub(super) own: Quote,
    pub(super) at: UnixMs,
    /// Largest cost at the request's own model.
    pub(super) bound: Nanousd,
    /// Initial hold, sized for the dearest model that may serve the request.
    pub(super) amount: Nanousd,
    /// Smallest cost once an upstream of its own model has taken the request.
    pub(super) floor: Nanousd,
}

impl RequestAmounts {
    /// The amounts of a request that costs nothing.
    pub(super) fn nothing() -> Self {
        let (own, at, zero) = (Quote::default(), UnixMs(0), Nanousd::ZERO);
        Self { own, at, bound: zero, amount: zero, floor: zero }
    }

    /// Compute the amounts: the hold covers the dearest reading at any target and model; the smallest
    /// cost is that of the model itself.
    pub(super) fn compute(
        prices: &RequestPrices,
        validated: &ValidatedRequest,
        holding: Holding,
        now: UnixMs,
    ) -> Self {
        let own = quote(prices.at(0), validated.call.as_ref(), now);
        let (mut bound, mut floor) = bounds(&own, validated.call.as_ref());
        let mut slice = slice(&own, validated.call.as_ref(), holding);
        let mut dearest = Nanousd::ZERO;
        for ProtocolReading { rank, call, .. } in &validated.others {
            let quoted = quote(prices.at(*rank), call.as_ref(), now);
            let (most, least) = bounds(&quoted, call.as_ref());
            slice = slice.max(self::slice(&quoted, call.as_ref(), holding));
            match rank {
                0 => (bound, floor) = (bound.max(most), floor.max(least)),
                _ => dearest = dearest.max(most),
            }
        }
        let amount = slice.unwrap_or(bound.max(dearest));
        Self { own, at: now, bound, amount, floor: floor.min(amount) }
    }
}

/// Quote the call at these prices at `now`.
pub(super) fn quote(prices: &Pricing, call: &dyn Call, now: UnixMs) -> Quote {
    quote_bound(prices, call, &call.max_usage(), now)
}

/// Quote the call at these prices with `bound` as its largest usage.
pub(super) fn quote_bound(prices: &Pricing, call: &dyn Call, bound: &Usage, now: UnixMs) -> Quote {
    // Each round that reads the prompt again from the cache is billed as a prompt of its own: the price
    // step for long prompts applies per round.
    let bound = Usage { cache_read_tokens: 0, ..*bound };
    prices.list.quote(&call.traits(), &bound, now)
}

/// Largest cost of the call, and its smallest once an upstream has taken it.
pub(super) fn bounds(quote: &Quote, call: &dyn Call) -> (Nanousd, Nanousd) {
    let least = call.min_usage();
    let floor = quote.prices(&least, &Traits::default()).cost(&least);
    (most(quote.dearest(), call), floor)
}

/// Amount of a hold for a slice of the call's output; `None` for a full hold.
fn slice(quote: &Quote, call: &dyn Call, holding: Holding) -> Option<Nanousd> {
    if holding == Holding::Whole {
        return None;
    }
    let part = Usage { requests: 1, ..holding.part_of(call.max_usage()) };
    Some(dearest_prices(quote.dearest(), call).cost(&part))
}

/// Largest cost of the call: every token at the dearest rate.
fn most(prices: &Prices, call: &dyn Call) -> Nanousd {
    dearest_prices(prices, call).cost(&Usage { requests: 1, ..call.max_usage() })
}

/// Dearest rate for each kind of token in the call.
pub(super) fn dearest_prices(prices: &Prices, call: &dyn Call) -> Prices {
    let or = |can_be: bool, rate: Rate| if can_be { rate } else { prices.output };
    let sound = or(call.sounds(), prices.audio_output);
    let picture = or(call.makes_pictures(), prices.image_output);
    Prices {
        input: prices.input_dearest(call.input_ways()),
        output: prices.output.max(sound).max(picture),
        ..*prices
    }
}
