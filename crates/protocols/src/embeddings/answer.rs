//! What changes in an answer on its way to the customer: vectors are encoded as they were asked for,
//! and a usage that is missing is added.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use memchr::memmem;

use super::INPUTS_MAX;
use crate::json::{Object, Value};
use crate::json_scan::UsageScan;
use crate::splice::{Splice, json_string};
use crate::{Meter, Terms, metering};
use tollgate_money::price::{Usage, UsageSource};

/// The first vector begins within so many bytes, or the answer is held to its end.
const FIRST_VECTOR_WITHIN: usize = 16 * 1024;
const VECTOR_KEY: &[u8] = b"\"embedding\"";
static VECTOR_KEY_FINDER: LazyLock<memmem::Finder<'static>> =
    LazyLock::new(|| memmem::Finder::new(VECTOR_KEY));

/// Relays an answer, and holds it back as far as something in it may have to change.
pub(super) struct EmbeddingsMeter {
    scan: UsageScan,
    /// Vectors may have to be re-encoded.
    base64: bool,
    /// The customer's `prompt_tokens` may have to be added.
    adds_usage: bool,
    /// The answer so far, where something has to be changed; until its first vector shows that
    /// nothing has to be.
    held: Option<BytesMut>,
    floor: Usage,
    /// What the model takes of all inputs: a report above it says that its limit is out of date.
    input_tokens_max: u64,
}

impl EmbeddingsMeter {
    pub(super) fn new(
        terms: &Terms,
        input_tokens_max: u64,
        base64: bool,
        adds_usage: bool,
    ) -> Self {
        Self {
            scan: UsageScan::default(),
            base64,
            adds_usage,
            held: (base64 || adds_usage).then(BytesMut::new),
            floor: terms.floor,
            input_tokens_max,
        }
    }

    fn reported(&self) -> Option<u64> {
        metering::input_tokens(&self.scan)
    }
}

impl Meter for EmbeddingsMeter {
    fn relay(&mut self, chunk: Bytes) -> Bytes {
        self.scan.feed(&chunk);
        let chunk = if self.scan.is_whole() && self.scan.usage().is_none() {
            with_usage(&chunk, self.floor.input_tokens)
        } else {
            chunk
        };
        match &mut self.held {
            None => chunk,
            Some(held) => {
                let was_undecided = first_vector(held).is_none();
                held.extend_from_slice(&chunk);
                if was_undecided && !self.adds_usage && first_vector(held) == Some(b'"') {
                    return self.held.take().unwrap_or_default().freeze();
                }
                Bytes::new()
            }
        }
    }

    fn held_bytes(&self) -> usize {
        // What it is re-encoded into is there beside it at the end.
        self.held.as_ref().map_or(0, |held| held.len().saturating_mul(2))
    }

    fn finish(&mut self) -> Bytes {
        match self.held.take() {
            None => Bytes::new(),
            Some(held) => {
                let answer = held.freeze();
                let answer = if self.base64 { floats_to_base64(&answer) } else { answer };
                if self.adds_usage { with_prompt_tokens(&answer) } else { answer }
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.scan.is_whole()
    }

    fn has_failed(&self) -> bool {
        self.scan.has_only_error() && self.reported().is_none()
    }

    fn relayed(&self) -> Usage {
        Usage::default()
    }

    fn measure(&self) -> (Usage, UsageSource) {
        match self.reported() {
            Some(input_tokens) => {
                (Usage { input_tokens, ..Usage::default() }, UsageSource::Upstream)
            }
            None => (self.floor, UsageSource::Estimated),
        }
    }

    fn is_above_limits(&self) -> bool {
        self.reported().is_some_and(|tokens| tokens > self.input_tokens_max)
    }

    /// A usage may have to be added, and who has one is known at the end.
    fn changes_length(&self) -> bool {
        true
    }
}

/// How the first vector of an answer begins, once that much of it is there: `[` for floats, a quote
/// for base64.
fn first_vector(answer: &[u8]) -> Option<u8> {
    let begin = answer.get(..FIRST_VECTOR_WITHIN).unwrap_or(answer);
    let behind = |at: usize| {
        let value = begin.get(at + VECTOR_KEY.len()..)?.trim_ascii_start().strip_prefix(b":")?;
        value.trim_ascii_start().first().copied()
    };
    VECTOR_KEY_FINDER.find_iter(begin).find_map(behind)
}

/// Re-encodes every vector of floats in an embeddings answer. An answer of another shape, or one
/// that is base64 already, comes back as it was.
pub(super) fn floats_to_base64(answer: &Bytes) -> Bytes {
    let Ok(object) = Object::parse(answer) else { return answer.clone() };
    let Some(data) = object.get("data") else { return answer.clone() };
    let mut splice = Splice::default();
    // One for each input; what has more is no answer to a request of ours.
    for item in data.elements().into_iter().flatten().take(INPUTS_MAX) {
        let Ok(members) = item.as_object() else { continue };
        let Some(vector) = members.get("embedding").filter(Value::is_array) else { continue };
        let Some(encoded) = encode_vector(vector.text()) else { continue };
        let start = data.range.start + item.range.start + vector.range.start;
        splice.replace(start..start + vector.text().len(), json_string(&encoded));
    }
    splice.apply(answer)
}

/// Adds a usage, which the contract promises, to the last piece of an answer that has none.
pub(super) fn with_usage(last: &Bytes, tokens: u64) -> Bytes {
    let Some(end) = memchr::memrchr(b'}', last) else { return last.clone() };
    let before = last.get(..end).unwrap_or_default().trim_ascii_end();
    let comma = if before.ends_with(b"{") { "" } else { "," };
    let usage =
        format!("{comma}\"usage\":{{\"prompt_tokens\":{tokens},\"total_tokens\":{tokens}}}");
    let mut splice = Splice::default();
    splice.replace(end..end, usage);
    splice.apply(last)
}

/// Adds `prompt_tokens` to a usage that has `total_tokens` alone: for embeddings they are the same.
pub(super) fn with_prompt_tokens(answer: &Bytes) -> Bytes {
    let added = || {
        let usage = Object::parse(answer).ok()?.get("usage")?;
        let object = usage.as_object().ok()?;
        let total = object.get("total_tokens")?.as_u64()?;
        let mut splice = Splice::default();
        if object.get("prompt_tokens").is_none() {
            splice.insert(&object, usage.range.start, &format!("\"prompt_tokens\":{total}"));
        }
        Some(splice)
    };
    added().unwrap_or_default().apply(answer)
}

/// A JSON array of numbers as base64 of little-endian 32-bit floats.
fn encode_vector(array: &[u8]) -> Option<String> {
    let inner = array.strip_prefix(b"[")?.strip_suffix(b"]")?;
    let text = std::str::from_utf8(inner).ok()?;
    let mut bytes = Vec::with_capacity(inner.len() / 2);
    for number in text.split(',') {
        let value: f32 = number.trim().parse().ok()?;
        bytes.extend_from_slice(&value.to_le_bytes());
    }
    Some(STANDARD.encode(bytes))
}
