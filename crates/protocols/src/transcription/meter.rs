//! Meters for the three ways in which what was heard is told: a document, a text, and events.

use std::sync::OnceLock;

use bytes::Bytes;

use super::usage::{AudioReport, BilledUnits};
use crate::estimate::TextSize;
use crate::json_cursor::Cursor;
use crate::json_scan::UsageScan;
use crate::metering::relays_scanned_document;
use crate::metering::{StreamTotals, Tally};
use crate::sse::EventAction;
use crate::{Meter, RequestBounds};
use tollgate_money::price::{Usage, UsageSource};

/// Facts of the held audio that an estimate needs.
#[derive(Clone, Copy)]
struct HeldAudio {
    max_usage: Usage,
    min_usage: Usage,
    billed: BilledUnits,
}

impl HeldAudio {
    fn new(bounds: &RequestBounds, billed: BilledUnits) -> Self {
        Self { max_usage: bounds.max_usage, min_usage: bounds.min_usage, billed }
    }

    /// Estimated usage for a transcript of this size.
    fn estimate(&self, written: TextSize) -> Usage {
        let output_tokens = written.tokens().min(self.max_usage.output_tokens);
        self.billed.usage(&Usage { output_tokens, ..self.min_usage })
    }

    fn is_exceeded_by(&self, report: &AudioReport) -> bool {
        self.billed.is_above(report, &self.max_usage)
    }
}

/// Meters a JSON document.
pub(super) struct DocumentMeter {
    scan: UsageScan,
    audio: HeldAudio,
    /// The report of a complete document.
    reported: OnceLock<AudioReport>,
}

impl DocumentMeter {
    pub(super) fn new(bounds: &RequestBounds, billed: BilledUnits) -> Self {
        let audio = HeldAudio::new(bounds, billed);
        Self { scan: UsageScan::default(), audio, reported: OnceLock::new() }
    }

    fn report(&self) -> AudioReport {
        let read = || {
            let mut report = AudioReport::default();
            self.scan.usages().for_each(|usage| report.add(usage));
            report
        };
        if self.scan.is_complete() { *self.reported.get_or_init(read) } else { read() }
    }
}

impl Meter for DocumentMeter {
    relays_scanned_document!();

    fn has_failed(&self) -> bool {
        let AudioReport { seconds, tokens } = self.report();
        self.scan.has_only_error() && seconds.is_none() && tokens.is_none()
    }

    fn measure(&self) -> (Usage, UsageSource) {
        let written = TextSize::unread(self.scan.text_bytes());
        self.audio.billed.measure(&self.report(), &self.audio.estimate(written))
    }

    fn is_above_limits(&self) -> bool {
        self.audio.is_exceeded_by(&self.report())
    }
}

/// Meters a text, which reports nothing: what was heard is known, and what was written is seen.
pub(super) struct TextMeter {
    audio: HeldAudio,
    written_bytes: u64,
    complete: bool,
}

impl TextMeter {
    pub(super) fn new(bounds: &RequestBounds, billed: BilledUnits) -> Self {
        Self { audio: HeldAudio::new(bounds, billed), written_bytes: 0, complete: false }
    }
}

impl Meter for TextMeter {
    fn relay(&mut self, chunk: Bytes) -> Bytes {
        self.written_bytes = self.written_bytes.saturating_add(chunk.len() as u64);
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
        if self.written_bytes == 0 { Usage::ZERO } else { self.measure().0 }
    }

    fn measure(&self) -> (Usage, UsageSource) {
        let written = TextSize::unread(self.written_bytes);
        (self.audio.estimate(written), UsageSource::Estimated)
    }

    fn changes_length(&self) -> bool {
        false
    }
}

/// Meters a stream of a transcript.
pub(super) struct TranscriptTally {
    audio: HeldAudio,
    written: TextSize,
    /// Useful output was received.
    has_begun: bool,
    report: AudioReport,
    ended: bool,
    failed: bool,
}

impl TranscriptTally {
    pub(super) fn new(bounds: &RequestBounds, billed: BilledUnits) -> Self {
        Self {
            audio: HeldAudio::new(bounds, billed),
            written: TextSize::default(),
            has_begun: false,
            report: AudioReport::default(),
            ended: false,
            failed: false,
        }
    }
}

/// An event as far as it counts.
#[derive(Default)]
struct TranscriptEvent<'a> {
    kind: &'a [u8],
    written: TextSize,
    usages: Vec<&'a [u8]>,
    failed: bool,
}

impl<'a> TranscriptEvent<'a> {
    fn read(data: &'a [u8]) -> Self {
        let mut event = Self::default();
        let mut member = |key: &[u8], value: &mut Cursor<'a>| {
            match key {
                b"type" => event.kind = value.raw()?,
                b"delta" => event.written.add(value.text_size()?),
                b"usage" => event.usages.extend(value.non_null()?),
                b"error" => event.failed |= value.non_null()?.is_some(),
                _ => value.skip()?,
            }
            Some(())
        };
        // An event that is no JSON tells nothing, and is relayed like any other.
        let _read = Cursor::new(data).object(|key, value| member(key, value));
        event
    }
}

impl Tally for TranscriptTally {
    type Totals = Self;

    fn judge(&mut self, data: &[u8]) -> EventAction {
        let event = TranscriptEvent::read(data);
        let is_end = event.kind == b"\"transcript.text.done\"" || data == b"[DONE]";
        self.has_begun |= is_end || event.kind.starts_with(b"\"transcript.text.");
        self.ended |= is_end || event.failed;
        self.failed |= event.failed;
        self.written.add(event.written);
        event.usages.iter().for_each(|usage| self.report.add(usage));
        EventAction::Keep
    }

    fn is_complete(&self) -> bool {
        self.ended
    }

    fn totals(&self) -> &Self {
        self
    }
}

impl StreamTotals for TranscriptTally {
    fn has_failed(&self) -> bool {
        self.failed && self.report.seconds.is_none() && self.report.tokens.is_none()
    }

    fn relayed(&self) -> Usage {
        if self.has_begun { self.audio.estimate(self.written) } else { Usage::ZERO }
    }

    fn measure(&self) -> (Usage, UsageSource) {
        self.audio.billed.measure(&self.report, &self.audio.estimate(self.written))
    }

    fn is_above_limits(&self) -> bool {
        self.audio.is_exceeded_by(&self.report)
    }
}
