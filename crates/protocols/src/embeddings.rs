//! `POST /v1/embeddings` over upstreams that speak OpenAI's protocol, or Voyage's. Spec section 2.8.
//!
//! Voyage calls `dimensions` otherwise, knows `encoding_format: "float"` only as its absence, takes no
//! token ids and reports `total_tokens` alone (its API reference, "Text embedding models").
//!
//! OpenAI's SDKs ask for `encoding_format: "base64"` when their caller asks for nothing, and decode
//! little-endian 32-bit floats. An upstream that answers with floats all the same has its vectors
//! re-encoded here; every other byte of its answer stays. Vectors go on in the order of their inputs.
//!
//! Spec section 2.8 has long arrays split. DashScope takes ten inputs in one call: `batch_inputs_max` in
//! `models.yaml`. Voyage takes a thousand.

use std::ops::Range;

use bytes::Bytes;

use super::allowed_keys::AllowedKey;
use super::estimate::ReadTokens;
use super::fields;
use super::json::{Elements, Object, Value};
use super::limits::ModelLimits;
use super::request_policy::{Allowlist, Field};
use super::splice::Splice;
use super::{
    Call, Codec, Collect, CollectedAnswer, CollectedContent, Dialect, Framing, Meter, Operation,
    Request, RequestBounds, UpstreamFault, request_policy,
};
use crate::codec::bounds_in_field;
use tollgate_money::price::{Usage, UsageSource};
use tollgate_types::error::GatewayError;

mod answer;
mod order;
mod split;

use answer::{EmbeddingsMeter, floats_to_base64, with_prompt_tokens, with_usage};
use split::InputSplit;

/// Inputs at most in one request: OpenAI's own limit.
const INPUTS_MAX: usize = 2048;
/// Inputs at most in one call to Voyage; longer arrays are split.
const VOYAGE_BATCH_INPUTS_MAX: u32 = 1000;

/// Fields of a request in OpenAI's protocol. The input is checked where it is measured.
pub(super) static OPENAI_FIELDS: Allowlist = Allowlist::of_fields(&[
    ("input", Field::Plain),
    ("model", Field::Plain),
    ("encoding_format", Field::Plain),
    ("dimensions", Field::Plain),
    ("user", Field::Plain),
    ("input_type", Field::Plain),
]);

/// Fields of a request to Voyage.
pub(super) static VOYAGE_FIELDS: Allowlist = Allowlist::of_fields(&[
    ("input", Field::Plain),
    ("model", Field::Plain),
    ("encoding_format", Field::Plain),
    ("dimensions", Field::Plain),
    ("input_type", Field::Plain),
    ("truncation", Field::Plain),
    ("output_dimension", Field::Plain),
    ("output_dtype", Field::Plain),
    ("user", Field::Plain),
]);

/// The codec of embeddings as OpenAI has them.
#[derive(Debug)]
pub struct OpenaiEmbeddings;

impl Codec for OpenaiEmbeddings {
    fn operation(&self) -> Operation {
        Operation::Embeddings
    }

    fn dialects(&self) -> &'static [Dialect] {
        &[Dialect::Openai]
    }

    fn path(&self) -> &'static str {
        "/embeddings"
    }

    fn allowed_keys(&self) -> Vec<AllowedKey> {
        AllowedKey::of_allowlist(&OPENAI_FIELDS)
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        read(body, limits, &OPENAI_FIELDS).map(|call| Box::new(call) as Box<dyn Call>)
    }
}

/// The codec for Voyage.
#[derive(Debug)]
pub struct VoyageEmbeddings;

impl Codec for VoyageEmbeddings {
    fn operation(&self) -> Operation {
        Operation::Embeddings
    }

    fn dialects(&self) -> &'static [Dialect] {
        &[Dialect::Voyage]
    }

    fn path(&self) -> &'static str {
        "/embeddings"
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        let batch = limits.batch_inputs_max.unwrap_or(VOYAGE_BATCH_INPUTS_MAX);
        let limits = ModelLimits {
            token_ids: false,
            // A larger batch is split before it is sent: Voyage refuses it as a whole.
            batch_inputs_max: Some(batch.min(VOYAGE_BATCH_INPUTS_MAX)),
            ..limits.clone()
        };
        let call = read(body, &limits, &VOYAGE_FIELDS)?;
        let float = body.get_non_null("encoding_format").filter(|_| !call.base64);
        let voyage = VoyageEdits {
            dimensions: body.key_range("dimensions"),
            float: float.map(|value| value.range),
        };
        Ok(Box::new(EmbeddingsCall { voyage: Some(voyage), ..call }))
    }
}

/// Reads the fields that all upstreams have in common.
fn read(
    body: &Object<'_>,
    limits: &ModelLimits,
    allowlist: &'static Allowlist,
) -> Result<EmbeddingsCall, GatewayError> {
    let has_passed = request_policy::check_fields(body, allowlist, limits)?;
    let added = if body.get_non_null("input_type").is_some() { INPUT_TYPE_TOKENS_MAX } else { 0 };
    let input = read_input(body)?;
    if input.has_token_ids && !limits.token_ids {
        let message = "this model takes text, not token ids: switch off your client's own \
                       tokenizer (`check_embedding_ctx_length=False` in langchain)";
        return Err(GatewayError::invalid("input", message));
    }
    check_dimensions(body, limits)?;
    let per_input = if limits.input_tokens_max == 0 { u64::MAX } else { limits.input_tokens_max };
    let whole = per_input.saturating_mul(input.count);
    let tokens_max = match limits.input_tokens_max {
        // What an operator lets through may stand for any text.
        1.. if has_passed => whole,
        _ => input.tokens_max.saturating_add(added.saturating_mul(input.count)),
    };
    let input_tokens_max = tokens_max.min(whole);
    let of = |input_tokens: u64| Usage { input_tokens, ..Usage::ZERO };
    let min_usage = of(input.tokens_estimate.min(input_tokens_max));
    let array = body.get_non_null("input");
    Ok(EmbeddingsCall {
        base64: reads_base64(body)?,
        bounds: RequestBounds::from_body(body, of(input_tokens_max), min_usage),
        count: input.count,
        input_tokens_max: per_input.saturating_mul(input.count),
        voyage: None,
        split: array.and_then(|array| InputSplit::new(&array, limits.batch_inputs_max)),
    })
}

struct Input {
    count: u64,
    has_token_ids: bool,
    /// Maximum number of tokens of the input.
    tokens_max: u64,
    tokens_estimate: u64,
}

/// Tokens that an upstream puts before an input that says what it is for. Voyage's instructions have
/// some ten.
const INPUT_TYPE_TOKENS_MAX: u64 = 32;
/// Tokens that a model adds to an input, for its beginning and its end.
const ADDED_TOKENS: u64 = 2;

impl Input {
    fn new(count: u64, tokens: ReadTokens) -> Self {
        // The estimate errs upward and can exceed the bound; the hold must cover what may be
        // charged.
        let tokens_max = tokens.most.max(tokens.about) + count * ADDED_TOKENS;
        Self { count, has_token_ids: false, tokens_max, tokens_estimate: tokens.about }
    }
}

/// Reads `input`: a string, an array of strings, an array of token ids, or an array of those.
fn read_input(body: &Object<'_>) -> Result<Input, GatewayError> {
    let invalid = || {
        let message = "`input` must be a non-empty string, array of strings or array of token ids";
        GatewayError::invalid("input", message)
    };
    let value = body.get_non_null("input").ok_or_else(invalid)?;
    let is_text = |value: &Value<'_>| value.text().starts_with(b"\"") && value.text() != b"\"\"";
    if is_text(&value) {
        return Ok(Input::new(1, read_element(&value)));
    }
    let elements = || value.elements().ok_or_else(invalid);
    let of_ids =
        |count: usize| Input { has_token_ids: true, ..Input::new(1, size_of_token_ids(count)) };
    let first = elements()?.next().ok_or_else(invalid)?;
    if is_id(&first) {
        return count_ids(elements()?).map(of_ids).ok_or_else(invalid);
    }
    // Counted before any is measured: measuring is the costly part of a body of millions of inputs.
    let count = elements()?.count();
    if count > INPUTS_MAX {
        let message = format!("`input` has {count} elements; at most {INPUTS_MAX} are allowed");
        return Err(GatewayError::invalid("input", message));
    }
    if elements()?.all(|element| is_text(&element)) {
        let sizes = elements()?.map(|element| read_element(&element));
        let all = sizes.fold(ReadTokens::default(), ReadTokens::plus);
        return Ok(Input::new(count as u64, all));
    }
    let mut ids = 0;
    for element in elements()? {
        let tokens = element.elements().and_then(count_ids);
        ids += tokens.filter(|tokens| *tokens > 0).ok_or_else(invalid)?;
    }
    Ok(Input { count: count as u64, ..of_ids(ids) })
}

fn is_id(value: &Value<'_>) -> bool {
    value.as_u64().is_some()
}

/// Number of token ids, if all elements are ids.
fn count_ids(elements: Elements<'_>) -> Option<usize> {
    elements.map(|element| is_id(&element)).try_fold(0, |ids, is_id| is_id.then_some(ids + 1))
}

/// The tokens of an input: of a text, or of a list of their ids.
fn read_element(element: &Value<'_>) -> ReadTokens {
    match element.as_str() {
        Some(text) => ReadTokens::measure(&text),
        None => size_of_token_ids(element.elements().map_or(0, Iterator::count)),
    }
}

fn size_of_token_ids(count: usize) -> ReadTokens {
    ReadTokens { most: count as u64, about: count as u64 }
}

fn check_dimensions(body: &Object<'_>, limits: &ModelLimits) -> Result<(), GatewayError> {
    let sizes_allowed = &limits.dimensions;
    if sizes_allowed.is_empty() {
        return fields::integer(body, "dimensions", 1..=u64::MAX).map(drop);
    }
    let Some(requested) = body.get_non_null("dimensions") else { return Ok(()) };
    let requested = requested.as_u64();
    if sizes_allowed.iter().any(|size| Some(u64::from(*size)) == requested) {
        return Ok(());
    }
    let sizes: Vec<String> = sizes_allowed.iter().map(u32::to_string).collect();
    let message = format!("`dimensions` must be one of {} for this model", sizes.join(", "));
    Err(GatewayError::invalid("dimensions", message))
}

fn reads_base64(body: &Object<'_>) -> Result<bool, GatewayError> {
    let Some(format) = body.get_non_null("encoding_format") else { return Ok(false) };
    match format.as_str().as_deref() {
        Some("float") => Ok(false),
        Some("base64") => Ok(true),
        _ => Err(GatewayError::invalid(
            "encoding_format",
            "`encoding_format` must be `float` or `base64`",
        )),
    }
}

#[derive(Debug)]
struct EmbeddingsCall {
    base64: bool,
    bounds: RequestBounds,
    /// Number of inputs to embed.
    count: u64,
    /// Maximum input tokens that the model accepts for so many inputs.
    input_tokens_max: u64,
    /// Edits for Voyage's variant of the API.
    voyage: Option<VoyageEdits>,
    /// Division of the inputs, where they are more than the upstream accepts in one call.
    split: Option<InputSplit>,
}

/// The places in a body that Voyage would not understand.
#[derive(Debug)]
struct VoyageEdits {
    /// Position of the key `dimensions` in the body.
    dimensions: Option<Range<usize>>,
    /// The value of an `encoding_format` that says `float`.
    float: Option<Range<usize>>,
}

impl Call for EmbeddingsCall {
    bounds_in_field!();

    /// Always true: embeddings have no output, so the request determines the whole cost.
    fn is_all_shown(&self) -> bool {
        true
    }

    fn splice(&self, upstream_model: &str) -> Splice {
        let mut splice = self.bounds.model.rename(upstream_model);
        let edits = self.voyage.as_ref();
        if let Some(key) = edits.and_then(|edits| edits.dimensions.clone()) {
            splice.replace(key, "\"output_dimension\"");
        }
        if let Some(value) = edits.and_then(|edits| edits.float.clone()) {
            splice.replace(value, "null");
        }
        splice
    }

    fn meter(&self, _framing: Framing) -> Box<dyn Meter> {
        let adds_usage = self.voyage.is_some();
        let (count, tokens_max) = (self.count, self.input_tokens_max);
        Box::new(EmbeddingsMeter::new(&self.bounds, count, tokens_max, self.base64, adds_usage))
    }

    fn collected(&self) -> Option<&(dyn Collect + Sync)> {
        self.split.as_ref().map(|_| self as &(dyn Collect + Sync))
    }
}

impl Collect for EmbeddingsCall {
    fn bodies(&self, upstream_model: &str, body: &Bytes) -> Vec<Bytes> {
        let split = self.split.iter();
        split.flat_map(|split| split.bodies(body, || self.splice(upstream_model))).collect()
    }

    fn read(&self, answers: &[Bytes]) -> Result<CollectedAnswer, UpstreamFault> {
        let merged = self.split.as_ref().and_then(|split| split.merge(answers));
        let Some(mut answer) = merged else {
            return Err(UpstreamFault::Upstreams(
                "the upstream's answers are not complete".to_owned(),
            ));
        };
        let lacks_usage =
            Object::parse(&answer).is_ok_and(|object| object.get_non_null("usage").is_none());
        let used = self.split.as_ref().and_then(|split| split.used(answers));
        let (usage, source) = used.unwrap_or((self.bounds.min_usage, UsageSource::Estimated));
        if lacks_usage {
            answer = with_usage(&answer, self.bounds.min_usage.input_tokens);
        }
        if self.base64 {
            answer = floats_to_base64(&answer);
        }
        if self.voyage.is_some() {
            answer = with_prompt_tokens(&answer);
        }
        Ok(CollectedAnswer { usage, source, content: CollectedContent::Json(answer) })
    }

    /// Each part was paid for by itself.
    fn answered(&self, answers: &[Bytes]) -> Option<(Usage, UsageSource)> {
        self.split.as_ref().and_then(|split| split.used(answers))
    }
}

#[cfg(test)]
mod tests;
