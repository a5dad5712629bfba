//! Admitting a request whose account has little money: its share, the means that make it fit, and the
//! line in which it may wait.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use pingora_proxy::Session;

use crate::balance::Candidates;
use crate::config::snapshot::Route;
use crate::error::GatewayError;
use crate::gateway::call::token_count;
use crate::gateway::hold::clamp::{Rereading, may_be_clamped};
use crate::gateway::request::context::RequestContext;
use crate::gateway::request::services::Gateway;
use crate::gateway::wire::error::client_disconnected;
use crate::gateway::wire::memory::held::HeldBody;
use crate::gateway::wire::offload;
use crate::holds::{self, FitError, Funds, HoldFailure, HoldKind, Needs, TightCall};
use crate::ledger::{Hold, Ledger, Refusal, RequestId};
use crate::money::Nanousd;
use crate::options::holds::{HoldRules, Means};
use crate::pipeline::{
    AdmittedRequest, Holding, Payment, PricedRequest, PromptCount, affordable_output, cost_at,
};
use crate::protocols::output_limit::OutputLimit;

/// A valid request of an account with little money.
pub(crate) struct TightRequest {
    pub(crate) priced: Box<PricedRequest>,
    pub(crate) candidates: Candidates,
    pub(crate) body: HeldBody,
    pub(crate) rereading: Rereading,
}

impl TightRequest {
    /// The request of this exchange, which came by `route`.
    pub(crate) fn new(
        priced: Box<PricedRequest>,
        candidates: Candidates,
        body: HeldBody,
        ctx: &RequestContext,
        route: Arc<Route>,
    ) -> Self {
        let (snapshot, path_params) = (Arc::clone(&ctx.snapshot), ctx.routing.path_params.clone());
        let key = Arc::clone(&priced.validated().resolved.key);
        let rereading = Rereading { snapshot, key, route, path_params };
        Self { priced, candidates, body, rereading }
    }
}

/// A request that is paid for, with the body that goes upstream.
pub(crate) struct FundedRequest {
    pub(crate) admitted: Box<AdmittedRequest>,
    pub(crate) candidates: Candidates,
    pub(crate) body: HeldBody,
}

/// Admits the request by the first means that makes it fit, unless its customer leaves meanwhile.
pub(crate) async fn admit(
    gateway: &Gateway,
    session: &mut Session,
    ctx: &mut RequestContext,
    request: TightRequest,
) -> Result<FundedRequest, GatewayError> {
    let account = request.priced.account();
    let mut rules = rules(&gateway.ledger, ctx, &request.priced);
    if !may_be_clamped(&session.req_header().headers)? {
        rules.means.retain(|means| *means != Means::Clamp);
    }
    let customers = session.req_header().headers.clone();
    let ledger = &gateway.ledger;
    let limit = clampable(&rules, &request);
    let (id, counted) = (ctx.id, None);
    let mut call =
        PendingRequest { gateway, customers, ledger, id, rules: &rules, request, limit, counted };
    let fitted = tokio::select! {
        biased;
        // The client first: nothing is held for one that has disconnected.
        left = session.as_downstream_mut().read_body_or_idle(true) => {
            let error = left.err().unwrap_or_else(|| {
                pingora::Error::new(pingora::ErrorType::ConnectionClosed)
            });
            return Err(client_disconnected(&error));
        }
        fitted = holds::fit(&gateway.hold_queue, account, &rules, &mut call) => fitted,
    };
    let (held, seat) = fitted.map_err(|unfit| call.refused(unfit))?;
    ctx.admission.seat = Some(seat);
    Ok(call.admitted(held))
}

/// Hold rules of the request: the account's, else the model's, else the configured default.
fn rules(ledger: &Ledger, ctx: &RequestContext, priced: &PricedRequest) -> HoldRules {
    let model = &priced.validated().resolved.model;
    let rules = ctx.snapshot.holds.with(&model.holds);
    match ledger.hold_overrides(priced.account()) {
        Some(overrides) => rules.with(&overrides),
        None => rules,
    }
}

/// The output limit of the request, where it may be clamped.
fn clampable(rules: &HoldRules, request: &TightRequest) -> Option<OutputLimit> {
    if !rules.allows(Means::Clamp) {
        return None;
    }
    let TightRequest { priced, body, rereading, .. } = request;
    let limits = &priced.validated().resolved.model.limits;
    let read = || rereading.limit(&body.bytes, limits, rules.output_floor);
    offload::run_now(body.bytes.len(), read)
}

/// The request as the loop over the means sees it.
struct PendingRequest<'a> {
    gateway: &'a Gateway,
    /// The headers of the customer's request.
    customers: HeaderMap,
    ledger: &'a Arc<Ledger>,
    id: RequestId,
    rules: &'a HoldRules,
    request: TightRequest,
    limit: Option<OutputLimit>,
    counted: Option<PromptCount>,
}

/// A hold, and how the request is served under it.
struct HoldGrant {
    hold: Hold,
    holding: Holding,
    clamped: Option<ClampedRequest>,
}

/// A request with its output limit lowered.
struct ClampedRequest {
    tokens: u64,
    body: Bytes,
    priced: Box<PricedRequest>,
}

impl PendingRequest<'_> {
    fn slice(&self) -> Holding {
        Holding::Slice { output_tokens: self.rules.slice }
    }

    /// Lowest output limit to which the request may be clamped: a lower requested limit is not clamped.
    fn floor(&self) -> u64 {
        self.rules.output_floor
    }

    /// The request with the largest output limit that costs at most `funds`, if that is not below the floor.
    fn clamp(&self, funds: Nanousd) -> Option<ClampedRequest> {
        let TightRequest { priced, body, rereading, .. } = &self.request;
        let tokens = affordable_output(&priced.output_costs(), funds)?;
        let limit = self.limit.as_ref().filter(|_| tokens >= self.floor())?;
        let read = || rereading.lowered(&body.bytes, limit, tokens);
        let (body, validated) = offload::run_now(body.bytes.len(), read)?;
        let mut priced = Box::new(PricedRequest::new(self.ledger, validated));
        if let Some(counted) = &self.counted {
            priced.apply_count(counted);
        }
        // It is read anew, and what it costs then is what counts.
        let fits = priced.amount(Holding::Whole) <= funds;
        fits.then_some(ClampedRequest { tokens, body, priced })
    }

    fn admitted(self, held: HoldGrant) -> FundedRequest {
        let HoldGrant { hold, holding, clamped } = held;
        let TightRequest { priced, candidates, mut body, .. } = self.request;
        let Some(ClampedRequest { tokens, body: lowered, priced }) = clamped else {
            let admitted = priced.admitted(Payment::Held(hold), holding);
            return FundedRequest { admitted, candidates, body };
        };
        body.bytes = lowered;
        let mut admitted = priced.admitted(Payment::Held(hold), holding);
        admitted.clamped_to(tokens);
        FundedRequest { admitted, candidates, body }
    }

    fn refused(&self, unfit: FitError<Refusal>) -> GatewayError {
        let refusal = match unfit {
            FitError::Refused(refusal) => refusal,
            FitError::Short { allowance, needs } if needs.whole > allowance.total => {
                Refusal::Insufficient { available: allowance.available }
            }
            FitError::Short { allowance, .. } => Refusal::Held {
                available: allowance.available,
                held: allowance.total.saturating_sub(allowance.available),
            },
        };
        self.request.priced.refused(&refusal, Holding::Whole)
    }
}

impl TightCall for PendingRequest<'_> {
    type Held = HoldGrant;
    type Refused = Refusal;

    async fn funds(&self) -> Result<Funds, Refusal> {
        let account = self.request.priced.account();
        let own = self.ledger.account(account).ok_or(Refusal::UnknownAccount)?.balance;
        let balance = match self.ledger.shared_funds() {
            None => own,
            // Until the treasury answers, what this node has out is all that is known.
            Some(funds) => match funds.balances(&[account]).await {
                Ok(balances) => balances.get(&account).map_or(own, |(balance, _)| *balance),
                Err(_) => own,
            },
        };
        if balance.debt > Nanousd::ZERO {
            return Err(Refusal::InDebt { debt: balance.debt, available: balance.available });
        }
        let unused_credit = balance.credit_unused();
        Ok(Funds { available: balance.available, held: balance.held, unused_credit })
    }

    fn gateways(&self) -> u64 {
        self.ledger.shared_funds().map_or(1, |funds| funds.nodes().max(1).into())
    }

    fn needs(&self) -> Needs {
        let priced = &self.request.priced;
        let can_roll = priced.validated().can_roll();
        let whole = priced.amount(Holding::Whole);
        let slice = can_roll.then(|| priced.amount(self.slice()));
        let at_floor = || cost_at(&priced.output_costs(), self.floor());
        Needs {
            whole,
            at_floor: self.limit.as_ref().map(|_| at_floor()),
            slice: slice.filter(|slice| *slice < whole),
        }
    }

    async fn count(&mut self) {
        let TightRequest { priced, candidates, body, .. } = &mut self.request;
        let (within, validated) = (self.rules.count_timeout, priced.validated());
        let counted = token_count::count(
            self.gateway,
            &self.customers,
            validated,
            candidates,
            &body.bytes,
            within,
        );
        // Boxed: it is large, and most requests do without it.
        let Some(counted) = Box::pin(counted).await else { return };
        if priced.apply_count(&counted) {
            let validated = priced.validated();
            candidates.retain(|rank, target| validated.is_for(rank.model, target.upstream.dialect));
            self.counted = Some(counted);
        }
    }

    async fn hold(&mut self, kind: HoldKind) -> Result<HoldGrant, HoldFailure<Refusal>> {
        let (holding, clamped) = match kind {
            HoldKind::Whole => (Holding::Whole, None),
            HoldKind::Slice => (self.slice(), None),
            HoldKind::Clamped(funds) => match self.clamp(funds) {
                None => return Err(HoldFailure::Unclampable),
                clamped => (Holding::Whole, clamped),
            },
        };
        let own = &self.request.priced;
        let priced = clamped.as_ref().map_or(own, |clamped| &clamped.priced);
        match priced.hold(self.ledger, self.id, holding).await {
            Ok(hold) => Ok(HoldGrant { hold, holding, clamped }),
            Err(Refusal::Insufficient { available }) => {
                Err(HoldFailure::Short(Funds { available, ..Funds::default() }))
            }
            Err(Refusal::Held { available, held }) => {
                Err(HoldFailure::Short(Funds { available, held, ..Funds::default() }))
            }
            Err(refusal) => Err(HoldFailure::Refused(refusal)),
        }
    }
}
