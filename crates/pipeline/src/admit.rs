//! Admission of a request whose account can pay for it.

use std::sync::Arc;

use crate::quote::{RequestAmounts, RequestPrices};
use crate::{AdmittedRequest, Holding, Payment, PricedRequest, ValidatedRequest};
use tollgate_holds::PLENTY;
use tollgate_ledger::{Ledger, Refusal, RequestId};
use tollgate_types::error::GatewayError;

/// Result of the admission of a request.
pub enum AdmitOutcome {
    /// Admitted with its payment.
    Admitted(Box<AdmittedRequest>),
    /// The account has little money: the shares of its parallel requests decide.
    Tight(Box<PricedRequest>),
}

/// Hold the largest cost of the request if the account has plenty. Free requests need no hold.
///
/// # Errors
/// `RateLimited` when the key may not spend so much, or `Overloaded` when the store takes no new holds,
/// or a node of a fleet is cut off from its treasury.
pub async fn admit(
    ledger: &Arc<Ledger>,
    request: RequestId,
    validated: ValidatedRequest,
) -> Result<AdmitOutcome, GatewayError> {
    let resolved = &validated.resolved;
    // What costs nothing needs no hold, and no look-up of what the account pays.
    if !resolved.operation.is_billed() {
        let own = Arc::clone(&resolved.model.prices);
        let prices = RequestPrices { own, fallbacks: Vec::new() };
        let priced = PricedRequest { validated, prices, amounts: RequestAmounts::nothing() };
        return Ok(AdmitOutcome::Admitted(priced.admitted(Payment::Free, Holding::Whole)));
    }
    let priced = PricedRequest::new(ledger, validated);
    if !ledger.has_plenty(priced.account(), priced.amounts.amount, PLENTY) {
        return Ok(AdmitOutcome::Tight(Box::new(priced)));
    }
    match priced.hold(ledger, request, Holding::Whole).await {
        Ok(hold) => {
            Ok(AdmitOutcome::Admitted(priced.admitted(Payment::Held(hold), Holding::Whole)))
        }
        // Another request has taken the money since `has_plenty`, or the fleet has less than this node had heard.
        Err(Refusal::Insufficient { .. } | Refusal::Held { .. }) => {
            Ok(AdmitOutcome::Tight(Box::new(priced)))
        }
        Err(refusal) => Err(priced.refused(&refusal, Holding::Whole)),
    }
}
