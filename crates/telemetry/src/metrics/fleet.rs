//! Metrics of a node of a fleet. A single gateway has none of them.

use std::sync::Arc;

use prometheus::{Gauge, GaugeVec, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::register::{gauge, gauges, histograms, int_counters, int_gauge, int_gauges};
use super::{Metrics, dollars};
use tollgate_fleet::postgres::{
    DatabaseObserver, DbOperation, FleetOverview, NodeState, RoundTrip, RoundTripOutcome,
};
use tollgate_ledger::NodeStatus;

/// Buckets in seconds, from a database on the same machine to one in trouble.
const ROUND_TRIP_BUCKETS: [f64; 12] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

/// The metrics of a node.
pub(super) struct FleetMetrics {
    round_trips: IntCounterVec,
    duration: HistogramVec,
    report_lag: Gauge,
    unreported: IntGauge,
    term_left: Gauge,
    cut_off: IntGauge,
    directory_lag: IntGauge,
    directory_stopped: IntGauge,
    nodes: IntGaugeVec,
    money: GaugeVec,
}

impl FleetMetrics {
    fn new(r: &Registry) -> Self {
        let round_trips = int_counters(
            r,
            "tollgate_fleet_round_trips_total",
            "What was asked of the fleet's database, by what and by how it ended.",
            &["what", "outcome"],
        );
        for query in QUERIES {
            for outcome in OUTCOMES {
                // A rate needs the zero that comes before the first.
                round_trips.with_label_values(&[word_of(query), outcome_of(outcome)]).inc_by(0);
            }
        }
        Self {
            round_trips,
            duration: histograms(
                r,
                "tollgate_fleet_round_trip_duration_seconds",
                "How long the fleet's database took.",
                &["what"],
                &ROUND_TRIP_BUCKETS,
            ),
            report_lag: gauge(
                r,
                "tollgate_fleet_report_lag_seconds",
                "How old the oldest record can be that the treasury does not have.",
            ),
            unreported: int_gauge(
                r,
                "tollgate_fleet_report_lag_records",
                "Records of this node's journal that the treasury does not have.",
            ),
            term_left: gauge(
                r,
                "tollgate_fleet_term_left_seconds",
                "How long this node still spends what it was lent, unless it hears of the treasury.",
            ),
            cut_off: int_gauge(
                r,
                "tollgate_fleet_cut_off",
                "1 when this node's term is over: it answers calls with 503.",
            ),
            directory_lag: int_gauge(
                r,
                "tollgate_fleet_directory_lag",
                "Writes of operators and customers that this node has seen and not taken over.",
            ),
            directory_stopped: int_gauge(
                r,
                "tollgate_fleet_directory_stopped",
                "1 when this node takes over no more of them.",
            ),
            nodes: int_gauges(
                r,
                "tollgate_fleet_nodes",
                "Nodes of the fleet, by how they are doing.",
                &["state"],
            ),
            money: gauges(
                r,
                "tollgate_fleet_money_dollars",
                "US dollars of all accounts, by where they are. Rounded to a float.",
                &["part"],
            ),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "milliseconds of a lag are far below 2^53")]
    fn show(&self, standing: &NodeStatus, overview: Option<&FleetOverview>) {
        let whole = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.report_lag.set(standing.report_lag.as_millis() as f64 / 1e3);
        self.unreported.set(whole(standing.unreported));
        self.term_left.set(standing.term_left.as_millis() as f64 / 1e3);
        self.cut_off.set(standing.is_cut_off().into());
        self.directory_lag.set(whole(standing.directory_lag()));
        self.directory_stopped.set(standing.stopped.is_some().into());
        // What was never seen is not said to be nothing.
        let Some(FleetOverview { sums, nodes }) = overview else { return };
        for state in NodeState::ALL {
            let count = nodes.iter().filter(|node| node.state == state).count();
            self.nodes.with_label_values(&[state.as_str()]).set(whole(count as u64));
        }
        for (part, amount) in [
            ("granted", sums.money.granted),
            ("available", sums.money.available),
            ("leased", sums.money.leased),
            ("held", sums.money.held),
            ("spent", sums.money.spent),
            ("suspense", sums.money.suspense),
            ("debt", sums.money.debt),
            ("credit_lines", sums.money.credit),
            ("credit_used", sums.credit_used),
            ("written_off", sums.money.written_off),
        ] {
            self.money.with_label_values(&[part]).set(dollars(amount));
        }
    }

    fn count(&self, round_trip: RoundTrip) {
        let (what, outcome) = (word_of(round_trip.operation), outcome_of(round_trip.outcome));
        self.round_trips.with_label_values(&[what, outcome]).inc();
        self.duration.with_label_values(&[what]).observe(round_trip.took.as_secs_f64());
    }
}

/// All operations on the database.
const QUERIES: [DbOperation; 3] = [DbOperation::Transaction, DbOperation::Query, DbOperation::Sync];
/// Outcomes of a synchronisation.
const OUTCOMES: [RoundTripOutcome; 5] = [
    RoundTripOutcome::Done,
    RoundTripOutcome::Retried,
    RoundTripOutcome::Unavailable,
    RoundTripOutcome::Unknown,
    RoundTripOutcome::Failed,
];

fn word_of(query: DbOperation) -> &'static str {
    match query {
        DbOperation::Transaction => "transaction",
        DbOperation::Query => "query",
        DbOperation::Sync => "exchange",
    }
}

fn outcome_of(outcome: RoundTripOutcome) -> &'static str {
    match outcome {
        RoundTripOutcome::Done => "done",
        RoundTripOutcome::Retried => "retried",
        RoundTripOutcome::Unavailable => "unavailable",
        RoundTripOutcome::Unknown => "unknown",
        RoundTripOutcome::Failed => "failed",
    }
}

impl Metrics {
    /// Registers the metrics of a fleet node. Returns the observer of database operations.
    pub fn in_fleet(self: &Arc<Self>) -> DatabaseObserver {
        self.fleet.get_or_init(|| FleetMetrics::new(&self.registry));
        let metrics = Arc::clone(self);
        Box::new(move |round_trip| {
            if let Some(fleet) = metrics.fleet.get() {
                fleet.count(round_trip);
            }
        })
    }

    /// Shows how this node is doing, and its fleet as it was seen last.
    pub fn show_fleet(&self, standing: &NodeStatus, overview: Option<&FleetOverview>) {
        self.fleet.get_or_init(|| FleetMetrics::new(&self.registry)).show(standing, overview);
    }
}
