//! The cost of a request's end for its thread: counting it and writing its access line.
//!
//! `cargo bench --bench report`
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use tollgate::clock::UnixMs;
use tollgate::config::snapshot::AccessLog;
use tollgate::finished::{FinishedRequest, RequestSettlement};
use tollgate::ledger::{AccountId, KeyId, RequestId};
use tollgate::logging;
use tollgate::metrics::{LedgerFigures, Metrics};
use tollgate::money::Nanousd;
use tollgate::price::{Usage, UsageSource};
use tollgate::protocols::Operation;
use tollgate::request_log::RequestLog;

/// Calls in one round: fewer lines than the log's buffer holds, so that none is dropped.
const CALLS: u32 = 2_000;
const ROUNDS: usize = 200;

fn main() {
    logging::install_to(log::LevelFilter::Info, std::io::sink());
    let metrics = Metrics::new();
    let models: Vec<String> = (0..1_000).map(|number| format!("model-{number}")).collect();
    let finished = |model| FinishedRequest {
        request_id: RequestId::from_number(0x019c_1402_a1f0_d3b2_c4a5_0000_0000_0007),
        account_id: Some(AccountId::from_number(0x3f1c_0a5b_7d9e_2468)),
        key_id: Some(KeyId::from_number(0x9b1d_e0c2_f4a6_8035)),
        client: Some(Ipv4Addr::LOCALHOST.into()),
        method: "POST",
        route: "/v1/chat/completions",
        operation: Some(Operation::Chat),
        model,
        requested_model: None,
        upstream: "openai",
        upstream_request_id: None,
        status: 200,
        error_code: "",
        streamed: true,
        bytes_in: 310,
        bytes_out: 4_821,
        ended_at: UnixMs::now(),
        duration: Duration::from_micros(812_345),
        ttfb: Some(Duration::from_micros(201_007)),
        settled: Some(RequestSettlement {
            usage: Usage { input_tokens: 9, output_tokens: 12, ..Usage::default() },
            source: UsageSource::Upstream,
            cost: Nanousd::new(8_600),
            owed: Nanousd::ZERO,
        }),
        held: Nanousd::new(9_000),
        max_tokens_clamped: None,
        task_id: None,
        traceparent: None,
    };
    let calls = || models.iter().cycle().take(CALLS as usize).map(|model| finished(model));
    let row = |name: &str, call: &dyn Fn(&FinishedRequest<'_>)| {
        println!("{name:<28} {:>8.0} ns", median(|| calls().for_each(|it| call(black_box(&it)))));
    };
    row("metrics", &|it| metrics.record(it));
    row("access line", &logging::access);
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let requests = RequestLog::open(dir.path(), 1 << 30).expect("a request log");
    row("request log", &|it| requests.record(it));
    row("all", &|it| it.report(&metrics, &requests, &AccessLog::default()));
    let few = AccessLog { sample_per_million: 10_000, ..AccessLog::default() };
    row("all, one line in 100", &|it| it.report(&metrics, &requests, &few));
    println!("{:<28} {:>8}", "lines dropped", logging::lines_dropped());
    println!("{:<28} {:>8}", "records dropped", requests.figures().dropped.queue_full);
    let started = Instant::now();
    let bytes = metrics.encode(&LedgerFigures::default(), Default::default()).len();
    println!(
        "{:<28} {:>8.1} ms, {bytes} bytes",
        "a scrape, 1,000 models",
        started.elapsed().as_secs_f64() * 1e3
    );
}

/// Nanoseconds a call takes, as the median of all rounds.
fn median(round: impl Fn()) -> f64 {
    let mut nanos: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let started = Instant::now();
            round();
            let took = started.elapsed();
            logging::flush();
            took.as_secs_f64() * 1e9 / f64::from(CALLS)
        })
        .collect();
    nanos.sort_by(f64::total_cmp);
    nanos[ROUNDS / 2]
}
