//! The two meters that protocols share: for one JSON document, and for a stream of events. What a
//! protocol calls things, it says itself.

use bytes::Bytes;

use super::Meter;
use super::estimate::TextSize;
use super::json_scan::UsageScan;
use super::sse::{self, Events, Verdict};
use crate::price::{Usage, UsageSource};

/// Reads a `usage` as a protocol writes it; `None` for one that cannot be true.
pub(super) type ReadUsage = Box<dyn Fn(&[u8]) -> Option<Usage> + Send + Sync>;

/// Meters a JSON document with a top-level `usage`.
pub(super) struct JsonMeter {
    scan: UsageScan,
    floor: Usage,
    output_tokens_max: u64,
    read_usage: ReadUsage,
}

impl JsonMeter {
    /// `floor` is what the request has used at least, `output_tokens_max` what an estimate of the
    /// output may not exceed.
    pub(super) fn new(floor: Usage, output_tokens_max: u64, read_usage: ReadUsage) -> Self {
        Self { scan: UsageScan::default(), floor, output_tokens_max, read_usage }
    }

    fn usage(&self) -> Option<Usage> {
        self.scan.usage().and_then(&self.read_usage)
    }
}

impl Meter for JsonMeter {
    fn relay(&mut self, chunk: Bytes) -> Bytes {
        self.scan.feed(&chunk);
        chunk
    }

    fn finish(&mut self) -> Bytes {
        Bytes::new()
    }

    fn is_complete(&self) -> bool {
        self.scan.is_whole()
    }

    fn has_failed(&self) -> bool {
        self.scan.has_error() && self.usage().is_none()
    }

    fn relayed(&self) -> Usage {
        Usage::default()
    }

    fn measure(&self) -> (Usage, UsageSource) {
        match self.usage() {
            Some(usage) => (usage, UsageSource::Upstream),
            None => {
                let tokens = TextSize::of_ascii(self.scan.text_bytes()).tokens();
                let output_tokens = tokens.min(self.output_tokens_max);
                (Usage { output_tokens, ..self.floor }, UsageSource::Estimated)
            }
        }
    }

    fn changes_length(&self) -> bool {
        false
    }
}

/// Meters an answer of which everything is known before it is sent.
pub(crate) struct KnownMeter {
    usage: Usage,
    source: UsageSource,
    /// All of it has been sent.
    complete: bool,
}

impl KnownMeter {
    pub(crate) fn new(usage: Usage, source: UsageSource) -> Self {
        Self { usage, source, complete: false }
    }
}

impl Meter for KnownMeter {
    fn relay(&mut self, chunk: Bytes) -> Bytes {
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
        Usage::ZERO
    }

    fn measure(&self) -> (Usage, UsageSource) {
        (self.usage, self.source)
    }

    fn changes_length(&self) -> bool {
        false
    }
}

/// The output that a stream has shown, counted for when no usage is reported.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Shown {
    text: TextSize,
    /// Deltas that carried text: no model puts less than one token into one.
    deltas: u64,
}

impl Shown {
    /// Adds the text of a delta.
    pub(super) fn add(&mut self, text: TextSize) {
        self.deltas += u64::from(!text.is_empty());
        self.text.add(text);
    }

    /// Adds what was counted elsewhere.
    pub(super) fn add_all(&mut self, more: Self) {
        self.deltas += more.deltas;
        self.text.add(more.text);
    }

    /// What it was at least.
    pub(super) fn tokens_min(self) -> u64 {
        self.deltas
    }

    /// What it was about.
    pub(super) fn tokens(self) -> u64 {
        self.text.tokens().max(self.deltas)
    }
}

/// What is known of a stream whose usage is reported as a whole.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    /// What the request has used at least.
    pub(super) floor: Usage,
    pub(super) shown: Shown,
    pub(super) usage: Option<Usage>,
    /// The upstream has said that it failed.
    pub(super) failed: bool,
}

impl Known {
    /// As [`Meter::has_failed`].
    pub(super) fn has_failed(&self) -> bool {
        self.failed && self.usage.is_none()
    }

    /// As [`Meter::relayed`].
    pub(super) fn relayed(&self) -> Usage {
        Usage { output_tokens: self.shown.tokens_min(), ..self.floor }
    }

    /// As [`Meter::measure`].
    pub(super) fn measure(&self) -> (Usage, UsageSource) {
        let estimate = Usage { output_tokens: self.shown.tokens(), ..self.floor };
        match self.usage {
            Some(usage) => (usage, UsageSource::Upstream),
            None => (estimate, UsageSource::Estimated),
        }
    }
}

/// What a stream has shown so far.
pub(super) trait Tally: Send + Sync {
    /// Looks at the data of an event, and says whether the customer gets the event.
    fn judge(&mut self, data: &[u8]) -> Verdict;

    /// As [`Meter::is_complete`]. A stream in which the upstream said that it failed needs no other
    /// word about that either.
    fn is_complete(&self) -> bool;

    /// As [`Meter::has_failed`].
    fn has_failed(&self) -> bool;

    /// As [`Meter::relayed`].
    fn relayed(&self) -> Usage;

    /// As [`Meter::measure`].
    fn measure(&self) -> (Usage, UsageSource);
}

/// Meters a stream of events.
pub(super) struct StreamMeter<T> {
    events: Events,
    tally: T,
}

impl<T: Tally> StreamMeter<T> {
    pub(super) fn new(tally: T) -> Self {
        Self { events: Events::of_text(), tally }
    }

    pub(super) fn of_images(tally: T) -> Self {
        Self { events: Events::of_images(), tally }
    }
}

impl<T: Tally> Meter for StreamMeter<T> {
    fn relay(&mut self, chunk: Bytes) -> Bytes {
        self.events.relay(&chunk, |event| self.tally.judge(&sse::data(event)))
    }

    fn finish(&mut self) -> Bytes {
        // Some servers leave out the blank line behind the last event.
        let rest = self.events.take_unfinished();
        if rest.is_empty() || self.tally.judge(&sse::data(&rest)) == Verdict::Drop {
            return Bytes::new();
        }
        let mut whole = rest.to_vec();
        whole.extend_from_slice(b"\n\n");
        whole.into()
    }

    fn held_bytes(&self) -> usize {
        self.events.held_bytes()
    }

    fn is_complete(&self) -> bool {
        self.tally.is_complete()
    }

    fn has_failed(&self) -> bool {
        self.tally.has_failed()
    }

    fn relayed(&self) -> Usage {
        self.tally.relayed()
    }

    fn measure(&self) -> (Usage, UsageSource) {
        self.tally.measure()
    }

    fn changes_length(&self) -> bool {
        true
    }
}
