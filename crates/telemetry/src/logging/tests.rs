use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::line::{Line, name};
use super::queue::{LineQueue, Urgency};
use super::*;
use crate::finished::RequestSettlement;
use tollgate_ledger::{AccountId, KeyId, RequestId};
use tollgate_money::money::Nanousd;
use tollgate_money::price::{Usage, UsageSource};
use tollgate_protocols::Operation;
use tollgate_types::clock::UnixMs;

fn finished() -> FinishedRequest<'static> {
    FinishedRequest {
        account_id: Some(AccountId::from_number(1)),
        key_id: Some(KeyId::from_number(1)),
        client: Some([127, 0, 0, 1].into()),
        operation: Some(Operation::Chat),
        streamed: true,
        bytes_in: 10,
        bytes_out: 20,
        ended_at: NOW,
        duration: Duration::from_micros(12_345),
        ttfb: Some(Duration::from_micros(2_007)),
        settled: Some(RequestSettlement {
            usage: Usage { input_tokens: 7, output_tokens: 9, ..Usage::default() },
            source: UsageSource::Upstream,
            cost: Nanousd::new(1_500),
            owed: Nanousd::ZERO,
        }),
        ..crate::finished::tests::finished()
    }
}

/// Time at which [`finished`] ended.
const NOW: UnixMs = UnixMs(1_769_860_800_023);

fn text_of(now: UnixMs, target: &str, write: impl FnOnce(&mut Line)) -> String {
    let mut text = Vec::new();
    Line::with(now, Level::Info, target, |line| {
        write(line);
        text = line.finish().to_vec();
    });
    String::from_utf8(text).expect("UTF-8")
}

fn written(write: impl FnOnce(&mut Line)) -> Value {
    let text = text_of(NOW, ACCESS, write);
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

/// An access line as it was written when each field went through the formatting of `core`.
fn formatted(finished: &FinishedRequest<'_>) -> String {
    let escaped = |text: &str| -> String {
        let each = text.chars().map(|character| match character {
            '"' => "\\\"".to_owned(),
            '\\' => "\\\\".to_owned(),
            '\n' => "\\n".to_owned(),
            control if control.is_control() => format!("\\u00{:02x}", u32::from(control)),
            other => other.to_string(),
        });
        each.collect()
    };
    let (second, ms) = (finished.ended_at.0 / 1000, finished.ended_at.0 % 1000);
    let second = UnixMs(second * 1000).to_rfc3339();
    let mut json = format!("{{\"ts\":\"{}.{ms:03}Z\"", second.trim_end_matches('Z'));
    let mut raw = |name: &str, value: String| {
        write!(json, ",\"{name}\":{value}").expect("memory");
    };
    let text = |value: &dyn fmt::Display| format!("\"{}\"", escaped(&value.to_string()));
    let milliseconds = |value: Duration| {
        let micros = u64::try_from(value.as_micros()).unwrap_or(u64::MAX);
        format!("{}.{:03}", micros / 1000, micros % 1000)
    };
    raw("level", text(&"info"));
    raw("target", text(&ACCESS));
    raw("request_id", text(&finished.request_id));
    finished.account_id.iter().for_each(|id| raw("account_id", text(id)));
    finished.key_id.iter().for_each(|id| raw("key_id", text(id)));
    finished.client.iter().for_each(|client| raw("client", text(client)));
    raw("method", text(&finished.method));
    raw("route", text(&finished.route));
    finished.operation.iter().for_each(|it| raw("operation", text(&it.as_str())));
    raw("model", text(&finished.model));
    finished.requested_model.iter().for_each(|model| raw("asked_model", text(model)));
    raw("upstream", text(&finished.upstream));
    finished.upstream_request_id.iter().for_each(|id| raw("upstream_request_id", text(id)));
    raw("status", finished.status.to_string());
    raw("code", text(&finished.error_code));
    raw("stream", finished.streamed.to_string());
    raw("bytes_in", finished.bytes_in.to_string());
    raw("bytes_out", finished.bytes_out.to_string());
    raw("duration_ms", milliseconds(finished.duration));
    finished.ttfb.iter().for_each(|ttfb| raw("ttfb_ms", milliseconds(*ttfb)));
    finished.max_tokens_clamped.iter().for_each(|it| raw("max_tokens_clamped", it.to_string()));
    if let Some(settled) = &finished.settled {
        let used = settled.usage.units().filter(|(_, count)| *count > 0);
        used.for_each(|(unit, count)| raw(unit.name, count.to_string()));
        raw("usage_source", text(&settled.source.as_str()));
        raw("cost_usd", text(&settled.cost));
        if settled.owed > Nanousd::ZERO {
            raw("owed_usd", text(&settled.owed));
        }
    }
    json + "}\n"
}

/// A text of some of the characters that are not written as they are, and of others.
fn odd_text(random: &mut fastrand::Rng) -> String {
    const ODD: [char; 16] = [
        '"', '\\', '\n', '\r', '\0', '\u{1b}', '\u{7f}', '\u{80}', '\u{9f}', '\u{a0}', 'é', 'Ω',
        '\u{2028}', '🦀', '/', '\u{fffd}',
    ];
    let odd = random.u32(..3);
    let one = |random: &mut fastrand::Rng| match random.u32(..4) < odd {
        true => ODD[random.usize(..ODD.len())],
        false => random.char(' '..='~'),
    };
    (0..random.usize(..40)).map(|_| one(random)).collect()
}

#[test]
fn a_line_is_byte_for_byte_what_formatting_makes_of_it() {
    use tollgate_money::price::Unit;

    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..20_000 {
        let texts: [String; 6] = std::array::from_fn(|_| odd_text(&mut rng));
        let [method, route, model, requested, upstream, id] = texts.each_ref().map(String::as_str);
        let any = |random: &mut fastrand::Rng| random.u64(..) >> random.u32(..64);
        let mut usage = Usage::ZERO;
        for unit in Unit::ALL {
            usage[*unit] = if rng.u32(..8) == 0 { any(&mut rng) } else { 0 };
        }
        let amount = |random: &mut fastrand::Rng| Nanousd::new((any(random) >> 1).cast_signed());
        let took =
            |random: &mut fastrand::Rng| Duration::new(any(random), random.u32(..999_999_999));
        let (cost, owed) = (amount(&mut rng), amount(&mut rng));
        let settled = RequestSettlement { usage, source: UsageSource::Estimated, cost, owed };
        let odd = FinishedRequest {
            request_id: RequestId::from_number(rng.u128(..)),
            account_id: rng.bool().then(|| AccountId::from_number(any(&mut rng))),
            key_id: rng.bool().then(|| KeyId::from_number(any(&mut rng))),
            client: match rng.u32(..4) {
                0 => None,
                1 => Some(std::net::Ipv6Addr::from(rng.u128(..)).into()),
                2 => Some(std::net::Ipv4Addr::from(rng.u32(..)).to_ipv6_mapped().into()),
                _ => Some(std::net::Ipv4Addr::from(rng.u32(..)).into()),
            },
            method,
            route,
            operation: rng.bool().then_some(Operation::Messages),
            model,
            requested_model: rng.bool().then_some(requested),
            upstream,
            upstream_request_id: rng.bool().then_some(id),
            status: rng.u16(..),
            error_code: if rng.bool() { "BadGateway" } else { "" },
            streamed: rng.bool(),
            bytes_in: any(&mut rng),
            bytes_out: any(&mut rng),
            // Up to the year 9999, and in one second often enough that its text is used again.
            ended_at: UnixMs(
                NOW.0 + rng.u64(..3_000) + rng.u64(..2) * rng.u64(..200_000_000_000_000),
            ),
            duration: took(&mut rng),
            ttfb: rng.bool().then(|| took(&mut rng)),
            settled: rng.bool().then_some(settled),
            held: Nanousd::ZERO,
            max_tokens_clamped: rng.bool().then(|| any(&mut rng)),
            task_id: None,
            traceparent: None,
        };
        let line = text_of(odd.ended_at, ACCESS, |line| write_access(line, &odd));
        assert_eq!(line, formatted(&odd));
    }
}

#[test]
fn what_is_owed_stands_beside_what_was_charged() {
    let mut owing = finished();
    owing.settled = owing.settled.map(|it| RequestSettlement { owed: Nanousd::new(217_000), ..it });
    let line = written(|line| write_access(line, &owing));
    assert_eq!((&line["cost_usd"], &line["owed_usd"]), (&"0.0000015".into(), &"0.000217".into()));
    assert!(written(|line| write_access(line, &finished())).get("owed_usd").is_none());
}

#[test]
fn what_is_not_known_is_left_out() {
    let unknown = FinishedRequest {
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
        let line = written(|line| line.text(name!("method"), hostile));
        assert_eq!(line["method"], hostile, "text comes back as it was");
        let line = written(|line| write_fields(line, &Some((hostile, hostile))));
        assert_eq!(line["fields"][hostile], hostile, "so do names and printed values");
    }
    let raw = text_of(NOW, "\u{1b}\u{9b}\u{7f}", |_| ());
    let control = raw.trim_end().contains(char::is_control);
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
    let enabled = |target: &str, level| {
        Backend.enabled(&Metadata::builder().target(target).level(level).build())
    };
    assert!(enabled("tollgate::gateway", Level::Trace));
    let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for entry in std::fs::read_dir(crates).expect("the crates") {
        let name = entry.expect("an entry").file_name().into_string().expect("text");
        let target = format!("tollgate_{}::part", name.replace('-', "_"));
        assert!(enabled(&target, Level::Trace), "{name} is one of ours");
    }
    assert!(enabled("pingora_core::protocols", Level::Warn));
    assert!(!enabled("pingora_core::protocols", Level::Info), "it may print headers");
    assert!(!enabled("tollgate_like", Level::Info), "a target is compared whole");
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
    let reported =
        behind.filter_map(|rest| rest.split('}').next()?.parse::<u64>().ok()).sum::<u64>();
    assert_eq!(reported, dropped, "the log says how many are missing");
}
