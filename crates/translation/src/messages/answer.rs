//! A whole message: from an upstream, and for a customer.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::call_input;
use crate::dialect::{AnswerFrame, MalformedAnswer};
use crate::failure;
use crate::json::{self, BorrowedStr, Members};
use crate::part::{AnswerPart, Counts, FailureKind, Stop, UpstreamFailure};
use crate::seal::{self, Maker};
use crate::usage;

/// A block of a message, with the fields of all of its types.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WireBlock<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: BorrowedStr<'a>,
    #[serde(borrow)]
    pub(super) text: BorrowedStr<'a>,
    #[serde(borrow)]
    pub(super) thinking: BorrowedStr<'a>,
    #[serde(borrow)]
    pub(super) signature: BorrowedStr<'a>,
    #[serde(borrow)]
    pub(super) data: BorrowedStr<'a>,
    #[serde(borrow)]
    pub(super) id: BorrowedStr<'a>,
    #[serde(borrow)]
    pub(super) name: BorrowedStr<'a>,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireMessageAnswer<'a> {
    #[serde(borrow, default)]
    id: BorrowedStr<'a>,
    #[serde(borrow, default)]
    content: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    stop_reason: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    stop_sequence: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// The types of blocks that have words in other dialects.
pub(super) const BLOCKS: [&str; 4] = ["text", "thinking", "redacted_thinking", "tool_use"];

/// Reads a `stop_reason`. A model that made calls stops for their results unless the reason says otherwise.
pub(super) fn stop<'a>(
    reason: &str,
    sequence: Option<BorrowedStr<'a>>,
    has_calls: bool,
) -> Stop<'a> {
    match reason {
        "stop_sequence" => Stop::Sequence(sequence.map(|text| text.0)),
        "tool_use" => Stop::Tools,
        "max_tokens" | "model_context_window_exceeded" => Stop::Length,
        "refusal" => Stop::Refused,
        "pause_turn" | "compaction" => Stop::Paused,
        _ if has_calls => Stop::Tools,
        _ => Stop::Done,
    }
}

pub(super) fn read(body: &[u8]) -> Result<Vec<AnswerPart<'_>>, MalformedAnswer> {
    let wire: WireMessageAnswer<'_> =
        json::parse(body).map_err(|error| MalformedAnswer(format!("no message: {error}")))?;
    let mut out = vec![AnswerPart::Begin { id: wire.id.0, counts: Counts::default() }];
    if let Some(error) = wire.error.filter(|error| error.get() != "null") {
        out.push(AnswerPart::Error(failure(error)));
        return Ok(out);
    }
    let mut has_calls = false;
    for raw in wire.content {
        let block: WireBlock<'_> = match serde_json::from_str(raw.get()) {
            Ok(block) => block,
            Err(error) => match json::kind(raw.get()) {
                Some(kind) if !BLOCKS.contains(&&*kind) => continue,
                _ => return Err(MalformedAnswer(format!("no block of a message: {error}"))),
            },
        };
        match &*block.kind.0 {
            "text" => out.push(AnswerPart::Text(block.text.0)),
            "thinking" => {
                if !block.thinking.0.is_empty() {
                    out.push(AnswerPart::Reasoning(block.thinking.0));
                }
                out.push(AnswerPart::Seal(seal::wrap(Maker::Messages, &block.signature.0).into()));
            }
            "redacted_thinking" => {
                out.push(AnswerPart::Seal(
                    seal::wrap(Maker::MessagesRedacted, &block.data.0).into(),
                ));
            }
            "tool_use" => {
                has_calls = true;
                let (id, name) = (block.id.0, block.name.0);
                out.push(AnswerPart::ToolCall { id, name, seal: None });
                out.extend(block.input.map(|input| AnswerPart::Input(input.get().into())));
            }
            // Blocks of tools that the upstream runs, compactions, and what is new.
            _ => {}
        }
    }
    let reason = wire.stop_reason.unwrap_or_default();
    out.push(AnswerPart::Stop(stop(&reason.0, wire.stop_sequence, has_calls)));
    out.push(AnswerPart::End(Counts::default()));
    Ok(out)
}

/// Reads an error that comes with a successful status.
pub(super) fn failure(error: &RawValue) -> UpstreamFailure {
    let value = serde_json::json!({"error": json::read::<serde_json::Value>(error.get())});
    let status = match value["error"]["type"].as_str() {
        // Both are told to try again later; 529 is no status that other dialects know.
        Some("overloaded_error" | "rate_limit_error") => 429,
        Some("invalid_request_error") => 400,
        _ => 500,
    };
    failure::of_error(status, &value)
}

/// Writes the `usage` object of messages.
pub(super) fn usage(counts: &Counts, out: &mut Vec<u8>) {
    let mut usage = Members::object(out);
    usage.integer(out, "input_tokens", counts.input_uncached());
    let written = counts.cache_write.saturating_add(counts.cache_write_1h);
    usage.integer(out, "cache_creation_input_tokens", written);
    usage.integer(out, "cache_read_input_tokens", counts.cache_read);
    usage.key(out, "cache_creation");
    usage::cache_creation(counts, out);
    usage.integer(out, "output_tokens", counts.output_total());
    if counts.input_uncached() > counts.input {
        usage.key(out, "input_tokens_details");
        let mut details = Members::object(out);
        usage::media_input(&mut details, counts, out);
        details.end(out);
    }
    usage.key(out, "output_tokens_details");
    let mut details = Members::object(out);
    details.integer(out, "thinking_tokens", counts.reasoning);
    usage::counted(&mut details, "audio_tokens", counts.audio_output, out);
    details.end(out);
    if counts.web_searches > 0 {
        usage::searches(&mut usage, counts, out);
    } else {
        usage.raw(out, "server_tool_use", "null");
    }
    usage.raw(out, "service_tier", "\"standard\"");
    usage.raw(out, "inference_geo", "null");
    usage.end(out);
}

/// Name of the reason why the model stopped.
pub(super) fn stop_reason(stop: &Stop<'_>) -> &'static str {
    match stop {
        Stop::Done => "end_turn",
        Stop::Sequence(_) => "stop_sequence",
        Stop::Tools => "tool_use",
        Stop::Length => "max_tokens",
        Stop::Refused => "refusal",
        Stop::Paused => "pause_turn",
    }
}

/// A failure as Anthropic's error document.
pub(super) fn error(failure: &UpstreamFailure) -> Vec<u8> {
    let mut out = Vec::new();
    let mut document = Members::object(&mut out);
    document.text(&mut out, "type", "error");
    document.key(&mut out, "error");
    let mut error = Members::object(&mut out);
    let kind = match failure.kind {
        FailureKind::Invalid | FailureKind::TooLong | FailureKind::Filtered => {
            "invalid_request_error"
        }
        FailureKind::NotFound => "not_found_error",
        FailureKind::Busy => "rate_limit_error",
        FailureKind::Denied | FailureKind::Upstream => "api_error",
    };
    error.text(&mut out, "type", kind);
    error.text(&mut out, "message", &failure.message);
    error.end(&mut out);
    document.end(&mut out);
    out
}

/// `caller` of a tool call made by the model itself, not by a program that it wrote.
pub(super) const CALLER: &str = r#"{"type":"direct"}"#;

/// A message under construction, block by block.
struct MessageBlocks {
    list: Members,
    open: BlockText,
}

/// The open block and its content so far.
enum BlockText {
    None,
    Text(String),
    Thinking(String),
    Tool { id: String, name: String, input: String },
}

impl MessageBlocks {
    /// Writes the open block.
    fn close(&mut self, out: &mut Vec<u8>) {
        match std::mem::replace(&mut self.open, BlockText::None) {
            BlockText::None => {}
            BlockText::Text(text) => {
                self.list.next(out);
                let mut block = Members::object(out);
                block.text(out, "type", "text");
                block.text(out, "text", &text);
                block.raw(out, "citations", "null");
                block.end(out);
            }
            BlockText::Thinking(text) => self.thinking(&text, "", out),
            BlockText::Tool { id, name, input } => {
                self.list.next(out);
                let mut block = Members::object(out);
                block.text(out, "type", "tool_use");
                block.text(out, "id", &id);
                block.text(out, "name", &name);
                block.raw(out, "caller", CALLER);
                block.key(out, "input");
                call_input::push_input(&input, out);
                block.end(out);
            }
        }
    }

    fn thinking(&mut self, text: &str, signature: &str, out: &mut Vec<u8>) {
        self.list.next(out);
        let mut block = Members::object(out);
        block.text(out, "type", "thinking");
        block.text(out, "thinking", text);
        block.text(out, "signature", signature);
        block.end(out);
    }

    fn redacted(&mut self, data: &str, out: &mut Vec<u8>) {
        self.list.next(out);
        let mut block = Members::object(out);
        block.text(out, "type", "redacted_thinking");
        block.text(out, "data", data);
        block.end(out);
    }

    /// The seal of the thoughts that are open, or of thoughts without text.
    fn seal(&mut self, seal: &str, out: &mut Vec<u8>) {
        let text = match std::mem::replace(&mut self.open, BlockText::None) {
            BlockText::Thinking(text) => text,
            // A seal without thoughts before it: Gemini signs calls and texts, which have no place
            // for it here.
            other => {
                self.open = other;
                self.close(out);
                String::new()
            }
        };
        match shown(seal) {
            SealField::Redacted(data) => self.redacted(data, out),
            SealField::Signature(signature) => self.thinking(&text, signature, out),
        }
    }

    /// A text, in the open block of texts or a new one.
    fn text(&mut self, more: &str, out: &mut Vec<u8>) {
        if let BlockText::Text(text) = &mut self.open {
            text.push_str(more);
            return;
        }
        self.close(out);
        self.open = BlockText::Text(more.to_owned());
    }
}

/// The seal as a customer's `signature` or `data`.
pub(super) fn shown(seal: &str) -> SealField<'_> {
    if let Some(data) = seal::open(Maker::MessagesRedacted, seal) {
        return SealField::Redacted(data);
    }
    SealField::Signature(seal::open(Maker::Messages, seal).unwrap_or(seal))
}

/// The field that holds a seal.
pub(super) enum SealField<'s> {
    Signature(&'s str),
    Redacted(&'s str),
}

pub(super) fn write(answer: &[AnswerPart<'_>], frame: &AnswerFrame) -> Vec<u8> {
    if let Some(AnswerPart::Error(failure)) = answer.last() {
        return error(failure);
    }
    let mut out = Vec::with_capacity(1024);
    let mut document = Members::object(&mut out);
    document.text(&mut out, "id", &frame.id("msg_"));
    document.text(&mut out, "type", "message");
    document.text(&mut out, "role", "assistant");
    document.text(&mut out, "model", &frame.model);
    document.key(&mut out, "content");
    let mut blocks = MessageBlocks { list: Members::array(&mut out), open: BlockText::None };
    let (mut reason, mut sequence, mut counts) = ("end_turn", None, Counts::default());
    for piece in answer {
        match piece {
            AnswerPart::Begin { .. }
            | AnswerPart::Alive
            | AnswerPart::Citation(_)
            | AnswerPart::Error(_) => {}
            AnswerPart::Text(more) | AnswerPart::Refusal(more) => blocks.text(more, &mut out),
            AnswerPart::Reasoning(more) => {
                if let BlockText::Thinking(text) = &mut blocks.open {
                    text.push_str(more);
                } else {
                    blocks.close(&mut out);
                    blocks.open = BlockText::Thinking(more.clone().into_owned());
                }
            }
            AnswerPart::Seal(seal) => blocks.seal(seal, &mut out),
            AnswerPart::ToolCall { id, name, seal } => {
                blocks.close(&mut out);
                if let Some(seal) = seal {
                    // A call has no field for a seal: it travels in a block of its own before it,
                    // and back the same way.
                    blocks.redacted(seal, &mut out);
                }
                let (id, name) = (id.clone().into_owned(), name.clone().into_owned());
                blocks.open = BlockText::Tool { id, name, input: String::new() };
            }
            AnswerPart::Input(more) => {
                if let BlockText::Tool { input, .. } = &mut blocks.open {
                    input.push_str(more);
                }
            }
            AnswerPart::Stop(stop) => {
                reason = stop_reason(stop);
                if let Stop::Sequence(text) = stop {
                    sequence = text.as_deref();
                }
            }
            AnswerPart::End(reported) => counts = *reported,
        }
    }
    blocks.close(&mut out);
    blocks.list.end(&mut out);
    document.text(&mut out, "stop_reason", reason);
    match sequence {
        Some(text) => document.text(&mut out, "stop_sequence", text),
        None => document.raw(&mut out, "stop_sequence", "null"),
    }
    document.raw(&mut out, "stop_details", "null");
    document.raw(&mut out, "container", "null");
    document.key(&mut out, "usage");
    usage(&counts, &mut out);
    document.end(&mut out);
    out
}
