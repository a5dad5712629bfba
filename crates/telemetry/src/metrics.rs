//! Prometheus metrics. The only module that names the `prometheus` crate.
//!
//! Names follow Prometheus' conventions: base units, `_total` on counters. Labels take values from
//! the configuration and from constants only, so that no customer can make series: never a key, an
//! account, a request id or a model that was not found. `docs/metrics.md` is the reference.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use prometheus::{
    CounterVec, Histogram, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

use crate::finished::FinishedRequest;
use crate::request_log;
use tollgate_ledger::{CreditSums, ProjectionState};
use tollgate_limits::{Limit, Scope};
use tollgate_money::money::Nanousd;
use tollgate_protocols::Contradiction;
use tollgate_types::clock::UnixMs;

mod configuration;
mod connect_failures;
mod cost;
mod credentials;
mod fleet;
mod from_zero;
mod journal_files;
mod load;
mod process;
mod recent;
mod register;
mod scraped;
mod series;
mod tasks;
mod token_counts;
mod upstreams;

use configuration::ConfigurationFigures;
pub use connect_failures::ConnectFailure;
use connect_failures::ConnectFailures;
use cost::CostMetrics;
pub use credentials::CredentialFigures;
use credentials::CredentialMetrics;
use fleet::FleetMetrics;
use journal_files::KeepingMetrics;
use load::Load;
pub use load::{ConnectionShed, OpenWebSocket, Pool, Shed, StreamRefused};
pub use recent::{Minute, RecentFigures};
use register::{add, counters, gauge, histogram, histograms, int_counters, int_gauges};
use scraped::LedgerGauges;
use series::RequestSeries;
use tasks::TaskCounters;
pub use tasks::WebhookOutcome;
use token_counts::CountMetrics;
pub use token_counts::CountOutcome;
use upstreams::UpstreamMetrics;
pub use upstreams::{CircuitFigures, UpstreamFigures};

/// From a refusal made in memory to a long reasoning answer, in seconds.
const LATENCY_BUCKETS: [f64; 16] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0];
/// From a disk with a write cache to a disk in trouble, in seconds.
const COMMIT_BUCKETS: [f64; 13] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];
/// Records that share one flush: doubling from a request on its own.
const COMMIT_RECORD_BUCKETS: [f64; 11] =
    [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];

/// Map by a name of the configuration. Customers choose none of these names, so that a fast hash is safe.
type ByName<T> = HashMap<String, T, foldhash::fast::RandomState>;

/// The labels of everything that is counted per request.
const SERIES_LABELS: [&str; 3] = ["route", "model", "upstream"];

/// All metrics of one process, in a registry of their own.
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    duration: HistogramVec,
    ttfb: HistogramVec,
    tokens: IntCounterVec,
    spend: CounterVec,
    held: CounterVec,
    settlements: IntCounterVec,
    above_limits: IntCounterVec,
    clamps: IntCounterVec,
    clamps_ignored: IntCounterVec,
    contradictions: IntCounterVec,
    tasks: TaskCounters,
    load: Load,
    upstreams: UpstreamMetrics,
    connect_failures: ConnectFailures,
    token_counts: CountMetrics,
    rate_limited: IntCounterVec,
    commit_duration: Histogram,
    keeping: KeepingMetrics,
    costs: CostMetrics,
    credentials: CredentialMetrics,
    commit_records: Histogram,
    certificates: IntGaugeVec,
    configuration: ConfigurationFigures,
    /// Empty in a single gateway.
    fleet: OnceLock<FleetMetrics>,
    /// By model, then the few routes and upstreams that the model was used with.
    series: RwLock<ByName<Vec<Arc<RequestSeries>>>>,
    /// The last day, for people.
    history: Mutex<recent::MinuteHistory>,
    /// The configuration whose series were made last, by its hash.
    begun: Mutex<String>,
    /// One scrape at a time brings these up to date.
    scraped: Mutex<LedgerGauges>,
}

/// Figures of the ledger at the time of a scrape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerFigures {
    /// Number of open holds.
    pub open_holds: u64,
    /// Number of open tasks, including those whose webhook is still to be delivered.
    pub open_tasks: u64,
    /// Current debts of accounts: of a whole fleet on a node of one, and `None` where the node has not read
    /// them yet.
    pub debt: Option<Nanousd>,
    /// Credit lines of accounts, and what of them is spent: `None` as for what they owe.
    pub credit: Option<CreditSums>,
    /// Sum of all charges that were written off.
    pub written_off: Nanousd,
    /// Possible costs to the operator that no customer pays, by cause.
    pub losses: BTreeMap<String, Nanousd>,
    /// State of the projection that serves queries.
    pub projection: ProjectionState,
}

impl Metrics {
    /// A fresh set, all at zero.
    #[must_use]
    pub fn new() -> Self {
        let registry = Registry::new();
        let r = &registry;
        build_info(r);
        // Models, routes and upstreams are configured, so the number of series is bounded. Nothing that a
        // client writes is a label.
        let per_series = |name, help| histograms(r, name, help, &SERIES_LABELS, &LATENCY_BUCKETS);
        Self {
            requests: int_counters(
                r,
                "tollgate_requests_total",
                "Requests that are over.",
                &["route", "model", "upstream", "status", "code"],
            ),
            duration: per_series(
                "tollgate_request_duration_seconds",
                "From a request's header to the end of its answer.",
            ),
            ttfb: per_series(
                "tollgate_request_ttfb_seconds",
                "From a request's header to the first byte of its answer.",
            ),
            tokens: int_counters(r, "tollgate_tokens_total", "Tokens billed.", &["model", "kind"]),
            spend: counters(
                r,
                "tollgate_spend_dollars_total",
                "US dollars charged. Rounded to a float: the ledger has the exact figure.",
                &["model"],
            ),
            held: held(r),
            settlements: int_counters(
                r,
                "tollgate_settlements_total",
                "Requests billed, by where their usage figures come from.",
                &["model", "usage_source"],
            ),
            above_limits: above_limits(r),
            clamps: clamps(r),
            clamps_ignored: clamps_ignored(r),
            contradictions: contradictions(r),
            tasks: TaskCounters::new(r),
            load: Load::new(r),
            upstreams: UpstreamMetrics::new(r),
            connect_failures: ConnectFailures::new(r),
            token_counts: CountMetrics::new(r),
            rate_limited: rate_limited(r),
            keeping: KeepingMetrics::new(r),
            costs: CostMetrics::new(r),
            credentials: CredentialMetrics::new(r),
            commit_duration: histogram(
                r,
                "tollgate_journal_commit_duration_seconds",
                "Time that one group of journal records took to be on disk.",
                &COMMIT_BUCKETS,
            ),
            commit_records: histogram(
                r,
                "tollgate_journal_commit_records",
                "Records that shared one journal commit.",
                &COMMIT_RECORD_BUCKETS,
            ),
            certificates: certificates(r),
            configuration: ConfigurationFigures::new(r),
            fleet: OnceLock::new(),
            series: RwLock::default(),
            history: Mutex::default(),
            begun: Mutex::default(),
            scraped: Mutex::new(LedgerGauges::new(r)),
            registry,
        }
    }

    /// Counts a request that is over. About 0.2 µs.
    pub fn record(&self, finished: &FinishedRequest<'_>) {
        let (route, upstream) = (finished.route, finished.upstream);
        let is_it =
            |series: &&Arc<RequestSeries>| series.route == route && series.upstream == upstream;
        let existing = self.series.read();
        if let Some(series) = existing.get(finished.model).and_then(|all| all.iter().find(is_it)) {
            return series.record(self, finished);
        }
        // The write lock is taken next, and this thread would wait for itself.
        drop(existing);
        self.new_series(route, finished.model, upstream).record(self, finished);
    }

    /// Counts a request that a limit refused.
    pub fn rate_limited(&self, model: &str, limit: Limit, scope: Scope) {
        self.rate_limited.with_label_values(&[model, limit.as_str(), scope.as_str()]).inc();
    }

    /// Counts an answer that is read after its client disconnected, until [`Metrics::orphan_end`].
    pub fn orphan_begin(&self) {
        self.load.orphans.inc();
    }

    /// Ends what [`Metrics::orphan_begin`] began.
    pub fn orphan_end(&self) {
        self.load.orphans.dec();
    }

    /// Number of answers that are read after their client disconnected.
    #[must_use]
    pub fn orphans(&self) -> u64 {
        u64::try_from(self.load.orphans.get()).unwrap_or(0)
    }

    /// Counts a request whose upstream reported more usage than the model's limits allow.
    pub fn usage_above_limits(&self, model: &str) {
        self.above_limits.with_label_values(&[model]).inc();
    }

    /// Counts a request whose output limit was lowered to what its account can pay.
    pub fn clamped(&self, model: &str) {
        self.clamps.with_label_values(&[model]).inc();
    }

    /// Counts a request whose upstream put out more than its lowered limit.
    pub fn clamp_ignored(&self, model: &str) {
        self.clamps_ignored.with_label_values(&[model]).inc();
    }

    /// Counts a request whose upstream reported a usage that contradicts itself.
    pub fn usage_contradicts(&self, upstream: &str, cause: Contradiction) {
        self.contradictions.with_label_values(&[upstream, cause.as_str()]).inc();
    }

    /// Counts a request as in flight, until [`Metrics::in_flight_end`].
    pub fn in_flight_begin(&self) {
        self.load.in_flight.inc();
    }

    /// Ends what [`Metrics::in_flight_begin`] began.
    pub fn in_flight_end(&self) {
        self.load.in_flight.dec();
    }

    /// Requests being served now.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        u64::try_from(self.load.in_flight.get()).unwrap_or(0)
    }

    /// Counts a WebSocket as open until the result is dropped.
    #[must_use]
    pub fn websocket(&self) -> OpenWebSocket {
        OpenWebSocket::new(&self.load.websockets)
    }

    /// Counts so many idle WebSockets as closed for the memory that they kept.
    pub fn idle_evicted(&self, count: usize) {
        self.load.websockets_evicted.inc_by(count as u64);
    }

    /// Counts a customer's connection as open, until [`Metrics::connection_end`].
    pub fn connection_begin(&self) {
        self.load.connections.inc();
    }

    /// Ends what [`Metrics::connection_begin`] began.
    pub fn connection_end(&self) {
        self.load.connections.dec();
    }

    /// Counts a slot for a call to an upstream as taken, until [`Metrics::upstream_slot_left`].
    pub fn upstream_slot_taken(&self) {
        self.load.upstream_calls.inc();
    }

    /// Ends what [`Metrics::upstream_slot_taken`] began.
    pub fn upstream_slot_left(&self) {
        self.load.upstream_calls.dec();
    }

    /// Shows how many calls to upstreams there may be at one time.
    pub fn upstream_calls_max(&self, max: usize) {
        self.load.upstream_calls_max.set(i64::try_from(max).unwrap_or(i64::MAX));
    }

    /// Shows how many connections of customers there may be.
    pub fn connections_max(&self, max: usize) {
        self.load.connections_max.set(i64::try_from(max).unwrap_or(i64::MAX));
    }

    /// Counts a connection on which no key was shown yet, until [`Metrics::unauthenticated_end`].
    pub fn unauthenticated_begin(&self) {
        self.load.connections_unauthenticated.inc();
    }

    /// Ends what [`Metrics::unauthenticated_begin`] began.
    pub fn unauthenticated_end(&self) {
        self.load.connections_unauthenticated.dec();
    }

    /// Counts a connection that was closed or refused because there were as many as may be.
    pub fn connection_shed(&self, reason: ConnectionShed) {
        self.load.connections_shed.with_label_values(&[reason.as_str()]).inc();
    }

    /// Counts a stream that was turned away because there were as many as may be.
    pub fn stream_refused(&self, reason: StreamRefused) {
        self.load.streams_refused.with_label_values(&[reason.as_str()]).inc();
    }

    /// Counts a request that was turned away because there is enough to do.
    pub fn request_shed(&self, reason: Shed) {
        self.load.shed.with_label_values(&[reason.as_str()]).inc();
    }

    /// Counts a slot of `pool` as taken, until [`Metrics::slot_left`].
    pub fn slot_taken(&self, pool: Pool) {
        self.load.slots(pool).inc();
    }

    /// Ends what [`Metrics::slot_taken`] began.
    pub fn slot_left(&self, pool: Pool) {
        self.load.slots(pool).dec();
    }

    /// Counts `bytes` of request bodies as held in memory.
    pub fn body_bytes_add(&self, bytes: usize) {
        self.load.body_bytes.add(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Counts `bytes` of request bodies as given back.
    pub fn body_bytes_sub(&self, bytes: usize) {
        self.load.body_bytes.sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Counts one group commit of the journal.
    #[expect(clippy::cast_precision_loss, reason = "a group has far fewer than 2^53 records")]
    pub fn journal_committed(&self, took: Duration, records: usize) {
        self.commit_duration.observe(took.as_secs_f64());
        self.commit_records.observe(records as f64);
    }

    /// The configuration that the process starts with is in force.
    pub fn config_loaded(&self) {
        self.configuration.loaded();
    }

    /// Records the outcome of a reload of the configuration.
    pub fn config_reloaded(&self, succeeded: bool) {
        self.configuration.reloaded(succeeded);
    }

    /// Records the expiry of the certificate used at `listener`, an address of the configuration.
    pub fn certificate_shown(&self, listener: &str, not_after: UnixMs) {
        let seconds = i64::try_from(not_after.seconds()).unwrap_or(i64::MAX);
        self.certificates.with_label_values(&[listener]).set(seconds);
    }

    /// Shows how upstreams and targets are doing.
    pub fn show_targets(&self, upstreams: &[UpstreamFigures], circuits: &[CircuitFigures]) {
        self.upstreams.update(upstreams, circuits);
    }

    /// Everything in Prometheus' text format, version 0.0.4.
    #[must_use]
    pub fn encode(&self, ledger: &LedgerFigures, requests: request_log::LogFigures) -> String {
        // Two scrapes at one time would both add the same increase to a counter.
        let scraped = self.scraped.lock();
        scraped.update(ledger, requests);
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_else(|error| {
            log::error!("metrics could not be written: {error}");
            String::new()
        })
    }

    /// Makes the series, unless another thread has.
    fn new_series(&self, route: &str, model: &str, upstream: &str) -> Arc<RequestSeries> {
        let is_it =
            |series: &&Arc<RequestSeries>| series.route == route && series.upstream == upstream;
        let mut by_model = self.series.write();
        let all = by_model.entry(model.to_owned()).or_default();
        // Between the two locks another request may have made it.
        if let Some(existing) = all.iter().find(is_it) {
            return Arc::clone(existing);
        }
        let new = Arc::new(RequestSeries::new(self, route, model, upstream));
        all.push(Arc::clone(&new));
        new
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

fn above_limits(registry: &Registry) -> IntCounterVec {
    int_counters(
        registry,
        "tollgate_usage_above_limits_total",
        "Requests whose upstream reported more usage than the model's limits allow.",
        &["model"],
    )
}

/// Counters of the holds of charged requests.
fn held(registry: &Registry) -> CounterVec {
    const HELP: &str =
        "US dollars that were held for requests when they were charged. Rounded to a float.";
    counters(registry, "tollgate_held_dollars_total", HELP, &["model"])
}

fn clamps(r: &Registry) -> IntCounterVec {
    let help = "Requests whose output limit was lowered to what their account can pay.";
    int_counters(r, "tollgate_clamps_total", help, &["model"])
}

fn clamps_ignored(r: &Registry) -> IntCounterVec {
    let help = "Requests whose upstream put out more tokens than their lowered output limit.";
    int_counters(r, "tollgate_clamps_ignored_total", help, &["model"])
}

fn contradictions(r: &Registry) -> IntCounterVec {
    let help = "Requests whose upstream reported a usage that contradicts itself.";
    int_counters(r, "tollgate_usage_contradictions_total", help, &["upstream", "cause"])
}

fn rate_limited(r: &Registry) -> IntCounterVec {
    let help = "Requests refused by a limit of a key, an account or a model.";
    int_counters(r, "tollgate_rate_limited_total", help, &["model", "limit", "scope"])
}

fn certificates(r: &Registry) -> IntGaugeVec {
    int_gauges(
        r,
        "tollgate_certificate_expiry_timestamp_seconds",
        "When the certificate that a listener shows expires (Unix time).",
        &["listener"],
    )
}

/// The version, and when the process started, which does not change either.
fn build_info(r: &Registry) {
    let version = Opts::new("tollgate_build_info", "Constant 1, labelled with the version.")
        .const_label("version", env!("CARGO_PKG_VERSION"));
    add(r, IntGauge::with_opts(version)).set(1);
    let started = gauge(r, "process_start_time_seconds", "When the process started (Unix time).");
    started.set(unix_seconds());
}

#[expect(clippy::cast_precision_loss, reason = "documented: the exact figure is the ledger's")]
fn dollars(amount: Nanousd) -> f64 {
    amount.get() as f64 / 1e9
}

#[expect(
    clippy::cast_precision_loss,
    reason = "milliseconds since 1970 fit 2^53 until the year 287396"
)]
fn unix_seconds() -> f64 {
    UnixMs::now().0 as f64 / 1e3
}

#[cfg(test)]
mod tests;
