//! The two meters that protocols share: for one JSON document, and for a stream of events. What a
//! protocol calls things, it says itself.
//!
//! What an upstream reports is believed, also above the limits of the model: these can be out of date,
//! and the upstream bills what it reports. No report is one that does not parse, and one of zeros
//! beside output that was seen. Of several reports the dearest counts.

mod context;
mod document;
mod report;
mod stream;

pub(super) use context::MeterContext;
pub(super) use document::{JsonMeter, ThoughtScan};
pub(super) use report::{
    UsageReport, WireCostDetails, cost, dollars, if_readable, input_tokens, read_wire, service_tier,
};
pub(super) use stream::{StreamMeter, StreamState, StreamTotals, Tally, VisibleOutput};

#[cfg(test)]
mod tests;
