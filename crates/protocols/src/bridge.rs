//! Requests of one dialect over upstreams that speak another: the pairs that have no codec of their own.
//!
//! A customer's request is written anew in the upstream's dialect, and that text is read by the
//! upstream's own codec: it says what the request can use, and its meter counts what the answer has
//! used. So a translated call is held, metered and charged as if a customer of the upstream's dialect
//! had made it, and the usage that its customer reads is what that meter says.

use std::borrow::Cow;
use std::fmt;

use bytes::{Bytes, BytesMut};
use tollgate_money::error::{ErrorKind, GatewayError};
use tollgate_money::ids::RequestId;
use tollgate_money::money::Nanousd;
use tollgate_money::price::{InputWays, Side, Traits, Usage, UsageSource};
use tollgate_translation::dialect::{
    AnswerFrame, Dialect as Translate, Losses, ReadStream, TranslationTarget, Untranslatable,
    UpstreamDialect, WriteStream,
};
use tollgate_translation::part::{AnswerPart, Counts, FailureKind, PromptPart, UpstreamFailure};
use tollgate_translation::{Chat, Converse, Gemini, Messages, Responses};

use super::anthropic_messages::AnthropicMessages;
use super::bedrock_converse::{self, BedrockConverse};
use super::estimate::TextSize;
use super::event_stream;
use super::gemini_content::{GeminiContent, check_counted};
use super::json::Object;
use super::limits::ModelLimits;
use super::openai_chat::OpenaiChat;
use super::openai_responses::OpenaiResponses;
use super::splice::{Splice, json_string};
use super::sse::{self, EventAction, Events};
use super::stored::Reference;
use super::{
    Call, Codec, Dialect, Framing, Meter, NamedInPath, Operation, PathAsked, Request, Terms,
};

/// The version of Anthropic's API in which requests are written.
const ANTHROPIC_VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

/// Every pair that is translated. Of two ways to ask one upstream the first carries more.
static BRIDGES: &[Bridge] = &[
    Bridge { customers: &CHAT, upstreams: RESPONSES.upstreams() },
    Bridge { customers: &CHAT, upstreams: MESSAGES.upstreams() },
    Bridge { customers: &MESSAGES, upstreams: RESPONSES.upstreams() },
    Bridge { customers: &MESSAGES, upstreams: CHAT.upstreams() },
    Bridge { customers: &RESPONSES, upstreams: MESSAGES.upstreams() },
    Bridge { customers: &RESPONSES, upstreams: CHAT.upstreams() },
    Bridge { customers: &CHAT, upstreams: CONVERSE },
    Bridge { customers: &MESSAGES, upstreams: CONVERSE },
    Bridge { customers: &RESPONSES, upstreams: CONVERSE },
    Bridge { customers: &GEMINI, upstreams: RESPONSES.upstreams() },
    Bridge { customers: &GEMINI, upstreams: MESSAGES.upstreams() },
    Bridge { customers: &GEMINI, upstreams: CHAT.upstreams() },
    Bridge { customers: &CHAT, upstreams: GEMINI.upstreams() },
    Bridge { customers: &MESSAGES, upstreams: GEMINI.upstreams() },
    Bridge { customers: &RESPONSES, upstreams: GEMINI.upstreams() },
    Bridge { customers: &GEMINI, upstreams: CONVERSE },
];

static CHAT: Spoken = Spoken { operation: Operation::Chat, words: &Chat, codec: &OpenaiChat };
static MESSAGES: Spoken =
    Spoken { operation: Operation::Messages, words: &Messages, codec: &AnthropicMessages };
static RESPONSES: Spoken =
    Spoken { operation: Operation::Responses, words: &Responses, codec: &OpenaiResponses };
static GEMINI: Spoken =
    Spoken { operation: Operation::GenerateContent, words: &Gemini, codec: &GeminiContent };
/// It has no customers.
const CONVERSE: UpstreamSide =
    UpstreamSide { operation: Operation::Chat, words: &Converse, codec: &BedrockConverse };

/// The codec that translates `operation` for a model that is for the operations `typed`, over an
/// upstream that speaks `dialect`: by what the model is said to be for, if the upstream speaks that,
/// else by anything that it speaks. A model for none of the operations that are translated has none.
#[must_use]
pub fn bridge(
    operation: Operation,
    dialect: Dialect,
    typed: &[Operation],
) -> Option<&'static dyn Codec> {
    if !BRIDGES.iter().any(|bridge| typed.contains(&bridge.upstreams.operation)) {
        return None;
    }
    let counts = LOCAL_COUNTS.iter().find(|count| count.operation == operation);
    if let Some(count) = counts {
        return count.dialects.contains(&dialect).then_some(count);
    }
    let fits = |it: &&Bridge| it.operation() == operation && it.dialects().contains(&dialect);
    let typed = BRIDGES.iter().filter(fits).find(|it| typed.contains(&it.upstreams.operation));
    let found = typed.or_else(|| BRIDGES.iter().rfind(fits));
    found.map(|bridge| bridge as &dyn Codec)
}

/// One dialect as both sides of a translation need it.
struct Spoken {
    operation: Operation,
    words: &'static dyn Translate,
    /// What reads its requests and meters its answers.
    codec: &'static dyn Codec,
}

impl Spoken {
    const fn upstreams(&self) -> UpstreamSide {
        UpstreamSide { operation: self.operation, words: self.words, codec: self.codec }
    }
}

/// One dialect as the upstreams' side of a translation needs it.
struct UpstreamSide {
    /// What a model is said to be for that is best asked in this dialect.
    operation: Operation,
    words: &'static dyn UpstreamDialect,
    /// What reads its requests and meters its answers.
    codec: &'static dyn Codec,
}

/// The codec of requests in one dialect for upstreams that speak another.
struct Bridge {
    customers: &'static Spoken,
    upstreams: UpstreamSide,
}

impl fmt::Debug for Bridge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = (self.customers.operation, self.upstreams.operation);
        write!(f, "Bridge({from} over {to})")
    }
}

impl Codec for Bridge {
    fn operation(&self) -> Operation {
        self.customers.operation
    }

    fn dialects(&self) -> &'static [Dialect] {
        self.upstreams.codec.dialects()
    }

    fn path(&self) -> &'static str {
        self.upstreams.codec.path()
    }

    fn path_to(&self, asked: &PathAsked<'_>) -> Cow<'static, str> {
        self.upstreams.codec.path_to(asked)
    }

    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        match self.upstreams.operation {
            Operation::Messages => &[ANTHROPIC_VERSION],
            _ => &[],
        }
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        let translated = self.translate(body, request.named_in_path(), limits)?;
        let text = Object::parse(&translated.body)
            .map_err(|error| GatewayError::new(ErrorKind::Internal, UNWRITABLE).cause(error))?;
        let named =
            NamedInPath { model: &translated.frame.model, streams: translated.frame.streams };
        let inner = match self.upstreams.operation.is_named_in_path() {
            true => self.upstreams.codec.read(&Request::JsonAt(text, named), limits)?,
            false => self.upstreams.codec.read(&Request::Json(text), limits)?,
        };
        let Translated { body: text, frame, left_out } = translated;
        let left_out = match (inner.left_out(), left_out.is_empty()) {
            (None, true) => None,
            (None, false) => Some(left_out),
            (Some(theirs), true) => Some(theirs.into_owned()),
            (Some(theirs), false) => Some(format!("{left_out}, {theirs}")),
        };
        let (customers, upstreams) = (self.customers.words, self.upstreams.words);
        let (length, body) = (body.text().len(), text.into());
        Ok(Box::new(BridgedCall { inner, length, body, frame, left_out, customers, upstreams }))
    }
}

/// What the customer reads if what was written for the upstream cannot be read.
const UNWRITABLE: &str = "The request could not be translated for this model's provider.";

/// A request in the words of the upstream.
struct Translated {
    body: Vec<u8>,
    frame: AnswerFrame,
    /// Hints that were dropped, with commas between them.
    left_out: String,
}

impl Bridge {
    fn translate(
        &self,
        body: &Object<'_>,
        named: Option<NamedInPath<'_>>,
        limits: &ModelLimits,
    ) -> Result<Translated, GatewayError> {
        let read = self.customers.words.read_request(body.text()).map_err(refused)?;
        let mut frame = read.frame;
        if let Some(NamedInPath { model, streams }) = named {
            frame = AnswerFrame { model: model.to_owned(), streams, ..frame };
        }
        let Some(target) = limits.translation else {
            return Err(GatewayError::new(ErrorKind::Internal, UNWRITABLE));
        };
        // Who names a key for the cache wants the prompt to be found there again.
        let has_key = read.parts.iter().any(|part| matches!(part, PromptPart::CacheKey(_)));
        let target = TranslationTarget {
            streams: frame.streams,
            output_max: limits.output_tokens_max,
            caches: target.caches || has_key,
            ..target
        };
        let mut losses = Losses::default();
        let written = self
            .upstreams
            .words
            .write_request(&read.parts, &target, &mut losses)
            .map_err(refused)?;
        let id = RequestId::new();
        frame.created = id.began_at().seconds();
        frame.nonce = id.to_string().replace(|letter: char| !letter.is_ascii_alphanumeric(), "");
        if self.upstreams.operation.is_named_in_path() {
            return Ok(Translated { body: written, frame, left_out: losses.fields().join(", ") });
        }
        // The model's name goes first, where the upstream's codec writes the upstream's name over it.
        let members = written.strip_prefix(b"{").unwrap_or(&written);
        let comma: &[u8] = if members.starts_with(b"}") { b"" } else { b"," };
        let body = [b"{\"model\":", json_string(&frame.model).as_bytes(), comma, members].concat();
        Ok(Translated { body, frame, left_out: losses.fields().join(", ") })
    }
}

fn refused(refusal: Untranslatable) -> GatewayError {
    let error = GatewayError::new(ErrorKind::InvalidRequest, refusal.message);
    GatewayError { param: Some(refusal.field), ..error }
}

/// A request whose customer speaks one dialect and whose upstream another.
struct BridgedCall {
    /// What the upstream's codec says of what it gets.
    inner: Box<dyn Call>,
    /// How many bytes the customer's own request has.
    length: usize,
    /// The request in the upstream's dialect.
    body: Bytes,
    frame: AnswerFrame,
    left_out: Option<String>,
    customers: &'static dyn Translate,
    upstreams: &'static dyn UpstreamDialect,
}

impl fmt::Debug for BridgedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BridgedCall").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl Call for BridgedCall {
    fn terms(&self) -> &Terms {
        self.inner.terms()
    }

    fn bound(&self) -> Usage {
        self.inner.bound()
    }

    fn floor(&self) -> Usage {
        self.inner.floor()
    }

    fn is_all_shown(&self) -> bool {
        self.inner.is_all_shown()
    }

    fn input_ways(&self) -> InputWays {
        self.inner.input_ways()
    }

    fn sounds(&self) -> bool {
        self.inner.sounds()
    }

    fn makes_pictures(&self) -> bool {
        self.inner.makes_pictures()
    }

    fn traits(&self) -> Traits {
        self.inner.traits()
    }

    fn splice(&self, upstream_model: &str) -> Splice {
        let written = self.inner.splice(upstream_model).apply(&self.body);
        let mut splice = Splice::default();
        // What was UTF-8 before edits that are strings is UTF-8 behind them.
        splice.replace(0..self.length, String::from_utf8(written.into()).unwrap_or_default());
        splice
    }

    fn left_out(&self) -> Option<Cow<'_, str>> {
        self.left_out.as_deref().map(Cow::Borrowed)
    }

    fn refers_to(&self) -> &[Reference] {
        self.inner.refers_to()
    }

    fn meter(&self, framing: Framing) -> Box<dyn Meter> {
        let inner = self.inner.meter(framing);
        // Where not all is shown, an answer without a report is billed as the most that it can be.
        let unreported = (!self.inner.is_all_shown()).then(|| self.inner.bound());
        let (customers, upstreams) = (self.customers, self.upstreams);
        match framing {
            Framing::Json | Framing::Binary => Box::new(BridgedDocument {
                inner,
                text: BytesMut::new(),
                frame: self.frame.clone(),
                unreported,
                customers,
                upstreams,
                is_translated: false,
                refusal: None,
            }),
            Framing::Sse | Framing::EventStream => Box::new(BridgedStream {
                inner,
                events: match self.inner.comes_in_frames() {
                    true => EventCutter::Frames(event_stream::EventFrames::default()),
                    false => EventCutter::Lines(Events::of_images()),
                },
                reader: upstreams.stream_reader(),
                passage: Passage::new(customers.stream_writer(&self.frame), unreported),
            }),
        }
    }

    fn streams(&self) -> bool {
        // Some upstreams are told by the path.
        self.frame.streams
    }

    fn comes_in_frames(&self) -> bool {
        self.inner.comes_in_frames()
    }

    fn refusal(&self, status: u16, name: Option<&str>, body: &[u8]) -> Option<GatewayError> {
        Some(in_our_words(match name {
            Some(name) => self.upstreams.read_named_failure(status, name, body),
            None => self.upstreams.read_failure(status, body),
        }))
    }
}

/// What an upstream says of a request that it refuses, as customers of any dialect read it.
fn in_our_words(failure: UpstreamFailure) -> GatewayError {
    let UpstreamFailure { kind, message, param } = failure;
    let (kind, code) = match kind {
        FailureKind::Invalid => (ErrorKind::InvalidRequest, None),
        FailureKind::TooLong => (ErrorKind::InvalidRequest, Some("context_length_exceeded")),
        FailureKind::Filtered => (ErrorKind::InvalidRequest, Some("content_policy_violation")),
        FailureKind::NotFound => (ErrorKind::InvalidRequest, None),
        FailureKind::Busy => (ErrorKind::RateLimited, None),
        FailureKind::Denied | FailureKind::Upstream => (ErrorKind::BadGateway, None),
    };
    GatewayError { param: param.map(Cow::Owned), code, ..GatewayError::new(kind, message) }
}

/// What was used, as answers of all dialects say it.
fn counts(usage: &Usage, reasoning: u64) -> Counts {
    Counts {
        input: usage.input_tokens,
        cache_read: usage.cache_read_tokens,
        cache_write: usage.cache_write_tokens,
        cache_write_1h: usage.cache_write_1h_tokens,
        audio_input: usage.audio_input_tokens,
        image_input: usage.image_input_tokens,
        output: usage.output_tokens,
        audio_output: usage.audio_output_tokens,
        web_searches: usage.web_searches,
        reasoning: reasoning.min(usage.total(Side::Output)),
    }
}

/// What the customer reads as the usage of a whole answer: what it is billed by.
fn billed(meter: &dyn Meter, unreported: Option<&Usage>) -> Usage {
    let (usage, source) = meter.measure();
    match unreported {
        Some(bound)
            if source == UsageSource::Estimated
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
    unreported: Option<&Usage>,
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
const WRITER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The way of a stream's pieces to its customer, in an order in which any dialect can say them.
struct Passage {
    writer: Box<dyn WriteStream>,
    unreported: Option<Usage>,
    has_begun: bool,
    /// The last piece was a call of a tool, or of its input.
    is_in_call: bool,
    /// The end of the answer, or why there is none, has been written.
    has_ended: bool,
    /// Something came that no customer could understand: nothing is written behind it.
    is_broken: bool,
}

impl Passage {
    fn new(writer: Box<dyn WriteStream>, unreported: Option<Usage>) -> Self {
        Self {
            writer,
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

/// Meters a document, and translates it once it is whole.
struct BridgedDocument {
    inner: Box<dyn Meter>,
    text: BytesMut,
    frame: AnswerFrame,
    unreported: Option<Usage>,
    customers: &'static dyn Translate,
    upstreams: &'static dyn UpstreamDialect,
    is_translated: bool,
    /// What the upstream said in the place of an answer.
    refusal: Option<UpstreamFailure>,
}

impl Meter for BridgedDocument {
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
        let Ok(answer) = self.upstreams.read_answer(&text) else { return Bytes::new() };
        if let Some(AnswerPart::Error(failure)) = answer.last() {
            self.refusal = Some(failure.clone());
            return Bytes::new();
        }
        if answer.iter().any(|piece| is_nowhere(piece, true)) {
            return Bytes::new();
        }
        let metered = |piece| metered(piece, self.inner.as_ref(), self.unreported.as_ref());
        let answer: Vec<AnswerPart<'_>> = answer.into_iter().map(metered).collect();
        self.is_translated = true;
        self.customers.write_answer(&answer, &self.frame).into()
    }

    fn is_complete(&self) -> bool {
        self.is_translated
    }

    fn has_failed(&self) -> bool {
        self.inner.has_failed()
    }

    fn refusal(&self) -> Option<GatewayError> {
        self.refusal.clone().map(in_our_words)
    }

    fn held_bytes(&self) -> usize {
        self.inner.held_bytes() + self.text.len()
    }

    fn relayed(&self) -> Usage {
        self.inner.relayed()
    }

    fn measure(&self) -> (Usage, UsageSource) {
        self.inner.measure()
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

    fn held_bytes(&self) -> usize {
        match self {
            Self::Lines(events) => events.held_bytes(),
            Self::Frames(messages) => messages.held_bytes(),
        }
    }
}

/// Meters a stream, and translates it event by event.
struct BridgedStream {
    inner: Box<dyn Meter>,
    events: EventCutter,
    reader: Box<dyn ReadStream>,
    passage: Passage,
}

impl BridgedStream {
    /// Meters an event and translates it. What the meter says while it is translated is about it and
    /// what came before it, however the network has cut the stream.
    fn pass(
        event: &[u8],
        data: &[u8],
        inner: &mut dyn Meter,
        reader: &mut dyn ReadStream,
        passage: &mut Passage,
        out: &mut Vec<u8>,
    ) {
        if data.is_empty() || !inner.take_event(event, data) || passage.is_broken {
            return;
        }
        let read = reader.read(data, &mut |answer| passage.write(answer, inner, out));
        passage.is_broken |= read.is_err();
    }
}

impl Meter for BridgedStream {
    fn relay(&mut self, chunk: Bytes) -> Bytes {
        let Self { inner, events, reader, passage } = self;
        let mut out = Vec::with_capacity(chunk.len());
        let is_cut = events.cut(&chunk, |event, data| {
            Self::pass(event, data, inner.as_mut(), reader.as_mut(), passage, &mut out);
        });
        passage.is_broken |= !is_cut;
        out.into()
    }

    fn finish(&mut self) -> Bytes {
        let Self { inner, events, reader, passage } = self;
        let mut out = Vec::new();
        let is_cut = events.finish(|event, data| {
            Self::pass(event, data, inner.as_mut(), reader.as_mut(), passage, &mut out);
        });
        passage.is_broken |= !is_cut;
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

    fn has_failed(&self) -> bool {
        self.inner.has_failed()
    }

    fn relayed(&self) -> Usage {
        self.inner.relayed()
    }

    fn measure(&self) -> (Usage, UsageSource) {
        self.inner.measure()
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
}

/// The counts that are made here, each for upstreams that have nothing like it.
static LOCAL_COUNTS: &[LocalCount] = &[
    LocalCount {
        operation: Operation::CountTokens,
        dialects: &[Dialect::Openai, Dialect::Bedrock, Dialect::Gemini, Dialect::Vertex],
    },
    LocalCount {
        operation: Operation::CountContentTokens,
        dialects: &[Dialect::Openai, Dialect::Anthropic, Dialect::Bedrock],
    },
];

/// The codec of a count for upstreams of other dialects.
#[derive(Debug)]
struct LocalCount {
    operation: Operation,
    dialects: &'static [Dialect],
}

impl Codec for LocalCount {
    fn operation(&self) -> Operation {
        self.operation
    }

    fn dialects(&self) -> &'static [Dialect] {
        self.dialects
    }

    fn path(&self) -> &'static str {
        ""
    }

    fn read(&self, request: &Request<'_>, _: &ModelLimits) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        let tokens = TextSize::of_strings(body.text()).tokens();
        let terms = Terms::of_whole(body, Usage::ZERO, Usage::ZERO);
        Ok(Box::new(match request.named_in_path() {
            None => {
                super::check_messages(body)?;
                LocalCountCall { terms, field: "input_tokens", tokens }
            }
            Some(named) => {
                check_counted(body)?;
                LocalCountCall { terms: terms.named_in_path(named), field: "totalTokens", tokens }
            }
        }))
    }
}

/// A count that is made without asking an upstream.
#[derive(Debug)]
struct LocalCountCall {
    terms: Terms,
    /// Where the answer has it.
    field: &'static str,
    tokens: u64,
}

impl Call for LocalCountCall {
    fn terms(&self) -> &Terms {
        &self.terms
    }

    fn local_answer(&self) -> Option<Bytes> {
        Some(format!(r#"{{"{}":{}}}"#, self.field, self.tokens).into())
    }

    fn is_local(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
