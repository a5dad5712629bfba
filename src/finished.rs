//! What is known of a request when it is over: the one record that metrics and the access log share.

use std::net::IpAddr;
use std::time::Duration;

use crate::config::snapshot::AccessLog;
use crate::ledger::{AccountId, KeyId, RequestId, TaskId};
use crate::logging;
use crate::metrics::Metrics;
use crate::money::Nanousd;
use crate::price::{Usage, UsageSource};
use crate::protocols::Operation;
use crate::request_log::RequestLog;

/// What [`AccessLog::sample_per_million`] is a part of.
const SAMPLE_ALL: u32 = 1_000_000;

/// One request that is over, however it ended. Nothing in it is a secret: no key, no prompt, no
/// header value.
#[derive(Clone, Debug)]
pub struct Finished<'a> {
    /// The id that the customer got in `x-request-id`.
    pub request_id: RequestId,
    /// The account that pays; `None` when the key was not recognised.
    pub account_id: Option<AccountId>,
    /// The id of the key (never the key); `None` when it was not recognised.
    pub key_id: Option<KeyId>,
    /// The address that the request came from.
    pub client: Option<IpAddr>,
    /// The request method as received.
    pub method: &'a str,
    /// The configured path that matched; empty when none did.
    pub route: &'a str,
    /// What was asked for; `None` for paths that are not an operation.
    pub operation: Option<Operation>,
    /// The id of the *configured* model; empty before it was found. Never what the customer typed:
    /// it is a metric's label.
    pub model: &'a str,
    /// The name of the upstream that answered or was tried last; empty when none was.
    pub upstream: &'a str,
    /// The status sent to the customer; 0 when none was.
    pub status: u16,
    /// `error.code` as sent, or the word for a failure after the first byte; empty when all went
    /// well. Static, because it is a metric's label: an upstream's own code must not get here.
    pub error_code: &'static str,
    /// Whether the answer was a stream of events.
    pub streamed: bool,
    /// Bytes of the request body that were read.
    pub bytes_in: u64,
    /// Bytes of the response body that were sent.
    pub bytes_out: u64,
    /// From the request's header to the end.
    pub duration: Duration,
    /// From the request's header to the first byte of the answer; `None` when none was sent.
    pub ttfb: Option<Duration>,
    /// What was billed; `None` when nothing was ever held.
    pub settled: Option<Settled>,
    /// The task that it has started.
    pub task_id: Option<TaskId>,
    /// The customer's own trace, as its `traceparent` header named it.
    pub traceparent: Option<&'a str>,
}

/// How a request's hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The units that were billed.
    pub usage: Usage,
    /// Where the units come from.
    pub source: UsageSource,
    /// What the customer was charged.
    pub cost: Nanousd,
}

/// One task that is over, however it ended.
#[derive(Clone, Debug)]
pub struct TaskEnded<'a> {
    /// The gateway's id of it.
    pub task_id: TaskId,
    /// The account that pays.
    pub account_id: AccountId,
    /// The key that it was submitted with.
    pub key_id: KeyId,
    /// The id of the configured model.
    pub model: &'a str,
    /// The name of the upstream that had it.
    pub upstream: &'a str,
    /// How it ended: one of [`TaskState`](crate::protocols::task::TaskState)'s words.
    pub state: &'static str,
    /// From its submit to its end.
    pub duration: Duration,
    /// What was billed; `None` when the hold was given back.
    pub settled: Option<Settled>,
}

impl TaskEnded<'_> {
    /// Counts the task, keeps it for people to look at, and writes its line.
    pub fn report(&self, metrics: &Metrics, requests: &RequestLog) {
        metrics.task_ended(self);
        requests.record_task(self);
        logging::task(self);
    }
}

impl Finished<'_> {
    /// Counts the request, keeps it for people to look at, and writes its access line, if it is to
    /// have one. None of them waits for anything; together they take less than two microseconds.
    pub fn report(&self, metrics: &Metrics, requests: &RequestLog, log: &AccessLog) {
        metrics.record(self);
        requests.record(self);
        if self.is_remarkable(log) || fastrand::u32(..SAMPLE_ALL) < log.sample_per_million {
            logging::access(self);
        }
        #[cfg(feature = "otlp")]
        crate::traces::record(self);
    }

    /// Whether whoever looks for trouble wants to see this request: it failed, nobody waited for its
    /// answer, or it was slow.
    fn is_remarkable(&self, log: &AccessLog) -> bool {
        let succeeded = (200..400).contains(&self.status) && self.error_code.is_empty();
        !succeeded || self.duration >= log.slow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(status: u16, error_code: &'static str, duration: Duration) -> Finished<'static> {
        Finished {
            request_id: RequestId::from_number(1),
            account_id: None,
            key_id: None,
            client: None,
            method: "POST",
            route: "",
            operation: None,
            model: "",
            upstream: "",
            status,
            error_code,
            streamed: false,
            bytes_in: 0,
            bytes_out: 0,
            duration,
            ttfb: None,
            settled: None,
            task_id: None,
            traceparent: None,
        }
    }

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
            let remarkable = finished(status, code, duration).is_remarkable(&log);
            assert_eq!(remarkable, expected, "{status} {code:?} after {duration:?}");
        }
    }
}
