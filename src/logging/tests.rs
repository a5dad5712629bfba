use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::line::Line;
use super::queue::{LineQueue, Urgency};
use super::*;
use crate::clock::UnixMs;
use crate::finished::Settled;
use crate::ledger::{AccountId, KeyId, RequestId};
use crate::money::Nanousd;
use crate::price::{Usage, UsageSource};
use crate::protocols::Operation;

fn finished() -> Finished<'static> {
    Finished {
        request_id: RequestId::from_number(1),
        account_id: Some(AccountId::from_number(1)),
        key_id: Some(KeyId::from_number(1)),
        client: Some([127, 0, 0, 1].into()),
        method: "POST",
        route: "/v1/chat/completions",
        operation: Some(Operation::Chat),
        model: "m",
        asked_model: None,
        upstream: "u",
        upstream_request_id: None,
        status: 200,
        error_code: "",
        streamed: true,
        bytes_in: 10,
        bytes_out: 20,
        duration: Duration::from_micros(12_345),
        ttfb: Some(Duration::from_micros(2_007)),
        settled: Some(Settled {
            usage: Usage { input_tokens: 7, output_tokens: 9, ..Usage::default() },
            source: UsageSource::Upstream,
            cost: Nanousd::new(1_500),
            owed: Nanousd::ZERO,
        }),
        task_id: None,
        traceparent: None,
    }
}

fn written(write: impl FnOnce(&mut Line)) -> Value {
    let mut text = Vec::new();
    Line::with(Level::Info, ACCESS, |line| {
        line.begin(UnixMs(1_769_860_800_023), Level::Info, ACCESS);
        write(line);
        text = line.finish().to_vec();
    });
    let text = String::from_utf8(text).expect("UTF-8");
    assert_eq!(text.matches('\n').count(), 1, "one line: {text:?}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text:?}"))
}

#[test]
fn an_access_line_says_what_is_known() {
    let line = written(|line| write_access(line, &finished()));
    let expected = serde_json::json!({
        "ts": "2026-01-31T12:00:00.023Z", "level": "info", "target": "access",
        "request_id": "req_00000000000000000000000000000001",
        "account_id": "acct_0000000000000001", "key_id": "key_0000000000000001",
        "client": "127.0.0.1",
        "method": "POST", "route": "/v1/chat/completions", "operation": "chat", "model": "m",
        "upstream": "u", "status": 200, "code": "", "stream": true, "bytes_in": 10,
        "bytes_out": 20, "duration_ms": 12.345, "ttfb_ms": 2.007, "input_tokens": 7,
        "output_tokens": 9, "usage_source": "upstream", "cost_usd": "0.0000015",
    });
    assert_eq!(line, expected);
}

#[test]
fn what_is_owed_stands_beside_what_was_charged() {
    let mut owing = finished();
    owing.settled = owing.settled.map(|it| Settled { owed: Nanousd::new(217_000), ..it });
    let line = written(|line| write_access(line, &owing));
    assert_eq!((&line["cost_usd"], &line["owed_usd"]), (&"0.0000015".into(), &"0.000217".into()));
    assert!(written(|line| write_access(line, &finished())).get("owed_usd").is_none());
}

#[test]
fn what_is_not_known_is_left_out() {
    let unknown = Finished {
        account_id: None,
        key_id: None,
        client: None,
        operation: None,
        ttfb: None,
        settled: None,
        ..finished()
    };
    let line = written(|line| write_access(line, &unknown));
    for name in ["account_id", "key_id", "client", "operation", "ttfb_ms", "cost_usd"] {
        assert!(line.get(name).is_none(), "{name} is in {line}");
    }
}

#[test]
fn values_from_outside_stay_inside_their_string() {
    for hostile in
        ["\",\"status\":200,\"x\":\"", "a\nb\r\n", "\u{1b}[2J\u{9b}2J\u{7f}\0", "\\", "Ω\u{2028}"]
    {
        let line = written(|line| line.text("method", hostile));
        assert_eq!(line["method"], hostile, "text comes back as it was");
        let line = written(|line| write_fields(line, &Some((hostile, hostile))));
        assert_eq!(line["fields"][hostile], hostile, "so do names and printed values");
    }
    let mut raw = Vec::new();
    Line::with(Level::Info, "\u{1b}\u{9b}\u{7f}", |line| raw = line.finish().to_vec());
    let control = String::from_utf8(raw).expect("UTF-8").trim_end().contains(char::is_control);
    assert!(!control, "no control character reaches a terminal");
}

#[test]
fn fields_of_a_record_have_an_object_of_their_own() {
    let fields: [(&str, kv::Value<'_>); 3] =
        [("ts", 7u64.into()), ("ok", true.into()), ("who", "x\"y".into())];
    let line = written(|line| write_fields(line, &fields));
    assert_eq!(line["fields"], serde_json::json!({"ts": 7, "ok": true, "who": "x\"y"}));
    let line = written(|line| write_fields(line, &None::<(&str, u64)>));
    assert!(line.get("fields").is_none(), "no empty object");
}

#[test]
fn only_our_own_lines_are_heard_below_warn() {
    log::set_max_level(LevelFilter::Trace);
    let heard = |target: &str, level| {
        Backend.enabled(&Metadata::builder().target(target).level(level).build())
    };
    assert!(heard("tollgate::gateway", Level::Trace));
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for entry in std::fs::read_dir(root.join("crates")).expect("the crates") {
        let name = entry.expect("an entry").file_name().into_string().expect("text");
        assert!(heard(&format!("tollgate_{name}::part"), Level::Trace), "{name} is one of ours");
    }
    assert!(heard("pingora_core::protocols", Level::Warn));
    assert!(!heard("pingora_core::protocols", Level::Info), "it may print headers");
    assert!(!heard("tollgate_like", Level::Info), "a target is compared whole");
}

/// A sink that hands over each write, and waits while `gate` is locked.
struct Sink(mpsc::Sender<Vec<u8>>, Arc<parking_lot::Mutex<()>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _open = self.1.lock();
        self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn queue(
    gather_for: Duration,
) -> (&'static LineQueue, mpsc::Receiver<Vec<u8>>, Arc<parking_lot::Mutex<()>>) {
    let queue: &'static LineQueue = Box::leak(Box::new(LineQueue::new(gather_for)));
    let (sender, receiver) = mpsc::channel();
    let gate = Arc::new(parking_lot::Mutex::new(()));
    let sink = Sink(sender, Arc::clone(&gate));
    std::thread::spawn(move || queue.write_to(sink));
    (queue, receiver, gate)
}

#[test]
fn lines_gather_into_one_write() {
    let (queue, batches, _) = queue(Duration::from_millis(200));
    for _ in 0..100 {
        queue.push(b"line\n", Urgency::Gather);
    }
    let batch = batches.recv_timeout(Duration::from_secs(5)).expect("a batch");
    assert_eq!(batch.len(), 500, "a hundred lines are one write");
}

#[test]
fn an_urgent_line_and_a_flush_do_not_wait_for_more() {
    let (queue, batches, _) = queue(Duration::from_secs(3_600));
    queue.push(b"quiet\n", Urgency::Gather);
    let early = batches.recv_timeout(Duration::from_millis(50));
    assert!(early.is_err(), "a quiet line waits for others: {early:?}");
    queue.push(b"loud\n", Urgency::AtOnce);
    let batch = batches.recv_timeout(Duration::from_secs(5)).expect("a batch");
    assert_eq!(batch, b"quiet\nloud\n", "a loud line is written at once, and in its place");
    queue.push(b"last\n", Urgency::Gather);
    queue.flush(Duration::from_secs(5));
    assert_eq!(batches.try_recv().as_deref(), Ok(&b"last\n"[..]), "all is written after a flush");
}

#[test]
fn a_sink_that_hangs_loses_lines_and_blocks_nobody() {
    let (queue, batches, gate) = queue(GATHER);
    let shut = gate.lock();
    let line = vec![b'x'; 1024];
    let started = Instant::now();
    for _ in 0..8_192 {
        queue.push(&line, Urgency::Gather);
    }
    queue.push(b"loud\n", Urgency::AtOnce);
    assert!(started.elapsed() < Duration::from_secs(5), "pushing does not wait for the sink");
    let dropped = queue.lines_dropped();
    assert!((2_048..8_192).contains(&dropped), "{dropped} of 8,192 lines were dropped");
    queue.flush(Duration::from_millis(10));
    drop(shut);
    queue.flush(Duration::from_secs(5));
    let all: Vec<u8> = batches.try_iter().flatten().collect();
    let text = String::from_utf8_lossy(&all);
    assert!(text.contains("loud\n"), "a warning has room of its own");
    // More than one line says so where the writer took a batch before all of them had come.
    let behind = text.split("\"lines\":").skip(1);
    let said = behind.filter_map(|rest| rest.split('}').next()?.parse::<u64>().ok()).sum::<u64>();
    assert_eq!(said, dropped, "the log says how many are missing");
}
