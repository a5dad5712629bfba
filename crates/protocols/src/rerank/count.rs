//! Sizes of a query and its documents, in tokens and in rerank units: the maximum that any upstream can
//! count, and an estimate.
//!
//! Tokens: Jina and Voyage count the query once for each document, and each document once ("the number
//! of query tokens × the number of documents + sum of the number of tokens in all documents"). Models
//! of language that rank have a template around each pair.
//!
//! Rerank units: Cohere counts one for a query with up to 100 documents. A document that has more than
//! 500 tokens together with the query is cut into chunks, each of which counts as a document (its
//! pricing page). Each chunk has the query before it, and a query takes half of it at most ("Best
//! practices for using Rerank": 2,048 tokens of 4,096, as it was 256 of 512 before).

use crate::estimate::ReadTokens;

/// Tokens that stand around a pair of query and document: the template of Qwen3-Reranker with its
/// default instruction has some 80, a cross-encoder's marks are four.
const PAIR_TOKENS_ADDED_MAX: u64 = 128;
/// Documents, or chunks of them, to one rerank unit.
const UNIT_CHUNKS: u64 = 100;
/// Tokens of query and document that count as one document.
const CHUNK_TOKENS: u64 = 500;
/// Minimum part of a chunk left for the document, however long the query is.
const CHUNK_DOCUMENT_TOKENS_MIN: u64 = CHUNK_TOKENS / 2;

/// A query with the documents that were added so far.
#[derive(Debug)]
pub(super) struct RankedDocuments {
    query: u64,
    /// Tokens around each pair of query and document.
    added: u64,
    /// Tokens of one chunk, as far as the request says so.
    chunk_tokens: Option<u64>,
    documents: u64,
    tokens: u64,
    chunks: u64,
}

impl RankedDocuments {
    /// Upper bound for documents with a query of so many tokens.
    pub(super) fn most(query: ReadTokens, chunk_tokens: Option<u64>) -> Self {
        Self::new(query.most, PAIR_TOKENS_ADDED_MAX, chunk_tokens)
    }

    /// An estimating sum of documents behind a query of so many tokens.
    pub(super) fn about(query: ReadTokens, chunk_tokens: Option<u64>) -> Self {
        Self::new(query.about, 0, chunk_tokens)
    }

    fn new(query: u64, added: u64, chunk_tokens: Option<u64>) -> Self {
        Self { query, added, chunk_tokens, documents: 0, tokens: 0, chunks: 0 }
    }

    /// Adds a document of so many tokens.
    pub(super) fn add(&mut self, document: u64) {
        let pair = self.query.saturating_add(document);
        self.documents += 1;
        self.tokens = self.tokens.saturating_add(pair).saturating_add(self.added);
        // Cut with the query before each chunk, or both together as they stand.
        let room = CHUNK_TOKENS.saturating_sub(self.query).max(CHUNK_DOCUMENT_TOKENS_MIN);
        let room = self.chunk_tokens.map_or(room, |tokens| room.min(tokens));
        let chunks = document.div_ceil(room.max(1)).max(pair.div_ceil(CHUNK_TOKENS)).max(1);
        self.chunks = self.chunks.saturating_add(chunks);
    }

    /// Number of documents added.
    pub(super) fn documents(&self) -> u64 {
        self.documents
    }

    /// The tokens of all pairs.
    pub(super) fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The rerank units of all chunks.
    pub(super) fn units(&self) -> u64 {
        self.chunks.div_ceil(UNIT_CHUNKS).max(1)
    }
}
