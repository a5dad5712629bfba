//! The meter of one JSON document with a top-level `usage`.

use std::sync::OnceLock;

use bytes::Bytes;
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Traits, Usage, UsageSource};

use super::context::MeterContext;
use super::report::{UsageReport, service_tier};
use crate::disjoint::Contradictions;
use crate::estimate::TextSize;
use crate::json_scan::UsageScan;
use crate::meter::{Meter, ReportedSides};
use crate::server_tools::{ItemScan, QueryScan, ServerToolScan};
use crate::stored::IdScan;

/// Reads a `usage` as a protocol writes it; `None` for one that does not parse.
pub(crate) type ReadUsage = Box<dyn Fn(&[u8]) -> Option<UsageReport> + Send + Sync>;

/// Assumed size, in bytes, of text in a JSON answer other than the output, such as types and ids, if there is
/// no output.
const MARKUP_BYTES_MAX: u64 = 64;

/// Meters a JSON document with a top-level `usage`.
pub(crate) struct JsonMeter {
    scan: UsageScan,
    frame: MeterContext,
    read_usage: ReadUsage,
    /// The report of a complete document.
    reported: OnceLock<Option<UsageReport>>,
    /// Finds ids of objects that the upstream stores, if it stores any.
    ids: Option<IdScan>,
    /// Counts calls of tools that the upstream runs, where it may.
    server_calls: Option<ServerToolScan>,
    /// Finds the model's thoughts, if they have their own price.
    thoughts: Option<ThoughtScan>,
}

impl JsonMeter {
    pub(crate) fn new(frame: MeterContext, read_usage: ReadUsage) -> Self {
        let (scan, reported) = (UsageScan::default(), OnceLock::new());
        Self { scan, frame, read_usage, reported, ids: None, server_calls: None, thoughts: None }
    }

    /// Enables the search for ids of stored objects.
    pub(crate) fn noting_ids(self, is_stored: bool) -> Self {
        Self { ids: is_stored.then(IdScan::default), ..self }
    }

    /// Counts calls of tools that the upstream runs.
    pub(crate) fn counting(self, items: Option<ItemScan>) -> Self {
        Self { server_calls: items.map(|scan| ServerToolScan::Items(Box::new(scan))), ..self }
    }

    /// Enables the count of Google searches.
    pub(crate) fn counting_queries(self, queries: Option<QueryScan>) -> Self {
        Self { server_calls: queries.map(ServerToolScan::Queries), ..self }
    }

    /// Enables the search for thoughts.
    pub(crate) fn finding(self, thoughts: Option<ThoughtScan>) -> Self {
        Self { thoughts, ..self }
    }

    /// The report; parsed once for a complete document.
    fn report(&self) -> Option<UsageReport> {
        if self.scan.is_complete() {
            return *self.reported.get_or_init(|| self.read_report());
        }
        self.read_report()
    }

    fn read_report(&self) -> Option<UsageReport> {
        let mut total = None;
        for report in self.scan.usages().filter_map(&self.read_usage) {
            report.add_to(&mut total);
        }
        total
    }
}

impl Meter for JsonMeter {
    fn relay(&mut self, chunk: Bytes) -> Bytes {
        self.scan.feed(&chunk);
        if let Some(ids) = &mut self.ids {
            ids.feed(&chunk);
        }
        if let Some(server_calls) = &mut self.server_calls {
            server_calls.feed(&chunk);
        }
        if let Some(thoughts) = &mut self.thoughts {
            thoughts.feed(&chunk);
        }
        chunk
    }

    fn stored_ids(&self) -> &[String] {
        self.ids.as_ref().map_or(&[], |scan| scan.ids().all())
    }

    fn finish(&mut self) -> Bytes {
        Bytes::new()
    }

    fn is_complete(&self) -> bool {
        self.scan.is_complete()
    }

    fn has_failed(&self) -> bool {
        self.scan.says_it_failed() && self.report().is_none_or(|report| report.is_empty())
    }

    fn relayed(&self) -> Usage {
        Usage::default()
    }

    fn measure(&self) -> (Usage, UsageSource) {
        let report = self.report();
        let bytes = self.scan.text_bytes();
        let is_markup = report.is_some() && self.scan.output_bytes() <= MARKUP_BYTES_MAX;
        let seen = TextSize::unread(if is_markup { 0 } else { bytes }).tokens();
        let (usage, source) = self.frame.measure(report, seen.min(self.frame.output_tokens_max));
        (
            self.server_calls
                .as_ref()
                .map_or(usage, |server_calls| usage.plus(&server_calls.usage())),
            source,
        )
    }

    fn reported_sides(&self) -> ReportedSides {
        self.report().map(|report| report.sides()).unwrap_or_default()
    }

    fn hides_output(&self) -> bool {
        self.scan.ended_at_limit() || self.scan.has_unread_usage()
    }

    fn contradictions(&self) -> Contradictions {
        self.report().map(|report| report.contradictions).unwrap_or_default()
    }

    fn reported_cost(&self) -> Option<Nanousd> {
        self.report()?.cost
    }

    fn served(&self) -> Traits {
        let service_tier = self.scan.service_tier().and_then(service_tier);
        let reported = self.report().map(|report| report.served).unwrap_or_default();
        let thinking = self.thoughts.as_ref().and_then(ThoughtScan::thinks);
        // What is reported counts before what is seen.
        let seen = Traits { thinking, ..Traits::default() };
        seen.as_served(&reported).as_served(&Traits { service_tier, ..Traits::default() })
    }

    fn is_above_limits(&self) -> bool {
        self.frame.is_exceeded_by(self.report())
    }

    fn changes_length(&self) -> bool {
        false
    }
}

/// Keys behind which providers show what a model has thought.
const THOUGHT_KEYS: [&[u8]; 2] = [b"\"reasoning_content\"", b"\"reasoning\""];
/// Bytes of a key, and of what stands between it and the first letter of its text, that are kept.
const THOUGHT_START_BYTES_MAX: usize = 64;

/// Looks in a JSON document for a text that shows what the model has thought. Within other texts quotes have
/// a backslash before them, so none of them looks like a key.
#[derive(Debug, Default)]
pub(crate) struct ThoughtScan {
    has_thoughts: bool,
    /// The last bytes, in which a key may have begun.
    rest: Vec<u8>,
}

impl ThoughtScan {
    /// `Some(true)` if reasoning was found. An answer without any proves nothing.
    fn thinks(&self) -> Option<bool> {
        self.has_thoughts.then_some(true)
    }

    /// Processes the next piece.
    fn feed(&mut self, piece: &[u8]) {
        if self.has_thoughts {
            return;
        }
        self.rest.extend_from_slice(piece);
        self.has_thoughts = THOUGHT_KEYS.iter().any(|key| {
            memchr::memmem::find_iter(&self.rest, key)
                .any(|at| self.rest.get(at + key.len()..).is_some_and(begins_text))
        });
        let done = self.rest.len().saturating_sub(THOUGHT_START_BYTES_MAX);
        self.rest.drain(..done);
    }
}

/// True for a colon followed by a text that is not empty.
fn begins_text(behind_key: &[u8]) -> bool {
    let value = behind_key.trim_ascii_start().strip_prefix(b":").map(<[u8]>::trim_ascii_start);
    let text = value.and_then(|value| value.strip_prefix(b"\""));
    text.and_then(<[u8]>::first).is_some_and(|first| *first != b'"')
}

/// Implements the methods of a [`Meter`] that relays one JSON document as it comes while its field `scan`, a
/// [`UsageScan`], reads along.
macro_rules! relays_scanned_document {
    () => {
        fn relay(&mut self, chunk: bytes::Bytes) -> bytes::Bytes {
            self.scan.feed(&chunk);
            chunk
        }

        fn finish(&mut self) -> bytes::Bytes {
            bytes::Bytes::new()
        }

        fn is_complete(&self) -> bool {
            self.scan.is_complete()
        }

        // Documents report at their end: until then nothing is relayed that a hold must be raised for.
        fn relayed(&self) -> tollgate_money::price::Usage {
            tollgate_money::price::Usage::ZERO
        }

        fn changes_length(&self) -> bool {
            false
        }
    };
}
pub(crate) use relays_scanned_document;
