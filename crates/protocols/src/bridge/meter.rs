//! What meters an upstream's answer and translates it for its customer: a document once it is whole, a
//! stream event by event.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use tollgate_money::error::GatewayError;
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Side, Traits, Usage, UsageSource};
use tollgate_translation::dialect::{
    AnswerFrame, Dialect as Translate, ReadStream, UpstreamDialect, WriteStream,
};
use tollgate_translation::names::Aliases;
use tollgate_translation::part::{AnswerPart, Counts, UpstreamFailure};

use super::in_our_words;
use crate::sse::{self, EventAction, Events};
use crate::{Contradictions, Meter, ReportedSides};
use crate::{bedrock_converse, event_stream};

/// What was used, as answers of all dialects say it.
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

/// What an answer is billed by whose upstream does not say what it used, where not all of it is to be
/// seen.
#[derive(Clone, Copy)]
pub(super) struct Unreported {
    /// The most that it can be.
    pub(super) bound: Usage,
    /// What was seen of it is billed in the place of that, unless the answer hides more itself.
    pub(super) is_estimated: bool,
}

/// What the customer reads as the usage of a whole answer: what it is billed by.
fn billed(meter: &dyn Meter, unreported: Option<&Unreported>) -> Usage {
    let (usage, source) = meter.measure();
    match unreported {
        Some(Unreported { bound, is_estimated })
            if source == UsageSource::Estimated
                && (!*is_estimated || meter.hides_output())
                && bound.total(Side::Output) >= usage.total(Side::Output) =>
        {
            *bound
        }
        _ => usage,
    }
}

/// The piece of an answer with what its meter has counted in the place of what its reader left open.
/// `unreported` is what a whole answer is billed by whose upstream does not say what it used, unless
/// that is what was seen of it.
fn metered<'a>(
    answer: AnswerPart<'a>,
    meter: &dyn Meter,
    unreported: Option<&Unreported>,
) -> AnswerPart<'a> {
    match answer {
        AnswerPart::Begin { id, .. } => {
            AnswerPart::Begin { id, counts: counts(&meter.measure().0, 0) }
        }
        AnswerPart::End(known) => {
            AnswerPart::End(counts(&billed(meter, unreported), known.reasoning))
        }
        other => other,
    }
}

/// What a writer for a customer keeps of a stream at most, in bytes: some thirty times the longest answer
/// of any model. What repeats itself at its end would otherwise take memory without end.
pub(super) const WRITER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The way of a stream's pieces to its customer, in an order in which any dialect can say them.
struct Passage {
    writer: Box<dyn WriteStream>,
    /// By which the upstream knows the customer's tools.
    aliases: Aliases,
    unreported: Option<Unreported>,
    has_begun: bool,
    /// The last piece was a call of a tool, or of its input.
    is_in_call: bool,
    /// The end of the answer, or why there is none, has been written.
    has_ended: bool,
    /// Something came that no customer could understand: nothing is written behind it.
    is_broken: bool,
}

impl Passage {
    fn new(writer: Box<dyn WriteStream>, aliases: Aliases, unreported: Option<Unreported>) -> Self {
        Self {
            writer,
            aliases,
            unreported,
            has_begun: false,
            is_in_call: false,
            has_ended: false,
            is_broken: false,
        }
    }

    /// Writes a piece, with what the meter has counted by now where it says what was used.
    fn write(&mut self, answer: AnswerPart<'_>, meter: &dyn Meter, out: &mut Vec<u8>) {
        if self.has_ended || self.is_broken {
            return;
        }
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
        self.has_ended = matches!(answer, AnswerPart::End(_) | AnswerPart::Error(_));
        let answer = self.aliases.restore(answer);
        self.writer.write(&metered(answer, meter, self.unreported.as_ref()), out);
        self.is_broken = self.writer.held_bytes() > WRITER_BYTES_MAX;
    }
}

/// Whether a piece cannot stand where it stands, or says nothing: a call of a tool without a name, and
/// input of no call.
fn is_nowhere(answer: &AnswerPart<'_>, is_in_call: bool) -> bool {
    match answer {
        AnswerPart::ToolCall { name, .. } => name.is_empty(),
        AnswerPart::Input(_) => !is_in_call,
        _ => false,
    }
}

/// What a meter with a field `inner: Box<dyn Meter>` passes on: what the upstream said is measured by its
/// own codec, whatever the customer is told in.
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
    unreported: Option<Unreported>,
    customers: &'static dyn Translate,
    upstreams: &'static dyn UpstreamDialect,
    is_translated: bool,
    /// It is whole, and the customer gets nothing of it.
    is_untranslatable: bool,
    /// What the upstream said in the place of an answer.
    refusal: Option<UpstreamFailure>,
}

impl BridgedDocument {
    /// Of an answer of which nothing has come. `unreported` is what it is billed by if its upstream does
    /// not say what it used, unless that is what was seen of it.
    pub(super) fn new(
        inner: Box<dyn Meter>,
        unreported: Option<Unreported>,
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
        if !self.inner.is_complete() {
            return Bytes::new();
        }
        let Ok(answer) = self.upstreams.read_answer(&text) else {
            self.is_untranslatable = true;
            return Bytes::new();
        };
        if let Some(AnswerPart::Error(failure)) = answer.last() {
            self.refusal = Some(failure.clone());
            return Bytes::new();
        }
        if answer.iter().any(|piece| is_nowhere(piece, true)) {
            self.is_untranslatable = true;
            return Bytes::new();
        }
        let metered = |piece| metered(piece, self.inner.as_ref(), self.unreported.as_ref());
        let restored = answer.into_iter().map(|piece| self.frame.aliases.restore(piece));
        let answer: Vec<AnswerPart<'_>> = restored.map(metered).collect();
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

    /// A whole document that cannot be said in the customer's words.
    fn given_up(&self) -> Option<Usage> {
        self.is_untranslatable.then_some(Usage::ZERO)
    }

    fn refusal(&self) -> Option<GatewayError> {
        self.refusal.clone().map(in_our_words)
    }

    fn held_bytes(&self) -> usize {
        self.inner.held_bytes() + self.text.len()
    }
}

/// What takes an upstream's stream apart into its events.
enum EventCutter {
    /// It comes as server-sent events.
    Lines(Events),
    /// It comes in Amazon's binary frames.
    Frames(event_stream::EventFrames),
}

impl EventCutter {
    /// Gives every event that the chunk completes to `each`, as it came and its data. False where the
    /// stream is none, here or before: what came until then was given.
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

    /// Whether an event was too long to be read.
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
    reader: Box<dyn ReadStream>,
    passage: Passage,
    /// What the customer had when the passage broke.
    delivered: Option<Usage>,
}

impl BridgedStream {
    /// Of a stream of which nothing has come, in Amazon's frames or as server-sent events. `unreported`
    /// is what it is billed by if its upstream does not say what it used, unless that is what was seen
    /// of it.
    pub(super) fn new(
        inner: Box<dyn Meter>,
        unreported: Option<Unreported>,
        comes_in_frames: bool,
        reader: Box<dyn ReadStream>,
        writer: Box<dyn WriteStream>,
        aliases: Aliases,
    ) -> Self {
        let events = match comes_in_frames {
            true => EventCutter::Frames(event_stream::EventFrames::default()),
            false => EventCutter::Lines(Events::of_images()),
        };
        let passage = Passage::new(writer, aliases, unreported);
        Self { inner, events, reader, passage, delivered: None }
    }

    /// Meters an event and translates it. What the meter says while it is translated is about it and
    /// what came before it, however the network has cut the stream.
    fn pass(
        event: &[u8],
        data: &[u8],
        inner: &mut dyn Meter,
        reader: &mut dyn ReadStream,
        (passage, delivered): (&mut Passage, &mut Option<Usage>),
        out: &mut Vec<u8>,
    ) {
        // Nothing of an event that breaks the passage is delivered.
        let before = (!passage.is_broken).then(|| inner.relayed());
        if data.is_empty() || !inner.take_event(event, data) || passage.is_broken {
            return;
        }
        let read = reader.read(data, &mut |answer| passage.write(answer, inner, out));
        passage.is_broken |= read.is_err();
        if passage.is_broken {
            *delivered = before;
        }
    }

    /// Notes a break that no event has caused: all that came before it was delivered.
    fn note_break(&mut self, is_broken: bool) {
        if is_broken && !self.passage.is_broken {
            self.passage.is_broken = true;
            self.delivered = Some(self.inner.relayed());
        }
    }
}

impl Meter for BridgedStream {
    measures_as_inner!();

    fn relay(&mut self, chunk: Bytes) -> Bytes {
        let Self { inner, events, reader, passage, delivered } = self;
        let mut out = Vec::with_capacity(chunk.len());
        let is_cut = events.cut(&chunk, |event, data| {
            let way = (&mut *passage, &mut *delivered);
            Self::pass(event, data, inner.as_mut(), reader.as_mut(), way, &mut out);
        });
        self.note_break(!is_cut);
        out.into()
    }

    fn finish(&mut self) -> Bytes {
        let Self { inner, events, reader, passage, delivered } = self;
        let mut out = Vec::new();
        let is_cut = events.finish(|event, data| {
            let way = (&mut *passage, &mut *delivered);
            Self::pass(event, data, inner.as_mut(), reader.as_mut(), way, &mut out);
        });
        self.note_break(!is_cut);
        let Self { inner, reader, passage, .. } = self;
        drop(inner.finish());
        if !passage.is_broken {
            reader.finish(&mut |answer| passage.write(answer, inner.as_ref(), &mut out));
        }
        out.into()
    }

    fn held_bytes(&self) -> usize {
        self.inner.held_bytes() + self.events.held_bytes() + self.passage.writer.held_bytes()
    }

    fn is_complete(&self) -> bool {
        self.passage.has_ended && !self.passage.is_broken && self.inner.is_complete()
    }

    fn relayed(&self) -> Usage {
        self.delivered.unwrap_or_else(|| self.inner.relayed())
    }

    fn hides_output(&self) -> bool {
        self.inner.hides_output() || self.events.has_unread()
    }

    fn given_up(&self) -> Option<Usage> {
        self.delivered
    }
}
