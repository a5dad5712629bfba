//! The two meters that protocols share: for one JSON document, and for a stream of events. What a
//! protocol calls things, it says itself.
//!
//! What an upstream reports is believed, also above the limits of the model: these can be out of date,
//! and the upstream bills what it reports. No report is one that does not parse, and one of zeros
//! beside output that was seen. Of several reports the dearest counts.

use std::cmp::Reverse;
use std::sync::OnceLock;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

use super::disjoint::count;
use super::estimate::TextSize;
use super::json_scan::UsageScan;
use super::server_tools::{ItemScan, QueryScan, ServerToolScan};
use super::sse::{self, EventAction, Events};
use super::stored::IdScan;
use super::{Contradiction, Contradictions, Meter, ReportedSides, RequestBounds};
use tollgate_money::money::Nanousd;
use tollgate_money::price::{ServiceTier, Side, Traits, UNITS, Usage, UsageSource};

/// Reads a `usage` as a protocol writes it; `None` for one that does not parse.
pub(super) type ReadUsage = Box<dyn Fn(&[u8]) -> Option<UsageReport> + Send + Sync>;

/// Maximum ratio of an estimate to the count of any vocabulary: Thai has four times as many tokens in one as
/// in another.
const ESTIMATE_OVER_COUNT_MAX: u64 = 4;
/// xAI's unit of money in a nano-dollar.
const TICKS_PER_NANOUSD: u64 = 10;
/// Text that a JSON answer has beside the output, such as types and ids, at most, where there is none.
const MARKUP_BYTES_MAX: u64 = 64;

/// Reads a `usage`. Members that cannot be read are not there, and the rest of it counts all the same.
pub(super) fn read_wire<T: DeserializeOwned>(usage: &[u8]) -> Option<T> {
    serde_json::from_slice(usage).ok().or_else(|| {
        let Value::Object(mut members) = serde_json::from_slice(usage).ok()? else { return None };
        let is_readable = |key: &str, value: &Value| {
            let alone = Map::from_iter([(key.to_owned(), value.clone())]);
            serde_json::from_value::<T>(Value::Object(alone)).is_ok()
        };
        members.retain(|key, value| {
            if let Some(number) = value.as_str().and_then(|text| text.parse::<u64>().ok()) {
                *value = number.into();
            }
            is_readable(key, value)
        });
        serde_json::from_value(Value::Object(members)).ok()
    })
}

/// True if a count in a `usage` is negative, a fraction or too large. Called only for a `usage` that the fast
/// reader could not read.
pub(super) fn has_no_count(usage: &[u8]) -> bool {
    // Few have a sign or a point at all.
    memchr::memchr2(b'-', b'.', usage).is_some_and(|_| {
        let value = serde_json::from_slice(usage).unwrap_or_default();
        has_no_count_in(&value)
    })
}

fn has_no_count_in(value: &Value) -> bool {
    let Value::Object(members) = value else { return false };
    members.iter().any(|(key, value)| match value {
        Value::Number(number) => {
            let is_complete = number.as_u64().is_some()
                || number.as_f64().is_some_and(|it| it >= 0.0 && it.fract() == 0.0);
            !is_complete && ["tokens", "Count"].iter().any(|end| key.ends_with(end))
        }
        other => has_no_count_in(other),
    })
}

/// The `usage` of an answer to what is only read: embeddings and moderations.
#[derive(Deserialize)]
struct WireInputUsage {
    #[serde(default, deserialize_with = "count")]
    prompt_tokens: Option<u64>,
    #[serde(default, deserialize_with = "count")]
    total_tokens: Option<u64>,
}

/// The tokens that an answer without output reports; of several reports the dearest. There is no input
/// without tokens.
pub(super) fn input_tokens(scan: &UsageScan) -> Option<u64> {
    let tokens = |usage| {
        let usage: WireInputUsage = read_wire(usage)?;
        usage.prompt_tokens.max(usage.total_tokens)
    };
    scan.usages().filter_map(tokens).max().filter(|tokens| *tokens > 0)
}

/// Dollars as an upstream writes them, rounded up to a nano-dollar; `None` for what is no amount.
pub(super) fn dollars(number: &Number) -> Option<Nanousd> {
    let text = number.to_string();
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((&text, "0"));
    let (whole, decimals) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{decimals}").parse::<u128>().ok()?;
    let shift = exponent.parse::<i32>().ok()?.checked_add(9)?;
    let shift = shift.checked_sub(i32::try_from(decimals.len()).ok()?)?;
    let ten = 10_u128.checked_pow(shift.unsigned_abs())?;
    let nano = if shift < 0 { digits.div_ceil(ten) } else { digits.checked_mul(ten)? };
    i64::try_from(nano).ok().map(Nanousd::new)
}

/// The operator's cost of an answer as the upstream reports it: in dollars (OpenRouter), or in ten-billionths
/// of a dollar (xAI). `None` without a valid amount. For a call paid with the operator's own key (`byok`),
/// the provider's bill is added.
pub(super) fn cost(
    dollars_reported: Option<&Number>,
    ticks: Option<u64>,
    byok: Option<&WireCostDetails>,
) -> Option<Nanousd> {
    let ticks = ticks.map(|ticks| ticks.div_ceil(TICKS_PER_NANOUSD));
    let ticks = ticks.and_then(|nano| i64::try_from(nano).ok()).map(Nanousd::new);
    let dollars_reported = dollars_reported.and_then(dollars).or(ticks);
    let Some(provider) = byok.and_then(WireCostDetails::by_provider) else {
        return dollars_reported;
    };
    Some(dollars_reported.unwrap_or(Nanousd::ZERO).saturating_add(provider))
}

/// Costs of the provider behind OpenRouter, as OpenRouter reports them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireCostDetails {
    #[serde(deserialize_with = "if_readable")]
    upstream_inference_cost: Option<Number>,
    #[serde(deserialize_with = "if_readable")]
    upstream_inference_prompt_cost: Option<Number>,
    #[serde(deserialize_with = "if_readable")]
    upstream_inference_completions_cost: Option<Number>,
    /// Of responses, the other two's names.
    #[serde(deserialize_with = "if_readable")]
    upstream_inference_input_cost: Option<Number>,
    #[serde(deserialize_with = "if_readable")]
    upstream_inference_output_cost: Option<Number>,
}

impl WireCostDetails {
    fn by_provider(&self) -> Option<Nanousd> {
        let amount = |cost: &Option<Number>| cost.as_ref().and_then(dollars);
        let parts = [
            amount(&self.upstream_inference_prompt_cost)
                .or(amount(&self.upstream_inference_input_cost)),
            amount(&self.upstream_inference_completions_cost)
                .or(amount(&self.upstream_inference_output_cost)),
        ];
        let sum = parts.into_iter().flatten();
        let sum = sum.reduce(|sum, part| sum.saturating_add(part));
        amount(&self.upstream_inference_cost).or(sum)
    }
}

/// Reads what no charge depends on: what is written otherwise is not there, and the rest of the usage
/// counts all the same.
pub(super) fn if_readable<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}

/// A usage report of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UsageReport {
    pub(super) usage: Usage,
    /// It says which part of the input a cache has read or written.
    pub(super) has_details: bool,
    /// Number of model runs that it covers: the model's limits hold for each.
    pub(super) rounds: u64,
    /// Reported traits of service, such as the tier.
    pub(super) served: Traits,
    /// Reported cost to the operator.
    pub(super) cost: Option<Nanousd>,
    /// Contradictions within the report.
    pub(super) contradictions: Contradictions,
}

impl UsageReport {
    /// Says nothing at all.
    fn is_empty(&self) -> bool {
        self.usage == Usage::ZERO
    }

    /// Of two reports about one answer the dearer: the output of the one that has more, the input of
    /// the one that has more, and the most of what was made beside them. Where both have as much, what a cache has done is known to the one that says so, and
    /// is the least of what both say.
    fn dearer(self, other: Self) -> Self {
        let rank = |report: &Self| {
            let Usage {
                cache_read_tokens,
                cache_write_tokens,
                cache_write_1h_tokens,
                cache_write_12h_tokens,
                ..
            } = report.usage;
            let longer = cache_write_1h_tokens.saturating_add(cache_write_12h_tokens);
            let writes =
                (cache_write_tokens.saturating_add(longer), longer, cache_write_12h_tokens);
            (
                report.usage.input_tokens_total(),
                report.has_details,
                Reverse(cache_read_tokens),
                writes,
            )
        };
        let input = if rank(&self) > rank(&other) { self } else { other };
        let put_out = |report: &Self| report.usage.total(Side::Output);
        let output = if put_out(&self) > put_out(&other) { self.usage } else { other.usage };
        let made = self.usage.dearer(&other.usage);
        let mut usage = input.usage;
        for info in UNITS {
            match info.side {
                Side::Input => {}
                Side::Output => usage[info.unit] = output[info.unit],
                Side::Made => usage[info.unit] = made[info.unit],
            }
        }
        let rounds = self.rounds.max(other.rounds);
        let served = self.served.as_served(&other.served);
        let cost = self.cost.max(other.cost);
        let contradictions = self.contradictions.and(other.contradictions);
        Self { usage, rounds, served, cost, contradictions, ..input }
    }

    /// The report with what the text of its `usage` shows of counts that are none.
    pub(super) fn with_no_counts_noted(mut self, usage: &[u8]) -> Self {
        self.contradictions.note(Contradiction::NoCount, has_no_count(usage));
        self
    }

    /// The sides of it that have anything.
    fn sides(&self) -> ReportedSides {
        let (input, output) = (self.usage.input_tokens_total(), self.usage.total(Side::Output));
        ReportedSides { input: input > 0, output: output > 0 }
    }

    /// Adds a report to what is known.
    pub(super) fn add_to(self, total: &mut Option<Self>) {
        *total = Some(total.map_or(self, |total| total.dearer(self)));
    }
}

/// Facts of a request that its meter needs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MeterContext {
    /// Minimum usage once an upstream has accepted the request.
    min_usage: Usage,
    /// The most output that it has asked for: no estimate exceeds it.
    output_tokens_max: u64,
    /// The limits of the model. A report above them says that they are out of date.
    limits: Usage,
}

impl MeterContext {
    pub(super) fn new(bounds: &RequestBounds, limits: Usage) -> Self {
        Self {
            min_usage: bounds.min_usage,
            output_tokens_max: bounds.max_usage.output_tokens,
            limits,
        }
    }

    fn is_exceeded_by(&self, report: Option<UsageReport>) -> bool {
        report.is_some_and(|UsageReport { usage, rounds, .. }| {
            usage.input_tokens_total() > self.limits.input_tokens.saturating_mul(rounds)
                || usage.total(Side::Output) > self.limits.output_tokens.saturating_mul(rounds)
        })
    }

    /// The usage: as reported, or, without a plausible report, at least the reported part and the visible
    /// output.
    fn measure(&self, report: Option<UsageReport>, seen: u64) -> (Usage, UsageSource) {
        let input = |usage: &Usage| usage.input_tokens_total();
        match report.map(|report| report.usage) {
            Some(usage) if input(&usage) > 0 && (usage.total(Side::Output) > 0 || seen == 0) => {
                (usage, UsageSource::Upstream)
            }
            Some(partial) if partial.total(Side::Output) > 0 => {
                (self.estimate(Some(partial), 0), UsageSource::Estimated)
            }
            partial => (self.estimate(partial, seen), UsageSource::Estimated),
        }
    }

    fn estimate(&self, partial: Option<Usage>, seen: u64) -> Usage {
        let partial = partial.unwrap_or_default();
        let output_tokens = partial.output_tokens.max(seen);
        let input = if partial.input_tokens_total() > 0 { partial } else { self.min_usage };
        Usage { output_tokens, ..input }
    }
}

/// Meters a JSON document with a top-level `usage`.
pub(super) struct JsonMeter {
    scan: UsageScan,
    frame: MeterContext,
    read_usage: ReadUsage,
    /// The report of a complete document.
    reported: OnceLock<Option<UsageReport>>,
    /// Looks for ids of what the upstream keeps, where it keeps something.
    ids: Option<IdScan>,
    /// Counts calls of tools that the upstream runs, where it may.
    server_calls: Option<ServerToolScan>,
    /// Looks for what the model has thought, where that has a price of its own.
    thoughts: Option<ThoughtScan>,
}

impl JsonMeter {
    pub(super) fn new(frame: MeterContext, read_usage: ReadUsage) -> Self {
        let (scan, reported) = (UsageScan::default(), OnceLock::new());
        Self { scan, frame, read_usage, reported, ids: None, server_calls: None, thoughts: None }
    }

    /// Notes what the upstream keeps.
    pub(super) fn noting_ids(self, is_stored: bool) -> Self {
        Self { ids: is_stored.then(IdScan::default), ..self }
    }

    /// Counts calls of tools that the upstream runs.
    pub(super) fn counting(self, items: Option<ItemScan>) -> Self {
        Self { server_calls: items.map(|scan| ServerToolScan::Items(Box::new(scan))), ..self }
    }

    /// Counts searches of Google's.
    pub(super) fn counting_queries(self, queries: Option<QueryScan>) -> Self {
        Self { server_calls: queries.map(ServerToolScan::Queries), ..self }
    }

    /// Looks for what the model has thought.
    pub(super) fn finding(self, thoughts: Option<ThoughtScan>) -> Self {
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
pub(super) struct ThoughtScan {
    has_thoughts: bool,
    /// The last bytes, in which a key may have begun.
    rest: Vec<u8>,
}

impl ThoughtScan {
    /// `Some(true)` if reasoning was found. An answer without any proves nothing.
    fn thinks(&self) -> Option<bool> {
        self.has_thoughts.then_some(true)
    }

    /// Takes the next piece.
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

/// The output that a stream has shown, counted for when no usage is reported.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct VisibleOutput {
    text: TextSize,
    /// Deltas that carried text: no model puts less than one token into one.
    deltas: u64,
}

impl VisibleOutput {
    /// The output of one delta.
    pub(super) fn from_text(text: TextSize) -> Self {
        let mut shown = Self::default();
        shown.add(text);
        shown
    }

    /// Adds the text of a delta.
    pub(super) fn add(&mut self, text: TextSize) {
        self.deltas += u64::from(!text.is_empty());
        self.text.add(text);
    }

    /// True where no delta carried text.
    fn is_empty(self) -> bool {
        self.deltas == 0
    }

    /// Adds what was counted elsewhere.
    fn add_all(&mut self, more: Self) {
        self.deltas += more.deltas;
        self.text.add(more.text);
    }

    /// Estimated tokens, where at most `tokens_max` were requested. A delta has a token at least. An upstream
    /// that was asked for less than the estimate is trusted to have kept to it, unless the text is too long
    /// for that.
    fn tokens(self, tokens_max: u64) -> u64 {
        let estimate = self.text.tokens();
        estimate.min(tokens_max).max(self.deltas).max(estimate / ESTIMATE_OVER_COUNT_MAX)
    }
}

/// State of a metered stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StreamState {
    frame: MeterContext,
    shown: VisibleOutput,
    report: Option<UsageReport>,
    /// True if the last report covers all visible output.
    is_final: bool,
    /// Usage of tools that the upstream ran beside the model.
    pub(super) made: Usage,
    /// The tier that the stream has named, in which it is served.
    pub(super) service_tier: Option<ServiceTier>,
    /// It has shown what the model thought.
    pub(super) has_thoughts: bool,
    /// The upstream has said that it failed.
    pub(super) failed: bool,
    /// The answer has ended at the most output that was asked for.
    pub(super) ended_at_limit: bool,
}

impl StreamState {
    pub(super) fn new(frame: MeterContext) -> Self {
        Self { frame, ..Self::default() }
    }

    /// More output has come.
    pub(super) fn show(&mut self, more: VisibleOutput) {
        self.is_final &= more.is_empty();
        self.shown.add_all(more);
    }

    /// A report about all that was shown has come.
    pub(super) fn report(&mut self, report: UsageReport) {
        report.add_to(&mut self.report);
        // Zero is not what was shown, and takes nothing back of what was reported before.
        self.is_final |= report.usage.total(Side::Output) > 0 || self.shown.is_empty();
    }

    /// A report has come that knows nothing of the output yet.
    pub(super) fn report_begun(&mut self, report: UsageReport) {
        report.add_to(&mut self.report);
    }

    /// True if the upstream failed, and reported no usage with it.
    pub(super) fn has_failed(&self) -> bool {
        self.failed && !(self.is_final && self.report.is_some_and(|report| !report.is_empty()))
    }

    /// Usage relayed so far, by the billing rule. The last report counts for the bill alone: the whole answer
    /// precedes it.
    pub(super) fn relayed(&self) -> Usage {
        let partial = self.report.filter(|_| !self.is_final).map(|report| report.usage);
        let usage = self.frame.estimate(partial, self.seen());
        // It is asked after each event, and few streams make anything beside their text.
        if self.made == Usage::ZERO { usage } else { usage.plus(&self.made) }
    }

    /// Usage of the stream so far and its source: [`Meter::measure`] of the answer.
    pub(super) fn measure(&self) -> (Usage, UsageSource) {
        if self.is_final {
            let (usage, source) = self.frame.measure(self.report, self.seen());
            (usage.plus(&self.made), source)
        } else {
            (self.relayed(), UsageSource::Estimated)
        }
    }

    /// The reported sides. A report with more text behind it covers only the input.
    fn reported_sides(&self) -> ReportedSides {
        let sides = self.report.map(|report| report.sides()).unwrap_or_default();
        ReportedSides { output: sides.output && self.is_final, ..sides }
    }

    /// The upstream's reported cost of the stream.
    pub(super) fn reported_cost(&self) -> Option<Nanousd> {
        self.report?.cost
    }

    /// Traits of service that the stream has shown.
    pub(super) fn served(&self) -> Traits {
        let reported = self.report.map(|report| report.served).unwrap_or_default();
        let service_tier = self.service_tier;
        // What is reported counts before what is seen.
        let thinking = self.has_thoughts.then_some(true);
        let seen = Traits { thinking, ..Traits::default() };
        seen.as_served(&reported).as_served(&Traits { service_tier, ..Traits::default() })
    }

    /// True if the upstream reported more than the model's limits allow.
    pub(super) fn is_above_limits(&self) -> bool {
        self.frame.is_exceeded_by(self.report)
    }

    fn seen(&self) -> u64 {
        self.shown.tokens(self.frame.output_tokens_max)
    }
}

/// A dialect's part of metering a stream of text: it reads events into a [`StreamState`], from which the
/// usage follows.
pub(super) trait TextTally: Send + Sync {
    /// Reads the data of an event, and decides whether the customer gets the event.
    fn judge(&mut self, data: &[u8]) -> EventAction;

    /// True if the stream ended as its protocol requires, or the upstream reported its failure.
    fn is_complete(&self) -> bool;

    /// State of the stream.
    fn state(&self) -> &StreamState;

    /// Ids relayed so far of objects that the upstream stores.
    fn stored_ids(&self) -> &[String] {
        &[]
    }
}

impl<T: TextTally> Tally for T {
    fn judge(&mut self, data: &[u8]) -> EventAction {
        TextTally::judge(self, data)
    }

    fn is_complete(&self) -> bool {
        TextTally::is_complete(self)
    }

    fn has_failed(&self) -> bool {
        TextTally::state(self).has_failed()
    }

    fn relayed(&self) -> Usage {
        TextTally::state(self).relayed()
    }

    fn measure(&self) -> (Usage, UsageSource) {
        TextTally::state(self).measure()
    }

    fn state(&self) -> Option<&StreamState> {
        Some(TextTally::state(self))
    }

    fn stored_ids(&self) -> &[String] {
        TextTally::stored_ids(self)
    }

    fn reported_cost(&self) -> Option<Nanousd> {
        TextTally::state(self).reported_cost()
    }

    fn served(&self) -> Traits {
        TextTally::state(self).served()
    }

    fn is_above_limits(&self) -> bool {
        TextTally::state(self).is_above_limits()
    }
}

/// The part of metering a stream that depends on its kind of events; see [`TextTally`] for text.
pub(super) trait Tally: Send + Sync {
    /// Reads the data of an event, and decides whether the customer gets the event.
    fn judge(&mut self, data: &[u8]) -> EventAction;

    /// True if the stream ended as its protocol requires, or the upstream reported its failure.
    fn is_complete(&self) -> bool;

    /// True if the upstream failed in the stream, and reported no usage with it.
    fn has_failed(&self) -> bool;

    /// Usage relayed so far, by the billing rule.
    fn relayed(&self) -> Usage;

    /// Usage of the stream so far and its source: [`Meter::measure`] of the answer.
    fn measure(&self) -> (Usage, UsageSource);

    /// The upstream ended the stream in an orderly way.
    fn finish(&mut self) {}

    /// State of a stream of text; `None` for others.
    fn state(&self) -> Option<&StreamState> {
        None
    }

    /// Ids relayed so far of objects that the upstream stores.
    fn stored_ids(&self) -> &[String] {
        &[]
    }

    /// The upstream's reported cost of the stream.
    fn reported_cost(&self) -> Option<Nanousd> {
        None
    }

    /// Traits of service that the stream has shown.
    fn served(&self) -> Traits {
        Traits::default()
    }

    /// True if the upstream reported more than the model's limits allow.
    fn is_above_limits(&self) -> bool {
        false
    }
}

/// The tier that a word stands for, with its quotes or without.
pub(super) fn service_tier(word: &[u8]) -> Option<ServiceTier> {
    let text = word.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(word);
    std::str::from_utf8(text).ok().and_then(ServiceTier::named)
}

/// Meters a stream of events.
pub(super) struct StreamMeter<T> {
    events: Events,
    tally: T,
}

impl<T: Tally> StreamMeter<T> {
    pub(super) fn new(tally: T) -> Self {
        Self { events: Events::for_text(), tally }
    }

    pub(super) fn for_images(tally: T) -> Self {
        Self { events: Events::for_images(), tally }
    }
}

impl<T: Tally> Meter for StreamMeter<T> {
    fn relay(&mut self, chunk: Bytes) -> Bytes {
        self.events.relay(&chunk, |event| self.tally.judge(&sse::data(event)))
    }

    fn take_event(&mut self, _event: &[u8], data: &[u8]) -> bool {
        self.tally.judge(data) == EventAction::Keep
    }

    fn finish(&mut self) -> Bytes {
        // Some servers leave out the blank line behind the last event.
        let rest = self.events.take_unfinished();
        let is_dropped =
            rest.is_empty() || self.tally.judge(&sse::data(&rest)) == EventAction::Drop;
        self.tally.finish();
        if is_dropped {
            return Bytes::new();
        }
        let mut whole = rest.to_vec();
        whole.extend_from_slice(b"\n\n");
        whole.into()
    }

    fn reported_sides(&self) -> ReportedSides {
        self.tally.state().map(StreamState::reported_sides).unwrap_or_default()
    }

    fn hides_output(&self) -> bool {
        self.events.has_unread() || self.tally.state().is_some_and(|state| state.ended_at_limit)
    }

    fn contradictions(&self) -> Contradictions {
        let report = self.tally.state().and_then(|state| state.report);
        report.map(|report| report.contradictions).unwrap_or_default()
    }

    fn held_bytes(&self) -> usize {
        self.events.held_bytes()
    }

    fn is_complete(&self) -> bool {
        self.tally.is_complete()
    }

    fn has_failed(&self) -> bool {
        self.tally.has_failed()
    }

    fn relayed(&self) -> Usage {
        self.tally.relayed()
    }

    fn measure(&self) -> (Usage, UsageSource) {
        self.tally.measure()
    }

    fn stored_ids(&self) -> &[String] {
        self.tally.stored_ids()
    }

    fn reported_cost(&self) -> Option<Nanousd> {
        self.tally.reported_cost()
    }

    fn served(&self) -> Traits {
        self.tally.served()
    }

    fn is_above_limits(&self) -> bool {
        self.tally.is_above_limits()
    }

    fn changes_length(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
