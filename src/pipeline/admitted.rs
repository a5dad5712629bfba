//! A request that is paid for, and the model and protocol in which it is asked now.

use std::sync::Arc;

use crate::clock::UnixMs;
use crate::config::snapshot::Model;
use crate::money::Nanousd;
use crate::pipeline::quote::{RequestAmounts, RequestPrices, bounds, dearest_prices, quote};
use crate::pipeline::validate::ProtocolReading;
use crate::pipeline::{Holding, Payment, Resolved, TryCost, Validated};
use crate::price::{Quote, Usage, UsageSource};
use crate::pricing;
use crate::protocols::doors::DoorKind;
use crate::protocols::{Call, Codec, Delivery, Dialect};

/// A request that is paid for: from here on it ends in exactly one settlement.
#[derive(Debug)]
pub struct Admitted {
    /// Who asks for which model.
    pub resolved: Resolved,
    /// What the protocol of the target says about it that is asked now; of the first before one is.
    pub call: Box<dyn Call>,
    /// The protocol in which `call` reads the request.
    pub(super) codec: &'static dyn Codec,
    /// The way by which the request reaches that target.
    kind: DoorKind,
    /// The [rank](Resolved::model_at) of the model whose target is asked now.
    pub(super) rank: usize,
    /// What the protocols of other targets say about it, and those of the targets of fallbacks.
    pub(super) others: Vec<ProtocolReading>,
    /// What pays for the request.
    pub payment: Payment,
    /// The prices that its account pays; neither a reload nor another rule changes them for this
    /// request.
    prices: RequestPrices,
    /// What it costs by them.
    pub quote: Quote,
    /// When it was taken in: its prices are of that moment.
    pub(super) taken_in: UnixMs,
    /// The most that the request can cost at the model that is asked now: what was held for it at
    /// first, if no fallback is dearer.
    pub bound: Nanousd,
    /// What was held at first: of the dearest model that may serve the request.
    pub(super) held: Nanousd,
    /// The part of the most that was held at first.
    pub(super) holding: Holding,
    /// The most that upstreams may bill for tries that were followed by another.
    pub retried: Nanousd,
    /// What those tries cost the operator, where targets have prices of their own.
    pub(super) retry_costs: Vec<TryCost>,
    /// What was used of a request that is answered in parts, of which one has failed.
    pub partial: Option<AnsweredParts>,
    /// The output limit, in tokens for each choice, that the request was lowered to.
    pub clamped: Option<u64>,
}

/// The parts that were answered of a request of which one has failed.
#[derive(Clone, Copy, Debug)]
pub struct AnsweredParts {
    /// What the answered parts used together.
    pub usage: Usage,
    /// How that is known.
    pub source: UsageSource,
    /// The upstream has refused a part for what is in it, which is the customer's doing.
    pub is_refused: bool,
}

impl Admitted {
    pub(super) fn new(
        validated: Validated,
        payment: Payment,
        prices: RequestPrices,
        amounts: RequestAmounts,
        holding: Holding,
    ) -> Box<Self> {
        let RequestAmounts { own: quote, at: taken_in, bound, .. } = amounts;
        let Validated { resolved, call, codec, kind, others } = validated;
        let held = payment.amount();
        Box::new(Self {
            resolved,
            call,
            codec,
            kind,
            rank: 0,
            others,
            payment,
            prices,
            quote,
            taken_in,
            bound,
            held,
            holding,
            retried: Nanousd::ZERO,
            retry_costs: Vec::new(),
            partial: None,
            clamped: None,
        })
    }

    /// Notes that the request goes out with its output limit lowered to `tokens` for each choice.
    pub fn clamped_to(&mut self, tokens: u64) {
        self.clamped = Some(tokens);
    }

    /// A target of the model of this rank that speaks `dialect` is asked next: the request is what its
    /// protocol reads in it, and costs what it costs so. What is held is held for that model. Says
    /// whether the protocol takes it and it is paid for.
    pub fn turn_to(&mut self, rank: usize, dialect: Dialect) -> bool {
        if self.is_for(rank, dialect) {
            return true;
        }
        let fits = |other: &ProtocolReading| other.is_for(rank, dialect);
        let Some(at) = self.others.iter().position(fits) else { return false };
        if rank != self.rank && !self.move_to(rank) {
            return false;
        }
        let Some(other) = self.others.get_mut(at) else { return false };
        std::mem::swap(&mut self.codec, &mut other.codec);
        std::mem::swap(&mut self.call, &mut other.call);
        std::mem::swap(&mut self.rank, &mut other.rank);
        std::mem::swap(&mut self.kind, &mut other.kind);
        if self.resolved.operation.is_billed() {
            self.quote = quote(self.prices.at(rank), self.call.as_ref(), self.taken_in);
        }
        true
    }

    /// Has the model of this rank be paid for. Says whether it is.
    fn move_to(&mut self, rank: usize) -> bool {
        let (model, prices) = (self.resolved.model_at(rank), self.prices.at(rank));
        let others = self.others.iter().filter(|other| other.rank == rank);
        let bounds = others.map(|other| {
            bounds(&quote(prices, other.call.as_ref(), self.taken_in), other.call.as_ref())
        });
        let least_of_all = (Nanousd::ZERO, Nanousd::ZERO);
        let (bound, floor) = bounds.fold(least_of_all, |(bound, floor), (most, least)| {
            (bound.max(most), floor.max(least))
        });
        self.bound = bound;
        self.payment.move_to(Arc::clone(&model.id), pricing::version(model, prices), floor)
    }

    /// Whether the request is read now as those upstreams of the model of this rank read it that speak
    /// `dialect`.
    #[must_use]
    pub fn is_for(&self, rank: usize, dialect: Dialect) -> bool {
        self.rank == rank && self.codec.dialects().contains(&dialect)
    }

    /// The model whose target is asked now, or answers: the one that the request names, or a fallback.
    #[must_use]
    pub fn model(&self) -> &Arc<Model> {
        self.resolved.model_at(self.rank)
    }

    /// The model that serves the request in the place of the one that it names.
    #[must_use]
    pub fn fallback(&self) -> Option<&Arc<Model>> {
        (self.rank > 0).then(|| self.model())
    }

    /// What `usage` costs with every token billed in the dearest way that the call allows.
    pub(super) fn dearest(&self, usage: &Usage) -> Nanousd {
        dearest_prices(self.quote.dearest(), self.call.as_ref()).cost(usage)
    }

    /// How the answer travels to the customer, whichever target is asked: where the protocol of one
    /// has it put together, it is put together for all of them.
    #[must_use]
    pub fn delivery(&self) -> Delivery {
        let mut others = self.others.iter().map(|other| other.call.delivery());
        if others.any(|delivery| delivery == Delivery::Collect) {
            return Delivery::Collect;
        }
        self.call.delivery()
    }
}
