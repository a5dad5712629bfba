//! The same for upstreams whose events come in binary frames: Bedrock's Converse API.

use serde_json::{Value, json};

use super::upstream::{SeededNumbers, bent, present};
use super::*;
use crate::event_stream::tests::frame;

/// The cells over this API, with their customers.
fn converse_cells() -> impl Iterator<Item = (&'static Bridge, &'static TestedDialect)> {
    BRIDGES
        .iter()
        .filter(|it| it.dialects() == [Dialect::Bedrock])
        .map(|it| (it, tested(it.customers.operation)))
}

fn event(name: &str, payload: &Value) -> Vec<u8> {
    let headers =
        [(":event-type", name), (":content-type", "application/json"), (":message-type", "event")];
    frame(&headers, payload.to_string().as_bytes())
}

fn delta(index: u64, delta: &Value) -> Vec<u8> {
    event("contentBlockDelta", &json!({"contentBlockIndex": index, "delta": delta, "p": "abc"}))
}

fn call_of(index: u64, name: &str) -> Vec<u8> {
    let start = json!({"toolUse": {"toolUseId": "t", "name": name}});
    event("contentBlockStart", &json!({"contentBlockIndex": index, "start": start}))
}

fn metadata(usage: &Value) -> Vec<u8> {
    event("metadata", &json!({"usage": usage, "metrics": {"latencyMs": 1}}))
}

/// A stream with all kinds of events of the API.
fn rich_stream() -> Vec<Vec<u8>> {
    let think = |more: Value| delta(0, &json!({"reasoningContent": more}));
    let stop = |index: u64| event("contentBlockStop", &json!({"contentBlockIndex": index}));
    vec![
        event("messageStart", &json!({"role": "assistant"})),
        think(json!({"text": "I should ask."})),
        think(json!({"signature": "c2ln"})),
        stop(0),
        delta(1, &json!({"text": "Gr\u{fc}\u{df}e \u{1f600}\n\n"})),
        delta(1, &json!({"text": "data: so"})),
        stop(1),
        call_of(2, "f"),
        delta(2, &json!({"toolUse": {"input": "{\"a\":"}})),
        delta(2, &json!({"toolUse": {"input": "1}"}})),
        stop(2),
        event("messageStop", &json!({"stopReason": "tool_use"})),
        metadata(&json!({"inputTokens": 125, "outputTokens": 60, "cacheReadInputTokens": 51})),
    ]
}

fn stream_with(usage: &Value) -> Vec<u8> {
    [
        event("messageStart", &json!({"role": "assistant"})),
        delta(0, &json!({"text": "Hi"})),
        event("messageStop", &json!({"stopReason": "end_turn"})),
        metadata(usage),
    ]
    .concat()
}

fn document_with(usage: &Value) -> Vec<u8> {
    let message = json!({"role": "assistant", "content": [{"text": "Hi"}]});
    json!({"output": {"message": message}, "stopReason": "end_turn", "usage": usage})
        .to_string()
        .into_bytes()
}

fn any_usage(chance: &mut SeededNumbers) -> Value {
    let mut usage = present(&[
        ("inputTokens", Some(chance.count().max(1))),
        ("outputTokens", Some(chance.count().max(1))),
        ("totalTokens", Some(chance.count())),
        ("cacheReadInputTokens", chance.maybe()),
        ("cacheWriteInputTokens", chance.maybe()),
    ]);
    if chance.is(2) {
        usage["cacheDetails"] = json!([{"ttl": "1h", "inputTokens": chance.count()},
            {"ttl": "5m", "inputTokens": chance.count()}]);
    }
    bent(usage, chance)
}

/// The customer's bytes for events in these pieces, and the meter.
fn relay_frames<'a>(
    call: &dyn Call,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (String, Box<dyn Meter>) {
    let mut meter = call.meter(Framing::EventStream);
    let mut out = Vec::new();
    for piece in pieces {
        out.extend_from_slice(&meter.relay(Bytes::copy_from_slice(piece)));
    }
    out.extend_from_slice(&meter.finish());
    (String::from_utf8(out).expect("UTF-8"), meter)
}

#[test]
fn every_split_at_every_byte_gives_the_customer_the_same_bytes() {
    let stream = rich_stream().concat();
    for (bridge, customer) in converse_cells() {
        let call = call(bridge, &(customer.request)(true), &limits());
        let (whole, meter) = relay_frames(call.as_ref(), [&stream[..]]);
        assert!(whole.contains(customer.end) && meter.is_complete(), "{bridge:?}: {whole}");
        let used = meter.measure();
        assert_eq!((used.0.input_tokens, used.0.output_tokens), (125, 60), "{bridge:?}");
        let same = |pieces: Vec<&[u8]>, what: &str| {
            let (cut, meter) = relay_frames(call.as_ref(), pieces);
            assert_eq!(cut, whole, "{bridge:?} {what}");
            assert_eq!(meter.measure(), used, "{bridge:?} {what}");
        };
        same(stream.chunks(1).collect(), "byte for byte");
        for at in 1..stream.len() {
            same(vec![&stream[..at], &stream[at..]], &format!("at {at}"));
        }
    }
}

/// A stream that ends anywhere is never taken for a whole one, and costs what its whole frames show.
#[test]
fn a_stream_that_is_cut_has_no_end_and_costs_what_was_shown() {
    let frames = rich_stream();
    let stream = frames.concat();
    // Behind this all has been said, and only what was used is missing.
    let content_bytes: usize = frames[..frames.len() - 1].iter().map(Vec::len).sum();
    for (bridge, customer) in converse_cells() {
        let call = call(bridge, &(customer.request)(true), &limits());
        let mut shown = 0;
        for at in 0..stream.len() {
            let (out, meter) = relay_frames(call.as_ref(), [&stream[..at]]);
            let (usage, source) = meter.measure();
            assert_eq!(source, UsageSource::Estimated, "{bridge:?} at {at}");
            assert!(usage.output_tokens >= shown, "{bridge:?} at {at}");
            shown = usage.output_tokens;
            assert_eq!(usage.input_tokens, call.min_usage().input_tokens, "{bridge:?} at {at}");
            assert_eq!(meter.is_complete(), at == content_bytes, "{bridge:?} at {at}");
            assert_eq!(
                out.contains(customer.end),
                at == content_bytes,
                "{bridge:?} at {at}: {out}"
            );
        }
        assert!(shown > 8, "{bridge:?}: {shown}");
    }
}

#[test]
fn no_bit_of_a_stream_can_change_unseen() {
    let stream = rich_stream().concat();
    for (bridge, customer) in converse_cells() {
        let call = call(bridge, &(customer.request)(true), &limits());
        for at in 0..stream.len() {
            let mut changed = stream.clone();
            changed[at] ^= 1 << (at % 8);
            let (out, meter) = relay_frames(call.as_ref(), [&changed[..]]);
            assert!(
                !out.contains(customer.end) && !meter.is_complete(),
                "{bridge:?} at {at}: {out}"
            );
            assert!(!meter.has_failed(), "{bridge:?} at {at}: what was shown is charged");
        }
        let text = b"data: {\"kind\":\"event\",\"name\":\"messageStop\"}\n\n";
        for framing in [Framing::Sse, Framing::EventStream] {
            let mut meter = call.meter(framing);
            drop(meter.relay(Bytes::from_static(text)));
            assert!(meter.finish().is_empty() && !meter.is_complete(), "events are frames here");
        }
    }
}

#[test]
fn the_usage_is_the_charge() {
    for (bridge, customer) in converse_cells() {
        for stream in [false, true] {
            let call = call(bridge, &(customer.request)(stream), &limits());
            for seed in USAGES {
                let usage = any_usage(&mut SeededNumbers(seed));
                let (out, meter) = if stream {
                    relay_frames(call.as_ref(), [&stream_with(&usage)[..]])
                } else {
                    relay(call.as_ref(), false, [&document_with(&usage)[..]])
                };
                let (used, source) = meter.measure();
                assert_eq!(source, UsageSource::Upstream, "{usage}");
                let charge = u128::try_from(prices().cost(&used).get()).expect("an amount");
                let shown_usage = (customer.shown_usage)(&out, stream).expect("a usage");
                let what = format!("{bridge:?} told {shown_usage} of {usage}");
                assert_eq!((customer.price)(&shown_usage, &PRICES), charge, "{what}");
            }
        }
    }
}

#[test]
fn without_a_report_customers_read_what_they_are_billed_by() {
    for (bridge, customer) in converse_cells() {
        for (reasoning, stream) in [(false, false), (false, true), (true, false), (true, true)] {
            let missing_usage = MissingUsage::Bound;
            let limits = ModelLimits { reasoning, missing_usage, ..limits() };
            for usage in [Value::Null, json!("none"), json!({"inputTokens": -5})] {
                let call = call(bridge, &(customer.request)(stream), &limits);
                let (out, meter) = if stream {
                    relay_frames(call.as_ref(), [&stream_with(&usage)[..]])
                } else {
                    relay(call.as_ref(), false, [&document_with(&usage)[..]])
                };
                let what = format!("{bridge:?} {stream} {reasoning} {usage}\n{out}");
                let (seen, source) = meter.measure();
                assert!(meter.is_complete(), "{what}");
                assert_eq!(source, UsageSource::Estimated, "{what}");
                let billed = if reasoning { call.max_usage() } else { seen };
                let charge = u128::try_from(prices().cost(&billed).get()).expect("an amount");
                let shown_usage = (customer.shown_usage)(&out, stream).expect(&what);
                assert_eq!((customer.price)(&shown_usage, &PRICES), charge, "{what}");
            }
        }
    }
}

/// Nothing of a call is made up, mixed with another, or silently left out: the stream breaks there.
#[test]
fn calls_without_a_name_break_the_stream() {
    let input = |index: u64| delta(index, &json!({"toolUse": {"input": "{}"}}));
    for (what, begun) in [
        ("no name", call_of(9, "")),
        ("input of no call", input(9)),
        ("input of another call", [call_of(8, "f"), input(9)].concat()),
        ("a block that nobody asked for", delta(9, &json!({"image": {}}))),
    ] {
        for (bridge, customer) in converse_cells() {
            let stream = [begun.clone(), rich_stream().concat()].concat();
            let call = call(bridge, &(customer.request)(true), &limits());
            let (out, meter) = relay_frames(call.as_ref(), [&stream[..]]);
            assert!(!out.contains(customer.end), "{bridge:?} {what}: {out}");
            assert!(!meter.is_complete(), "{bridge:?} {what}: {out}");
            // What the upstream reports behind it is billed nevertheless.
            assert_eq!(meter.measure().1, UsageSource::Upstream, "{bridge:?} {what}");
        }
    }
}

#[test]
fn an_answer_begins_once_and_ends_once() {
    let frames = rich_stream();
    let stream = frames.concat();
    for (bridge, customer) in converse_cells() {
        let call = call(bridge, &(customer.request)(true), &limits());
        let (whole, meter) = relay_frames(call.as_ref(), [&stream[..]]);
        let used = meter.measure();
        let dear = stream_with(&json!({"inputTokens": 90_000, "outputTokens": 90_000}));
        let (out, meter) = relay_frames(call.as_ref(), [&[stream.clone(), dear].concat()[..]]);
        assert_eq!((&out, meter.measure()), (&whole, used), "{bridge:?}: nothing behind the end");
        let twice = [frames[0].clone(), stream.clone()].concat();
        assert_eq!(relay_frames(call.as_ref(), [&twice[..]]).0, whole, "{bridge:?}");
        let (out, meter) = relay_frames(call.as_ref(), [&stream[frames[0].len()..]]);
        assert!(meter.is_complete() && out.contains(customer.end), "{bridge:?}: {out}");
    }
}

/// Memory does not grow with the length of a stream.
#[test]
fn a_stream_without_end_takes_no_memory_without_end() {
    const STREAM_BYTES: usize = 20 << 20;
    let text = "every quarter of an hour ".repeat(2_000);
    for (bridge, customer) in converse_cells() {
        let call = call(bridge, &(customer.request)(true), &limits());
        for (what, more) in [
            ("text", delta(8, &json!({"text": &text}))),
            ("thoughts", delta(8, &json!({"reasoningContent": {"text": &text}}))),
            ("signatures", delta(8, &json!({"reasoningContent": {"signature": &text}}))),
            ("input", delta(7, &json!({"toolUse": {"input": &text}}))),
            ("text that waits", delta(8, &json!({"text": &text}))),
        ] {
            let mut meter = call.meter(Framing::EventStream);
            drop(meter.relay(Bytes::from(call_of(7, "f"))));
            if !["input", "text that waits"].contains(&what) {
                let stop = event("contentBlockStop", &json!({"contentBlockIndex": 7}));
                drop(meter.relay(Bytes::from(stop)));
            }
            let more = Bytes::from(more);
            let mut held_bytes_max = 0;
            for _ in 0..STREAM_BYTES / more.len() {
                drop(meter.relay(more.clone()));
                held_bytes_max = held_bytes_max.max(meter.held_bytes());
            }
            // A call goes whole to customers who know no pieces of one.
            let repeats = customer.operation == Operation::Responses
                || customer.operation == Operation::GenerateContent && what == "input"
                || what == "text that waits";
            let bytes_max = if repeats { WRITER_BYTES_MAX + 2 * more.len() } else { 1 << 20 };
            assert!(
                held_bytes_max <= bytes_max,
                "{bridge:?} {what}: {held_bytes_max} bytes are held"
            );
        }
    }
}
