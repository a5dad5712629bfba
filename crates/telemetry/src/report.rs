//! Reports of finished requests and tasks: to metrics, the request log, the access log and traces.

use once_cell::sync::OnceCell;
use tollgate_config::snapshot::AccessLog;

use crate::finished::{FinishedRequest, TaskEnded};
use crate::logging;
use crate::metrics::Metrics;
use crate::request_log::RequestLog;

/// Denominator of [`AccessLog::sample_per_million`].
const SAMPLE_ALL: u32 = 1_000_000;

/// The function that makes a span of each finished request, if one was installed.
static SPAN_EXPORT: OnceCell<fn(&FinishedRequest<'_>)> = OnceCell::new();

/// Calls `export` with each request that is over from now on. The first exporter of a process stays.
pub fn install_span_export(export: fn(&FinishedRequest<'_>)) {
    SPAN_EXPORT.set(export).ok();
}

/// True if an exporter of spans was installed.
#[must_use]
pub fn exports_spans() -> bool {
    SPAN_EXPORT.get().is_some()
}

impl TaskEnded<'_> {
    /// Counts the task, keeps it for people to look at, and writes its line.
    pub fn report(&self, metrics: &Metrics, requests: &RequestLog) {
        metrics.task_ended(self);
        requests.record_task(self);
        logging::task(self);
    }
}

impl FinishedRequest<'_> {
    /// Counts the request, keeps it for people to look at, and writes its access line, if it is to
    /// have one. None of them waits for anything; together they take less than two microseconds.
    pub fn report(&self, metrics: &Metrics, requests: &RequestLog, log: &AccessLog) {
        metrics.record(self);
        requests.record(self);
        // What matters is logged whatever the sample says.
        if self.is_remarkable(log) || fastrand::u32(..SAMPLE_ALL) < log.sample_per_million {
            logging::access(self);
        }
        if let Some(export) = SPAN_EXPORT.get() {
            export(self);
        }
    }

    /// True for a request that matters when looking for trouble: it failed, its customer left, or it was
    /// slow.
    fn is_remarkable(&self, log: &AccessLog) -> bool {
        let succeeded = (200..400).contains(&self.status) && self.error_code.is_empty();
        !succeeded || self.duration >= log.slow
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::finished::tests::finished;

    #[test]
    fn what_failed_was_left_or_took_long_is_remarkable() {
        let log = AccessLog { sample_per_million: 0, slow: Duration::from_secs(10) };
        let (quick, slow) = (Duration::from_millis(9_999), Duration::from_secs(10));
        for (status, code, duration, expected) in [
            (200, "", quick, false),
            (204, "", quick, false),
            (200, "", slow, true),
            (200, "BadGateway", quick, true),
            (0, "", quick, true),
            (400, "invalid_request_error", quick, true),
            (429, "", quick, true),
            (502, "BadGateway", quick, true),
        ] {
            let request = FinishedRequest { status, error_code: code, duration, ..finished() };
            let remarkable = request.is_remarkable(&log);
            assert_eq!(remarkable, expected, "{status} {code:?} after {duration:?}");
        }
    }
}
