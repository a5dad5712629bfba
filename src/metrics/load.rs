//! What Prometheus sees of how much there is to do at the moment.

use prometheus::{IntCounterVec, IntGauge, Registry};

use super::register::{int_counters, int_gauge};

/// Why requests are turned away.
const REASONS: [&str; 2] = ["requests_in_flight", "body_memory"];

pub(super) struct Load {
    pub(super) connections: IntGauge,
    pub(super) in_flight: IntGauge,
    pub(super) body_bytes: IntGauge,
    pub(super) shed: IntCounterVec,
}

impl Load {
    pub(super) fn new(r: &Registry) -> Self {
        let shed = int_counters(
            r,
            "tollgate_requests_shed_total",
            "Requests turned away because the gateway has enough to do.",
            &["reason"],
        );
        for reason in REASONS {
            // A rate needs the zero that comes before the first.
            shed.with_label_values(&[reason]).inc_by(0);
        }
        Self {
            connections: int_gauge(r, "tollgate_connections", "Customers' connections open now."),
            in_flight: int_gauge(r, "tollgate_requests_in_flight", "Requests being served now."),
            body_bytes: int_gauge(
                r,
                "tollgate_request_body_bytes",
                "Bytes of request bodies held in memory now.",
            ),
            shed,
        }
    }
}
