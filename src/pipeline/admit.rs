//! What the request can cost, and whether the account can pay it.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::UnixMs;
use crate::config::snapshot::{Model, Pricing};
use crate::error::{ErrorKind, GatewayError};
use crate::holds::PLENTY;
use crate::ledger::{AccountId, Hold, Ledger, Refusal, RequestId, Reserve};
use crate::money::{Nanousd, Rate};
use crate::pipeline::affordable::OutputCost;
use crate::pipeline::enough::Enough;
use crate::pipeline::validate::ProtocolReading;
use crate::pipeline::{Counted, Payment, Resolved, TryCost, Validated, limit};
use crate::price::{Prices, Quote, Traits, Usage, UsageSource};
use crate::pricing;
use crate::protocols::codec_choice::CodecKind;
use crate::protocols::{Call, Codec, Delivery, Dialect};

/// When a customer whose money is in flight should try again. Most calls end within seconds.
const RETRY_HELD: Duration = Duration::from_secs(2);
/// When to try again after the store refused new holds.
const RETRY_STORE: Duration = Duration::from_secs(10);

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
    kind: CodecKind,
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

/// What the account pays for the models that may serve a request; a reload does not change that.
#[derive(Debug)]
struct RequestPrices {
    own: Arc<Pricing>,
    fallbacks: Vec<Arc<Pricing>>,
}

impl RequestPrices {
    /// The prices of the moment. Those of fallbacks stand in the journal before they are charged.
    fn new(ledger: &Ledger, resolved: &Resolved, now: UnixMs) -> Self {
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
    fn at(&self, rank: usize) -> &Pricing {
        let fallback = rank.checked_sub(1).and_then(|at| self.fallbacks.get(at));
        fallback.unwrap_or(&self.own)
    }
}

/// The way in which a request was let in.
pub enum Admission {
    /// It is paid for.
    Admitted(Box<Admitted>),
    /// Its account has too little to let it in without a look at the account's other requests.
    Tight(Box<Priced>),
}

/// A valid request with the prices that its account pays at this moment.
pub struct Priced {
    validated: Validated,
    prices: RequestPrices,
    amounts: RequestAmounts,
}

/// Holds the most that the request can cost, unless it costs nothing, where its account has plenty.
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
    /// The prices of this moment. Those that were never charged before are noted in the journal.
    #[must_use]
    pub fn new(ledger: &Ledger, validated: Validated) -> Self {
        let now = UnixMs::now();
        let prices = RequestPrices::new(ledger, &validated.resolved, now);
        let amounts = RequestAmounts::compute(&prices, &validated, Holding::Whole, now);
        Self { validated, prices, amounts }
    }

    /// The request as its targets' protocols read it.
    #[must_use]
    pub fn validated(&self) -> &Validated {
        &self.validated
    }

    /// The request without its prices.
    #[must_use]
    pub fn into_validated(self) -> Validated {
        self.validated
    }

    /// The account that pays.
    #[must_use]
    pub fn account(&self) -> AccountId {
        self.validated.resolved.key.account
    }

    /// Lowers the amounts to what a provider's count makes of the request. Readings of it whose tokens
    /// nobody has counted are dropped where they could cost more: another model has another tokenizer.
    /// Returns whether the amounts are lower now; nothing has changed otherwise.
    pub fn counted(&mut self, counted: &Counted) -> bool {
        if !self.validated.counted(counted) {
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

    /// The amount that a hold of this kind sets aside.
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

    /// What each reading of the request can cost, as a function of its output limit.
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

    /// Sets money aside for the request.
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

    /// The request as one that is paid for.
    #[must_use]
    pub fn admitted(self, payment: Payment, holding: Holding) -> Box<Admitted> {
        Admitted::new(self.validated, payment, self.prices, self.amounts, holding)
    }

    /// A refusal of the ledger as an answer.
    #[must_use]
    pub fn refused(&self, refusal: &Refusal, holding: Holding) -> GatewayError {
        refused(refusal, self, holding)
    }
}

/// What a request can cost by the prices of one moment.
struct RequestAmounts {
    /// By its first reading.
    own: Quote,
    at: UnixMs,
    /// The most of the request's own model.
    bound: Nanousd,
    /// What is held at first: of the dearest model that may serve the request.
    amount: Nanousd,
    /// The least once an upstream of its own model has taken the request.
    floor: Nanousd,
}

impl RequestAmounts {
    /// The amounts of a request that costs nothing.
    fn nothing() -> Self {
        let (own, at, zero) = (Quote::default(), UnixMs(0), Nanousd::ZERO);
        Self { own, at, bound: zero, amount: zero, floor: zero }
    }

    /// Whichever target is asked, and in whatever words: the dearest of them is covered, of whatever
    /// model. The least is that of the model itself.
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

/// What the call costs by these prices that is taken in `now`.
fn quote(prices: &Pricing, call: &dyn Call, now: UnixMs) -> Quote {
    quote_bound(prices, call, &call.max_usage(), now)
}

/// What the call costs by these prices where it uses `bound` at most.
pub(super) fn quote_bound(prices: &Pricing, call: &dyn Call, bound: &Usage, now: UnixMs) -> Quote {
    // A round that reads the prompt again from the cache is a prompt by itself: providers bill a long one
    // dearer, and not many short ones.
    let bound = Usage { cache_read_tokens: 0, ..*bound };
    prices.list.quote(&call.traits(), &bound, now)
}

/// The most that the call can cost, and the least once an upstream has taken it.
fn bounds(quote: &Quote, call: &dyn Call) -> (Nanousd, Nanousd) {
    let least = call.min_usage();
    let floor = quote.prices(&least, &Traits::default()).cost(&least);
    (most(quote.dearest(), call), floor)
}

/// What a hold for a part of the call's output sets aside; `None` for one that covers all of it.
fn slice(quote: &Quote, call: &dyn Call, holding: Holding) -> Option<Nanousd> {
    if holding == Holding::Whole {
        return None;
    }
    let part = Usage { requests: 1, ..holding.part_of(call.max_usage()) };
    Some(dearest_prices(quote.dearest(), call).cost(&part))
}

/// The most that the call can cost: every token billed in the dearest way that it allows.
fn most(prices: &Prices, call: &dyn Call) -> Nanousd {
    dearest_prices(prices, call).cost(&Usage { requests: 1, ..call.max_usage() })
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
            Enough::for_request(priced, *available).insufficient()
        }
        Refusal::Held { available, held } => {
            Enough::for_request(priced, *available).held(*held).retry_after(RETRY_HELD)
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
