//! What the request can cost, and whether the account can pay it.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::UnixMs;
use crate::error::{ErrorKind, GatewayError};
use crate::ledger::{Ledger, Refusal, RequestId, Reserve};
use crate::money::Nanousd;
use crate::pipeline::{Payment, Resolved, Validated, limit};
use crate::price::Prices;
use crate::protocols::{Call, Operation};

/// When a customer whose money is in flight should try again. Most calls end within seconds.
const RETRY_HELD: Duration = Duration::from_secs(2);
/// When to try again after the store refused new holds.
const RETRY_STORE: Duration = Duration::from_secs(10);

/// A request that is paid for: from here on it ends in exactly one settlement.
#[derive(Debug)]
pub struct Admitted {
    /// What came before.
    pub resolved: Resolved,
    /// What its protocol says about it.
    pub call: Box<dyn Call>,
    /// The money.
    pub payment: Payment,
    /// The prices at this moment; a reload does not change them for this request.
    pub prices: Prices,
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
    let Validated { resolved, call } = validated;
    if !resolved.operation.is_billed() {
        let (payment, prices) = (Payment::Free, Prices::default());
        return Ok(Admitted { resolved, call, payment, prices });
    }
    let prices = resolved.model.prices.of(&call.traits());
    let amount = most(&prices, call.as_ref());
    let floor = prices.cost(&call.floor()).min(amount);
    let hold = ledger
        .admit(Reserve {
            account: resolved.key.account,
            key: resolved.key.id,
            model: Arc::clone(&resolved.model.id),
            request,
            amount,
            floor,
        })
        .await
        .map_err(|refusal| refused(&refusal, amount, resolved.operation))?;
    Ok(Admitted { resolved, call, payment: Payment::Held(hold), prices })
}

/// The most that the call can cost: every input token billed in the dearest way.
fn most(prices: &Prices, call: &dyn Call) -> Nanousd {
    let dearest = Prices { input: prices.input_dearest(), ..*prices };
    dearest.cost(&call.bound())
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
