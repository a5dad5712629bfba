//! Metrics of the current load.

use prometheus::{IntCounter, IntCounterVec, IntGauge, Registry};

use super::register::{int_counter, int_counters, int_gauge, int_gauges};
use tollgate_types::words::words;

words! {
    /// Reason for which a request was refused.
    Shed {
        /// All places of customers are taken.
        InFlight = "requests_in_flight",
        /// The account has its share of them.
        AccountInFlight = "account_requests_in_flight",
        /// The account has its share of connections, or of streams over HTTP/2.
        AccountConnections = "account_connections",
        /// The limit of concurrent upstream calls was reached.
        UpstreamCalls = "upstream_calls",
        /// The account has its share of them.
        AccountUpstreamCalls = "account_upstream_calls",
        /// The budget for bodies had no room.
        BodyMemory = "body_memory",
        /// The account has its share of that.
        AccountBodyMemory = "account_body_memory",
        /// The account has its share of those who may wait for a task.
        AccountWaiting = "account_waiting",
        /// The account has as many reads under way as it may.
        AccountReads = "account_reads",
        /// The account makes as many calls that cost nothing as it may in a minute.
        AccountFreeCalls = "account_free_calls",
        /// An upstream gets as many calls that cost nothing as it may.
        FreeCalls = "free_calls",
        /// All places of those without a valid key are taken.
        Unauthenticated = "unauthenticated",
        /// The address has its share of them.
        Address = "unauthenticated_address",
    }
}

words! {
    /// Pool of slots for requests in flight.
    Pool {
        /// Authenticated customers.
        Customers = "customers",
        /// Unauthenticated requests and the console.
        Unauthenticated = "unauthenticated",
    }
}

words! {
    /// Outcome for a connection when all are in use.
    ConnectionShed {
        /// It was refused: no other connection could be closed.
        Full = "full",
        /// It was closed for another one.
        GaveWay = "gave_way",
        /// It was refused: no other connection of its address could be closed.
        AddressFull = "address_full",
        /// Closed for another connection of its address.
        AddressGaveWay = "address_gave_way",
    }
}

words! {
    /// Reason for which a stream over HTTP/2 was refused.
    StreamRefused {
        /// There were too many at a time on an unauthenticated connection.
        Connection = "connection",
        /// There were too many on unauthenticated connections of its address.
        Address = "address",
        /// There were too many on all unauthenticated connections.
        Unauthenticated = "strangers",
        /// There were too many.
        All = "all",
    }
}

/// Guard that counts an open WebSocket.
#[derive(Debug)]
pub struct OpenWebSocket(IntGauge);

impl OpenWebSocket {
    pub(super) fn new(open: &IntGauge) -> Self {
        open.inc();
        Self(open.clone())
    }
}

impl Drop for OpenWebSocket {
    fn drop(&mut self) {
        self.0.dec();
    }
}

pub(super) struct Load {
    pub(super) websockets: IntGauge,
    pub(super) websockets_evicted: IntCounter,
    pub(super) connections: IntGauge,
    pub(super) connections_max: IntGauge,
    pub(super) connections_unauthenticated: IntGauge,
    pub(super) connections_shed: IntCounterVec,
    pub(super) streams_refused: IntCounterVec,
    pub(super) in_flight: IntGauge,
    customer_slots: IntGauge,
    unauthenticated_slots: IntGauge,
    pub(super) orphans: IntGauge,
    pub(super) upstream_calls: IntGauge,
    pub(super) upstream_calls_max: IntGauge,
    pub(super) body_bytes: IntGauge,
    pub(super) shed: IntCounterVec,
}

impl Load {
    pub(super) fn new(r: &Registry) -> Self {
        let slots = int_gauges(
            r,
            "tollgate_places_taken",
            "Places among the requests that are served, taken now.",
            &["pool"],
        );
        let slots = |pool: Pool| slots.with_label_values(&[pool.as_str()]);
        Self {
            websockets: int_gauge(r, "tollgate_websockets", "WebSockets of customers open now."),
            websockets_evicted: int_counter(
                r,
                "tollgate_websockets_evicted_total",
                "Idle WebSockets closed because a body found no room beside what they kept.",
            ),
            customer_slots: slots(Pool::Customers),
            unauthenticated_slots: slots(Pool::Unauthenticated),
            connections_max: int_gauge(
                r,
                "tollgate_connections_max",
                "Customers' connections that there may be.",
            ),
            connections_unauthenticated: int_gauge(
                r,
                "tollgate_connections_unauthenticated",
                "Customers' connections open now on which no key was shown yet.",
            ),
            connections_shed: by_reason(
                r,
                "tollgate_connections_shed_total",
                "Customers' connections that were closed or refused because there were as many as may \
                 be.",
                ConnectionShed::ALL.iter().map(|reason| reason.as_str()),
            ),
            streams_refused: by_reason(
                r,
                "tollgate_streams_refused_total",
                "Streams over HTTP/2 that were turned away because there were as many as may be.",
                StreamRefused::ALL.iter().map(|reason| reason.as_str()),
            ),
            connections: int_gauge(r, "tollgate_connections", "Customers' connections open now."),
            in_flight: int_gauge(r, "tollgate_requests_in_flight", "Requests being served now."),
            orphans: int_gauge(
                r,
                "tollgate_orphans",
                "Answers that are read on for their usage although nobody waits for them.",
            ),
            upstream_calls: int_gauge(
                r,
                "tollgate_upstream_calls",
                "Requests that have a call to an upstream under way or are about to, abandoned ones \
                 included.",
            ),
            upstream_calls_max: int_gauge(
                r,
                "tollgate_upstream_calls_max",
                "Calls to upstreams that there may be at one time.",
            ),
            body_bytes: int_gauge(
                r,
                "tollgate_request_body_bytes",
                "Bytes of request bodies held in memory now.",
            ),
            shed: by_reason(
                r,
                "tollgate_requests_shed_total",
                "Requests turned away because the gateway has enough to do.",
                Shed::ALL.iter().map(|reason| reason.as_str()),
            ),
        }
    }

    /// The taken slots of `pool`.
    pub(super) fn slots(&self, pool: Pool) -> &IntGauge {
        match pool {
            Pool::Customers => &self.customer_slots,
            Pool::Unauthenticated => &self.unauthenticated_slots,
        }
    }
}

/// Counters by `reason`, each from zero on: a rate needs the zero that comes before the first.
fn by_reason(
    r: &Registry,
    name: &str,
    help: &str,
    reasons: impl Iterator<Item = &'static str>,
) -> IntCounterVec {
    let counters = int_counters(r, name, help, &["reason"]);
    for reason in reasons {
        counters.with_label_values(&[reason]).inc_by(0);
    }
    counters
}
