//! Requests of one dialect over upstreams that speak another: the pairs that have no codec of their own.
//!
//! A customer's request is written anew in the upstream's dialect, and that text is read by the
//! upstream's own codec: it says what the request can use, and its meter counts what the answer has
//! used. So a translated call is held, metered and charged as if a customer of the upstream's dialect
//! had made it, and the usage that its customer reads is what that meter says.

mod local_count;
mod meter;

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use tollgate_translation::dialect::{
    AnswerFrame, CustomerDialect as Translate, Losses, TranslationTarget, Untranslatable,
    UpstreamDialect,
};
use tollgate_translation::part::{FailureKind, PromptPart, UpstreamFailure};
use tollgate_translation::{Chat, Converse, Gemini, Messages, Responses};
use tollgate_types::error::{ErrorKind, GatewayError};
use tollgate_types::ids::RequestId;

use super::anthropic_messages::AnthropicMessages;
use super::bedrock_converse::BedrockConverse;
use super::counter::Counter;
use super::gemini_content::GeminiContent;
use super::json::Object;
use super::limits::ModelLimits;
use super::openai_chat::OpenaiChat;
use super::openai_responses::OpenaiResponses;
use super::splice::{Splice, json_string};
use super::{
    Call, Codec, Dialect, Framing, Meter, ModelInPath, Operation, PathVariables, Request,
    RequestBounds,
};
use local_count::{LOCAL_COUNTS, LocalCount};
use meter::{BridgedDocument, BridgedStream, UnreportedUsage};

/// The version of Anthropic's API in which requests are written.
const ANTHROPIC_VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

/// All translated pairs. If a client dialect has two bridges to one upstream, the first carries more.
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

static CHAT: BridgeSide =
    BridgeSide { operation: Operation::Chat, words: &Chat, codec: &OpenaiChat };
static MESSAGES: BridgeSide =
    BridgeSide { operation: Operation::Messages, words: &Messages, codec: &AnthropicMessages };
static RESPONSES: BridgeSide =
    BridgeSide { operation: Operation::Responses, words: &Responses, codec: &OpenaiResponses };
static GEMINI: BridgeSide =
    BridgeSide { operation: Operation::GenerateContent, words: &Gemini, codec: &GeminiContent };
/// Upstream side of Converse, which has no client side.
const CONVERSE: UpstreamSide =
    UpstreamSide { operation: Operation::Chat, words: &Converse, codec: &BedrockConverse };

/// The codec that translates `operation` for a model that is for the operations `typed`, over an
/// upstream that speaks `dialect`: the first of [`bridges`].
#[must_use]
pub fn bridge(
    operation: Operation,
    dialect: Dialect,
    typed: &[Operation],
) -> Option<&'static dyn Codec> {
    bridges(operation, dialect, typed).next()
}

/// The codecs that translate `operation` for a model that is for the operations `typed`, over an upstream
/// that speaks `dialect`, the one that carries most first: by what the model is said to be for, if the
/// upstream speaks that, else by anything that it speaks. A model for none of the operations that are
/// translated has none.
pub(super) fn bridges(
    operation: Operation,
    dialect: Dialect,
    typed: &[Operation],
) -> impl Iterator<Item = &'static dyn Codec> + use<'_> {
    let is_prompted = BRIDGES.iter().any(|bridge| typed.contains(&bridge.upstreams.operation));
    let is_count = |count: &&LocalCount| count.operation() == operation;
    let mut counts = LOCAL_COUNTS.iter().filter(is_count);
    let count = counts.find(|count| count.dialects().contains(&dialect));
    let count = count.map(|count| count as &dyn Codec);
    let fits =
        move |it: &&'static Bridge| it.operation() == operation && it.dialects().contains(&dialect);
    let is_typed = move |it: &&'static Bridge| typed.contains(&it.upstreams.operation);
    let named = BRIDGES.iter().filter(fits).filter(is_typed);
    let has_named = BRIDGES.iter().filter(fits).any(|it| is_typed(&it));
    let other = BRIDGES.iter().rfind(fits).filter(|_| !has_named);
    let found = named.chain(other).map(|bridge| bridge as &dyn Codec);
    count.into_iter().chain(found).filter(move |_| is_prompted)
}

/// One dialect as both sides of a translation need it.
struct BridgeSide {
    operation: Operation,
    words: &'static dyn Translate,
    /// Reads its requests and meters its answers.
    codec: &'static dyn Codec,
}

impl BridgeSide {
    const fn upstreams(&self) -> UpstreamSide {
        UpstreamSide { operation: self.operation, words: self.words, codec: self.codec }
    }
}

/// One dialect as the upstreams' side of a translation needs it.
struct UpstreamSide {
    /// The operation through which a model configured for this dialect is best reached.
    operation: Operation,
    words: &'static dyn UpstreamDialect,
    /// Reads its requests and meters its answers.
    codec: &'static dyn Codec,
}

/// The codec of requests in one dialect for upstreams that speak another.
struct Bridge {
    customers: &'static BridgeSide,
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

    fn path_to(&self, request: &PathVariables<'_>) -> Option<Cow<'static, str>> {
        self.upstreams.codec.path_to(request)
    }

    fn counter(&self) -> Option<Counter> {
        self.upstreams.codec.counter()
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
        let translated = self.translate(body, request.model_in_path(), limits)?;
        let text = Object::parse(&translated.body)
            .map_err(|error| GatewayError::new(ErrorKind::Internal, UNWRITABLE).cause(error))?;
        if self.upstreams.codec.operation() == Operation::Chat && limits.chat_tools.refuses(&text) {
            return Err(limits.chat_tools.refusal());
        }
        let named =
            ModelInPath { model: &translated.frame.model, streams: translated.frame.streams };
        let inner = match self.upstreams.operation.names_model_in_path() {
            true => self.upstreams.codec.read(&Request::JsonAt(text, named), limits)?,
            false => self.upstreams.codec.read(&Request::Json(text), limits)?,
        };
        let TranslatedRequest { body: text, frame, left_out } = translated;
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

/// Message for a translated request that the upstream's codec cannot read.
const UNWRITABLE: &str = "The request could not be translated for this model's provider.";

/// A request in the words of the upstream.
struct TranslatedRequest {
    body: Vec<u8>,
    frame: AnswerFrame,
    /// Hints that were dropped, with commas between them.
    left_out: String,
}

impl Bridge {
    fn translate(
        &self,
        body: &Object<'_>,
        named: Option<ModelInPath<'_>>,
        limits: &ModelLimits,
    ) -> Result<TranslatedRequest, GatewayError> {
        let mut read = self.customers.words.read_request(body.text()).map_err(refused)?;
        let mut frame = read.frame;
        if let Some(ModelInPath { model, streams }) = named {
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
            caches: target.caches || has_key || read.caches,
            ..target
        };
        frame.aliases = self.upstreams.words.naming(&target).apply(&mut read.parts);
        let mut losses = Losses::from_request(read.left_out, target.mode).map_err(refused)?;
        let written = self
            .upstreams
            .words
            .write_request(&read.parts, &target, &mut losses)
            .map_err(refused)?;
        let id = RequestId::new();
        frame.created = id.began_at().seconds();
        frame.nonce = id.to_string().replace(|letter: char| !letter.is_ascii_alphanumeric(), "");
        // The codec reads the model from the path, and a member `model` would be an unknown field
        // there.
        if self.upstreams.operation.names_model_in_path() {
            return Ok(TranslatedRequest {
                body: written,
                frame,
                left_out: losses.fields().join(", "),
            });
        }
        // The model's name goes first, where the upstream's codec writes the upstream's name over it.
        let members = written.strip_prefix(b"{").unwrap_or(&written);
        let comma: &[u8] = if members.starts_with(b"}") { b"" } else { b"," };
        let body = [b"{\"model\":", json_string(&frame.model).as_bytes(), comma, members].concat();
        Ok(TranslatedRequest { body, frame, left_out: losses.fields().join(", ") })
    }
}

fn refused(refusal: Untranslatable) -> GatewayError {
    let error = GatewayError::new(ErrorKind::InvalidRequest, refusal.message);
    GatewayError { param: Some(refusal.field), ..error }
}

/// A request whose customer speaks one dialect and whose upstream another.
struct BridgedCall {
    /// The upstream codec's reading of the translated request.
    inner: Box<dyn Call>,
    /// Bytes of the customer's own request.
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
    fn bounds(&self) -> &RequestBounds {
        self.inner.bounds()
    }

    fn bounds_mut(&mut self) -> &mut RequestBounds {
        self.inner.bounds_mut()
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

    fn meter(&self, framing: Framing) -> Box<dyn Meter> {
        let inner = self.inner.meter(framing);
        // Where not all is shown, an answer without a report may be billed as the most that it can be.
        let unreported = (!self.inner.is_all_shown()).then(|| UnreportedUsage {
            max_usage: self.inner.max_usage(),
            is_estimated: self.inner.estimates_unreported(),
        });
        let (customers, upstreams) = (self.customers, self.upstreams);
        match framing {
            Framing::Json | Framing::Binary => Box::new(BridgedDocument::new(
                inner,
                unreported,
                self.frame.clone(),
                customers,
                upstreams,
            )),
            Framing::Sse | Framing::EventStream => Box::new(BridgedStream::new(
                inner,
                unreported,
                self.inner.comes_in_frames(),
                upstreams.stream_reader(),
                customers.stream_writer(&self.frame),
                &self.frame,
            )),
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
            Some(name) => self.upstreams.read_failure_by_name(status, name, body),
            None => self.upstreams.read_failure(status, body),
        }))
    }
}

/// An upstream's failure as an error for customers of any dialect.
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

#[cfg(test)]
mod tests;
