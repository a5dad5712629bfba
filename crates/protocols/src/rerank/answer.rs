//! Reads an answer, and edits Voyage's on its way to the customer.

use bytes::{Bytes, BytesMut};
use serde::Deserialize;

use crate::disjoint::count;
use crate::json::Object;
use crate::json_scan::UsageScan;
use crate::splice::Splice;
use crate::{Meter, RequestBounds, metering};
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Usage, UsageSource};

/// `usage`, as Jina, vLLM, SiliconFlow and Voyage have it. OpenRouter has Cohere's units in it.
#[derive(Deserialize)]
struct WireRerankUsage {
    #[serde(default, deserialize_with = "count")]
    prompt_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    input_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    total_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    search_units: Option<u64>,
    /// Cost in dollars, as reported by OpenRouter.
    #[serde(default)]
    cost: Option<serde_json::Number>,
}

/// `meta` in the answers of Cohere and SiliconFlow.
#[derive(Deserialize)]
struct WireMeta {
    #[serde(default)]
    billed_units: Option<WireUnits>,
    #[serde(default)]
    tokens: Option<WireUnits>,
}

#[derive(Deserialize)]
struct WireUnits {
    #[serde(default, deserialize_with = "count")]
    search_units: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    input_tokens: Option<u64>,
}

/// Units for which the model has prices.
#[derive(Clone, Copy, Debug)]
pub(super) struct PricedUnits {
    pub(super) tokens: bool,
    pub(super) units: bool,
}

/// Relays an answer; one of Voyage's is held back to its end.
pub(super) struct RerankMeter {
    scan: UsageScan,
    /// The answer so far, where it has to be changed.
    held: Option<BytesMut>,
    min_usage: Usage,
    billed: PricedUnits,
    /// Maximum tokens that the model accepts for all documents: a report above it shows that the limit is out
    /// of date.
    tokens_max: u64,
}

impl RerankMeter {
    pub(super) fn new(
        bounds: &RequestBounds,
        billed: PricedUnits,
        tokens_max: u64,
        is_voyages: bool,
    ) -> Self {
        Self {
            scan: UsageScan::default(),
            held: is_voyages.then(BytesMut::new),
            min_usage: bounds.min_usage,
            billed,
            tokens_max,
        }
    }

    /// The tokens and the rerank units that were reported; of several reports the dearest. There is no
    /// ranking without any.
    fn reported(&self) -> (Option<u64>, Option<u64>) {
        let (mut tokens, mut units) = (None, None);
        for usage in self.scan.usages() {
            let Some(usage) = metering::read_wire::<WireRerankUsage>(usage) else { continue };
            // Vendors name one count differently; where several stand there the dearest is charged
            // (ADR 16).
            tokens = tokens.max(usage.prompt_tokens).max(usage.input_tokens);
            tokens = tokens.max(usage.total_tokens);
            units = units.max(usage.search_units);
        }
        for meta in self.scan.metas() {
            let Some(meta) = metering::read_wire::<WireMeta>(meta) else { continue };
            for part in [meta.billed_units, meta.tokens].into_iter().flatten() {
                tokens = tokens.max(part.input_tokens);
                units = units.max(part.search_units);
            }
        }
        (tokens.filter(|count| *count > 0), units.filter(|count| *count > 0))
    }
}

impl Meter for RerankMeter {
    fn relay(&mut self, chunk: Bytes) -> Bytes {
        self.scan.feed(&chunk);
        match &mut self.held {
            None => chunk,
            Some(held) => {
                held.extend_from_slice(&chunk);
                Bytes::new()
            }
        }
    }

    fn held_bytes(&self) -> usize {
        // What it is changed into is there beside it at the end.
        self.held.as_ref().map_or(0, |held| held.len().saturating_mul(2))
    }

    fn finish(&mut self) -> Bytes {
        self.held.take().map_or(Bytes::new(), |held| from_voyage(&held.freeze()))
    }

    fn is_complete(&self) -> bool {
        self.scan.is_complete()
    }

    fn has_failed(&self) -> bool {
        self.scan.has_only_error() && self.reported() == (None, None)
    }

    fn relayed(&self) -> Usage {
        Usage::default()
    }

    /// The usage; priced units without a report are estimated.
    fn measure(&self) -> (Usage, UsageSource) {
        let (tokens, units) = self.reported();
        let nothing = (tokens, units) == (None, None);
        let lacks_tokens = tokens.is_none() && (self.billed.tokens || nothing);
        let lacks_units = units.is_none() && self.billed.units;
        let estimated = |lacks: bool, count: u64| if lacks { count } else { 0 };
        let usage = Usage {
            input_tokens: tokens.unwrap_or(estimated(lacks_tokens, self.min_usage.input_tokens)),
            rerank_units: units.unwrap_or(estimated(lacks_units, self.min_usage.rerank_units)),
            ..Usage::ZERO
        };
        let is_estimated = lacks_tokens || lacks_units;
        (usage, if is_estimated { UsageSource::Estimated } else { UsageSource::Upstream })
    }

    fn reported_cost(&self) -> Option<Nanousd> {
        let usages = self.scan.usages().filter_map(metering::read_wire::<WireRerankUsage>);
        usages.filter_map(|usage| usage.cost.as_ref().and_then(metering::dollars)).max()
    }

    fn is_above_limits(&self) -> bool {
        self.reported().0.is_some_and(|tokens| tokens > self.tokens_max)
    }

    fn changes_length(&self) -> bool {
        self.held.is_some()
    }
}

/// An answer of Voyage's as others answer: with `results`, and documents as objects.
fn from_voyage(answer: &Bytes) -> Bytes {
    // An answer that is none is passed on as it came: its meter reports the failure.
    let Ok(object) = Object::parse(answer) else { return answer.clone() };
    let (Some(key), Some(data)) = (object.key_range("data"), object.get("data")) else {
        return answer.clone();
    };
    let mut splice = Splice::default();
    if object.get("results").is_none() {
        splice.replace(key, "\"results\"");
    }
    for item in data.elements().into_iter().flatten() {
        let document = item.as_object().ok().and_then(|members| members.get("document"));
        let Some(document) = document.filter(|it| it.text().starts_with(b"\"")) else { continue };
        let start = data.range.start + item.range.start + document.range.start;
        let end = start + document.text().len();
        splice.replace(start..start, "{\"text\":");
        splice.replace(end..end, "}");
    }
    splice.apply(answer)
}
