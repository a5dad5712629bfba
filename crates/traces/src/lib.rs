//! Traces over OTLP, one span for each finished request, in the words of OpenTelemetry's conventions
//! for generative AI. The only module that names OpenTelemetry; there with the feature `otlp` alone.
//!
//! Where spans go, and how many, is said as everywhere with OpenTelemetry: by its environment
//! variables. Without an endpoint among them nothing is started. A span is made from what is known at
//! the end of a request, so a request in flight pays nothing for it, and no prompt, answer or key can
//! be in it.

#![cfg(feature = "otlp")]

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use once_cell::sync::OnceCell;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{Span as _, SpanKind, Status, Tracer as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};

use tollgate_money::money::Nanousd;
use tollgate_money::price::Side;
use tollgate_protocols::Operation;
use tollgate_telemetry::finished::FinishedRequest;

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

/// Starts to send spans if the environment names an endpoint. The SDK's own bounds hold: spans wait
/// in a queue of 2048 unless `OTEL_BSP_MAX_QUEUE_SIZE` says otherwise, and what does not fit is lost.
///
/// # Errors
/// When the endpoint cannot be used.
pub fn start() -> anyhow::Result<()> {
    #[expect(
        clippy::disallowed_methods,
        reason = "OpenTelemetry is configured by its own environment variables"
    )]
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !ENDPOINTS.iter().any(is_set) {
        return Ok(());
    }
    // The exporter's client asks for TLS to be ready, also where it goes without.
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
    Ok(())
}

/// Sends what has gathered, but does not wait for long. To be called before the process ends.
pub fn flush() {
    if let Some(traces) = TRACES.get()
        && let Err(error) = traces.provider.shutdown_with_timeout(FLUSH_TIMEOUT)
    {
        log::warn!("the last spans were not sent: {error}");
    }
}

/// Hands over the span of a request that is over. Does not wait.
pub fn record(finished: &FinishedRequest<'_>) {
    if let Some(traces) = TRACES.get() {
        let ended = SystemTime::UNIX_EPOCH + Duration::from_millis(finished.ended_at.0);
        let begun = ended.checked_sub(finished.duration).unwrap_or(ended);
        let builder = traces
            .tracer
            .span_builder(span_name(finished))
            .with_kind(SpanKind::Server)
            .with_start_time(begun)
            .with_attributes(attributes(finished));
        let mut span = traces.tracer.build_with_context(builder, &parent(finished.traceparent));
        if let Some(ttfb) = finished.ttfb {
            span.add_event_with_timestamp("first byte", begun + ttfb, Vec::new());
        }
        if finished.status >= 500 || (finished.status < 300 && !finished.error_code.is_empty()) {
            span.set_status(Status::error(finished.error_code));
        }
        span.end_with_timestamp(ended);
    }
}

/// The customer's span that this one belongs to, if there is one.
fn parent(traceparent: Option<&str>) -> Context {
    let Some(traceparent) = traceparent else { return Context::new() };
    let carrier = HashMap::from([("traceparent".to_owned(), traceparent.to_owned())]);
    TraceContextPropagator::new().extract_with_context(&Context::new(), &carrier)
}

/// Name of the span by the conventions: the operation and the model.
fn span_name(finished: &FinishedRequest<'_>) -> String {
    match finished.operation {
        Some(operation) => format!("{} {}", operation_name(operation), finished.model),
        None => format!("{} {}", finished.method, finished.route),
    }
    .trim_end()
    .to_owned()
}

/// The conventions' word where they have one, else ours.
fn operation_name(operation: Operation) -> &'static str {
    operation.info().trace_name.unwrap_or(operation.as_str())
}

fn attributes(finished: &FinishedRequest<'_>) -> Vec<KeyValue> {
    let mut all = vec![
        KeyValue::new("http.request.method", finished.method.to_owned()),
        KeyValue::new("http.route", finished.route.to_owned()),
        KeyValue::new("http.response.status_code", i64::from(finished.status)),
        KeyValue::new("tollgate.request_id", finished.request_id.to_string()),
    ];
    let mut add = |name: &'static str, value: String| {
        if !value.is_empty() {
            all.push(KeyValue::new(name, value));
        }
    };
    let text = |value: Option<String>| value.unwrap_or_default();
    let operation = finished.operation.map(|operation| operation_name(operation).to_owned());
    add("gen_ai.operation.name", text(operation));
    add("gen_ai.provider.name", finished.upstream.to_owned());
    let requested = finished.requested_model.unwrap_or(finished.model);
    add("gen_ai.request.model", requested.to_owned());
    add("gen_ai.response.model", text(finished.requested_model.map(|_| finished.model.to_owned())));
    add("error.type", finished.error_code.to_owned());
    add("client.address", text(finished.client.map(|client| client.to_string())));
    add("tollgate.account_id", text(finished.account_id.map(|id| id.to_string())));
    add("tollgate.key_id", text(finished.key_id.map(|id| id.to_string())));
    if let Some(settled) = &finished.settled {
        add("tollgate.usage_source", settled.source.as_str().to_owned());
        add("tollgate.cost_usd", settled.cost.to_string());
        if settled.owed > Nanousd::ZERO {
            add("tollgate.owed_usd", settled.owed.to_string());
        }
        let usage = &settled.usage;
        let written = usage
            .cache_write_tokens
            .saturating_add(usage.cache_write_1h_tokens)
            .saturating_add(usage.cache_write_12h_tokens);
        for (name, tokens) in [
            // The conventions count what was cached as input too.
            ("gen_ai.usage.input_tokens", usage.input_tokens_total()),
            ("gen_ai.usage.output_tokens", usage.total(Side::Output)),
            ("gen_ai.usage.cache_read.input_tokens", usage.cache_read_tokens),
            ("gen_ai.usage.cache_creation.input_tokens", written),
        ] {
            if tokens > 0 {
                all.push(KeyValue::new(name, i64::try_from(tokens).unwrap_or(i64::MAX)));
            }
        }
    }
    all
}
