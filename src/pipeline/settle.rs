//! The end of every admitted request: posted or voided, exactly once.

use crate::ledger::{Settlement, VoidReason};
use crate::money::Nanousd;
use crate::pipeline::{Admitted, Relaying};
use crate::price::{Usage, UsageSource};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The response was relayed to its end.
    Complete,
    /// The upstream refused, failed, was never reached or stopped in the middle: what reached the
    /// customer and is of use is charged.
    UpstreamFailed,
    /// The customer went away. The upstream charges what it has begun, so at least the input is
    /// charged; else hanging up just before the end would be a way to use models for nothing.
    ClientGone,
    /// The response was cut because hold and balance were used up.
    Exhausted,
}

/// What a request has come to: what is charged for it, or nothing, and its hold is voided.
pub type Bill = Option<Settlement>;

/// What a request was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// What was used.
    pub usage: Usage,
    /// How that is known.
    pub source: UsageSource,
    /// What the account paid.
    pub charged: Nanousd,
}

impl Settled {
    /// Nothing was used and nothing paid.
    pub const NOTHING: Self =
        Self { usage: Usage::ZERO, source: UsageSource::None, charged: Nanousd::ZERO };
}

impl Admitted {
    /// What a request has come to that got no response to relay.
    #[must_use]
    pub fn bill(&self, ending: Ending) -> Bill {
        let floor = || self.price(self.call.floor(), UsageSource::Estimated);
        (ending == Ending::ClientGone).then(floor)
    }

    /// Sets aside what a bill comes to beyond the hold, as far as that is elsewhere in a fleet.
    pub async fn cover(&mut self, bill: &Settlement) {
        self.payment.cover(bill.charge).await;
    }

    /// Ends the request.
    pub fn settle(self, bill: Bill) -> Settled {
        let Some(settlement) = bill else {
            self.payment.void(VoidReason::UpstreamError);
            return Settled::NOTHING;
        };
        let Settlement { usage, source, .. } = settlement;
        Settled { usage, source, charged: self.payment.post(settlement) }
    }

    fn price(&self, usage: Usage, source: UsageSource) -> Settlement {
        let mut charge = self.prices.cost(&usage);
        if source == UsageSource::Estimated {
            // An estimate is no reason to take more than was held.
            charge = charge.min(self.payment.amount());
        }
        Settlement { charge, usage, source }
    }
}

impl Relaying {
    /// What a request has come to whose response was relayed, wholly or in part.
    #[must_use]
    pub fn bill(&self, ending: Ending) -> Bill {
        let failed = self.meter.has_failed();
        let of_use =
            self.meter.relayed().output_tokens > 0 || (self.meter.is_complete() && !failed);
        if !of_use && (failed || ending == Ending::UpstreamFailed) {
            return None;
        }
        let (usage, source) = self.meter.measure();
        Some(self.admitted.price(usage, source))
    }

    /// As [`Admitted::cover`].
    pub async fn cover(&mut self, bill: &Settlement) {
        self.admitted.cover(bill).await;
    }

    /// Ends the request.
    pub fn settle(self, bill: Bill) -> Settled {
        self.admitted.settle(bill)
    }
}
