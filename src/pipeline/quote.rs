//! The most and the least that a request can cost, by the prices that its account pays at one moment.

use std::sync::Arc;

use crate::clock::UnixMs;
use crate::config::snapshot::{Model, Pricing};
use crate::ledger::Ledger;
use crate::money::{Nanousd, Rate};
use crate::pipeline::validate::ProtocolReading;
use crate::pipeline::{Resolved, Validated};
use crate::price::{Prices, Quote, Traits, Usage};
use crate::pricing;
use crate::protocols::Call;

/// The part of a request's most that is held before an upstream gets the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// All that the request can cost.
    Whole,
    /// The input and this much output; the hold grows while the answer streams. Only for requests
    /// that [can roll](Validated::can_roll).
    Slice {
        /// Output, in tokens, that is held at first, and that the hold grows by at least.
        output_tokens: u64,
    },
}

impl Holding {
    /// The part of `bound` that is held at first.
    pub(super) fn part_of(self, bound: Usage) -> Usage {
        match self {
            Self::Whole => bound,
            Self::Slice { output_tokens } => {
                Usage { output_tokens: bound.output_tokens.min(output_tokens), ..bound }
            }
        }
    }
}

/// What the account pays for the models that may serve a request; a reload does not change that.
#[derive(Debug)]
pub(super) struct RequestPrices {
    pub(super) own: Arc<Pricing>,
    pub(super) fallbacks: Vec<Arc<Pricing>>,
}

impl RequestPrices {
    /// The prices of the moment. Those of fallbacks stand in the journal before they are charged.
    pub(super) fn new(ledger: &Ledger, resolved: &Resolved, now: UnixMs) -> Self {
        let (account, model) = (resolved.key.account, &resolved.model);
        let name = resolved.asked.as_deref().unwrap_or(&model.id);
        let own = pricing::prices_for(ledger, account, (model, name), now);
        let priced = |model: &Arc<Model>| {
            let prices = pricing::prices_for(ledger, account, (model, &model.id), now);
            pricing::noted_version(ledger, account, model, &prices);
            prices
        };
        Self { own, fallbacks: resolved.fallbacks.iter().map(priced).collect() }
    }

    /// The prices of the model of this [rank](Resolved::model_at).
    pub(super) fn at(&self, rank: usize) -> &Pricing {
        let fallback = rank.checked_sub(1).and_then(|at| self.fallbacks.get(at));
        fallback.unwrap_or(&self.own)
    }
}

/// What a request can cost by the prices of one moment.
pub(super) struct RequestAmounts {
    /// By its first reading.
    pub(super) own: Quote,
    pub(super) at: UnixMs,
    /// The most of the request's own model.
    pub(super) bound: Nanousd,
    /// What is held at first: of the dearest model that may serve the request.
    pub(super) amount: Nanousd,
    /// The least once an upstream of its own model has taken the request.
    pub(super) floor: Nanousd,
}

impl RequestAmounts {
    /// The amounts of a request that costs nothing.
    pub(super) fn nothing() -> Self {
        let (own, at, zero) = (Quote::default(), UnixMs(0), Nanousd::ZERO);
        Self { own, at, bound: zero, amount: zero, floor: zero }
    }

    /// Whichever target is asked, and in whatever words: the dearest of them is covered, of whatever
    /// model. The least is that of the model itself.
    pub(super) fn compute(
        prices: &RequestPrices,
        validated: &Validated,
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

/// What the call costs by these prices that is taken in `now`.
pub(super) fn quote(prices: &Pricing, call: &dyn Call, now: UnixMs) -> Quote {
    quote_bound(prices, call, &call.bound(), now)
}

/// What the call costs by these prices where it uses `bound` at most.
pub(super) fn quote_bound(prices: &Pricing, call: &dyn Call, bound: &Usage, now: UnixMs) -> Quote {
    // A round that reads the prompt again from the cache is a prompt by itself: providers bill a long one
    // dearer, and not many short ones.
    let bound = Usage { cache_read_tokens: 0, ..*bound };
    prices.list.quote(&call.traits(), &bound, now)
}

/// The most that the call can cost, and the least once an upstream has taken it.
pub(super) fn bounds(quote: &Quote, call: &dyn Call) -> (Nanousd, Nanousd) {
    let least = call.floor();
    let floor = quote.prices(&least, &Traits::default()).cost(&least);
    (most(quote.dearest(), call), floor)
}

/// What a hold for a part of the call's output sets aside; `None` for one that covers all of it.
fn slice(quote: &Quote, call: &dyn Call, holding: Holding) -> Option<Nanousd> {
    if holding == Holding::Whole {
        return None;
    }
    let part = Usage { requests: 1, ..holding.part_of(call.bound()) };
    Some(dearest_prices(quote.dearest(), call).cost(&part))
}

/// The most that the call can cost: every token billed in the dearest way that it allows.
fn most(prices: &Prices, call: &dyn Call) -> Nanousd {
    dearest_prices(prices, call).cost(&Usage { requests: 1, ..call.bound() })
}

/// The dearest way in which every token of the call can be billed.
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
