//! Facts of a request by which a meter judges what is reported, and estimates what is not.

use tollgate_money::price::{Side, Usage, UsageSource};

use super::report::UsageReport;
use crate::request_bounds::RequestBounds;

/// Facts of a request that its meter needs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MeterContext {
    /// Minimum usage once an upstream has accepted the request.
    pub(super) min_usage: Usage,
    /// Requested output limit; no estimate exceeds it.
    pub(super) output_tokens_max: u64,
    /// The limits of the model. A report above them says that they are out of date.
    pub(super) limits: Usage,
}

impl MeterContext {
    pub(crate) fn new(bounds: &RequestBounds, limits: Usage) -> Self {
        Self {
            min_usage: bounds.min_usage,
            output_tokens_max: bounds.max_usage.output_tokens,
            limits,
        }
    }

    pub(super) fn is_exceeded_by(&self, report: Option<UsageReport>) -> bool {
        report.is_some_and(|UsageReport { usage, rounds, .. }| {
            usage.input_tokens_total() > self.limits.input_tokens.saturating_mul(rounds)
                || usage.total(Side::Output) > self.limits.output_tokens.saturating_mul(rounds)
        })
    }

    /// The usage: as reported, or, without a plausible report, at least the reported part and the visible
    /// output.
    pub(super) fn measure(&self, report: Option<UsageReport>, seen: u64) -> (Usage, UsageSource) {
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

    pub(super) fn estimate(&self, partial: Option<Usage>, seen: u64) -> Usage {
        let partial = partial.unwrap_or_default();
        let output_tokens = partial.output_tokens.max(seen);
        let input = if partial.input_tokens_total() > 0 { partial } else { self.min_usage };
        Usage { output_tokens, ..input }
    }
}
