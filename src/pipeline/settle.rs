//! The end of every admitted request: posted or voided, exactly once.

use crate::ledger::{LossCause, Posted, Settlement, VoidReason};
use crate::money::{Nanousd, Rate};
use crate::pipeline::{Admitted, Relaying};
use crate::price::{Traits, Usage, UsageSource};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The response was read to its end.
    Complete,
    /// The customer went away, or the time ran out, and nothing tells what the upstream has done: it
    /// charges what it has begun. Else hanging up just before the end would be a way to use models for
    /// nothing.
    Untold,
    /// The upstream refused, failed, was never reached or stopped in the middle, or the gateway had to
    /// stop: what reached the customer and is of use is charged.
    Failed,
    /// The connection was lost when the upstream had the request and had not answered.
    Lost,
    /// The response was cut because hold and balance were used up.
    Exhausted,
}

/// What a request has come to.
#[derive(Clone, Copy, Debug)]
pub struct Bill {
    /// What is charged for it; `None` for nothing, and its hold is voided.
    pub settlement: Option<Settlement>,
    /// The most that the upstream may bill beyond that, which falls on the operator.
    pub loss: Option<(LossCause, Nanousd)>,
    /// The most that the upstream may bill for tries that were repeated, which falls on the operator.
    pub retried: Nanousd,
    /// Whether the answer says itself that it is an error, whatever its status.
    pub has_failed: bool,
}

impl Bill {
    /// Nothing was done, and nothing is charged.
    pub const NOTHING: Self =
        Self { settlement: None, loss: None, retried: Nanousd::ZERO, has_failed: false };

    fn charge(settlement: Settlement) -> Self {
        Self { settlement: Some(settlement), ..Self::NOTHING }
    }

    /// Nothing is charged, and the upstream may bill as much as `amount`.
    fn lost(cause: LossCause, amount: Nanousd) -> Self {
        Self { loss: Some((cause, amount)), ..Self::NOTHING }.without_zero()
    }

    /// A part is charged of what the upstream may bill.
    fn part(settlement: Settlement, cause: LossCause, most: Nanousd) -> Self {
        let rest = most.saturating_sub(settlement.charge);
        let loss = Some((cause, rest));
        Self { settlement: Some(settlement), loss, ..Self::NOTHING }.without_zero()
    }

    fn without_zero(self) -> Self {
        Self { loss: self.loss.filter(|(_, amount)| *amount > Nanousd::ZERO), ..self }
    }
}

/// What a request was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// What the request used, by which it was billed.
    pub usage: Usage,
    /// How that is known.
    pub source: UsageSource,
    /// What the account paid.
    pub charged: Nanousd,
    /// What it owes beyond that.
    pub owed: Nanousd,
}

impl Settled {
    /// Nothing was used and nothing paid.
    pub const NOTHING: Self = Self {
        usage: Usage::ZERO,
        source: UsageSource::None,
        charged: Nanousd::ZERO,
        owed: Nanousd::ZERO,
    };
}

impl Admitted {
    /// What a request has come to that got no response to relay.
    #[must_use]
    pub fn bill(&self, ending: Ending) -> Bill {
        let served = Traits::default();
        let partial = || self.partial.map(|(usage, source)| self.price(usage, source, &served));
        let bill = match ending {
            Ending::Untold if self.call.is_all_shown() && self.call.streams() => {
                Bill::charge(self.price(self.call.floor(), UsageSource::Estimated, &served))
            }
            Ending::Untold => Bill::charge(self.most()),
            Ending::Lost => match partial() {
                Some(part) => Bill::part(part, LossCause::ConnectionLost, self.bound),
                None => Bill::lost(LossCause::ConnectionLost, self.bound),
            },
            Ending::Complete | Ending::Failed | Ending::Exhausted => {
                partial().map_or(Bill::NOTHING, Bill::charge)
            }
        };
        Bill { retried: self.retried, ..bill }
    }

    /// The most that the call can have cost, as its hold was made for.
    fn most(&self) -> Settlement {
        let (usage, source) = (self.call.bound(), UsageSource::Estimated);
        Settlement { charge: self.bound, usage, source }
    }

    /// Sets aside what a bill comes to beyond the hold, as far as that is elsewhere in a fleet.
    pub async fn cover(&mut self, bill: &Settlement) {
        self.payment.cover(bill.charge).await;
    }

    /// Ends the request, once, and says what it was charged.
    pub fn settle(self: Box<Self>, settlement: Option<Settlement>) -> Settled {
        let Some(settlement) = settlement else {
            self.payment.void(VoidReason::UpstreamError);
            return Settled::NOTHING;
        };
        let Settlement { usage, source, .. } = settlement;
        let Posted { charged, owed } = self.payment.post(settlement);
        Settled { usage, source, charged, owed }
    }

    /// What was used, at the prices for how the request was served.
    fn price(&self, usage: Usage, source: UsageSource, served: &Traits) -> Settlement {
        let prices = self.quote.prices(&usage, served);
        let requests = u64::from(prices.request > Rate::default());
        let usage = Usage { requests, ..usage };
        let mut charge = prices.cost(&usage);
        if source == UsageSource::Estimated {
            // An estimate is no reason to take more than was held, for this model.
            let extended = self.payment.amount().saturating_sub(self.held);
            charge = charge.min(self.bound.checked_add(extended).unwrap_or(Nanousd::MAX));
        }
        Settlement { charge, usage, source }
    }
}

impl Relaying {
    /// What a request has come to whose response was relayed, wholly or in part.
    #[must_use]
    pub fn bill(&self, ending: Ending) -> Bill {
        let has_failed = self.meter.has_failed();
        let is_whole = self.meter.is_complete() && !has_failed;
        let relayed = self.meter.relayed();
        // Speech is of use from its first byte, and so is all that was put together here, and the first
        // words of what was heard.
        let has_begun = relayed.output_tokens > 0
            || relayed.characters > 0
            || relayed.images > 0
            || relayed.audio_seconds > 0;
        let of_use = has_begun || is_whole;
        let is_broken = matches!(ending, Ending::Failed | Ending::Lost);
        let (usage, source) = self.meter.measure();
        let measured = self.admitted.price(usage, source, &self.meter.served());
        let most = self.admitted.most();
        let bill = match source {
            UsageSource::Upstream if is_broken && !of_use => {
                Bill::lost(LossCause::Undelivered, measured.charge)
            }
            UsageSource::Upstream => Bill::charge(measured),
            // It says itself that it failed, which providers do not bill.
            _ if has_failed && !of_use => Bill::NOTHING,
            _ if is_broken && !of_use => Bill::lost(LossCause::Untold, most.charge),
            _ if self.is_all_shown() => Bill::charge(measured),
            _ if is_broken || has_failed => Bill::part(measured, LossCause::Untold, most.charge),
            _ if measured.charge > most.charge => Bill::charge(measured),
            _ => Bill::charge(most),
        };
        Bill { retried: self.admitted.retried, has_failed, ..bill }
    }

    /// Whether all that the answer costs is to be seen in it.
    #[must_use]
    pub fn is_all_shown(&self) -> bool {
        self.admitted.call.is_all_shown()
    }

    /// Sets aside what a bill comes to beyond the hold, as far as that is elsewhere in a fleet.
    pub async fn cover(&mut self, bill: &Settlement) {
        self.admitted.cover(bill).await;
    }

    /// Ends the request, once, and says what it was charged.
    pub fn settle(self, settlement: Option<Settlement>) -> Settled {
        self.admitted.settle(settlement)
    }
}
