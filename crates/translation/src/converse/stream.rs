//! The messages of a stream of the Converse API.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::converse::answer::{self, WireToolUse};
use crate::dialect::{MalformedAnswer, ReadStream};
use crate::json::{self, BorrowedStr, Members};
use crate::media;
use crate::part::{AnswerPart, Counts, Stop};
use crate::seal::{self, Maker};
use crate::sequence::Sequencer;

pub(super) fn write_event(kind: &str, name: &str, payload: &[u8], out: &mut Vec<u8>) {
    let mut object = Members::object(out);
    object.text(out, "kind", kind);
    object.text(out, "name", name);
    if !payload.is_empty() {
        object.key(out, "payload");
        // A line's end is blank space in JSON, and the end of the data in an event stream.
        let letters =
            payload.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte });
        out.extend(letters);
    }
    object.end(out);
}

#[derive(Deserialize)]
struct WireConverseEvent<'a> {
    #[serde(borrow)]
    kind: BorrowedStr<'a>,
    #[serde(borrow)]
    name: BorrowedStr<'a>,
    #[serde(borrow, default)]
    payload: Option<&'a RawValue>,
}

impl<'a> WireConverseEvent<'a> {
    fn read<T: Deserialize<'a>>(&self) -> Result<T, MalformedAnswer> {
        let payload = self.payload.and_then(|payload| json::read(payload.get()));
        payload.ok_or_else(|| MalformedAnswer(format!("no {}", self.name.0)))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireContentStart<'a> {
    #[serde(rename = "contentBlockIndex")]
    index: Option<u64>,
    #[serde(borrow)]
    start: WireBlockStart<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireBlockStart<'a> {
    #[serde(borrow, rename = "toolUse")]
    tool_use: Option<WireToolUse<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireContentDelta<'a> {
    #[serde(rename = "contentBlockIndex")]
    index: Option<u64>,
    #[serde(borrow)]
    delta: WireBlockDelta<'a>,
}

/// A delta of a content block: one of these members, or one that other dialects cannot express.
#[derive(Default, Deserialize)]
#[serde(default)]
struct WireBlockDelta<'a> {
    #[serde(borrow)]
    text: Option<BorrowedStr<'a>>,
    #[serde(borrow, rename = "toolUse")]
    tool_use: Option<WireInput<'a>>,
    #[serde(borrow, rename = "reasoningContent")]
    reasoning: Option<WireReasoningDelta<'a>>,
    #[serde(borrow)]
    image: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct WireInput<'a> {
    #[serde(borrow, default)]
    input: BorrowedStr<'a>,
}

#[derive(Deserialize)]
struct WireReasoningDelta<'a> {
    #[serde(borrow, default)]
    text: Option<BorrowedStr<'a>>,
    #[serde(borrow, default)]
    signature: Option<BorrowedStr<'a>>,
    #[serde(borrow, default, rename = "redactedContent")]
    redacted: Option<BorrowedStr<'a>>,
}

#[derive(Deserialize)]
struct WireStop<'a> {
    #[serde(borrow, rename = "stopReason")]
    reason: BorrowedStr<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireBlockEnd {
    #[serde(rename = "contentBlockIndex")]
    index: Option<u64>,
}

/// Reads the messages of an upstream.
#[derive(Default)]
pub(super) struct ConverseReader {
    blocks: Sequencer<u64>,
    /// Indexes of open calls.
    calls: Vec<u64>,
    /// Signatures of open blocks of thoughts, as far as they have come, by the place of the block.
    signatures: Vec<(u64, String)>,
    /// Index of the last block.
    last: u64,
    has_calls: bool,
    stop: Option<Stop<'static>>,
    has_ended: bool,
}

impl ReadStream for ConverseReader {
    fn read(
        &mut self,
        data: &[u8],
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), MalformedAnswer> {
        let event: WireConverseEvent<'_> = serde_json::from_slice(data)
            .map_err(|error| MalformedAnswer(format!("no message of a stream: {error}")))?;
        if self.has_ended {
            return Ok(());
        }
        if event.kind.0 != "event" {
            self.has_ended = true;
            let payload = event.payload.and_then(|payload| json::read(payload.get()));
            let payload = payload.unwrap_or_default();
            out(AnswerPart::Error(answer::failure_of(0, &event.name.0, &payload)));
            return Ok(());
        }
        match &*event.name.0 {
            "messageStart" => out(AnswerPart::Begin { id: "".into(), counts: Counts::default() }),
            "contentBlockStart" => self.begin(event.read()?, out),
            "contentBlockDelta" => self.delta(event.read()?, out)?,
            "contentBlockStop" => {
                let end: WireBlockEnd = event.read()?;
                self.close(end.index.unwrap_or(self.last), out);
            }
            "messageStop" => {
                // No block lives on behind the end of the message, also where its own end was not
                // sent.
                self.close_all(out);
                let stop: WireStop<'_> = event.read()?;
                if let Some(failure) = answer::failure_of_stop(&stop.reason.0, self.has_calls) {
                    self.has_ended = true;
                    out(AnswerPart::Error(failure));
                    return Ok(());
                }
                self.stop = Some(answer::stop(&stop.reason.0, self.has_calls));
            }
            // What was used comes behind the end of what was said.
            "metadata" => self.finish(out),
            _ => {}
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn FnMut(AnswerPart<'_>)) {
        if let Some(stop) = self.stop.take() {
            self.has_ended = true;
            out(AnswerPart::Stop(stop));
            out(AnswerPart::End(Counts::default()));
        }
    }

    fn has_waiting(&self) -> bool {
        self.blocks.has_waiting()
    }

    fn held_bytes(&self) -> usize {
        let signatures = self.signatures.iter().map(|(_, text)| text.len() + size_of::<String>());
        let places = self.calls.len() * size_of::<u64>();
        self.blocks.held_bytes() + places + signatures.sum::<usize>()
    }
}

impl ConverseReader {
    /// Blocks of text and of thoughts begin with their first delta. Others, such as pictures, have no
    /// words in other dialects.
    fn begin(&mut self, wire: WireContentStart<'_>, out: &mut dyn FnMut(AnswerPart<'_>)) {
        // Where an event has no index, the blocks are numbered as they come.
        let index = wire.index.unwrap_or(self.last + 1);
        self.close(index, out);
        self.last = index;
        let Some(call) = wire.start.tool_use else { return };
        self.has_calls = true;
        self.calls.push(index);
        let call = AnswerPart::ToolCall { id: call.id.0, name: call.name.0, seal: None };
        self.blocks.push(index, call, out);
    }

    fn delta(
        &mut self,
        wire: WireContentDelta<'_>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), MalformedAnswer> {
        let index = wire.index.unwrap_or(self.last);
        self.last = index;
        match wire.delta {
            WireBlockDelta { text: Some(text), .. } => {
                self.blocks.push(index, AnswerPart::Text(text.0), out);
            }
            WireBlockDelta { tool_use: Some(more), .. } if more.input.0.is_empty() => {}
            WireBlockDelta { tool_use: Some(more), .. } if self.calls.contains(&index) => {
                self.blocks.push(index, AnswerPart::Input(more.input.0), out);
            }
            WireBlockDelta { tool_use: Some(_), .. } => {
                return Err(MalformedAnswer("the input of a call that is not open".to_owned()));
            }
            WireBlockDelta { reasoning: Some(more), .. } => self.think(index, more, out)?,
            WireBlockDelta { image: Some(_), .. } => return Err(media::undeliverable_picture()),
            _ => {}
        }
        Ok(())
    }

    fn think(
        &mut self,
        index: u64,
        more: WireReasoningDelta<'_>,
        out: &mut dyn FnMut(AnswerPart<'_>),
    ) -> Result<(), MalformedAnswer> {
        match more {
            WireReasoningDelta { text: Some(text), .. } => {
                self.blocks.push(index, AnswerPart::Reasoning(text.0), out);
            }
            WireReasoningDelta { signature: Some(more), .. } => {
                self.blocks.begin(index);
                let signature = self.signatures.iter_mut().find(|(place, _)| *place == index);
                match signature {
                    Some((_, signature)) => seal::push_signature(signature, &more.0)?,
                    None => self.signatures.push((index, more.0.into_owned())),
                }
            }
            WireReasoningDelta { redacted: Some(data), .. } => {
                let sealed = seal::wrap(Maker::ConverseRedacted, &data.0);
                self.blocks.push(index, AnswerPart::Seal(sealed.into()), out);
            }
            _ => {}
        }
        Ok(())
    }

    fn close(&mut self, index: u64, out: &mut dyn FnMut(AnswerPart<'_>)) {
        self.calls.retain(|call| *call != index);
        if let Some(place) = self.signatures.iter().position(|(place, _)| *place == index) {
            let (_, signature) = self.signatures.remove(place);
            let seal = seal::wrap(Maker::Converse, &signature);
            self.blocks.push(index, AnswerPart::Seal(seal.into()), out);
        }
        self.blocks.end(index, out);
    }

    fn close_all(&mut self, out: &mut dyn FnMut(AnswerPart<'_>)) {
        while let Some(index) = self.signatures.first().map(|(index, _)| *index) {
            self.close(index, out);
        }
        self.calls.clear();
        self.blocks.end_all(out);
    }
}
