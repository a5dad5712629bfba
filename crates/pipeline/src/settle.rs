//! Settlement: every admitted request is posted or voided exactly once.

use crate::{AdmittedRequest, AnsweredParts, Holding, Relaying};
use tollgate_ledger::{LossCause, PostedCharge, Settlement, VoidReason};
use tollgate_money::money::{Nanousd, Rate};
use tollgate_money::price::{Side, Traits, UNITS, Usage, UsageSource};
use tollgate_protocols::{ReportedSides, is_estimated};

/// End of a request, which decides its charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The response was relayed completely.
    Complete,
    /// The customer disconnected or a timeout expired, and the upstream's work is unknown: started work
    /// is charged. Otherwise hanging up just before the end would make models free.
    Unknown,
    /// The upstream refused, failed, was unreachable or broke off, or the gateway had to stop: useful
    /// delivered output is charged.
    Failed,
    /// The connection broke after the request was sent and before an answer.
    Lost,
    /// The response was cut because hold and balance were exhausted.
    Exhausted,
}

/// Bill of a request.
#[derive(Clone, Copy, Debug)]
pub struct Bill {
    /// Charge; `None` voids the hold.
    pub settlement: Option<Settlement>,
    /// Largest further bill of the upstream: the operator's loss.
    pub loss: Option<(LossCause, Nanousd)>,
    /// Largest bill of the upstream for abandoned tries: the operator's loss.
    pub retried: Nanousd,
    /// True if the answer's body is an error, whatever its status.
    pub has_failed: bool,
}

impl Bill {
    /// No work and no charge.
    pub const NOTHING: Self =
        Self { settlement: None, loss: None, retried: Nanousd::ZERO, has_failed: false };

    fn charge(settlement: Settlement) -> Self {
        Self { settlement: Some(settlement), ..Self::NOTHING }
    }

    /// No charge, with a loss of up to `amount`.
    fn lost(cause: LossCause, amount: Nanousd) -> Self {
        Self { loss: Some((cause, amount)), ..Self::NOTHING }.without_zero()
    }

    /// A charge below the upstream's bill of up to `most`.
    fn part(settlement: Settlement, cause: LossCause, most: Nanousd) -> Self {
        let rest = most.saturating_sub(settlement.charge);
        let loss = Some((cause, rest));
        Self { settlement: Some(settlement), loss, ..Self::NOTHING }.without_zero()
    }

    fn without_zero(self) -> Self {
        Self { loss: self.loss.filter(|(_, amount)| *amount > Nanousd::ZERO), ..self }
    }
}

/// Result of a settlement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettlementOutcome {
    /// The billed usage.
    pub usage: Usage,
    /// Source of the usage.
    pub source: UsageSource,
    /// Amount paid by the account.
    pub charged: Nanousd,
    /// Unpaid part, which becomes a debt.
    pub owed: Nanousd,
    /// Hold at the end; zero if nothing is charged.
    pub held: Nanousd,
}

impl SettlementOutcome {
    /// No usage and no charge.
    pub const NOTHING: Self = Self {
        usage: Usage::ZERO,
        source: UsageSource::None,
        charged: Nanousd::ZERO,
        owed: Nanousd::ZERO,
        held: Nanousd::ZERO,
    };
}

impl AdmittedRequest {
    /// Bill of a request without a relayed response.
    #[must_use]
    pub fn bill(&self, ending: Ending) -> Bill {
        let served = Traits::default();
        let parts =
            self.partial.map(|parts| (parts, self.price(parts.usage, parts.source, &served)));
        let bill = match ending {
            Ending::Unknown if self.call.is_all_shown() && self.call.streams() => {
                Bill::charge(self.price(self.call.min_usage(), UsageSource::Estimated, &served))
            }
            Ending::Unknown => Bill::charge(self.most()),
            Ending::Lost => Bill::lost(LossCause::ConnectionLost, self.bound),
            // A request with a part that every upstream refuses must not get the other parts for free.
            Ending::Complete | Ending::Failed | Ending::Exhausted => match parts {
                Some((AnsweredParts { is_refused: true, .. }, priced)) => Bill::charge(priced),
                Some((_, priced)) => Bill::lost(LossCause::Undelivered, priced.charge),
                None => Bill::NOTHING,
            },
        };
        Bill { retried: self.retried, ..bill }
    }

    /// Largest possible cost, as held.
    fn most(&self) -> Settlement {
        let (usage, source) = (self.call.max_usage(), UsageSource::Estimated);
        Settlement { charge: self.bound, usage, source }
    }

    /// Largest possible cost, given the reported sides of `usage`.
    fn most_beside(&self, usage: &Usage, reported: ReportedSides) -> Nanousd {
        let bound = self.call.max_usage();
        let unless = |is_reported: bool, most: u64, used: u64| {
            if is_reported { most.saturating_sub(used) } else { 0 }
        };
        let unused = Usage {
            input_tokens: unless(reported.input, bound.input_tokens, usage.input_tokens_total()),
            output_tokens: unless(reported.output, bound.output_tokens, usage.total(Side::Output)),
            ..Usage::ZERO
        };
        self.bound.saturating_sub(self.dearest(&unused))
    }

    /// Extend the hold to the bill by money elsewhere in the fleet.
    pub async fn cover(&mut self, bill: &Settlement) {
        self.payment.cover(bill.charge).await;
    }

    /// Settle the request and return the result.
    pub fn settle(self: Box<Self>, settlement: Option<Settlement>) -> SettlementOutcome {
        let Some(settlement) = settlement else {
            self.payment.void(VoidReason::UpstreamError);
            return SettlementOutcome::NOTHING;
        };
        let Settlement { usage, source, .. } = settlement;
        let held = self.payment.amount();
        let PostedCharge { charged, owed } = self.payment.post(settlement);
        SettlementOutcome { usage, source, charged, owed, held }
    }

    /// Price a usage at the rates for how the request was served.
    fn price(&self, usage: Usage, source: UsageSource, served: &Traits) -> Settlement {
        let prices = self.quote.prices(&usage, served);
        let requests = u64::from(prices.request > Rate::default());
        let usage = Usage { requests, ..usage };
        let mut charge = prices.cost(&usage);
        if source == UsageSource::Estimated {
            charge = charge.min(self.estimate_max());
        }
        Settlement { charge, usage, source }
    }

    /// Cap of an estimated charge: the hold for this model.
    fn estimate_max(&self) -> Nanousd {
        let amount = self.payment.amount();
        match self.holding {
            Holding::Whole => {
                let extended = amount.saturating_sub(self.held);
                self.bound.saturating_add(extended)
            }
            // The bound of a growing hold is unrelated to its current amount.
            Holding::Slice { .. } => amount,
        }
    }
}

impl Relaying {
    /// Bill of a request whose response was relayed, wholly or in part.
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
        if self.is_withheld {
            let whole = if source == UsageSource::Upstream { measured } else { most };
            let bill = Bill::lost(LossCause::Undelivered, whole.charge);
            return Bill { retried: self.admitted.retried, has_failed, ..bill };
        }
        if let Some(delivered) = self.meter.given_up() {
            let whole = if source == UsageSource::Upstream { measured } else { most };
            let bill = self.given_up(&delivered, &measured, whole.charge);
            return Bill { retried: self.admitted.retried, has_failed, ..bill };
        }
        let bill = match source {
            UsageSource::Upstream if is_broken && !of_use => {
                Bill::lost(LossCause::Undelivered, measured.charge)
            }
            // The final report came with a chunk that exceeded the money, so the customer did not get
            // it.
            UsageSource::Upstream if ending == Ending::Exhausted && self.is_rolling() => {
                let charge = measured.charge.min(self.admitted.payment.amount());
                let part = Settlement { charge, ..measured };
                Bill::part(part, LossCause::Undelivered, measured.charge)
            }
            UsageSource::Upstream => Bill::charge(measured),
            // The answer reports a failure, which providers do not bill.
            _ if has_failed && !of_use => Bill::NOTHING,
            _ if is_broken && !of_use => Bill::lost(LossCause::Untold, most.charge),
            _ if self.is_all_shown() => Bill::charge(measured),
            _ if is_broken || has_failed => Bill::part(measured, LossCause::Untold, most.charge),
            _ if ending == Ending::Complete && self.is_estimated() => {
                let most = self.admitted.most_beside(&usage, self.meter.reported_sides());
                Bill::part(measured, LossCause::Untold, most)
            }
            _ if measured.charge > most.charge => Bill::charge(measured),
            _ => Bill::charge(most),
        };
        Bill { retried: self.admitted.retried, has_failed, ..bill }
    }

    /// Bill of an answer that the gateway broke off: the customer pays for the delivered part, and the
    /// rest of the upstream's bill, up to `whole`, is the operator's.
    fn given_up(&self, delivered: &Usage, measured: &Settlement, whole: Nanousd) -> Bill {
        let output = delivered.total(Side::Output);
        if output == 0 {
            // Providers do not bill an answer that reports a failure.
            let is_billed = !self.meter.has_failed();
            return if is_billed {
                Bill::lost(LossCause::Undelivered, whole)
            } else {
                Bill::NOTHING
            };
        }
        let has_input = self.meter.reported_sides().input;
        let mut usage = if has_input { measured.usage } else { *delivered };
        for info in UNITS {
            match info.side {
                Side::Input => {}
                Side::Output => usage[info.unit] = 0,
                Side::Made => usage[info.unit] = delivered[info.unit],
            }
        }
        usage.output_tokens = match measured.source {
            UsageSource::Upstream => output.min(measured.usage.total(Side::Output)),
            UsageSource::Estimated | UsageSource::None => output,
        };
        let served = self.meter.served();
        let part = self.admitted.price(usage, UsageSource::Estimated, &served);
        Bill::part(part, LossCause::Undelivered, whole)
    }

    /// True if an answer without a report is charged by its visible content.
    fn is_estimated(&self) -> bool {
        is_estimated(self.admitted.call.as_ref(), self.meter.as_ref())
    }

    /// True if everything that the answer costs is visible in it.
    #[must_use]
    pub fn is_all_shown(&self) -> bool {
        self.admitted.call.is_all_shown()
    }

    /// Extend the hold to the bill by money elsewhere in the fleet.
    pub async fn cover(&mut self, bill: &Settlement) {
        self.admitted.cover(bill).await;
    }

    /// Settle the request and return the result.
    pub fn settle(self, settlement: Option<Settlement>) -> SettlementOutcome {
        self.admitted.settle(settlement)
    }
}
