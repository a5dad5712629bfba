//! Relaying a response under the hold that pays for it.

use bytes::Bytes;

use crate::ledger::{LedgerError, Refusal};
use crate::money::Nanousd;
use crate::pipeline::{Admitted, Resolved};
use crate::price::{Usage, UsageSource};
use crate::protocols::{Framing, KnownMeter, Meter};

/// A request whose response is on its way to the customer.
pub struct Relaying {
    pub(super) admitted: Admitted,
    pub(super) meter: Box<dyn Meter>,
}

/// What to do with a piece of the response.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Send it.
    Relay(Bytes),
    /// Send it once the hold that was just enlarged is durable.
    RelayWhenDurable(Bytes),
    /// The hold is used up and cannot be enlarged: end the response.
    Exhausted(Refusal),
}

impl Relaying {
    /// Begins to relay a successful response.
    #[must_use]
    pub fn new(admitted: Admitted, framing: Framing) -> Self {
        let meter = admitted.call.meter(framing);
        Self { admitted, meter }
    }

    /// Begins to send an answer of which everything is known.
    #[must_use]
    pub fn known(admitted: Admitted, usage: Usage, source: UsageSource) -> Self {
        Self { admitted, meter: Box::new(KnownMeter::new(usage, source)) }
    }

    /// Takes a chunk from the upstream. What has certainly been relayed never costs more than what
    /// is held: a stream that reaches its hold takes a second one, or ends.
    pub fn relay(&mut self, chunk: Bytes) -> Step {
        let relayed = self.meter.relay(chunk);
        let cost = self.admitted.prices.cost(&self.meter.relayed());
        let held = self.admitted.payment.amount();
        if cost <= held {
            return if self.admitted.payment.is_durable() {
                Step::Relay(relayed)
            } else {
                Step::RelayWhenDurable(relayed)
            };
        }
        let missing = cost.saturating_sub(held);
        let payment = &mut self.admitted.payment;
        match payment.extend(with_reserve(missing, held)).or_else(|_| payment.extend(missing)) {
            Ok(()) => Step::RelayWhenDurable(relayed),
            Err(refusal) => Step::Exhausted(refusal),
        }
    }

    /// The upstream ended the response in an orderly way: what is left to send.
    pub fn finish(&mut self) -> Bytes {
        self.meter.finish()
    }

    /// Whether money is held for it.
    #[must_use]
    pub fn is_paid(&self) -> bool {
        self.admitted.payment.is_held()
    }

    /// Whether the answer is an error, whatever its status.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.meter.has_failed()
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

    /// Waits until the hold, extensions included, is on disk.
    ///
    /// # Errors
    /// When the ledger closed before that.
    pub async fn durable(&self) -> Result<(), LedgerError> {
        self.admitted.payment.durable().await
    }

    /// Bytes of the response that are held back.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.meter.held_bytes()
    }

    /// What came before.
    #[must_use]
    pub fn resolved(&self) -> &Resolved {
        &self.admitted.resolved
    }
}

/// What is missing, and a quarter of what is held so that a long stream does not come back for
/// every token.
fn with_reserve(missing: Nanousd, held: Nanousd) -> Nanousd {
    let quarter = Nanousd::new(held.get() / 4);
    missing.checked_add(quarter).unwrap_or(missing)
}
