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
    /// Ends a request that got no response to relay.
    pub fn settle(self, ending: Ending) -> Settled {
        if ending == Ending::ClientGone {
            let floor = self.call.floor();
            return self.post(floor, UsageSource::Estimated);
        }
        self.payment.void(VoidReason::UpstreamError);
        Settled::NOTHING
    }

    fn post(self, usage: Usage, source: UsageSource) -> Settled {
        let mut charge = self.prices.cost(&usage);
        if source == UsageSource::Estimated {
            // An estimate is no reason to take more than was held.
            charge = charge.min(self.payment.amount());
        }
        let charged = self.payment.post(Settlement { charge, usage, source });
        Settled { usage, source, charged }
    }
}

impl Relaying {
    /// Ends a request whose response was relayed, wholly or in part.
    pub fn settle(self, ending: Ending) -> Settled {
        let failed = self.meter.has_failed();
        let of_use =
            self.meter.relayed().output_tokens > 0 || (self.meter.is_complete() && !failed);
        if !of_use && (failed || ending == Ending::UpstreamFailed) {
            self.admitted.payment.void(VoidReason::UpstreamError);
            return Settled::NOTHING;
        }
        let (usage, source) = self.meter.measure();
        self.admitted.post(usage, source)
    }
}
