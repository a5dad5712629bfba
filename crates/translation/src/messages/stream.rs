//! The events of a message: from an upstream, and for a customer.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::dialect::{AnswerFrame, Malformed, ReadStream, WriteStream};
use crate::json::{self, Borrowed, Members};
use crate::kit;
use crate::messages::answer::{self, ShownSeal, WireBlock, stop_reason};
use crate::part::{AnswerPart, Counts, Stop};
use crate::seal::{self, Maker};

/// An event, with the fields of all of its types.
#[derive(Deserialize)]
struct WireEvent<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: Borrowed<'a>,
    #[serde(borrow, default)]
    message: Option<WireStart<'a>>,
    #[serde(borrow, default)]
    content_block: Option<WireBlock<'a>>,
    #[serde(borrow, default)]
    delta: Option<WireDelta<'a>>,
    #[serde(default)]
    index: Option<u64>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireStart<'a> {
    #[serde(borrow, default)]
    id: Borrowed<'a>,
}

/// What is new, with the fields of all of its types.
#[derive(Default, Deserialize)]
#[serde(default)]
struct WireDelta<'a> {
    #[serde(borrow)]
    text: Option<Borrowed<'a>>,
    #[serde(borrow)]
    thinking: Option<Borrowed<'a>>,
    #[serde(borrow)]
    signature: Option<Borrowed<'a>>,
    #[serde(borrow)]
    partial_json: Option<Borrowed<'a>>,
    #[serde(borrow)]
    stop_reason: Option<Borrowed<'a>>,
    #[serde(borrow)]
    stop_sequence: Option<Borrowed<'a>>,
}

/// A signature at most, in bytes: it is kept until it is whole, and those of long thoughts have some ten
/// thousand.
const SIGNATURE_BYTES_MAX: usize = 1024 * 1024;

/// Reads the events of an upstream.
#[derive(Default)]
pub(super) struct MessageReader {
    /// The number of the block that began last, where the upstream says it.
    index: Option<u64>,
    /// The signature of the open block of thoughts, as far as it has come.
    signature: Option<String>,
    stop: Option<Stop<'static>>,
    has_ended: bool,
}

impl ReadStream for MessageReader {
    fn read(&mut self, data: &[u8], out: &mut dyn FnMut(AnswerPart<'_>)) -> Result<(), Malformed> {
        let event: WireEvent<'_> = json::parse(data)
            .map_err(|error| Malformed(format!("no event of a message: {error}")))?;
        match &*event.kind.0 {
            "message_start" => {
                let id = event.message.map(|message| message.id.0).unwrap_or_default();
                out(AnswerPart::Begin { id, counts: Counts::default() });
            }
            "content_block_start" => {
                self.index = event.index;
                self.begin(event.content_block.unwrap_or_default(), out)?;
            }
            "content_block_delta" if event.index != self.index && self.index.is_some() => {
                return Err(Malformed("a piece of a block that is not open".to_owned()));
            }
            "content_block_delta" => self.delta(event.delta.unwrap_or_default(), out)?,
            "content_block_stop" => {
                if let Some(signature) = self.signature.take() {
                    out(AnswerPart::Seal(seal::wrap(Maker::Messages, &signature).into()));
                }
            }
            "message_delta" => {
                let delta = event.delta.unwrap_or_default();
                if let Some(reason) = delta.stop_reason {
                    self.stop = Some(answer::stop(&reason.0, delta.stop_sequence).into_owned());
                }
            }
            "message_stop" => self.end(out),
            "error" => {
                self.has_ended = true;
                let error = event.error.ok_or_else(|| Malformed("an empty error".to_owned()))?;
                out(AnswerPart::Error(answer::failure(error)));
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn FnMut(AnswerPart<'_>)) {
        if self.stop.is_some() {
            self.end(out);
        }
    }
}

impl MessageReader {
    fn begin(
        &mut self,
        block: WireBlock<'_>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), Malformed> {
        match &*block.kind.0 {
            "text" if block.text.0.is_empty() => {}
            "text" => out(AnswerPart::Text(block.text.0)),
            "thinking" => {
                self.signature = Some(block.signature.0.into_owned());
                if !block.thinking.0.is_empty() {
                    out(AnswerPart::Reasoning(block.thinking.0));
                }
            }
            "redacted_thinking" => {
                out(AnswerPart::Seal(seal::wrap(Maker::MessagesRedacted, &block.data.0).into()));
            }
            "tool_use" => {
                out(AnswerPart::ToolCall { id: block.id.0, name: block.name.0, seal: None });
                // The input follows in pieces, but for those who send it whole.
                let input = block.input.map(RawValue::get);
                let is_empty = |input: &&str| input.split_whitespace().collect::<String>() == "{}";
                if let Some(input) = input.filter(|input| !is_empty(input)) {
                    out(AnswerPart::Input(input.into()));
                }
            }
            _ => return Err(block.uncarried()),
        }
        Ok(())
    }

    fn delta(
        &mut self,
        delta: WireDelta<'_>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), Malformed> {
        if let Some(text) = delta.text {
            out(AnswerPart::Text(text.0));
        } else if let Some(text) = delta.partial_json {
            if !text.0.is_empty() {
                out(AnswerPart::Input(text.0));
            }
        } else if let Some(text) = delta.thinking {
            out(AnswerPart::Reasoning(text.0));
        } else if let Some(text) = delta.signature {
            let signature = self.signature.get_or_insert_default();
            if signature.len() + text.0.len() > SIGNATURE_BYTES_MAX {
                return Err(Malformed("a signature that has no end".to_owned()));
            }
            signature.push_str(&text.0);
        } else {
            return Err(Malformed("a delta that nobody asked for".to_owned()));
        }
        Ok(())
    }

    fn end(&mut self, out: &mut dyn FnMut(AnswerPart<'_>)) {
        if !std::mem::replace(&mut self.has_ended, true) {
            out(AnswerPart::Stop(self.stop.take().unwrap_or(Stop::Done)));
            out(AnswerPart::End(Counts::default()));
        }
    }
}

/// Writes events for a customer.
pub(super) struct MessageWriter {
    id: String,
    model: String,
    /// Blocks that have begun.
    blocks: usize,
    open: OpenKind,
    stop: &'static str,
    sequence: Option<String>,
}

/// The kind of the block that is open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OpenKind {
    None,
    Text,
    Thinking,
    Tool,
}

impl MessageWriter {
    pub(super) fn new(frame: &AnswerFrame) -> Self {
        Self {
            id: kit::id("msg_", &frame.nonce),
            model: frame.model.clone(),
            blocks: 0,
            open: OpenKind::None,
            stop: "end_turn",
            sequence: None,
        }
    }

    fn begin(&self, counts: &Counts, out: &mut Vec<u8>) {
        event("message_start", out, |event, out| {
            event.key(out, "message");
            let mut message = Members::object(out);
            message.text(out, "id", &self.id);
            message.text(out, "type", "message");
            message.text(out, "role", "assistant");
            message.text(out, "model", &self.model);
            message.raw(out, "content", "[]");
            message.raw(out, "stop_reason", "null");
            message.raw(out, "stop_sequence", "null");
            message.key(out, "usage");
            answer::usage(counts, out);
            message.end(out);
        });
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        if std::mem::replace(&mut self.open, OpenKind::None) != OpenKind::None {
            let index = self.blocks.saturating_sub(1) as u64;
            event("content_block_stop", out, |event, out| event.integer(out, "index", index));
        }
    }

    /// Begins a block, whose inside `write` writes behind its type.
    fn open(
        &mut self,
        open: OpenKind,
        kind: &str,
        out: &mut Vec<u8>,
        write: impl FnOnce(&mut Members, &mut Vec<u8>),
    ) {
        self.close(out);
        let index = self.blocks as u64;
        self.blocks += 1;
        self.open = open;
        event("content_block_start", out, |event, out| {
            event.integer(out, "index", index);
            event.key(out, "content_block");
            let mut block = Members::object(out);
            block.text(out, "type", kind);
            write(&mut block, out);
            block.end(out);
        });
    }

    /// More of the open block.
    fn delta(&self, kind: &str, key: &str, text: &str, out: &mut Vec<u8>) {
        // Most events are these, so they are written without machinery.
        out.extend_from_slice(
            b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":",
        );
        out.extend_from_slice(self.blocks.saturating_sub(1).to_string().as_bytes());
        for piece in [",\"delta\":{\"type\":\"", kind, "\",\"", key, "\":"] {
            out.extend_from_slice(piece.as_bytes());
        }
        json::push_string(out, text);
        out.extend_from_slice(b"}}\n\n");
    }

    fn think(&mut self, out: &mut Vec<u8>) {
        if self.open != OpenKind::Thinking {
            self.open(OpenKind::Thinking, "thinking", out, |block, out| {
                block.text(out, "thinking", "");
                block.text(out, "signature", "");
            });
        }
    }

    fn redacted(&mut self, data: &str, out: &mut Vec<u8>) {
        self.open(OpenKind::Thinking, "redacted_thinking", out, |block, out| {
            block.text(out, "data", data);
        });
        self.close(out);
    }
}

/// One event, whose inside `write` writes behind its type.
fn event(kind: &str, out: &mut Vec<u8>, write: impl FnOnce(&mut Members, &mut Vec<u8>)) {
    for piece in ["event: ", kind, "\ndata: "] {
        out.extend_from_slice(piece.as_bytes());
    }
    let mut object = Members::object(out);
    object.text(out, "type", kind);
    write(&mut object, out);
    object.end(out);
    out.extend_from_slice(b"\n\n");
}

impl WriteStream for MessageWriter {
    fn write(&mut self, answer: &AnswerPart<'_>, out: &mut Vec<u8>) {
        match answer {
            AnswerPart::Begin { counts, .. } => self.begin(counts, out),
            AnswerPart::Text(text) | AnswerPart::Refusal(text) if text.is_empty() => {}
            AnswerPart::Text(text) | AnswerPart::Refusal(text) => {
                if self.open != OpenKind::Text {
                    self.open(OpenKind::Text, "text", out, |block, out| {
                        block.text(out, "text", "")
                    });
                }
                self.delta("text_delta", "text", text, out);
            }
            AnswerPart::Reasoning(text) => {
                self.think(out);
                self.delta("thinking_delta", "thinking", text, out);
            }
            AnswerPart::Seal(seal) => match answer::shown(seal) {
                ShownSeal::Redacted(data) => self.redacted(data, out),
                ShownSeal::Signature(signature) => {
                    self.think(out);
                    self.delta("signature_delta", "signature", signature, out);
                    self.close(out);
                }
            },
            AnswerPart::ToolCall { id, name, seal } => {
                if let Some(seal) = seal {
                    self.redacted(seal, out);
                }
                self.open(OpenKind::Tool, "tool_use", out, |block, out| {
                    block.text(out, "id", id);
                    block.text(out, "name", name);
                    block.raw(out, "input", "{}");
                });
            }
            AnswerPart::Input(text) => self.delta("input_json_delta", "partial_json", text, out),
            AnswerPart::Stop(stop) => {
                self.close(out);
                self.stop = stop_reason(stop);
                if let Stop::Sequence(text) = stop {
                    self.sequence = text.as_deref().map(str::to_owned);
                }
            }
            AnswerPart::End(counts) => {
                self.close(out);
                event("message_delta", out, |event, out| {
                    event.key(out, "delta");
                    let mut delta = Members::object(out);
                    delta.text(out, "stop_reason", self.stop);
                    match &self.sequence {
                        Some(text) => delta.text(out, "stop_sequence", text),
                        None => delta.raw(out, "stop_sequence", "null"),
                    }
                    delta.end(out);
                    event.key(out, "usage");
                    answer::usage(counts, out);
                });
                event("message_stop", out, |_, _| {});
            }
            AnswerPart::Error(failure) => {
                out.extend_from_slice(b"event: error\ndata: ");
                out.extend_from_slice(&answer::error(failure));
                out.extend_from_slice(b"\n\n");
            }
        }
    }
}
