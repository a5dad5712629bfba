//! The budget of calls to upstreams: how many there may be at one time, in all and for one account.
//!
//! A request has one call under way at a time, and holds its slot until it is settled: also when its
//! customer has left and the answer is read on. So the descriptors and the memory that calls take are
//! bounded whichever way requests come, and one account leaves room for others.

use std::sync::Arc;

use crate::config::snapshot::IntakeLimits;
use crate::error::GatewayError;
use crate::gateway::listen::connection_table::ConnectionTable;
use crate::gateway::listen::request_slots::{overloaded, too_many};
use crate::limits::{InUse, PoolRefusal, PoolRule, PooledUnits, UnitPool};
use crate::metrics::{Metrics, Shed};

/// The slots of this process.
pub(crate) struct UpstreamSlots {
    pool: Arc<UnitPool>,
    metrics: Arc<Metrics>,
}

/// A request's slot, given back on drop.
pub(crate) struct UpstreamSlot {
    metrics: Arc<Metrics>,
    _unit: PooledUnits,
}

impl Drop for UpstreamSlot {
    fn drop(&mut self) {
        self.metrics.upstream_slot_left();
    }
}

impl UpstreamSlots {
    /// Slots of which all are free.
    pub(crate) fn new(metrics: Arc<Metrics>) -> Self {
        Self { pool: Arc::default(), metrics }
    }

    /// Takes a slot for a request of this account.
    ///
    /// # Errors
    /// `Overloaded` when all are taken, `RateLimited` when the account has its share.
    pub(crate) fn enter(
        &self,
        open: &ConnectionTable,
        limits: &IntakeLimits,
        account: Option<&Arc<InUse>>,
    ) -> Result<UpstreamSlot, GatewayError> {
        let rule = PoolRule {
            max: open.upstream_calls_max(limits),
            percent: limits.per_account.requests_in_flight_percent,
        };
        let entered = self.pool.enter(account, |in_use| &in_use.upstream_calls, 1, rule);
        let unit = entered.map_err(|exhausted| self.refuse(exhausted))?;
        self.metrics.upstream_slot_taken();
        Ok(UpstreamSlot { metrics: Arc::clone(&self.metrics), _unit: unit })
    }

    fn refuse(&self, exhausted: PoolRefusal) -> GatewayError {
        match exhausted {
            PoolRefusal::Pool => {
                let message = "Too many calls to providers are under way. Try again shortly.";
                overloaded(&self.metrics, Shed::UpstreamCalls, message)
            }
            PoolRefusal::Share(share) => {
                let message = format!(
                    "This account may have {share} calls to providers under way at the moment. \
                     Abandoned answers count until the provider has ended them. Send fewer at one \
                     time, and try again when one of them has ended."
                );
                too_many(&self.metrics, Shed::AccountUpstreamCalls, message)
            }
        }
    }
}
