//! Relaying a response under the hold that pays for it.

use std::time::Instant;

use bytes::Bytes;

use crate::AdmittedRequest;
use crate::rolling::{FundsFetch, LedgerFunds, RelayedCost, Roll, part_of, without_input};
use tollgate_balance::StoredIdRecorder;
use tollgate_ledger::{LedgerError, Refusal};
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Side, Usage, UsageSource};
use tollgate_protocols::{Contradictions, FixedUsageMeter, Framing, Meter};
use tollgate_types::error::GatewayError;

/// A request whose response is being relayed to the customer.
pub struct Relaying {
    pub(super) admitted: Box<AdmittedRequest>,
    pub(super) meter: Box<dyn Meter>,
    /// Recorder of ids that the upstream stores, and the number recorded so far.
    id_recorder: Option<(StoredIdRecorder, usize)>,
    /// Growth of the hold, if it does not cover the whole call.
    rolling: Option<Box<Rolling>>,
    /// True if the customer gets nothing of the answer.
    pub(super) is_withheld: bool,
}

/// Growth of a hold, and a pending transfer of money for it.
struct Rolling {
    roll: Roll,
    fetch: Option<FundsFetch>,
}

/// Action for a chunk of the response.
#[derive(Debug, PartialEq, Eq)]
pub enum RelayStep {
    /// Send these bytes right away.
    Relay(Bytes),
    /// Send these bytes once [`Relaying::covered`] returns.
    RelayWhenCovered(Bytes),
}

/// Reason why no hold pays for a chunk of the response.
#[derive(Debug)]
pub enum CoverageError {
    /// The hold is used up and cannot be enlarged: end the response.
    Exhausted(Refusal),
    /// The ledger closed before the hold was on disk.
    NotDurable(LedgerError),
}

impl Relaying {
    /// Start relaying a successful response.
    #[must_use]
    pub fn new(admitted: Box<AdmittedRequest>, framing: Framing) -> Self {
        let meter = admitted.call.meter(framing);
        let roll = Roll::begin(&admitted, framing);
        let rolling = roll.map(|roll| Box::new(Rolling { roll, fetch: None }));
        Self { admitted, meter, id_recorder: None, rolling, is_withheld: false }
    }

    /// Start sending an answer with a final usage.
    #[must_use]
    pub fn with_usage(admitted: Box<AdmittedRequest>, usage: Usage, source: UsageSource) -> Self {
        let meter = Box::new(FixedUsageMeter::for_answer(usage, source));
        Self { admitted, meter, id_recorder: None, rolling: None, is_withheld: false }
    }

    /// Record ids of stored objects before the customer can read them.
    #[must_use]
    pub fn with_id_recorder(self, id_recorder: impl FnOnce() -> StoredIdRecorder) -> Self {
        let id_recorder = self.admitted.call.is_stored().then(|| (id_recorder(), 0));
        Self { id_recorder, ..self }
    }

    fn record_ids(&mut self) {
        let Some((id_recorder, noted)) = &mut self.id_recorder else { return };
        let ids = self.meter.stored_ids();
        for id in ids.get(*noted..).unwrap_or_default() {
            id_recorder.record(id, Instant::now());
        }
        *noted = ids.len();
    }

    /// Meter a chunk from the upstream. The relayed part never costs more than the hold: a stream that
    /// reaches its hold has it extended, or ends.
    pub fn relay(&mut self, chunk: Bytes) -> RelayStep {
        // Metered before anything of it is passed on: the hold is compared with what the client is about to
        // have.
        let relayed = self.meter.relay(chunk);
        self.record_ids();
        if self.rolling.is_some() {
            return if self.roll() {
                RelayStep::Relay(relayed)
            } else {
                RelayStep::RelayWhenCovered(relayed)
            };
        }
        if self.lacks() <= Nanousd::ZERO && self.admitted.payment.is_durable() {
            RelayStep::Relay(relayed)
        } else {
            RelayStep::RelayWhenCovered(relayed)
        }
    }

    /// Wait until a durable hold pays for everything relayed, extending it if needed.
    ///
    /// # Errors
    /// [`CoverageError`].
    pub async fn covered(&mut self) -> Result<(), CoverageError> {
        if self.rolling.is_some() {
            return self.roll_on().await;
        }
        let lacks = self.lacks();
        if lacks > Nanousd::ZERO {
            let payment = &mut self.admitted.payment;
            let with_reserve = with_reserve(lacks, payment.amount());
            // An account that cannot pay for the reserve may still pay for what is missing.
            if payment.extend(with_reserve).is_err() {
                payment.enlarge(lacks).await.map_err(CoverageError::Exhausted)?;
            }
        }
        self.admitted.payment.durable().await.map_err(CoverageError::NotDurable)
    }

    /// Extend a growing hold ahead of use. Returns true if a durable hold pays for everything relayed.
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

    /// Wait until a growing hold pays for everything relayed: for its next extension at most, for money
    /// of a fleet, and for the disk.
    async fn roll_on(&mut self) -> Result<(), CoverageError> {
        let Some(Rolling { roll, fetch }) = self.rolling.as_deref_mut() else { return Ok(()) };
        let payment = &mut self.admitted.payment;
        let lacks = roll.lacks(payment.amount());
        if lacks > Nanousd::ZERO {
            let wait = roll.wait(Instant::now());
            let available = payment.available();
            if !wait.is_zero() && available < lacks && payment.fetch(lacks).is_none() {
                // Without money to wait for, output during the wait would be the operator's loss.
                return Err(CoverageError::Exhausted(Refusal::Insufficient { available }));
            }
            tokio::time::sleep(wait).await;
            let extension = roll.next_extension(&LedgerFunds { payment, fetch }, Instant::now());
            // Beyond the bound, extend as a hold that does not grow ahead of use.
            let extension =
                if extension < lacks { with_reserve(lacks, payment.amount()) } else { extension };
            if let Err(refusal) = payment.enlarge(extension).await {
                let part = part_of(&refusal, extension);
                if part < lacks || payment.enlarge(part).await.is_err() {
                    return Err(CoverageError::Exhausted(refusal));
                }
            }
            roll.note_extension(Instant::now());
        }
        payment.durable().await.map_err(CoverageError::NotDurable)
    }

    /// True if the hold grows while the answer streams.
    pub(super) fn is_rolling(&self) -> bool {
        self.rolling.is_some()
    }

    /// Cost of the relayed part beyond the hold.
    fn lacks(&self) -> Nanousd {
        let cost = self.admitted.quote.dearest().cost(&self.meter.relayed());
        cost.saturating_sub(self.admitted.payment.amount())
    }

    /// End the response normally, and return the remaining bytes.
    pub fn finish(&mut self) -> Bytes {
        let rest = self.meter.finish();
        self.record_ids();
        rest
    }

    /// Withhold the answer from the customer, free of charge.
    pub fn withhold(&mut self) {
        self.is_withheld = true;
    }

    /// True if a hold pays for the request.
    #[must_use]
    pub fn is_paid(&self) -> bool {
        self.admitted.payment.is_held()
    }

    /// Error that the upstream returned with a success status, in the customer's format.
    #[must_use]
    pub fn refusal(&self) -> Option<GatewayError> {
        self.meter.refusal()
    }

    /// Usage that was delivered before the gateway broke the answer off or the upstream reported that
    /// there is none.
    #[must_use]
    pub fn delivered_before_break(&self) -> Option<Usage> {
        self.meter.given_up()
    }

    /// Reported usage above the model's configured limits, which are then stale.
    #[must_use]
    pub fn above_limits(&self) -> Option<Usage> {
        self.meter.is_above_limits().then(|| self.meter.measure().0)
    }

    /// Reported output tokens, if they exceed the bound of a lowered limit.
    #[must_use]
    pub fn beyond_clamp(&self) -> Option<u64> {
        self.admitted.clamped?;
        let (usage, source) = self.meter.measure();
        let reported = usage.total(Side::Output);
        let is_beyond = reported > self.admitted.call.max_usage().output_tokens;
        (source == UsageSource::Upstream && is_beyond).then_some(reported)
    }

    /// Contradictions within the upstream's reports.
    #[must_use]
    pub fn contradictions(&self) -> Contradictions {
        self.meter.contradictions()
    }

    /// True if the response was complete.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.meter.is_complete()
    }

    /// True if the relayed length differs from the upstream's `Content-Length`.
    #[must_use]
    pub fn changes_length(&self) -> bool {
        self.meter.changes_length()
    }

    /// Bytes of the response held back.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.meter.held_bytes()
    }

    /// Admitted request behind this response.
    #[must_use]
    pub fn admitted(&self) -> &AdmittedRequest {
        &self.admitted
    }
}

/// Usage relayed so far: reported, if the upstream reports as it goes, else the estimate that bills it.
/// A final report may exceed the hold, and the whole answer has come by then.
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

/// Missing amount plus a quarter of the hold, so that a long stream needs few extensions.
fn with_reserve(missing: Nanousd, held: Nanousd) -> Nanousd {
    let quarter = Nanousd::new(held.get() / 4);
    missing.checked_add(quarter).unwrap_or(missing)
}
