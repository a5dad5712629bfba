//! Rankings: documents in the order in which they share words with a query.
//!
//! A token is four bytes and one more, as elsewhere here. Tokens are counted as Jina and Voyage count
//! them: the query once for each document. Search units are counted as Cohere counts them: a query with
//! up to a hundred documents, of which those with more than 500 tokens, the query among them, are
//! several.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::behaviour::{Behaviour, SimulatedRefusal};
use crate::received_request::ReceivedRequest;

/// The most documents that Cohere takes in one request.
const DOCUMENTS_MAX: usize = 10_000;
/// Largest batch at Voyage.
const VOYAGE_DOCUMENTS_MAX: usize = 1000;
/// Tokens of query and document that count as one document.
const CHUNK_TOKENS: usize = 500;
/// Documents, or parts of them, to one search unit.
const UNIT_CHUNKS: usize = 100;
/// Bytes to a token.
const TOKEN_BYTES: usize = 4;

#[derive(Deserialize)]
struct RerankRequest {
    model: String,
    query: String,
    documents: Vec<RankedDocument>,
    #[serde(default)]
    top_n: Option<usize>,
    /// Voyage's name for `top_n`.
    #[serde(default)]
    top_k: Option<usize>,
    #[serde(default)]
    return_documents: Option<bool>,
}

/// A text, bare or in an object.
#[derive(Deserialize)]
#[serde(untagged)]
enum RankedDocument {
    Bare(String),
    Object { text: String },
}

impl RankedDocument {
    fn text(&self) -> &str {
        match self {
            Self::Bare(text) | Self::Object { text } => text,
        }
    }
}

/// Vendor of a rerank model.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Vendor {
    /// Jina's, which vLLM and others copy.
    Jina,
    /// Told by its second version in the path.
    Cohere,
    /// Told by its models' names, `rerank-2` and later.
    Voyage,
}

impl Vendor {
    fn detect(path: &str, model: &str) -> Self {
        let version = model.strip_prefix("rerank-").and_then(|rest| rest.bytes().next());
        if path.contains("/v2/") {
            Self::Cohere
        } else if version.is_some_and(|byte| byte.is_ascii_digit()) {
            Self::Voyage
        } else {
            Self::Jina
        }
    }

    /// Refuses what this vendor does not take.
    fn refusal(self, request: &RerankRequest, behaviour: &Behaviour) -> Option<Answer> {
        let is_bare = |document: &RankedDocument| matches!(document, RankedDocument::Bare(_));
        let max = if self == Self::Voyage { VOYAGE_DOCUMENTS_MAX } else { DOCUMENTS_MAX };
        if request.query.is_empty() || request.documents.is_empty() {
            return Some(Answer::invalid("a query and documents are required.", behaviour));
        }
        if request.documents.len() > max {
            return Some(Answer::invalid(&format!("at most {max} documents."), behaviour));
        }
        match self {
            Self::Voyage if request.top_n.is_some() || !request.documents.iter().all(is_bare) => {
                Some(Answer::invalid("Argument is not supported by our API.", behaviour))
            }
            Self::Jina | Self::Cohere if request.top_k.is_some() => {
                Some(Answer::invalid("unknown field: top_k.", behaviour))
            }
            _ => None,
        }
    }

    /// A document as it is returned, if this vendor does that.
    fn document(self, text: &str) -> Option<Value> {
        match self {
            Self::Jina => Some(json!({"text": text})),
            Self::Voyage => Some(json!(text)),
            Self::Cohere => None,
        }
    }
}

fn tokens(text: &str) -> usize {
    1 + text.len() / TOKEN_BYTES
}

/// The tokens of all pairs of query and document.
fn total_tokens(request: &RerankRequest) -> usize {
    let documents = request.documents.iter().map(|document| tokens(document.text()));
    tokens(&request.query) * request.documents.len() + documents.sum::<usize>()
}

/// The units of documents that are cut where they are too long.
fn search_units(request: &RerankRequest) -> usize {
    let query = tokens(&request.query);
    let chunks =
        |document: &RankedDocument| (query + tokens(document.text())).div_ceil(CHUNK_TOKENS);
    request.documents.iter().map(chunks).sum::<usize>().div_ceil(UNIT_CHUNKS)
}

/// Share of the words that occur in a document, from 0 to 1.
fn relevance(words: &[&str], document: &str) -> f64 {
    let shared = words.iter().filter(|word| document.contains(**word)).count();
    let (shared, words) = (u32::try_from(shared).ok(), u32::try_from(words.len().max(1)).ok());
    shared.zip(words).map_or(0.0, |(shared, words)| f64::from(shared) / f64::from(words))
}

/// Answers `…/rerank`.
pub(crate) fn answer(http_request: &ReceivedRequest<'_>, behaviour: &Behaviour) -> Answer {
    let request = match serde_json::from_slice::<RerankRequest>(http_request.body) {
        Ok(request) => request,
        Err(error) => return Answer::invalid(&format!("The body: {error}."), behaviour),
    };
    let vendor = Vendor::detect(http_request.path, &request.model);
    if let Some(refused) = vendor.refusal(&request, behaviour) {
        return refused;
    }
    if behaviour.faults.refusal == Some(SimulatedRefusal::Garbage) {
        return Answer::garbage(false);
    }
    let words: Vec<&str> = request.query.split_whitespace().collect();
    let scored = request.documents.iter().map(|one| relevance(&words, one.text()));
    let mut ranked: Vec<(usize, f64)> = scored.enumerate().collect();
    ranked.sort_by(|(_, one), (_, other)| other.total_cmp(one));
    ranked.truncate(request.top_n.or(request.top_k).unwrap_or(usize::MAX));
    let returns = request.return_documents == Some(true);
    let results = ranked.into_iter().map(|(index, score)| {
        let mut result = json!({"index": index, "relevance_score": score});
        let text = request.documents.get(index).map(RankedDocument::text).filter(|_| returns);
        if let Some(document) = text.and_then(|text| vendor.document(text)) {
            result["document"] = document;
        }
        result
    });
    let results: Vec<Value> = results.collect();
    let honest = match vendor {
        Vendor::Cohere => search_units(&request),
        Vendor::Jina | Vendor::Voyage => total_tokens(&request),
    };
    let used = behaviour.usage.prompt.unwrap_or(i64::try_from(honest).unwrap_or(i64::MAX));
    let used = behaviour.faults.usage.select(-100, i64::MAX, || used);
    Answer::json(body(vendor, &request.model, results, used).to_string(), behaviour)
}

/// Response body of this vendor, with optional usage.
fn body(vendor: Vendor, model: &str, results: Vec<Value>, used: Option<i64>) -> Value {
    let mut body = match vendor {
        Vendor::Jina => json!({"model": model, "results": results}),
        Vendor::Cohere => json!({
            "id": "07734bd2-2473-4f07-94e1-0d9f0e6843cf",
            "results": results,
            "meta": {"api_version": {"version": "2"}},
        }),
        Vendor::Voyage => json!({"object": "list", "model": model, "data": results}),
    };
    if let Some(used) = used {
        match vendor {
            Vendor::Cohere => body["meta"]["billed_units"] = json!({"search_units": used}),
            Vendor::Jina | Vendor::Voyage => body["usage"] = json!({"total_tokens": used}),
        }
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(query: &str, documents: &[String]) -> RerankRequest {
        let body = json!({"model": "m", "query": query, "documents": documents});
        serde_json::from_value(body).expect("a request")
    }

    #[test]
    fn tokens_count_the_query_for_each_document_and_units_a_hundred() {
        let short = request(&"q".repeat(12), &vec!["d".repeat(8); 101]);
        assert_eq!((total_tokens(&short), search_units(&short)), (101 * (4 + 3), 2));
        let long = request(&"q".repeat(12), &vec!["d".repeat(1984); 100]);
        assert_eq!(search_units(&long), 2, "501 tokens are two parts");
    }
}
