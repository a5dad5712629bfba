//! The events of a message: from an upstream, and for a customer.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::dialect;
use crate::dialect::{AnswerFrame, MalformedAnswer, ReadStream, WriteStream};
use crate::json::{self, BorrowedStr, Members};
use crate::messages::answer::{self, SealField, WireBlock, stop_reason};
use crate::part::{AnswerPart, Counts, Stop};
use crate::seal::{self, Maker};
use crate::sequence::Sequencer;

/// An event, with the fields of all of its types.
#[derive(Deserialize)]
struct WireEvent<'a> {
    #[serde(borrow, rename = "type", default)]
    kind: BorrowedStr<'a>,
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
    id: BorrowedStr<'a>,
}

/// A delta, with the fields of all of its types.
#[derive(Default, Deserialize)]
#[serde(default)]
struct WireDelta<'a> {
    #[serde(borrow)]
    text: Option<BorrowedStr<'a>>,
    #[serde(borrow)]
    thinking: Option<BorrowedStr<'a>>,
    #[serde(borrow)]
    signature: Option<BorrowedStr<'a>>,
    #[serde(borrow)]
    partial_json: Option<BorrowedStr<'a>>,
    #[serde(borrow)]
    stop_reason: Option<BorrowedStr<'a>>,
    #[serde(borrow)]
    stop_sequence: Option<BorrowedStr<'a>>,
}

/// Reads the events of an upstream.
#[derive(Default)]
pub(super) struct MessageReader {
    blocks: Sequencer<u64>,
    /// The blocks that have begun and not ended.
    open: Vec<OpenBlock>,
    /// The number of the block that began last: some upstreams leave it out in what follows.
    last: u64,
    has_blocks: bool,
    has_calls: bool,
    stop: Option<Stop<'static>>,
    has_ended: bool,
}

/// A block of which more may come.
struct OpenBlock {
    index: u64,
    /// The block has a type that other dialects lack.
    is_passed_over: bool,
    /// The signature of thoughts, as far as it has come.
    signature: Option<String>,
    /// The input with which a call began: it holds unless pieces follow.
    input: Option<String>,
}

impl ReadStream for MessageReader {
    fn read(
        &mut self,
        data: &[u8],
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), MalformedAnswer> {
        let event: WireEvent<'_> = match json::parse(data) {
            Ok(event) => event,
            Err(error) => return self.read_odd(data, &error),
        };
        match &*event.kind.0 {
            "message_start" => {
                let id = event.message.map(|message| message.id.0).unwrap_or_default();
                out(AnswerPart::Begin { id, counts: Counts::default() });
            }
            "content_block_start" => {
                self.begin(event.index, event.content_block.unwrap_or_default(), out);
            }
            "content_block_delta" => {
                self.delta(event.index, event.delta.unwrap_or_default(), out)?;
            }
            "content_block_stop" => self.close(event.index.unwrap_or(self.last), out),
            "message_delta" => {
                let delta = event.delta.unwrap_or_default();
                if let Some(reason) = delta.stop_reason {
                    let stop = answer::stop(&reason.0, delta.stop_sequence, self.has_calls);
                    self.stop = Some(stop.into_owned());
                }
            }
            "message_stop" => self.end(out),
            "error" => {
                self.has_ended = true;
                let error =
                    event.error.ok_or_else(|| MalformedAnswer("an empty error".to_owned()))?;
                out(AnswerPart::Error(answer::failure(error)));
            }
            "ping" => out(AnswerPart::Alive),
            // New types of events come without a new version of the API:
            // <https://platform.claude.com/docs/en/api/versioning>.
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn FnMut(AnswerPart<'_>)) {
        if self.stop.is_some() {
            self.end(out);
        }
    }

    fn has_waiting(&self) -> bool {
        self.blocks.has_waiting()
    }

    fn held_bytes(&self) -> usize {
        let signatures = self.open.iter().filter_map(|block| block.signature.as_ref());
        let inputs = self.open.iter().filter_map(|block| block.input.as_ref());
        let places = self.open.len() * size_of::<OpenBlock>();
        self.blocks.held_bytes() + places + signatures.chain(inputs).map(String::len).sum::<usize>()
    }
}

impl MessageReader {
    /// An event whose fields are not those that are read: it is passed over if it is of a new type, or
    /// about a block or a piece of a new type.
    fn read_odd(&mut self, data: &[u8], error: &serde_json::Error) -> Result<(), MalformedAnswer> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct OddEvent {
            #[serde(rename = "type")]
            kind: String,
            index: Option<u64>,
            content_block: EventType,
            delta: EventType,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct EventType {
            #[serde(rename = "type")]
            kind: String,
        }
        let malformed = || MalformedAnswer(format!("no event of a message: {error}"));
        let text = std::str::from_utf8(data).map_err(|_| malformed())?;
        match &*json::kind(text).unwrap_or_default() {
            "content_block_start" | "content_block_delta" => {}
            "" | "message_start" | "message_delta" | "error" => return Err(malformed()),
            _ => return Ok(()),
        }
        let event = json::read::<OddEvent>(text).ok_or_else(malformed)?;
        let kind = format!("{}{}", event.content_block.kind, event.delta.kind);
        let pieces = ["text_delta", "thinking_delta", "signature_delta", "input_json_delta"];
        if kind.is_empty() || answer::BLOCKS.contains(&&*kind) || pieces.contains(&&*kind) {
            return Err(malformed());
        }
        if event.kind == "content_block_start" {
            let kind = BorrowedStr(kind.into());
            let block = WireBlock { kind, ..WireBlock::default() };
            self.begin(event.index, block, &mut |_| {});
        }
        Ok(())
    }

    fn begin(
        &mut self,
        index: Option<u64>,
        block: WireBlock<'_>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) {
        let index = index.unwrap_or(self.last + 1);
        // Whoever begins another block with the same number has left out the end of the first.
        self.close(index, out);
        self.last = index;
        self.has_blocks = true;
        let mut open = OpenBlock { index, is_passed_over: false, signature: None, input: None };
        match &*block.kind.0 {
            "text" if block.text.0.is_empty() => {}
            "text" => self.blocks.push(index, AnswerPart::Text(block.text.0), out),
            "thinking" => {
                open.signature = Some(block.signature.0.into_owned());
                if !block.thinking.0.is_empty() {
                    self.blocks.push(index, AnswerPart::Reasoning(block.thinking.0), out);
                }
            }
            "redacted_thinking" => {
                let seal = seal::wrap(Maker::MessagesRedacted, &block.data.0);
                self.blocks.push(index, AnswerPart::Seal(seal.into()), out);
            }
            "tool_use" => {
                self.has_calls = true;
                let call = AnswerPart::ToolCall { id: block.id.0, name: block.name.0, seal: None };
                self.blocks.push(index, call, out);
                // The input follows in pieces, but for those who send it whole.
                let input = block.input.map(RawValue::get);
                let is_empty = |input: &&str| input.split_whitespace().collect::<String>() == "{}";
                open.input = input.filter(|input| !is_empty(input)).map(str::to_owned);
            }
            // Blocks of tools that the upstream runs, compactions, and what is new.
            _ => open.is_passed_over = true,
        }
        if !open.is_passed_over {
            // Nobody waits for the end of a block of which nothing is said.
            self.blocks.begin(index);
        }
        self.open.push(open);
    }

    fn delta(
        &mut self,
        index: Option<u64>,
        delta: WireDelta<'_>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), MalformedAnswer> {
        let index = index.unwrap_or(self.last);
        if !self.has_blocks && delta.partial_json.is_none() {
            // Some upstreams leave the beginning of the only block out.
            let kind = BorrowedStr("text".into());
            self.begin(Some(index), WireBlock { kind, ..WireBlock::default() }, out);
        }
        let Some(block) = self.open.iter_mut().rev().find(|block| block.index == index) else {
            return Err(MalformedAnswer("a piece of a block that is not open".to_owned()));
        };
        if block.is_passed_over {
            return Ok(());
        }
        let piece = if let Some(text) = delta.text {
            AnswerPart::Text(text.0)
        } else if let Some(text) = delta.partial_json {
            if text.0.is_empty() {
                return Ok(());
            }
            block.input = None;
            AnswerPart::Input(text.0)
        } else if let Some(text) = delta.thinking {
            AnswerPart::Reasoning(text.0)
        } else if let Some(text) = delta.signature {
            return seal::push_signature(block.signature.get_or_insert_default(), &text.0);
        } else {
            // `citations_delta`, and what is new.
            return Ok(());
        };
        self.blocks.push(index, piece, out);
        Ok(())
    }

    fn close(&mut self, index: u64, out: &mut dyn FnMut(AnswerPart<'_>)) {
        let Some(place) = self.open.iter().rposition(|block| block.index == index) else { return };
        let block = self.open.remove(place);
        if let Some(input) = block.input {
            self.blocks.push(index, AnswerPart::Input(input.into()), out);
        }
        if let Some(signature) = block.signature {
            let seal = seal::wrap(Maker::Messages, &signature);
            self.blocks.push(index, AnswerPart::Seal(seal.into()), out);
        }
        self.blocks.end(index, out);
    }

    fn end(&mut self, out: &mut dyn FnMut(AnswerPart<'_>)) {
        if !std::mem::replace(&mut self.has_ended, true) {
            while let Some(index) = self.open.first().map(|first| first.index) {
                self.close(index, out);
            }
            self.blocks.end_all(out);
            let unsaid = answer::stop("", None, self.has_calls);
            out(AnswerPart::Stop(self.stop.take().unwrap_or(unsaid)));
            out(AnswerPart::End(Counts::default()));
        }
    }
}

/// Writes events for a customer.
pub(super) struct MessageWriter {
    id: String,
    model: String,
    has_begun: bool,
    /// Number of blocks that have begun.
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
            id: frame.id("msg_"),
            model: frame.model.clone(),
            has_begun: false,
            blocks: 0,
            open: OpenKind::None,
            stop: "end_turn",
            sequence: None,
        }
    }

    fn begin(&mut self, counts: &Counts, out: &mut Vec<u8>) {
        self.has_begun = true;
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
            message.raw(out, "stop_details", "null");
            message.raw(out, "container", "null");
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

    /// Begins a block; `write` writes its members after the type.
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

/// Writes one event; `write` writes its members after the type.
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
            // Readers of messages expect no event before the first, and know pings behind it.
            AnswerPart::Alive if !self.has_begun => out.extend_from_slice(dialect::KEEP_ALIVE),
            AnswerPart::Alive => event("ping", out, |_, _| {}),
            AnswerPart::Citation(_) => {}
            AnswerPart::Text(text) | AnswerPart::Refusal(text) if text.is_empty() => {}
            AnswerPart::Text(text) | AnswerPart::Refusal(text) => {
                if self.open != OpenKind::Text {
                    self.open(OpenKind::Text, "text", out, |block, out| {
                        block.text(out, "text", "");
                        block.raw(out, "citations", "null");
                    });
                }
                self.delta("text_delta", "text", text, out);
            }
            AnswerPart::Reasoning(text) => {
                self.think(out);
                self.delta("thinking_delta", "thinking", text, out);
            }
            AnswerPart::Seal(seal) => match answer::shown(seal) {
                SealField::Redacted(data) => self.redacted(data, out),
                SealField::Signature(signature) => {
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
                    block.raw(out, "caller", answer::CALLER);
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
