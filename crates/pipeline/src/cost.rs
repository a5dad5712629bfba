//! Operator's cost of a request's tries, answered or not.

use std::sync::Arc;

use crate::{AdmittedRequest, AnsweredParts, Bill, Relaying, TryCost, TryTarget};
use tollgate_config::snapshot::{Target, TargetCost};
use tollgate_ledger::{CostKind, LossCause};
use tollgate_money::money::{Nanousd, Rate};
use tollgate_money::price::{Traits, Usage, UsageSource};

impl AdmittedRequest {
    /// Record a retry although the upstream may bill the abandoned try in full.
    pub fn retry(&mut self, at: TryTarget) {
        self.retry_with(self.bound, (self.call.max_usage(), UsageSource::Estimated), at);
    }

    /// Record a retry of a split request: the answered parts are paid for twice.
    pub fn retry_parts(&mut self, at: TryTarget) {
        if let Some(AnsweredParts { usage, source, .. }) = self.partial.take() {
            let amount = self.quote.prices(&usage, &Traits::default()).cost(&usage);
            self.retry_with(amount, (usage, source), at);
        }
    }

    fn retry_with(&mut self, amount: Nanousd, usage: (Usage, UsageSource), at: TryTarget) {
        self.retried = self.retried.saturating_add(amount);
        let cost = self.cost_by_prices(&at, CostKind::Retry, usage, &Traits::default());
        self.retry_costs.extend(cost);
    }

    /// Costs of the tries of a request that ends in `bill` without a relayed answer: the abandoned
    /// tries, and the last one at `last`.
    #[must_use]
    pub fn costs(&mut self, bill: &Bill, last: Option<TryTarget>) -> Vec<TryCost> {
        let mut costs = std::mem::take(&mut self.retry_costs);
        let most = (self.call.max_usage(), UsageSource::Estimated);
        let used = match (&bill.settlement, bill.loss) {
            (Some(settled), _) => Some((CostKind::Answer, (settled.usage, settled.source))),
            (None, Some((LossCause::Undelivered, _))) => {
                let parts = self.partial.map(|parts| (parts.usage, parts.source));
                Some((CostKind::Unpaid, parts.unwrap_or(most)))
            }
            (None, Some(_)) => Some((CostKind::Unpaid, most)),
            (None, None) => None,
        };
        if let Some((at, (kind, usage))) = last.zip(used) {
            costs.extend(self.cost_by_prices(&at, kind, usage, &Traits::default()));
        }
        costs
    }

    /// Cost of a usage by a target's cost prices; `None` if it has none.
    fn cost_by_prices(
        &self,
        at: &TryTarget,
        kind: CostKind,
        (usage, source): (Usage, UsageSource),
        served: &Traits,
    ) -> Option<TryCost> {
        let Some(TargetCost::Prices(list)) = &at.target.cost else { return None };
        let prices = list.prices(&self.call.traits(), served, &usage, self.taken_in);
        // Each try counts as a request at the upstream, whatever the customer pays.
        let requests = u64::from(prices.request > Rate::default());
        let usage = Usage { requests, ..usage };
        let cost = prices.cost(&usage);
        let upstream_model = self.resolved.name_at(&at.target).to_owned();
        let (at, model) = (at.clone(), Arc::clone(&self.model().id));
        Some(TryCost { at, model, upstream_model, kind, usage: (usage, source), cost })
    }
}

impl Relaying {
    /// Costs of the tries of a request that ends in `bill` and was answered by `target`; `at` is
    /// evaluated only if there is a cost.
    #[must_use]
    pub fn costs(
        &mut self,
        bill: &Bill,
        target: &Target,
        at: impl FnOnce() -> TryTarget,
    ) -> Vec<TryCost> {
        let mut costs = std::mem::take(&mut self.admitted.retry_costs);
        if target.cost.is_none() {
            return costs;
        }
        let (kind, usage) = match &bill.settlement {
            // The upstream bills the whole answer although the customer got a part.
            Some(_) if self.meter.given_up().is_some() => (CostKind::Answer, self.unpaid()),
            Some(settled) => (CostKind::Answer, (settled.usage, settled.source)),
            None if bill.loss.is_none() => return costs,
            None => (CostKind::Unpaid, self.unpaid()),
        };
        let (admitted, at) = (&self.admitted, at());
        costs.extend(match target.cost {
            Some(TargetCost::Reported) => self.meter.reported_cost().map(|cost| TryCost {
                at: at.clone(),
                model: Arc::clone(&admitted.model().id),
                upstream_model: admitted.resolved.name_at(&at.target).to_owned(),
                kind,
                usage,
                cost,
            }),
            _ => admitted.cost_by_prices(&at, kind, usage, &self.meter.served()),
        });
        costs
    }

    /// Usage of an unpaid answer: as reported, or else the bound.
    fn unpaid(&self) -> (Usage, UsageSource) {
        match self.meter.measure() {
            (usage, UsageSource::Upstream) => (usage, UsageSource::Upstream),
            _ => (self.admitted.call.max_usage(), UsageSource::Estimated),
        }
    }
}
