//! Invariants of every pair of dialects: a translated call is metered as an untranslated one, its customer
//! sees the usage that is charged, and neither depends on how the network splits the bytes.

use bytes::Bytes;
use serde_json::{Value, json};
use tollgate_money::money::Rate;
use tollgate_money::price::{Prices, Usage, UsageSource};

use super::meter::WRITER_BYTES_MAX;
use super::*;
use crate::limits::MissingUsage;

mod converse;
mod lowered;
mod pictures;
mod repricer;
mod upstream;

use repricer::PriceSheet;
use upstream::SeededNumbers;

/// A dialect on both of its sides, for tests: a new one is a row of [`TESTED`].
struct TestedDialect {
    operation: Operation,
    /// A request of a customer's, whose answer comes as events or not.
    request: fn(stream: bool) -> Value,
    /// The usage that a customer sees in a document or stream.
    shown_usage: fn(answer: &str, stream: bool) -> Option<Value>,
    /// Price that a customer computes from it, in nano-dollars.
    price: fn(usage: &Value, prices: &PriceSheet) -> u128,
    /// A `usage` as an upstream may report it.
    usage: fn(&mut SeededNumbers) -> Value,
    /// Answers of an upstream with this usage, whole and as events.
    document: fn(usage: &Value) -> String,
    stream: fn(usage: &Value) -> String,
    /// A stream with all that a dialect can say.
    rich_stream: fn() -> String,
    /// Text that ends a complete stream, and occurs in no other.
    end: &'static str,
}

static TESTED: &[TestedDialect] = &[
    TestedDialect {
        operation: Operation::Chat,
        request: |stream| {
            json!({"model": "m", "stream": stream, "stream_options": {"include_usage": true},
                "max_tokens": 60, "messages": [{"role": "user", "content": "hi"}]})
        },
        shown_usage: |answer, stream| last(answer, stream, &["/usage"]),
        price: repricer::chat,
        usage: upstream::chat_usage,
        document: upstream::chat_document,
        stream: upstream::chat_stream,
        rich_stream: upstream::rich_chat_stream,
        end: "data: [DONE]\n\n",
    },
    TestedDialect {
        operation: Operation::Messages,
        request: |stream| {
            json!({"model": "m", "stream": stream, "max_tokens": 60,
                "messages": [{"role": "user", "content": "hi"}]})
        },
        shown_usage: |answer, stream| last(answer, stream, &["/message/usage", "/usage"]),
        price: repricer::messages,
        usage: upstream::messages_usage,
        document: upstream::messages_document,
        stream: upstream::messages_stream,
        rich_stream: upstream::rich_messages_stream,
        end: "event: message_stop\n",
    },
    TestedDialect {
        operation: Operation::Responses,
        request: |stream| {
            json!({"model": "m", "stream": stream, "store": false, "max_output_tokens": 60,
                "input": [{"role": "user", "content": "hi"}]})
        },
        shown_usage: |answer, stream| last(answer, stream, &["/usage", "/response/usage"]),
        price: repricer::responses,
        usage: upstream::responses_usage,
        document: upstream::responses_document,
        stream: upstream::responses_stream,
        rich_stream: upstream::rich_responses_stream,
        end: "event: response.completed\n",
    },
    TestedDialect {
        operation: Operation::GenerateContent,
        request: |stream| {
            json!({"stream": stream, "generationConfig": {"maxOutputTokens": 60},
                "contents": [{"role": "user", "parts": [{"text": "hi"}]}]})
        },
        shown_usage: |answer, stream| last(answer, stream, &["/usageMetadata"]),
        price: repricer::gemini,
        usage: upstream::gemini_usage,
        document: upstream::gemini_document,
        stream: upstream::gemini_stream,
        rich_stream: upstream::rich_gemini_stream,
        end: "\"finishReason\":",
    },
];

/// The last usage at one of these paths, of a document or of a stream's events.
fn last(answer: &str, stream: bool, paths: &[&str]) -> Option<Value> {
    let documents: Vec<&str> = match stream {
        false => vec![answer],
        true => answer.lines().filter_map(|line| line.strip_prefix("data: ")).collect(),
    };
    let usage = |text: &&str| {
        let value: Value = serde_json::from_str(text).ok()?;
        paths.iter().filter_map(|path| value.pointer(path)).find(|usage| usage.is_object()).cloned()
    };
    documents.iter().rev().find_map(usage)
}

fn tested(operation: Operation) -> &'static TestedDialect {
    TESTED.iter().find(|it| it.operation == operation).expect("a row of its own")
}

/// Every cell that is translated and whose events are texts: its bridge, its customers and its upstreams.
/// `converse` has those of binary frames.
fn cells() -> impl Iterator<Item = (&'static Bridge, &'static TestedDialect, &'static TestedDialect)>
{
    BRIDGES
        .iter()
        .filter(|it| it.dialects() != [Dialect::Bedrock])
        .map(|it| (it, tested(it.customers.operation), tested(it.upstreams.operation)))
}

fn limits() -> ModelLimits {
    ModelLimits {
        input_tokens_max: 100_000,
        output_tokens_max: 1000,
        reasoning: false,
        translation: Some(Default::default()),
        ..ModelLimits::default()
    }
}

/// A customer's call over an upstream of another dialect, or of its own.
fn call(codec: &dyn Codec, request: &Value, limits: &ModelLimits) -> Box<dyn Call> {
    let mut request = request.clone();
    let is_named = codec.operation().names_model_in_path();
    let streams = is_named.then(|| request.as_object_mut()?.remove("stream"));
    let text = request.to_string();
    let object = Object::parse(text.as_bytes()).expect("JSON");
    let streams = streams.map(|stream| stream == Some(json!(true)));
    let request = match streams {
        Some(streams) => Request::JsonAt(object, ModelInPath { model: "m", streams }),
        None => Request::Json(object),
    };
    codec.read(&request, limits).unwrap_or_else(|error| panic!("{error:?}: {text}"))
}

fn framing(stream: bool) -> Framing {
    if stream { Framing::Sse } else { Framing::Json }
}

/// The customer's bytes for an answer in these pieces, and its meter.
fn relay<'a>(
    call: &dyn Call,
    stream: bool,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (String, Box<dyn Meter>) {
    let mut meter = call.meter(framing(stream));
    let mut out = Vec::new();
    for piece in pieces {
        out.extend_from_slice(&meter.relay(Bytes::copy_from_slice(piece)));
    }
    out.extend_from_slice(&meter.finish());
    // What is cut, and not translated, can end in the middle of a letter.
    (String::from_utf8_lossy(&out).into_owned(), meter)
}

// However a stream is cut.

#[test]
fn every_split_at_every_byte_gives_the_customer_the_same_bytes() {
    std::thread::scope(|scope| {
        for (bridge, customer, upstream) in cells() {
            scope.spawn(move || {
                let call = call(bridge, &(customer.request)(true), &limits());
                for line_end in ["\n", "\r\n", "\r"] {
                    let stream = (upstream.rich_stream)().replace('\n', line_end);
                    let bytes = stream.as_bytes();
                    let (whole, meter) = relay(call.as_ref(), true, [bytes]);
                    assert!(whole.contains(customer.end), "{bridge:?}: {whole}");
                    let used = meter.measure();
                    let same = |pieces: Vec<&[u8]>, what: &str| {
                        let (cut, meter) = relay(call.as_ref(), true, pieces);
                        assert_eq!(cut, whole, "{bridge:?} {line_end:?} {what}");
                        assert_eq!(meter.measure(), used, "{bridge:?} {line_end:?} {what}");
                    };
                    same(bytes.chunks(1).collect(), "byte for byte");
                    same(bytes.chunks(7).collect(), "by seven");
                    // Where lines end in two bytes, there is more to cut.
                    let step = if line_end == "\r\n" { 1 } else { 3 };
                    for at in (1..bytes.len()).step_by(step) {
                        same(vec![&bytes[..at], &bytes[at..]], &format!("at {at}"));
                    }
                }
            });
        }
    });
}

/// A stream that ends anywhere is metered as it is for a customer of the upstream's own dialect, and is
/// never taken for a whole one.
#[test]
fn a_stream_that_is_cut_is_metered_as_an_untranslated_one() {
    for (bridge, customer, upstream) in cells() {
        for reasoning in [false, true] {
            let limits = ModelLimits { reasoning, ..limits() };
            let translated = call(bridge, &(customer.request)(true), &limits);
            let native = call(bridge.upstreams.codec, &(upstream.request)(true), &limits);
            assert_eq!(translated.is_all_shown(), native.is_all_shown(), "{bridge:?}");
            let stream = (upstream.rich_stream)();
            for at in 0..stream.len() {
                let piece = &stream.as_bytes()[..at];
                let (out, ours) = relay(translated.as_ref(), true, [piece]);
                let (_, theirs) = relay(native.as_ref(), true, [piece]);
                let what = format!("{bridge:?} at {at}: {out}");
                // The prompts differ in their markup, and so does what is guessed of them.
                let output = |meter: &dyn Meter| {
                    let (usage, source) = meter.measure();
                    (Usage { input_tokens: 0, ..usage }, source, meter.relayed().output_tokens)
                };
                assert_eq!(output(ours.as_ref()), output(theirs.as_ref()), "{what}");
                assert_eq!(ours.has_failed(), theirs.has_failed(), "{what}");
                assert_eq!(ours.is_complete(), out.contains(customer.end), "{what}");
                assert!(!ours.is_complete() || theirs.is_complete(), "{what}");
            }
        }
    }
}

// What customers read is what they are charged.

/// Usages that are tried in every cell, as documents and as streams: so many each time, and the rest when
/// somebody has the minutes.
const USAGES: std::ops::Range<u64> = 0..5_000;
const MORE_USAGES: std::ops::Range<u64> = 5_000..100_000;

/// Prices that no two units share, with digits down to a femto-dollar.
const PRICES: PriceSheet = PriceSheet {
    input: 3_000_001,
    cache_read: 300_007,
    cache_write: 3_750_013,
    cache_write_1h: 6_000_011,
    audio_input: 32_000_003,
    image_input: 5_000_017,
    video_input: 7_000_027,
    output: 15_000_019,
    audio_output: 64_000_021,
    web_search: 10_000_000_000_001,
};

/// The prices of [`PRICES`], as the gateway has them.
fn prices() -> Prices {
    let rate = |femto: u64| Rate::from_femtousd(i64::try_from(femto).expect("a rate"));
    Prices {
        input: rate(PRICES.input),
        cache_read: rate(PRICES.cache_read),
        cache_write: rate(PRICES.cache_write),
        cache_write_1h: rate(PRICES.cache_write_1h),
        audio_input: rate(PRICES.audio_input),
        image_input: rate(PRICES.image_input),
        video_input: rate(PRICES.video_input),
        output: rate(PRICES.output),
        audio_output: rate(PRICES.audio_output),
        web_search: rate(PRICES.web_search),
        ..Prices::default()
    }
}

/// Asserts that what the customer reads, repriced, is the charge.
fn check_identity(
    customer: &TestedDialect,
    upstream: &TestedDialect,
    call: &dyn Call,
    stream: bool,
    usage: &Value,
) {
    let answer = if stream { (upstream.stream)(usage) } else { (upstream.document)(usage) };
    let (out, meter) = relay(call, stream, [answer.as_bytes()]);
    let (used, source) = meter.measure();
    assert_eq!(source, UsageSource::Upstream, "{answer}");
    let charge = u128::try_from(prices().cost(&used).get()).expect("an amount");
    let shown_usage =
        (customer.shown_usage)(&out, stream).unwrap_or_else(|| panic!("no usage: {out}"));
    let what = format!("told {shown_usage}\nof {answer}\nmetered {used:?}");
    assert_eq!((customer.price)(&shown_usage, &PRICES), charge, "{what}");
}

fn check_identities(stream: bool, seeds: &std::ops::Range<u64>) {
    std::thread::scope(|scope| {
        for (bridge, customer, upstream) in cells() {
            scope.spawn(move || {
                let call = call(bridge, &(customer.request)(stream), &limits());
                for seed in seeds.clone() {
                    let usage = (upstream.usage)(&mut SeededNumbers(seed));
                    check_identity(customer, upstream, call.as_ref(), stream, &usage);
                }
            });
        }
    });
}

#[test]
fn the_usage_of_a_document_is_the_charge() {
    check_identities(false, &USAGES);
}

#[test]
fn the_usage_of_a_stream_is_the_charge() {
    check_identities(true, &USAGES);
}

#[test]
#[ignore = "takes minutes without optimisation: cargo test -p tollgate-protocols --lib -- --ignored"]
fn the_usage_is_the_charge_a_hundred_thousand_times() {
    check_identities(false, &MORE_USAGES);
    check_identities(true, &MORE_USAGES);
}

/// An upstream that reports nothing that can be true is billed by what was seen, or, where not all is
/// shown and the operator wants it so, by the most that the call can be: the customer reads the one that
/// they are billed by.
#[test]
fn without_a_report_customers_read_what_they_are_billed_by() {
    for (bridge, customer, upstream) in cells() {
        use MissingUsage::{Bound, Estimate};
        for (reasoning, missing_usage) in [(false, Bound), (true, Bound), (true, Estimate)] {
            let limits = ModelLimits { reasoning, missing_usage, ..limits() };
            let is_bound = reasoning && missing_usage == Bound;
            for stream in [false, true] {
                for usage in
                    [Value::Null, json!("none"), json!({"prompt_tokens": -5, "input_tokens": -5})]
                {
                    let call = call(bridge, &(customer.request)(stream), &limits);
                    let mut answer = if stream {
                        (upstream.stream)(&json!({}))
                    } else {
                        (upstream.document)(&json!({}))
                    };
                    answer = answer.replace(r#""usage":{}"#, &format!(r#""usage":{usage}"#));
                    answer = answer.replace(r#""usage":{"output_tokens":1}"#, r#""usage":null"#);
                    let (out, meter) = relay(call.as_ref(), stream, [answer.as_bytes()]);
                    let what = format!("{bridge:?} {stream} {reasoning}\n{answer}\n{out}");
                    let (seen, source) = meter.measure();
                    assert!(meter.is_complete(), "{what}");
                    assert_eq!(source, UsageSource::Estimated, "{what}");
                    assert_eq!(call.is_all_shown(), !reasoning, "{what}");
                    let billed = if is_bound { call.max_usage() } else { seen };
                    let shown_usage = (customer.shown_usage)(&out, stream).expect(&what);
                    let charge = u128::try_from(prices().cost(&billed).get()).expect("an amount");
                    assert_eq!((customer.price)(&shown_usage, &PRICES), charge, "{what}");
                }
            }
        }
    }
}

// Upstreams that lie.

/// The cells of upstreams of one dialect.
fn cells_over(
    operation: Operation,
) -> impl Iterator<Item = (&'static Bridge, &'static TestedDialect)> {
    cells().filter(move |(_, _, it)| it.operation == operation).map(|(it, to, _)| (it, to))
}

/// Nothing of a call is made up, mixed with another, or silently left out: the stream breaks there.
#[test]
fn calls_without_a_name_break_the_stream() {
    let data =
        |events: &[Value]| events.iter().map(|it| format!("data: {it}\n\n")).collect::<String>();
    let chunk = |calls: Value| json!({"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": calls}}]});
    let tool = json!({"type": "tool_use", "id": "t", "name": "f", "input": {}});
    let start = |index: u64, block: &Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let input = |index: u64| {
        json!({"type": "content_block_delta", "index": index,
        "delta": {"type": "input_json_delta", "partial_json": "{}"}})
    };
    let began = json!({"type": "message_start", "message": {"id": "m"}});
    let item = |name: &str| {
        json!({"type": "response.output_item.added",
        "item": {"type": "function_call", "call_id": "t", "name": name}})
    };
    let arguments = json!({"type": "response.function_call_arguments.delta", "delta": "{}"});
    let rows = [
        (
            Operation::Chat,
            "no name",
            vec![chunk(json!([{"index": 0, "id": "t", "function": {"arguments": "{}"}}]))],
        ),
        (
            Operation::Chat,
            "an empty name",
            vec![chunk(json!([{"index": 0, "id": "t", "function": {"name": ""}}]))],
        ),
        (
            Operation::Chat,
            "an index that jumps",
            vec![
                chunk(json!([{"index": 0, "id": "t", "function": {"name": "f"}}])),
                chunk(json!([{"index": 5, "function": {"arguments": "{}"}}])),
            ],
        ),
        (
            Operation::Messages,
            "no name",
            vec![began.clone(), start(0, &json!({"type": "tool_use", "id": "t"}))],
        ),
        (Operation::Messages, "input of no call", vec![began.clone(), input(0)]),
        (
            Operation::Messages,
            "an index that jumps",
            vec![began, start(0, &tool), start(1, &tool), input(2)],
        ),
        (Operation::Responses, "no name", vec![item("")]),
        (Operation::Responses, "input of no call", vec![arguments]),
    ];
    for (operation, what, events) in rows {
        for (bridge, customer) in cells_over(operation) {
            let stream = format!("{}{}", data(&events), (tested(operation).rich_stream)());
            let call = call(bridge, &(customer.request)(true), &limits());
            let (out, meter) = relay(call.as_ref(), true, [stream.as_bytes()]);
            assert!(!out.contains(customer.end), "{bridge:?} {what}: {out}");
            assert!(!meter.is_complete(), "{bridge:?} {what}: {out}");
            // What the upstream reports behind it is known nevertheless.
            assert_eq!(meter.measure().1, UsageSource::Upstream, "{bridge:?} {what}");
            let delivered = meter.given_up().expect("it was broken off");
            assert!(delivered.output_tokens <= 4, "{bridge:?} {what}: {delivered:?}");
        }
    }
}

/// Whoever gives up an answer says what of it was delivered: of a stream what came before, of a document
/// nothing.
#[test]
fn an_answer_that_is_given_up_says_what_was_delivered() {
    let text = json!({"id": "c", "choices": [{"index": 0, "delta": {"content": "one two three"}}]});
    let call_of_none = |delta: &str| json!([{"index": 0, "id": "t", "function": {"arguments": delta.repeat(400)}}]);
    let broken =
        json!({"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": call_of_none("[1]")}}]});
    let rest = (tested(Operation::Chat).rich_stream)();
    for (bridge, customer) in cells_over(Operation::Chat) {
        let customer_call = |stream| call(bridge, &(customer.request)(stream), &limits());
        let shown = format!("data: {text}\n\n");
        let (_, meter) = relay(customer_call(true).as_ref(), true, [shown.as_bytes()]);
        let expected = meter.relayed();
        assert_eq!(meter.given_up(), None, "{bridge:?}: the upstream has stopped");
        let stream = format!("{shown}data: {broken}\n\n{rest}");
        let (_, meter) = relay(customer_call(true).as_ref(), true, [stream.as_bytes()]);
        assert_eq!(meter.given_up(), Some(expected), "{bridge:?}");
        assert_eq!(meter.relayed(), expected, "{bridge:?}");
        let message =
            json!({"role": "assistant", "content": "one", "tool_calls": call_of_none("1")});
        let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
        let document = json!({"id": "c", "choices": [choice],
            "usage": {"prompt_tokens": 9, "completion_tokens": 7}});
        let (_, meter) =
            relay(customer_call(false).as_ref(), false, [document.to_string().as_bytes()]);
        assert_eq!(meter.given_up(), Some(Usage::ZERO), "{bridge:?}");
    }
}

/// A second beginning and a second end say nothing, and nothing behind an end is believed.
#[test]
fn an_answer_begins_once_and_ends_once() {
    for (bridge, customer, upstream) in cells() {
        let stream = (upstream.rich_stream)();
        let call = call(bridge, &(customer.request)(true), &limits());
        let events = |text: &str| relay(call.as_ref(), true, [text.as_bytes()]);
        let (whole, meter) = events(&stream);
        let used = meter.measure();
        let dear = (upstream.stream)(&(upstream.usage)(&mut SeededNumbers(7)));
        let (out, meter) = events(&format!("{stream}{dear}"));
        assert_eq!(out, whole, "{bridge:?}");
        assert_eq!(meter.measure(), used, "{bridge:?}: what comes behind the end costs nothing");
        assert!(meter.is_complete(), "{bridge:?}");
        let first = stream.find("\n\n").expect("an event") + 2;
        let (out, _) = events(&format!("{}{stream}", &stream[..first]));
        assert_eq!(out, whole, "{bridge:?}");
        if upstream.operation != Operation::Chat {
            let (out, _) = events(&stream[first..]);
            let shape =
                |text: &str| text.lines().filter(|line| line.starts_with("event: ")).count();
            assert_eq!(
                shape(&out),
                shape(&whole),
                "{bridge:?}: a beginning that is left out is made up"
            );
        }
    }
}

/// Memory does not grow with the length of a stream; where the last event repeats everything, the stream ends
/// before it exceeds one answer's share.
#[test]
fn a_stream_without_end_takes_no_memory_without_end() {
    const STREAM_BYTES: usize = 20 << 20;
    for (bridge, customer, upstream) in cells() {
        let (begin, delta) = endless(upstream.operation);
        let call = call(bridge, &(customer.request)(true), &limits());
        for (what, delta) in delta {
            let mut meter = call.meter(Framing::Sse);
            drop(meter.relay(Bytes::from(begin.clone())));
            let delta = Bytes::from(delta);
            let (mut held_bytes_max, mut written) = (0, 0);
            for _ in 0..STREAM_BYTES / delta.len() {
                written += meter.relay(delta.clone()).len();
                held_bytes_max = held_bytes_max.max(meter.held_bytes());
            }
            let what =
                format!("{bridge:?} {what}: {held_bytes_max} bytes are held, {written} written");
            // A call goes whole to customers who know no pieces of one.
            let repeats = customer.operation == Operation::Responses
                || customer.operation == Operation::GenerateContent && what.contains("input");
            let bytes_max = if repeats { WRITER_BYTES_MAX + 2 * delta.len() } else { 1 << 20 };
            assert!(held_bytes_max <= bytes_max, "{what}");
            assert!(repeats || what.contains("sign") || written > STREAM_BYTES / 2, "{what}");
        }
    }
}

/// Events with which a stream begins, and events that can follow each other without end.
fn endless(operation: Operation) -> (String, Vec<(&'static str, String)>) {
    let text = "every quarter of an hour ".repeat(2_000);
    let data =
        |events: &[Value]| events.iter().map(|it| format!("data: {it}\n\n")).collect::<String>();
    match operation {
        Operation::Chat => {
            let delta = |delta: Value| {
                data(&[json!({"id": "c", "choices": [{"index": 0, "delta": delta}]})])
            };
            let call =
                json!([{"index": 0, "id": "t", "function": {"name": "f", "arguments": &text}}]);
            (
                delta(json!({"content": ""})),
                vec![
                    ("text", delta(json!({"content": &text}))),
                    ("thoughts", delta(json!({"reasoning_content": &text}))),
                    ("input", delta(json!({"tool_calls": call}))),
                ],
            )
        }
        Operation::Messages => {
            let began = json!({"type": "message_start", "message": {"id": "m"}});
            let tool = json!({"type": "content_block_start", "index": 0, "content_block":
                {"type": "tool_use", "id": "t", "name": "f", "input": {}}});
            let delta = |delta: Value| {
                data(&[json!({"type": "content_block_delta", "index": 0, "delta": delta})])
            };
            (
                data(&[began, tool]),
                vec![
                    ("input", delta(json!({"type": "input_json_delta", "partial_json": &text}))),
                    ("text", delta(json!({"type": "text_delta", "text": &text}))),
                    ("thoughts", delta(json!({"type": "thinking_delta", "thinking": &text}))),
                    ("signatures", delta(json!({"type": "signature_delta", "signature": &text}))),
                ],
            )
        }
        Operation::GenerateContent => {
            let part = |part: Value| {
                data(&[json!({"candidates": [{"content": {"parts": [part]}}], "responseId": "r"})])
            };
            (
                part(json!({"text": ""})),
                vec![
                    ("text", part(json!({"text": &text}))),
                    ("thoughts", part(json!({"text": &text, "thought": true}))),
                ],
            )
        }
        _ => {
            let begin = data(&[
                json!({"type": "response.created", "response": {"id": "r"}}),
                json!({"type": "response.output_item.added", "item":
                    {"type": "function_call", "call_id": "t", "name": "f"}}),
            ]);
            let delta = |kind: &str| {
                data(&[json!({"type": format!("response.{kind}.delta"), "delta": &text})])
            };
            (
                begin,
                vec![
                    ("input", delta("function_call_arguments")),
                    ("text", delta("output_text")),
                    ("thoughts", delta("reasoning_summary_text")),
                ],
            )
        }
    }
}

/// Models write arguments that are no JSON, and answers break off in the middle of them.
#[test]
fn arguments_that_are_no_json_stay_what_they_are() {
    let broken = r#"{"city": "Zür"#;
    let call_of =
        json!([{"id": "t", "type": "function", "function": {"name": "f", "arguments": broken}}]);
    let document = json!({"id": "c", "usage": {"prompt_tokens": 3, "completion_tokens": 4},
        "choices": [{"message": {"tool_calls": call_of}, "finish_reason": "length"}]});
    let item = json!({"type": "function_call", "call_id": "t", "name": "f", "arguments": broken});
    let response = json!({"id": "r", "status": "incomplete", "output": [item],
        "incomplete_details": {"reason": "max_output_tokens"},
        "usage": {"input_tokens": 3, "output_tokens": 4}});
    for (operation, document) in [(Operation::Chat, document), (Operation::Responses, response)] {
        for (bridge, customer) in cells_over(operation) {
            let call = call(bridge, &(customer.request)(false), &limits());
            let (out, meter) = relay(call.as_ref(), false, [document.to_string().as_bytes()]);
            assert!(meter.is_complete(), "{bridge:?}");
            let answer: Value =
                serde_json::from_str(&out).unwrap_or_else(|_| panic!("{bridge:?}: {out}"));
            if customer.operation == Operation::Messages {
                let input = &answer["content"][0]["input"];
                assert_eq!(input, &json!({"INVALID_JSON": broken}), "{bridge:?}: {out}");
            } else {
                assert!(out.contains(&json!(broken).to_string()), "{bridge:?}: {out}");
            }
        }
    }
}
