//! Connections that did not come about. Those that the other side failed are counted by upstream and reason,
//! the last one of each upstream kept for operators. Those for want of a resource of this machine are counted
//! apart: they say nothing of an upstream. What is new of both is logged.

use std::collections::HashMap;
use std::fmt::Display;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus::{IntCounterVec, Registry};
use tollgate_outbound::{DialError, DialFault, LocalResource};

use super::Metrics;
use super::register::int_counters;
use tollgate_types::clock::UnixMs;

/// Interval in which one reason is logged once for an upstream: an outage is thousands of calls.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Upstreams whose last failure is kept. Those of earlier configurations are among them.
const KEPT_MAX: usize = 4096;

/// The last connection to an upstream that did not come about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectFailure {
    /// Time of the failure.
    pub at: UnixMs,
    /// The kind of the failure, in one word.
    pub reason: &'static str,
    /// Upstream, address and reason.
    pub text: String,
}

pub(super) struct ConnectFailures {
    total: IntCounterVec,
    exhausted: IntCounterVec,
    /// Times at which the lack of each resource was logged last, in their order.
    exhausted_logged: Mutex<[Option<Instant>; LocalResource::ALL.len()]>,
    last: Mutex<HashMap<String, (ConnectFailure, Instant)>>,
}

impl ConnectFailures {
    pub(super) fn new(r: &Registry) -> Self {
        let total = int_counters(
            r,
            "tollgate_upstream_connect_failures_total",
            "Connections to an upstream that did not come about, by reason.",
            &["upstream", "reason"],
        );
        let exhausted = int_counters(
            r,
            "tollgate_local_resource_exhausted_total",
            "Connections to other machines that could not be opened for want of a resource of this one.",
            &["resource"],
        );
        for resource in LocalResource::ALL {
            exhausted.with_label_values(&[resource.as_str()]).inc_by(0);
        }
        Self { total, exhausted, exhausted_logged: Mutex::default(), last: Mutex::default() }
    }

    /// The counters of an upstream at zero.
    pub(super) fn begin(&self, upstream: &str) {
        for fault in DialFault::ALL {
            self.total.with_label_values(&[upstream, fault.as_str()]).inc_by(0);
        }
    }
}

impl Metrics {
    /// Counts a failed connection to an upstream, and logs new reasons.
    pub fn connect_failed(&self, upstream: &str, error: &DialError) {
        if let Some(resource) = error.exhausted() {
            return self.resource_exhausted(resource, error);
        }
        let ConnectFailures { total, last, .. } = &self.connect_failures;
        let reason = error.fault.as_str();
        total.with_label_values(&[upstream, reason]).inc();
        let failure = ConnectFailure { at: UnixMs::now(), reason, text: error.to_string() };
        let mut last = last.lock();
        // The time of the last line stays while the reason does: else each failure of an outage would put the
        // next line off.
        let logged = last.get(upstream).filter(|(previous, logged)| {
            previous.reason == reason && logged.elapsed() < LOG_INTERVAL
        });
        let logged = logged.map(|(_, logged)| *logged);
        // A full table still takes new failures of upstreams that are in it.
        if logged.is_some() || last.len() < KEPT_MAX || last.contains_key(upstream) {
            let logged_at = logged.unwrap_or_else(Instant::now);
            last.insert(upstream.to_owned(), (failure, logged_at));
        }
        drop(last);
        if logged.is_none() {
            log::warn!("{upstream} cannot be reached ({reason}): {error}");
        }
    }

    /// Counts a connection that could not be opened for want of a resource of this machine, and logs it
    /// once in a while. `cause` says what for.
    pub fn resource_exhausted(&self, resource: LocalResource, cause: &dyn Display) {
        let ConnectFailures { exhausted, exhausted_logged, .. } = &self.connect_failures;
        exhausted.with_label_values(&[resource.as_str()]).inc();
        let now = Instant::now();
        let logged = &mut exhausted_logged.lock()[resource as usize];
        let is_logged = logged.is_some_and(|at| now.saturating_duration_since(at) < LOG_INTERVAL);
        if !is_logged {
            *logged = Some(now);
            let resource = resource.as_str();
            log::error!("this gateway has no {resource} left for calls to other machines: {cause}");
        }
    }

    /// The last connection to an upstream that did not come about.
    #[must_use]
    pub fn last_connect_failure(&self, upstream: &str) -> Option<ConnectFailure> {
        let last = self.connect_failures.last.lock();
        last.get(upstream).map(|(failure, _)| failure.clone())
    }
}
