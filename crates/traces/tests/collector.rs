//! Spans as a collector gets them: `cargo test -p tollgate-traces --features otlp`.
//!
//! OpenTelemetry is configured by environment variables, so each test runs the exporter in a process of its
//! own: this binary once more, with the variables set.

#![cfg(feature = "otlp")]

#[path = "../../../tests/harness/recorder.rs"]
mod recorder;

use std::process::Command;
use std::time::{Duration, Instant};

use recorder::Recorder;
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Usage, UsageSource};
use tollgate_protocols::Operation;
use tollgate_telemetry::finished::{FinishedRequest, RequestSettlement};
use tollgate_types::clock::UnixMs;
use tollgate_types::ids::{AccountId, RequestId};

/// Runs [`exporter`] in a process of its own, which sends its spans to `endpoint`.
fn export_to(endpoint: &str) {
    let ended = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "exporter", "--nocapture"])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        .status()
        .expect("it runs");
    assert!(ended.success(), "{ended:?}");
}

fn finished(
    status: u16,
    model: &'static str,
    error_code: &'static str,
) -> FinishedRequest<'static> {
    let settled = RequestSettlement {
        usage: Usage { input_tokens: 7, output_tokens: 9, ..Usage::default() },
        source: UsageSource::Upstream,
        cost: Nanousd::new(1_500),
        owed: Nanousd::ZERO,
    };
    FinishedRequest {
        request_id: RequestId::from_number(1),
        account_id: Some(AccountId::from_number(1)),
        key_id: None,
        client: Some([127, 0, 0, 1].into()),
        method: "POST",
        route: "/v1/chat/completions",
        operation: Some(Operation::Chat),
        model,
        requested_model: None,
        upstream: "openai",
        upstream_request_id: None,
        status,
        error_code,
        streamed: true,
        bytes_in: 10,
        bytes_out: 20,
        ended_at: UnixMs::now(),
        duration: Duration::from_millis(20),
        ttfb: Some(Duration::from_millis(5)),
        settled: (status == 200).then_some(settled),
        held: Nanousd::ZERO,
        max_tokens_clamped: None,
        task_id: None,
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    }
}

/// The process behind [`export_to`]; nothing where no endpoint is set.
#[test]
fn exporter() {
    let _is_started = tollgate_traces::start().expect("a usable endpoint");
    for _ in 0..20 {
        tollgate_traces::record(&finished(200, "gpt-4o-mini", ""));
    }
    tollgate_traces::record(&finished(404, "", "model_not_found"));
    tollgate_traces::flush();
}

#[test]
fn each_request_is_a_span_with_the_names_of_the_conventions() {
    let collector = Recorder::start();
    export_to(&format!("http://{}", collector.address));
    let exports = collector.requests();
    assert!(!exports.is_empty(), "nothing reached the collector");
    let mut all = Vec::new();
    for recorder::Recorded { head, body } in exports {
        assert!(head.starts_with("POST /v1/traces "), "{head}");
        assert!(head.to_lowercase().contains("content-type: application/x-protobuf"), "{head}");
        all.extend(body);
    }
    let has = |bytes: &[u8]| all.windows(bytes.len()).any(|window| window == bytes);
    for expected in [
        "chat gpt-4o-mini",
        "gen_ai.operation.name",
        "gen_ai.provider.name",
        "gen_ai.request.model",
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
        "tollgate.cost_usd",
        "tollgate.request_id",
        "model_not_found",
        "first byte",
        "service.name",
    ] {
        let shown = String::from_utf8_lossy(&all);
        assert!(has(expected.as_bytes()), "no {expected:?} in {shown}");
    }
    let trace = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c_u128.to_be_bytes();
    assert!(has(&trace), "the span belongs to the customer's trace");
}

/// A collector that is away delays neither a request nor the end of the process.
#[test]
fn a_collector_that_is_away_is_not_missed() {
    let begun = Instant::now();
    export_to("http://127.0.0.1:9");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}
