//! Records of finished requests and tasks: metrics, logs and the request log.
//!
//! | Module | Contents |
//! |---|---|
//! | [`finished`] | the record of one request, and of one task, that all of the others read |
//! | [`metrics`] | counters and gauges in Prometheus' text format |
//! | [`request_log`] | a bounded log on disk, for the lists and live tails of both consoles |
//! | [`logging`] | JSON lines on standard error, the access log among them |
//! | [`report`] | one call for each record, to all of the above |

// Tests fail by panicking; the product does not.
#![deny(clippy::expect_used)]

pub mod finished;
pub mod logging;
pub mod metrics;
pub mod report;
pub mod request_log;
