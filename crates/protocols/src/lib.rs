//! Pure codecs: bytes in, data out; no I/O and no clock.
//!
//! A [`Codec`] speaks one operation to upstreams of some dialects. It reads a request once into a
//! [`Call`], which knows the most that the request can use and the bytes to change for a target;
//! the call makes a [`Meter`] for each response, which relays it and counts what was used. A new
//! protocol is one file here and one line in [`REGISTRY`].
//!
//! This file is the contract between codecs and the rest of the gateway. `terms` and `fields` read
//! what requests of several protocols have in common; `offer` says what a prompt may ask for.

// Tests fail by panicking; the product does not.
#![deny(clippy::expect_used)]

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;

use tollgate_money::error::{ErrorKind, GatewayError};
use tollgate_money::money::Nanousd;
use tollgate_money::price::{InputWays, Traits, Usage, UsageSource};

pub mod openai_chat;
pub mod anthropic_messages;
pub mod openai_responses;
pub mod gemini_content;
pub mod openai_compact;
pub mod openai_input_tokens;
pub mod bedrock_converse;
pub mod embeddings;
pub mod rerank;
pub mod moderations;
pub mod openai_images;
pub mod openai_image_edits;
pub mod dashscope_image;
pub mod openai_speech;
pub mod dashscope_speech;
pub mod transcription;
pub mod dashscope_video;
pub mod ark_video;
pub mod xai_video;

mod operation;
mod dialect;
mod terms;
mod offer;
mod offered;
pub mod output_limit;
pub mod path_segment;
pub mod query;
mod fields;
mod server_tools;
mod bridge;
pub mod doors;

pub mod audio;
pub mod beta;
pub mod audio_length;
pub mod azure;
mod dashscope;
pub mod estimate;
mod images;
pub mod form;
pub mod json;
mod json_cursor;
pub mod json_scan;
pub mod splice;
mod stored;
pub mod limits;
mod metering;
mod counts;
pub mod counter;
mod disjoint;
mod base_resp;
pub mod refusal;
pub mod sse;
pub mod event_stream;
pub mod task;
pub mod media;
mod media_url;
pub mod public_url;
#[cfg(test)]
mod pieces;
#[cfg(test)]
mod spelling_tests;
#[cfg(test)]
mod counted_tests;
pub mod plain;
mod prompt_count;
mod video;

pub use bridge::bridge;
use counter::Counter;
pub use dialect::Dialect;
pub use disjoint::{Contradiction, Contradictions};
use fields::{
    boolean, check_known, check_messages, integer, is_passed, no_object, output_tokens,
    refuse_case_variants, refuse_unknown_fields, refuse_unknown_members, service_tier, text,
};
use form::Form;
use json::Object;
use limits::{AudioFormat, ModelLimits};
pub use metering::FixedUsageMeter;
pub use offered::{OfferedKey, offered_keys};
pub use operation::Operation;
use splice::Splice;
pub use stored::Reference;
use task::TaskCodec;
use terms::ModelField;
pub use terms::{OutputBound, Terms};

/// Every codec of this build that customers' own words reach; what is written for the others is
/// translated, by [`bridge`].
pub static REGISTRY: &[&dyn Codec] = &[
    &openai_chat::OpenaiChat,
    &anthropic_messages::AnthropicMessages,
    &anthropic_messages::AnthropicCountTokens,
    &openai_responses::OpenaiResponses,
    &gemini_content::GeminiContent,
    &gemini_content::GeminiCountTokens,
    &openai_compact::OpenaiCompact,
    &openai_input_tokens::OpenaiInputTokens,
    &embeddings::OpenaiEmbeddings,
    &embeddings::VoyageEmbeddings,
    &rerank::OpenaiRerank,
    &rerank::VoyageRerank,
    &moderations::OpenaiModerations,
    &openai_images::OpenaiImages,
    &openai_images::ArkImages,
    &openai_image_edits::OpenaiImageEdits,
    &dashscope_image::DashscopeImage,
    &openai_speech::OpenaiSpeech,
    &dashscope_speech::DashscopeSpeech,
    &transcription::OpenaiTranscription,
    &transcription::OpenaiAudioTranslation,
    &dashscope_video::DashscopeVideo,
    &ark_video::ArkVideo,
    &xai_video::XaiVideo,
];

/// Every task codec of this build.
pub static TASK_REGISTRY: &[&dyn TaskCodec] =
    &[&dashscope_video::DashscopeTasks, &ark_video::ArkTasks, &xai_video::XaiTasks];

/// The task codec for upstreams that speak `dialect`.
#[must_use]
pub fn task_codec(dialect: Dialect) -> Option<&'static dyn TaskCodec> {
    TASK_REGISTRY.iter().find(|codec| codec.dialect() == dialect).copied()
}

/// How one operation is spoken to upstreams of some dialects.
pub trait Codec: Sync + fmt::Debug {
    /// The operation that the codec speaks.
    fn operation(&self) -> Operation;

    /// Which upstreams understand it.
    fn dialects(&self) -> &'static [Dialect];

    /// The path below an upstream's base URL.
    fn path(&self) -> &'static str;

    /// The path of one request, where it is not the same for all: some providers name the model in it,
    /// or say in it that the answer comes as events. `None` for a model whose name is [no
    /// segment](path_segment::encode) of a path.
    fn path_to(&self, _asked: &PathAsked<'_>) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(self.path()))
    }

    /// Headers that upstreams need and a customer of another dialect does not send.
    fn headers(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// The provider's counter of input tokens for requests as upstreams get them.
    fn counter(&self) -> Option<Counter> {
        None
    }

    /// Parameters of the customer's query that go upstream; any other is dropped.
    fn query_parameters(&self) -> &'static [&'static str] {
        &[]
    }

    /// Reads a request.
    ///
    /// # Errors
    /// An invalid request, naming the field, by the constraints of the contract and of the model.
    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError>;
}

/// What the path of a request can depend on.
#[derive(Clone, Copy, Debug)]
pub struct PathAsked<'a> {
    /// What the upstream speaks.
    pub dialect: Dialect,
    /// The model, as the upstream calls it.
    pub model: &'a str,
    /// The answer is to come as events.
    pub streams: bool,
}

/// What the path of a request says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedInPath<'a> {
    /// The model, as the customer calls it.
    pub model: &'a str,
    /// The answer is to come in pieces.
    pub streams: bool,
}

/// A request's body, as its operation has it.
#[derive(Debug)]
pub enum Request<'a> {
    /// A JSON object, as most operations have it.
    Json(Object<'a>),
    /// A JSON object whose path says what others say in themselves.
    JsonAt(Object<'a>, NamedInPath<'a>),
    /// A form, and the body in which its parts stand.
    Form(Form, &'a [u8]),
}

impl<'a> Request<'a> {
    /// The JSON object.
    ///
    /// # Errors
    /// An unsupported media type, for a body of another kind.
    pub fn json(&self) -> Result<&Object<'a>, GatewayError> {
        match self {
            Self::Json(object) | Self::JsonAt(object, _) => Ok(object),
            Self::Form(..) => Err(unreadable("JSON")),
        }
    }

    /// The form, and the body in which its parts stand.
    ///
    /// # Errors
    /// An unsupported media type, for a body of another kind.
    pub fn form(&self) -> Result<(&Form, &'a [u8]), GatewayError> {
        match self {
            Self::Form(form, body) => Ok((form, body)),
            Self::Json(_) | Self::JsonAt(..) => Err(unreadable("multipart/form-data")),
        }
    }

    /// What its path says of it, for operations that have that there.
    #[must_use]
    pub fn named_in_path(&self) -> Option<NamedInPath<'a>> {
        match self {
            Self::JsonAt(_, named) => Some(*named),
            Self::Json(_) | Self::Form(..) => None,
        }
    }

    /// The model that it names, if it names one.
    ///
    /// # Errors
    /// For a form that names two.
    pub fn model(&self) -> Result<Option<Cow<'a, str>>, GatewayError> {
        Ok(match self {
            Self::Json(object) => object.get("model").and_then(|value| value.as_str()),
            Self::JsonAt(_, named) => Some(Cow::Borrowed(named.model)),
            Self::Form(form, body) => form.text(body, "model")?.map(Cow::Borrowed),
        })
    }
}

fn unreadable(wanted: &str) -> GatewayError {
    let message = format!("The request body must be {wanted}.");
    GatewayError::new(ErrorKind::UnsupportedMediaType, message)
}

/// A request that was read and found valid.
pub trait Call: Send + Sync + fmt::Debug {
    /// What every request says.
    fn terms(&self) -> &Terms;

    /// What every request says, to be changed by what becomes known of it before it is held.
    fn terms_mut(&mut self) -> &mut Terms;

    /// Whether the customer asked for server-sent events.
    fn streams(&self) -> bool {
        self.terms().stream
    }

    /// The most that the request can use: what the hold must cover.
    fn bound(&self) -> Usage {
        self.terms().bound
    }

    /// How [`Self::bound`] follows from the request's limit of output tokens.
    fn output_bound(&self) -> OutputBound {
        self.terms().output_bound
    }

    /// The least that the request uses once an upstream has taken it: its estimated input.
    fn floor(&self) -> Usage {
        self.terms().floor
    }

    /// Whether all that the answer costs is to be seen in the request and in what was sent of the answer:
    /// no reasoning, no media in the prompt, no tools that the upstream runs. Then a stream can be cut
    /// anywhere and what was generated is known; else only the upstream's own report tells.
    fn is_all_shown(&self) -> bool {
        false
    }

    /// Whether an answer without a report is charged by what was seen of it, although the model may think
    /// without showing it: nothing in the request has the upstream do more than is seen, or keep its
    /// report to itself, so that no customer can bring it about. What there may be beyond is the
    /// operator's loss.
    fn estimates_unreported(&self) -> bool {
        false
    }

    /// The ways in which the upstream can bill its input.
    fn input_ways(&self) -> InputWays {
        InputWays::default()
    }

    /// Whether the answer can be spoken.
    fn sounds(&self) -> bool {
        false
    }

    /// Whether the answer can have pictures of which tokens are counted apart.
    fn makes_pictures(&self) -> bool {
        false
    }

    /// What of the request the price can depend on.
    fn traits(&self) -> Traits {
        Traits::default()
    }

    /// What changes in the body for a target that calls the model `upstream_model`.
    fn splice(&self, upstream_model: &str) -> Splice {
        self.terms().model.rename(upstream_model)
    }

    /// What of the request does not go upstream although it was asked for, as an answer's header says it.
    fn left_out(&self) -> Option<Cow<'_, str>> {
        None
    }

    /// What a refusal of an upstream's says, where the upstream speaks another dialect than the
    /// customer: its words are then told in the customer's. `name` is what a header calls it.
    fn refusal(&self, _status: u16, _name: Option<&str>, _body: &[u8]) -> Option<GatewayError> {
        None
    }

    /// The answer in the place of upstreams that have no such path.
    fn local_answer(&self) -> Option<Bytes> {
        None
    }

    /// Whether no upstream is asked at all, because [`Self::local_answer`] is all there is.
    fn is_local(&self) -> bool {
        false
    }

    /// What upstreams keep that the request refers to: it goes where that was made, and only for the
    /// account whose it is.
    fn refers_to(&self) -> &[Reference] {
        &self.terms().references
    }

    /// Whether the upstream keeps the answer, so that later requests can refer to it.
    fn is_stored(&self) -> bool {
        false
    }

    /// A meter for a successful response. Without one of its own the call is billed by what was asked
    /// for, whatever the response reports.
    fn meter(&self, _framing: Framing) -> Box<dyn Meter> {
        Box::new(FixedUsageMeter::new(self.floor(), UsageSource::Estimated))
    }

    /// How the task is submitted that this call starts.
    fn submit(&self) -> Option<&(dyn task::Submit + Sync)> {
        None
    }

    /// Whether the upstream's events come in frames of [`Framing::EventStream`], and in no other way.
    fn comes_in_frames(&self) -> bool {
        false
    }

    /// Whether the answer is neither JSON nor, unless it was asked for, events.
    fn answers_binary(&self) -> bool {
        false
    }

    /// How the answer is put together, where it is not relayed as it comes.
    fn collected(&self) -> Option<&(dyn Collect + Sync)> {
        None
    }

    /// How the answer travels to the customer.
    fn delivery(&self) -> Delivery {
        match (self.submit(), self.collected()) {
            (Some(_), _) => Delivery::Submit,
            (None, Some(_)) => Delivery::Collect,
            (None, None) if self.streams() => Delivery::Stream,
            (None, None) => Delivery::Relay,
        }
    }
}

/// How an upstream's answer travels to the customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Its bytes are passed on as they come, as one document or one file.
    Relay,
    /// It is put together, as [`Collect`] says, before any of it is sent.
    Collect,
    /// Its bytes are passed on as they come, as events that can be kept alive with comments.
    Stream,
    /// It tells that a task was taken, as [`task::Submit`] reads it: the task is on disk before the
    /// customer is answered.
    Submit,
}

/// A call whose answer the gateway puts together before it sends any of it: from several requests, or
/// with a look at what an upstream that calls everything a success really says.
pub trait Collect {
    /// The bodies to send to a target that calls the model `upstream_model`, for a customer's `body`.
    fn bodies(&self, upstream_model: &str, body: &Bytes) -> Vec<Bytes>;

    /// Puts the answers, in the order of the bodies, together.
    ///
    /// # Errors
    /// What an upstream said instead of answering, with a good status.
    fn read(&self, answers: &[Bytes]) -> Result<Collected, Fault>;

    /// What the answers that came used, of a call that failed as a whole: in any order, and not all of
    /// them. `None` where none of them tells of anything that was done.
    fn answered(&self, _answers: &[Bytes]) -> Option<(Usage, UsageSource)> {
        None
    }

    /// What a refusal says, where its status alone does not tell.
    fn refusal(&self, _status: u16, _body: &Bytes) -> Option<Fault> {
        None
    }
}

/// An answer that is whole.
#[derive(Debug)]
pub struct Collected {
    /// What the answer used, by which it is billed.
    pub usage: Usage,
    /// How that is known.
    pub source: UsageSource,
    /// What the customer gets.
    pub content: Content,
}

/// What a customer gets who gets no relayed response.
#[derive(Debug)]
pub enum Content {
    /// This JSON document, which is sent whole.
    Json(Bytes),
    /// The `wav` audio at a URL, in this format.
    Audio(String, AudioFormat),
}

/// Why an upstream did not answer, as it says itself.
#[derive(Debug)]
pub enum Fault {
    /// The customer's request is at fault, as the upstream says in its own words: relayed with this
    /// status.
    Relayed(u16, Bytes),
    /// The customer's request is at fault.
    Customers(GatewayError),
    /// The upstream is busy: another may not be.
    Busy,
    /// The upstream, or the operator's account there, is at fault: another may do, and the customer
    /// never reads about it. What the operator's log says.
    Upstreams(String),
}

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

/// Whether an answer whose upstream has not reported what it used is charged by what was seen of it.
#[must_use]
pub fn is_estimated(call: &dyn Call, meter: &dyn Meter) -> bool {
    call.is_all_shown() || call.estimates_unreported() && !meter.hides_output()
}

/// How a response is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// One JSON document, from its first byte to its last.
    Json,
    /// Server-sent events, each behind the other.
    Sse,
    /// Events in binary frames, as [`event_stream`] reads them. Customers get server-sent events.
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

/// The codec for `operation` over an upstream that speaks `dialect`, if this build has one.
#[must_use]
pub fn codec(operation: Operation, dialect: Dialect) -> Option<&'static dyn Codec> {
    let fits =
        |codec: &&&dyn Codec| codec.operation() == operation && codec.dialects().contains(&dialect);
    REGISTRY.iter().find(fits).copied()
}

/// Whether this build can serve `operation` over an upstream that speaks `dialect`.
#[must_use]
pub fn is_served(operation: Operation, dialect: Dialect) -> bool {
    codec(operation, dialect).is_some()
}
