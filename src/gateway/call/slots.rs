//! The budget of calls to upstreams: how many there may be at one time, in all and for one account.
//!
//! A request has one call under way at a time, and holds its slot until it is settled: also when its
//! customer has left and the answer is read on. So the descriptors and the memory that calls take are
//! bounded whichever way requests come, and one account leaves room for others.

use std::sync::Arc;
use std::time::Duration;

use crate::config::snapshot::Limits;
use crate::error::{ErrorKind, GatewayError};
use crate::gateway::exchange::Exchange;
use crate::gateway::listen::open::Open;
use crate::limits::{Count, Entered};
use crate::metrics::{Metrics, Shed};

/// When a customer should come again who found no slot: one becomes free with every answer.
const RETRY_SLOT: Duration = Duration::from_secs(1);

/// The slots of this process.
pub(crate) struct UpstreamSlots {
    taken: Count,
    metrics: Arc<Metrics>,
}

/// A request's slot, given back on drop.
pub(crate) struct UpstreamSlot {
    slots: Arc<UpstreamSlots>,
    /// The account's part in it; `None` for a request without a customer.
    _account: Option<Entered>,
}

impl Drop for UpstreamSlot {
    fn drop(&mut self) {
        self.slots.taken.give_back(1);
        self.slots.metrics.upstream_slot_left();
    }
}

impl UpstreamSlots {
    /// Slots of which all are free.
    pub(crate) fn new(metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { taken: Count::default(), metrics })
    }

    /// Take a slot for the request, unless it has one.
    ///
    /// # Errors
    /// `Overloaded` when all are taken, `RateLimited` when the account has its share.
    pub(crate) fn enter(
        self: &Arc<Self>,
        open: &Open,
        exchange: &mut Exchange,
    ) -> Result<(), GatewayError> {
        if exchange.upstream_slot.is_some() {
            return Ok(());
        }
        let limits: &Limits = &exchange.snapshot.limits;
        let (all, of_account) = (open.upstream_calls_max(limits), open.of_account(limits));
        let max = of_account.upstream_calls;
        let account = exchange.place.as_ref().and_then(|place| place.account());
        let account = account.map(|account| account.enter(|in_use| &in_use.upstream_calls, max));
        if account.as_ref().is_some_and(Option::is_none) {
            return Err(self.account_is_full(max));
        }
        if !self.taken.take(1, all) {
            self.metrics.request_shed(Shed::UpstreamCalls);
            let message = "Too many calls to providers are under way. Try again shortly.";
            return Err(GatewayError::new(ErrorKind::Overloaded, message).retry_after(RETRY_SLOT));
        }
        self.metrics.upstream_slot_taken();
        let slots = Arc::clone(self);
        exchange.upstream_slot = Some(UpstreamSlot { slots, _account: account.flatten() });
        Ok(())
    }

    fn account_is_full(&self, max: usize) -> GatewayError {
        self.metrics.request_shed(Shed::AccountUpstreamCalls);
        let message = format!(
            "This account has {max} calls to providers under way, all that one account may have \
             here. Answers that were abandoned count until the provider has ended them. Send fewer \
             at one time, and try again when one of them has ended."
        );
        let error = GatewayError::new(ErrorKind::RateLimited, message);
        error.code("ConcurrencyExceeded").retry_after(RETRY_SLOT)
    }
}
