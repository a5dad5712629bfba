//! Meters of a translated answer: a document once it is complete, a stream event by event.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Side, Traits, Usage, UsageSource};
use tollgate_translation::dialect::{
    AnswerFrame, CustomerDialect as Translate, ReadStream, UpstreamDialect, WriteStream,
};
use tollgate_translation::names::Aliases;
use tollgate_translation::names::call_id;
use tollgate_translation::part::{AnswerPart, Counts, UpstreamFailure};
use tollgate_types::error::GatewayError;

use super::in_our_words;
use crate::sse::{self, EventAction, Events};
use crate::{Contradictions, Meter, ReportedSides};
use crate::{bedrock_converse, event_stream};

/// The usage in the counts of translation.
fn counts(usage: &Usage, reasoning: u64) -> Counts {
    Counts {
        input: usage.input_tokens,
        cache_read: usage.cache_read_tokens,
        cache_write: usage.cache_write_tokens,
        // No other dialect has a word for twelve hours.
        cache_write_1h: usage.cache_write_1h_tokens.saturating_add(usage.cache_write_12h_tokens),
        audio_input: usage.audio_input_tokens,
        image_input: usage.image_input_tokens,
        video_input: usage.video_input_tokens,
        output: usage.output_tokens,
        audio_output: usage.audio_output_tokens,
        web_searches: usage.web_searches,
        reasoning: reasoning.min(usage.total(Side::Output)),
    }
}

/// Usage charged for an answer that its upstream does not report, where part of it may be hidden.
#[derive(Clone, Copy)]
pub(super) struct UnreportedUsage {
    /// Maximum usage of the request.
    pub(super) max_usage: Usage,
    /// True if the visible part is charged instead, unless the answer itself hides more.
    pub(super) is_estimated: bool,
}

/// The usage that a complete answer shows to the customer: the billed one.
fn billed(meter: &dyn Meter, unreported: Option<&UnreportedUsage>) -> Usage {
    let (usage, source) = meter.measure();
    match unreported {
        Some(UnreportedUsage { max_usage, is_estimated })
            if source == UsageSource::Estimated
                && (!*is_estimated || meter.hides_output())
                && max_usage.total(Side::Output) >= usage.total(Side::Output) =>
        {
            *max_usage
        }
        _ => usage,
    }
}

/// Fills the usage of an answer part with the meter's counts. `unreported` is the usage billed for a complete
/// answer without reported usage, unless the visible output is more.
fn metered<'a>(
    answer: AnswerPart<'a>,
    meter: &dyn Meter,
    unreported: Option<&UnreportedUsage>,
) -> AnswerPart<'a> {
    match answer {
        AnswerPart::Begin { id, .. } => {
            AnswerPart::Begin { id, counts: counts(&meter.measure().0, 0) }
        }
        AnswerPart::End(counted) => {
            AnswerPart::End(counts(&billed(meter, unreported), counted.reasoning))
        }
        other => other,
    }
}

/// Maximum bytes of a stream that a writer keeps: some thirty times the longest answer of any model. Dialects
/// whose last event repeats the answer would otherwise grow without bound.
pub(super) const WRITER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Writes the pieces of a stream in an order that every dialect can express.
struct EventWriter {
    writer: Box<dyn WriteStream>,
    unreported: Option<UnreportedUsage>,
    names: CallNames,
    has_begun: bool,
    /// Some of the model's output was written.
    has_delivered: bool,
    /// The last piece was a call of a tool, or of its input.
    is_in_call: bool,
    /// The end of the answer, or why there is none, has been written.
    has_ended: bool,
    /// The upstream reported a failure.
    has_failed: bool,
    /// A piece could not be expressed in the client's dialect; nothing is written after it.
    is_broken: bool,
}

impl EventWriter {
    fn new(
        writer: Box<dyn WriteStream>,
        unreported: Option<UnreportedUsage>,
        names: CallNames,
    ) -> Self {
        Self {
            writer,
            unreported,
            names,
            has_begun: false,
            has_delivered: false,
            is_in_call: false,
            has_ended: false,
            has_failed: false,
            is_broken: false,
        }
    }

    /// Writes a piece; where it reports usage, with the meter's current counts.
    fn write(&mut self, answer: AnswerPart<'_>, meter: &dyn Meter, out: &mut Vec<u8>) {
        if self.has_ended || self.is_broken {
            return;
        }
        if matches!(answer, AnswerPart::Alive) {
            return self.writer.write(&answer, out);
        }
        // Before all checks: a call gets its name and id back first, and is judged as the customer
        // sees it.
        let answer = self.names.name(answer);
        match &answer {
            AnswerPart::Begin { .. } if self.has_begun => return,
            AnswerPart::Begin { .. } | AnswerPart::Error(_) => {}
            // Some upstreams do not say that they begin.
            _ if !self.has_begun => {
                let begin = AnswerPart::Begin { id: Cow::Borrowed(""), counts: Counts::default() };
                self.writer.write(&metered(begin, meter, None), out);
            }
            _ => {}
        }
        self.has_begun = true;
        if is_nowhere(&answer, self.is_in_call) {
            self.is_broken = true;
            return;
        }
        self.is_in_call = matches!(answer, AnswerPart::ToolCall { .. } | AnswerPart::Input(_));
        self.has_delivered |= is_content(&answer);
        self.has_failed = matches!(answer, AnswerPart::Error(_));
        self.has_ended = self.has_failed || matches!(answer, AnswerPart::End(_));
        self.writer.write(&metered(answer, meter, self.unreported.as_ref()), out);
        // Checked behind each piece: what is over the limit by one piece is the most that is ever
        // held.
        self.is_broken = self.writer.held_bytes() > WRITER_BYTES_MAX;
    }
}

/// True if a piece is content: text, reasoning or a call.
fn is_content(answer: &AnswerPart<'_>) -> bool {
    match answer {
        AnswerPart::Text(text)
        | AnswerPart::Refusal(text)
        | AnswerPart::Reasoning(text)
        | AnswerPart::Input(text) => !text.is_empty(),
        AnswerPart::ToolCall { .. } => true,
        _ => false,
    }
}

/// Names of calls as customers see them: their own tool names, and ids where the upstream gives none.
/// Conversations may mix calls of many upstreams, so these ids contain their answer's random word.
struct CallNames {
    /// The names by which the upstream knows the tools.
    aliases: Aliases,
    nonce: String,
    calls: usize,
}

impl CallNames {
    fn new(frame: &AnswerFrame) -> Self {
        Self { aliases: frame.aliases.clone(), nonce: frame.nonce.clone(), calls: 0 }
    }

    /// The piece with the name and the id that the customer reads, if it begins a call.
    fn name<'a>(&mut self, answer: AnswerPart<'a>) -> AnswerPart<'a> {
        let answer = self.aliases.restore(answer);
        let AnswerPart::ToolCall { id, name, seal } = answer else { return answer };
        let place = self.calls;
        self.calls += 1;
        let id = if id.is_empty() { call_id(&self.nonce, place).into() } else { id };
        AnswerPart::ToolCall { id, name, seal }
    }
}

/// True if a piece is out of place or empty: a tool call without a name, or input outside a call.
fn is_nowhere(answer: &AnswerPart<'_>, is_in_call: bool) -> bool {
    match answer {
        AnswerPart::ToolCall { name, .. } => name.is_empty(),
        AnswerPart::Input(_) => !is_in_call,
        _ => false,
    }
}

/// Delegates the measuring methods of a meter to its field `inner: Box<dyn Meter>`: usage is read by the
/// upstream's own codec, whatever dialect the customer speaks.
macro_rules! measures_as_inner {
    () => {
        fn has_failed(&self) -> bool {
            self.inner.has_failed()
        }

        fn measure(&self) -> (Usage, UsageSource) {
            self.inner.measure()
        }

        fn reported_sides(&self) -> ReportedSides {
            self.inner.reported_sides()
        }

        fn contradictions(&self) -> Contradictions {
            self.inner.contradictions()
        }

        fn reported_cost(&self) -> Option<Nanousd> {
            self.inner.reported_cost()
        }

        fn served(&self) -> Traits {
            self.inner.served()
        }

        fn is_above_limits(&self) -> bool {
            self.inner.is_above_limits()
        }

        fn changes_length(&self) -> bool {
            true
        }
    };
}

/// Meters a document, and translates it once it is whole.
pub(super) struct BridgedDocument {
    inner: Box<dyn Meter>,
    text: BytesMut,
    frame: AnswerFrame,
    unreported: Option<UnreportedUsage>,
    customers: &'static dyn Translate,
    upstreams: &'static dyn UpstreamDialect,
    is_translated: bool,
    /// The answer is complete but cannot be translated.
    is_untranslatable: bool,
    /// The failure that the upstream sent instead of an answer.
    refusal: Option<UpstreamFailure>,
}

impl BridgedDocument {
    /// Meter for an unstreamed answer. `unreported` is the usage billed if the upstream reports none, unless
    /// the visible output is more.
    pub(super) fn new(
        inner: Box<dyn Meter>,
        unreported: Option<UnreportedUsage>,
        frame: AnswerFrame,
        customers: &'static dyn Translate,
        upstreams: &'static dyn UpstreamDialect,
    ) -> Self {
        Self {
            inner,
            text: BytesMut::new(),
            frame,
            unreported,
            customers,
            upstreams,
            is_translated: false,
            is_untranslatable: false,
            refusal: None,
        }
    }
}

impl Meter for BridgedDocument {
    measures_as_inner!();

    fn relay(&mut self, chunk: Bytes) -> Bytes {
        let passed = self.inner.relay(chunk);
        self.text.extend_from_slice(&passed);
        Bytes::new()
    }

    fn finish(&mut self) -> Bytes {
        let rest = self.inner.finish();
        self.text.extend_from_slice(&rest);
        let text = self.text.split();
        // A document that was cut is no answer: only its meter knows what came of it.
        if !self.inner.is_complete() {
            return Bytes::new();
        }
        let Ok(answer) = self.upstreams.read_answer(&text) else {
            self.is_untranslatable = true;
            return Bytes::new();
        };
        // MiniMax and others refuse with status 200: the caller turns this into an error of the
        // right status.
        if let Some(AnswerPart::Error(failure)) = answer.last() {
            self.refusal = Some(failure.clone());
            return Bytes::new();
        }
        if answer.iter().any(|piece| is_nowhere(piece, true)) {
            self.is_untranslatable = true;
            return Bytes::new();
        }
        let mut names = CallNames::new(&self.frame);
        let metered = |piece| metered(piece, self.inner.as_ref(), self.unreported.as_ref());
        let named = answer.into_iter().map(|piece| names.name(piece));
        let answer: Vec<AnswerPart<'_>> = named.map(metered).collect();
        self.is_translated = true;
        self.customers.write_answer(&answer, &self.frame).into()
    }

    fn is_complete(&self) -> bool {
        self.is_translated
    }

    fn relayed(&self) -> Usage {
        self.inner.relayed()
    }

    fn hides_output(&self) -> bool {
        self.inner.hides_output()
    }

    /// Usage of a complete document that cannot be translated or reports a failure.
    fn given_up(&self) -> Option<Usage> {
        (self.is_untranslatable || self.refusal.is_some()).then_some(Usage::ZERO)
    }

    fn refusal(&self) -> Option<GatewayError> {
        self.refusal.clone().map(in_our_words)
    }

    fn held_bytes(&self) -> usize {
        self.inner.held_bytes() + self.text.len()
    }
}

/// Splits an upstream's stream into events.
enum EventCutter {
    /// It comes as server-sent events.
    Lines(Events),
    /// It comes in Amazon's binary frames.
    Frames(event_stream::EventFrames),
}

impl EventCutter {
    /// Passes every event that the chunk completes to `each`, as received and with its data. False if the
    /// stream is malformed; events before the error were passed.
    fn cut(&mut self, chunk: &Bytes, mut each: impl FnMut(&[u8], &[u8])) -> bool {
        match self {
            Self::Lines(events) => {
                let uncut = events.relay(chunk, |event| {
                    each(event, &sse::data(event));
                    EventAction::Drop
                });
                // An event that is too long to be held comes out as it is.
                uncut.is_empty()
            }
            Self::Frames(messages) => {
                let read = messages.read(chunk, |message| {
                    let data = bedrock_converse::event_data(message);
                    each(&data, &data);
                });
                read.is_ok()
            }
        }
    }

    /// The upstream has ended the stream. False where it ended in the middle of an event.
    fn finish(&mut self, mut each: impl FnMut(&[u8], &[u8])) -> bool {
        match self {
            Self::Lines(events) => {
                // Some servers leave out the blank line behind the last event.
                let rest = events.take_unfinished();
                each(&rest, &sse::data(&rest));
                true
            }
            Self::Frames(messages) => messages.is_at_end_of_frame(),
        }
    }

    /// True if an event was too long to be read.
    fn has_unread(&self) -> bool {
        match self {
            Self::Lines(events) => events.has_unread(),
            Self::Frames(_) => false,
        }
    }

    fn held_bytes(&self) -> usize {
        match self {
            Self::Lines(events) => events.held_bytes(),
            Self::Frames(messages) => messages.held_bytes(),
        }
    }
}

/// Meters a stream, and translates it event by event.
pub(super) struct BridgedStream {
    inner: Box<dyn Meter>,
    events: EventCutter,
    bridge: StreamBridge,
}

/// Translates a stream from the upstream's dialect to the client's.
struct StreamBridge {
    reader: Box<dyn ReadStream>,
    event_writer: EventWriter,
    /// Usage delivered to the customer when nothing was held back last.
    delivered: Usage,
}

impl StreamBridge {
    /// Meters an event and translates it. What the meter says while it is translated is about it and
    /// what came before it, however the network has cut the stream.
    fn pass(&mut self, event: &[u8], data: &[u8], inner: &mut dyn Meter, out: &mut Vec<u8>) {
        if data.is_empty() {
            if !event.trim_ascii().is_empty() {
                // The upstream is alive, and clients that time silent streams must learn of it.
                self.event_writer.write(AnswerPart::Alive, inner, out);
            }
            return;
        }
        // Nothing of an event that breaks the passage is delivered, and nothing that waits.
        if !self.event_writer.is_broken && !self.reader.has_waiting() {
            self.delivered = inner.relayed();
        }
        if !inner.take_event(event, data) || self.event_writer.is_broken {
            return;
        }
        let Self { reader, event_writer, .. } = self;
        let read = reader.read(data, &mut |answer| event_writer.write(answer, inner, out));
        // Together: a reader that waits and a writer that repeats would otherwise hold the limit
        // each.
        let held_bytes = reader.held_bytes() + event_writer.writer.held_bytes();
        event_writer.is_broken |= read.is_err() || held_bytes > WRITER_BYTES_MAX;
    }

    /// Notes a break that no event has caused: all that came before it was delivered.
    fn note_break(&mut self, is_broken: bool, inner: &dyn Meter) {
        if is_broken && !self.event_writer.is_broken {
            self.event_writer.is_broken = true;
            if !self.reader.has_waiting() {
                self.delivered = inner.relayed();
            }
        }
    }

    /// Usage delivered to the customer when the gateway broke the answer off or the upstream failed: nothing
    /// beyond it is charged.
    fn given_up(&self) -> Option<Usage> {
        let EventWriter { is_broken, has_failed, has_delivered, .. } = self.event_writer;
        match (is_broken, has_failed) {
            (true, _) if has_delivered => Some(self.delivered),
            (true, _) => Some(Usage::ZERO),
            (false, true) if !has_delivered => Some(Usage::ZERO),
            (false, _) => None,
        }
    }
}

impl BridgedStream {
    /// State before the first byte of a stream, in Amazon's frames or as server-sent events. `unreported` is
    /// the usage billed if the upstream reports none, unless the visible output is more.
    pub(super) fn new(
        inner: Box<dyn Meter>,
        unreported: Option<UnreportedUsage>,
        comes_in_frames: bool,
        reader: Box<dyn ReadStream>,
        writer: Box<dyn WriteStream>,
        frame: &AnswerFrame,
    ) -> Self {
        let events = match comes_in_frames {
            true => EventCutter::Frames(event_stream::EventFrames::default()),
            false => EventCutter::Lines(Events::for_images()),
        };
        let event_writer = EventWriter::new(writer, unreported, CallNames::new(frame));
        Self {
            inner,
            events,
            bridge: StreamBridge { reader, event_writer, delivered: Usage::ZERO },
        }
    }
}

impl Meter for BridgedStream {
    measures_as_inner!();

    fn relay(&mut self, chunk: Bytes) -> Bytes {
        let Self { inner, events, bridge } = self;
        let mut out = Vec::with_capacity(chunk.len());
        let is_cut = events.cut(&chunk, |event, data| {
            bridge.pass(event, data, inner.as_mut(), &mut out);
        });
        bridge.note_break(!is_cut, inner.as_ref());
        out.into()
    }

    fn finish(&mut self) -> Bytes {
        let Self { inner, events, bridge } = self;
        let mut out = Vec::new();
        let is_cut = events.finish(|event, data| {
            if !data.is_empty() {
                bridge.pass(event, data, inner.as_mut(), &mut out);
            }
        });
        bridge.note_break(!is_cut, inner.as_ref());
        drop(inner.finish());
        let StreamBridge { reader, event_writer, .. } = bridge;
        if !event_writer.is_broken {
            reader.finish(&mut |answer| event_writer.write(answer, inner.as_ref(), &mut out));
        }
        out.into()
    }

    fn held_bytes(&self) -> usize {
        let bridge = self.bridge.reader.held_bytes() + self.bridge.event_writer.writer.held_bytes();
        self.inner.held_bytes() + self.events.held_bytes() + bridge
    }

    fn is_complete(&self) -> bool {
        let EventWriter { has_ended, is_broken, .. } = self.bridge.event_writer;
        has_ended && !is_broken && self.inner.is_complete()
    }

    fn relayed(&self) -> Usage {
        if self.bridge.event_writer.is_broken {
            self.bridge.delivered
        } else {
            self.inner.relayed()
        }
    }

    fn hides_output(&self) -> bool {
        self.inner.hides_output() || self.events.has_unread()
    }

    fn given_up(&self) -> Option<Usage> {
        self.bridge.given_up()
    }
}
