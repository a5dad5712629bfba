//! Traces over OTLP, one span for each finished request. The only crate that names OpenTelemetry, and only with
//! its feature `otlp`; without it nothing is sent.
//!
//! The endpoint and the sampling are configured by OpenTelemetry's own environment variables. Without an
//! endpoint among them nothing is started. A span is made at the end of a request, so a request in flight
//! pays nothing for it.

#[cfg_attr(not(feature = "otlp"), path = "off.rs")]
mod export;
mod span;

pub use export::{flush, record, start};
pub use span::{AttributeValue, RequestSpan};
