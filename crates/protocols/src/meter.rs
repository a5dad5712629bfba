//! The contract of a meter: relaying one response to the customer and counting what it used.

use bytes::Bytes;

use super::disjoint::Contradictions;
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Traits, Usage, UsageSource};
use tollgate_types::error::GatewayError;

/// Relays one successful response and counts what it used.
pub trait Meter: Send + Sync {
    /// Takes a chunk from the upstream; returns what goes to the customer now, possibly nothing.
    fn relay(&mut self, chunk: Bytes) -> Bytes;

    /// Meters one complete event, with its data, of a stream that was split by the caller; returns whether
    /// the client receives it.
    fn take_event(&mut self, event: &[u8], _data: &[u8]) -> bool {
        !self.relay(Bytes::copy_from_slice(event)).is_empty()
    }

    /// The upstream ended the response in an orderly way: what is left to send.
    fn finish(&mut self) -> Bytes;

    /// True if the response is complete. False for a stream that stopped without its end.
    fn is_complete(&self) -> bool;

    /// True if the upstream reported its own failure in a response of successful status, without usage.
    fn has_failed(&self) -> bool {
        false
    }

    /// The error in a response of successful status, for customers of another dialect.
    fn refusal(&self) -> Option<GatewayError> {
        None
    }

    /// Bytes of the response that are held back, until the end or until more has come.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Usage relayed so far, by the billing rule: the hold must cover it before more is relayed.
    fn relayed(&self) -> Usage;

    /// Usage of the response so far, and its source. `Estimated` means that the upstream has not reported
    /// all: the figures are reported parts, such as the input at the start of a stream, and the estimate of
    /// the visible text. Hidden usage is not included.
    fn measure(&self) -> (Usage, UsageSource);

    /// The sides of [`Self::measure`] that the upstream has reported, if not all.
    fn reported_sides(&self) -> ReportedSides {
        ReportedSides::default()
    }

    /// True if an answer without a report is visibly incomplete: it ended at the requested maximum, or part
    /// of it could not be read.
    fn hides_output(&self) -> bool {
        false
    }

    /// Contradictions in the upstream's reports.
    fn contradictions(&self) -> Contradictions {
        Contradictions::default()
    }

    /// Usage delivered when the gateway itself broke the answer off; zero for a document.
    fn given_up(&self) -> Option<Usage> {
        None
    }

    /// The upstream's reported cost of the answer, in nano-dollars, rounded up; `None` without one.
    fn reported_cost(&self) -> Option<Nanousd> {
        None
    }

    /// Traits of service that the answer has shown, which decide its prices.
    fn served(&self) -> Traits {
        Traits::default()
    }

    /// The ids, as far as they were relayed, of what the upstream keeps of the answer. They are only
    /// added to.
    fn stored_ids(&self) -> &[String] {
        &[]
    }

    /// True if the upstream reported more than the model's limits allow, which are then out of date.
    fn is_above_limits(&self) -> bool {
        false
    }

    /// True if the body can change on its way, so that the upstream's `Content-Length` is void.
    fn changes_length(&self) -> bool;
}

/// Sides of a usage that the upstream has reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportedSides {
    /// The tokens that went in.
    pub input: bool,
    /// The tokens that came out, all of them.
    pub output: bool,
}

/// Framing of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// One JSON document, from its first byte to its last.
    Json,
    /// A sequence of server-sent events.
    Sse,
    /// Events in binary frames, as [`super::event_stream`] reads them. Customers get server-sent events.
    EventStream,
    /// Bytes of another kind, such as audio.
    Binary,
}

impl Framing {
    /// The framing for the customer of a response that the upstream frames so.
    #[must_use]
    pub fn for_customers(self) -> Self {
        match self {
            Self::EventStream => Self::Sse,
            other => other,
        }
    }
}

/// Meters an answer whose use is known before it is sent. It counts as used from its first byte: the
/// upstream bills all of it, however much of it is taken.
#[derive(Clone, Debug)]
pub struct FixedUsageMeter {
    usage: Usage,
    source: UsageSource,
    /// The answer has begun.
    begun: bool,
    /// The whole answer was sent.
    complete: bool,
}

impl FixedUsageMeter {
    /// A meter for an answer that has not begun.
    #[must_use]
    pub fn new(usage: Usage, source: UsageSource) -> Self {
        Self { usage, source, begun: false, complete: false }
    }

    /// A meter for an answer that is there, and about to be sent.
    #[must_use]
    pub fn for_answer(usage: Usage, source: UsageSource) -> Self {
        Self { begun: true, ..Self::new(usage, source) }
    }
}

impl Meter for FixedUsageMeter {
    fn relay(&mut self, chunk: Bytes) -> Bytes {
        self.begun |= !chunk.is_empty();
        chunk
    }

    fn finish(&mut self) -> Bytes {
        self.complete = true;
        Bytes::new()
    }

    fn is_complete(&self) -> bool {
        self.complete
    }

    fn relayed(&self) -> Usage {
        if self.begun { self.usage } else { Usage::ZERO }
    }

    fn measure(&self) -> (Usage, UsageSource) {
        (self.usage, self.source)
    }

    fn changes_length(&self) -> bool {
        false
    }
}
