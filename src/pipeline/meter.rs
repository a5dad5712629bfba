//! Relaying a response under the hold that pays for it.

use std::time::Instant;

use bytes::Bytes;

use crate::balance::Keeper;
use crate::error::GatewayError;
use crate::ledger::{LedgerError, Refusal};
use crate::money::Nanousd;
use crate::pipeline::Admitted;
use crate::pipeline::rolling::{
    FundsFetch, LedgerFunds, RelayedCost, Roll, part_of, without_input,
};
use crate::price::{Side, Usage, UsageSource};
use crate::protocols::{Contradictions, FixedUsageMeter, Framing, Meter};

/// A request whose response is on its way to the customer.
pub struct Relaying {
    pub(super) admitted: Box<Admitted>,
    pub(super) meter: Box<dyn Meter>,
    /// Notes what the upstream keeps of the answer, and how many ids of it were noted.
    keeper: Option<(Keeper, usize)>,
    /// How the hold grows, where it does not cover the whole call.
    rolling: Option<Box<Rolling>>,
    /// The customer gets nothing of the answer.
    pub(super) is_withheld: bool,
}

/// The growth of a hold, and the money that is on its way for it.
struct Rolling {
    roll: Roll,
    fetch: Option<FundsFetch>,
}

/// What to do with a piece of the response.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// These bytes can be sent.
    Relay(Bytes),
    /// Send it once [`Relaying::covered`] says that a durable hold pays for it.
    RelayWhenCovered(Bytes),
}

/// Why no hold pays for a piece of the response.
#[derive(Debug)]
pub enum Uncovered {
    /// The hold is used up and cannot be enlarged: end the response.
    Exhausted(Refusal),
    /// The ledger closed before the hold was on disk.
    NotDurable(LedgerError),
}

impl Relaying {
    /// Begins to relay a successful response.
    #[must_use]
    pub fn new(admitted: Box<Admitted>, framing: Framing) -> Self {
        let meter = admitted.call.meter(framing);
        let roll = Roll::begin(&admitted, framing);
        let rolling = roll.map(|roll| Box::new(Rolling { roll, fetch: None }));
        Self { admitted, meter, keeper: None, rolling, is_withheld: false }
    }

    /// Begins to send an answer of which everything is known.
    #[must_use]
    pub fn known(admitted: Box<Admitted>, usage: Usage, source: UsageSource) -> Self {
        let meter = Box::new(FixedUsageMeter::for_answer(usage, source));
        Self { admitted, meter, keeper: None, rolling: None, is_withheld: false }
    }

    /// What the upstream keeps of the answer is noted before the customer reads of it.
    #[must_use]
    pub fn kept_by(self, keeper: impl FnOnce() -> Keeper) -> Self {
        let keeper = self.admitted.call.is_stored().then(|| (keeper(), 0));
        Self { keeper, ..self }
    }

    fn keep(&mut self) {
        let Some((keeper, noted)) = &mut self.keeper else { return };
        let ids = self.meter.stored_ids();
        for id in ids.get(*noted..).unwrap_or_default() {
            keeper.keep(id, Instant::now());
        }
        *noted = ids.len();
    }

    /// Takes a chunk from the upstream. What has certainly been relayed never costs more than what
    /// is held: a stream that reaches its hold has it enlarged, or ends.
    pub fn relay(&mut self, chunk: Bytes) -> Step {
        let relayed = self.meter.relay(chunk);
        self.keep();
        if self.rolling.is_some() {
            return if self.roll() {
                Step::Relay(relayed)
            } else {
                Step::RelayWhenCovered(relayed)
            };
        }
        if self.lacks() <= Nanousd::ZERO && self.admitted.payment.is_durable() {
            Step::Relay(relayed)
        } else {
            Step::RelayWhenCovered(relayed)
        }
    }

    /// Waits until a hold on disk pays for all that was relayed, enlarging it where that is needed.
    ///
    /// # Errors
    /// [`Uncovered`].
    pub async fn covered(&mut self) -> Result<(), Uncovered> {
        if self.rolling.is_some() {
            return self.roll_on().await;
        }
        let lacks = self.lacks();
        if lacks > Nanousd::ZERO {
            let payment = &mut self.admitted.payment;
            let with_reserve = with_reserve(lacks, payment.amount());
            if payment.extend(with_reserve).is_err() {
                payment.enlarge(lacks).await.map_err(Uncovered::Exhausted)?;
            }
        }
        self.admitted.payment.durable().await.map_err(Uncovered::NotDurable)
    }

    /// Extends a hold that grows ahead of use. True where a hold on disk pays for all that was relayed.
    fn roll(&mut self) -> bool {
        let Some(Rolling { roll, fetch }) = self.rolling.as_deref_mut() else { return false };
        let relayed = shown(self.meter.as_ref());
        let prices = self.admitted.quote.dearest();
        let total = prices.cost(&Usage { requests: 1, ..relayed });
        let output = prices.cost(&without_input(&relayed));
        let cost = RelayedCost { total, output };
        let now = Instant::now();
        roll.note(cost, self.meter.reported_sides().input, now);
        roll.covers(&mut LedgerFunds { payment: &mut self.admitted.payment, fetch }, now)
    }

    /// Waits until a hold that grows pays for all that was relayed: for the time of its next extension
    /// at most, for money of a fleet, and for the disk.
    async fn roll_on(&mut self) -> Result<(), Uncovered> {
        let Some(Rolling { roll, fetch }) = self.rolling.as_deref_mut() else { return Ok(()) };
        let payment = &mut self.admitted.payment;
        let lacks = roll.lacks(payment.amount());
        if lacks > Nanousd::ZERO {
            let wait = roll.wait(Instant::now());
            let available = payment.available();
            if !wait.is_zero() && available < lacks && payment.fetch(lacks).is_none() {
                // What the upstream makes during a wait for nothing is the operator's.
                return Err(Uncovered::Exhausted(Refusal::Insufficient { available }));
            }
            tokio::time::sleep(wait).await;
            let wanted = roll.wanted(&LedgerFunds { payment, fetch }, Instant::now());
            // Beyond the bound it is as for a hold that does not grow ahead of use.
            let wanted =
                if wanted < lacks { with_reserve(lacks, payment.amount()) } else { wanted };
            if let Err(refusal) = payment.enlarge(wanted).await {
                let part = part_of(&refusal, wanted);
                if part < lacks || payment.enlarge(part).await.is_err() {
                    return Err(Uncovered::Exhausted(refusal));
                }
            }
            roll.note_extension(Instant::now());
        }
        payment.durable().await.map_err(Uncovered::NotDurable)
    }

    /// Whether the hold grows while the answer streams.
    pub(super) fn is_rolling(&self) -> bool {
        self.rolling.is_some()
    }

    /// What all that was relayed costs beyond what is held.
    fn lacks(&self) -> Nanousd {
        let cost = self.admitted.quote.dearest().cost(&self.meter.relayed());
        cost.saturating_sub(self.admitted.payment.amount())
    }

    /// The upstream ended the response in an orderly way: what is left to send.
    pub fn finish(&mut self) -> Bytes {
        let rest = self.meter.finish();
        self.keep();
        rest
    }

    /// The answer is kept from the customer, who pays nothing for it.
    pub fn withhold(&mut self) {
        self.is_withheld = true;
    }

    /// Whether money is held for it.
    #[must_use]
    pub fn is_paid(&self) -> bool {
        self.admitted.payment.is_held()
    }

    /// What the upstream said in the place of an answer, with a good status, as the customer reads it.
    #[must_use]
    pub fn refusal(&self) -> Option<GatewayError> {
        self.meter.refusal()
    }

    /// What of the answer the customer had, where the gateway has broken it off, or the upstream has said
    /// that there is none.
    #[must_use]
    pub fn delivered_before_break(&self) -> Option<Usage> {
        self.meter.given_up()
    }

    /// What the upstream has reported above the model's limits, which are out of date then.
    #[must_use]
    pub fn above_limits(&self) -> Option<Usage> {
        self.meter.is_above_limits().then(|| self.meter.measure().0)
    }

    /// The output tokens that the upstream has reported, where these are more than a lowered limit allows
    /// for all choices and rounds together, and with what no limit bounds.
    #[must_use]
    pub fn beyond_clamp(&self) -> Option<u64> {
        self.admitted.clamped?;
        let (usage, source) = self.meter.measure();
        let reported = usage.total(Side::Output);
        let is_beyond = reported > self.admitted.call.max_usage().output_tokens;
        (source == UsageSource::Upstream && is_beyond).then_some(reported)
    }

    /// What the upstream's reports contradict themselves in.
    #[must_use]
    pub fn contradictions(&self) -> Contradictions {
        self.meter.contradictions()
    }

    /// Whether the response was whole.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.meter.is_complete()
    }

    /// Whether the upstream's `Content-Length` holds for what the customer gets.
    #[must_use]
    pub fn changes_length(&self) -> bool {
        self.meter.changes_length()
    }

    /// Bytes of the response that are held back.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.meter.held_bytes()
    }

    /// What was admitted, of which this is the answer.
    #[must_use]
    pub fn admitted(&self) -> &Admitted {
        &self.admitted
    }
}

/// What has been relayed so far: by the upstream's report, where it reports as it goes, else by the estimate
/// that bills it. The report at a stream's end may be above what is held, and all of the answer has come.
fn shown(meter: &dyn Meter) -> Usage {
    let relayed = meter.relayed();
    match meter.measure() {
        (usage, UsageSource::Upstream)
            if usage.total(Side::Output) < relayed.total(Side::Output) =>
        {
            usage
        }
        _ => relayed,
    }
}

/// What is missing, and a quarter of what is held so that a long stream does not come back for
/// every token.
fn with_reserve(missing: Nanousd, held: Nanousd) -> Nanousd {
    let quarter = Nanousd::new(held.get() / 4);
    missing.checked_add(quarter).unwrap_or(missing)
}
