//! `POST /v1/rerank`: documents in the order in which they answer a query. The request and the answer
//! are those that Jina, vLLM, SiliconFlow, OpenRouter and the second version of Cohere's API have in
//! common, and they are relayed as they are.
//!
//! Voyage calls `top_n` otherwise, takes texts alone, and answers with `data` in the place of `results`
//! (its API reference, "Rerankers").
//!
//! There are two ways in which providers bill: by tokens, of the query once for each document and of
//! all documents; or by rerank units, which Cohere calls search units: a query with up to a hundred
//! documents of up to 500 tokens. [`count`] bounds both.

use std::ops::Range;

use super::estimate::ReadTokens;
use super::fields;
use super::fields::{boolean, integer};
use super::json::{Object, Value};
use super::limits::ModelLimits;
use super::request_policy::{Allowlist, Field};
use super::splice::Splice;
use super::{
    Call, Codec, Dialect, Framing, Meter, Operation, Request, RequestBounds, request_policy,
};
use crate::codec::bounds_in_field;
use tollgate_money::price::{Unit, Usage};
use tollgate_types::error::GatewayError;

mod answer;
mod count;

use answer::{PricedUnits, RerankMeter};
use count::RankedDocuments;

/// Documents that Voyage takes in one request.
const VOYAGE_DOCUMENTS_MAX: u32 = 1000;

/// Fields of a request in the API that Jina, vLLM, SiliconFlow and Cohere share. Query and documents are checked
/// where they are measured.
static OPENAI_FIELDS: Allowlist = Allowlist::of_fields(&[
    ("query", Field::Plain),
    ("documents", Field::Plain),
    ("model", Field::Plain),
    ("top_n", Field::Plain),
    ("return_documents", Field::Plain),
    ("max_tokens_per_doc", Field::Plain),
    ("instruction", Field::Plain),
]);

/// Fields of a request to Voyage.
static VOYAGE_FIELDS: Allowlist = Allowlist::of_fields(&[
    ("query", Field::Plain),
    ("documents", Field::Plain),
    ("model", Field::Plain),
    ("top_n", Field::Plain),
    ("return_documents", Field::Plain),
    ("truncation", Field::Plain),
]);

/// The codec of rankings as most upstreams have them.
#[derive(Debug)]
pub struct OpenaiRerank;

impl Codec for OpenaiRerank {
    fn operation(&self) -> Operation {
        Operation::Rerank
    }

    fn dialects(&self) -> &'static [Dialect] {
        &[Dialect::Openai]
    }

    fn path(&self) -> &'static str {
        "/rerank"
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let call = read(request.json()?, limits, &OPENAI_FIELDS)?;
        Ok(Box::new(call))
    }
}

/// The codec for Voyage.
#[derive(Debug)]
pub struct VoyageRerank;

impl Codec for VoyageRerank {
    fn operation(&self) -> Operation {
        Operation::Rerank
    }

    fn dialects(&self) -> &'static [Dialect] {
        &[Dialect::Voyage]
    }

    fn path(&self) -> &'static str {
        "/rerank"
    }

    fn read(
        &self,
        request: &Request<'_>,
        limits: &ModelLimits,
    ) -> Result<Box<dyn Call>, GatewayError> {
        let body = request.json()?;
        let documents_max = limits.documents_max.min(VOYAGE_DOCUMENTS_MAX);
        let limits = ModelLimits { documents_max, ..limits.clone() };
        let call = read(body, &limits, &VOYAGE_FIELDS)?;
        let voyage = VoyageEdits { top_n: body.key_range("top_n"), objects: objects(body) };
        Ok(Box::new(RerankCall { voyage: Some(voyage), ..call }))
    }
}

/// Reads the fields that all upstreams have in common.
fn read(
    body: &Object<'_>,
    limits: &ModelLimits,
    allowlist: &'static Allowlist,
) -> Result<RerankCall, GatewayError> {
    let has_passed = request_policy::check_fields(body, allowlist, limits)?;
    integer(body, "top_n", 1..=u64::MAX)?;
    boolean(body, "return_documents")?;
    boolean(body, "truncation")?;
    let chunk_tokens = integer(body, "max_tokens_per_doc", 1..=u64::MAX)?;
    let instruction = fields::text(body, "instruction")?.unwrap_or_default();
    let measured = |text: &str| ReadTokens::measure(text).bounded();
    let query = measured(&query(body)?).plus(measured(&instruction));
    let context = Some(limits.input_tokens_max).filter(|tokens| *tokens > 0);
    // What an operator lets through may stand for any text.
    let document_min = context.filter(|_| has_passed).unwrap_or(0);
    let mut most = RankedDocuments::most(query, chunk_tokens);
    let mut about = RankedDocuments::about(query, chunk_tokens);
    each_document(body, limits.documents_max, |text| {
        let tokens = measured(text);
        most.add(tokens.most.max(document_min));
        about.add(tokens.about);
    })?;
    let tokens_max = context.map_or(u64::MAX, |context| context.saturating_mul(most.documents()));
    let billed = PricedUnits::by(&limits.priced);
    let of = |tokens: u64, units: u64| Usage {
        input_tokens: tokens.min(tokens_max),
        rerank_units: if billed.units { units } else { 0 },
        ..Usage::ZERO
    };
    let max_usage = of(most.tokens(), most.units());
    let min_usage = of(about.tokens().min(max_usage.input_tokens), about.units().min(most.units()));
    let bounds = RequestBounds::from_body(body, max_usage, min_usage);
    Ok(RerankCall { bounds, billed, tokens_max, voyage: None })
}

/// The text that the documents are ranked by.
fn query(body: &Object<'_>) -> Result<String, GatewayError> {
    let query = fields::text(body, "query")?.filter(|text| !text.is_empty());
    query.ok_or_else(|| GatewayError::invalid("query", "`query` must be a non-empty string"))
}

/// Reads `documents`: an array of strings, or of objects that have a `text` and nothing else.
fn each_document(
    body: &Object<'_>,
    documents_max: u32,
    mut read: impl FnMut(&str),
) -> Result<(), GatewayError> {
    let invalid = |message: String| GatewayError::invalid("documents", message);
    let no_array = || invalid("`documents` must be a non-empty array".to_owned());
    let documents = body.get_non_null("documents").ok_or_else(no_array)?;
    let mut count = 0_u64;
    for document in documents.elements().ok_or_else(no_array)? {
        let Some(text) = text_of(&document).and_then(|text| text.as_str()) else {
            return Err(invalid(format!(
                "`documents[{count}]` must be a string, or an object with a string as `text` and no \
                 other field: what else is ranked, and costs, is not known"
            )));
        };
        count += 1;
        // Within the loop: the array may be far longer than what is allowed.
        if count > u64::from(documents_max) {
            let message =
                format!("`documents` has more than the {documents_max} elements that are allowed");
            return Err(invalid(message));
        }
        read(&text);
    }
    if count == 0 { Err(no_array()) } else { Ok(()) }
}

/// The string that a document is, or is made of. Its range counts from the start of the document.
fn text_of<'a>(document: &Value<'a>) -> Option<Value<'a>> {
    if document.text().starts_with(b"\"") {
        return Some(Value::new(document.text()));
    }
    let object = document.as_object().ok()?;
    let mut members = object.members();
    match (members.next(), members.next()) {
        // Any other member may be ranked, and billed, by some upstreams.
        (Some(("text", text)), None) => Some(text),
        _ => None,
    }
}

/// Positions of documents that are objects, and of their texts.
fn objects(body: &Object<'_>) -> Vec<(Range<usize>, Range<usize>)> {
    let Some(documents) = body.get_non_null("documents") else { return Vec::new() };
    let start = documents.range.start;
    let elements = documents.elements().into_iter().flatten();
    let objects = elements.filter(|document| document.text().starts_with(b"{"));
    let places = objects.filter_map(|document| {
        let text = text_of(&document)?.range;
        let at = start + document.range.start;
        Some((at..start + document.range.end, at + text.start..at + text.end))
    });
    places.collect()
}

#[derive(Debug)]
struct RerankCall {
    bounds: RequestBounds,
    billed: PricedUnits,
    /// Maximum tokens that the model accepts for so many documents.
    tokens_max: u64,
    /// Edits for Voyage's variant of the API.
    voyage: Option<VoyageEdits>,
}

/// The places in a body that Voyage would not understand.
#[derive(Debug)]
struct VoyageEdits {
    /// Position of the key `top_n` in the body.
    top_n: Option<Range<usize>>,
    /// Positions of documents that are objects, and of their texts.
    objects: Vec<(Range<usize>, Range<usize>)>,
}

impl Call for RerankCall {
    bounds_in_field!();

    /// Always true: embeddings have no output, so the request determines the whole cost.
    fn is_all_shown(&self) -> bool {
        true
    }

    fn splice(&self, upstream_model: &str) -> Splice {
        let mut splice = self.bounds.model.rename(upstream_model);
        if let Some(edits) = &self.voyage {
            if let Some(key) = &edits.top_n {
                splice.replace(key.clone(), "\"top_k\"");
            }
            for (object, text) in &edits.objects {
                splice.replace(object.start..text.start, "");
                splice.replace(text.end..object.end, "");
            }
        }
        splice
    }

    fn meter(&self, _framing: Framing) -> Box<dyn Meter> {
        let is_voyages = self.voyage.is_some();
        Box::new(RerankMeter::new(&self.bounds, self.billed, self.tokens_max, is_voyages))
    }
}

impl PricedUnits {
    fn by(priced: &super::limits::PricedFeatures) -> Self {
        Self {
            tokens: priced.has_unit(Unit::InputTokens),
            units: priced.has_unit(Unit::RerankUnits),
        }
    }
}

#[cfg(test)]
mod tests;
