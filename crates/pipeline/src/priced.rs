//! A valid request with its prices: what it can cost, and the hold for that.

use std::sync::Arc;
use std::time::Duration;

use crate::affordable::OutputCost;
use crate::quote::{RequestAmounts, RequestPrices, bounds, quote};
use crate::shortfall::{CostSummary, InsufficientFunds};
use crate::{AdmittedRequest, Holding, Payment, PromptCount, ValidatedRequest, limit};
use tollgate_ledger::{AccountId, Hold, Ledger, Refusal, RequestId, Reserve};
use tollgate_money::money::Nanousd;
use tollgate_pricing as pricing;
use tollgate_protocols::Call;
use tollgate_types::clock::UnixMs;
use tollgate_types::error::{ErrorKind, GatewayError};

/// `Retry-After` when other requests hold the money: most calls end within seconds.
const RETRY_HELD: Duration = Duration::from_secs(2);
/// `Retry-After` when the store refuses new holds.
const RETRY_STORE: Duration = Duration::from_secs(10);

/// A valid request with its account's current prices.
pub struct PricedRequest {
    pub(super) validated: ValidatedRequest,
    pub(super) prices: RequestPrices,
    pub(super) amounts: RequestAmounts,
}

impl PricedRequest {
    /// Price a request at the current prices; price versions used for the first time are journaled.
    #[must_use]
    pub fn new(ledger: &Ledger, validated: ValidatedRequest) -> Self {
        let now = UnixMs::now();
        let prices = RequestPrices::new(ledger, &validated.resolved, now);
        let amounts = RequestAmounts::compute(&prices, &validated, Holding::Whole, now);
        Self { validated, prices, amounts }
    }

    /// The request as the targets' protocols read it.
    #[must_use]
    pub fn validated(&self) -> &ValidatedRequest {
        &self.validated
    }

    /// The request without its prices.
    #[must_use]
    pub fn into_validated(self) -> ValidatedRequest {
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
        // The hold is that of the counted reading, and no other may cost more than it.
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
    pub fn admitted(self, payment: Payment, holding: Holding) -> Box<AdmittedRequest> {
        AdmittedRequest::new(self.validated, payment, self.prices, self.amounts, holding)
    }

    /// Convert a refusal of the ledger to an error response.
    #[must_use]
    pub fn refused(&self, refusal: &Refusal, holding: Holding) -> GatewayError {
        refused(refusal, self, holding)
    }

    /// Amount and costs for a refusal that says what would be enough.
    fn cost_summary(&self) -> CostSummary<'_> {
        let (resolved, amount) = (&self.validated.resolved, self.amount(Holding::Whole));
        CostSummary { resolved, amount, costs: self.output_costs() }
    }
}

fn refused(refusal: &Refusal, priced: &PricedRequest, holding: Holding) -> GatewayError {
    match refusal {
        Refusal::InDebt { debt, .. } => GatewayError::new(
            ErrorKind::InsufficientBalance,
            format!(
                "This account owes ${debt} for earlier requests, which cost more than its balance. \
                 Add credit: it pays the debt first."
            ),
        ),
        Refusal::Insufficient { available } => {
            InsufficientFunds::for_request(priced.cost_summary(), *available).insufficient()
        }
        Refusal::Held { available, held } => {
            InsufficientFunds::for_request(priced.cost_summary(), *available)
                .held(*held)
                .retry_after(RETRY_HELD)
        }
        Refusal::Capped(capped) | Refusal::ShareUsed { capped, .. } => {
            limit::capped(capped, priced.amount(holding), UnixMs::now())
        }
        Refusal::UnknownAccount => {
            GatewayError::new(ErrorKind::PermissionDenied, "This API key's account is closed.")
        }
        // Nothing of the account's: its client may come again, and the cause is for the operator's log.
        Refusal::DiskFull | Refusal::CutOff | Refusal::Stopped => GatewayError::new(
            ErrorKind::Overloaded,
            "The gateway cannot take new requests at the moment. Try again shortly.",
        )
        .retry_after(RETRY_STORE)
        .cause(format!("the ledger refused a hold: {refusal:?}")),
    }
}
