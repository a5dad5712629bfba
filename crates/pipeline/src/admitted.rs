//! A request that is paid for, and the model and protocol in which it is asked now.

use std::sync::Arc;

use crate::quote::{RequestAmounts, RequestPrices, bounds, dearest_prices, quote};
use crate::validate::ProtocolReading;
use crate::{Holding, Payment, ResolvedRequest, TryCost, ValidatedRequest};
use tollgate_config::snapshot::Model;
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Quote, Usage, UsageSource};
use tollgate_pricing as pricing;
use tollgate_protocols::codec_choice::CodecKind;
use tollgate_protocols::{Call, Codec, Delivery, Dialect};
use tollgate_types::clock::UnixMs;

/// An admitted request with its payment, which ends in exactly one settlement.
#[derive(Debug)]
pub struct AdmittedRequest {
    /// Key, account, operation and model of the request.
    pub resolved: ResolvedRequest,
    /// Reading of the request for the current target; for the first target before any is selected.
    pub call: Box<dyn Call>,
    /// Codec of `call`.
    pub(super) codec: &'static dyn Codec,
    /// Translation, if any, between the request and that target.
    kind: CodecKind,
    /// [Rank](Resolved::model_at) of the current model.
    pub(super) rank: usize,
    /// Readings for the other targets and for those of fallback models.
    pub(super) others: Vec<ProtocolReading>,
    /// Payment of the request.
    pub payment: Payment,
    /// Prices for its account, frozen for this request.
    prices: RequestPrices,
    /// Cost by these prices.
    pub quote: Quote,
    /// Admission time, which selects the prices.
    pub(super) taken_in: UnixMs,
    /// Largest cost at the current model; equal to the initial hold unless a fallback is dearer.
    pub bound: Nanousd,
    /// Initial hold, sized for the dearest model that may serve the request.
    pub(super) held: Nanousd,
    /// Share of the largest cost that the initial hold covers.
    pub(super) holding: Holding,
    /// Largest sum that upstreams may bill for abandoned tries.
    pub retried: Nanousd,
    /// Operator's costs of those tries, at targets with cost prices.
    pub(super) retry_costs: Vec<TryCost>,
    /// Usage of the answered parts, if a part of a split request has failed.
    pub partial: Option<AnsweredParts>,
    /// Lowered output limit, in tokens per choice.
    pub clamped: Option<u64>,
}

/// Answered parts of a split request of which one part has failed.
#[derive(Clone, Copy, Debug)]
pub struct AnsweredParts {
    /// Total usage of the answered parts.
    pub usage: Usage,
    /// Source of the usage.
    pub source: UsageSource,
    /// True if the upstream refused a part for its content, which is the customer's fault.
    pub is_refused: bool,
}

impl AdmittedRequest {
    pub(super) fn new(
        validated: ValidatedRequest,
        payment: Payment,
        prices: RequestPrices,
        amounts: RequestAmounts,
        holding: Holding,
    ) -> Box<Self> {
        let RequestAmounts { own: quote, at: taken_in, bound, .. } = amounts;
        let ValidatedRequest { resolved, call, codec, kind, others } = validated;
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

    /// Record that the output limit was lowered to `tokens` per choice.
    pub fn clamped_to(&mut self, tokens: u64) {
        self.clamped = Some(tokens);
    }

    /// Switch to a target of the model of this rank that speaks `dialect`, with its reading and its
    /// price; the hold moves to that model. Returns false if no reading fits or the hold cannot move.
    pub fn switch_target(&mut self, rank: usize, dialect: Dialect) -> bool {
        if self.is_for(rank, dialect) {
            return true;
        }
        let fits = |other: &ProtocolReading| other.is_for(rank, dialect);
        let Some(at) = self.others.iter().position(fits) else { return false };
        // First the hold: a fallback is served under its own prices, or not at all.
        if rank != self.rank && !self.move_to(rank) {
            return false;
        }
        let Some(other) = self.others.get_mut(at) else { return false };
        // Swapped rather than moved: a later target may need the reading that it takes the place of.
        std::mem::swap(&mut self.codec, &mut other.codec);
        std::mem::swap(&mut self.call, &mut other.call);
        std::mem::swap(&mut self.rank, &mut other.rank);
        std::mem::swap(&mut self.kind, &mut other.kind);
        if self.resolved.operation.is_billed() {
            self.quote = quote(self.prices.at(rank), self.call.as_ref(), self.taken_in);
        }
        true
    }

    /// Move the payment to the model of this rank. Returns false if it cannot move.
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

    /// True if the current reading is for the model of this rank and for `dialect`.
    #[must_use]
    pub fn is_for(&self, rank: usize, dialect: Dialect) -> bool {
        self.rank == rank && self.codec.dialects().contains(&dialect)
    }

    /// Current model: the one that the request names, or a fallback.
    #[must_use]
    pub fn model(&self) -> &Arc<Model> {
        self.resolved.model_at(self.rank)
    }

    /// Fallback model that serves the request, if any.
    #[must_use]
    pub fn fallback(&self) -> Option<&Arc<Model>> {
        (self.rank > 0).then(|| self.model())
    }

    /// Cost of `usage` at the dearest rates that the call allows.
    pub(super) fn dearest(&self, usage: &Usage) -> Nanousd {
        dearest_prices(self.quote.dearest(), self.call.as_ref()).cost(usage)
    }

    /// Delivery of the answer, equal for all targets: collected if the reading for any target needs
    /// that.
    #[must_use]
    pub fn delivery(&self) -> Delivery {
        // The client gets one delivery, and any of the targets may give the response: one that has to be
        // collected decides.
        let mut others = self.others.iter().map(|other| other.call.delivery());
        if others.any(|delivery| delivery == Delivery::Collect) {
            return Delivery::Collect;
        }
        self.call.delivery()
    }
}
