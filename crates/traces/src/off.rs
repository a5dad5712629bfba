//! The exporter of a build without the feature `otlp`: it sends nothing.

use tollgate_telemetry::finished::FinishedRequest;

/// Sends no spans, whatever the environment says: false.
///
/// # Errors
/// None in a build without `otlp`.
pub fn start() -> anyhow::Result<bool> {
    Ok(false)
}

/// Does nothing: no span waits.
pub fn flush() {}

/// Drops the span.
pub fn record(_: &FinishedRequest<'_>) {}
