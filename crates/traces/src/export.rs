//! The exporter: spans of [`RequestSpan`] over OTLP (HTTP, protobuf).

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Context as _;
use once_cell::sync::OnceCell;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{Span as _, SpanKind, Status, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use tollgate_telemetry::finished::FinishedRequest;

use crate::span::{AttributeValue, RequestSpan};

/// The variables that name an endpoint; one of them switches traces on.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
/// Name of the service in spans, unless `OTEL_SERVICE_NAME` says another.
const SERVICE: &str = "tollgate";
/// Time for which the end of the process waits for a collector to take the last spans.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

static TRACES: OnceCell<Traces> = OnceCell::new();

struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

/// Starts to send spans if the environment names an endpoint; true if it does. The SDK's own bounds hold: spans
/// wait in a queue of 2048 unless `OTEL_BSP_MAX_QUEUE_SIZE` says otherwise, and what does not fit is lost.
///
/// # Errors
/// When the endpoint cannot be used.
pub fn start() -> anyhow::Result<bool> {
    #[expect(
        clippy::disallowed_methods,
        reason = "OpenTelemetry is configured by its own environment variables"
    )]
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !ENDPOINTS.iter().any(is_set) {
        return Ok(false);
    }
    // The exporter's client needs a TLS provider even for plain HTTP.
    drop(rustls::crypto::ring::default_provider().install_default());
    let exporter = SpanExporter::builder()
        .with_http()
        .build()
        .context("cannot prepare traces: OTEL_EXPORTER_OTLP_ENDPOINT is of no use")?;
    let name = if is_set(&"OTEL_SERVICE_NAME") {
        Resource::builder()
    } else {
        Resource::builder().with_service_name(SERVICE)
    };
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(name.with_attribute(version).build())
        .build();
    let tracer = provider.tracer(SERVICE);
    // A second start leaves the first one in force.
    drop(TRACES.set(Traces { provider, tracer }));
    Ok(true)
}

/// Sends the spans that wait, for at most two seconds. To be called before the process ends.
pub fn flush() {
    if let Some(traces) = TRACES.get()
        && let Err(error) = traces.provider.shutdown_with_timeout(FLUSH_TIMEOUT)
    {
        log::warn!("the last spans were not sent: {error}");
    }
}

/// Hands over the span of a finished request. Does not wait.
pub fn record(finished: &FinishedRequest<'_>) {
    if let Some(traces) = TRACES.get() {
        let RequestSpan { name, began, ended, first_byte, attributes, error, traceparent } =
            finished.into();
        let builder = traces
            .tracer
            .span_builder(name)
            .with_kind(SpanKind::Server)
            .with_start_time(began)
            .with_attributes(
                attributes
                    .into_iter()
                    .map(|(name, value)| key_value(name, value))
                    .collect::<Vec<_>>(),
            );
        let mut span = traces.tracer.build_with_context(builder, &parent(traceparent));
        if let Some(first_byte) = first_byte {
            span.add_event_with_timestamp("first byte", first_byte, Vec::new());
        }
        if let Some(error) = error {
            span.set_status(Status::error(error));
        }
        span.end_with_timestamp(ended);
    }
}

fn key_value(name: &'static str, value: AttributeValue) -> KeyValue {
    let value: Value = match value {
        AttributeValue::Text(text) => text.into(),
        AttributeValue::Count(count) => count.into(),
    };
    KeyValue::new(name, value)
}

/// The client's span that a request's span belongs to, if there is one.
fn parent(traceparent: Option<String>) -> Context {
    let Some(traceparent) = traceparent else { return Context::new() };
    let carrier = HashMap::from([("traceparent".to_owned(), traceparent)]);
    TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier)
}
