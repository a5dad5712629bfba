//! Edits of an answer on its way to the customer: vectors are put in the order of their inputs and into the
//! requested encoding, and a missing usage is added.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};

use super::INPUTS_MAX;
use super::order::in_order;
use crate::json::{Object, Value};
use crate::json_scan::UsageScan;
use crate::splice::{Splice, json_string};
use crate::{Meter, RequestBounds, metering};
use tollgate_money::price::{Usage, UsageSource};

/// Relays an answer once it is whole: only then it is known whether each input has one vector.
pub(super) struct EmbeddingsMeter {
    scan: UsageScan,
    /// Number of vectors that the answer must have.
    count: u64,
    /// Vectors may have to be re-encoded.
    base64: bool,
    /// The customer's `prompt_tokens` may have to be added.
    adds_usage: bool,
    /// The answer so far.
    held: BytesMut,
    /// An input has no vector, or several: it is no answer.
    is_broken: bool,
    min_usage: Usage,
    /// Maximum tokens that the model accepts for all inputs: a report above it shows that the limit is out of
    /// date.
    input_tokens_max: u64,
}

impl EmbeddingsMeter {
    pub(super) fn new(
        bounds: &RequestBounds,
        count: u64,
        input_tokens_max: u64,
        base64: bool,
        adds_usage: bool,
    ) -> Self {
        Self {
            scan: UsageScan::noting_lists(usize::try_from(count).unwrap_or(0)),
            count,
            base64,
            adds_usage,
            held: BytesMut::new(),
            is_broken: false,
            min_usage: bounds.min_usage,
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
        let chunk = if self.scan.is_complete() && self.scan.usage().is_none() {
            with_usage(&chunk, self.min_usage.input_tokens)
        } else {
            chunk
        };
        self.held.extend_from_slice(&chunk);
        Bytes::new()
    }

    fn held_bytes(&self) -> usize {
        // What it is re-encoded into is there beside it at the end.
        self.held.len().saturating_mul(2)
    }

    fn finish(&mut self) -> Bytes {
        let answer = std::mem::take(&mut self.held).freeze();
        if !self.scan.is_complete() || self.scan.has_only_error() {
            return answer;
        }
        let Some(answer) = in_order(&answer, self.count, self.scan.lists()) else {
            self.is_broken = true;
            return Bytes::new();
        };
        let answer = if self.base64 { floats_to_base64(&answer) } else { answer };
        if self.adds_usage { with_prompt_tokens(&answer) } else { answer }
    }

    fn is_complete(&self) -> bool {
        self.scan.is_complete() && !self.is_broken
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
            None => (self.min_usage, UsageSource::Estimated),
        }
    }

    fn is_above_limits(&self) -> bool {
        self.reported().is_some_and(|tokens| tokens > self.input_tokens_max)
    }

    /// A usage may have to be added, and vectors to be moved, which is known at the end.
    fn changes_length(&self) -> bool {
        true
    }
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

/// Adds `prompt_tokens` to a usage with only `total_tokens`: for embeddings they are equal.
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
