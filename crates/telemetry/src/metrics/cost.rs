//! Metrics of the operator's costs, beside the charges to customers.

use prometheus::{CounterVec, Registry};

use super::register::counters;
use super::{Metrics, dollars};
use tollgate_money::money::Nanousd;

/// Revenue and cost of calls with a known cost.
pub(super) struct CostMetrics {
    cost: CounterVec,
    charged: CounterVec,
}

impl CostMetrics {
    pub(super) fn new(r: &Registry) -> Self {
        let labels = &["model", "upstream"];
        Self {
            cost: counters(
                r,
                "tollgate_cost_dollars_total",
                "US dollars that calls cost the operator, where targets have a cost.",
                labels,
            ),
            charged: counters(
                r,
                "tollgate_margin_charged_dollars_total",
                "US dollars that customers were charged for calls whose cost is known.",
                labels,
            ),
        }
    }

    /// Both at zero, for calls of a target.
    pub(super) fn begin(&self, model: &str, upstream: &str) {
        let labels = [model, upstream];
        self.cost.with_label_values(&labels).inc_by(0.0);
        self.charged.with_label_values(&labels).inc_by(0.0);
    }
}

impl Metrics {
    /// Adds the operator's cost and the customer's charge of a call.
    pub fn costed(&self, model: &str, upstream: &str, charged: Nanousd, cost: Nanousd) {
        let labels = [model, upstream];
        self.costs.cost.with_label_values(&labels).inc_by(dollars(cost).max(0.0));
        self.costs.charged.with_label_values(&labels).inc_by(dollars(charged).max(0.0));
    }
}
