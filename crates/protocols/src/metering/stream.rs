//! The meter of a stream of events. A protocol tells what its events say; the totals follow from that.

use bytes::Bytes;
use tollgate_money::money::Nanousd;
use tollgate_money::price::{ServiceTier, Side, Traits, Usage, UsageSource};

use super::context::MeterContext;
use super::report::UsageReport;
use crate::disjoint::Contradictions;
use crate::estimate::TextSize;
use crate::meter::{Meter, ReportedSides};
use crate::sse::{self, EventAction, Events};

/// Maximum ratio of an estimate to the count of any vocabulary: Thai has four times as many tokens in one as
/// in another.
const ESTIMATE_OVER_COUNT_MAX: u64 = 4;

/// The output that a stream has shown, counted for when no usage is reported.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct VisibleOutput {
    text: TextSize,
    /// Deltas that carried text: no model puts less than one token into one.
    deltas: u64,
}

impl VisibleOutput {
    /// The output of one delta.
    pub(crate) fn from_text(text: TextSize) -> Self {
        let mut shown = Self::default();
        shown.add(text);
        shown
    }

    /// Adds the text of a delta.
    pub(crate) fn add(&mut self, text: TextSize) {
        self.deltas += u64::from(!text.is_empty());
        self.text.add(text);
    }

    /// True where no delta carried text.
    fn is_empty(self) -> bool {
        self.deltas == 0
    }

    /// Adds output that was counted elsewhere.
    fn add_all(&mut self, more: Self) {
        self.deltas += more.deltas;
        self.text.add(more.text);
    }

    /// Estimated tokens, where at most `tokens_max` were requested. A delta has a token at least. An upstream
    /// that was asked for less than the estimate is trusted to have kept to it, unless the text is too long
    /// for that.
    pub(super) fn tokens(self, tokens_max: u64) -> u64 {
        let estimate = self.text.tokens();
        estimate.min(tokens_max).max(self.deltas).max(estimate / ESTIMATE_OVER_COUNT_MAX)
    }
}

/// State of a metered stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamState {
    frame: MeterContext,
    shown: VisibleOutput,
    report: Option<UsageReport>,
    /// True if the last report covers all visible output.
    is_final: bool,
    /// Usage of tools that the upstream ran beside the model.
    pub(crate) made: Usage,
    /// The tier that the stream has named, in which it is served.
    pub(crate) service_tier: Option<ServiceTier>,
    /// The answer contained thoughts of the model.
    pub(crate) has_thoughts: bool,
    /// The upstream reported a failure.
    pub(crate) failed: bool,
    /// The answer ended at the requested output limit.
    pub(crate) ended_at_limit: bool,
}

impl StreamState {
    pub(crate) fn new(frame: MeterContext) -> Self {
        Self { frame, ..Self::default() }
    }

    /// Adds received output.
    pub(crate) fn show(&mut self, more: VisibleOutput) {
        self.is_final &= more.is_empty();
        self.shown.add_all(more);
    }

    /// A report about all that was shown has come.
    pub(crate) fn report(&mut self, report: UsageReport) {
        report.add_to(&mut self.report);
        // Zero is not what was shown, and takes nothing back of what was reported before.
        self.is_final |= report.usage.total(Side::Output) > 0 || self.shown.is_empty();
    }

    /// A report has come that knows nothing of the output yet.
    pub(crate) fn report_begun(&mut self, report: UsageReport) {
        report.add_to(&mut self.report);
    }

    fn seen(&self) -> u64 {
        self.shown.tokens(self.frame.output_tokens_max)
    }
}

impl StreamTotals for StreamState {
    fn has_failed(&self) -> bool {
        self.failed && !(self.is_final && self.report.is_some_and(|report| !report.is_empty()))
    }

    /// Usage relayed so far, by the billing rule. The last report counts for the bill alone: the whole answer
    /// precedes it.
    fn relayed(&self) -> Usage {
        let partial = self.report.filter(|_| !self.is_final).map(|report| report.usage);
        let usage = self.frame.estimate(partial, self.seen());
        // It is asked after each event, and few streams make anything beside their text.
        if self.made == Usage::ZERO { usage } else { usage.plus(&self.made) }
    }

    fn measure(&self) -> (Usage, UsageSource) {
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

    fn reported_cost(&self) -> Option<Nanousd> {
        self.report?.cost
    }

    fn served(&self) -> Traits {
        let reported = self.report.map(|report| report.served).unwrap_or_default();
        let service_tier = self.service_tier;
        // What is reported counts before what is seen.
        let thinking = self.has_thoughts.then_some(true);
        let seen = Traits { thinking, ..Traits::default() };
        seen.as_served(&reported).as_served(&Traits { service_tier, ..Traits::default() })
    }

    fn is_above_limits(&self) -> bool {
        self.frame.is_exceeded_by(self.report)
    }

    fn ended_at_limit(&self) -> bool {
        self.ended_at_limit
    }

    fn contradictions(&self) -> Contradictions {
        self.report.map(|report| report.contradictions).unwrap_or_default()
    }
}

/// The part of metering a stream that depends on its kind of events.
pub(crate) trait Tally: Send + Sync {
    /// Totals of the events: a [`StreamState`] for text, the tally itself for others.
    type Totals: StreamTotals;

    /// Reads the data of an event, and decides whether the customer gets the event.
    fn judge(&mut self, data: &[u8]) -> EventAction;

    /// True if the stream ended as its protocol requires, or the upstream reported its failure.
    fn is_complete(&self) -> bool;

    /// Totals of the events so far.
    fn totals(&self) -> &Self::Totals;

    /// The upstream ended the stream in an orderly way.
    fn finish(&mut self) {}

    /// Ids relayed so far of objects that the upstream stores.
    fn stored_ids(&self) -> &[String] {
        &[]
    }
}

/// The answers of a [`Meter`] that follow from the events of a stream.
pub(crate) trait StreamTotals {
    /// True if the upstream failed in the stream, and reported no usage with it.
    fn has_failed(&self) -> bool;

    /// Usage relayed so far, by the billing rule.
    fn relayed(&self) -> Usage;

    /// Usage of the stream so far and its source: [`Meter::measure`] of the answer.
    fn measure(&self) -> (Usage, UsageSource);

    /// The sides of the usage that the upstream has reported.
    fn reported_sides(&self) -> ReportedSides {
        ReportedSides::default()
    }

    /// True if the answer ended at the most output that was requested.
    fn ended_at_limit(&self) -> bool {
        false
    }

    /// Contradictions in the upstream's reports.
    fn contradictions(&self) -> Contradictions {
        Contradictions::default()
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

/// Meters a stream of events.
pub(crate) struct StreamMeter<T> {
    events: Events,
    tally: T,
}

impl<T: Tally> StreamMeter<T> {
    pub(crate) fn new(tally: T) -> Self {
        Self { events: Events::for_text(), tally }
    }

    pub(crate) fn for_images(tally: T) -> Self {
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
        self.tally.totals().reported_sides()
    }

    fn hides_output(&self) -> bool {
        self.events.has_unread() || self.tally.totals().ended_at_limit()
    }

    fn contradictions(&self) -> Contradictions {
        self.tally.totals().contradictions()
    }

    fn held_bytes(&self) -> usize {
        self.events.held_bytes()
    }

    fn is_complete(&self) -> bool {
        self.tally.is_complete()
    }

    fn has_failed(&self) -> bool {
        self.tally.totals().has_failed()
    }

    fn relayed(&self) -> Usage {
        self.tally.totals().relayed()
    }

    fn measure(&self) -> (Usage, UsageSource) {
        self.tally.totals().measure()
    }

    fn stored_ids(&self) -> &[String] {
        self.tally.stored_ids()
    }

    fn reported_cost(&self) -> Option<Nanousd> {
        self.tally.totals().reported_cost()
    }

    fn served(&self) -> Traits {
        self.tally.totals().served()
    }

    fn is_above_limits(&self) -> bool {
        self.tally.totals().is_above_limits()
    }

    fn changes_length(&self) -> bool {
        true
    }
}
