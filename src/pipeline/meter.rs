//! Relaying a response under the hold that pays for it.

use bytes::Bytes;

use crate::money::Nanousd;
use crate::pipeline::{Admitted, Resolved};
use crate::protocols::{Framing, Meter};

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
    /// The hold is used up and the balance covers no more: end the response.
    Exhausted,
}

impl Relaying {
    /// Begins to relay a successful response.
    #[must_use]
    pub fn new(admitted: Admitted, framing: Framing) -> Self {
        let meter = admitted.call.meter(framing);
        Self { admitted, meter }
    }

    /// Takes a chunk from the upstream. What has certainly been relayed never costs more than what
    /// is held: a stream that reaches its hold takes a second one, or ends.
    pub fn relay(&mut self, chunk: Bytes) -> Step {
        let relayed = self.meter.relay(chunk);
        let cost = self.admitted.prices.cost(&self.meter.relayed());
        let held = self.admitted.hold.amount();
        if cost <= held {
            return if self.admitted.hold.is_durable() {
                Step::Relay(relayed)
            } else {
                Step::RelayWhenDurable(relayed)
            };
        }
        match self.admitted.hold.extend(extension(cost, held)) {
            Ok(()) => Step::RelayWhenDurable(relayed),
            Err(_) => Step::Exhausted,
        }
    }

    /// The upstream ended the response in an orderly way: what is left to send.
    pub fn finish(&mut self) -> Bytes {
        self.meter.finish()
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

    /// Whether the hold, extensions included, is on disk.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.admitted.hold.is_durable()
    }

    /// What came before.
    #[must_use]
    pub fn resolved(&self) -> &Resolved {
        &self.admitted.resolved
    }
}

/// How much more to hold: what is missing, and a quarter of what is held so that a long stream
/// does not come back for every token.
fn extension(cost: Nanousd, held: Nanousd) -> Nanousd {
    let missing = cost.saturating_sub(held);
    let quarter = Nanousd::new(held.get() / 4);
    missing.checked_add(quarter).unwrap_or(missing)
}
