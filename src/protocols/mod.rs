//! Pure codecs: bytes in, data out; no I/O and no clock.
//!
//! A [`Codec`] speaks one operation to upstreams of some dialects. It reads a request once into a
//! [`Call`], which knows the most that the request can use and the bytes to change for a target;
//! the call makes a [`Meter`] for each response, which relays it and counts what was used. A new
//! protocol is one file here and one line in [`REGISTRY`].

use std::borrow::Cow;
use std::fmt;
use std::ops::{Range, RangeInclusive};

use bytes::Bytes;

use crate::error::{ErrorKind, GatewayError};
use crate::price::{Traits, Usage, UsageSource};

pub mod openai_chat;
pub mod anthropic_messages;
pub mod openai_responses;
pub mod embeddings;
pub mod openai_images;
pub mod openai_image_edits;
pub mod dashscope_image;
pub mod openai_speech;
pub mod dashscope_speech;
pub mod dashscope_video;
pub mod ark_video;
pub mod xai_video;

pub mod audio;
mod dashscope;
pub mod estimate;
mod images;
pub mod form;
pub mod json;
mod json_cursor;
pub mod json_scan;
pub mod splice;
pub mod limits;
mod metering;
pub mod sse;
pub mod task;
mod media_url;
#[cfg(test)]
mod pieces;
pub mod plain;
mod video;

use estimate::TextSize;
use form::{Form, Part};
use json::Object;
use limits::{AudioFormat, ModelLimits};
pub(crate) use metering::KnownMeter;
use splice::{Splice, json_string};

/// Every codec of this build.
pub static REGISTRY: &[&dyn Codec] = &[
    &openai_chat::OpenaiChat,
    &anthropic_messages::AnthropicMessages,
    &anthropic_messages::AnthropicCountTokens,
    &openai_responses::OpenaiResponses,
    &embeddings::OpenaiEmbeddings,
    &embeddings::VoyageEmbeddings,
    &openai_images::OpenaiImages,
    &openai_images::ArkImages,
    &openai_image_edits::OpenaiImageEdits,
    &dashscope_image::DashscopeImage,
    &openai_speech::OpenaiSpeech,
    &dashscope_speech::DashscopeSpeech,
    &dashscope_video::DashscopeVideo,
    &ark_video::ArkVideo,
    &xai_video::XaiVideo,
];

/// How one operation is spoken to upstreams of some dialects.
pub trait Codec: Sync + fmt::Debug {
    /// What it does.
    fn operation(&self) -> Operation;

    /// Which upstreams understand it.
    fn dialects(&self) -> &'static [Dialect];

    /// The path below an upstream's base URL.
    fn path(&self) -> &'static str;

    /// Whether the customer's query means something to upstreams.
    fn forwards_query(&self) -> bool {
        false
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

/// A request's body, as its operation has it.
#[derive(Debug)]
pub enum Request<'a> {
    /// A JSON object.
    Json(Object<'a>),
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
            Self::Json(object) => Ok(object),
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
            Self::Json(_) => Err(unreadable("multipart/form-data")),
        }
    }

    /// The model that it names, if it names one.
    ///
    /// # Errors
    /// For a form that names two.
    pub fn model(&self) -> Result<Option<Cow<'a, str>>, GatewayError> {
        Ok(match self {
            Self::Json(object) => object.get("model").and_then(|value| value.as_str()),
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

    /// Whether the customer asked for server-sent events.
    fn streams(&self) -> bool {
        self.terms().stream
    }

    /// The most that the request can use: what the hold must cover.
    fn bound(&self) -> Usage {
        self.terms().bound
    }

    /// The least that the request uses once an upstream has taken it: its estimated input.
    fn floor(&self) -> Usage {
        self.terms().floor
    }

    /// What of the request the price can depend on.
    fn traits(&self) -> Traits {
        Traits::default()
    }

    /// What changes in the body for a target that calls the model `upstream_model`.
    fn splice(&self, upstream_model: &str) -> Splice {
        self.terms().model.rename(upstream_model)
    }

    /// The answer in the place of upstreams that have no such path.
    fn local_answer(&self) -> Option<Bytes> {
        None
    }

    /// A meter for a successful response. Without one of its own the call is billed by what was asked
    /// for, whatever the response reports.
    fn meter(&self, _framing: Framing) -> Box<dyn Meter> {
        Box::new(KnownMeter::new(self.floor(), UsageSource::Estimated))
    }

    /// How the task is submitted that this call starts.
    fn submit(&self) -> Option<&(dyn task::Submit + Sync)> {
        None
    }

    /// Whether the answer is neither JSON nor, unless it was asked for, events.
    fn answers_binary(&self) -> bool {
        false
    }

    /// How the answer is put together, where it is not relayed as it comes.
    fn collected(&self) -> Option<&(dyn Collect + Sync)> {
        None
    }
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

    /// What a refusal says, where its status alone does not tell.
    fn refusal(&self, _status: u16, _body: &Bytes) -> Option<Fault> {
        None
    }
}

/// An answer that is whole.
#[derive(Debug)]
pub struct Collected {
    /// What it used.
    pub usage: Usage,
    /// How that is known.
    pub source: UsageSource,
    /// What the customer gets.
    pub content: Content,
}

/// What a customer gets who gets no relayed response.
#[derive(Debug)]
pub enum Content {
    /// This JSON document.
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

    /// The upstream ended the response in an orderly way: what is left to send.
    fn finish(&mut self) -> Bytes;

    /// Whether the response was whole. False for a stream that stopped without saying so.
    fn is_complete(&self) -> bool;

    /// Whether the upstream said, in a response with a good status, that it failed, and reported no
    /// usage with it.
    fn has_failed(&self) -> bool {
        false
    }

    /// Bytes of the response that are held back, until the end or until more has come.
    fn held_bytes(&self) -> usize {
        0
    }

    /// What has been relayed so far for certain: the hold must cover it before more is relayed.
    fn relayed(&self) -> Usage;

    /// What the response used as far as it got, and how that is known.
    fn measure(&self) -> (Usage, UsageSource);

    /// Whether the body can change on its way, so that the upstream's `Content-Length` is void.
    fn changes_length(&self) -> bool;
}

/// How a response is framed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// One JSON document.
    Json,
    /// Server-sent events.
    Sse,
    /// Bytes of another kind, such as audio.
    Binary,
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

/// What every request says, whatever its protocol.
#[derive(Debug)]
pub struct Terms {
    stream: bool,
    model: ModelField,
    bound: Usage,
    floor: Usage,
}

impl Terms {
    /// The terms of a request whose answer is never a stream.
    fn of_whole(body: &Object<'_>, bound: Usage, floor: Usage) -> Self {
        Self { stream: false, model: ModelField::read(body), bound, floor }
    }

    /// The terms of a prompt, whose input its bytes bound unless an upstream adds to it.
    fn of_prompt(
        body: &Object<'_>,
        prompt: &Prompt,
        limits: &ModelLimits,
        output_tokens_max: u64,
    ) -> Result<Self, GatewayError> {
        let text = body.text();
        let bytes = text.len() as u64;
        let input_tokens_max = match prompt.added_tokens_max {
            Some(added) if !prompt.has_media && !body.has_escaped_keys() => {
                limits.input_tokens_max.min(bytes.saturating_add(added))
            }
            _ => limits.input_tokens_max,
        };
        let size = if prompt.has_media { TextSize::of_strings(text) } else { TextSize::of(text) };
        let input_tokens = size.tokens().min(input_tokens_max);
        Ok(Self {
            stream: boolean(body, "stream")?.unwrap_or(false),
            model: ModelField::read(body),
            bound: Usage {
                input_tokens: input_tokens_max,
                output_tokens: output_tokens_max,
                ..Usage::ZERO
            },
            floor: Usage { input_tokens, ..Usage::ZERO },
        })
    }
}

/// What a prompt has beside its text.
#[derive(Clone, Copy, Debug)]
struct Prompt {
    /// Media and files, whose tokens their bytes do not bound.
    has_media: bool,
    /// The most tokens that an upstream adds; `None` if nobody can say.
    added_tokens_max: Option<u64>,
}

/// Where a request names its model, and how.
#[derive(Debug)]
struct ModelField {
    place: Place,
    name: String,
}

#[derive(Debug)]
enum Place {
    /// The value of a JSON member.
    Json(Range<usize>),
    /// A part of a form.
    Form(Part),
}

impl ModelField {
    fn read(body: &Object<'_>) -> Self {
        let value = body.get("model");
        let name = value.as_ref().and_then(json::Value::as_str).unwrap_or_default().into_owned();
        Self { place: Place::Json(value.map(|value| value.range).unwrap_or_default()), name }
    }

    fn of_part(part: &Part, name: &str) -> Self {
        Self { place: Place::Form(part.clone()), name: name.to_owned() }
    }

    /// The name overwritten, unless the upstream uses the same.
    fn rename(&self, upstream_model: &str) -> Splice {
        let mut splice = Splice::default();
        match &self.place {
            _ if self.name == upstream_model => {}
            Place::Json(range) => splice.replace(range.clone(), json_string(upstream_model)),
            Place::Form(part) => part.overwrite(upstream_model, &mut splice),
        }
        splice
    }
}

/// Refuses a key that some parsers would take for a billing field and others would not.
fn refuse_case_variants(body: &Object<'_>, fields: &[&str]) -> Result<(), GatewayError> {
    match body.case_variant_of(fields) {
        None => Ok(()),
        Some(key) => {
            let message = format!("`{key}` is not a field; field names are lower-case");
            Err(GatewayError::invalid(key.to_owned(), message))
        }
    }
}

/// Tiers that cost no more than the prices in `models.yaml`. Others multiply what the upstream bills.
const SERVICE_TIERS: [&str; 3] = ["auto", "default", "flex"];

/// OpenAI's `service_tier` must not change the price.
fn check_service_tier(body: &Object<'_>) -> Result<(), GatewayError> {
    let tier = body.get_non_null("service_tier");
    if tier.is_some_and(|tier| tier.as_str().is_none_or(|tier| !SERVICE_TIERS.contains(&&*tier))) {
        let message = format!("`service_tier` must be one of {}", SERVICE_TIERS.join(", "));
        return Err(GatewayError::invalid("service_tier", message));
    }
    Ok(())
}

/// Whether `is_mark` holds for what stands before and behind any quote of a JSON text. Long prompts
/// have few quotes, so looking for many keys at once costs one pass over a body.
fn has_quote_where(text: &[u8], is_mark: impl Fn(&[u8], &[u8]) -> bool) -> bool {
    memchr::memchr_iter(b'"', text).any(|at| {
        let (before, behind) = text.split_at_checked(at).unwrap_or_default();
        is_mark(before, behind.get(1..).unwrap_or_default())
    })
}

/// `messages` must be an array that is not empty. What is in it is the upstream's to judge.
fn check_messages(body: &Object<'_>) -> Result<(), GatewayError> {
    let missing = || GatewayError::invalid("messages", "`messages` must be a non-empty array");
    let messages = body.get_non_null("messages").ok_or_else(missing)?;
    let first = messages.text().get(1..).map(<[u8]>::trim_ascii_start).unwrap_or_default();
    if !messages.is_array() || first.starts_with(b"]") {
        return Err(missing());
    }
    Ok(())
}

/// An optional integer field within `range`.
fn integer(
    body: &Object<'_>,
    field: &'static str,
    range: RangeInclusive<u64>,
) -> Result<Option<u64>, GatewayError> {
    let Some(value) = body.get_non_null(field) else { return Ok(None) };
    let Some(number) = value.as_u64().filter(|number| range.contains(number)) else {
        let (from, to) = range.into_inner();
        let message = if to == u64::MAX {
            format!("`{field}` must be an integer of at least {from}")
        } else {
            format!("`{field}` must be an integer from {from} to {to}")
        };
        return Err(GatewayError::invalid(field, message));
    };
    Ok(Some(number))
}

/// An optional text field.
fn text(body: &Object<'_>, field: &'static str) -> Result<Option<String>, GatewayError> {
    match body.get_non_null(field) {
        None => Ok(None),
        Some(value) => match value.as_str() {
            Some(value) => Ok(Some(value.into_owned())),
            None => Err(GatewayError::invalid(field, format!("`{field}` must be a string"))),
        },
    }
}

/// An optional boolean field.
fn boolean(body: &Object<'_>, field: &'static str) -> Result<Option<bool>, GatewayError> {
    match body.get_non_null(field) {
        None => Ok(None),
        Some(value) => match value.as_bool() {
            Some(value) => Ok(Some(value)),
            None => Err(GatewayError::invalid(field, format!("`{field}` must be a boolean"))),
        },
    }
}

/// What a customer can ask for: one per kind of endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `POST /v1/chat/completions`
    Chat,
    /// `POST /v1/messages`
    Messages,
    /// `POST /v1/messages/count_tokens`: goes with [`Operation::Messages`], and has no name in YAML.
    CountTokens,
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1/embeddings`
    Embeddings,
    /// `POST /v1/images/generations`
    ImageGeneration,
    /// `POST /v1/images/edits`
    ImageEdit,
    /// `POST /v1/videos/generations`
    Video,
    /// `POST /v1/audio/speech`
    Speech,
}

impl Operation {
    /// Every operation that YAML can name, in the order in which documents list them.
    pub const ALL: [Self; 8] = [
        Self::Chat,
        Self::Messages,
        Self::Responses,
        Self::Embeddings,
        Self::ImageGeneration,
        Self::ImageEdit,
        Self::Video,
        Self::Speech,
    ];

    /// The operation that a model must have to be asked for this one.
    #[must_use]
    pub fn granted_by(self) -> Self {
        match self {
            Self::CountTokens => Self::Messages,
            other => other,
        }
    }

    /// Whether its requests are forms; the others are JSON.
    #[must_use]
    pub fn takes_form(self) -> bool {
        self == Self::ImageEdit
    }

    /// Whether it costs anything.
    #[must_use]
    pub fn is_billed(self) -> bool {
        self != Self::CountTokens
    }

    /// The word used in YAML, logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Messages => "messages",
            Self::CountTokens => "count_tokens",
            Self::Responses => "responses",
            Self::Embeddings => "embeddings",
            Self::ImageGeneration => "image_generation",
            Self::ImageEdit => "image_edit",
            Self::Video => "video",
            Self::Speech => "speech",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The protocol family that an upstream speaks: `protocol` in `routes.yaml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// OpenAI's API and the many servers that copy it.
    Openai,
    /// Anthropic's Messages API.
    Anthropic,
    /// DashScope's native API.
    Dashscope,
    /// Ark / ModelArk.
    Ark,
    /// xAI's native API.
    Xai,
    /// Voyage's embeddings API.
    Voyage,
}

impl Dialect {
    /// Every dialect.
    pub const ALL: [Self; 6] =
        [Self::Openai, Self::Anthropic, Self::Dashscope, Self::Ark, Self::Xai, Self::Voyage];

    /// The header that carries the operator's credential, and its value.
    #[must_use]
    pub fn credential_header(self, credential: &str) -> (&'static str, String) {
        match self {
            Self::Anthropic => ("x-api-key", credential.to_owned()),
            Self::Openai | Self::Dashscope | Self::Ark | Self::Xai | Self::Voyage => {
                ("authorization", format!("Bearer {credential}"))
            }
        }
    }

    /// The word used in YAML.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::Anthropic => "anthropic",
            Self::Dashscope => "dashscope",
            Self::Ark => "ark",
            Self::Xai => "xai",
            Self::Voyage => "voyage",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
