//! Cost of reading requests and metering answers, step by step: instructions and allocator calls, counted
//! with callgrind.
//!
//! `cargo bench -p tollgate-protocols` counts everything, `-- NAME` the parts whose names begin so, and
//! `-- --keep DIRECTORY` leaves callgrind's files for `callgrind_annotate`. Each part is run so many
//! times and then twice as many, and the difference is what is printed: what a program begins with is
//! in neither. A stream's figures are those of one event.
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::error::Error;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;

use bytes::Bytes;
use serde_json::{Value, json};
use tollgate_protocols::json::{Object, VALUES_MAX};
use tollgate_protocols::limits::{ModelLimits, TranslationTarget};
use tollgate_protocols::{
    Call, Codec, Dialect, Framing, ModelInPath, Operation, Request, bridge, codec,
};

#[path = "agent/mod.rs"]
mod agent;
#[path = "callgrind/mod.rs"]
mod callgrind;

use agent::{AgentDialect, AgentRequest};
use callgrind::CallgrindCounts;

/// The allocator of the gateway's own build.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Documents from this length on take so long below valgrind that few runs of them must do.
const LARGE_BYTES: usize = 64 * 1024;
/// Runs of a step in the first measurement.
const RUNS: usize = 100;
const RUNS_OF_LARGE: usize = 3;
/// Inputs of a request for embeddings, and vectors of its answer.
const VECTORS: usize = 8;
/// Events of a stream that carry text.
const EVENTS: usize = 100;

type BenchFailure = Box<dyn Error>;

/// A part that is counted.
struct ReadingPart {
    name: &'static str,
    /// Makes what is read.
    document: fn() -> Bytes,
    work: Work,
}

/// Work measured on a document.
#[derive(Clone, Copy)]
enum Work {
    /// A request's JSON is checked.
    Parse,
    /// Its fields are judged, of a document that was checked.
    Judge(Operation),
    /// The model is renamed for an upstream.
    Rename(Operation),
    /// An answer in one piece is relayed and measured.
    Answer(Operation),
    /// An answer in pieces of a network's size is relayed and measured.
    Pieces(Operation),
    /// Events are relayed, each by itself, and what was relayed is asked for each time.
    Stream(Operation),
    /// A request of a customer who speaks the first is judged and written for an upstream that speaks the
    /// second. They are the same where nothing is translated.
    Ask(Operation, Operation),
    /// An answer in one piece comes back from there.
    AnswerOver(Operation, Operation),
    /// Events come back from there, each by itself.
    StreamOver(Operation, Operation),
}

fn main() -> Result<(), BenchFailure> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--run", name, times] => {
            let part = parts()
                .into_iter()
                .chain(agent_parts())
                .find(|part| part.name == *name)
                .ok_or("no such part")?;
            part.run(times.parse()?)
        }
        ["--keep", directory, rest @ ..] => count_all(rest, Path::new(directory)),
        rest => count_all(rest, &PathBuf::from(env!("CARGO_TARGET_TMPDIR"))),
    }
}

fn count_all(names: &[&str], directory: &Path) -> Result<(), BenchFailure> {
    println!("{:<34}{:>10}{:>14}{:>13}", "part", "bytes", "instructions", "allocations");
    for part in parts().into_iter().chain(agent_parts()) {
        if !names.is_empty() && !names.iter().any(|name| part.name.starts_with(name)) {
            continue;
        }
        let bytes = (part.document)().len();
        let times = if bytes < LARGE_BYTES { RUNS } else { RUNS_OF_LARGE };
        let once = count(part.name, times, directory)?;
        let twice = count(part.name, 2 * times, directory)?;
        let share = |once: u64, twice: u64| {
            twice.saturating_sub(once) as f64 / (times * part.steps()) as f64
        };
        let instructions = share(once.instructions, twice.instructions);
        let allocations = share(once.allocations, twice.allocations);
        println!("{:<34}{bytes:>10}{instructions:>14.0}{allocations:>13.2}", part.name);
    }
    Ok(())
}

/// Instructions and calls of the allocator of a process that runs the part so many times.
fn count(name: &str, times: usize, directory: &Path) -> Result<CallgrindCounts, BenchFailure> {
    let file = directory.join(format!("{}.{times}.callgrind", name.replace([' ', ',', ':'], "-")));
    let done = Command::new("valgrind")
        .args(["-q", "--tool=callgrind"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(std::env::current_exe()?)
        .args(["--run", name, &times.to_string()])
        .status()?;
    if !done.success() {
        return Err("valgrind did not run the part".into());
    }
    let counted = CallgrindCounts::read(&std::fs::read_to_string(&file)?);
    counted.ok_or_else(|| "callgrind has counted nothing".into())
}

impl ReadingPart {
    /// Divisor of one run's figures.
    fn steps(&self) -> usize {
        match self.work {
            Work::Stream(_) | Work::StreamOver(..) => EVENTS,
            _ => 1,
        }
    }

    fn run(&self, times: usize) -> Result<(), BenchFailure> {
        let document = &(self.document)();
        let parse = || Object::parse_within(document, VALUES_MAX).map_err(|it| it.to_string());
        let request = |operation| request_of(operation, parse());
        match self.work {
            Work::Parse => {
                for _ in 0..times {
                    black_box(parse()?);
                }
            }
            Work::Judge(operation) => {
                let (codec, request) = (codec_of(operation)?, request(operation)?);
                for _ in 0..times {
                    black_box(codec.read(&request, &limits())?);
                }
            }
            Work::Rename(operation) => {
                let call = codec_of(operation)?.read(&request(operation)?, &limits())?;
                for _ in 0..times {
                    black_box(call.splice("gpt-4o-mini-2024-07-18").apply(document));
                }
            }
            Work::Answer(operation) => {
                meter(operation, operation, times, Framing::Json, std::slice::from_ref(document))?
            }
            Work::Ask(customers, upstreams) => {
                let (codec, request) = (over(customers, upstreams)?, request(customers)?);
                for _ in 0..times {
                    let call = codec.read(&request, &limits())?;
                    black_box(call.splice("the-upstream-s-name-for-it").apply(document));
                }
            }
            Work::AnswerOver(customers, upstreams) => {
                let pieces = std::slice::from_ref(document);
                meter(customers, upstreams, times, Framing::Json, pieces)?;
            }
            Work::Pieces(operation) => {
                /// Bytes that the gateway reads from an upstream at once.
                const PIECE_BYTES: usize = 16 * 1024;
                let starts = (0..document.len()).step_by(PIECE_BYTES);
                let piece = |at: usize| document.slice(at..document.len().min(at + PIECE_BYTES));
                let pieces: Vec<Bytes> = starts.map(piece).collect();
                meter(operation, operation, times, Framing::Json, &pieces)?;
            }
            Work::Stream(_) | Work::StreamOver(..) => {
                let (customers, upstreams) = match self.work {
                    Work::StreamOver(customers, upstreams) => (customers, upstreams),
                    Work::Stream(operation) => (operation, operation),
                    _ => return Err("no stream".into()),
                };
                let text = std::str::from_utf8(document)?;
                let events: Vec<Bytes> = text
                    .split_inclusive("\n\n")
                    .map(|event| Bytes::copy_from_slice(event.as_bytes()))
                    .collect();
                meter(customers, upstreams, times, Framing::Sse, &events)?;
            }
        }
        Ok(())
    }
}

/// Relays an answer as the gateway does, from its first piece to the bill.
fn meter(
    customers: Operation,
    upstreams: Operation,
    times: usize,
    framing: Framing,
    pieces: &[Bytes],
) -> Result<(), BenchFailure> {
    let request_body = request_body(customers, framing == Framing::Sse);
    let request = Object::parse(&request_body).map_err(|it| it.to_string())?;
    let codec = over(customers, upstreams)?;
    let call: Box<dyn Call> = codec.read(&Request::Json(request), &limits())?;
    for _ in 0..times {
        let mut meter = call.meter(framing);
        for piece in pieces {
            black_box(meter.relay(piece.clone()));
            black_box(meter.relayed());
        }
        black_box(meter.finish());
        assert!(meter.is_complete() && !meter.has_failed(), "the answer is a good one");
        black_box(meter.is_above_limits());
        black_box(meter.measure());
    }
    Ok(())
}

fn dialect_of(operation: Operation) -> Dialect {
    match operation {
        Operation::Messages => Dialect::Anthropic,
        Operation::GenerateContent => Dialect::Gemini,
        _ => Dialect::Openai,
    }
}

fn codec_of(operation: Operation) -> Result<&'static dyn Codec, BenchFailure> {
    codec(operation, dialect_of(operation)).ok_or_else(|| "no codec".into())
}

/// A request of this operation, with the model in its path where its dialect has it there.
fn request_of(
    operation: Operation,
    body: Result<Object<'_>, String>,
) -> Result<Request<'_>, BenchFailure> {
    Ok(match operation {
        Operation::GenerateContent => {
            Request::JsonAt(body?, ModelInPath { model: "gemini-2.5-pro", streams: false })
        }
        _ => Request::Json(body?),
    })
}

/// The codec between customers of one dialect and upstreams of another, or of the same.
fn over(customers: Operation, upstreams: Operation) -> Result<&'static dyn Codec, BenchFailure> {
    if customers == upstreams {
        return codec_of(customers);
    }
    let bridge = bridge(customers, dialect_of(upstreams), &[upstreams]);
    bridge.ok_or_else(|| "no bridge".into())
}

fn limits() -> ModelLimits {
    ModelLimits {
        input_tokens_max: 10_000_000,
        output_tokens_max: 16_384,
        reasoning: false,
        translation: Some(TranslationTarget::default()),
        ..ModelLimits::default()
    }
}

/// The request whose answer is metered.
fn request_body(operation: Operation, stream: bool) -> Vec<u8> {
    let request_body = match operation {
        Operation::Embeddings => json!({"model": "m", "input": vec!["text"; VECTORS]}),
        Operation::Responses => {
            json!({"model": "m", "input": "text", "store": false, "stream": stream})
        }
        Operation::Messages => json!({
            "model": "m", "messages": [{"role": "user", "content": "text"}], "max_tokens": 4096,
            "stream": stream
        }),
        Operation::Chat if stream => json!({
            "model": "m", "messages": [{"role": "user", "content": "text"}], "max_tokens": 4096,
            "stream": true, "stream_options": {"include_usage": true}
        }),
        _ => json!({
            "model": "m", "messages": [{"role": "user", "content": "text"}], "max_tokens": 4096
        }),
    };
    request_body.to_string().into_bytes()
}

fn parts() -> Vec<ReadingPart> {
    use Operation::{Chat, Embeddings, Messages, Responses};
    let part = |name, document, work| ReadingPart { name, document, work };
    let request: fn() -> Bytes =
        || chat_asking(&"Every quarter of an hour, from six to nine. ".repeat(16));
    let chinese: fn() -> Bytes =
        || chat_asking(&"每一刻钟有一班车,从早上六点到晚上九点。".repeat(280));
    vec![
        part("request: parse", request, Work::Parse),
        part("request: judge", request, Work::Judge(Chat)),
        part("request: rename", request, Work::Rename(Chat)),
        part("chinese: parse", chinese, Work::Parse),
        part("chinese: judge", chinese, Work::Judge(Chat)),
        part("picture: parse", chat_about_picture, Work::Parse),
        part("picture: judge", chat_about_picture, Work::Judge(Chat)),
        part("values: parse", many_values, Work::Parse),
        part("values: judge", many_values, Work::Judge(Chat)),
        part("answer: chat", || chat_answer(&sentences(12)), Work::Answer(Chat)),
        part("answer: chat, dense", dense_chat_answer, Work::Answer(Chat)),
        part("answer: chat, 16 KiB", || chat_answer(&sentences(280)), Work::Answer(Chat)),
        part(
            "answer: chinese",
            || chat_answer(&"每一刻钟有一班车。".repeat(560)),
            Work::Answer(Chat),
        ),
        part("answer: messages", messages_answer, Work::Answer(Messages)),
        part("answer: responses", responses_answer, Work::Answer(Responses)),
        part("answer: embeddings", embeddings_answer, Work::Pieces(Embeddings)),
        part("event: chat", || chat_stream(" hour"), Work::Stream(Chat)),
        part("event: chat, escaped", || chat_stream("\"hour\"\n"), Work::Stream(Chat)),
        part("event: chinese", || chat_stream("一刻钟"), Work::Stream(Chat)),
        part("event: messages", messages_stream, Work::Stream(Messages)),
        part("event: responses", responses_stream, Work::Stream(Responses)),
        part("ask: chat", request, Work::Ask(Chat, Chat)),
        part("ask: chat over messages", request, Work::Ask(Chat, Messages)),
        part("ask: chat over responses", request, Work::Ask(Chat, Responses)),
        part("ask: messages over chat", messages_asking, Work::Ask(Messages, Chat)),
        part("ask: responses over chat", responses_asking, Work::Ask(Responses, Chat)),
        part("ask: 16 KiB, chat", long, Work::Ask(Chat, Chat)),
        part("ask: 16 KiB, chat over messages", long, Work::Ask(Chat, Messages)),
        part("over: chat over messages", messages_answer, Work::AnswerOver(Chat, Messages)),
        part("over: messages over chat", chat_sentences, Work::AnswerOver(Messages, Chat)),
        part("over: responses over chat", chat_sentences, Work::AnswerOver(Responses, Chat)),
        part("event over: chat over messages", messages_stream, Work::StreamOver(Chat, Messages)),
        part(
            "event over: chat over responses",
            responses_stream,
            Work::StreamOver(Chat, Responses),
        ),
        part("event over: messages over chat", hourly, Work::StreamOver(Messages, Chat)),
        part("event over: responses over chat", hourly, Work::StreamOver(Responses, Chat)),
    ]
}

/// A request of a coding agent, with a screenshot or without.
fn agent_asking(operation: Operation, has_picture: bool) -> Bytes {
    let dialect = match operation {
        Operation::Messages => AgentDialect::Messages,
        Operation::Responses => AgentDialect::Responses,
        Operation::GenerateContent => AgentDialect::Gemini,
        _ => AgentDialect::Chat,
    };
    let (model, is_streamed, seed) = ("gpt-4o-mini", true, 40);
    AgentRequest { dialect, model, is_streamed, has_picture, seed }.body().into()
}

/// Requests of agents in each dialect, without a screenshot and with one.
fn agent_parts() -> Vec<ReadingPart> {
    use Operation::{Chat, GenerateContent, Messages, Responses};
    let part = |name, document, work| ReadingPart { name, document, work };
    vec![
        part("agent: chat, parse", || agent_asking(Chat, false), Work::Parse),
        part("agent: chat, judge", || agent_asking(Chat, false), Work::Judge(Chat)),
        part("agent: messages, parse", || agent_asking(Messages, false), Work::Parse),
        part("agent: messages, judge", || agent_asking(Messages, false), Work::Judge(Messages)),
        part("agent: responses, parse", || agent_asking(Responses, false), Work::Parse),
        part("agent: responses, judge", || agent_asking(Responses, false), Work::Judge(Responses)),
        part("agent: gemini, parse", || agent_asking(GenerateContent, false), Work::Parse),
        part(
            "agent: gemini, judge",
            || agent_asking(GenerateContent, false),
            Work::Judge(GenerateContent),
        ),
        part("screenshot: chat, parse", || agent_asking(Chat, true), Work::Parse),
        part("screenshot: chat, judge", || agent_asking(Chat, true), Work::Judge(Chat)),
        part("screenshot: messages, parse", || agent_asking(Messages, true), Work::Parse),
        part("screenshot: messages, judge", || agent_asking(Messages, true), Work::Judge(Messages)),
        part("screenshot: responses, parse", || agent_asking(Responses, true), Work::Parse),
        part(
            "screenshot: responses, judge",
            || agent_asking(Responses, true),
            Work::Judge(Responses),
        ),
        part("screenshot: gemini, parse", || agent_asking(GenerateContent, true), Work::Parse),
        part(
            "screenshot: gemini, judge",
            || agent_asking(GenerateContent, true),
            Work::Judge(GenerateContent),
        ),
    ]
}

fn chat_sentences() -> Bytes {
    chat_answer(&sentences(12))
}

fn hourly() -> Bytes {
    chat_stream(" hour")
}

/// A chat of 16 KiB with some turns, as agents have it.
fn long() -> Bytes {
    let message = |at: usize| {
        let role = if at.is_multiple_of(2) { "user" } else { "assistant" };
        json!({"role": role, "content": "Every quarter of an hour, from six to nine. ".repeat(23)})
    };
    let messages: Vec<Value> = (0..16).map(message).collect();
    bytes_of(&json!({"model": "gpt-4o-mini", "messages": messages, "max_tokens": 256}))
}

fn messages_asking() -> Bytes {
    let question = "Every quarter of an hour, from six to nine. ".repeat(16);
    bytes_of(&json!({
        "model": "gpt-4o-mini", "max_tokens": 256, "temperature": 0.2, "stream": false,
        "system": "You are a travel assistant. Answer in two sentences, without a greeting.",
        "messages": [{"role": "user", "content": question}],
    }))
}

fn responses_asking() -> Bytes {
    let question = "Every quarter of an hour, from six to nine. ".repeat(16);
    bytes_of(&json!({
        "model": "gpt-4o-mini", "max_output_tokens": 256, "temperature": 0.2, "stream": false,
        "instructions": "You are a travel assistant. Answer in two sentences, without a greeting.",
        "input": [{"role": "user", "content": question}], "store": false,
    }))
}

fn bytes_of(value: &Value) -> Bytes {
    value.to_string().into()
}

fn chat_asking(question: &str) -> Bytes {
    let system = "You are a travel assistant. Answer in two sentences, without a greeting.";
    bytes_of(&json!({
        "model": "gpt-4o-mini",
        "messages": [
            {"role": "system", "content": system},
            {"role": "user", "content": question},
        ],
        "temperature": 0.2,
        "max_tokens": 256,
        "stream": false,
    }))
}

/// A chat about a picture of 3 MiB, in base64.
fn chat_about_picture() -> Bytes {
    const DATA_BYTES: usize = 4 * 1024 * 1024;
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut state = 1_u32;
    let mut letter = |_| {
        // Numerical Recipes, "Quick and dirty generators".
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        char::from(LETTERS[(state >> 26) as usize])
    };
    let data: String = (0..DATA_BYTES).map(&mut letter).collect();
    let url = format!("data:image/png;base64,{data}");
    bytes_of(&json!({
        "model": "gpt-4o-mini",
        "messages": [{"role": "user", "content": [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": url}},
        ]}],
    }))
}

/// A conversation with some 10,000 values.
fn many_values() -> Bytes {
    let message = |at: usize| {
        let role = if at.is_multiple_of(2) { "user" } else { "assistant" };
        json!({"role": role, "content": format!("The {at}th question, and an answer.")})
    };
    let messages: Vec<Value> = (0..2_000).map(message).collect();
    let numbers: Vec<usize> = (0..4_000).collect();
    bytes_of(&json!({"model": "gpt-4o-mini", "messages": messages, "metadata": {"a": numbers}}))
}

fn sentences(count: usize) -> String {
    "Take the first one, which arrives at eight past eleven.\n".repeat(count)
}

fn chat_usage() -> Value {
    json!({
        "prompt_tokens": 231, "completion_tokens": 187, "total_tokens": 418,
        "prompt_tokens_details": {"cached_tokens": 128, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0, "audio_tokens": 0,
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
        },
    })
}

/// A chat's answer in OpenAI's way of writing: over many lines, each with its indent.
fn chat_answer(text: &str) -> Bytes {
    let answer = json!({
        "id": "chatcmpl-CE0y3Zq3Yx1sVbW0u8w1R2t3U4v5W",
        "object": "chat.completion",
        "created": 1_758_300_000,
        "model": "gpt-4o-mini-2024-07-18",
        "choices": [{
            "index": 0,
            "message": {
                "role": "assistant", "content": text, "refusal": null, "annotations": [],
            },
            "logprobs": null,
            "finish_reason": "stop",
        }],
        "usage": chat_usage(),
        "service_tier": "default",
        "system_fingerprint": "fp_560af6e559",
    });
    format!("{answer:#}\n").into()
}

/// Such an answer in the way of most others: without white space, and of a KiB.
fn dense_chat_answer() -> Bytes {
    let pretty: Value = serde_json::from_slice(&chat_answer(&sentences(8))).unwrap_or_default();
    bytes_of(&pretty)
}

fn messages_answer() -> Bytes {
    bytes_of(&json!({
        "model": "claude-sonnet-4-5-20250929", "id": "msg_01XFDUDYJgAACzvnptvVoYEL",
        "type": "message", "role": "assistant",
        "content": [{"type": "text", "text": sentences(12)}],
        "stop_reason": "end_turn", "stop_sequence": null,
        "usage": {
            "input_tokens": 231, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            "output_tokens": 187, "service_tier": "standard",
        },
    }))
}

fn responses_usage() -> Value {
    json!({
        "input_tokens": 231, "input_tokens_details": {"cached_tokens": 128},
        "output_tokens": 187, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 418,
    })
}

fn responses_answer() -> Bytes {
    let answer = json!({
        "id": "resp_67ccd2bed1ec8190b14f964abc0542670bb6a6b452d3795b", "object": "response",
        "created_at": 1_741_476_542, "status": "completed", "error": null,
        "incomplete_details": null, "instructions": null, "max_output_tokens": null,
        "model": "gpt-4.1-2025-04-14",
        "output": [{
            "type": "message", "id": "msg_67ccd2bf17f0819081ff3bb2cf6508e60bb6a6b452d3795b",
            "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": sentences(12), "annotations": []}],
        }],
        "parallel_tool_calls": true, "previous_response_id": null,
        "reasoning": {"effort": null, "summary": null}, "store": false, "temperature": 1.0,
        "text": {"format": {"type": "text"}}, "tool_choice": "auto", "tools": [], "top_p": 1.0,
        "truncation": "disabled", "usage": responses_usage(), "user": null, "metadata": {},
    });
    format!("{answer:#}").into()
}

fn embeddings_answer() -> Bytes {
    let vector: Vec<f64> = (0..1_536).map(|at| f64::from(at) * 0.000_017 - 0.013).collect();
    let data: Vec<Value> = (0..VECTORS)
        .map(|index| json!({"object": "embedding", "index": index, "embedding": vector}))
        .collect();
    bytes_of(&json!({
        "object": "list", "data": data, "model": "text-embedding-3-small",
        "usage": {"prompt_tokens": 80, "total_tokens": 80},
    }))
}

fn chat_stream(text: &str) -> Bytes {
    let chunk = |choices: Value, usage: Value| {
        let chunk = json!({
            "id": "chatcmpl-CE0y3Zq3Yx1sVbW0u8w1R2t3U4v5W", "object": "chat.completion.chunk",
            "created": 1_758_300_000, "model": "gpt-4o-mini-2024-07-18",
            "service_tier": "default", "system_fingerprint": "fp_560af6e559",
            "choices": choices, "usage": usage, "obfuscation": "aB3dE5",
        });
        format!("data: {chunk}\n\n")
    };
    let choice = |delta: Value, reason: Value| json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": reason}]);
    let mut stream = String::new();
    for _ in 0..EVENTS - 3 {
        stream += &chunk(choice(json!({"content": text}), Value::Null), Value::Null);
    }
    stream += &chunk(choice(json!({}), "stop".into()), Value::Null);
    stream += &chunk(json!([]), chat_usage());
    stream += "data: [DONE]\n\n";
    stream.into()
}

fn named_event(name: &str, mut data: Value) -> String {
    data["type"] = name.into();
    format!("event: {name}\ndata: {data}\n\n")
}

fn messages_stream() -> Bytes {
    let usage = json!({"input_tokens": 231, "cache_read_input_tokens": 0, "output_tokens": 1});
    let message = json!({
        "id": "msg_01XFDUDYJgAACzvnptvVoYEL", "type": "message", "role": "assistant",
        "content": [], "model": "claude-sonnet-4-5-20250929", "usage": usage,
    });
    let mut stream = named_event("message_start", json!({"message": message}));
    let block = json!({"type": "text", "text": ""});
    stream += &named_event("content_block_start", json!({"index": 0, "content_block": block}));
    for _ in 0..EVENTS - 5 {
        let delta = json!({"type": "text_delta", "text": " hour"});
        stream += &named_event("content_block_delta", json!({"index": 0, "delta": delta}));
    }
    stream += &named_event("content_block_stop", json!({"index": 0}));
    let delta = json!({"stop_reason": "end_turn", "stop_sequence": null});
    let usage = json!({"output_tokens": 187});
    stream += &named_event("message_delta", json!({"delta": delta, "usage": usage}));
    stream += &named_event("message_stop", json!({}));
    stream.into()
}

fn responses_stream() -> Bytes {
    let item = "msg_67ccd2bf17f0819081ff3bb2cf6508e60bb6a6b452d3795b";
    let mut stream = String::new();
    for at in 0..EVENTS - 1 {
        stream += &named_event(
            "response.output_text.delta",
            json!({
                "sequence_number": at, "item_id": item, "output_index": 0, "content_index": 0,
                "delta": " hour", "logprobs": [], "obfuscation": "aB3dE5",
            }),
        );
    }
    let response = json!({"id": "resp_1", "status": "completed", "usage": responses_usage()});
    stream += &named_event("response.completed", json!({"response": response}));
    stream.into()
}
