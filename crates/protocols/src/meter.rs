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

    /// Takes one whole event of a stream that somebody else has cut into events, with its data; says
    /// whether the customer gets it.
    fn take_event(&mut self, event: &[u8], _data: &[u8]) -> bool {
        !self.relay(Bytes::copy_from_slice(event)).is_empty()
    }

    /// The upstream ended the response in an orderly way: what is left to send.
    fn finish(&mut self) -> Bytes;

    /// Whether the response was whole. False for a stream that stopped without saying so.
    fn is_complete(&self) -> bool;

    /// Whether the upstream said, in a response with a good status, that it failed, and reported no
    /// usage with it.
    fn has_failed(&self) -> bool {
        false
    }

    /// What the upstream said in the place of an answer, with a good status, where the customer reads it
    /// as a refusal in their own dialect.
    fn refusal(&self) -> Option<GatewayError> {
        None
    }

    /// Bytes of the response that are held back, until the end or until more has come.
    fn held_bytes(&self) -> usize {
        0
    }

    /// What has been relayed so far, by the rule that bills it: the hold must cover it before more is
    /// relayed.
    fn relayed(&self) -> Usage;

    /// What the response used as far as it got, and how that is known. `Estimated` says that the
    /// upstream has not reported it: the figures are what was reported nevertheless, such as the input
    /// at the start of a stream, and what the text that was seen comes to. What nobody has seen is not
    /// in them.
    fn measure(&self) -> (Usage, UsageSource);

    /// What of [`Self::measure`] the upstream has reported, where that is not all.
    fn reported_sides(&self) -> ReportedSides {
        ReportedSides::default()
    }

    /// Whether an answer without a report shows itself that there was more than is seen in it: it ended
    /// at the most output that was asked for, or some of it could not be read.
    fn hides_output(&self) -> bool {
        false
    }

    /// What the upstream's reports contradict themselves in.
    fn contradictions(&self) -> Contradictions {
        Contradictions::default()
    }

    /// What the customer had by then, where the gateway itself has broken the answer off: nothing of a
    /// document.
    fn given_up(&self) -> Option<Usage> {
        None
    }

    /// What the upstream says that the answer costs, in dollars, rounded up; `None` where it does not.
    fn reported_cost(&self) -> Option<Nanousd> {
        None
    }

    /// How the request is served, as far as the answer has shown it by now: what decides on its prices.
    fn served(&self) -> Traits {
        Traits::default()
    }

    /// The ids, as far as they were relayed, of what the upstream keeps of the answer. They are only
    /// added to.
    fn stored_ids(&self) -> &[String] {
        &[]
    }

    /// Whether the upstream has reported more than the model can use by its limits, which are out of
    /// date then.
    fn is_above_limits(&self) -> bool {
        false
    }

    /// Whether the body can change on its way, so that the upstream's `Content-Length` is void.
    fn changes_length(&self) -> bool;
}

/// What of a usage its upstream has reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportedSides {
    /// The tokens that went in.
    pub input: bool,
    /// The tokens that came out, all of them.
    pub output: bool,
}

/// How a response is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// One JSON document, from its first byte to its last.
    Json,
    /// Server-sent events, each behind the other.
    Sse,
    /// Events in binary frames, as [`super::event_stream`] reads them. Customers get server-sent events.
    EventStream,
    /// Bytes of another kind, such as audio.
    Binary,
}

impl Framing {
    /// How what an upstream frames like this is framed for the customer.
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
pub struct KnownMeter {
    usage: Usage,
    source: UsageSource,
    /// Some of it has come.
    begun: bool,
    /// All of it has been sent.
    complete: bool,
}

impl KnownMeter {
    /// A meter for an answer that is yet to come.
    #[must_use]
    pub fn new(usage: Usage, source: UsageSource) -> Self {
        Self { usage, source, begun: false, complete: false }
    }

    /// A meter for an answer that is there, and about to be sent.
    #[must_use]
    pub fn of_answer(usage: Usage, source: UsageSource) -> Self {
        Self { begun: true, ..Self::new(usage, source) }
    }
}

impl Meter for KnownMeter {
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
