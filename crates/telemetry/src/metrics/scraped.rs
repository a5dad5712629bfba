//! Figures that live elsewhere and are read when Prometheus asks.

use prometheus::{Counter, CounterVec, Gauge, IntCounter, IntCounterVec, IntGauge, Registry};

use super::register::{counter, counters, gauge, int_counter, int_counters, int_gauge};
use super::{LedgerFigures, dollars, process};
use crate::logging;
use crate::request_log::LogFigures;
use tollgate_ledger::LossCause;

/// Ledger metrics that are set at each scrape.
pub(super) struct LedgerGauges {
    open_holds: IntGauge,
    open_tasks: IntGauge,
    debt: Gauge,
    credit_lines: Gauge,
    credit_used: Gauge,
    written_off: Counter,
    losses: CounterVec,
    projection_up: IntGauge,
    projection_repairs: IntCounter,
    lines_dropped: Counter,
    requests: IntCounter,
    requests_dropped: IntCounterVec,
    requests_bytes: IntGauge,
    process: Option<ProcessMetrics>,
}

/// The process's own figures, under the names that every Prometheus client uses.
struct ProcessMetrics {
    cpu: Counter,
    resident: IntGauge,
    threads: IntGauge,
    fds_open: IntGauge,
    fds_max: IntGauge,
}

impl LedgerGauges {
    pub(super) fn new(r: &Registry) -> Self {
        Self {
            open_holds: int_gauge(r, "tollgate_open_holds", "Holds that have not ended yet."),
            open_tasks: int_gauge(
                r,
                "tollgate_open_tasks",
                "Tasks that have not ended, or whose end is still to be announced.",
            ),
            debt: gauge(
                r,
                "tollgate_debt_dollars",
                "US dollars that accounts owe for calls that cost more than they could pay.",
            ),
            credit_lines: gauge(
                r,
                "tollgate_credit_lines_dollars",
                "US dollars that accounts may draw on credit in all, drawn or not.",
            ),
            credit_used: gauge(
                r,
                "tollgate_credit_used_dollars",
                "US dollars of their credit lines that accounts have spent.",
            ),
            losses: losses(r),
            written_off: counter(
                r,
                "tollgate_written_off_dollars_total",
                "US dollars of work that was delivered, was not paid and is not owed any more.",
            ),
            projection_up: int_gauge(
                r,
                "tollgate_ledger_projection_up",
                "Whether statements, usage and ended tasks can be read: 0 while sled is mended.",
            ),
            projection_repairs: int_counter(
                r,
                "tollgate_ledger_projection_repairs_total",
                "How often sled had failed and was opened again or made anew.",
            ),
            lines_dropped: counter(
                r,
                "tollgate_log_lines_dropped_total",
                "Log lines given up because they could not be written fast enough.",
            ),
            requests: int_counter(
                r,
                "tollgate_request_log_records_total",
                "Requests and ends of tasks taken into the request log.",
            ),
            requests_dropped: int_counters(
                r,
                "tollgate_request_log_dropped_total",
                "Records of the request log given up, by why.",
                &["reason"],
            ),
            requests_bytes: int_gauge(
                r,
                "tollgate_request_log_bytes",
                "Length of the request log's files.",
            ),
            // Where there is no `/proc`, these metrics are left out rather than shown as zero.
            process: process::read().map(|_| ProcessMetrics::new(r)),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "2^53 dropped lines are out of reach")]
    pub(super) fn update(&self, ledger: &LedgerFigures, requests: LogFigures) {
        self.open_holds.set(i64::try_from(ledger.open_holds).unwrap_or(i64::MAX));
        self.open_tasks.set(i64::try_from(ledger.open_tasks).unwrap_or(i64::MAX));
        // A node of a fleet that has not read the sums shows the last ones: a gap, not a fall to zero.
        if let Some(debt) = ledger.debt {
            self.debt.set(dollars(debt));
        }
        if let Some(credit) = ledger.credit {
            self.credit_lines.set(dollars(credit.lines));
            self.credit_used.set(dollars(credit.used));
        }
        advance(&self.written_off, dollars(ledger.written_off));
        for (cause, amount) in &ledger.losses {
            advance(&self.losses.with_label_values(&[cause]), dollars(*amount));
        }
        self.projection_up.set(i64::from(ledger.projection.away.is_none()));
        advance_to(&self.projection_repairs, ledger.projection.mended);
        advance(&self.lines_dropped, logging::lines_dropped() as f64);
        let LogFigures { records, dropped, bytes } = requests;
        advance_to(&self.requests, records);
        for (reason, records) in [
            ("queue_full", dropped.queue_full),
            ("unrecognised", dropped.unauthenticated),
            ("disk", dropped.disk),
        ] {
            advance_to(&self.requests_dropped.with_label_values(&[reason]), records);
        }
        self.requests_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        if let (Some(metrics), Some(reading)) = (&self.process, process::read()) {
            advance(&metrics.cpu, reading.cpu_seconds);
            metrics.resident.set(reading.resident_bytes);
            metrics.threads.set(reading.threads);
            metrics.fds_open.set(reading.fds_open);
            metrics.fds_max.set(reading.fds_max);
        }
    }
}

/// Counter of possible costs to the operator, with all causes present from the beginning.
fn losses(r: &Registry) -> CounterVec {
    let losses = counters(
        r,
        "tollgate_operator_loss_dollars_total",
        "US dollars that calls may have cost the operator and no customer pays, by cause.",
        &["cause"],
    );
    // `increase` of Prometheus misses the first loss of a series that begins with it.
    LossCause::ALL.iter().for_each(|cause| drop(losses.with_label_values(&[cause.as_str()])));
    losses
}

impl ProcessMetrics {
    fn new(r: &Registry) -> Self {
        Self {
            cpu: counter(r, "process_cpu_seconds_total", "User and system processor time used."),
            resident: int_gauge(r, "process_resident_memory_bytes", "Resident memory."),
            threads: int_gauge(r, "process_threads", "Threads."),
            fds_open: int_gauge(r, "process_open_fds", "Open file descriptors."),
            fds_max: int_gauge(r, "process_max_fds", "The limit on file descriptors, -1 for none."),
        }
    }
}

/// Brings a counter of whole things up to a total that is kept elsewhere. Never down: a counter may
/// not fall.
fn advance_to(counter: &IntCounter, total: u64) {
    counter.inc_by(total.saturating_sub(counter.get()));
}

/// Brings a counter up to a total that is kept elsewhere. Never down: a counter may not fall.
fn advance(counter: &Counter, total: f64) {
    counter.inc_by((total - counter.get()).max(0.0));
}
