//! Logs: one JSON object a line on standard error, and the `log` crate's backend.
//!
//! Every line has `ts`, `level` and `target`; an ordinary line has `msg`, the access log's lines
//! (target `access`) have what is known of one finished request. A line never holds a key, a prompt
//! or a header's value, and what comes from outside is escaped, so one line is always one record.
//!
//! A request's thread only formats its line into a bounded buffer; a thread of its own writes what
//! has gathered. When standard error does not keep up, lines are dropped and
//! counted: a request never waits for its log.

use std::io::{self, Write};
use std::time::Duration;

use log::kv::{self, VisitSource};
use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::finished::{FinishedRequest, RequestSettlement, TaskEnded};
use tollgate_money::money::Nanousd;
use tollgate_money::price::UNITS;
use tollgate_types::clock::UnixMs;

mod line;
mod queue;

use line::{Line, LineObject, name};
use queue::{LineQueue, Urgency};

/// Other crates are heard from this level on, whatever the level of our own lines: below it, some of
/// them print the headers that they handle, and with those, keys.
const FOREIGN_LEVEL: LevelFilter = LevelFilter::Warn;
/// A crate that logs each certificate that it refuses as an error, without the server. The gateway's own
/// line has that, and the reason.
const SILENCED_CRATE: &str = "rustls_platform_verifier";
/// The gateway's own crates, which log at every level that the operator asks for.
const OWN_CRATES: [&str; 32] = [
    "tollgate",
    "tollgate_admin",
    "tollgate_balance",
    "tollgate_catalogue",
    "tollgate_cli",
    "tollgate_client_address",
    "tollgate_config",
    "tollgate_credentials",
    "tollgate_customer_console",
    "tollgate_fleet",
    "tollgate_holds",
    "tollgate_journal",
    "tollgate_ledger",
    "tollgate_limits",
    "tollgate_mcp",
    "tollgate_money",
    "tollgate_options",
    "tollgate_outbound",
    "tollgate_pipeline",
    "tollgate_pricing",
    "tollgate_process_memory",
    "tollgate_protocols",
    "tollgate_reconcile",
    "tollgate_reload",
    "tollgate_simulator",
    "tollgate_tasks",
    "tollgate_telemetry",
    "tollgate_traces",
    "tollgate_translation",
    "tollgate_types",
    "tollgate_upstream_calls",
    "tollgate_web_kit",
];
/// The target of the access log's lines.
const ACCESS: &str = "access";
/// The target of the lines of tasks that have ended.
const TASK: &str = "task";
/// Time that [`flush`] waits for a blocked standard error.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for which lines are gathered: short for a reader, long for a processor.
const GATHER: Duration = Duration::from_millis(100);

static QUEUE: LineQueue = LineQueue::new(GATHER);

/// Sends log lines of `level` and above to standard error, and panics too. A second call only
/// changes the level.
pub fn install(level: LevelFilter) {
    install_to(level, io::stderr());
    std::panic::set_hook(Box::new(panicked));
}

/// Sends log lines of `level` and above to `sink`, and leaves panics as they are. A second call
/// only changes the level.
pub fn install_to(level: LevelFilter, sink: impl Write + Send + 'static) {
    log::set_max_level(level);
    // Refused from the second call on: the first one's thread writes.
    if log::set_logger(&Backend).is_err() {
        return;
    }
    let writer = std::thread::Builder::new().name("log".to_owned());
    if let Err(error) = writer.spawn(move || QUEUE.write_to(sink)) {
        eprintln!("no log will be written: its thread did not start: {error}");
    }
}

/// Waits until everything logged so far is written, but not longer than a second. To be called
/// before the process ends.
pub fn flush() {
    QUEUE.flush(FLUSH_TIMEOUT);
}

/// Lines given up since the start because they could not be written fast enough.
#[must_use]
pub fn lines_dropped() -> u64 {
    QUEUE.lines_dropped()
}

/// Writes the access line of a request that is over, at level `info`. Does not wait.
pub fn access(finished: &FinishedRequest<'_>) {
    if log::max_level() >= LevelFilter::Info {
        // Behind the question for the level: at `warn` a request pays for no line.
        Line::with(finished.ended_at, Level::Info, ACCESS, |line| {
            write_access(line, finished);
            QUEUE.push(line.finish(), Urgency::Gather);
        });
    }
}

fn write_access(line: &mut Line, finished: &FinishedRequest<'_>) {
    // Ids and amounts are letters, digits and signs: nothing in them needs an escape.
    line.plain(name!("request_id"), &finished.request_id.ascii());
    if let Some(account_id) = finished.account_id {
        line.plain(name!("account_id"), &account_id.ascii());
    }
    if let Some(key_id) = finished.key_id {
        line.plain(name!("key_id"), &key_id.ascii());
    }
    if let Some(client) = finished.client {
        line.address(name!("client"), client);
    }
    line.text(name!("method"), finished.method);
    line.text(name!("route"), finished.route);
    if let Some(operation) = finished.operation {
        line.text(name!("operation"), operation.as_str());
    }
    line.text(name!("model"), finished.model);
    line.text_if_some(name!("asked_model"), finished.requested_model);
    line.text(name!("upstream"), finished.upstream);
    if let Some(id) = finished.upstream_request_id {
        line.text(name!("upstream_request_id"), id);
    }
    line.number(name!("status"), finished.status.into());
    line.text(name!("code"), finished.error_code);
    line.truth(name!("stream"), finished.streamed);
    line.number(name!("bytes_in"), finished.bytes_in);
    line.number(name!("bytes_out"), finished.bytes_out);
    line.milliseconds(name!("duration_ms"), finished.duration);
    if let Some(ttfb) = finished.ttfb {
        line.milliseconds(name!("ttfb_ms"), ttfb);
    }
    if let Some(tokens) = finished.max_tokens_clamped {
        line.number(name!("max_tokens_clamped"), tokens);
    }
    if let Some(settled) = &finished.settled {
        write_settled(line, settled);
    }
}

/// Writes the line of a task that has ended, at level `info`. Does not wait.
pub fn task(ended: &TaskEnded<'_>) {
    if log::max_level() >= LevelFilter::Info {
        Line::with(UnixMs::now(), Level::Info, TASK, |line| {
            line.display(name!("task_id"), ended.task_id);
            line.display(name!("account_id"), ended.account_id);
            line.display(name!("key_id"), ended.key_id);
            line.text(name!("model"), ended.model);
            line.text(name!("upstream"), ended.upstream);
            line.text(name!("state"), ended.state);
            line.milliseconds(name!("duration_ms"), ended.duration);
            if let Some(settled) = &ended.settled {
                write_settled(line, settled);
            }
            QUEUE.push(line.finish(), Urgency::Gather);
        });
    }
}

fn write_settled(line: &mut Line, settled: &RequestSettlement) {
    for (unit, count) in UNITS.iter().zip(&settled.usage.counts()) {
        if *count > 0 {
            line.units(unit.name, *count);
        }
    }
    line.text(name!("usage_source"), settled.source.as_str());
    line.plain(name!("cost_usd"), settled.cost.ascii().as_bytes());
    if settled.owed > Nanousd::ZERO {
        line.plain(name!("owed_usd"), settled.owed.ascii().as_bytes());
    }
}

/// The backend of the `log` crate's macros.
struct Backend;

impl Log for Backend {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let crate_name = metadata.target().split("::").next().unwrap_or_default();
        let is_own = OWN_CRATES.contains(&crate_name);
        let level = match crate_name {
            _ if is_own => LevelFilter::Trace,
            SILENCED_CRATE => LevelFilter::Off,
            _ => FOREIGN_LEVEL,
        };
        metadata.level() <= level.min(log::max_level())
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        // A warning may be the last line of a process; others are gathered.
        let urgency = if record.level() <= Level::Warn { Urgency::AtOnce } else { Urgency::Gather };
        Line::with(UnixMs::now(), record.level(), record.target(), |line| {
            line.display(name!("msg"), record.args());
            write_fields(line, record.key_values());
            QUEUE.push(line.finish(), urgency);
        });
    }

    fn flush(&self) {
        flush();
    }
}

/// The key-value pairs of a `log` call, in an object of their own: their names are free.
fn write_fields(line: &mut Line, fields: &dyn kv::Source) {
    struct LineFields<'a, 'line>(&'a mut LineObject<'line>);

    impl<'kvs> VisitSource<'kvs> for LineFields<'_, '_> {
        fn visit_pair(
            &mut self,
            key: kv::Key<'kvs>,
            value: kv::Value<'kvs>,
        ) -> Result<(), kv::Error> {
            let name = key.as_str();
            match (value.to_u64(), value.to_bool()) {
                (Some(number), _) => self.0.number(name, number),
                (_, Some(truth)) => self.0.truth(name, truth),
                _ => self.0.display(name, value),
            }
            Ok(())
        }
    }

    if fields.count() > 0 {
        line.object(name!("fields"), |object| {
            if let Err(error) = fields.visit(&mut LineFields(object)) {
                object.display("unreadable", error);
            }
        });
    }
}

/// Logs a panic before the thread continues. Only a literal message is logged: a formatted one could quote a
/// prompt.
fn panicked(info: &std::panic::PanicHookInfo<'_>) {
    // A formatted message is a `String`, and a literal one is `&'static str`.
    let literal = info.payload().downcast_ref::<&'static str>();
    let backtrace = std::backtrace::Backtrace::capture();
    Line::with(UnixMs::now(), Level::Error, "panic", |line| {
        line.text(
            name!("msg"),
            literal.unwrap_or(&"(a message that was made at run time is not logged)"),
        );
        if let Some(location) = info.location() {
            line.display(name!("location"), location);
        }
        line.text_if_some(name!("thread"), std::thread::current().name());
        if backtrace.status() == std::backtrace::BacktraceStatus::Captured {
            line.display(name!("backtrace"), &backtrace);
        }
        QUEUE.push(line.finish(), Urgency::AtOnce);
    });
    flush();
}

#[cfg(test)]
mod tests;
