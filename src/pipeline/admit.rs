//! What the request can cost, and whether the account can pay it.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::UnixMs;
use crate::config::snapshot::Pricing;
use crate::error::{ErrorKind, GatewayError};
use crate::ledger::{Ledger, Refusal, RequestId, Reserve};
use crate::money::Nanousd;
use crate::pipeline::validate::ProtocolReading;
use crate::pipeline::{Payment, Resolved, TryCost, Validated, limit};
use crate::price::{Prices, Quote, Traits, Usage, UsageSource};
use crate::pricing;
use crate::protocols::{Call, Codec, Delivery, Dialect, Operation};

/// When a customer whose money is in flight should try again. Most calls end within seconds.
const RETRY_HELD: Duration = Duration::from_secs(2);
/// When to try again after the store refused new holds.
const RETRY_STORE: Duration = Duration::from_secs(10);

/// A request that is paid for: from here on it ends in exactly one settlement.
#[derive(Debug)]
pub struct Admitted {
    /// Who asks for which model.
    pub resolved: Resolved,
    /// What the protocol of the target says about it that is asked now; of the first before one is.
    pub call: Box<dyn Call>,
    /// The protocol in which `call` reads the request.
    pub(super) codec: &'static dyn Codec,
    /// What the protocols of other targets say about it.
    pub(super) others: Vec<ProtocolReading>,
    /// What pays for the request.
    pub payment: Payment,
    /// The prices that its account pays; neither a reload nor another rule changes them for this
    /// request.
    prices: Arc<Pricing>,
    /// What it costs by them.
    pub quote: Quote,
    /// When it was taken in: its prices are of that moment.
    pub(super) taken_in: UnixMs,
    /// The most that the request can cost: what was held for it at first.
    pub bound: Nanousd,
    /// The most that upstreams may bill for tries that were followed by another.
    pub retried: Nanousd,
    /// What those tries cost the operator, where targets have prices of their own.
    pub(super) retry_costs: Vec<TryCost>,
    /// What was used of a request that is answered in parts.
    pub partial: Option<(Usage, UsageSource)>,
}

/// Holds the most that the request can cost, unless it costs nothing.
///
/// # Errors
/// `InsufficientBalance`, `BalanceHeld`, `RateLimited` when the key may not spend so much, or
/// `Overloaded` when the store takes no new holds, or a node of a fleet is cut off from its treasury.
pub async fn admit(
    ledger: &Arc<Ledger>,
    request: RequestId,
    validated: Validated,
) -> Result<Admitted, GatewayError> {
    let resolved = &validated.resolved;
    if !resolved.operation.is_billed() {
        let list = Arc::clone(&resolved.model.prices);
        let quote = Quote::default();
        return Ok(Admitted::new(validated, Payment::Free, list, quote, UnixMs(0), Nanousd::ZERO));
    }
    let now = UnixMs::now();
    let (account, model) = (resolved.key.account, &resolved.model);
    let name = resolved.asked.as_deref().unwrap_or(&model.id);
    let prices = pricing::prices_for(ledger, account, (model, name), now);
    // Whichever target is asked, and in whatever words: the dearest of them is covered.
    let own = quote(&prices, validated.call.as_ref(), now);
    let (mut amount, mut floor) = bounds(&own, validated.call.as_ref());
    for ProtocolReading { call, .. } in &validated.others {
        let (most, least) = bounds(&quote(&prices, call.as_ref(), now), call.as_ref());
        (amount, floor) = (amount.max(most), floor.max(least));
    }
    let floor = floor.min(amount);
    let hold = ledger
        .admit(Reserve {
            account,
            key: resolved.key.id,
            model: Arc::clone(&model.id),
            price: Some(pricing::noted_version(ledger, account, model, &prices)),
            request,
            amount,
            floor,
        })
        .await
        .map_err(|refusal| refused(&refusal, amount, resolved.operation))?;
    Ok(Admitted::new(validated, Payment::Held(hold), prices, own, now, amount))
}

impl Admitted {
    fn new(
        validated: Validated,
        payment: Payment,
        prices: Arc<Pricing>,
        quote: Quote,
        taken_in: UnixMs,
        bound: Nanousd,
    ) -> Self {
        let Validated { resolved, call, codec, others } = validated;
        Self {
            resolved,
            call,
            codec,
            others,
            payment,
            prices,
            quote,
            taken_in,
            bound,
            retried: Nanousd::ZERO,
            retry_costs: Vec::new(),
            partial: None,
        }
    }

    /// A target that speaks `dialect` is asked next: the request is what its protocol reads in it, and
    /// costs what it costs so. Says whether that protocol takes it.
    pub fn turn_to(&mut self, dialect: Dialect) -> bool {
        if self.is_for(dialect) {
            return true;
        }
        let mut others = self.others.iter_mut();
        let Some(other) = others.find(|other| other.codec.dialects().contains(&dialect)) else {
            return false;
        };
        std::mem::swap(&mut self.codec, &mut other.codec);
        std::mem::swap(&mut self.call, &mut other.call);
        if self.resolved.operation.is_billed() {
            self.quote = quote(&self.prices, self.call.as_ref(), self.taken_in);
        }
        true
    }

    /// Whether the request is read now as those upstreams read it that speak `dialect`.
    #[must_use]
    pub fn is_for(&self, dialect: Dialect) -> bool {
        self.codec.dialects().contains(&dialect)
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
    prices.list.quote(&call.traits(), &call.bound(), now)
}

/// The most that the call can cost, and the least once an upstream has taken it.
fn bounds(quote: &Quote, call: &dyn Call) -> (Nanousd, Nanousd) {
    let least = call.floor();
    let floor = quote.prices(&least, &Traits::default()).cost(&least);
    (most(quote.dearest(), call), floor)
}

/// The most that the call can cost: every input token billed in the dearest way that it allows.
fn most(prices: &Prices, call: &dyn Call) -> Nanousd {
    let dearest = Prices {
        input: prices.input_dearest(call.input_ways()),
        output: if call.sounds() { prices.output.max(prices.audio_output) } else { prices.output },
        ..*prices
    };
    dearest.cost(&Usage { requests: 1, ..call.bound() })
}

/// How a request of this kind is made cheaper, where one field does it whatever the model.
fn cheaper(operation: Operation) -> &'static str {
    match operation {
        Operation::Chat | Operation::Messages => ", or lower `max_tokens`",
        Operation::Responses => ", or lower `max_output_tokens`",
        Operation::CountTokens
        | Operation::Embeddings
        | Operation::ImageGeneration
        | Operation::ImageEdit
        | Operation::Video
        | Operation::Speech => "",
    }
}

fn refused(refusal: &Refusal, amount: Nanousd, operation: Operation) -> GatewayError {
    match refusal {
        Refusal::InDebt { debt, .. } => GatewayError::new(
            ErrorKind::InsufficientBalance,
            format!(
                "This account owes ${debt} for earlier requests, which cost more than its balance. \
                 Add credit: it pays the debt first."
            ),
        ),
        Refusal::Insufficient { available } => GatewayError::new(
            ErrorKind::InsufficientBalance,
            format!(
                "This request can cost up to ${amount}, and the balance is ${available}. \
                 Add credit{}.",
                cheaper(operation)
            ),
        ),
        Refusal::Held { available, held } => GatewayError::new(
            ErrorKind::BalanceHeld,
            format!(
                "This request can cost up to ${amount}; ${available} is free and ${held} is held \
                 by requests in flight. Try again when they have ended, or add credit."
            ),
        )
        .retry_after(RETRY_HELD),
        Refusal::Capped(capped) | Refusal::ShareUsed { capped, .. } => {
            limit::capped(capped, amount, UnixMs::now())
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
