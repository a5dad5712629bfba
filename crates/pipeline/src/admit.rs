//! Admission: computes the most that a request can cost, and holds it on the account.

use std::sync::Arc;
use std::time::Duration;

use crate::affordable::OutputCost;
use crate::enough::InsufficientFunds;
use crate::validate::ProtocolReading;
use crate::{Payment, PromptCount, Resolved, TryCost, Validated, limit};
use tollgate_config::snapshot::{Model, Pricing};
use tollgate_holds::PLENTY;
use tollgate_ledger::{AccountId, Hold, Ledger, Refusal, RequestId, Reserve};
use tollgate_money::money::{Nanousd, Rate};
use tollgate_money::price::{Prices, Quote, Traits, Usage, UsageSource};
use tollgate_pricing as pricing;
use tollgate_protocols::codec_choice::CodecKind;
use tollgate_protocols::{Call, Codec, Delivery, Dialect};
use tollgate_types::clock::UnixMs;
use tollgate_types::error::{ErrorKind, GatewayError};

/// `Retry-After` when other requests hold the money: most calls end within seconds.
const RETRY_HELD: Duration = Duration::from_secs(2);
/// `Retry-After` when the store refuses new holds.
const RETRY_STORE: Duration = Duration::from_secs(10);

/// The part of a request's most that is held before an upstream gets the request.
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

/// An admitted request with its payment, which ends in exactly one settlement.
#[derive(Debug)]
pub struct Admitted {
    /// Key, account, operation and model of the request.
    pub resolved: Resolved,
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

/// Account's prices of all models that may serve a request; unaffected by reloads.
#[derive(Debug)]
struct RequestPrices {
    own: Arc<Pricing>,
    fallbacks: Vec<Arc<Pricing>>,
}

impl RequestPrices {
    /// Look up the current prices. Those of fallbacks are journaled before they are charged.
    fn new(ledger: &Ledger, resolved: &Resolved, now: UnixMs) -> Self {
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
    fn at(&self, rank: usize) -> &Pricing {
        let fallback = rank.checked_sub(1).and_then(|at| self.fallbacks.get(at));
        fallback.unwrap_or(&self.own)
    }
}

/// Result of the admission of a request.
pub enum Admission {
    /// Admitted with its payment.
    Admitted(Box<Admitted>),
    /// The account has little money: the shares of its parallel requests decide.
    Tight(Box<Priced>),
}

/// A valid request with its account's current prices.
pub struct Priced {
    validated: Validated,
    prices: RequestPrices,
    amounts: RequestAmounts,
}

/// Hold the largest cost of the request if the account has plenty. Free requests need no hold.
///
/// # Errors
/// `RateLimited` when the key may not spend so much, or `Overloaded` when the store takes no new holds,
/// or a node of a fleet is cut off from its treasury.
pub async fn admit(
    ledger: &Arc<Ledger>,
    request: RequestId,
    validated: Validated,
) -> Result<Admission, GatewayError> {
    let resolved = &validated.resolved;
    if !resolved.operation.is_billed() {
        let own = Arc::clone(&resolved.model.prices);
        let prices = RequestPrices { own, fallbacks: Vec::new() };
        let priced = Priced { validated, prices, amounts: RequestAmounts::nothing() };
        return Ok(Admission::Admitted(priced.admitted(Payment::Free, Holding::Whole)));
    }
    let priced = Priced::new(ledger, validated);
    if !ledger.has_plenty(priced.account(), priced.amounts.amount, PLENTY) {
        return Ok(Admission::Tight(Box::new(priced)));
    }
    match priced.hold(ledger, request, Holding::Whole).await {
        Ok(hold) => Ok(Admission::Admitted(priced.admitted(Payment::Held(hold), Holding::Whole))),
        Err(Refusal::Insufficient { .. } | Refusal::Held { .. }) => {
            Ok(Admission::Tight(Box::new(priced)))
        }
        Err(refusal) => Err(priced.refused(&refusal, Holding::Whole)),
    }
}

impl Priced {
    /// Price a request at the current prices; price versions used for the first time are journaled.
    #[must_use]
    pub fn new(ledger: &Ledger, validated: Validated) -> Self {
        let now = UnixMs::now();
        let prices = RequestPrices::new(ledger, &validated.resolved, now);
        let amounts = RequestAmounts::compute(&prices, &validated, Holding::Whole, now);
        Self { validated, prices, amounts }
    }

    /// The request as the targets' protocols read it.
    #[must_use]
    pub fn validated(&self) -> &Validated {
        &self.validated
    }

    /// The request without its prices.
    #[must_use]
    pub fn into_validated(self) -> Validated {
        self.validated
    }

    /// Account that pays for the request.
    #[must_use]
    pub fn account(&self) -> AccountId {
        self.validated.resolved.key.account
    }

    /// Lower the amounts by a provider's token count. Uncounted readings that could cost more are
    /// dropped: another model has another tokenizer. Returns true if the amounts are lower now;
    /// otherwise nothing has changed.
    pub fn apply_count(&mut self, counted: &PromptCount) -> bool {
        if !self.validated.apply_count(counted) {
            return false;
        }
        let Self { validated, prices, amounts } = self;
        let most = |rank: usize, call: &dyn Call| {
            let quoted = quote(prices.at(rank), call, amounts.at);
            bounds(&quoted, call).0
        };
        let own = most(0, validated.call.as_ref());
        validated.others.retain(|other| most(other.rank, other.call.as_ref()) <= own);
        *amounts = RequestAmounts::compute(prices, validated, Holding::Whole, amounts.at);
        true
    }

    /// Amount of a hold of this kind.
    #[must_use]
    pub fn amount(&self, holding: Holding) -> Nanousd {
        match holding {
            Holding::Whole => self.amounts.amount,
            Holding::Slice { .. } => {
                RequestAmounts::compute(&self.prices, &self.validated, holding, self.amounts.at)
                    .amount
            }
        }
    }

    /// Largest cost of each reading as a function of its output limit.
    #[must_use]
    pub fn output_costs(&self) -> Vec<OutputCost> {
        let Self { validated, prices, amounts } = self;
        let cost = |rank: usize, call: &dyn Call| {
            let (full, _) = bounds(&quote(prices.at(rank), call, amounts.at), call);
            OutputCost::new(prices.at(rank), call, full, amounts.at)
        };
        let others = validated.others.iter().map(|other| cost(other.rank, other.call.as_ref()));
        [cost(0, validated.call.as_ref())].into_iter().chain(others).collect()
    }

    /// Hold money for the request.
    ///
    /// # Errors
    /// [`Refusal`]; nothing is held then.
    pub async fn hold(
        &self,
        ledger: &Arc<Ledger>,
        request: RequestId,
        holding: Holding,
    ) -> Result<Hold, Refusal> {
        let resolved = &self.validated.resolved;
        let (account, model) = (resolved.key.account, &resolved.model);
        let amount = self.amount(holding);
        let hold = ledger.admit(Reserve {
            account,
            key: resolved.key.id,
            model: Arc::clone(&model.id),
            price: Some(pricing::noted_version(ledger, account, model, self.prices.at(0))),
            request,
            amount,
            floor: self.amounts.floor.min(amount),
        });
        hold.await
    }

    /// Convert to an admitted request.
    #[must_use]
    pub fn admitted(self, payment: Payment, holding: Holding) -> Box<Admitted> {
        Admitted::new(self.validated, payment, self.prices, self.amounts, holding)
    }

    /// Convert a refusal of the ledger to an error response.
    #[must_use]
    pub fn refused(&self, refusal: &Refusal, holding: Holding) -> GatewayError {
        refused(refusal, self, holding)
    }
}

/// Amounts of a request by the prices of one moment.
struct RequestAmounts {
    /// Quote of the first reading.
    own: Quote,
    at: UnixMs,
    /// Largest cost at the request's own model.
    bound: Nanousd,
    /// Initial hold, sized for the dearest model that may serve the request.
    amount: Nanousd,
    /// Smallest cost once an upstream of its own model has taken the request.
    floor: Nanousd,
}

impl RequestAmounts {
    /// The amounts of a request that costs nothing.
    fn nothing() -> Self {
        let (own, at, zero) = (Quote::default(), UnixMs(0), Nanousd::ZERO);
        Self { own, at, bound: zero, amount: zero, floor: zero }
    }

    /// Compute the amounts: the hold covers the dearest reading at any target and model; the smallest
    /// cost is that of the model itself.
    fn compute(
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

impl Admitted {
    fn new(
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
        let mut others = self.others.iter().map(|other| other.call.delivery());
        if others.any(|delivery| delivery == Delivery::Collect) {
            return Delivery::Collect;
        }
        self.call.delivery()
    }
}

/// Quote the call at these prices at `now`.
fn quote(prices: &Pricing, call: &dyn Call, now: UnixMs) -> Quote {
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
fn bounds(quote: &Quote, call: &dyn Call) -> (Nanousd, Nanousd) {
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

fn refused(refusal: &Refusal, priced: &Priced, holding: Holding) -> GatewayError {
    match refusal {
        Refusal::InDebt { debt, .. } => GatewayError::new(
            ErrorKind::InsufficientBalance,
            format!(
                "This account owes ${debt} for earlier requests, which cost more than its balance. \
                 Add credit: it pays the debt first."
            ),
        ),
        Refusal::Insufficient { available } => {
            InsufficientFunds::for_request(priced, *available).insufficient()
        }
        Refusal::Held { available, held } => {
            InsufficientFunds::for_request(priced, *available).held(*held).retry_after(RETRY_HELD)
        }
        Refusal::Capped(capped) | Refusal::ShareUsed { capped, .. } => {
            limit::capped(capped, priced.amount(holding), UnixMs::now())
        }
        Refusal::UnknownAccount => {
            GatewayError::new(ErrorKind::PermissionDenied, "This API key's account is closed.")
        }
        Refusal::DiskFull | Refusal::CutOff | Refusal::Stopped => GatewayError::new(
            ErrorKind::Overloaded,
            "The gateway cannot take new requests at the moment. Try again shortly.",
        )
        .retry_after(RETRY_STORE)
        .cause(format!("the ledger refused a hold: {refusal:?}")),
    }
}
